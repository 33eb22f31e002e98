package pgstore

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A fence is the name of one: of the book of a namespace, whose kind is 0, or of the
// first epoch of a view that is kept.
type fence = decide.Shelf

// spacesOf returns the namespaces whose fences batches may meet or raise.
func spacesOf(batches []*store.Batch) [][]byte {
	var spaces [][]byte
	add := func(namespace string) { spaces = append(spaces, []byte(namespace)) }
	for _, b := range batches {
		for i := range b.Deltas {
			if i == 0 || b.Deltas[i].Cell.Namespace != b.Deltas[i-1].Cell.Namespace || b.Deltas[i].Cell.Namespace == "" {
				add(store.SpaceOf(b.Deltas[i].Cell))
			}
		}
		for i := range b.Books {
			add(b.Books[i].Namespace)
		}
		for i := range b.Floors {
			add(b.Floors[i].Namespace)
		}
	}
	slices.SortFunc(spaces, bytes.Compare)
	return distinct(spaces)
}

func (st *state) readFences(rows pgx.Rows) error {
	var ns []byte
	var kind int16
	var view int32
	var least int64
	_, err := pgx.ForEachRow(rows, []any{&ns, &kind, &view, &least}, func() error {
		if kind == 0 {
			st.books[string(ns)] = least
		} else {
			st.floors[fence{Namespace: string(ns), Kind: store.PartKind(kind), View: uint16(view)}] = store.Epoch(least)
		}
		return nil
	})
	return err
}

// admits reports whether a batch may be applied by the fences and its conditions, and
// raises the fences then; otherwise it has filled r, or the work needs another lock.
func (st *state) admits(b *store.Batch, r *store.Reply) bool {
	r.Err = cmp.Or(st.books.Judge(b), st.floors.Judge(b), decide.Conditions(st, b))
	if r.Err != nil {
		return false
	}
	for _, book := range b.Books {
		if book.ID > st.books[book.Namespace] {
			st.raised[fence{Namespace: book.Namespace}] = book.ID
		}
	}
	for _, f := range b.Floors {
		if shelf := (fence{Namespace: f.Namespace, Kind: f.Kind, View: f.View}); f.Epoch > st.floors[shelf] {
			st.raised[shelf] = int64(f.Epoch)
		}
	}
	if len(st.raised) > 0 && !st.work.raise {
		st.work.raise, st.recount = true, true
		return false
	}
	st.books.Raise(b)
	st.floors.Raise(b)
	return true
}

func (s *Store) saveFences(q *pgx.Batch, st *state) {
	for _, f := range slices.SortedFunc(maps.Keys(st.raised), compareShelves) {
		q.Queue(s.sql.putFence, []byte(f.Namespace), int16(f.Kind), int32(f.View), st.raised[f])
	}
}

func compareShelves(a, b decide.Shelf) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.View, b.View))
}

func (id tallyID) compare(o tallyID) int {
	return cmp.Or(compareShelves(id.Shelf, o.Shelf), cmp.Compare(id.epoch, o.epoch))
}
