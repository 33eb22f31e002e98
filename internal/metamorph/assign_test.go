package metamorph

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// A throng adds to one counter with all views through two servers, while others set, reset,
// delete and split it, and try to give it a deadline.
type throng struct {
	dbs      []*quipu.DB
	mu       sync.Mutex
	added    map[string]int64 // by country
	adds     int
	assigned int
}

// assign sets, resets or deletes the counter, or tries to give it a deadline.
func (c *throng) assign(ctx context.Context, rng *rand.Rand) (err error) {
	db := c.dbs[rng.IntN(2)]
	switch rng.IntN(4) {
	case 0:
		_, err = db.Set(ctx, "a", rng.Int64N(100))
	case 1:
		_, err = db.Reset(ctx, "a")
	case 2:
		_, err = db.Delete(ctx, "a")
	default:
		if _, err = db.Add(ctx, "a", 1, quipu.TTL(time.Millisecond)); !errors.Is(err, quipu.ErrInvalid) {
			return fmt.Errorf("an add with a lifetime: %w", err)
		}
		return nil
	}
	c.assigned++
	return err
}

// add adds, by a token through both servers.
func (c *throng) add(ctx context.Context, rng *rand.Rand, name string) error {
	i, n, land := rng.IntN(2), rng.Int64N(9)+1, lands[rng.IntN(landsMax)]
	opts := []quipu.WriteOption{quipu.Dim("country", land), quipu.Who(name)}
	repeats := 0
	if rng.IntN(8) == 0 {
		opts, repeats = append(opts, quipu.Token(name)), 1
	}
	if rng.IntN(8) == 0 { // So it hears of shards.
		if _, err := c.dbs[i].Read(ctx, "a", quipu.Exact()); err != nil {
			return err
		}
	}
	for again := range 1 + repeats {
		if r, err := c.dbs[(i+again)%2].Add(ctx, "a", n, opts...); err != nil || r.Replayed != (again > 0) {
			return fmt.Errorf("attempt %d: %+v, %w", again, r, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added[land] += n
	c.adds++
	return nil
}

// judge compares what a server tells with what was done: events stay whatever is assigned,
// and the ledger has every change of the total.
func (c *throng) judge(ctx context.Context, t *testing.T, db *quipu.DB) {
	t.Helper()
	sum := int64(0)
	for _, n := range c.added {
		sum += n
	}
	value := must[quipu.Count](t)(db.Read(ctx, "a", quipu.Exact())).Value
	for _, step := range []string{"1h", "1d"} {
		if s := must[quipu.Series](t)(db.Range(ctx, "a", quipu.RangeOptions{From: time.Now().AddDate(0, 0, -2), To: time.Now().AddDate(0, 0, 2), Step: width(step)})); s.Sum != sum {
			t.Errorf("windows of %s have %d, want %d", step, s.Sum, sum)
		}
	}
	by := must[quipu.Breakdown](t)(db.By(ctx, "a", "country", quipu.ByOptions{}))
	if by.Sum != sum || by.Sum+by.Outside != value {
		t.Errorf("countries have %d of %d, and %d besides", by.Sum, value, by.Outside)
	}
	for _, v := range by.Values {
		if v.Count != c.added[v.Value] {
			t.Errorf("%q has %d, want %d", v.Value, v.Count, c.added[v.Value])
		}
	}
	changed, adds, assigned := int64(0), 0, 0
	for o := (quipu.LedgerOptions{Limit: 100}); ; {
		p := must[quipu.LedgerPage](t)(db.Ledger(ctx, "a", o))
		for _, l := range p.Lines {
			if changed += l.Delta; l.Kind == "add" {
				adds++
			} else {
				assigned++
			}
		}
		if o.Cursor = p.Next; o.Cursor == "" {
			break
		}
	}
	if changed != value || adds != c.adds || assigned != c.assigned {
		t.Errorf("the ledger has %d adds and %d assignments that come to %d; want %d, %d and %d", adds, assigned, changed, c.adds, c.assigned, value)
	}
	if a := must[quipu.Audit](t)(db.Verify(ctx)); len(a.Drift) > 0 {
		t.Errorf("drift: %+v", a.Drift)
	}
}

func assignments(t *testing.T, rounds int, back func(t *testing.T, rng *rand.Rand) *backing) {
	t.Helper()
	rng, ctx := chance(t), t.Context()
	w := newWorld(t, back(t, rng), rng, quipu.Policy{Pattern: "*", Shards: 4, Spread: quipu.SpreadWho})
	defer w.end()
	c := throng{added: map[string]int64{}, dbs: []*quipu.DB{w.fronts[0].DB, w.fronts[1].DB}}
	keep := definition.Keep(30 * 24 * time.Hour)
	must[quipu.Change](t)(c.dbs[0].Define(ctx, []definition.Definition{{
		Pattern: "*", Windows: []definition.Window{{Every: width("1h"), Keep: keep}, {Every: width("1d"), Keep: keep}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}}, Ledger: definition.Ledger{Record: definition.All},
	}}, quipu.DefineOptions{}))
	done, over := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range 4 {
		mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			for j := 0; done.Err() == nil; j++ {
				if err := c.add(ctx, mine, fmt.Sprint(i, ".", j)); err != nil {
					t.Errorf("%s, caller %d, add %d: %v", w.back.name, i, j, err)
					return
				}
				pause(done, 200*time.Microsecond)
			}
		})
	}
	for range rounds {
		some, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_ = w.split(some, "a", 4) // It may not exist just now.
		cancel()
		pause(ctx, 15*time.Millisecond) // so that events go to shards
		if err := c.assign(ctx, rng); err != nil {
			t.Error(err)
		}
	}
	over()
	wg.Wait()
	t.Log(w.sharded(), "parts of counters are in shards")
	for _, db := range c.dbs {
		c.judge(ctx, t, db)
	}
}

// TestAssignmentsAtOnce runs a throng on each kind of store.
func TestAssignmentsAtOnce(t *testing.T) {
	f := func(name string, rounds int, back func(t *testing.T, rng *rand.Rand) *backing) {
		t.Run(name, func(t *testing.T) { assignments(t, rounds, back) })
	}
	for _, partitions := range []int{1, 8} {
		f(fmt.Sprint("memory of ", partitions), 20, func(*testing.T, *rand.Rand) *backing { return inMemory(partitions) })
	}
	f("embedded", 20, embedded)
	f("PostgreSQL", 10, func(t *testing.T, _ *rand.Rand) *backing { return overPostgres(t) })
	f("Redis", 10, func(t *testing.T, _ *rand.Rand) *backing { return overRedis(t) })
}
