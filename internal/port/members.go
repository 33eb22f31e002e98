package port

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"io"
	"strings"

	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// Choices returns what users may choose of a counter, in the order of the numbers, as the
// definitions were at most a second ago; nil if it takes no reactions.
func (p *Port) Choices(ctx context.Context, key string) ([]string, error) {
	if p.err != nil {
		return nil, p.err
	}
	known, err := p.books.Get(ctx, p.namespace)
	if err != nil {
		return nil, err
	}
	if keys := known.Of(key); keys != nil {
		return keys.Choices(), nil
	}
	return nil, nil
}

// KnownChoices is Choices as far as it is known here, without asking the store. A later
// definition may have more.
func (p *Port) KnownChoices(key string) []string {
	if keys := p.books.Known(p.namespace).Of(key); keys != nil {
		return keys.Choices()
	}
	return nil
}

// memberTries is how often members are read of which a counter got a new generation
// meanwhile.
const memberTries = 8

func errRestless(key string) error {
	return store.Errorf(store.KindUnavailable, "%q was reset during each attempt to read its reactions: try again", key)
}

// Chosen fills choices[i] with the number of what a user has chosen of keys[i]; 0 is nothing.
func (p *Port) Chosen(ctx context.Context, user string, keys []string, choices []int64) error {
	seats := make([]seat, len(keys))
	for i, key := range keys {
		seats[i] = seat{home: p.Cell(key), user: user}
	}
	return p.chosen(ctx, seats, choices)
}

// ChosenBy fills choices[i] with the number of what users[i] has chosen of a key.
func (p *Port) ChosenBy(ctx context.Context, key string, users []string, choices []int64) error {
	seats := make([]seat, len(users))
	for i, user := range users {
		seats[i] = seat{home: p.Cell(key), user: user}
	}
	return p.chosen(ctx, seats, choices)
}

// Counts fills users[i] with how many users have choice i+1 of a key. If they are in shards
// of several partitions, which are never read at one moment, it is what each shard has.
func (p *Port) Counts(ctx context.Context, key string, users []int64) error {
	c := p.Cell(key)
	each := len(users) + 1
	for range memberTries {
		cells, err := p.seats(ctx, c)
		if err != nil {
			return err
		}
		gen, _ := p.gens.get(c)
		parts, contents := make([]store.PartCell, 0, each*len(cells)), make([]store.Content, each*len(cells))
		for _, cell := range cells {
			parts = append(parts, store.PartCell{Cell: cell, Part: view.Generation()})
			for i := range users {
				parts = append(parts, store.PartCell{Cell: cell, Part: view.Members(gen, int64(i+1))})
			}
		}
		if err := p.readParts(ctx, parts, contents); err != nil {
			return err
		}
		clear(users)
		same := true
		for n, content := range contents {
			if i := n % each; i > 0 {
				users[i-1] += content.N
			} else {
				same = same && content.N == gen
			}
		}
		if same {
			return nil
		}
		if _, err := p.generation(ctx, c, false); err != nil {
			return err
		}
	}
	return errRestless(key)
}

// A Member is a user, and the number of what was chosen.
type Member struct {
	User   string
	Choice int64
}

// MembersQuery asks for a page of the users of a key.
type MembersQuery struct {
	Key    string
	Choice int64  // only users that have it; 0 is any
	Cursor string // of the page before
	Limit  int    // users in a page
}

// membersLooked is how many rows are looked at for each user that a page may have, before
// it is cut short.
const membersLooked = 10

// Members returns a page of the users of a key, and the cursor of the next one, empty if
// there is none. All of a page have reacted since the counter was reset last.
func (p *Port) Members(ctx context.Context, q MembersQuery) (page []Member, next string, err error) {
	after, err := p.parseMemberCursor(&q)
	if err != nil {
		return nil, "", err
	}
	c := p.Cell(q.Key)
	for range memberTries {
		gen, err := p.generation(ctx, c, false)
		if err != nil {
			return nil, "", err
		}
		cells, err := p.seats(ctx, c)
		if err != nil {
			return nil, "", err
		}
		page, last, err := p.membersIn(ctx, cells, gen, after, &q)
		if err != nil {
			return nil, "", err
		}
		if now, err := p.generation(ctx, c, false); err != nil {
			return nil, "", err
		} else if now != gen {
			continue
		}
		if last != "" {
			next = p.memberCursor(&q, last)
		}
		return page, next, nil
	}
	return nil, "", errRestless(q.Key)
}

// membersOf returns a page of the members of one generation, and the last user that was
// looked at, unless it was the last of all.
func (p *Port) membersOf(ctx context.Context, c store.Cell, gen int64, after string, q *MembersQuery) (page []Member, last string, err error) {
	from := store.PartFields{Kind: store.PartMember, Position: gen, Name: after}
	rows := store.RowsOf(c, from, store.PartFields{Kind: store.PartMember, Position: gen + 1})
	if after != "" {
		rows.From += "\x00"
	}
	n := min(q.Limit+1, store.ScanMax)
	for looked := 0; ; looked += n {
		found, err := p.store.ScanParts(ctx, rows, n)
		if err != nil {
			return nil, "", err
		}
		for i := range found {
			f, _ := found[i].Part.Fields()
			if len(page) == q.Limit {
				return page, last, nil
			}
			last = f.Name
			if choice := found[i].Content.N; q.Choice == 0 || choice == q.Choice {
				page = append(page, Member{f.Name, choice})
			}
		}
		if len(found) < n {
			return page, "", nil
		}
		if looked > membersLooked*q.Limit {
			return page, last, nil
		}
		_, row := store.AppendRow(nil, c, found[n-1].Part)
		rows.From = string(row) + "\x00"
	}
}

// memberCursor returns where a list goes on after a user. What it is of comes first.
func (p *Port) memberCursor(q *MembersQuery, user string) string {
	h := fnv.New32a()
	for _, part := range []string{p.namespace, q.Key, view.ChoiceName(nil, q.Choice), user} {
		_, _ = io.WriteString(h, part) // It never fails.
		_, _ = h.Write([]byte{0xff})   // No text has it.
	}
	return base64.RawURLEncoding.EncodeToString(append(h.Sum(nil), user...))
}

// parseMemberCursor returns the user after whom the page begins.
func (p *Port) parseMemberCursor(q *MembersQuery) (after string, err error) {
	if q.Cursor == "" {
		return "", nil
	}
	const head = 4
	raw, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err == nil && len(raw) > head {
		if user := strings.ToValidUTF8(string(raw[head:]), ""); p.memberCursor(q, user) == q.Cursor && len(user) <= store.PartNameBytesMax {
			return user, nil
		}
	}
	return "", store.Errorf(store.KindInvalid, "cursor %.40q does not belong to this list: want the cursor of the page before, with the same choice", q.Cursor)
}
