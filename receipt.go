package quipu

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/store"
)

// A Receipt says what became of one write.
type Receipt struct {
	Key string

	// Applied is the amount added. For Set, Reset and Delete it is, with
	// HasValue, the change of the value, held at the limits of int64.
	Applied int64

	// Value and Before are the counter after and before the write, if HasValue
	// is set: the write asked for them with WantValue, and if it is a repeat, so
	// did the first.
	Value, Before int64
	HasValue      bool

	// Replayed says that this write was a repeat: it changed nothing, and this
	// is the result of the first.
	Replayed bool

	// Version is the counter's version after the write, for IfVersion; 0 after
	// a Delete.
	Version uint64

	// Durability is what the acknowledgement means.
	Durability Durability

	// Err says why an event was refused. Only AddBatch sets it.
	Err error
}

// Session returns the position of the write, for a reader that must see it. It
// is opaque: hand it to the ReadOption of the same name, in this process or
// another.
func (r Receipt) Session() string {
	return sessionPrefix + strconv.FormatUint(r.Version, sessionBase)
}

// A session is a letter that names its format, and the version of the write.
const (
	sessionPrefix = "s"
	sessionBase   = 36
)

// checkSession returns an error if session did not come from a Receipt.
func checkSession(session string) error {
	digits, ok := strings.CutPrefix(session, sessionPrefix)
	if ok {
		_, err := strconv.ParseUint(digits, sessionBase, 64)
		ok = err == nil
	}
	if !ok {
		return store.Errorf(store.KindInvalid, "session %.40q is not one that a receipt has", session)
	}
	return nil
}

// receipt fills out with the store's result for a delta, or returns the error
// that names the refusal.
func (s *shared) receipt(ctx context.Context, out *Receipt, d *store.Delta, r *store.Result, durability Durability) error {
	if r.Outcome != store.Applied {
		s.refused.Add(1)
		return r.Outcome.Err()
	}
	if r.Replayed {
		s.replayed.Add(1)
	}
	out.Key = d.Cell.Key
	out.Replayed = r.Replayed
	out.Version = r.Version
	out.Durability = durability
	if d.Op == store.OpAdd {
		out.Applied = d.N
	}
	if !d.Want {
		return nil
	}
	if r.Replayed {
		// The first has a value only if it asked for one too.
		f, err := s.store.Lookup(ctx, d.Cell, d.Guard.Token)
		if err != nil { // whatever its kind says of the look-up, the write counted
			return store.Errorf(store.KindUnknown, "a repeat, whose first result can't be read: %w", err)
		}
		if !f.Want {
			return nil
		}
	}
	out.withValue(r)
	return nil
}

// withValue fills what only a write that asked for its value knows.
func (r *Receipt) withValue(from *store.Result) {
	r.HasValue = true
	r.Before, r.Value = from.Before, from.After
	r.Applied = change(from.Before, from.After)
}

// change returns after-before, held at the limits of int64.
func change(before, after int64) int64 {
	d := after - before
	switch {
	case after >= before && d < 0:
		return math.MaxInt64
	case after < before && d >= 0:
		return math.MinInt64
	}
	return d
}
