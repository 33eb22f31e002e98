package node

import (
	"slices"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// joins reports whether an event may join a run: its plan does to parts the same with the
// sum, and all that it has besides are lines of the ledger, and what it asks of sketches.
func joins(e *store.Event) bool {
	if e.Plan != nil && !e.Plan.Sums() {
		return false
	}
	for i := range e.Riders {
		if r := &e.Riders[i]; r.Op != store.OpPut || r.Place != store.PlaceVersion || r.When != (store.Met{}) {
			return false
		}
	}
	return true
}

// askMax is how long what the events of a run ask of sketches may be together: thousands of
// users. A node combines it again with each that joins.
const askMax = 16 << 10

// continues adds the lines of an event to those of a run, and what it asks, and reports
// false if they are not for the same place, or too many. Bytes of lines are put one after
// the other: each begins with its length.
func (f *flight) continues(run, e *store.Event) bool {
	if run == nil { // nor is e an event
		return true
	}
	if len(run.Riders) != len(e.Riders) {
		return false
	}
	bytes := f.bytes
	for i := range e.Riders {
		to, line := &run.Riders[i], &e.Riders[i]
		bytes += len(line.Bytes)
		if to.Part != line.Part || len(to.Bytes)+len(line.Bytes) > store.PartBytesMax || bytes > store.BatchBytesMax {
			return false
		}
	}
	if e.Bytes != nil {
		asks, ok := f.asks(run.Bytes, e.Bytes)
		if bytes += len(asks) - len(run.Bytes); !ok || bytes > store.BatchBytesMax {
			return false
		}
		run.Bytes = append(run.Bytes[:0], asks...)
	}
	f.bytes = bytes
	for i := range e.Riders {
		run.Riders[i].Bytes = append(run.Riders[i].Bytes, e.Riders[i].Bytes...)
	}
	return true
}

// asks returns what a run asks of sketches with one more event, until it is called again, and
// reports false if that is too long, or can't be asked at once.
func (f *flight) asks(run, more []byte) ([]byte, bool) {
	if run == nil {
		return more, len(more) <= askMax
	}
	if len(run)+len(more) > askMax {
		return nil, false
	}
	both, ok := combined(f.room[:0], run, more)
	f.room = both
	return both, ok
}

// combined appends what two events ask together: of several requests each by itself.
func combined(dst, a, b []byte) (both []byte, ok bool) {
	var of [2][][]byte
	for i, bytes := range [2][]byte{a, b} {
		if !store.EachAsk(bytes, func(ask []byte) { of[i] = append(of[i], ask) }) {
			return sketch.Combine(dst, a, b) // one request, or none
		}
	}
	if len(of[0]) != len(of[1]) {
		return dst, false
	}
	for i, ask := range of[1] {
		switch was := of[0][i]; {
		case ask == nil:
			continue
		case was != nil:
			if ask, ok = sketch.Combine(nil, was, ask); !ok {
				return dst, false
			}
		}
		of[0][i] = ask
	}
	both = store.AppendAsks(dst, of[0]...)
	return both, len(both)-len(dst) <= askMax
}

// frozenEvent returns a copy of an event, with the versions of the store, that shares only the
// plan with it: the caller may change all else when it has left.
func frozenEvent(e *store.Event) *store.Event {
	if e == nil {
		return nil
	}
	own := *e
	own.Part = coarsePart(e.Part)
	own.Bytes = slices.Clone(e.Bytes)
	own.Riders = slices.Clone(e.Riders)
	for i := range own.Riders {
		r := &own.Riders[i]
		if r.Bytes = slices.Clone(r.Bytes); r.Place == store.PlaceFixed {
			r.Part = coarsePart(r.Part)
		}
		if r.Bound != nil {
			bound := *r.Bound
			r.Bound = &bound
		}
	}
	return &own
}
