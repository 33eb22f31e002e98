// Package history answers questions about the past of counters: by windows of
// time, by the values of dimensions, at an earlier moment, and by the entries
// of a ledger. It reads the parts that events have left in a store, by the
// definitions of the namespace. Only Erase and Recount write.
//
// Times are Unix milliseconds of the store's clock.
package history

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A Reader reads one namespace, by its definitions as they are now.
type Reader struct {
	Store store.Store
	Known *books.Known
	Now   int64 // the store's time

	Source string // of what is written down

	// Unreact takes back the reaction of a user, without a name in the ledger, and reports
	// whether there was one.
	Unreact func(ctx context.Context, key, user string) (bool, error)
}

// cell returns the address of a counter.
func (r *Reader) cell(key string) store.Cell {
	return store.Cell{Namespace: r.Known.Namespace, Key: key}
}

// views returns what is kept for a key.
func (r *Reader) views(key string) (*view.Views, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if k := r.Known.Of(key); k != nil {
		return k.Views, nil
	}
	return nil, store.Errorf(store.KindInvalid, "no definition names %q: only its total is kept", key)
}

// shards returns the cells that may have parts of a counter. A counter that is not split
// any more leaves parts where they were counted.
func (r *Reader) shards(ctx context.Context, key string) ([]store.Cell, error) {
	home := r.cell(key)
	width := make([]store.Content, 2)
	parts := []store.PartCell{
		{Cell: home, Part: store.PartFields{Kind: store.PartWidth}.Part()},
		{Cell: home, Part: store.PartFields{Kind: store.PartWidth, Position: 1}.Part()}, // of seats
	}
	if err := r.Store.ReadParts(ctx, parts, width); err != nil {
		return nil, err
	}
	cells := []store.Cell{home}
	for i := 1; i <= int(width[0].N); i++ {
		cells = append(cells, store.ShardCell(home, i))
	}
	for i := 1; i <= int(width[1].N); i++ {
		cells = append(cells, store.ShardCell(home, store.SplitMax+i))
	}
	return cells, nil
}

// scan calls f for each part of a range of rows, in their order.
func (r *Reader) scan(ctx context.Context, rows store.Rows, f func(*store.PartEntry) error) error {
	return r.scanBy(ctx, rows, store.ScanMax, f)
}

// scanBy is scan by so many parts at a time.
func (r *Reader) scanBy(ctx context.Context, rows store.Rows, n int, f func(*store.PartEntry) error) error {
	for {
		page, err := r.Store.ScanParts(ctx, rows, n)
		if err != nil {
			return err
		}
		for i := range page {
			if err := f(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < n {
			return nil
		}
		rows = beyond(rows, &page[len(page)-1])
	}
}

// beyond returns what is left of rows after a part of them.
func beyond(rows store.Rows, last *store.PartEntry) store.Rows {
	_, row := store.AppendRow(nil, last.Cell, last.Part)
	if rows.Back {
		rows.To = string(row)
	} else {
		rows.From = string(row) + "\x00"
	}
	return rows
}

// epochs calls f for each epoch of a view that has what begins in a span of time, the
// earliest first.
func epochs(v book.View, from, to int64, f func(store.Epoch) error) error {
	keep := time.Duration(v.Epoch)
	last := store.EpochAt(to-1, keep)
	for e := store.EpochAt(from, keep); e <= last; e++ {
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}
