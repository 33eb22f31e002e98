package memstore

import "github.com/quipudb/quipu/store"

// A tokenID is a token among those of all cells.
type tokenID struct {
	cell store.Cell
	name string
}

// forget drops the tokens of a namespace that have been kept long enough. The
// store's time never goes back, so they are the first ones decided.
func (s *Store) forget(namespace string) {
	ids := s.decided[namespace]
	for len(ids) > 0 && s.nowMS-s.tokens[ids[0]].AtMS >= store.TokenKeptMS(s.limits.TokenWindow) {
		if t := s.tokens[ids[0]]; t.Refused() {
			s.refused[namespace]--
		}
		delete(s.tokens, ids[0])
		ids = ids[1:]
	}
	s.decided[namespace] = ids
}
