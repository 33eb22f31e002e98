package pgstore

import (
	"slices"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// fencesOf returns what the server has to know of the fences that p must not be below.
func fencesOf(p *plain) []any {
	var fs fences
	for _, ns := range p.namespaces {
		if ns != "" {
			fs.add(fence{Namespace: ns}, 0)
		}
	}
	for i := 0; i < len(p.Cells) && p.Cells[i].Namespace == ""; i++ { // they come first
		fs.add(fence{Namespace: store.SpaceOf(p.Cells[i].Cell)}, 0)
	}
	for _, b := range p.Batch.Books {
		n := fs.add(fence{Namespace: b.Namespace}, b.ID)
		fs.at[n] = b.ID
	}
	for i := range p.Parts {
		if shelf, e, ok := decide.ShelfOf(p.Parts[i].PartCell.Cell, p.Parts[i].Part); ok {
			n := fs.add(shelf, int64(e))
			fs.at[n] = min(fs.at[n], int64(e))
		}
	}
	n := len(fs.of)
	namespaces, kinds, views := make([][]byte, n), make([]int16, n), make([]int32, n)
	for i, f := range fs.of {
		namespaces[i], kinds[i], views[i] = []byte(f.Namespace), int16(f.Kind), int32(f.View)
	}
	return []any{namespaces, kinds, views, fs.at, len(p.Batch.Books) > 0}
}

// fences are names of fences, each once, and what a batch is at.
type fences struct {
	of []fence
	at []int64
}

// add adds a fence unless it is there, and returns its place.
func (fs *fences) add(f fence, at int64) int {
	if n := len(fs.of); n > 0 && fs.of[n-1] == f {
		return n - 1
	}
	if n := slices.Index(fs.of, f); n >= 0 {
		return n
	}
	fs.of, fs.at = append(fs.of, f), append(fs.at, at)
	return len(fs.of) - 1
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
