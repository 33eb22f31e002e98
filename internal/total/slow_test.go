package total_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

var (
	runs = flag.Int("runs", 3, "how often each random test is run")
	seed = flag.Uint64("seed", 0, "the seed of the random tests; 0 takes a new one")
)

// A dice is randomness that goroutines share. The seed decides how long everything
// takes; what happens at one instant may come in another order.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) within(most time.Duration) time.Duration { return time.Duration(d.intN(int(most))) }

func (d *dice) rest(most time.Duration) { <-time.After(d.within(most)) }

// slowly runs a random test, and says how to run it again.
func slowly(t *testing.T, name string, f func(t *testing.T, d *dice)) {
	for run := range *runs {
		t.Run(fmt.Sprint(name, " ", run), func(t *testing.T) {
			first := *seed
			if first == 0 {
				first = rand.Uint64()
			}
			t.Logf("replay: go test . -run '^%s$' -count=1 -v -args -seed=%d -runs=%d", t.Name(), first, *runs)
			h := fnv.New64a()
			_, _ = h.Write([]byte(t.Name()))
			synctest.Test(t, func(t *testing.T) { f(t, &dice{rng: rand.New(rand.NewPCG(first, h.Sum64()))}) })
		})
	}
}

// A slow store takes its time before and after each call, and sees each of its
// partitions at another moment.
type slow struct {
	store.Store
	dice *dice
	most time.Duration
}

func (s *slow) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	partitions := map[int][]int{}
	for i, c := range cells {
		p := store.PartitionOf(c, s.Traits().Partitions)
		partitions[p] = append(partitions[p], i)
	}
	var wg sync.WaitGroup
	errs := make([]error, s.Traits().Partitions)
	for p, of := range partitions {
		wg.Go(func() {
			some, got := make([]store.Cell, len(of)), make([]store.Value, len(of))
			for n, i := range of {
				some[n] = cells[i]
			}
			s.dice.rest(s.most)
			errs[p] = s.Store.Read(ctx, some, got)
			for n, i := range of {
				values[i] = got[n]
			}
			s.dice.rest(s.most)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *slow) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.dice.rest(s.most)
	err := s.Store.Apply(ctx, batches, replies)
	s.dice.rest(s.most)
	return err
}

func (s *slow) Close() error { return nil }

// An account is what was added through one server.
type account struct {
	mu    sync.Mutex
	begun int64
	acked int64
	past  []entry
}

// An entry is how much was acknowledged at some moment.
type entry struct {
	at    time.Time
	acked int64
}

func (a *account) add(t *testing.T, db *quipu.DB, n int64, opts ...quipu.WriteOption) {
	a.mu.Lock()
	a.begun += n
	a.mu.Unlock()
	_, err := db.Add(t.Context(), "a", n, opts...)
	if err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked += n
	a.past = append(a.past, entry{time.Now(), a.acked})
}

// now returns how much was begun, and how much of it acknowledged.
func (a *account) now() (begun, acked int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun, a.acked
}

// before returns how much was acknowledged before some moment.
func (a *account) before(at time.Time) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.past), func(i int) bool { return !a.past[i].at.Before(at) })
	if i == 0 {
		return 0
	}
	return a.past[i-1].acked
}

// read reads through a server whose account is own, if it has one. It counts all
// that was acknowledged there before, and elsewhere before its AsOf, and nothing
// that was not begun.
func read(t *testing.T, db *quipu.DB, own *account, others []*account, opts ...quipu.ReadOption) (c quipu.Count, ok bool) {
	least, most := int64(0), int64(0)
	if own != nil {
		_, least = own.now()
	}
	c, err := db.Read(t.Context(), "a", opts...)
	if err != nil {
		t.Error(err)
		return c, false
	}
	if own != nil {
		most, _ = own.now()
	}
	for _, a := range others {
		begun, _ := a.now()
		least, most = least+a.before(c.AsOf), most+begun
	}
	if c.Value < least || c.Value > most || c.Value < c.Lower || c.Value > c.Upper {
		t.Errorf("%+v is not from %d to %d", c, least, most)
		return c, false
	}
	return c, true
}

// TestSlowHybrid has a server add and read what it has added over a slow link, while
// counters are split, folded, laid out anew and forgotten.
func TestSlowHybrid(t *testing.T) {
	for _, partitions := range []int{1, 16} {
		for _, what := range []string{"one", "split", "fold", "evict", "grow"} {
			slowly(t, fmt.Sprint(what, " ", partitions), func(t *testing.T, d *dice) { slowHybrid(t, d, partitions, what) })
		}
	}
}

func slowHybrid(t *testing.T, d *dice, partitions int, what string) {
	s := &slow{memstore.New(memstore.Options{Partitions: partitions}), d, 1 + d.within(150*time.Millisecond)}
	policy := quipu.Policy{Pattern: "a", Timing: quipu.Hybrid, Interval: 100 * time.Millisecond}
	if what != "one" {
		policy.Shards = 8
	}
	o := quipu.Options{Policies: []quipu.Policy{policy}}
	if what == "evict" {
		o.Recall = 16
	}
	db := quipu.New(s, o)
	var own account
	var wg sync.WaitGroup
	end := time.Now().Add(20 * time.Second)
	for range 4 {
		wg.Go(func() {
			for ; time.Now().Before(end); d.rest(60 * time.Millisecond) {
				var opts []quipu.WriteOption
				if what == "fold" && d.intN(40) == 0 {
					opts = append(opts, quipu.WantValue())
				} else if d.intN(10) == 0 {
					opts = append(opts, quipu.Token(fmt.Sprint(d.intN(1e18))))
				}
				own.add(t, db, int64(1+d.intN(3)), opts...)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			for ; time.Now().Before(end); d.rest(30 * time.Millisecond) {
				if _, ok := read(t, db, &own, nil); !ok {
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; time.Now().Before(end); i++ {
			switch what {
			case "evict":
				mustRead(t, db, fmt.Sprint("other", i%50))
			case "grow":
				d.rest(5 * time.Second)
				policy.Shards = 2 + d.intN(30)
				if err := db.SetPolicies([]quipu.Policy{policy}); err != nil {
					t.Error(err)
				}
			default:
				return
			}
		}
	})
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestSlowTwo has one server split a counter and another fold it, over slow links,
// while both add and read.
func TestSlowTwo(t *testing.T) {
	for _, partitions := range []int{1, 16} {
		slowly(t, fmt.Sprint(partitions), func(t *testing.T, d *dice) { slowTwo(t, d, partitions) })
	}
}

func slowTwo(t *testing.T, d *dice, partitions int) {
	s := &slow{memstore.New(memstore.Options{Partitions: partitions}), d, 1 + d.within(60*time.Millisecond)}
	policies := []quipu.Policy{{Shards: 8, CoolDown: time.Second}, {Single: true}}
	accounts := []*account{{}, {}}
	var wg sync.WaitGroup
	end := time.Now().Add(40 * time.Second)
	for i, policy := range policies {
		policy.Pattern, policy.Timing = "a", quipu.Hybrid
		policy.Interval = time.Duration(50+d.intN(2000)) * time.Millisecond
		db := over(t, s, policy)
		for range 3 {
			wg.Go(func() {
				for ; time.Now().Before(end); d.rest(40 * time.Millisecond) {
					var opts []quipu.WriteOption
					if policy.Single && d.intN(60) == 0 {
						opts = append(opts, quipu.WantValue())
					} else if d.intN(10) == 0 {
						opts = append(opts, quipu.Token(fmt.Sprint(d.intN(1e18))))
					}
					accounts[i].add(t, db, int64(1+d.intN(3)), opts...)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				for ; time.Now().Before(end); d.rest(30 * time.Millisecond) {
					var opts []quipu.ReadOption
					switch d.intN(12) {
					case 0:
						opts = append(opts, quipu.MaxStaleness(time.Duration(1+d.intN(100))*time.Millisecond))
					case 1:
						opts = append(opts, quipu.Exact())
					}
					if _, ok := read(t, db, accounts[i], accounts[1-i:2-i], opts...); !ok {
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestSlowJoint has servers make a total for each other over slow links, while the
// counter is folded or they are replaced: none is younger than it says, and at none
// of them it goes back.
func TestSlowJoint(t *testing.T) {
	for _, what := range []string{"steady", "folds", "restarts"} {
		slowly(t, what, func(t *testing.T, d *dice) { slowJoint(t, d, what) })
	}
}

func slowJoint(t *testing.T, d *dice, what string) {
	s := memstore.New(memstore.Options{Partitions: 16, Shared: true})
	most := 1 + d.within(100*time.Millisecond)
	start := func(most time.Duration) *quipu.DB {
		return quipu.New(&slow{s, d, most}, quipu.Options{Policies: []quipu.Policy{
			{Pattern: "a", Timing: quipu.Rollup, Interval: 300 * time.Millisecond, Shards: 16},
		}})
	}
	stop := func(db *quipu.DB) {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	writer := start(time.Millisecond)
	defer stop(writer)
	var written account
	var wg sync.WaitGroup
	end := time.Now().Add(30 * time.Second)
	wg.Go(func() {
		for ; time.Now().Before(end); d.rest(4 * time.Millisecond) {
			if what == "folds" && d.intN(3000) == 0 {
				written.add(t, writer, 1, quipu.WantValue())
			} else {
				written.add(t, writer, 1)
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			db, last := start(most), int64(0)
			defer func() { stop(db) }()
			for ; time.Now().Before(end); d.rest(30 * time.Millisecond) {
				if what == "restarts" && d.intN(200) == 0 {
					stop(db)
					db, last = start(most), 0
				}
				c, ok := read(t, db, nil, []*account{&written})
				if !ok {
					return
				}
				if c.Value < last {
					t.Errorf("it was %d: %+v", last, c)
					return
				}
				last = c.Value
			}
		})
	}
	wg.Wait()
}
