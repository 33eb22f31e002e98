package port

import (
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/store"
)

// once returns an event that is refused if its user was counted in the window before. What
// is corrected, and what is taken back, is of nobody: users who were counted stay so.
func (f *frame) once(e *store.Event, fact *Fact, keys *books.Keys, at int64) (*store.Event, error) {
	who := ""
	if fact != nil {
		if who = fact.Who; fact.always() {
			return e, nil
		}
	}
	rider, _, err := keys.Once(at, f.nowMS, who)
	if err != nil {
		return nil, err
	}
	with := new(*e)
	with.Riders = append(append([]store.Rider(nil), e.Riders...), rider)
	return with, nil
}

// onceOf returns the rider of an event that refuses it if its user was counted before, as
// Result.Refused names it; 0 if it has none. It is the last.
func onceOf(e *store.Event) int {
	if e == nil || len(e.Riders) == 0 {
		return 0
	}
	if r := &e.Riders[len(e.Riders)-1]; r.Part.Kind() != store.PartOnce && (r.Op != store.OpMerge || r.Part.Kind() != store.PartWindowSketch) {
		return 0
	}
	return e.Len()
}

// OnceError returns which part of the users who are told to be duplicates may be none, by the
// definition of a counter.
func (p *Port) OnceError(key string) float64 {
	if keys := p.books.Known(p.namespace).Of(key); keys != nil {
		return keys.OnceError()
	}
	return 0
}

// fullOnce returns the error of an add whose user a filter has no room for.
func fullOnce(keys *books.Keys) error {
	return store.Errorf(store.KindFull, "the counter has no room for another user in this window: its definition remembers %d users; raise users of once, or leave out approximate", keys.OnceUsers())
}
