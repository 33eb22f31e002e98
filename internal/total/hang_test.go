package total_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// hang has reads of the cells that match never be answered, as over a network path
// that is gone: a call ends when its context does.
func (w *way) hang(match func(c store.Cell) bool) {
	w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
		if slices.ContainsFunc(cells, match) {
			<-ctx.Done()
			return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
		}
		return w.Store.Read(ctx, cells, values)
	})
}

func anyCell(store.Cell) bool { return true }

// inPartition matches the cells of the partition that has a cell.
func inPartition(of store.Cell, partitions int) func(store.Cell) bool {
	p := store.PartitionOf(of, partitions)
	return func(c store.Cell) bool { return store.PartitionOf(c, partitions) == p }
}

func cellOf(key string) store.Cell { return store.Cell{Namespace: "default", Key: key} }

// splitHot adds to the counter hot until its policy has split it into 8, and
// returns how much.
func splitHot(t *testing.T, db *quipu.DB) (total int64) {
	t.Helper()
	for mustRead(t, db, "hot", quipu.Exact()).Shards < 8 {
		mustAdd(t, db, "hot", 1)
		total++
		<-time.After(100 * time.Millisecond)
	}
	return total
}

// TestHang has the store not answer while totals are kept, of which one is made
// jointly: when it answers again they are refreshed, and if it never does, the DB
// can be closed.
func TestHang(t *testing.T) {
	for _, back := range []bool{true, false} {
		t.Run(fmt.Sprint("it comes back ", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hang(t, back) })
		})
	}
}

func hang(t *testing.T, back bool) {
	w := &way{Store: memstore.New(memstore.Options{Partitions: 16, Shared: true})}
	db := quipu.New(w, quipu.Options{Policies: []quipu.Policy{
		{Pattern: "hot", Shards: 8, Timing: quipu.Rollup, Interval: 100 * time.Millisecond},
		{Pattern: "cold", Timing: quipu.Rollup, Interval: 100 * time.Millisecond},
	}})
	splitHot(t, db)
	readFor := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
			mustRead(t, db, "hot")
			mustRead(t, db, "cold")
		}
	}
	readFor(time.Second)
	if n := meter(db, "quipu_rollups_claimed_total"); n == 0 {
		t.Fatal("no total was made jointly")
	}
	w.hang(anyCell)
	<-time.After(2500 * time.Millisecond)
	if back {
		w.onRead(w.Store.Read)
		<-time.After(time.Second)
		was, fell := meter(db, "quipu_rollups_refreshed_total"), meter(db, "quipu_reads_fallback_total")
		readFor(2 * time.Second)
		if n := meter(db, "quipu_rollups_refreshed_total") - was; n < 15 {
			t.Errorf("after it came back, totals were refreshed %v times in 20 intervals", n)
		}
		if n := meter(db, "quipu_reads_fallback_total") - fell; n > 2 {
			t.Errorf("%v reads found theirs too old", n)
		}
	}
	began := time.Now()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("Close took %v", d)
	}
}

// TestHangApart has one partition of several not answer: totals of counters that
// have no cell there are refreshed in time, also if those of others are split, and
// when it answers again, all are.
func TestHangApart(t *testing.T) {
	for _, shared := range []bool{false, true} { // Then the totals of what is split are made jointly.
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hangApart(t, shared) })
		})
	}
}

func hangApart(t *testing.T, shared bool) {
	const partitions = 16
	w := &way{Store: memstore.New(memstore.Options{Partitions: partitions, Shared: shared})}
	db := over(t, w, quipu.Policy{Pattern: "hot", Shards: 8, Timing: quipu.Rollup, Interval: 200 * time.Millisecond},
		quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 200 * time.Millisecond})
	splitHot(t, db)
	dead, shard := inPartition(cellOf("dead"), partitions), store.ShardCell(cellOf("hot"), 3)
	if dead(cellOf("well")) || dead(cellOf("hot")) {
		t.Fatal("they are in one partition")
	}
	near := "near" // in the partition of hot, which has only a shard that is dead
	for !inPartition(cellOf("hot"), partitions)(cellOf(near)) {
		near += "."
	}
	ask := func(key string) { // So it is still asked for.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = db.Read(ctx, key)
	}
	readFor := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
			mustRead(t, db, "well")
			mustRead(t, db, near)
			ask("dead")
			ask("hot")
		}
	}
	for _, key := range []string{"well", near, "dead", "hot"} {
		mustRead(t, db, key)
	}
	readFor(time.Second)
	w.hang(func(c store.Cell) bool { return dead(c) || c == shard })
	readFor(3 * time.Second) // It must be found out which.
	was, fell := meter(db, "quipu_rollups_refreshed_total"), meter(db, "quipu_reads_fallback_total")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		for _, key := range []string{"well", near} {
			if c := mustRead(t, db, key); c.Staleness > 210*time.Millisecond {
				t.Fatalf("%+v", c)
			}
		}
		if time.Now().UnixMilli()%3000 < 100 {
			ask("dead")
			ask("hot")
		}
	}
	if n := meter(db, "quipu_rollups_refreshed_total") - was; n < 160 {
		t.Errorf("two are refreshed %v times in 100 intervals, and %v reads fell back", n, meter(db, "quipu_reads_fallback_total")-fell)
	}
	w.onRead(w.Store.Read)
	readFor(3 * time.Second)
	for _, key := range []string{"well", near, "dead", "hot"} {
		if c := mustRead(t, db, key); c.Source != "rollup" || c.Staleness > 400*time.Millisecond {
			t.Errorf("after it came back: %+v", c)
		}
	}
}

// TestHangAge has the store not answer while readers go on asking: the meter says
// how old the total is.
func TestHangAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second})
		mustAdd(t, db, "a", 1)
		for range 30 {
			mustRead(t, db, "a")
			<-time.After(100 * time.Millisecond)
		}
		if r := meter(db, "quipu_rollup_age_ratio"); r > 1.1 {
			t.Errorf("while it answers, totals are %v intervals old", r)
		}
		w.hang(anyCell)
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if c, err := db.Read(ctx, "a"); err == nil && c.Staleness > 2*time.Second {
					t.Errorf("%+v", c)
				}
			})
			<-time.After(500 * time.Millisecond)
		}
		if r := meter(db, "quipu_rollup_age_ratio"); r < 29 || r > 33 {
			t.Errorf("a total of 30 s ago is %v intervals old", r)
		}
		wg.Wait()
	})
}

// TestLostCall has the call of a reader who waits for ever be lost on its way, while
// the store is well: all others can read the counter.
func TestLostCall(t *testing.T) {
	for _, timing := range []policy.Timing{quipu.Rollup, quipu.Hybrid} {
		t.Run(fmt.Sprint(timing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &way{Store: memstore.New(memstore.Options{})}
				db := over(t, w, quipu.Policy{Pattern: "*", Timing: timing, Interval: time.Second})
				mustAdd(t, db, "a", 1)
				lost := make(chan struct{})
				w.hold(map[int]chan struct{}{0: lost}, nil)
				var wg sync.WaitGroup
				wg.Go(func() { mustRead(t, db, "a") })
				synctest.Wait()
				for range 20 {
					began := time.Now()
					if c := mustRead(t, db, "a"); c.Value != 1 || time.Since(began) > time.Second {
						t.Errorf("%+v after %v", c, time.Since(began))
					}
					<-time.After(300 * time.Millisecond)
				}
				if n := meter(db, "quipu_rollups_refreshed_total"); n < 3 {
					t.Errorf("refreshed %v times in 6 intervals", n)
				}
				close(lost)
				wg.Wait()
			})
		})
	}
}

// TestGiveUp has a reader go away for whom many wait: his call serves them all.
// One that fails is made again once, for all who came after it began.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour})
		var mu sync.Mutex
		calls, answer := 0, make(chan error)
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			if cells[0].Key != "a" && cells[0].Key != "b" {
				return w.Store.Read(ctx, cells, values)
			}
			mu.Lock()
			calls++
			mu.Unlock()
			select {
			case err := <-answer:
				if err != nil {
					return err
				}
				return w.Store.Read(ctx, cells, values)
			case <-ctx.Done():
				return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
			}
		})
		made := func(want int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
		}
		var wg sync.WaitGroup
		ask := func(ctx context.Context, n int, key string, fails bool) {
			for range n {
				wg.Go(func() {
					if c, err := db.Read(ctx, key); (err != nil) != fails {
						t.Errorf("%s: %+v, %v", key, c, err)
					}
				})
			}
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		ask(gone, 1, "a", true)
		ask(t.Context(), 1000, "a", false)
		cancel()
		made(1)
		answer <- nil
		wg.Wait()
		made(1)

		away := store.Errorf(store.KindUnavailable, "cut off")
		ask(t.Context(), 1, "b", true)
		ask(t.Context(), 1000, "b", true)
		made(2)
		answer <- away
		made(3)
		answer <- away
		wg.Wait()
		made(3)
	})
}

// TestGiveUpSoon has a reader with little time begin a call: those with more get
// their answer from it.
func TestGiveUpSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour})
		mustAdd(t, db, "a", 7)
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			select {
			case <-time.After(500 * time.Millisecond):
				return w.Store.Read(ctx, cells, values)
			case <-ctx.Done():
				return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if c, err := db.Read(ctx, "a"); err == nil {
				t.Errorf("%+v", c)
			}
		})
		synctest.Wait()
		began := time.Now()
		if c := mustRead(t, db, "a"); c.Value != 7 || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%+v after %v", c, time.Since(began))
		}
		wg.Wait()
	})
}

// TestSlowStore has the store take longer than a call that others wait for may: all
// who have the time get an answer.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{})}
		db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 100 * time.Millisecond})
		mustAdd(t, db, "a", 7)
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			select {
			case <-time.After(3 * time.Second):
				return w.Store.Read(ctx, cells, values)
			case <-ctx.Done():
				return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
			}
		})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if c, err := db.Read(ctx, "a"); err != nil || c.Value != 7 {
					t.Errorf("%+v, %v", c, err)
				}
			})
			<-time.After(100 * time.Millisecond)
		}
		wg.Wait()
	})
}

// TestPartialHang has one partition not answer: a policy that takes the sum of what
// there is has it while the caller waits. If there are no parts, the caller waits
// for the whole as long as he likes.
func TestPartialHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 16
		w := &way{Store: memstore.New(memstore.Options{Partitions: partitions})}
		db := over(t, w, quipu.Policy{Pattern: "*", Shards: 8, Partial: true})
		splitHot(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		w.hang(inPartition(store.ShardCell(cellOf("hot"), 3), partitions))
		if c, err := db.Read(ctx, "hot"); err != nil || c.Complete || c.Exact || c.Bounded {
			t.Errorf("%+v, %v", c, err)
		}
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			select {
			case <-time.After(2 * time.Second):
				return w.Store.Read(ctx, cells, values)
			case <-ctx.Done():
				return store.Errorf(store.KindUnavailable, "%w", ctx.Err())
			}
		})
		if c := mustRead(t, db, "other"); c.Exists {
			t.Errorf("%+v", c)
		}
	})
}

// TestPartialTorn has the whole not be read, and then all parts, each at another
// moment: their sum, which the counter never was, is not said to be exact.
func TestPartialTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Store: memstore.New(memstore.Options{Partitions: 16})}
		other := over(t, &way{Store: w.Store}, quipu.Policy{Pattern: "hot", Shards: 8})
		db := over(t, w, quipu.Policy{Pattern: "hot", Shards: 8, Partial: true})
		total := splitHot(t, other)
		mustRead(t, db, "hot")
		home := make(chan struct{})
		w.onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			if len(cells) > 1 {
				return store.Errorf(store.KindUnavailable, "a hiccup")
			}
			if cells[0] == cellOf("hot") {
				<-home
			}
			return w.Store.Read(ctx, cells, values)
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := db.Read(t.Context(), "hot")
			if err == nil && (c.Exact || c.Bounded) {
				t.Errorf("it was %d and %d: %+v", total, total+1000, c)
			}
		})
		synctest.Wait() // The shards are read, and home is not.
		mustAdd(t, other, "hot", 1000)
		mustAdd(t, other, "hot", -1000)
		close(home)
		wg.Wait()
	})
}
