package metamorph

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// patience is how long anything may take that must happen.
const patience = time.Minute

// A world is some DBs over one store, and one who changes the layout of its
// counters at will.
type world struct {
	t         *testing.T
	back      *backing
	rng       *rand.Rand
	namespace string
	policies  []quipu.Policy
	rests     int // before how many of 20 steps fronts get the time to look at counters

	changing sync.RWMutex // guards fronts
	fronts   [2]*front

	// One splits counters, the other folds them: who has folded one leaves it alone
	// for a while.
	splitter, folder *spread.Store
	shards           atomic.Int32 // that the splitter wants of every counter
	clerk            *quipu.DB    // knows the definitions that both go by
}

// A front is a DB that callers use.
type front struct {
	*quipu.DB
	all    *quipu.DB // to be closed
	hybrid bool      // its policy is
}

func newWorld(t *testing.T, back *backing, rng *rand.Rand, policies ...quipu.Policy) *world {
	t.Helper()
	w := &world{t: t, back: back, rng: rng, namespace: newName(), policies: policies}
	w.shards.Store(1)
	for i := range w.fronts {
		w.fronts[i] = w.open()
	}
	w.meddle()
	return w
}

// open opens a front.
func (w *world) open() *front {
	w.t.Helper()
	s, err := w.back.use(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	db := quipu.New(s, quipu.Options{Policies: w.policies})
	return &front{db.In(w.namespace), db, len(w.policies) > 0 && w.policies[0].Timing == quipu.Hybrid}
}

// meddle starts those who change layouts. The splitter looks all the time, and
// wants of each counter that it sees as many shards as it is told.
func (w *world) meddle() {
	w.t.Helper()
	use := func() store.Store {
		s, err := w.back.use(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return s
	}
	clerk := quipu.New(use(), quipu.Options{})
	other := func(every time.Duration) *spread.Store {
		return spread.New(use(), spread.Options{
			Every: every,
			Policy: func(store.Cell) spread.Policy {
				return spread.Policy{Limits: hot.Limits{Shards: int(w.shards.Load()), Max: hot.ShardsMax, CoolDown: time.Hour}}
			},
			Book:  func(c store.Cell) (int64, *store.Event) { return bookOf(clerk, c) },
			Renew: clerk.Port().Books().Renew,
		})
	}
	w.clerk = clerk
	w.splitter, w.folder = other(time.Millisecond), other(time.Hour)
}

// end closes everything.
func (w *world) end() {
	w.t.Helper()
	err := errors.Join(w.splitter.Close(), w.folder.Close(), w.clerk.Close())
	for _, f := range w.fronts {
		err = errors.Join(err, f.all.Close())
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		w.t.Errorf("close: %v", err)
	}
}

func (w *world) cell(key string) store.Cell { return store.Cell{Namespace: w.namespace, Key: key} }

// bookOf returns what a DB knows of the definitions of a counter, as package spread has
// to know it.
func bookOf(db *quipu.DB, c store.Cell) (id int64, touch *store.Event) {
	known := db.Port().Books().Known(c.Namespace)
	if keys := known.Of(c.Key); keys != nil {
		touch = keys.Touch
	}
	return known.ID(), touch
}

// do applies deltas to one counter by way of the splitter. No view counts them.
func (w *world) do(ctx context.Context, deltas ...store.Delta) error {
	b := store.Batch{Partition: store.PartitionOf(deltas[0].Cell, w.splitter.Traits().Partitions), Apart: true, Deltas: deltas}
	replies := make([]store.Reply, 1)
	for {
		id, touch := bookOf(w.clerk, deltas[0].Cell)
		if id != 0 {
			b.Books = []store.Book{{Namespace: w.namespace, ID: id}}
		}
		for i := range deltas {
			deltas[i].Event = touch
		}
		err := w.splitter.Apply(ctx, []store.Batch{b}, replies)
		if err = errors.Join(err, replies[0].Err); err == nil {
			break
		}
		if store.KindOf(err) != store.KindOutdated {
			return err
		}
		if err := w.clerk.Port().Books().Renew(ctx, w.namespace, id); err != nil {
			return err
		}
	}
	var errs []error
	for _, r := range replies[0].Results {
		errs = append(errs, r.Outcome.Err())
	}
	return errors.Join(errs...)
}

// viewedShards is how many shards a counter with views has at most.
const viewedShards = 8

// split gives a counter that exists some shards, as heat would. It is no
// error if it can't have any.
func (w *world) split(ctx context.Context, key string, shards int) error {
	c := w.cell(key)
	nothing := make([]store.Delta, 64) // of which some are looked at
	for i := range nothing {
		nothing[i] = store.Delta{Cell: c, Op: store.OpAdd}
	}
	w.shards.Store(int32(shards))
	defer w.shards.Store(1)
	for began := time.Now(); ; {
		if time.Since(began) > patience {
			return fmt.Errorf("%q is not split", key)
		}
		var v [1]store.Value
		if err := w.splitter.Read(ctx, []store.Cell{c}, v[:]); err != nil {
			return err
		}
		has := hot.Word(v[0].Layout).Shards()
		if _, touch := bookOf(w.clerk, c); has >= shards || v[0].DeadlineMS != 0 || touch != nil && has == viewedShards {
			return nil
		}
		if err := w.do(ctx, nothing...); err != nil {
			return err
		}
		pause(ctx, time.Millisecond)
	}
}

// crash ends a front, or all of them, and starts others. Those who call a front
// that ends are told so; but a store that crashes takes back what it told after
// that moment, so nobody calls it then.
func (w *world) crash() error {
	if w.back.crash == nil {
		i, next := w.rng.IntN(len(w.fronts)), w.open() // before the old one is gone
		w.changing.Lock()
		old := w.fronts[i]
		w.fronts[i] = next
		w.changing.Unlock()
		return old.all.Close()
	}
	w.changing.Lock()
	defer w.changing.Unlock()
	if err := w.back.crash(); err != nil {
		return err
	}
	w.end()
	for i := range w.fronts {
		w.fronts[i] = w.open()
	}
	w.meddle()
	return nil
}

// swap has a front go by another policy.
func (w *world) swap() error {
	f, p := w.fronts[w.rng.IntN(len(w.fronts))], drawPolicy(w.rng)
	if err := f.SetPolicies([]quipu.Policy{p}); err != nil {
		return err
	}
	f.hybrid = p.Timing == quipu.Hybrid
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// interval is how often totals are refreshed.
const interval = policy.IntervalMin

// layouts are the ways to lay a counter out.
func layouts() []quipu.Policy {
	all := []quipu.Policy{{Single: true}, {MaxShards: 3}, {Shards: 2, MaxShards: 8, Spread: quipu.SpreadWho}}
	for _, n := range []int{1, 4, 16, 64} {
		all = append(all, quipu.Policy{Shards: n})
	}
	for _, s := range []policy.Spread{quipu.SpreadWho, quipu.SpreadTime} {
		all = append(all, quipu.Policy{Shards: 16, Spread: s})
	}
	for i := range all {
		all[i].Pattern = "*"
	}
	return all
}

// policies are all layouts in all timings.
func policies() (all []quipu.Policy) {
	for _, timing := range []policy.Timing{quipu.FanIn, quipu.Rollup, quipu.Hybrid} {
		for _, p := range layouts() {
			if p.Timing = timing; timing != quipu.FanIn {
				p.Interval = interval
			}
			all = append(all, p)
		}
	}
	return all
}

func drawPolicy(rng *rand.Rand) quipu.Policy {
	all := policies()
	p := all[rng.IntN(len(all))]
	if rng.IntN(2) == 0 {
		p.CoolDown = time.Millisecond
	}
	return p
}
