package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A counted is what one counter has in the parts of its views, summed over its shards, with
// sums mod 2^64. It is used again for the next counter.
type counted struct {
	books []int64 // by shard, of those that have one
	views []sums  // as those of the entry
	parts int64   // that were read

	generation int64           // of members
	told       map[int64]int64 // by generation and choice, as positions of members have them: how many users are counted
	found      map[int64]int64 // and how many there are
}

// sums are those of one view.
type sums struct {
	outside, cells  uint64
	windows         []counts // not sorted, and some more than once
	values, counter int64    // of a dimension: values that were admitted, and how many were counted
	stopped         bool     // a list of it has counted to where numbers stop
}

// A counts is what was counted in the window that begins at start.
type counts struct {
	start int64
	n     uint64
}

func (c *counted) reset(views int) {
	if len(c.views) != views {
		c.views = make([]sums, views)
	}
	for i := range c.views {
		c.views[i] = sums{windows: c.views[i].windows[:0]}
	}
	c.books, c.parts, c.generation = c.books[:0], 0, 0
	clear(c.told)
	clear(c.found)
}

// take adds a part of a shard. Those of views that the equations do not have are passed over.
func (c *counted) take(shard int, f *store.PartFields, content *store.Content, q *equations) error {
	c.parts++
	if f.Kind == store.PartBook {
		for len(c.books) <= shard {
			c.books = append(c.books, 0)
		}
		c.books[shard] = content.N
		return nil
	}
	if f.Kind == store.PartOutside && f.View == 0 {
		for i := range q.views {
			if int64(q.views[i].View.Book) <= f.Position {
				c.views[i].outside += uint64(content.N)
			}
		}
		return nil
	}
	if c.react(f, content) {
		return nil
	}
	i := q.index(f.View)
	if i < 0 {
		return nil
	}
	s := &c.views[i]
	switch f.Kind {
	case store.PartOutside:
		s.outside += uint64(content.N)
	case store.PartDim:
		s.cells += uint64(content.N)
	case store.PartAdmitted:
		if f.Name == "" {
			s.counter += content.N
		} else {
			s.values++
		}
	case store.PartWindow, store.PartWindowDim:
		s.window(f.Position, uint64(content.N))
	case store.PartSketch, store.PartWindowSketch, store.PartShared, store.PartWindowShared:
		if q.views[i].Top == 0 {
			return nil
		}
		n, err := sketch.TopTotal(content.Bytes)
		if err != nil {
			return store.Errorf(store.KindCorrupt, "%s: %w", q.names[i], err)
		}
		s.stopped = s.stopped || n == math.MaxInt64
		if q.views[i].ListsWindows() {
			s.window(f.Position, uint64(n))
		} else {
			s.cells += uint64(n)
		}
	case store.PartEntries:
		if f.Name != "" {
			return nil
		}
		e, err := ledger.ParseEntry(content.Bytes)
		if err != nil {
			return err
		}
		for line := range e.Lines {
			if e.Lines[line].Kind.Adds() {
				n, _ := e.Delta(line)
				s.cells += uint64(n)
			}
		}
	default:
	}
	return nil
}

// window adds what was counted in a window.
func (s *sums) window(start int64, n uint64) {
	s.cells += n
	if last := len(s.windows) - 1; last >= 0 && s.windows[last].start == start {
		s.windows[last].n += n
	} else {
		s.windows = append(s.windows, counts{start, n})
	}
}

// summed sorts counts by where an aligned window begins that has them, and adds up those of
// one, without those that begin before a time and those that are 0.
func summed(all []counts, align func(int64) int64, from int64) []counts {
	slices.SortFunc(all, func(a, b counts) int { return cmp.Compare(a.start, b.start) })
	var out []counts
	for _, c := range all {
		start := align(c.start)
		if start < from {
			continue
		}
		if n := len(out); n > 0 && out[n-1].start == start {
			out[n-1].n += c.n
		} else {
			out = append(out, counts{start, c.n})
		}
	}
	return slices.DeleteFunc(out, func(c counts) bool { return c.n == 0 })
}
