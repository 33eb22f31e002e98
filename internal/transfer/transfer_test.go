package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/transfer"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A place is a store with hooks. What a test does by itself goes past them.
type place struct {
	store.Store
	storetest.Hooks
	under *memstore.Store
}

func newStore(partitions int) *place { return placeOf(memstore.Options{Partitions: partitions}) }

func placeOf(o memstore.Options) *place {
	p := &place{under: memstore.New(o)}
	p.Store = storetest.Wrap(p.under, &p.Hooks)
	return p
}

// put makes a counter what it is told.
func (p *place) put(t *testing.T, ns, key string, d store.Delta) {
	t.Helper()
	d.Cell = store.Cell{Namespace: ns, Key: key}
	r := make([]store.Reply, 1)
	b := store.Batch{Partition: store.PartitionOf(d.Cell, p.under.Traits().Partitions), Deltas: []store.Delta{d}}
	if err := p.under.Apply(t.Context(), []store.Batch{b}, r); err != nil || r[0].Err != nil || r[0].Results[0].Outcome != store.Applied {
		t.Fatalf("put %q: %v, %+v", key, err, r[0])
	}
}

func set(n int64) store.Delta { return store.Delta{Op: store.OpSet, N: n} }

func until(n, ms int64) store.Delta {
	return store.Delta{Op: store.OpSet, N: n, Expiry: store.ExpirySet, DeadlineMS: ms}
}

// everything returns what a store holds, but for the versions.
func (p *place) everything(t *testing.T) []string {
	t.Helper()
	spaces, err := p.under.Namespaces(t.Context(), "", store.ScanMax)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, ns := range spaces {
		r := store.Range{Namespace: ns}
		for {
			es, err := p.under.Scan(t.Context(), r, store.ScanMax)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				all = append(all, fmt.Sprintf("%q %q %d %d", ns, e.Key, e.Value.N, e.Value.DeadlineMS))
			}
			if len(es) < store.ScanMax {
				break
			}
			r.After = es[len(es)-1].Key
		}
	}
	return all
}

func same(t *testing.T, a, b *place) {
	t.Helper()
	if x, y := a.everything(t), b.everything(t); !slices.Equal(x, y) {
		t.Fatalf("the source has\n%s\nthe target has\n%s", strings.Join(x, "\n"), strings.Join(y, "\n"))
	}
}

// filled returns a source with counters of all kinds in three namespaces.
func filled(t *testing.T) *place {
	t.Helper()
	s := newStore(1)
	later := time.Now().Add(time.Hour).UnixMilli()
	s.put(t, "default", "a", set(5))
	s.put(t, "default", "low", set(math.MinInt64))
	s.put(t, "default", "high", set(math.MaxInt64))
	s.put(t, "default", "zero", set(0))
	s.put(t, "default", "soon", until(7, later))
	s.put(t, "b", "a\x00", set(-1))
	s.put(t, "日", "\U0010ffff", set(2))
	return s
}

func run(t *testing.T, from, to *place, o transfer.Options) transfer.Report {
	t.Helper()
	r, err := transfer.Run(t.Context(), from.Store, to.Store, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun(t *testing.T) {
	from, to := filled(t), newStore(8)
	to.put(t, "default", "a", set(4))
	to.put(t, "default", "zero", until(0, math.MaxInt64)) // loses its deadline
	to.put(t, "b", "a\x00", set(-1))
	want := transfer.Report{Walk: transfer.Check, Walked: 7, Counters: 7, Equal: 7, Namespaces: 3, Copied: 6}
	if r := run(t, from, to, transfer.Options{}); r != want {
		t.Errorf("reported %+v, want %+v", r, want)
	}
	same(t, from, to)

	// Again: there is nothing to write, and only what changed.
	wrote := to.Calls(storetest.OnApply)
	want.Copied = 0
	if r := run(t, from, to, transfer.Options{}); r != want || to.Calls(storetest.OnApply) != wrote {
		t.Errorf("again: reported %+v and wrote, want %+v", r, want)
	}
	from.put(t, "日", "\U0010ffff", set(3))
	want.Copied = 1
	if r := run(t, from, to, transfer.Options{}); r != want {
		t.Errorf("after a change: reported %+v, want %+v", r, want)
	}
	same(t, from, to)
}

func TestRunPages(t *testing.T) {
	from, to := newStore(1), newStore(4)
	const n = 12_001
	for i := range n {
		from.put(t, "default", fmt.Sprintf("k%05d", i), set(int64(i)))
		if i%3 == 0 {
			to.put(t, "default", fmt.Sprintf("k%05d", i), set(int64(i)))
		}
		if i%1000 == 0 {
			to.put(t, "default", fmt.Sprintf("k%05d+", i), set(1))
		}
	}
	var told []transfer.Report
	r := run(t, from, to, transfer.Options{Overwrite: true, Progress: func(r transfer.Report) { told = append(told, r) }})
	if r.Copied != n-n/3-1 || r.Deleted != 13 || r.Counters != n {
		t.Errorf("reported %+v", r)
	}
	if len(told) != 6 || told[0].Walk != transfer.Compare || told[0].Walked != 5000 || told[5].Walk != transfer.Check || told[5].Walked != 10_000 {
		t.Errorf("told of progress: %+v", told)
	}
	same(t, from, to)
}

func TestRunNamespaces(t *testing.T) {
	from, to := filled(t), newStore(1)
	to.put(t, "mine", "a", set(1)) // is not looked at
	if r := run(t, from, to, transfer.Options{Namespaces: []string{"日", "b", "none", "b"}}); r.Copied != 2 || r.Namespaces != 2 {
		t.Errorf("reported %+v", r)
	}
	if got := to.everything(t); len(got) != 3 {
		t.Errorf("the target has %q", got)
	}
}

// What is in the target and not in the source is refused before anything is
// written, or deleted if that is asked for.
// What definitions make a store keep is not copied, and never left behind in silence.
func TestRunDefined(t *testing.T) {
	f := func(o transfer.Options, defined func(from, to *place) *place, refused bool) {
		t.Helper()
		from, to := filled(t), newStore(8)
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		all := []definition.Definition{{Pattern: "a*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(24 * time.Hour)}}}}
		if _, err := books.New(defined(from, to).Store, false).Publish(t.Context(), "default", books.Proposal{Definitions: all}); err != nil {
			t.Fatal(err)
		}
		wrote := to.Calls(storetest.OnApply)
		_, err = transfer.Run(t.Context(), from.Store, to.Store, o)
		if of, ok := errors.AsType[*transfer.DefinedError](err); ok != refused || !ok && err != nil || ok && of.Namespace != "default" {
			t.Errorf("%+v: %v", o, err)
		}
		if refused && to.Calls(storetest.OnApply) != wrote {
			t.Errorf("%+v: it wrote", o)
		}
	}
	source, target := func(from, _ *place) *place { return from }, func(_, to *place) *place { return to }
	f(transfer.Options{}, source, true)
	f(transfer.Options{DryRun: true}, source, true)
	f(transfer.Options{Totals: true}, source, false)
	f(transfer.Options{Namespaces: []string{"b"}}, source, false)
	f(transfer.Options{}, target, true)
	f(transfer.Options{Totals: true}, target, true)
}

func second(t *testing.T) definition.Width {
	t.Helper()
	w, err := definition.PerSeconds(1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Definitions of a namespace that has no counters are not left behind either.
func TestRunDefinedAlone(t *testing.T) {
	from, to := filled(t), newStore(8)
	all := []definition.Definition{{Pattern: "api:*", Limits: []definition.Limit{{Rate: 1, Per: second(t)}}}}
	if _, err := books.New(from.Store, false).Publish(t.Context(), "edge", books.Proposal{Definitions: all}); err != nil {
		t.Fatal(err)
	}
	_, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{})
	if of, ok := errors.AsType[*transfer.DefinedError](err); !ok || of.Namespace != "edge" {
		t.Error(err)
	}
	if _, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{Totals: true}); err != nil {
		t.Error(err)
	}
}

// A counter whose reservations are open is not copied without them, and what clients of
// limits have used is not left behind in silence.
func TestRunHeldAndUsed(t *testing.T) {
	f := func(o transfer.Options, fill func(from, to *quipu.DB) error, want string) {
		t.Helper()
		from, to := filled(t), newStore(8)
		db, other := quipu.New(from.under, quipu.Options{}), quipu.New(to.under, quipu.Options{})
		t.Cleanup(func() { _ = errors.Join(db.Close(), other.Close()) })
		if err := fill(db, other); err != nil {
			t.Fatal(err)
		}
		wrote := to.Calls(storetest.OnApply)
		_, err := transfer.Run(t.Context(), from.Store, to.Store, o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || to.Calls(storetest.OnApply) != wrote) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
	source := func(from, _ *quipu.DB) error {
		_, err := from.Reserve(t.Context(), "a", 1, time.Hour)
		return err
	}
	target := func(from, to *quipu.DB) error {
		_, err := to.Set(t.Context(), "a", 10)
		return errors.Join(err, source(to, from))
	}
	ended := func(from, _ *quipu.DB) error {
		r, err := from.Reserve(t.Context(), "a", 1, time.Hour)
		if err == nil {
			_, err = from.Commit(t.Context(), r.ID, 1)
		}
		return err
	}
	const held = `reservations of "a" in namespace "default" of the memory store are open`
	f(transfer.Options{}, source, held)
	f(transfer.Options{Totals: true}, source, held)
	f(transfer.Options{Namespaces: []string{"b"}}, source, "")
	f(transfer.Options{Overwrite: true}, target, held)
	f(transfer.Options{}, ended, "")

	used := func(from, _ *quipu.DB) error {
		_, err := from.Allow(t.Context(), "search", "ana", 1, quipu.AllowOptions{Limits: []definition.Limit{{Rate: 1, Per: second(t)}}})
		return err
	}
	const burned = `clients have used limit "search" in namespace "default" of the memory store`
	f(transfer.Options{}, used, burned)
	f(transfer.Options{Totals: true}, used, "")
	f(transfer.Options{Namespaces: []string{"b"}}, used, "")
}

func TestRunExtra(t *testing.T) {
	from, to := filled(t), newStore(1)
	to.put(t, "default", "b", set(1))
	to.put(t, "default", "c", set(1))
	to.put(t, "other", "a", set(1))
	before := to.everything(t)
	_, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{})
	extra, ok := errors.AsType[*transfer.ExtraError](err)
	if !ok || extra.Extra != 3 || extra.First.Key != "b" {
		t.Errorf("with other counters in the target: %v", err)
	}
	if to.Calls(storetest.OnApply) != 0 || !slices.Equal(to.everything(t), before) {
		t.Errorf("a refused copy wrote: %q", to.everything(t))
	}
	r := run(t, from, to, transfer.Options{Overwrite: true, DryRun: true})
	if want := (transfer.Report{Walk: transfer.Compare, Walked: 10, Counters: 7, Differ: 7, Extra: 3, Namespaces: 4}); r != want || to.Calls(storetest.OnApply) != 0 {
		t.Errorf("a dry run reported %+v, want %+v, and wrote %d times", r, want, to.Calls(storetest.OnApply))
	}
	if r := run(t, from, to, transfer.Options{Overwrite: true}); r.Copied != 7 || r.Deleted != 3 || r.Namespaces != 3 {
		t.Errorf("reported %+v", r)
	}
	same(t, from, to)
}

// A source that is written to meanwhile is noticed, wherever the walks are.
func TestRunChanged(t *testing.T) {
	f := func(at int, change func(s *place), want int64) {
		t.Helper()
		from, to := filled(t), newStore(2)
		const before = 2 // scans: for definitions, and for limits
		from.On(storetest.OnScan, storetest.Nth(before+at-1, before+at, storetest.Before(func() { change(from) })))
		_, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{})
		changed, ok := errors.AsType[*transfer.ChangedError](err)
		if ok != (want > 0) || ok && changed.AtLeast != want {
			t.Errorf("a change before scan %d: %v, want %d", at, err, want)
		}
		from.On(storetest.OnScan)
		run(t, from, to, transfer.Options{Overwrite: true})
		same(t, from, to)
	}
	add := func(s *place) { s.put(t, "b", "a\x00", store.Delta{Op: store.OpAdd, N: 1}) }
	back := func(s *place) { // it changes, and changes back
		add(s)
		s.put(t, "b", "a\x00", store.Delta{Op: store.OpAdd, N: -1})
	}
	// Each walk scans the namespaces b, default and 日 once.
	f(1, add, 0)
	f(4, add, 0)
	f(5, add, 1)
	f(6, back, 1)
	f(7, back, 1)
	f(8, back, 0) // after its last visit: there was a moment before
	f(7, func(s *place) { s.put(t, "b", "new", set(1)) }, 1)
	f(6, func(s *place) { s.put(t, "new", "a", set(1)) }, 1)
	f(7, func(s *place) { s.put(t, "b", "a\x00", store.Delta{Op: store.OpDelete}) }, 1)
	f(8, func(s *place) { add(s); s.put(t, "default", "a", set(1)); s.put(t, "default", "zero", set(1)) }, 2)
	later := time.Now().Add(2 * time.Hour).UnixMilli()
	f(8, func(s *place) { s.put(t, "default", "soon", until(7, later)) }, 2) // the minute it had, and that it has
}

// What comes into the target meanwhile is noticed, and not deleted.
func TestRunTargetChanged(t *testing.T) {
	from, to := filled(t), newStore(2)
	const second = 3 // the first scan of the second walk
	to.On(storetest.OnScan, storetest.Nth(second, second+1, storetest.Before(func() { to.put(t, "b", "mine", set(1)) })))
	r, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{})
	if _, ok := errors.AsType[*transfer.ChangedError](err); !ok || r.Extra != 1 || r.Deleted != 0 {
		t.Errorf("a target that changed: %+v, %v", r, err)
	}
}

// A counter that expires meanwhile is no change.
func TestRunExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 1; at <= 3; at++ { // before the walk
			from, to := newStore(1), newStore(1)
			from.put(t, "n", "a", set(1))
			from.put(t, "n", "b", until(2, time.Now().Add(30*time.Second).UnixMilli()))
			from.put(t, "n", "c", until(3, time.Now().Add(time.Hour).UnixMilli()))
			from.On(storetest.OnScan, storetest.Nth(at-1, at, storetest.Delay(40*time.Second, store.KindOther)))
			if r := run(t, from, to, transfer.Options{}); r.Counters != 2 {
				t.Errorf("expired before walk %d: reported %+v", at, r)
			}
			same(t, from, to)
		}
	})
}

// What has little time left is copied all the same.
func TestRunShortLived(t *testing.T) {
	from, to := newStore(1), newStore(1)
	from.put(t, "n", "a", until(1, time.Now().Add(30*time.Second).UnixMilli()))
	run(t, from, to, transfer.Options{})
	same(t, from, to)
}

// The clock of the target may be ahead, or behind.
func TestRunSkewed(t *testing.T) {
	f := func(ahead, left time.Duration) {
		t.Helper()
		from := newStore(1)
		to := placeOf(memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		deadline := time.Now().Add(left).UnixMilli()
		from.put(t, "n", "a", until(1, deadline))
		from.put(t, "n", "b", set(1))
		to.put(t, "n", "a", until(1, deadline))
		if r := run(t, from, to, transfer.Options{}); r.Deleted != 0 {
			t.Errorf("reported %+v", r)
		}
	}
	f(40*time.Second, 30*time.Second)
	f(-40*time.Second, -30*time.Second)
}

// What a store could not answer is asked again, and a batch that may have been
// written is written again.
func TestRunInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := filled(t), newStore(3)
		untilThird := func(*storetest.Call) bool { return from.Calls(storetest.OnScan)%3 != 0 }
		from.On(storetest.OnScan, storetest.If(untilThird, storetest.Fail(store.ErrUnavailable)))
		to.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Fail(store.ErrUnavailable)), storetest.Nth(0, 1, storetest.Lose(store.ErrUnknown)))
		if r := run(t, from, to, transfer.Options{}); r.Copied != 7 || to.Calls(storetest.OnApply) != 3 {
			t.Errorf("reported %+v after %d writes", r, to.Calls(storetest.OnApply))
		}
		same(t, from, to)

		to.On(storetest.OnScan, storetest.Fail(store.ErrUnavailable))
		if _, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a store that is gone: %v", err)
		}
		to.On(storetest.OnScan, storetest.Fail(store.ErrCorrupt))
		scans := to.Calls(storetest.OnScan)
		if _, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{}); !errors.Is(err, store.ErrCorrupt) || to.Calls(storetest.OnScan) != scans+1 {
			t.Errorf("a store that is corrupt was asked %d times: %v", to.Calls(storetest.OnScan)-scans, err)
		}
	})
}

func TestRunFull(t *testing.T) {
	from := filled(t)
	to := placeOf(memstore.Options{Limits: store.Limits{KeysMax: 2}})
	if _, err := transfer.Run(t.Context(), from.Store, to.Store, transfer.Options{}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a target without room: %v", err)
	}
}

// One that is cut off has written what it says, and the next goes on.
func TestRunCutOff(t *testing.T) {
	from, to := newStore(1), newStore(1)
	for i := range 12_000 {
		from.put(t, "n", fmt.Sprintf("k%05d", i), set(1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	to.On(storetest.OnApply, storetest.Nth(1, 2, storetest.Before(cancel)))
	r, err := transfer.Run(ctx, from.Store, to.Store, transfer.Options{})
	if !errors.Is(err, context.Canceled) || r.Copied != 5000 {
		t.Errorf("cut off: %+v, %v", r, err)
	}
	if r := run(t, from, to, transfer.Options{}); r.Copied != 7000 {
		t.Errorf("went on: %+v", r)
	}
	same(t, from, to)
}

// A store that does not know its namespaces has to be told.
func TestRunUnsupported(t *testing.T) {
	from, to := storetest.Bare(filled(t).Store), newStore(1)
	if _, err := transfer.Run(t.Context(), from, to.Store, transfer.Options{}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("without namespaces: %v", err)
	}
	r, err := transfer.Run(t.Context(), from, to.Store, transfer.Options{Namespaces: []string{"b"}})
	if err != nil || r.Copied != 1 {
		t.Errorf("with a namespace: %+v, %v", r, err)
	}
}
