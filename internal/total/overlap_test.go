package total_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A way is how one server reaches a store, which others may share: it does not
// close it. A test can put something of its own in the place of a call.
type way struct {
	store.Store
	read  atomic.Pointer[reader]
	apply atomic.Pointer[applier]
}

type (
	reader  func(ctx context.Context, cells []store.Cell, values []store.Value) error
	applier func(ctx context.Context, batches []store.Batch, replies []store.Reply) error
)

func (w *way) onRead(f reader)   { w.read.Store(&f) }
func (w *way) onApply(f applier) { w.apply.Store(&f) }

func (w *way) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if f := w.read.Load(); f != nil {
		return (*f)(ctx, cells, values)
	}
	return w.Store.Read(ctx, cells, values)
}

func (w *way) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if f := w.apply.Load(); f != nil {
		return (*f)(ctx, batches, replies)
	}
	return w.Store.Apply(ctx, batches, replies)
}

func (w *way) Close() error { return nil }

// hold has reads of the counter a wait: the n-th from now on until before[n] is
// closed, and its answer until after[n] is.
func (w *way) hold(before, after map[int]chan struct{}) {
	var reads atomic.Int64
	w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
		if len(cells) != 1 || cells[0].Key != "a" {
			return w.Store.Read(ctx, cells, values)
		}
		n := int(reads.Add(1)) - 1
		if c := before[n]; c != nil {
			<-c
		}
		err := w.Store.Read(ctx, cells, values)
		if c := after[n]; c != nil {
			<-c
		}
		return err
	})
}

// TestOverlap has a reader begin while a refresh is under way, and one of them see
// the store before something is added and the other after it: whatever is kept, no
// reader is told less than was told before, unless the store is out of reach.
func TestOverlap(t *testing.T) {
	for _, timing := range []policy.Timing{quipu.Rollup, quipu.Hybrid} {
		for _, first := range []string{"reader", "refresh"} {
			t.Run(fmt.Sprint(timing, ", the ", first, " sees it first"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { overlap(t, timing, first) })
			})
		}
	}
}

func overlap(t *testing.T, timing policy.Timing, first string) {
	w := &way{Store: memstore.New(memstore.Options{})}
	db := over(t, w, quipu.Policy{Pattern: "*", Timing: timing, Interval: 100 * time.Millisecond, Stale: time.Minute})
	mustAdd(t, db, "a", 1)
	mustRead(t, db, "a")
	refresh, late, kept := make(chan struct{}), make(chan struct{}), int64(11)
	if first == "reader" {
		w.hold(map[int]chan struct{}{0: refresh}, map[int]chan struct{}{1: late})
	} else {
		w.hold(map[int]chan struct{}{1: late}, map[int]chan struct{}{0: refresh})
		if timing == quipu.Rollup {
			kept = 1
		}
	}
	<-time.After(150 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() { mustRead(t, db, "a", quipu.MaxStaleness(time.Millisecond)) })
	synctest.Wait()
	mustAdd(t, db, "a", 10)
	close(refresh)
	synctest.Wait()
	if c := mustRead(t, db, "a"); c.Value != kept {
		t.Errorf("by the refresh: %+v, want %d", c, kept)
	}
	close(late)
	wg.Wait()
	w.onRead(func(context.Context, []store.Cell, []store.Value) error {
		return store.Errorf(store.KindUnavailable, "cut off")
	})
	if c := mustRead(t, db, "a"); c.Value != kept {
		t.Errorf("after the reader, without the store: %+v, want %d", c, kept)
	}
	w.onRead(w.Store.Read)
	if c := mustRead(t, db, "a"); c.Value != 11 {
		t.Errorf("after the reader: %+v", c)
	}
}

// TestEvicted has a total be forgotten to make room, with what was added to it,
// while it is refreshed: the refresh does not bring it back without that.
func TestEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := quipu.New(w, quipu.Options{Recall: 16, Policies: []quipu.Policy{{Pattern: "a", Timing: quipu.Hybrid, Interval: time.Second}}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		refresh := make(chan struct{})
		w.hold(nil, map[int]chan struct{}{0: refresh})
		<-time.After(1100 * time.Millisecond)
		mustAdd(t, db, "a", 10)
		for i := range 200 {
			mustRead(t, db, fmt.Sprint("other", i))
		}
		close(refresh)
		synctest.Wait()
		if c := mustRead(t, db, "a"); c.Value != 11 {
			t.Errorf("%+v", c)
		}
	})
}

// TestDeadline has a counter expire while it is refreshed, and be made again: what
// was added to the new one counts.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db, other := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: 100 * time.Millisecond}), over(t, w)
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		refresh := make(chan struct{})
		w.hold(nil, map[int]chan struct{}{0: refresh})
		<-time.After(90 * time.Millisecond)
		expire := []store.Delta{{
			Cell: store.Cell{Key: "a"}, Op: store.OpExpire,
			Expiry: store.ExpirySet, DeadlineMS: time.Now().UnixMilli() + 30,
		}}
		result := make([]store.Result, 1)
		if err := other.Port().Apply(t.Context(), expire, result); err != nil || result[0].Outcome != store.Applied {
			t.Fatal(result, err)
		}
		<-time.After(50 * time.Millisecond)
		mustAdd(t, db, "a", 5)
		close(refresh)
		synctest.Wait()
		if c := mustRead(t, db, "a"); c.Value != 5 {
			t.Errorf("%+v", c)
		}
	})
}

// TestTorn has another server fold a counter, and this one split it again while it
// collects the total, between its home and its shards: what goes to the new shards
// is not taken to be in home.
func TestTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{Partitions: 16})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Hour, Shards: 8})
		other := over(t, &way{Store: w.Store}, quipu.Policy{Pattern: "*", Single: true})
		total, inShards := int64(0), 0
		add := func() {
			if r := mustAdd(t, db, "a", 1); r.Version>>62 != 0 { // a shard has taken it
				inShards++
			}
			total++
		}
		var torn atomic.Bool
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			if len(cells) < 8 || !torn.CompareAndSwap(false, true) {
				return w.Store.Read(ctx, cells, values)
			}
			if err := w.Store.Read(ctx, cells[:1], values[:1]); err != nil {
				return err
			}
			for n := 0; n < 200 && inShards < 20; n++ {
				add()
				<-time.After(10 * time.Millisecond)
			}
			return w.Store.Read(ctx, cells[1:], values[1:])
		})
		// It may have seen the fold before it collects the total, and then reads home
		// alone.
		for range 20 {
			for torn.Store(true); mustRead(t, db, "a", quipu.Exact()).Shards < 8; {
				add()
				<-time.After(100 * time.Millisecond)
			}
			mustRead(t, db, "a")
			if _, err := other.Add(t.Context(), "a", 1, quipu.WantValue()); err != nil { // folds it
				t.Fatal(err)
			}
			total++
			inShards = 0
			<-time.After(time.Millisecond)
			torn.Store(false)
			if mustRead(t, db, "a", quipu.MaxStaleness(1)); torn.Load() {
				break
			}
		}
		if inShards < 20 {
			t.Fatalf("%d adds went to shards meanwhile", inShards)
		}
		if c := mustRead(t, db, "a"); c.Value != total {
			t.Errorf("%+v, want %d", c, total)
		}
	})
}

// TestLossy has a replica take over that lacks what was written last, so versions
// begin again below those of the total that is kept: what is added then counts.
func TestLossy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replica := memstore.New(memstore.Options{})
		<-time.After(time.Second) // So the versions of the next one are higher.
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Hour})
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		w.onRead(replica.Read)
		w.onApply(replica.Apply)
		mustAdd(t, db, "a", 10)
		if c := mustRead(t, db, "a"); c.Value < 10 {
			t.Errorf("%+v", c)
		}
	})
}

// TestPhantom has an add be answered when another server has deleted the counter,
// and this one has seen that: it does not count on top of nothing.
func TestPhantom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Hour})
		other := over(t, &way{Store: w.Store})
		mustAdd(t, db, "a", 1)
		answer := make(chan struct{})
		w.onApply(func(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
			err := w.Store.Apply(ctx, batches, replies)
			<-answer
			return err
		})
		var wg sync.WaitGroup
		wg.Go(func() { mustAdd(t, db, "a", 10) })
		synctest.Wait()
		if _, err := other.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if c := mustRead(t, db, "a"); c.Exists {
			t.Fatalf("deleted: %+v", c)
		}
		close(answer)
		wg.Wait()
		if c := mustRead(t, db, "a"); c.Exists {
			t.Errorf("%+v", c)
		}
	})
}

// TestHybridRecalled has the store be out of reach: what was added here and shown is
// still counted. If that can't be told, what was read last is.
func TestHybridRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faraway{Store: memstore.New(memstore.Options{})}
		db := over(t, s, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Second, Stale: 10 * time.Minute})
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		mustAdd(t, db, "a", 10)
		s.cut.Store(true)
		for _, source := range []string{"rollup", "recalled"} {
			if c := mustRead(t, db, "a"); c.Value != 11 || c.Source != source {
				t.Errorf("%s: %+v", source, c)
			}
			<-time.After(3 * time.Second)
		}
		if _, err := db.Set(t.Context(), "a", 5); err != nil {
			t.Fatal(err)
		}
		if c := mustRead(t, db, "a"); c.Value != 1 || c.Source != "recalled" {
			t.Errorf("after a set: %+v", c)
		}
	})
}

// remembering returns a DB that keeps whatever is read.
func remembering(t *testing.T, s store.Store, policies ...quipu.Policy) *quipu.DB {
	t.Helper()
	db := quipu.New(s, quipu.Options{Recall: 1000, Policies: policies})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestOverlapTaken has a look at a total that another server makes be slow to see
// it, and a reader sum the counter meanwhile, before that total was made: his sum,
// which comes last, does not replace it.
func TestOverlapTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Options{Partitions: 16, Shared: true})
		w := &way{Store: mem}
		db := over(t, w, quipu.Policy{Pattern: "hot", Shards: 8, Timing: quipu.Rollup, Interval: time.Second})
		other := over(t, &way{Store: mem}, quipu.Policy{Pattern: "hot", Shards: 8})
		total := splitHot(t, other)
		for range 10 {
			mustRead(t, db, "hot")
			publish(t, mem, total)
			<-time.After(300 * time.Millisecond)
		}
		if meter(db, "quipu_rollups_taken_total") == 0 {
			t.Fatal("no total was taken")
		}
		look, looking, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var looked, summed atomic.Bool
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			if len(cells) == 3 && looked.CompareAndSwap(false, true) {
				close(looking)
				<-look
			}
			err := mem.Read(ctx, cells, values)
			if len(cells) == 8 && !store.IsUnheard(ctx) && summed.CompareAndSwap(false, true) {
				<-answer
			}
			return err
		})
		<-looking
		var wg sync.WaitGroup
		wg.Go(func() { mustRead(t, db, "hot", quipu.MaxStaleness(1)) })
		synctest.Wait()
		mustAdd(t, other, "hot", 5)
		publish(t, mem, total+5)
		close(look)
		synctest.Wait()
		if c := mustRead(t, db, "hot"); c.Value != total+5 || c.Source != "rollup" {
			t.Errorf("by the look: %+v, want %d", c, total+5)
		}
		close(answer)
		wg.Wait()
		if c := mustRead(t, db, "hot"); c.Value != total+5 {
			t.Errorf("after the reader: %+v, want %d", c, total+5)
		}
	})
}

// TestOverlapAwait has a reader wait for another's call, which will not do, and ask
// again: what is told by that is not told to be less by a call that began in
// between.
func TestOverlapAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: 100 * time.Millisecond})
		other := over(t, &way{Store: w.Store})
		mustAdd(t, db, "a", 1)
		first, again, third := make(chan struct{}), make(chan struct{}), make(chan struct{})
		w.hold(map[int]chan struct{}{1: again}, map[int]chan struct{}{0: first, 2: third})
		var wg sync.WaitGroup
		wg.Go(func() { mustRead(t, db, "a") })
		synctest.Wait()
		var told quipu.Count
		wg.Go(func() { told = mustRead(t, db, "a") })
		synctest.Wait()
		if _, err := db.Add(t.Context(), "a", 1, quipu.WantValue()); err != nil { // The call above may lack it.
			t.Fatal(err)
		}
		close(first)
		synctest.Wait()
		wg.Go(func() { mustRead(t, db, "a") })
		synctest.Wait()
		mustAdd(t, other, "a", 10)
		close(again)
		synctest.Wait()
		close(third)
		wg.Wait()
		if told.Value != 12 {
			t.Errorf("the one who waited: %+v", told)
		}
		if c := mustRead(t, db, "a"); c.Value < told.Value {
			t.Errorf("%+v after %+v", c, told)
		}
	})
}

// TestOverlapJoin has a reader be told more than the total that is kept has, and
// than a call will bring that is under way: he does not wait for that call when he
// reads again.
func TestOverlapJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := remembering(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second})
		mustAdd(t, db, "a", 1)
		slow, exact := make(chan struct{}), make(chan struct{})
		w.hold(map[int]chan struct{}{1: exact}, map[int]chan struct{}{0: slow})
		var wg sync.WaitGroup
		wg.Go(func() { mustRead(t, db, "a") })
		synctest.Wait()
		wg.Go(func() {
			if c := mustRead(t, db, "a", quipu.Exact()); c.Value != 11 {
				t.Errorf("exact: %+v", c)
			}
		})
		synctest.Wait()
		mustRead(t, db, "a", quipu.Exact()) // This is kept, and the one above, which began before it, is not.
		mustAdd(t, db, "a", 10)
		close(exact)
		synctest.Wait()
		wg.Go(func() {
			if c := mustRead(t, db, "a"); c.Value != 11 {
				t.Errorf("after 11: %+v", c)
			}
		})
		synctest.Wait()
		close(slow)
		wg.Wait()
	})
}

// TestOverlapExact reads exactly, and then by a policy that keeps totals: they do
// not go back.
func TestOverlapExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := over(t, &way{Store: memstore.New(memstore.Options{})}, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 10 * time.Second})
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		mustAdd(t, db, "a", 1)
		if c := mustRead(t, db, "a", quipu.Exact()); c.Value != 2 {
			t.Errorf("exact: %+v", c)
		}
		if c := mustRead(t, db, "a"); c.Value != 2 || c.Source != "rollup" {
			t.Errorf("by policy: %+v", c)
		}
	})
}

// TestOverlapForgotten has a total be forgotten to make room, with what readers
// were told, while it is refreshed, or read by one who began before: neither brings
// back less, also if there is a new one by then.
func TestOverlapForgotten(t *testing.T) {
	f := func(name string, first ...quipu.ReadOption) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { overlapForgotten(t, first) })
		})
	}
	f("a refresh")
	f("a reader", quipu.Exact())
}

// overlapForgotten has the value that comes late be asked for by a reader with
// options, or by a refresh if there are none.
func overlapForgotten(t *testing.T, late []quipu.ReadOption) {
	w := &way{Store: memstore.New(memstore.Options{})}
	db := quipu.New(w, quipu.Options{Recall: 16, Policies: []quipu.Policy{{Pattern: "a", Timing: quipu.Rollup, Interval: time.Second}}})
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	mustAdd(t, db, "a", 1)
	answer, again := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	if late == nil {
		mustRead(t, db, "a")
		w.hold(map[int]chan struct{}{2: again}, map[int]chan struct{}{0: answer})
		<-time.After(1100 * time.Millisecond)
	} else {
		w.hold(nil, map[int]chan struct{}{0: answer})
		wg.Go(func() { mustRead(t, db, "a", late...) })
		synctest.Wait()
	}
	mustAdd(t, db, "a", 10)
	if c := mustRead(t, db, "a", quipu.Exact()); c.Value != 11 {
		t.Errorf("%+v", c)
	}
	for i := range 200 {
		mustRead(t, db, fmt.Sprint("other", i), quipu.MaxStaleness(time.Second))
	}
	read := func() {
		if c := mustRead(t, db, "a"); c.Value != 11 {
			t.Errorf("after 11: %+v", c)
		}
	}
	if late == nil { // There is a new one, of which nothing is known yet.
		wg.Go(read)
		synctest.Wait()
	}
	close(answer)
	synctest.Wait()
	wg.Go(read)
	synctest.Wait()
	close(again)
	wg.Wait()
}

// TestJoinedExact has a reader wait for a call that began at the same instant by
// the clock, before a write that he may expect to be counted: what it brings is not
// said to be exact.
func TestJoinedExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 100 * time.Millisecond})
		mustAdd(t, db, "a", 1)
		first := make(chan struct{})
		w.hold(nil, map[int]chan struct{}{0: first})
		var wg sync.WaitGroup
		wg.Go(func() { mustRead(t, db, "a") })
		synctest.Wait()
		mustAdd(t, db, "a", 5)
		wg.Go(func() {
			if c := mustRead(t, db, "a"); c.Exact && c.Value != 6 {
				t.Errorf("%+v", c)
			}
		})
		synctest.Wait()
		close(first)
		wg.Wait()
	})
}

// TestDeadlineMoved has another server take a deadline away, and the time come that
// it was: the total that had it is not served as that of a counter which is gone. If
// the store is out of reach, nothing is proved.
func TestDeadlineMoved(t *testing.T) {
	for _, timing := range []policy.Timing{quipu.Rollup, quipu.Hybrid} {
		t.Run(fmt.Sprint(timing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &way{Store: memstore.New(memstore.Options{})}
				db := over(t, w, quipu.Policy{Pattern: "*", Timing: timing, Interval: 10 * time.Second, Stale: time.Minute})
				other := over(t, &way{Store: w.Store})
				mustAdd(t, other, "a", 100)
				expire := func(e store.Expiry, ms int64) {
					t.Helper()
					result := make([]store.Result, 1)
					deltas := []store.Delta{{Cell: store.Cell{Key: "a"}, Op: store.OpExpire, Expiry: e, DeadlineMS: ms}}
					if err := other.Port().Apply(t.Context(), deltas, result); err != nil || result[0].Outcome != store.Applied {
						t.Fatal(result, err)
					}
				}
				expire(store.ExpirySet, time.Now().UnixMilli()+500)
				if c := mustRead(t, db, "a"); c.Value != 100 {
					t.Errorf("%+v", c)
				}
				expire(store.ExpiryClear, 0)
				<-time.After(time.Second)
				w.onRead(func(context.Context, []store.Cell, []store.Value) error {
					return store.Errorf(store.KindUnavailable, "cut off")
				})
				if c, err := db.Read(t.Context(), "a"); err != nil || c.Bounded || c.Exact || c.Source != "recalled" {
					t.Errorf("without the store: %+v, %v", c, err)
				}
				w.onRead(w.Store.Read)
				if c := mustRead(t, db, "a"); c.Value != 100 || !c.Exists {
					t.Errorf("it was 100 all the time: %+v", c)
				}
			})
		})
	}
}

// TestHybridPolicies sets other policies and back again while one adds and reads:
// under neither he misses what he has added.
func TestHybridPolicies(t *testing.T) {
	db := over(t, far{memstore.New(memstore.Options{})})
	hybrid := []quipu.Policy{{Pattern: "a", Timing: quipu.Hybrid, Interval: time.Hour}}
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, p := range [][]quipu.Policy{nil, hybrid} {
				if err := db.SetPolicies(p); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for n := int64(1); n <= 200_000; n++ {
		mustAdd(t, db, "a", 1)
		if c := mustRead(t, db, "a"); c.Value != n {
			t.Fatalf("added %d, read %+v", n, c)
		}
	}
}

// TestOverlapPeek has a caller who can't wait told what a total is, although the
// store would know more at once: the next reader by the policy would be told less.
func TestOverlapPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := over(t, memstore.New(memstore.Options{}), quipu.Policy{Pattern: "kept", Timing: quipu.Rollup, Interval: 10 * time.Second})
		peek := func(key string) int64 {
			t.Helper()
			var v [1]store.Value
			if !db.Port().Peek([]string{key}, v[:]) {
				t.Fatalf("%s: it would have to wait", key)
			}
			return v[0].N
		}
		for _, key := range []string{"kept", "plain"} {
			mustAdd(t, db, key, 1)
			mustRead(t, db, key)
			mustAdd(t, db, key, 1)
		}
		if n, told := peek("kept"), mustRead(t, db, "kept").Value; n > told {
			t.Errorf("%d, and then %d", n, told)
		}
		if n := peek("plain"); n != 2 {
			t.Errorf("without a total: %d", n)
		}
	})
}
