package total_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// sums is a store that counts how often all shards of a counter are read.
type sums struct {
	store.Store
	n *atomic.Int64
}

func (s sums) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	for _, c := range cells {
		if _, i, ok := store.ShardOf(c); ok && i == 1 {
			s.n.Add(1)
		}
	}
	return s.Store.Read(ctx, cells, values)
}

func meter(db *quipu.DB, name string) (value float64) {
	db.Port().Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}

// publish does what a server does whose turn it is to make the total of the counter
// hot: it makes a claim, and after that gives out the total.
func publish(t *testing.T, s store.Store, total int64) {
	t.Helper()
	claim, sum := store.RollupCells(cellOf("hot"))
	partitions := s.Traits().Partitions
	var number [1]store.Value
	if err := s.Read(t.Context(), []store.Cell{claim}, number[:]); err != nil {
		t.Fatal(err)
	}
	raise := store.Delta{Cell: claim, Op: store.OpAdd, N: 1 + number[0].N&1} // to an odd number
	for _, deltas := range [][]store.Delta{{raise}, {{Cell: claim, Op: store.OpAdd, N: 1}, {Cell: sum, Op: store.OpSet, N: total}}} {
		replies := make([]store.Reply, 1)
		batches := []store.Batch{{Partition: store.PartitionOf(claim, partitions), Deltas: deltas}}
		if err := s.Apply(t.Context(), batches, replies); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies)
		}
	}
}

// A crew is servers over one store that keep the total of one hot counter.
type crew struct {
	t       *testing.T
	servers []*quipu.DB
	ways    []*way // of each
	sums    atomic.Int64
	total   int64
}

func newCrew(t *testing.T, size int) *crew {
	t.Helper()
	c := &crew{t: t}
	s := sums{memstore.New(memstore.Options{Partitions: 16, Shared: true}), &c.sums}
	for i := range size {
		c.ways = append(c.ways, &way{Store: s})
		c.servers = append(c.servers, quipu.New(c.ways[i], quipu.Options{Policies: []quipu.Policy{
			{Pattern: "hot", Shards: 64, Timing: quipu.Rollup, Interval: time.Second},
		}}))
	}
	for mustRead(t, c.servers[0], "hot", quipu.Exact()).Shards < 64 {
		c.add(c.servers[0])
		<-time.After(100 * time.Millisecond)
	}
	return c
}

func (c *crew) add(db *quipu.DB) {
	mustAdd(c.t, db, "hot", 1)
	c.total++
}

// serve has all servers be read and written to for a while: what they say is
// never older than the policy allows, and never goes back.
func (c *crew) serve(d time.Duration) {
	c.t.Helper()
	type past struct {
		at    time.Time
		total int64
	}
	var history []past
	last := make([]int64, len(c.servers))
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		history = append(history, past{time.Now(), c.total})
		for i, db := range c.servers {
			if db == nil {
				continue
			}
			got := mustRead(c.t, db, "hot")
			if got.Staleness > 2*time.Second || got.Value > c.total || got.Value < last[i] || got.Shards != 64 {
				c.t.Fatalf("server %d: %+v after %d, of %d", i, got, last[i], c.total)
			}
			last[i] = got.Value
			for _, p := range history {
				if p.at.Before(got.AsOf) && got.Value < p.total {
					c.t.Fatalf("server %d: %+v, and %v before that it was %d", i, got, got.AsOf.Sub(p.at), p.total)
				}
			}
			for range 6 { // So it is hot, and nobody has to look whether it is.
				c.add(db)
			}
		}
	}
}

func (c *crew) close() {
	for _, db := range c.servers {
		if db == nil {
			continue
		}
		if err := db.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// leader returns which server has made the most totals.
func (c *crew) leader() (leader int) {
	most := -1.0
	for i, db := range c.servers {
		if db == nil {
			continue
		}
		if n := meter(db, "quipu_rollups_claimed_total"); n > most {
			leader, most = i, n
		}
	}
	return leader
}

// TestJointRollup has servers make the total of a counter for each other: one sum
// in each interval, whoever makes it, and if that one is gone, another does.
func TestJointRollup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 8)
		defer c.close()
		c.serve(3 * time.Second)
		for len(c.servers) > 0 {
			const seconds = 20
			made, was, sums := 0.0, make([]float64, len(c.servers)), c.sums.Load()
			for i, db := range c.servers {
				if db != nil {
					was[i] = meter(db, "quipu_rollups_claimed_total")
				}
			}
			c.serve(seconds * time.Second)
			alive := 0
			for i, db := range c.servers {
				if db == nil {
					continue
				}
				alive++
				made += meter(db, "quipu_rollups_claimed_total") - was[i]
				if n := meter(db, "quipu_reads_fallback_total"); n != 0 {
					t.Errorf("server %d was asked %v times for what it should have kept", i, n)
				}
			}
			if made < seconds*0.7 || made > seconds*1.5 {
				t.Errorf("%d servers made %v totals in %d s", alive, made, seconds)
			}
			t.Logf("%d servers made %v totals, and summed %d times, in %d s", alive, made, c.sums.Load()-sums, seconds)
			if n := c.sums.Load() - sums; n > int64(seconds*(2+alive/2)) {
				t.Errorf("%d servers summed %d times in %d s", alive, n, seconds)
			}
			if alive == 1 {
				return
			}
			i := c.leader()
			if err := c.servers[i].Close(); err != nil {
				t.Error(err)
			}
			c.servers[i] = nil
		}
	})
}

// meddling is a store in which another server comes first: just before the n-th
// change of a claim, from 1 on, it makes one itself.
type meddling struct {
	store.Store
	n    int
	seen atomic.Int64
}

func (m *meddling) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	claim, _ := store.RollupCells(store.Cell{Namespace: "default", Key: "hot"})
	if len(batches) == 1 && len(batches[0].Deltas) > 0 && batches[0].Deltas[0].Cell == claim {
		if m.seen.Add(1) == int64(m.n) {
			raise := store.Batch{Partition: batches[0].Partition, Deltas: []store.Delta{{Cell: claim, Op: store.OpAdd, N: int64(m.n)}}}
			if err := m.Store.Apply(ctx, []store.Batch{raise}, make([]store.Reply, 1)); err != nil {
				return err
			}
		}
	}
	return m.Store.Apply(ctx, batches, replies)
}

// TestJointRollupOvertaken has another server claim a counter before this one does,
// and before it publishes its total: then it leaves the total to that one, until
// that has been silent for too long.
func TestJointRollupOvertaken(t *testing.T) {
	for n := 1; n <= 2; n++ {
		synctest.Test(t, func(t *testing.T) {
			m := &meddling{Store: memstore.New(memstore.Options{Shared: true}), n: n}
			db := quipu.New(m, quipu.Options{Policies: []quipu.Policy{
				{Pattern: "hot", Shards: 8, Timing: quipu.Rollup, Interval: time.Second, CoolDown: 3 * time.Second},
			}})
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			cell := store.Cell{Namespace: "default", Key: "hot"}
			claim, total := store.RollupCells(cell)
			board := func() (v [2]store.Value) {
				if err := m.Read(t.Context(), []store.Cell{claim, total}, v[:]); err != nil {
					t.Fatal(err)
				}
				return v
			}
			for mustRead(t, db, "hot", quipu.Exact()).Shards < 8 {
				mustAdd(t, db, "hot", 1)
				<-time.After(10 * time.Millisecond)
			}
			for m.seen.Load() < int64(n) { // until it has been overtaken
				mustRead(t, db, "hot")
				<-time.After(10 * time.Millisecond)
			}
			if v := board(); v[0].N%2 != 1 || v[1].Exists {
				t.Errorf("overtaken at change %d: %+v", n, v)
			}
			for range 200 {
				mustRead(t, db, "hot")
				<-time.After(10 * time.Millisecond)
			}
			if v := board(); v[0].N%2 != 0 || v[1].N != mustRead(t, db, "hot", quipu.Exact()).Value {
				t.Errorf("it did not take over: %+v", v)
			}
			// What is one cell again needs no total.
			if _, err := db.Set(t.Context(), "hot", 3); err != nil {
				t.Fatal(err)
			}
			for range 200 {
				mustRead(t, db, "hot")
				<-time.After(10 * time.Millisecond)
			}
			if c, v := mustRead(t, db, "hot"), board(); c.Value != 3 || v[0].Exists || v[1].Exists {
				t.Errorf("after it was folded: %+v, %+v", c, v)
			}
		})
	}
}

// TestJointRollupLate has the answer to a claim come when another server has claimed
// and published: the total of that one is not taken to be as young as the answer.
func TestJointRollupLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 2)
		defer c.close()
		c.serve(4 * time.Second)
		claim, _ := store.RollupCells(store.Cell{Namespace: "default", Key: "hot"})
		var late atomic.Int64 // whose answer is, from 1 on
		answer := make(chan struct{})
		for i, w := range c.ways {
			w.onApply(func(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
				err := w.Store.Apply(ctx, batches, replies)
				if d := &batches[0].Deltas[0]; d.Cell == claim && d.Guard.Match && late.CompareAndSwap(0, int64(i+1)) {
					<-answer
				}
				return err
			})
		}
		for late.Load() == 0 {
			<-time.After(5 * time.Millisecond)
		}
		slow := int(late.Load() - 1)
		db, other := c.servers[slow], c.servers[1-slow]
		c.ways[slow].onRead(func(ctx context.Context, cells []store.Cell, values []store.Value) error {
			for _, cell := range cells {
				if _, _, ok := store.ShardOf(cell); ok {
					return store.Errorf(store.KindUnavailable, "it makes no total of its own")
				}
			}
			return c.ways[slow].Store.Read(ctx, cells, values)
		})
		publish(t, c.ways[1-slow].Store, c.total)
		c.add(other)
		told, taken := time.Now(), meter(db, "quipu_rollups_taken_total")
		<-time.After(20 * time.Millisecond)
		close(answer)
		for range 50 {
			<-time.After(5 * time.Millisecond)
			got, err := db.Read(t.Context(), "hot")
			if err == nil && got.AsOf.After(told) && got.Value < c.total {
				t.Fatalf("%+v, and %v before that it was %d", got, got.AsOf.Sub(told), c.total)
			}
		}
		if meter(db, "quipu_rollups_taken_total") == taken {
			t.Error("it has taken no total")
		}
	})
}

// TestJointRollupLeft folds a counter that nobody reads any more: nothing is left of
// what servers told each other.
func TestJointRollupLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 2)
		defer c.close()
		c.serve(4 * time.Second)
		<-time.After(time.Minute)
		board := func() (v [2]store.Value) {
			claim, total := store.RollupCells(store.Cell{Namespace: "default", Key: "hot"})
			if err := c.ways[0].Store.Read(t.Context(), []store.Cell{claim, total}, v[:]); err != nil {
				t.Fatal(err)
			}
			return v
		}
		if v := board(); !v[0].Exists || !v[1].Exists {
			t.Fatalf("they have told each other nothing: %+v", v)
		}
		if _, err := c.servers[0].Delete(t.Context(), "hot"); err != nil {
			t.Fatal(err)
		}
		if v := board(); v[0].Exists || v[1].Exists {
			t.Errorf("%+v", v)
		}
	})
}
