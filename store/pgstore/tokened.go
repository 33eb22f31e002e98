package pgstore

import (
	"cmp"
	"math"
	"slices"

	"github.com/quipudb/quipu/store"
)

// A stamp is an add with a token in a plain batch, and what tells its result from
// that of its cell: how many deltas to the cell come after it, and what they add.
type stamp struct {
	*store.Delta
	cell       int32
	left, rest int64
}

// stamps returns those of p, sorted by cell and token.
func (p *plain) stamps() []stamp {
	all := make([]stamp, 0, len(p.order))
	next := 0
	for cell := range p.cells {
		rest := p.sums[cell]
		for left := p.counts[cell] - 1; left >= 0; left-- {
			d := &p.batch.Deltas[p.order[next]]
			rest -= d.N
			if d.Guard.Token != "" {
				all = append(all, stamp{d, int32(cell), left, rest})
			}
			next++
		}
	}
	slices.SortFunc(all, func(a, b stamp) int {
		return cmp.Or(cmp.Compare(a.cell, b.cell), cmp.Compare(a.Guard.Token, b.Guard.Token))
	})
	return all
}

// tokens returns what the server has to know of the tokens of p.
func (s *Store) tokens(p *plain) []any {
	stamps := p.stamps()
	n := len(stamps)
	at, cells, names := make([]int32, n), make([]store.Cell, n), make([][]byte, n)
	adds, wants, digests := make([]int64, n), make([]bool, n), make([]int64, n)
	lefts, rests, counts := make([]int64, n), make([]int64, n), make([]int64, len(p.namespaces))
	window := s.limits.TokenWindow.Milliseconds()
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	space := 0
	for i, t := range stamps {
		at[i], cells[i], names[i] = t.cell+1, t.Cell, []byte(t.Guard.Token)
		adds[i], wants[i], digests[i] = t.N, t.Want, int64(t.Guard.Digest)
		lefts[i], rests[i] = t.left, t.rest
		for p.namespaces[space] != t.Cell.Namespace {
			space++
		}
		counts[space]++
		if ms, ok := store.TokenTime(t.Guard.Token); ok { // see store.TokenStale
			since, until = max(since, ms-window), min(until, ms+window)
		}
	}
	namespaces, keys := columns(cells)
	return []any{
		at, namespaces, keys, names, adds, wants, digests, lefts, rests,
		counts, s.limits.TokensMax - s.margin, since, until, s.seenMS.Load(),
	}
}
