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
	part, _, err := keys.Once(at, f.nowMS, who)
	if err != nil {
		return nil, err
	}
	with := new(*e)
	with.Riders = append(append([]store.Rider(nil), e.Riders...), store.Rider{
		Part: part, Op: store.OpSet, N: 1, Is: store.Met{Kind: store.MetEqual},
	})
	return with, nil
}

// onceOf returns the rider of an event that refuses it if its user was counted before, as
// Result.Refused names it; 0 if it has none. It is the last.
func onceOf(e *store.Event) int {
	if e == nil || len(e.Riders) == 0 || e.Riders[len(e.Riders)-1].Part.Kind() != store.PartOnce {
		return 0
	}
	return e.Len()
}
