package history_test

import (
	"context"
	"testing"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// A restless store has a counter written to whenever its parts are read, some times.
type restless struct {
	summed
	w     *world
	times int
}

func (s *restless) write() {
	if s.times > 0 {
		s.times--
		s.w.add("k1", 0, add(1))
	}
}

func (s *restless) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	s.write()
	return s.summed.ReadParts(ctx, parts, contents)
}

func (s *restless) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	s.write()
	return s.summed.ScanParts(ctx, r, n)
}

// What is written while a counter is read is not taken for a difference, nor for proof.
func TestRestless(t *testing.T) {
	f := func(times int, exact bool, unproved int) {
		t.Helper()
		w := newWorld(t)
		w.define(definition.Definition{
			Pattern: "k*", Windows: []definition.Window{window("1h", "", 30*day), window("1d", "", 300*day)}, Ledger: definition.Ledger{Record: definition.All},
		})
		w.now += 2 * day
		w.add("k1", 0, add(5))
		w.now += hour
		r := w.reader()
		r.Store = &restless{summed: summed{w.store}, w: w, times: times}
		n, err := r.AsOf(w.ctx(), "k1", w.now)
		if err != nil || n.Exact != exact || exact && n.Value != 5 {
			t.Errorf("after %d writes: %+v, %v", times, n, err)
		}
		r.Store = &restless{summed: summed{w.store}, w: w, times: times}
		var a store.Audit
		if err := r.Verify(w.ctx(), &a); err != nil || len(a.Drift) != 0 || len(a.Unproved) != unproved {
			t.Errorf("after %d writes: %+v, %v", times, a, err)
		}
	}
	f(0, true, 0)
	f(1, true, 0)
	f(1_000_000, false, 1)
}
