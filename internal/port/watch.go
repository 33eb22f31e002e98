package port

import (
	"slices"

	"github.com/quipudb/quipu/store"
)

// A Watcher is told which counters were changed by way of this process, when the change
// can be seen and before its caller is told: those of one call together. It is called from any goroutine, perhaps
// from one that makes others wait, and must not block. What is changed in another way
// (by a deadline, or by another server) it has to look for by itself.
type Watcher interface {
	Changed(cells []store.Cell)
}

// Watch has a watcher told from now on, until the function that it returns is called.
// A write that is under way meanwhile may be told or not. While nobody watches,
// a write costs the look at one pointer more (BenchmarkAddOverhead).
func (p *Port) Watch(w Watcher) (stop func()) {
	p.change(func(all []Watcher) []Watcher { return append(all, w) })
	return func() {
		p.change(func(all []Watcher) []Watcher {
			return slices.DeleteFunc(all, func(o Watcher) bool { return o == w })
		})
	}
}

// change replaces the watchers.
func (s *shared) change(f func([]Watcher) []Watcher) {
	s.watching.Lock()
	defer s.watching.Unlock()
	var all []Watcher
	if was := s.watchers.Load(); was != nil {
		all = slices.Clone(*was)
	}
	if all = f(all); len(all) == 0 {
		s.watchers.Store(nil)
	} else {
		s.watchers.Store(&all)
	}
}

// changed tells the watchers of what batches have changed, or may have: an outcome that
// is unknown may be either.
func changed(watchers []Watcher, batches []store.Batch, replies []store.Reply, err error) {
	if err != nil && store.KindOf(err) != store.KindUnknown {
		return
	}
	var cells []store.Cell
	for i := range batches {
		unknown := err != nil || store.KindOf(replies[i].Err) == store.KindUnknown
		if replies[i].Err != nil && !unknown {
			continue
		}
		for j := range batches[i].Deltas {
			d := &batches[i].Deltas[j]
			if d.Op == store.OpGet || !unknown && (j >= len(replies[i].Results) || !applied(&replies[i].Results[j])) {
				continue
			}
			cells = append(cells, d.Cell)
		}
	}
	tell(watchers, cells)
}

func tell(watchers []Watcher, cells []store.Cell) {
	if len(cells) == 0 {
		return
	}
	for _, w := range watchers {
		w.Changed(cells)
	}
}

// applied reports whether a delta may have changed something now. A repeat has not.
func applied(r *store.Result) bool {
	return (r.Outcome == store.Applied || r.Outcome == store.Unknown) && !r.Replayed
}

// changedAdds tells the watchers of plain adds that were made.
func changedAdds(watchers []Watcher, a *store.Adds) {
	var cells []store.Cell
	for i := range a.Each {
		if add := &a.Each[i]; !add.Left && add.Taken > 0 {
			cells = append(cells, store.Cell{Namespace: a.Namespace, Key: string(a.KeyOf(add))})
		}
	}
	tell(watchers, cells)
}
