package spread

import (
	"context"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// Read fills values[i] with the durable value of the counter cells[i]: of one that
// is split, the sum of its shards, with its Layout, and a version that is no
// cell's. Of a counter whose shards are known it is one call.
func (s *Store) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	return s.read(ctx, cells, values, nil)
}

// Collect is Read that also tells of which versions of its cells each value is the
// sum, home's first: versions[i] for cells[i]. Of a shard that is not there it is 0.
func (s *Store) Collect(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	return s.read(ctx, cells, values, versions)
}

func (s *Store) read(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	if len(cells) != len(values) {
		return store.Errorf(store.KindInvalid, "read %d cells into %d values", len(cells), len(values))
	}
	if !s.known.any(cells) {
		if err := s.under.Read(ctx, cells, values); err != nil {
			return err
		}
		if !anyLaid(values) {
			for i := range versions {
				versions[i] = append(versions[i][:0], values[i].Version)
			}
			return nil
		}
		split := false
		for i := range values {
			word := hot.Of(values[i])
			split = split || word != 0 && word.Seated() == 0
			s.known.learn(cells[i], nil, word, values[i].Version)
			if versions != nil {
				versions[i] = append(versions[i][:0], values[i].Version)
			}
		}
		if !split {
			return s.sumSeats(ctx, cells, values, versions)
		}
	}
	m := s.newSum(cells, values, versions)
	if s.drive(ctx, m); m.err != nil {
		return m.err
	}
	return s.sumSeats(ctx, cells, values, versions)
}

func anyLaid(values []store.Value) bool {
	for i := range values {
		if hot.Of(values[i]) != 0 {
			return true
		}
	}
	return false
}

// Peek is Read without the waiting, of counters that are one cell.
func (s *Store) Peek(cells []store.Cell, values []store.Value) bool {
	return s.starter != nil && s.starter.Peek(cells, values) && !anyLaid(values)
}

// Scan returns up to n counters of a namespace in key order.
func (s *Store) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	found, err := s.under.Scan(ctx, r, n)
	if err != nil {
		return nil, err
	}
	var cells []store.Cell
	var at []int
	for i := range found {
		if hot.Of(found[i].Value) != 0 {
			cells, at = append(cells, store.Cell{Namespace: r.Namespace, Key: found[i].Key}), append(at, i)
		}
	}
	if len(cells) == 0 {
		return found, nil
	}
	values := make([]store.Value, len(cells))
	if err := s.Read(ctx, cells, values); err != nil {
		return nil, err
	}
	last := ""
	if len(found) == n {
		last = found[n-1].Key
	}
	for i, v := range values {
		found[at[i]].Value = v
	}
	// Some may have been deleted meanwhile. A page that is short by them would look
	// like the last one.
	found = slices.DeleteFunc(found, func(e store.Entry) bool { return !e.Value.Exists })
	if last == "" || len(found) == n {
		return found, nil
	}
	r.After = last
	rest, err := s.Scan(ctx, r, n-len(found))
	return append(found, rest...), err
}

// partWait is how long each part of a counter is waited for, if what can't be
// read may be left out.
const partWait = 500 * time.Millisecond

// ReadPart reads a counter of which some cells can't be reached: the sum of the
// others, and how many are missing. What is known of its layout must do.
func (s *Store) ReadPart(ctx context.Context, c store.Cell) (v store.Value, missing int, err error) {
	k := s.known.get(c)
	if k == nil {
		return v, 0, store.Errorf(store.KindUnavailable, "%q can't be read, and it is not known to have shards", c.Key)
	}
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	m := &partial{of: k}
	s.drive(ctx, m)
	return m.value, m.missing, m.err
}
