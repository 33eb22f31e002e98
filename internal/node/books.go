package node

import (
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A fence is the highest books that callers of the node have named in a partition, by
// namespace. The era is another whenever one of them is higher than before, so batches
// of one era name the same book of a namespace, and can share a flight.
type fence struct {
	era atomic.Uint64 // 0 if there are no books; written under mu, or only to begin another

	mu   sync.RWMutex // guards seen
	seen decide.Fences
}

// admit returns the era of a batch, or an error if it was made under a lower book than
// one that came before it: the store would refuse its flight, with all others in it.
func (f *fence) admit(b *store.Batch) (uint64, error) {
	if len(b.Books) == 0 && f.era.Load() == 0 { // Fast path: nobody has named a book.
		return 0, nil
	}
	f.mu.RLock()
	era, rises, err := f.era.Load(), f.rises(b), f.seen.Judge(b)
	f.mu.RUnlock()
	if err != nil || !rises {
		return era, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.seen.Judge(b); err != nil {
		return 0, err
	}
	if f.seen == nil {
		f.seen = make(decide.Fences)
	}
	f.seen.Raise(b)
	return f.era.Add(1), nil
}

// rises reports whether a batch names a book that is higher than those before.
func (f *fence) rises(b *store.Batch) bool {
	for i := range b.Books {
		if b.Books[i].ID > f.seen[b.Books[i].Namespace] {
			return true
		}
	}
	return false
}

// A kin is what entries have in common that a store refuses alike, as outdated or late:
// their namespace; or the plan of their events, and what their lines are called. Entries of
// one call are kept together, because they have an order; one that is like no other is
// a call by itself.
type kin struct {
	namespace string
	plan      *store.Plan
	line      store.Part
	call      *store.Batch
}

// kin returns whose kin an entry is, if its flight was refused by an error of a kind.
func (e *entry) kin(kind store.Kind) kin {
	if e.call != nil {
		return kin{call: e.call}
	}
	alone := kin{call: e.batch}
	first := &e.batch.Deltas[0]
	of := kin{namespace: store.SpaceOf(first.Cell)}
	if kind == store.KindLate {
		switch {
		case first.Event == nil:
			of = kin{}
		case !isRun(e.batch):
			return alone
		default:
			of.plan = first.Event.Plan
			for i := range first.Event.Riders {
				of.line += first.Event.Riders[i].Part
			}
		}
	}
	for i := range e.batch.Deltas {
		if d := &e.batch.Deltas[i]; kind == store.KindLate && d.Event != first.Event ||
			kind == store.KindOutdated && store.SpaceOf(d.Cell) != of.namespace {
			return alone
		}
	}
	return of
}

// divide makes two eras of the entries of a flight that was refused as outdated or late,
// because one of them was, and returns them in order: those of the first era come first.
// It returns none if all of them are to be refused, or the flight ended otherwise. Entries
// that nobody waits for are left out.
func (f *flight) divide(err error) []*entry {
	kind := store.KindOf(err)
	if kind != store.KindOutdated && kind != store.KindLate {
		return nil
	}
	var all []*entry
	places, number := make(map[kin]int), make([]int, 0, len(f.entries))
	for _, e := range f.entries {
		if e.gone {
			continue
		}
		k := e.kin(kind)
		at, ok := places[k]
		if !ok {
			at = len(places)
			places[k] = at
		}
		all, number = append(all, e), append(number, at)
	}
	half := (len(places) + 1) / 2
	if len(places) <= 1 {
		if len(all) <= 1 || all[0].kin(kind).call == nil {
			return nil
		}
		half = (len(all) + 1) / 2
		for i := range number {
			number[i] = i
		}
	}
	last := f.lane.pulse.fence.era.Add(3) // of those who come from now on
	parts := [2][]*entry{}
	for i, e := range all {
		part := 0
		if number[i] >= half {
			part = 1
		}
		e.era = last - 2 + uint64(part)
		parts[part] = append(parts[part], e)
	}
	return append(parts[0], parts[1]...)
}
