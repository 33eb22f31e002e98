package quipu

import (
	"context"
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

const pageDefault = 100

// List returns the counters whose keys start with prefix, in the byte order of
// their keys, a page at a time. A counter that exists all the while is in
// exactly one page, whatever happens to others. The last page may be empty.
func (db *DB) List(ctx context.Context, prefix string, o ListOptions) (Page, error) {
	if db.err != nil {
		return Page{}, db.err
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
	after, err := parseCursor(o.Cursor, prefix)
	if err != nil {
		return Page{}, err
	}
	asOf := time.Now()
	entries, err := db.store.Scan(ctx, store.Range{Namespace: db.namespace, Prefix: prefix, After: after}, limit)
	if err != nil {
		return Page{}, err
	}
	p := Page{Counts: make([]Count, len(entries))}
	cells := make([]store.Cell, len(entries))
	for i, e := range entries {
		cells[i] = store.Cell{Namespace: db.namespace, Key: e.Key}
		p.Counts[i] = count(e.Key, e.Value, seen{asOf: asOf, source: sourceStore})
	}
	db.totals.outdo(cells)
	if len(entries) == limit {
		p.Next = base64.RawURLEncoding.EncodeToString([]byte(entries[limit-1].Key))
	}
	return p, nil
}

// parseCursor returns the key after which the page begins.
func parseCursor(cursor, prefix string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	key, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || !strings.HasPrefix(string(key), prefix) {
		return "", store.Errorf(store.KindInvalid, "cursor %.40q is not of this list", cursor)
	}
	return string(key), nil
}
