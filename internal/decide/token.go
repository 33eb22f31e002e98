package decide

import "github.com/quipudb/quipu/store"

// A Token is a remembered decision.
type Token struct {
	Settled bool // settled before its write arrived
	Op      store.Op
	N       int64
	Want    bool
	Digest  uint64
	AtMS    int64
	Result  store.Result // of the write, if not settled
}

// Fate returns what is known of a token.
func Fate(s State, at Clock, c store.Cell, name string) store.Fate {
	state, t := fate(s, at, c, name)
	f := store.Fate{State: state, AtMS: t.AtMS}
	if state == store.TokenApplied {
		f.Op, f.N, f.Want, f.Result = t.Op, t.N, t.Want, t.Result
	}
	return f
}

// fate returns the state of a token and, unless it is unknown, what is
// remembered of it.
func fate(s State, at Clock, c store.Cell, name string) (store.TokenState, Token) {
	t, ok := s.Token(c, name)
	age := at.NowMS - t.AtMS
	switch {
	case !ok, age >= store.TokenKeptMS(at.Window):
		if store.TokenStale(name, at.NowMS, at.Window) {
			return store.TokenExpired, Token{}
		}
		return store.TokenUnknown, Token{}
	case age >= at.Window.Milliseconds():
		return store.TokenExpired, t
	case t.Settled:
		return store.TokenSettled, t
	default:
		return store.TokenApplied, t
	}
}

// repeat returns the result of a write whose token decides it; ok is false if
// the write is new.
func repeat(s State, at Clock, d *store.Delta) (res store.Result, ok bool) {
	switch state, t := fate(s, at, d.Cell, d.Guard.Token); state {
	case store.TokenApplied:
		if t.Digest != d.Guard.Digest {
			return store.Result{Outcome: store.Mismatch}, true
		}
		t.Result.Replayed = true
		return t.Result, true
	case store.TokenSettled:
		return store.Result{Outcome: store.Settled, Replayed: true}, true
	case store.TokenExpired:
		return store.Result{Outcome: store.Expired}, true
	default:
		return store.Result{Outcome: store.Full}, s.Full(d.Cell.Namespace, Tokens)
	}
}

// settle decides a token for good: its write was applied, or never will be.
func settle(s State, at Clock, d *store.Delta) store.Result {
	switch state, t := fate(s, at, d.Cell, d.Guard.Token); state {
	case store.TokenApplied:
		t.Result.Replayed = true
		return t.Result
	case store.TokenSettled:
		return store.Result{Outcome: store.Settled, Replayed: true}
	case store.TokenExpired:
		return store.Result{Outcome: store.Expired}
	default:
		if s.Full(d.Cell.Namespace, Tokens) {
			return store.Result{Outcome: store.Full}
		}
		s.Remember(d.Cell, d.Guard.Token, Token{Settled: true, AtMS: at.NowMS})
		return store.Result{Outcome: store.Settled}
	}
}
