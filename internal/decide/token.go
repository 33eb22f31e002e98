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

// Refused reports whether the write was refused, and is to be refused again.
func (t *Token) Refused() bool { return !t.Settled && t.Result.Outcome != store.Applied }

// Remembers reports whether the token of a delta that was refused remembers that: a bound
// has refused it, or it is an event of which a condition was not met.
func Remembers(d *store.Delta, refused store.Outcome) bool {
	return refused == store.Bounded || refused == store.Unmet && d.Event != nil
}

// MayRefuse reports whether there are refusals of a delta that its token would remember.
func MayRefuse(d *store.Delta) bool { return d.Event != nil || d.Guard.Bound != nil }

// Remembered returns what is to be remembered of a write that was applied, or that was
// refused, or of a token that was settled. What the first result tells of existence and deadline is
// for that one only.
func Remembered(d *store.Delta, first store.Result, nowMS int64) Token {
	if d.Op == store.OpSettle {
		return Token{Settled: true, AtMS: nowMS}
	}
	first.Existed, first.DeadlineMS = false, 0
	return Token{Op: d.Op, N: d.N, Want: d.Want, Digest: d.Guard.Digest, AtMS: nowMS, Result: first}
}

// Recall returns what is known of a token by now. T is what a store remembers of it,
// if it is known at all, and ageMS for how long. Unless it counts any more, the token
// returned is the zero Token.
func Recall(name string, t Token, known bool, ageMS int64, at Clock) (store.TokenState, Token) {
	switch {
	case !known, ageMS >= store.TokenKeptMS(at.Window):
		if store.TokenStale(name, at.NowMS, at.Window) {
			return store.TokenExpired, Token{}
		}
		return store.TokenUnknown, Token{}
	case ageMS >= at.Window.Milliseconds():
		return store.TokenExpired, t
	case t.Settled:
		return store.TokenSettled, t
	case t.Refused():
		return store.TokenRefused, t
	default:
		return store.TokenApplied, t
	}
}

// Fate returns in the words of the contract what Recall has.
func (t *Token) Fate(state store.TokenState) store.Fate {
	f := store.Fate{State: state, AtMS: t.AtMS}
	if state == store.TokenApplied || state == store.TokenRefused {
		f.Op, f.N, f.Want, f.Result = t.Op, t.N, t.Want, t.Result
	}
	return f
}

// Verdict decides a write, or a settling, by what Recall has of its token, and by
// whether there is no room for another token. Done is false if it is new: then the
// write is decided by its cell, and the settling is done.
func (t *Token) Verdict(state store.TokenState, d *store.Delta, full bool) (res store.Result, done bool) {
	switch {
	case state == store.TokenExpired:
		return store.Result{Outcome: store.Expired}, true
	case state == store.TokenSettled:
		return store.Result{Outcome: store.Settled, Replayed: true}, true
	case (state == store.TokenApplied || state == store.TokenRefused) && d.Op != store.OpSettle && t.Digest != d.Guard.Digest:
		return store.Result{Outcome: store.Mismatch}, true
	case state == store.TokenApplied, state == store.TokenRefused:
		res = t.Result
		res.Replayed = true
		return res, true
	case full:
		return store.Result{Outcome: store.Full}, true
	}
	return store.Result{}, false
}

// Fate returns what is known of a token.
func Fate(s State, at Clock, c store.Cell, name string) store.Fate {
	state, t := recall(s, at, c, name)
	return t.Fate(state)
}

func recall(s State, at Clock, c store.Cell, name string) (store.TokenState, Token) {
	t, known := s.Token(c, name)
	return Recall(name, t, known, at.NowMS-t.AtMS, at)
}

// remember keeps the decision on a delta under its token, if it has one and that is to be
// remembered. A refusal is forgotten, and says so, if there is no room for it.
func remember(s State, at Clock, d *store.Delta, res *store.Result) {
	if d.Guard.Token == "" {
		return
	}
	if res.Outcome != store.Applied {
		if !Remembers(d, res.Outcome) {
			return
		}
		if res.Forgotten = s.Full(d.Cell.Namespace, Refusals, 1); res.Forgotten {
			return
		}
	}
	s.Remember(d.Cell, d.Guard.Token, Remembered(d, *res, at.NowMS))
}

// once is Verdict on a State, which is asked for room only if it matters.
func once(s State, at Clock, d *store.Delta) (res store.Result, done bool) {
	state, t := recall(s, at, d.Cell, d.Guard.Token)
	full := state == store.TokenUnknown && s.Full(d.Cell.Namespace, Tokens, 1)
	return t.Verdict(state, d, full)
}
