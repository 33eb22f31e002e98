package metamorph

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// What random histories have found, or find too rarely, by itself.

// eachCell has each cell be read by a call of its own, in their order.
func eachCell(c *storetest.Call) error {
	for i := range c.Cells {
		one := *c
		one.Cells, one.Values = c.Cells[i:i+1], c.Values[i:i+1]
		if err := one.Pass(); err != nil {
			return err
		}
	}
	return nil
}

// beforeShards does something before the first shard is read.
func beforeShards(f func()) storetest.Hook {
	shards := func(c *storetest.Call) bool {
		return c.Touches(func(cell store.Cell) bool { _, _, ok := store.ShardOf(cell); return ok })
	}
	return storetest.If(shards, storetest.Nth(0, 1, storetest.Before(f)))
}

// hook returns a world in memory, and a DB over its store by way of a hook.
func hook(t *testing.T, partitions int, p quipu.Policy) (*world, *storetest.Hooks, *quipu.DB) {
	t.Helper()
	back := inMemory(partitions)
	s, err := back.use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, back, chance(t), quipu.Policy{Pattern: "*"})
	h := new(storetest.Hooks)
	p.Pattern = "*"
	db := quipu.New(storetest.Wrap(s, h), quipu.Options{Policies: []quipu.Policy{p}})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		w.end()
	})
	return w, h, db.In(w.namespace)
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *world) mustSplit(key string, shards int) {
	w.t.Helper()
	if err := w.split(w.t.Context(), key, shards); err != nil {
		w.t.Fatal(err)
	}
}

// Events of one counter are decided in their order, also by a DB that has not
// heard that the counter is split.
func TestOrder(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		w, _, db := hook(t, partitions, quipu.Policy{})
		must[quipu.Receipt](t)(db.Add(t.Context(), "a", 10))
		w.mustSplit("a", 4)
		events := []quipu.Event{{Key: "a", Delta: 1, WantValue: true}, {Key: "a", Delta: 5}, {Key: "b", Delta: 1}}
		rs := must[[]quipu.Receipt](t)(db.AddBatch(t.Context(), events))
		if r := rs[0]; r.Err != nil || r.Before != 10 || r.Value != 11 {
			t.Errorf("%d partitions: the first event of a batch is told %+v, want 10 to 11: the second was applied before it", partitions, r)
		}
	}
}

// A call of which a part was applied does not say that nothing changed.
func TestPartly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, db := hook(t, 8, quipu.Policy{})
		must[quipu.Receipt](t)(db.Add(t.Context(), "a", 10))
		w.mustSplit("a", 4)
		lays := func(c *storetest.Call) bool {
			return slices.ContainsFunc(c.Batches, func(b store.Batch) bool {
				return slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return d.Op == store.OpLayout })
			})
		}
		h.On(storetest.OnApply, storetest.If(lays, storetest.Fail(store.ErrUnavailable))) // Nothing can be put together.
		other := "b"
		for i := byte('c'); store.PartitionOf(w.cell(other), 8) == store.PartitionOf(w.cell("a"), 8); i++ {
			other = string(i)
		}
		rs, err := db.AddBatch(t.Context(), []quipu.Event{{Key: other, Delta: 1}, {Key: "a", Delta: 1, WantValue: true}})
		got := must[quipu.Count](t)(db.Read(t.Context(), other, quipu.Exact()))
		if err != nil || rs[0].Err != nil || got.Value != 1 {
			t.Errorf("%q is %d, and its caller was told %v, %+v", other, got.Value, err, rs)
		}
		if err == nil && rs[1].Err == nil {
			t.Errorf("an add that could not be decided is told %+v", rs[1])
		}
	})
}

// A hybrid counts what its DB was told, also if a clock stands still.
func TestSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, db := hook(t, 1, quipu.Policy{Timing: quipu.Hybrid, Interval: time.Second})
		for i := range int64(3) {
			must[quipu.Receipt](t)(db.Add(t.Context(), "a", 1))
			if got := must[quipu.Count](t)(db.Read(t.Context(), "a")); got.Value != i+1 {
				t.Fatalf("after %d adds a hybrid reads %+v", i+1, got)
			}
		}
	})
}

// Who waits for a call that another reader has made is told what that can know:
// the call began before.
func TestJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, db := hook(t, 1, quipu.Policy{Timing: quipu.Rollup, Interval: time.Hour})
		must[quipu.Receipt](t)(db.Add(t.Context(), "a", 1))
		wait := make(chan struct{})
		h.On(storetest.OnRead, storetest.Wait(wait))
		var readers sync.WaitGroup
		read := func(oldest time.Duration, opts ...quipu.ReadOption) {
			readers.Go(func() {
				began := time.Now()
				got, err := db.Read(t.Context(), "a", opts...)
				switch {
				case err != nil:
					t.Error(err)
				case got.Exact && got.AsOf.Before(began):
					t.Errorf("%+v is exact, and as of %v before the read", got, began.Sub(got.AsOf))
				case began.Sub(got.AsOf) > oldest:
					t.Errorf("%+v is %v old, allowed is %v", got, began.Sub(got.AsOf), oldest)
				}
			})
			synctest.Wait()
		}
		read(time.Hour)
		pause(t.Context(), time.Second)
		read(time.Hour)
		read(time.Millisecond, quipu.MaxStaleness(time.Millisecond))
		close(wait)
		readers.Wait()
	})
}

// An exact read is what the counter was at one moment, also if its shards are
// read at several.
func TestOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, db := hook(t, 8, quipu.Policy{Spread: quipu.SpreadWho})
		must[quipu.Receipt](t)(db.Add(t.Context(), "a", 10))
		w.mustSplit("a", 8)
		must[quipu.Count](t)(db.Read(t.Context(), "a", quipu.Exact())) // it knows the shards
		// The counter goes from 10 to 5 and back to 10, while it is read: home is read
		// before, and the shards after.
		h.On(storetest.OnRead, eachCell, beforeShards(func() {
			must[quipu.Receipt](t)(db.Add(t.Context(), "a", -5))
			for i := range 5 {
				must[quipu.Receipt](t)(db.Add(t.Context(), "a", 1, quipu.Who(whos[1+i%4])))
			}
		}))
		if got := must[quipu.Count](t)(db.Read(t.Context(), "a", quipu.Exact())); got.Exact && got.Value > 10 {
			t.Errorf("an exact read says %d: the counter was never above 10", got.Value)
		}
	})
}

// The shards of a later split are not those of the one that home was read with.
func TestOtherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, db := hook(t, 8, quipu.Policy{Spread: quipu.SpreadWho})
		must[quipu.Receipt](t)(db.Add(t.Context(), "a", 10))
		w.mustSplit("a", 8)
		must[quipu.Count](t)(db.Read(t.Context(), "a", quipu.Exact())) // it knows the shards
		for i := range 20 {
			must[quipu.Receipt](t)(db.Add(t.Context(), "a", 1, quipu.Who(fmt.Sprint(i))))
		}
		h.On(storetest.OnRead, eachCell, beforeShards(func() {
			if err := w.folder.Fold(t.Context(), w.cell("a")); err != nil {
				t.Error(err)
			}
			w.mustSplit("a", 8)
		}))
		if got := must[quipu.Count](t)(db.Read(t.Context(), "a", quipu.Exact())); got.Value != 30 {
			t.Errorf("an exact read of a counter of 30 says %+v", got)
		}
	})
}

// An exact read of so many shards that it takes several calls is right, whatever
// happens between them.
func TestManyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h, db := hook(t, 1, quipu.Policy{Spread: quipu.SpreadWho})
		const shards = 64
		keys := make([]string, store.ReadCellsMax/shards+1) // the last one in two calls
		for i := range keys {
			keys[i] = fmt.Sprintf("%04d", i)
			must[quipu.Receipt](t)(db.Add(t.Context(), keys[i], 1))
			w.mustSplit(keys[i], shards)
		}
		last := keys[len(keys)-1]
		must[[]quipu.Count](t)(db.ReadBatch(t.Context(), keys, quipu.Exact())) // it knows the shards
		for i := range 20 {
			must[quipu.Receipt](t)(db.Add(t.Context(), last, 1, quipu.Who(fmt.Sprint(i))))
		}
		h.On(storetest.OnRead, storetest.Nth(1, 2, storetest.Before(func() {
			if err := w.folder.Fold(t.Context(), w.cell(last)); err != nil {
				t.Error(err)
			}
		})))
		got := must[[]quipu.Count](t)(db.ReadBatch(t.Context(), keys, quipu.Exact()))
		if c := got[len(got)-1]; c.Value != 21 {
			t.Errorf("an exact read of a counter of 21 says %+v", c)
		}
	})
}

// A session is of one counter: that of the same key in another namespace is
// another.
func TestSessionOfNamespace(t *testing.T) {
	_, _, db := hook(t, 1, quipu.Policy{})
	must[quipu.Receipt](t)(db.In("one").Add(t.Context(), "a", 1))
	r := must[quipu.Receipt](t)(db.In("two").Add(t.Context(), "a", 1))
	if _, err := db.In("one").Read(t.Context(), "a", quipu.Session(r.Session())); err != nil {
		t.Errorf("with a session of another namespace: %v", err)
	}
}
