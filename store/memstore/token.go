package memstore

import "github.com/quipudb/quipu/store"

// A tokenID is a token among those of all cells.
type tokenID struct {
	cell store.Cell
	name string
}

// A token is a remembered decision.
type token struct {
	settled bool // settled before its write arrived
	op      store.Op
	n       int64
	want    bool
	digest  uint64
	atMS    int64
	result  store.Result // of the write, if not settled
}

// fate returns the state of a token and, unless it is unknown, what is
// remembered of it.
func (s *Store) fate(id tokenID) (store.TokenState, token) {
	t, ok := s.tokens[id]
	age := s.nowMS - t.atMS
	switch {
	case !ok, age >= store.TokenKeptMS(s.limits.TokenWindow):
		if store.TokenStale(id.name, s.nowMS, s.limits.TokenWindow) {
			return store.TokenExpired, token{}
		}
		return store.TokenUnknown, token{}
	case age >= s.limits.TokenWindow.Milliseconds():
		return store.TokenExpired, t
	case t.settled:
		return store.TokenSettled, t
	default:
		return store.TokenApplied, t
	}
}

// repeat returns the result of a write whose token decides it; ok is false if
// the write is new.
func (s *Store) repeat(d *store.Delta) (res store.Result, ok bool) {
	switch state, t := s.fate(tokenID{d.Cell, d.Guard.Token}); state {
	case store.TokenApplied:
		if t.digest != d.Guard.Digest {
			return store.Result{Outcome: store.Mismatch}, true
		}
		t.result.Replayed = true
		return t.result, true
	case store.TokenSettled:
		return store.Result{Outcome: store.Settled, Replayed: true}, true
	case store.TokenExpired:
		return store.Result{Outcome: store.Expired}, true
	default:
		return store.Result{Outcome: store.Full}, s.tokensFull(d.Cell.Namespace)
	}
}

// settle decides a token for good: its write was applied, or never will be.
func (s *Store) settle(d *store.Delta) store.Result {
	switch state, t := s.fate(tokenID{d.Cell, d.Guard.Token}); state {
	case store.TokenApplied:
		t.result.Replayed = true
		return t.result
	case store.TokenSettled:
		return store.Result{Outcome: store.Settled, Replayed: true}
	case store.TokenExpired:
		return store.Result{Outcome: store.Expired}
	default:
		if s.tokensFull(d.Cell.Namespace) {
			return store.Result{Outcome: store.Full}
		}
		s.remember(d, token{settled: true, atMS: s.nowMS})
		return store.Result{Outcome: store.Settled}
	}
}

// remember keeps the decision on a token that is not known. What its first
// result told of existence and deadline is for that one only.
func (s *Store) remember(d *store.Delta, t token) {
	s.forget(d.Cell.Namespace)
	t.result.Existed, t.result.DeadlineMS = false, 0
	id := tokenID{d.Cell, d.Guard.Token}
	s.tokens[id] = t
	s.decided[d.Cell.Namespace] = append(s.decided[d.Cell.Namespace], id)
}

// tokensFull reports whether a namespace has no room for a new token. The
// store's own namespace has no limit.
func (s *Store) tokensFull(namespace string) bool {
	s.forget(namespace)
	return namespace != "" && (int64(len(s.decided[namespace])) >= s.limits.TokensMax || s.oneTooMany(namespace))
}

// forget drops the tokens of a namespace that have been kept long enough. The
// store's time never goes back, so they are the first ones decided.
func (s *Store) forget(namespace string) {
	ids := s.decided[namespace]
	for len(ids) > 0 && s.nowMS-s.tokens[ids[0]].atMS >= store.TokenKeptMS(s.limits.TokenWindow) {
		delete(s.tokens, ids[0])
		ids = ids[1:]
	}
	s.decided[namespace] = ids
}
