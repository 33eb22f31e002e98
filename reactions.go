package quipu

import (
	"cmp"
	"context"
	"slices"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// React records the choice of a user for a counter, in place of the user's
// earlier choice. The definition of the counter declares the choices. The
// counter is the number of users with a choice. The number for each choice, the
// counter and its views change in one step. If the user has this choice
// already, nothing changes, and the Reaction says so.
//
// The name of a user has 1 to 255 bytes of UTF-8. The options are Token and
// WantValue, which asks for the counts.
func (db *DB) React(ctx context.Context, key, user, choice string, opts ...WriteOption) (Reaction, error) {
	choices := db.port.KnownChoices(key)
	n := slices.Index(choices, choice) + 1
	if n == 0 {
		var err error
		if choices, err = db.choices(ctx, key); err != nil {
			return Reaction{}, err
		}
		if n = slices.Index(choices, choice) + 1; n == 0 {
			return Reaction{}, port.ErrChoice(choice, choices)
		}
	}
	return db.react(ctx, port.Reaction{Key: key, User: user, Choice: int64(n)}, choices, opts)
}

// Unreact removes the choice of a user. If there is none, nothing changes.
func (db *DB) Unreact(ctx context.Context, key, user string, opts ...WriteOption) (Reaction, error) {
	choices := db.port.KnownChoices(key)
	if choices == nil {
		var err error
		if choices, err = db.choices(ctx, key); err != nil {
			return Reaction{}, err
		}
	}
	return db.react(ctx, port.Reaction{Key: key, User: user}, choices, opts)
}

// choices returns what users may choose of a counter. There must be some.
func (db *DB) choices(ctx context.Context, key string) ([]string, error) {
	if err := db.port.Err(); err != nil {
		return nil, err
	}
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	choices, err := db.port.Choices(ctx, key)
	if err == nil && len(choices) == 0 {
		err = port.NoChoices(key)
	}
	return choices, err
}

func (db *DB) react(ctx context.Context, r port.Reaction, choices []string, opts []WriteOption) (Reaction, error) {
	t, err := reactTerms(opts)
	err = cmp.Or(err, db.port.Err(), call.CheckUser(r.User))
	if err != nil {
		return Reaction{}, err
	}
	r.Token = t.Token
	var did [1]port.Reacted
	if err := db.port.React(ctx, []port.Reaction{r}, did[:]); err != nil {
		return Reaction{}, err
	}
	if err := did[0].Err; err != nil {
		return Reaction{}, err
	}
	out := Reaction{
		Namespace: db.port.Namespace(), Key: r.Key, User: r.User,
		Choice: view.ChoiceName(choices, r.Choice), Before: view.ChoiceName(choices, did[0].Before),
		Changed: did[0].Changed, Replayed: did[0].Replayed, Version: did[0].Version, Durability: did[0].Durability,
	}
	if t.WantValue {
		out.Counts, _, err = db.counts(ctx, r.Key, choices)
	}
	return out, err
}

// reactTerms returns what the options of a reaction say.
func reactTerms(opts []WriteOption) (t call.WriteTerms, err error) {
	if t, err = call.WriteTermsOf(opts, false); err != nil {
		return t, err
	}
	switch {
	case t.HasVersion:
		return t, store.Errorf(store.KindInvalid, "option IfVersion has no meaning for a reaction")
	case t.HasBecause:
		return t, store.Errorf(store.KindInvalid, "option Because has no meaning for a reaction")
	case t.HasToken:
		return t, store.CheckToken(t.Token)
	}
	return t, nil
}

// Choice returns the choice that a user made for each of up to KeysMax keys, in
// their order. It is empty if the user made none.
func (db *DB) Choice(ctx context.Context, user string, keys ...string) ([]string, error) {
	if err := db.port.Err(); err != nil {
		return nil, err
	}
	if err := call.CheckUser(user); err != nil {
		return nil, err
	}
	if len(keys) > KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), KeysMax)
	}
	for _, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, err
		}
	}
	numbers, names := make([]int64, len(keys)), make([]string, len(keys))
	if err := db.port.Chosen(ctx, user, keys, numbers); err != nil {
		return nil, err
	}
	for i, n := range numbers {
		if n == 0 {
			continue
		}
		choices, err := db.port.Choices(ctx, keys[i])
		if err != nil {
			return nil, err
		}
		names[i] = view.ChoiceName(choices, n)
	}
	return names, nil
}

// Reactions returns the number of users with each choice of a counter.
func (db *DB) Reactions(ctx context.Context, key string) (Reactions, error) {
	choices, err := db.choices(ctx, key)
	if err != nil {
		return Reactions{}, err
	}
	out := Reactions{Key: key}
	out.Counts, out.Users, err = db.counts(ctx, key, choices)
	return out, err
}

// counts returns how many users have each choice, all at one moment.
func (db *DB) counts(ctx context.Context, key string, choices []string) (all []ChoiceCount, sum int64, err error) {
	users := make([]int64, len(choices))
	if err := db.port.Counts(ctx, key, users); err != nil {
		return nil, 0, err
	}
	for i, n := range users {
		all = append(all, ChoiceCount{Choice: choices[i], Users: n})
		sum += n
	}
	return all, sum, nil
}

// Members returns the users who have a choice of a counter, in the byte order
// of their names, a page at a time. A user who has a choice during the whole
// listing is on exactly one page.
func (db *DB) Members(ctx context.Context, key string, o MembersOptions) (MembersPage, error) {
	choices, err := db.choices(ctx, key)
	if err != nil {
		return MembersPage{}, err
	}
	q := port.MembersQuery{Key: key, Cursor: o.Cursor, Limit: o.Limit}
	if q.Limit == 0 {
		q.Limit = pageDefault
	}
	switch {
	case q.Limit < 0:
		return MembersPage{}, store.Errorf(store.KindInvalid, "limit %d is negative", q.Limit)
	case q.Limit > MembersMax:
		return MembersPage{}, store.Errorf(store.KindTooLarge, "page of %d users: at most %d", q.Limit, MembersMax)
	}
	if o.Choice != "" {
		if q.Choice = int64(slices.Index(choices, o.Choice) + 1); q.Choice == 0 {
			return MembersPage{}, port.ErrChoice(o.Choice, choices)
		}
	}
	found, next, err := db.port.Members(ctx, q)
	if err != nil {
		return MembersPage{}, err
	}
	page := MembersPage{Next: next, Members: make([]Member, len(found))}
	for i, m := range found {
		page.Members[i] = Member{User: m.User, Choice: view.ChoiceName(choices, m.Choice)}
	}
	return page, nil
}

// forget takes back the reaction of a user whose name must not be written down, and reports
// whether there was one.
func (db *DB) forget(ctx context.Context, key, user string) (bool, error) {
	var did [1]port.Reacted
	err := db.port.React(ctx, []port.Reaction{{Key: key, User: user, Nameless: true}}, did[:])
	return did[0].Changed, cmp.Or(err, did[0].Err)
}
