package quipu

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"io"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/internal/wide"
	"github.com/quipudb/quipu/store"
)

const pageDefault = 100

// List returns the counters whose keys start with prefix, in the byte order of
// their keys, a page at a time. A counter that exists during the whole listing
// is on exactly one page. The last page may be empty.
func (db *DB) List(ctx context.Context, prefix string, o ListOptions) (Page, error) {
	if err := db.port.Err(); err != nil {
		return Page{}, err
	}
	limit := o.Limit
	if limit == 0 {
		limit = pageDefault
	}
	switch {
	case limit < 0:
		return Page{}, store.Errorf(store.KindInvalid, "limit %d is negative", limit)
	case limit > PageMax:
		return Page{}, store.Errorf(store.KindTooLarge, "page of %d counters: at most %d", limit, PageMax)
	case len(prefix) > store.KeyBytesMax:
		return Page{}, store.Errorf(store.KindTooLarge, "prefix of %d bytes: at most %d", len(prefix), store.KeyBytesMax)
	case !utf8.ValidString(prefix):
		return Page{}, store.Errorf(store.KindInvalid, "prefix is not UTF-8")
	}
	after, err := db.parseCursor(o.Cursor, prefix)
	if err != nil {
		return Page{}, err
	}
	asOf := time.Now()
	entries, err := db.port.Store().Scan(ctx, store.Range{Namespace: db.port.Namespace(), Prefix: prefix, After: after}, limit)
	if err != nil {
		return Page{}, err
	}
	p := Page{Counts: make([]Count, len(entries))}
	cells := make([]store.Cell, len(entries))
	for i, e := range entries {
		cells[i] = db.port.Cell(e.Key)
		p.Counts[i] = count(e.Key, e.Value, total.Seen{AsOf: asOf, Source: total.SourceStore})
	}
	db.port.Totals().Outdo(cells)
	if len(entries) == limit {
		p.Next = db.cursor(entries[limit-1].Key, prefix)
	}
	return p, nil
}

// cursor returns the cursor of a list after a key. It begins with a checksum
// of the list and the key, so that a cursor of another list, or a damaged one, is
// refused and no counter is skipped.
func (db *DB) cursor(key, prefix string) string {
	b := binary.BigEndian.AppendUint32(nil, db.listOf(key, prefix))
	return base64.RawURLEncoding.EncodeToString(append(b, key...))
}

// parseCursor returns the key after which the page begins.
func (db *DB) parseCursor(cursor, prefix string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	const head = 4
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil && len(raw) > head {
		if key := string(raw[head:]); binary.BigEndian.Uint32(raw) == db.listOf(key, prefix) {
			return key, nil
		}
	}
	return "", store.Errorf(store.KindInvalid, "cursor %.40q does not belong to this list: want the cursor of the page before, with the same prefix", cursor)
}

// listOf returns a checksum of a list and a key in it.
func (db *DB) listOf(key, prefix string) uint32 {
	h := fnv.New32a()
	for _, part := range []string{db.port.Namespace(), prefix, key} {
		_, _ = io.WriteString(h, part) // It never fails.
		_, _ = h.Write([]byte{0xff})   // No text has it.
	}
	return h.Sum32()
}

// Sum returns the sum of the counters whose keys start with prefix, and their
// number. It reads SumPage counters at a time, so it needs little memory, and
// it may or may not include writes that arrive in the meantime.
//
// If ctx has a deadline, Sum stops in time and returns the sum so far, with
// Complete unset: continue from Next. The cursor of the first call is "".
func (db *DB) Sum(ctx context.Context, prefix, cursor string) (Sum, error) {
	began := time.Now()
	until := time.Time{}
	if end, ok := ctx.Deadline(); ok {
		until = began.Add(time.Until(end) * 3 / 4)
	}
	s := Sum{Exact: true, AsOf: began, Next: cursor}
	var sum wide.Sum
	for !s.Complete && (s.Next == cursor || until.IsZero() || time.Now().Before(until)) {
		p, err := db.List(ctx, prefix, ListOptions{Limit: SumPage, Cursor: s.Next})
		if err != nil {
			return Sum{}, err
		}
		for i := range p.Counts {
			c := &p.Counts[i]
			sum.Add(c.Value)
			s.Exact = s.Exact && c.Exact
			if c.AsOf.Before(s.AsOf) {
				s.AsOf = c.AsOf
			}
		}
		s.Keys += int64(len(p.Counts))
		s.Next, s.Complete = p.Next, p.Next == ""
	}
	s.Exact = s.Exact && s.Complete && cursor == ""
	var ok bool
	if s.Value, ok = sum.Int64(); !ok {
		return Sum{}, store.Errorf(store.KindOverflow, "%d counters that start with %.40q add up to more than an int64", s.Keys, prefix)
	}
	return s, nil
}
