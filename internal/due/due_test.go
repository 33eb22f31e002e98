package due_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 5

// A world is a store whose clock the test moves, and two servers on it, whose workers do
// nothing by themselves.
type world struct {
	*testing.T
	now   time.Time
	store store.Store
	hooks *storetest.Hooks
	a, b  *quipu.DB
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC), hooks: new(storetest.Hooks)}
	w.store = storetest.Wrap(memstore.New(memstore.Options{Partitions: partitions, Now: func() time.Time { return w.now }}), w.hooks)
	w.a, w.b = quipu.New(w.store, quipu.Options{}), quipu.New(w.store, quipu.Options{})
	for _, db := range []*quipu.DB{w.a, w.b} {
		db.Port().Due().Close()
		t.Cleanup(func() { _ = db.Close() })
	}
	return w
}

func (w *world) set(key string) {
	w.Helper()
	if _, err := w.a.Set(w.Context(), key, 10); err != nil {
		w.Fatal(err)
	}
}

func (w *world) reserve(key string, ttl time.Duration, opts ...quipu.WriteOption) quipu.Reservation {
	w.Helper()
	r, err := w.a.Reserve(w.Context(), key, 3, ttl, opts...)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// tick has the other server look.
func (w *world) tick() {
	w.Helper()
	if _, err := w.b.Port().Due().Tick(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) walk() {
	w.Helper()
	if err := w.b.Port().Due().Walk(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) has(key string, n int64) {
	w.Helper()
	if c, err := w.a.Read(w.Context(), key, quipu.Exact()); err != nil || c.Value != n {
		w.Errorf("%.20s is %d, %v; want %d", key, c.Value, err, n)
	}
}

// hints returns the hints that there are.
func (w *world) hints() (all []store.PartEntry) {
	w.Helper()
	for _, lane := range hold.Lanes(partitions) {
		found, err := w.store.ScanParts(w.Context(), hold.DueRows(lane, math.MaxInt64-1), store.ScanMax)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func (w *world) meter(db *quipu.DB, name string, want float64) {
	w.Helper()
	db.Meters(func(n, _ string, v float64) {
		if n == name && v != want {
			w.Errorf("%s is %v, want %v", name, v, want)
		}
	})
}

// What a server has reserved is given back by another, not before its time and within a
// second after it, once.
func TestAnotherServer(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	w.set("b")
	r := w.reserve("a", 30*time.Second)
	w.reserve("a", 30*time.Second)
	w.reserve("b", 40*time.Second)
	w.now = r.ExpiresAt.Add(-time.Millisecond)
	w.tick()
	w.has("a", 4)
	w.now = r.ExpiresAt.Add(hold.Grain)
	w.tick()
	w.has("a", 10)
	w.has("b", 7)
	w.tick()
	w.has("a", 10)
	if n := len(w.hints()); n != 1 {
		t.Errorf("%d hints are left", n)
	}
	w.meter(w.b, "quipu_holds_swept_total", 2)
	w.meter(w.b, "quipu_holds_swept_late_total", 0)
	w.now = w.now.Add(time.Hour)
	w.tick()
	w.has("b", 10)
	w.meter(w.b, "quipu_holds_swept_late_total", 1)
	w.meter(w.a, "quipu_holds_hints_total", 2)
	if n := len(w.hints()); n != 0 {
		t.Errorf("%d hints are left", n)
	}
}

// A reservation that was extended does not expire when it would have.
func TestExtended(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	r := w.reserve("a", 30*time.Second)
	if _, err := w.a.Extend(t.Context(), r.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(31 * time.Second)
	w.tick()
	w.has("a", 7)
	w.now = w.now.Add(30 * time.Second)
	w.tick()
	w.has("a", 10)
}

// A key that is too long for a hint is found by how it begins.
func TestLongKeys(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("k", 400)
	for _, key := range []string{long + "1", long + "2", long} {
		w.set(key)
		w.reserve(key, 30*time.Second)
	}
	kept := w.reserve(long+"1", time.Hour)
	w.now = w.now.Add(31 * time.Second)
	w.tick()
	w.has(long+"1", 7)
	w.has(long+"2", 10)
	w.has(long, 10)
	if r, err := w.a.Reservation(t.Context(), kept.ID); err != nil || r.State != quipu.HoldOpen {
		t.Errorf("%+v, %v", r, err)
	}
}

// A walk over all reservations puts back hints that were lost.
func TestLostHints(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"a", "b"} {
		w.set(key)
		w.reserve(key, 30*time.Second)
		w.reserve(key, 50*time.Second)
	}
	had := w.hints()
	w.tick() // It knows now that there are reservations.
	w.walk()
	if n := len(w.hints()); n != len(had) {
		t.Errorf("%d hints, want %d", n, len(had))
	}
	for _, h := range had {
		b := store.Batch{Partition: store.PartitionOf(h.Cell, partitions), Deltas: []store.Delta{
			{Cell: h.Cell, Op: store.OpDelete, Event: &store.Event{Part: h.Part}},
		}}
		if err := w.store.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.now = w.now.Add(time.Minute)
	w.tick()
	w.has("a", 4)
	w.walk()
	w.tick()
	w.has("a", 10)
	w.has("b", 10)
}

// A walk removes what is left of those who have no reservation, and makes no counter exist.
func TestClean(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	for _, key := range []string{"a", "b", "c"} {
		w.set(key)
		r := w.reserve(key, time.Hour, quipu.Who("eve"))
		if key == "c" {
			continue
		}
		if _, err := w.a.Commit(ctx, r.ID, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.a.Delete(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	w.tick()
	w.walk()
	for key, want := range map[string]bool{"a": false, "b": false, "c": true} {
		c := store.Cell{Namespace: "default", Key: key}
		contents := make([]store.Content, 2)
		if err := w.store.ReadParts(ctx, []store.PartCell{{Cell: c, Part: hold.Number("eve")}, {Cell: c, Part: hold.Sum("eve")}}, contents); err != nil {
			t.Fatal(err)
		}
		if contents[0].Exists != want || contents[1].Exists != want {
			t.Errorf("%s: %+v", key, contents)
		}
	}
	if c, err := w.a.Read(ctx, "b"); err != nil || c.Exists {
		t.Errorf("%+v, %v", c, err)
	}
	w.has("a", 9)
	w.has("c", 7)
}

// TestFailures has each call of the store that a Reserve makes fail, and lose its answer.
// Nothing is stranded.
func TestFailures(t *testing.T) {
	lost := store.Errorf(store.KindUnknown, "lost")
	for name, hook := range map[string]storetest.Hook{"fail": storetest.Fail(lost), "lose": storetest.Lose(lost)} {
		for step := 0; ; step++ {
			w := newWorld(t)
			w.set("a")
			before := w.hooks.Calls(storetest.OnApply)
			w.hooks.On(storetest.OnApply, storetest.Nth(step, step+1, hook))
			_, err := w.a.Reserve(t.Context(), "a", 3, 30*time.Second)
			calls := w.hooks.Calls(storetest.OnApply) - before
			w.hooks.On(storetest.OnApply)
			w.now = w.now.Add(31 * time.Second)
			w.tick()
			w.has("a", 10)
			if n := len(w.hints()); n != 0 && (step != 3 || name == "lose") { // The other server has not heard of holds.
				t.Errorf("%s at step %d: %d hints are left", name, step, n)
			}
			if _, err := w.a.Reserve(t.Context(), "a", 3, 30*time.Second); err != nil {
				t.Errorf("%s at step %d, again: %v", name, step, err)
			}
			if calls <= step {
				if step != 6 { // the book, its fences, since when it is in force; the mark, the hint, the reservation
					t.Errorf("%s: %d steps", name, step)
				}
				break
			}
			if raising := step == 1 || step == 2; raising != (err == nil) || !raising && !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%s at step %d: %v", name, step, err)
			}
		}
	}
}

// TestSweepFails has the worker's own calls fail: what was due is given back the next time.
func TestSweepFails(t *testing.T) {
	lost := store.Errorf(store.KindUnavailable, "lost")
	for step := 0; ; step++ {
		w := newWorld(t)
		w.set("a")
		w.reserve("a", 30*time.Second)
		w.now = w.now.Add(31 * time.Second)
		w.hooks.On(storetest.OnApply, storetest.Nth(step, step+1, storetest.Fail(lost)))
		_, err := w.b.Port().Due().Tick(t.Context())
		w.hooks.On(storetest.OnApply)
		w.tick()
		w.has("a", 10)
		if len(w.hints()) != 0 {
			t.Errorf("step %d: a hint is left", step)
		}
		if err == nil {
			if step != 3 { // the sweep, again by the book that it had not heard of, and the end of the hint
				t.Errorf("%d steps", step)
			}
			return
		}
	}
}

// hasty is a store as a server sees it whose idea of the store's time is ahead.
type hasty struct {
	store.Store
	ms func() int64
}

func (h hasty) NowMS(store.Cell) int64 { return h.ms() }

// ahead returns a server that believes that it is later.
func (w *world) ahead(by time.Duration) *quipu.DB {
	w.Helper()
	db := quipu.New(hasty{w.store, func() int64 { return w.now.Add(by).UnixMilli() }}, quipu.Options{})
	db.Port().Due().Close()
	w.Cleanup(func() { _ = db.Close() })
	return db
}

// sweeps reports whether a call of the store ends holds.
func sweeps(c *storetest.Call) bool {
	for i := range c.Batches {
		for j := range c.Batches[i].Deltas {
			if d := &c.Batches[i].Deltas[j]; d.Op == store.OpDelete && d.Cell.Namespace != "" {
				return true
			}
		}
	}
	return false
}

// A server that is too early gives nothing back, and comes again; and one that was about to
// does not end what was extended meanwhile.
func TestTooEarly(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	r := w.reserve("a", 30*time.Second)
	w.b = w.ahead(time.Minute)
	w.tick()
	w.has("a", 7)
	if len(w.hints()) != 1 {
		t.Error("the hint is gone")
	}
	w.hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.If(sweeps, storetest.Before(func() {
		w.hooks.On(storetest.OnApply)
		if _, err := w.a.Extend(t.Context(), r.ID, time.Minute); err != nil {
			t.Error(err)
		}
		w.now = w.now.Add(31 * time.Second)
	}))))
	w.tick()
	w.has("a", 7)
	if r, err := w.a.Reservation(t.Context(), r.ID); err != nil || r.State != quipu.HoldOpen {
		t.Errorf("%+v, %v", r, err)
	}
	w.now = w.now.Add(31 * time.Second)
	w.b = w.ahead(0)
	w.tick()
	w.has("a", 10)
}

// A reservation whose call takes longer than it was to last is made anew: it never begins
// after its end.
func TestSlowCall(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	slow := func(c *storetest.Call) bool { return c.Touches(func(c store.Cell) bool { return c.Key == "a" }) }
	w.hooks.On(storetest.OnApply, storetest.If(slow, storetest.Before(func() {
		w.hooks.On(storetest.OnApply)
		w.now = w.now.Add(31 * time.Second)
	})))
	r := w.reserve("a", 30*time.Second)
	if left := r.ExpiresAt.Sub(w.now); left < 29*time.Second {
		t.Errorf("it has %s left", left)
	}
	w.has("a", 7)
	w.tick()
	w.has("a", 7)
}

// A hint that could not be put is put again for the next reservation.
func TestHintFails(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	w.reserve("a", time.Hour)
	w.hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Fail(store.Errorf(store.KindUnavailable, "gone"))))
	if _, err := w.a.Reserve(t.Context(), "a", 3, 30*time.Second); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a hint: %v", err)
	}
	w.hooks.On(storetest.OnApply)
	w.reserve("a", 30*time.Second)
	w.has("a", 4)
	w.now = w.now.Add(31 * time.Second)
	w.tick()
	w.has("a", 7)
}
