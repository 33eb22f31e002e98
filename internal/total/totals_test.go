package total_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// counting is a store that counts how often it is read, and can make readers
// wait.
type counting struct {
	store.Store
	reads atomic.Int64
	gate  atomic.Pointer[chan struct{}] // nil if nobody waits
}

func (c *counting) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	c.reads.Add(1)
	if gate := c.gate.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
		}
	}
	return c.Store.Read(ctx, cells, values)
}

// hold makes readers wait until open is called.
func (c *counting) hold() (open func()) {
	gate := make(chan struct{})
	c.gate.Store(&gate)
	return func() { close(gate) }
}

// far is a store that is not in this process, for all that a DB can tell: then
// totals are kept for readers.
type far struct{ store.Store }

func over(t *testing.T, s store.Store, policies ...quipu.Policy) *quipu.DB {
	t.Helper()
	db := quipu.New(s, quipu.Options{Policies: policies})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func mustAdd(t *testing.T, db *quipu.DB, key string, n int64) quipu.Receipt {
	t.Helper()
	r, err := db.Add(t.Context(), key, n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustRead(t *testing.T, db *quipu.DB, key string, opts ...quipu.ReadOption) quipu.Count {
	t.Helper()
	c, err := db.Read(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Complete || !c.Bounded || c.Lower > c.Value || c.Upper < c.Value || c.Exact && (c.Upper != c.Lower || c.Staleness != 0) || c.Exact != (c.Source == "store") {
		t.Errorf("%+v contradicts itself", c)
	}
	return c
}

// TestRollup reads a counter whose total is kept: it is at most as old as the
// policy says, whatever the caller asks for is met, and the store is read no
// more often than it must be.
func TestRollup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{})}
		db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{{Pattern: "kept", Timing: quipu.Rollup, Interval: time.Second}}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		mustAdd(t, db, "kept", 1)
		if c := mustRead(t, db, "kept"); c.Value != 1 || !c.Exact {
			t.Errorf("the first: %+v", c)
		}
		mustAdd(t, db, "kept", 1)
		was := s.reads.Load()
		for range 1000 {
			if c := mustRead(t, db, "kept"); c.Value != 1 || c.Source != "rollup" || time.Since(c.AsOf) != c.Staleness {
				t.Fatalf("%+v", c)
			}
		}
		if n := s.reads.Load() - was; n != 0 {
			t.Errorf("the store was read %d times", n)
		}
		if c := mustRead(t, db, "kept", quipu.Exact()); c.Value != 2 {
			t.Errorf("exact: %+v", c)
		}
		mustAdd(t, db, "kept", 1)
		if c := mustRead(t, db, "kept", quipu.MaxStaleness(0)); c.Value != 3 {
			t.Errorf("not stale: %+v", c)
		}
		if c := mustRead(t, db, "kept", quipu.MaxError(5)); c.Value != 3 {
			t.Errorf("with a bound on the error: %+v", c)
		}

		// It is refreshed while it is asked for, and no longer.
		for i := range 10 {
			mustAdd(t, db, "kept", 1)
			<-time.After(1100 * time.Millisecond)
			if c := mustRead(t, db, "kept"); c.Value != int64(4+i) || c.Staleness > 1100*time.Millisecond {
				t.Errorf("after %d intervals: %+v", i, c)
			}
		}
		<-time.After(time.Minute)
		was = s.reads.Load()
		<-time.After(time.Minute)
		if n := s.reads.Load() - was; n > 2 { // the layouts are looked after too
			t.Errorf("nobody asks, and the store was read %d times", n)
		}
		if c := mustRead(t, db, "kept"); c.Value != 13 || !c.Exact {
			t.Errorf("a cold one: %+v", c)
		}
	})
}

// TestRollupClosed reads a counter whose total is kept after the DB was closed.
func TestRollupClosed(t *testing.T) {
	db := quipu.New(far{memstore.New(memstore.Options{})}, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour}}})
	mustRead(t, db, "a")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := db.Read(t.Context(), "a"); !errors.Is(err, quipu.ErrClosed) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRollupInterval makes an interval shorter while the counter is read: it is
// refreshed as often as the new one says.
func TestRollupInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := over(t, far{memstore.New(memstore.Options{})}, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour})
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		if err := db.SetPolicies([]quipu.Policy{{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second}}); err != nil {
			t.Fatal(err)
		}
		for range 600 {
			<-time.After(100 * time.Millisecond)
			mustRead(t, db, "a")
		}
		if n := meter(db, "quipu_rollups_refreshed_total"); n < 50 {
			t.Errorf("refreshed %v times in a minute", n)
		}
	})
}

// TestRollupApart has one of several partitions not answer: totals of the others are
// refreshed.
func TestRollupApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 16
		w := &way{Store: memstore.New(memstore.Options{Partitions: partitions})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second})
		at := func(c store.Cell) int { return store.PartitionOf(c, partitions) }
		dead := at(store.Cell{Namespace: "default", Key: "dead"})
		if at(store.Cell{Namespace: "default", Key: "well"}) == dead {
			t.Fatal("they are in one partition")
		}
		mustRead(t, db, "dead")
		mustRead(t, db, "well")
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			for _, c := range cells {
				if at(c) == dead {
					<-ctx.Done()
				}
			}
			if ctx.Err() != nil {
				return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
			}
			return w.Store.Read(ctx, cells, values)
		})
		was := meter(db, "quipu_rollups_refreshed_total")
		for range 10 {
			for range 30 {
				<-time.After(100 * time.Millisecond)
				mustRead(t, db, "well")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // So it is still asked for.
			if c, err := db.Read(ctx, "dead"); err == nil {
				t.Errorf("%+v", c)
			}
			cancel()
		}
		if n := meter(db, "quipu_rollups_refreshed_total") - was; n < 10 {
			t.Errorf("refreshed %v times in 30 s", n)
		}
	})
}

// TestRecallWait has the store hang: who may be told what was read last does not wait
// longer for it, whatever timings policies have.
func TestRecallWait(t *testing.T) {
	for name, policies := range map[string][]quipu.Policy{
		"no totals are kept": {{Pattern: "a", Stale: 10 * time.Minute}},
		"another's is":       {{Pattern: "a", Stale: 10 * time.Minute}, {Pattern: "b", Timing: quipu.Rollup}},
		"its total is":       {{Pattern: "a", Stale: 10 * time.Minute, Timing: quipu.Rollup, Interval: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faraway{Store: memstore.New(memstore.Options{})}
				db := quipu.New(s, quipu.Options{Recall: 1000, Policies: policies})
				defer func() {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				}()
				mustAdd(t, db, "a", 1)
				mustRead(t, db, "a")
				<-time.After(5 * time.Second)
				s.hang.Store(true)
				<-time.After(4 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				began := time.Now()
				if c, err := db.Read(ctx, "a"); err != nil || c.Value != 1 || c.Source != "recalled" || time.Since(began) > time.Second {
					t.Errorf("%+v, %v after %v", c, err, time.Since(began))
				}
			})
		})
	}
}

// TestHybrid reads a total that is kept, and what this DB has written since: that
// takes no call of the store.
func TestHybrid(t *testing.T) {
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { hybrid(t, shards) }) })
	}
}

func hybrid(t *testing.T, shards int) {
	s := &counting{Store: memstore.New(memstore.Options{Partitions: shards})}
	policy := quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Hour, Shards: shards}
	db, other := over(t, s, policy), over(t, s, policy)
	total := int64(0)
	for mustRead(t, db, "a").Shards < shards {
		mustAdd(t, db, "a", 1)
		total++
		<-time.After(100 * time.Millisecond)
	}
	known := total
	read := func(want quipu.Count) {
		t.Helper()
		if c := mustRead(t, db, "a"); c.Value != want.Value || c.Lower != want.Lower || c.Upper != want.Upper || c.Source != want.Source {
			t.Fatalf("%+v, want %+v", c, want)
		}
	}
	was := s.reads.Load()
	versions := map[uint64]bool{}
	for i := range 300 {
		n := int64(i%5 - 1)
		mustAdd(t, db, "a", n)
		total += n
		read(quipu.Count{Value: total, Lower: min(known, total), Upper: max(known, total), Source: "rollup"})
		versions[mustRead(t, db, "a").Version] = true
	}
	if n := s.reads.Load() - was; n > 40 { // the layouts are looked after too
		t.Errorf("the store was read %d times", n)
	}
	if len(versions) != 300 {
		t.Errorf("300 values had %d versions", len(versions))
	}
	mustAdd(t, other, "a", 1)
	if c := mustRead(t, db, "a"); c.Value != total {
		t.Errorf("what others write is not counted at once: %+v, want %d", c, total)
	}
	if c := mustRead(t, db, "a", quipu.Exact()); c.Value != total+1 {
		t.Errorf("%+v, want %d", c, total+1)
	}
	// What is no add can't be added.
	for i, change := range []func() (quipu.Receipt, error){
		func() (quipu.Receipt, error) { return db.Set(t.Context(), "a", 5) },
		func() (quipu.Receipt, error) { return db.Delete(t.Context(), "a") },
		func() (quipu.Receipt, error) { return db.Add(t.Context(), "a", 1, quipu.WantValue()) },
		func() (quipu.Receipt, error) { return db.Add(t.Context(), "a", 1, quipu.Token("t")) },
		func() (quipu.Receipt, error) { return db.Add(t.Context(), "a", 1, quipu.Token("t")) },
		func() (quipu.Receipt, error) {
			if r, err := other.Add(t.Context(), "a", 1, quipu.Token("u")); err != nil {
				return r, err
			}
			return db.Add(t.Context(), "a", 1, quipu.Token("u")) // He is told that it counts.
		},
		func() (quipu.Receipt, error) {
			plain := policy
			plain.Timing = quipu.Rollup
			r, err := db.Add(t.Context(), "a", 1)
			for _, p := range []quipu.Policy{plain, policy} { // What is written between is not noted.
				if err := errors.Join(err, db.SetPolicies([]quipu.Policy{p})); err != nil {
					return r, err
				}
				if r, err = db.Add(t.Context(), "a", 1); p == policy {
					return r, err
				}
			}
			return r, err
		},
		func() (quipu.Receipt, error) { // He is told what others have added.
			if r, err := other.Add(t.Context(), "a", 5); err != nil {
				return r, err
			}
			return db.Add(t.Context(), "a", 1, quipu.WantValue())
		},
	} {
		<-time.After(time.Millisecond)
		mustRead(t, db, "a")
		<-time.After(time.Millisecond)
		if _, err := change(); err != nil {
			t.Fatal(err)
		}
		want := []int64{5, 0, 1, 2, 2, 3, 6, 12}[i]
		if c := mustRead(t, db, "a"); c.Value != want || c.Exists != (i != 1) {
			t.Errorf("after change %d: %+v", i, c)
		}
	}
}

// between is a store in which something happens just before cells are read, and
// just after.
type between struct {
	store.Store
	happen atomic.Pointer[func()]
}

func (b *between) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if len(cells) == 1 {
		return b.Store.Read(ctx, cells, values)
	}
	happen := b.happen.Swap(nil)
	if happen != nil {
		(*happen)()
	}
	err := b.Store.Read(ctx, cells, values)
	if happen != nil {
		(*happen)()
	}
	return err
}

// TestHybridBetween has a DB be told of adds while a total is being collected:
// each is either in the total or in what is added to it.
func TestHybridBetween(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &between{Store: memstore.New(memstore.Options{Partitions: partitions})}
				db := over(t, s, quipu.Policy{Pattern: "*", Timing: quipu.Hybrid, Interval: time.Second, Shards: 8})
				total := int64(0)
				for n := int64(1); mustRead(t, db, "a", quipu.Exact()).Shards < 8; total += n {
					mustAdd(t, db, "a", n)
					<-time.After(100 * time.Millisecond)
				}
				for range 20 {
					<-time.After(10*time.Second + time.Second/2) // It is too old, and is read anew.
					var happened atomic.Int64
					happen := func() {
						for range 20 {
							<-time.After(10 * time.Millisecond) // So they go to several shards.
							mustAdd(t, db, "a", 3)
						}
						happened.Add(1)
					}
					s.happen.Store(&happen)
					if mustRead(t, db, "a"); s.happen.Load() != nil {
						t.Fatal("nothing happened")
					}
					for happened.Load() < 2 { // A refresh may have come before the reader.
						<-time.After(time.Millisecond)
					}
					total += 2 * 20 * 3
					was := mustRead(t, db, "a")
					if mustAdd(t, db, "a", 1); was.Value != total {
						t.Fatalf("%+v, want %d", was, total)
					}
					total++
				}
			})
		})
	}
}

// TestHybridForgotten has a total be forgotten to make room, with what was added
// to it, while the next one is collected.
func TestHybridForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &between{Store: memstore.New(memstore.Options{})}
		db := quipu.New(s, quipu.Options{Recall: 16, Policies: []quipu.Policy{
			{Pattern: "a", Timing: quipu.Hybrid, Interval: time.Second, Shards: 8},
		}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		total := int64(0)
		for ; mustRead(t, db, "a", quipu.Exact()).Shards < 8; total++ {
			mustAdd(t, db, "a", 1)
			<-time.After(100 * time.Millisecond)
		}
		for i := range 50 {
			mustRead(t, db, "a")
			happen := func() {
				<-time.After(time.Millisecond)
				mustAdd(t, db, "a", 1)
				total++
				for j := range 100 {
					mustRead(t, db, fmt.Sprint("other", i, j))
				}
			}
			s.happen.Store(&happen)
			for s.happen.Load() != nil {
				<-time.After(time.Second)
			}
			<-time.After(100 * time.Millisecond)
			if c := mustRead(t, db, "a"); c.Value != total {
				t.Fatalf("%+v, want %d", c, total)
			}
		}
	})
}

// TestCoalesce has many ask at once for what is not known: the store is asked
// once.
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{})}
		db := over(t, s, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour})
		mustAdd(t, db, "a", 7)
		synctest.Wait()
		open := s.hold()
		was := s.reads.Load()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if c := mustRead(t, db, "a"); c.Value != 7 {
					t.Errorf("%+v", c)
				}
			})
		}
		synctest.Wait()
		open()
		wg.Wait()
		if n := s.reads.Load() - was; n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// TestMaxStaleness serves what is known to those whom it will do, whatever the
// policy.
func TestMaxStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{})}
		db := quipu.New(s, quipu.Options{Recall: 10})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		mustAdd(t, db, "a", 1)
		<-time.After(time.Second)
		if c := mustRead(t, db, "a", quipu.MaxStaleness(2*time.Second)); c.Value != 1 || c.Staleness != time.Second {
			t.Errorf("%+v", c)
		}
		if c := mustRead(t, db, "a", quipu.MaxStaleness(time.Second/2)); c.Value != 2 || !c.Exact {
			t.Errorf("%+v", c)
		}
		if c := mustRead(t, db, "a", quipu.MaxStaleness(time.Hour)); c.Value != 2 {
			t.Errorf("it went back: %+v", c)
		}
	})
}

// TestSessionLost reads with sessions of a store that has lost what they saw, and
// of others.
func TestSessionLost(t *testing.T) {
	older, newer := memstore.New(memstore.Options{}), memstore.New(memstore.Options{})
	lost, db := over(t, older), over(t, newer)
	mustAdd(t, lost, "a", 1)
	mustAdd(t, lost, "b", 1)
	for range 10 {
		mustAdd(t, db, "a", 1)
	}
	session := mustAdd(t, db, "a", 1).Session()
	if c := mustRead(t, db, "a", quipu.Session(session)); c.Value != 11 {
		t.Errorf("%+v", c)
	}
	if c, err := lost.Read(t.Context(), "a", quipu.Session(session)); !errors.Is(err, quipu.ErrSessionLost) {
		t.Errorf("%+v, %v", c, err)
	}
	reader := quipu.New(older, quipu.Options{ReadOnly: true}) // It can't tell what is lost from what has not come yet.
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	if c, err := reader.Read(t.Context(), "a", quipu.Session(session)); !errors.Is(err, quipu.ErrUnavailable) || errors.Is(err, quipu.ErrSessionLost) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := lost.ReadBatch(t.Context(), []string{"b", "a"}, quipu.Session(session)); !errors.Is(err, quipu.ErrSessionLost) {
		t.Errorf("%v", err)
	}
	mustRead(t, lost, "b", quipu.Session(session)) // It says nothing of another counter.
	for _, bad := range []string{"", "s", "s1", "s1.", "s.1", "t1.1", "s1.1.1", "s1.zzzzzzzzzz", "s-1.1"} {
		if _, err := db.Read(t.Context(), "a", quipu.Session(bad)); !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("session %q: %v", bad, err)
		}
	}
}

// TestSplitCounter counts on one that its policy splits: nobody notices but by
// what a read says of it.
func TestSplitCounter(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		f := func(t *testing.T) {
			db := over(t, memstore.New(memstore.Options{Partitions: partitions}), quipu.Policy{Pattern: "hot", Shards: 8})
			total := int64(0)
			for deadline := time.Now().Add(10 * time.Second); mustRead(t, db, "hot").Shards < 8; {
				if time.Now().After(deadline) {
					t.Fatal("it is not split")
				}
				mustAdd(t, db, "hot", 2)
				total += 2
				<-time.After(time.Millisecond)
			}
			before := mustRead(t, db, "hot")
			session := mustAdd(t, db, "hot", 1).Session()
			total++
			c := mustRead(t, db, "hot", quipu.Session(session))
			if c.Value != total || c.Shards != 8 || !c.Exact || c.Version == before.Version {
				t.Errorf("%+v after %+v, want %d", c, before, total)
			}
			if _, err := db.Set(t.Context(), "hot", 1, quipu.IfVersion(before.Version)); !errors.Is(err, quipu.ErrChanged) {
				t.Errorf("set at a version that is over: %v", err)
			}
			r, err := db.Add(t.Context(), "hot", 1, quipu.WantValue())
			if total++; err != nil || r.Value != total {
				t.Errorf("%+v, %v, want %d", r, err, total)
			}
			if c := mustRead(t, db, "hot"); c.Value != total || c.Shards != 1 || c.Version != r.Version {
				t.Errorf("%+v, want %d in one", c, total)
			}
			page, err := db.List(t.Context(), "", quipu.ListOptions{})
			if err != nil || len(page.Counts) != 1 || page.Counts[0].Value != total {
				t.Errorf("%+v, %v", page, err)
			}
			if top := db.Port().Hottest(10); len(top) != 1 || top[0].Key != "hot" || top[0].Rate <= 0 {
				t.Errorf("the hottest: %+v", top)
			}
		}
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) { synctest.Test(t, f) })
	}
}

// gappy is a store of which one cell can't be read.
type gappy struct {
	store.Store
	gone atomic.Pointer[store.Cell]
}

func (g *gappy) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if gone := g.gone.Load(); gone != nil {
		for _, c := range cells {
			if c == *gone {
				return store.Errorf(store.KindUnavailable, "%q is out of reach", c.Key)
			}
		}
	}
	return g.Store.Read(ctx, cells, values)
}

// TestPartial reads counters of which a shard can't be reached: by policy that
// fails, or the rest is served and says what it is.
func TestPartial(t *testing.T) { synctest.Test(t, partial) }

func partial(t *testing.T) {
	g := &gappy{Store: memstore.New(memstore.Options{Partitions: 8})}
	db := over(t, g, quipu.Policy{Pattern: "part", Shards: 8, Partial: true}, quipu.Policy{Pattern: "all", Shards: 8})
	totals := map[string]int64{}
	for _, key := range []string{"part", "all"} {
		for deadline := time.Now().Add(10 * time.Second); mustRead(t, db, key).Shards < 8; {
			if time.Now().After(deadline) {
				t.Fatal("it is not split")
			}
			mustAdd(t, db, key, 1)
			totals[key]++
			<-time.After(time.Millisecond)
		}
		for range 50 {
			mustAdd(t, db, key, 1)
			totals[key]++
			<-time.After(10 * time.Millisecond)
		}
	}
	for _, shard := range []int{0, 3} {
		for _, key := range []string{"part", "all"} {
			cell := store.ShardCell(store.Cell{Namespace: "default", Key: key}, shard)
			var v [1]store.Value
			if err := g.Store.Read(t.Context(), []store.Cell{cell}, v[:]); err != nil {
				t.Fatal(err)
			}
			g.gone.Store(&cell)
			c, err := db.Read(t.Context(), key)
			if key == "all" {
				if !errors.Is(err, quipu.ErrUnavailable) {
					t.Errorf("shard %d: %+v, %v", shard, c, err)
				}
			} else if err != nil || c.Complete || c.Exact || c.Bounded || c.Value != totals[key]-v[0].N || c.Shards != 8 {
				t.Errorf("without shard %d, which has %d of %d: %+v, %v", shard, v[0].N, totals[key], c, err)
			}
			if c, err := db.Read(t.Context(), key, quipu.Exact()); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("exact: %+v, %v", c, err)
			}
			g.gone.Store(nil)
			if c := mustRead(t, db, key); c.Value != totals[key] {
				t.Errorf("%+v, want %d", c, totals[key])
			}
		}
	}
}

// TestFallback counts the reads whose total is too old: not the first, which has
// none yet, and not those that want what was just written.
func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: memstore.New(memstore.Options{})}
		db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{
			{Pattern: "kept", Timing: quipu.Rollup, Interval: time.Second},
			{Pattern: "own", Timing: quipu.Hybrid, Interval: time.Second},
		}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		fallbacks := func(want float64) {
			t.Helper()
			db.Port().Meters(func(name, _ string, got float64) {
				if name == "quipu_reads_fallback_total" && got != want {
					t.Errorf("%v reads fell back, want %v", got, want)
				}
			})
		}
		for _, key := range []string{"kept", "own", "own"} {
			mustAdd(t, db, key, 1)
			mustRead(t, db, key)
		}
		mustRead(t, db, "kept")
		fallbacks(0)
		open := s.hold()
		<-time.After(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if c, err := db.Read(ctx, "kept"); err == nil {
			t.Errorf("read %+v without the store", c)
		}
		fallbacks(1)
		open()
	})
}
