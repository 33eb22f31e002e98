package pgstore

import (
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// fencesOf returns what the server has to know of the fences that p must not be below.
func fencesOf(p *plain) []any {
	at := make(map[fence]int64)
	for i := range p.Cells {
		at[fence{Namespace: store.SpaceOf(p.Cells[i].Cell)}] = 0
	}
	for _, b := range p.Batch.Books {
		at[fence{Namespace: b.Namespace}] = b.ID
	}
	for i := range p.Parts {
		if shelf, e, ok := decide.ShelfOf(p.Parts[i].PartCell.Cell, p.Parts[i].Part); ok {
			if least, known := at[shelf]; !known || int64(e) < least {
				at[shelf] = int64(e)
			}
		}
	}
	n := len(at)
	namespaces, kinds, views, leasts := make([][]byte, 0, n), make([]int16, 0, n), make([]int32, 0, n), make([]int64, 0, n)
	for f, least := range at {
		namespaces, kinds = append(namespaces, []byte(f.Namespace)), append(kinds, int16(f.Kind))
		views, leasts = append(views, int32(f.View)), append(leasts, least)
	}
	return []any{namespaces, kinds, views, leasts}
}

var partBook = store.PartFields{Kind: store.PartBook}.Part()

// partsOf returns what the server has to know of the parts that p adds to.
func partsOf(p *plain) []any {
	parts, adds := make([]store.PartCell, len(p.Parts)), make([]int64, len(p.Parts))
	tallies := make(map[tallyID]decide.Record)
	for i := range p.Parts {
		at := &p.Parts[i]
		parts[i], adds[i] = at.PartCell, at.Sum
		if shelf, e, ok := decide.ShelfOf(at.PartCell.Cell, at.Part); ok {
			change := decide.PartChange(at.PartCell.Cell, at.Part, uint64(at.Sum))
			change.Merge(tallies[tallyID{shelf, e}])
			tallies[tallyID{shelf, e}] = change
		}
	}
	var books []store.PartCell
	var ids []int64
	for i := range p.Cells {
		if c := &p.Cells[i]; c.Book != 0 {
			books, ids = append(books, store.PartCell{Cell: c.Cell, Part: partBook}), append(ids, c.Book)
		}
	}
	at, under := placesOf(parts), placesOf(books)
	return append([]any{at.epochs, at.namespaces, at.rows, adds, under.namespaces, under.rows, ids}, talliesOf(tallies)...)
}
