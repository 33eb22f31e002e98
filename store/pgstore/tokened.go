package pgstore

import (
	"math"

	"github.com/quipudb/quipu/store"
)

// tokens returns what the server has to know of the tokens of p.
func (s *Store) tokens(p *plain) []any {
	n := len(p.Tokens)
	at, cells, names := make([]int32, n), make([]store.Cell, n), make([][]byte, n)
	adds, wants, digests := make([]int64, n), make([]bool, n), make([]int64, n)
	lefts, rests, counts := make([]int64, n), make([]int64, n), make([]int64, len(p.namespaces))
	space := 0
	for i, t := range p.Tokens {
		at[i], cells[i], names[i] = int32(t.Cell+1), t.Delta.Cell, []byte(t.Guard.Token)
		adds[i], wants[i], digests[i] = t.N, t.Want, int64(t.Guard.Digest)
		lefts[i], rests[i] = int64(t.Later), p.Cells[t.Cell].Sum-t.Before-t.N
		for p.namespaces[space] != cells[i].Namespace {
			space++
		}
		counts[space]++
	}
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if p.Timed { // see store.TokenStale
		window := s.limits.TokenWindow.Milliseconds()
		since, until = p.Newest-window, p.Oldest+window
	}
	namespaces, keys := columns(cells)
	return []any{
		at, namespaces, keys, names, adds, wants, digests, lefts, rests,
		counts, s.limits.TokensMax - s.margin, since, until, s.seenMS.Load(),
	}
}
