package memstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// An epoch is parts that go together, and have a tally of their own.
type epoch struct {
	decide.Shelf
	epoch store.Epoch
}

// drop removes the parts that are below a floor of their partition. The tally of an
// epoch stays.
func (s *Store) drop() {
	for id := range s.held {
		if !s.parts[store.PartitionOf(id.Cell, len(s.parts))].floors.Keeps(id.Cell, id.Part) {
			delete(s.held, id)
		}
	}
}

// Part returns a part as it is now.
func (d state) Part(c store.Cell, p store.Part) store.Content {
	return d.s.held[store.PartCell{Cell: c, Part: p}]
}

// PutPart makes a part v; a v that does not exist removes it.
func (d state) PutPart(c store.Cell, p store.Part, v store.Content) {
	s, id := d.s, store.PartCell{Cell: c, Part: p}
	if shelf, e, ok := decide.ShelfOf(c, p); ok {
		tallies := s.parts[store.PartitionOf(c, len(s.parts))].tallies
		change := decide.PartChange(c, p, uint64(v.N)-uint64(s.held[id].N))
		change.Merge(tallies[epoch{shelf, e}])
		tallies[epoch{shelf, e}] = change
	}
	if s.held[id] = v; !v.Exists {
		delete(s.held, id)
	}
}

// MergePart is PutPart: there is no log.
func (d state) MergePart(c store.Cell, p store.Part, v store.Content, _ []byte) { d.PutPart(c, p, v) }

// Version returns the version of a step that leaves its counter absent.
func (d state) Version() uint64 {
	d.s.version++
	return d.s.version
}

// Partition returns which partition a cell is of.
func (d state) Partition(c store.Cell) int { return store.PartitionOf(c, len(d.s.parts)) }

// ReadParts fills contents[i] with what parts[i] holds, all at one moment.
func (s *Store) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	if err := store.CheckReadParts(parts, contents); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.reads += uint64(len(parts))
	for i, id := range parts {
		contents[i] = s.held[id]
	}
	return nil
}

// ScanParts returns up to n parts in the order of their rows. It looks at every part
// of the store.
func (s *Store) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d parts: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	type found struct {
		store.PartEntry
		row []byte
	}
	var all []found
	for id, v := range s.held {
		if namespace, row := store.AppendRow(nil, id.Cell, id.Part); namespace == r.Namespace && r.Has(row) {
			all = append(all, found{store.PartEntry{PartCell: id, Content: v}, row})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return bytes.Compare(a.row, b.row) })
	if r.Back {
		slices.Reverse(all)
	}
	entries := make([]store.PartEntry, min(n, len(all)))
	for i := range entries {
		entries[i] = all[i].PartEntry
	}
	return entries, nil
}
