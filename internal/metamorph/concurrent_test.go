package metamorph

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// Many callers add to two counters: one that only grows, so that its values are
// unique and no read may go back, and one of both signs.
const (
	grows   = "grows"
	changes = "changes"
)

// A deed is an add that was acknowledged by a DB, or by the splitter.
type deed struct {
	n            int64
	began, ended time.Time
	by           *quipu.DB
}

// A sight is a read. A hybrid one counts what its DB was told.
type sight struct {
	key          string
	began, ended time.Time
	by           *quipu.DB
	hybrid       bool
	got          quipu.Count
}

// A crowd is callers of a world, and what they did and were told.
type crowd struct {
	*world
	mu     sync.Mutex // guards the fields below
	deeds  map[string][]deed
	values []int64 // that adds to the one that grows were told
	sights []sight
	errs   []error
}

// callers is how many there are.
const callers = 6

// rush has all callers at it, while layouts, servers and policies change, and
// judges. Each caller calls so often.
func (w *world) rush(calls int) {
	w.t.Helper()
	c := &crowd{world: w, deeds: map[string][]deed{}}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	for _, key := range []string{grows, changes} {
		c.add(ctx, key, 1)
	}
	var done sync.WaitGroup
	for i := range callers {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), uint64(i)))
		done.Go(func() { c.call(ctx, i, calls, rng) })
	}
	over := make(chan struct{})
	go func() {
		done.Wait()
		close(over)
	}()
	for busy := true; busy; {
		c.problem(c.disturb(ctx))
		select {
		case <-over:
			busy = false
		default:
		}
	}
	c.problem(c.judge(ctx))
	if err := errors.Join(c.errs...); err != nil {
		w.t.Fatalf("%s, policies %v: %v", w.back.name, w.policies, err)
	}
}

func (c *crowd) problem(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) < 5 {
		c.errs = append(c.errs, err)
	}
}

// disturb has something happen to a layout, a server or a policy.
func (c *crowd) disturb(ctx context.Context) error {
	key := []string{grows, changes}[c.rng.IntN(2)]
	switch n := c.rng.IntN(20); {
	case n < 9:
		return c.split(ctx, key, 2+c.rng.IntN(7))
	case n < 15:
		return c.folder.Fold(ctx, c.cell(key))
	case n < 16:
		return c.crash()
	case n < 18:
		return c.swap()
	default:
		pause(ctx, time.Duration(c.rng.IntN(int(interval))))
		return nil
	}
}

// with calls f with some front, and with another one if that was closed meanwhile
// or could not put a counter together before it was.
func (c *crowd) with(ctx context.Context, pick int, f func(db *quipu.DB) error) error {
	for {
		c.changing.RLock()
		db := c.fronts[pick%len(c.fronts)].DB
		if c.back.crash == nil {
			c.changing.RUnlock()
		}
		err := f(db)
		if c.back.crash != nil {
			c.changing.RUnlock()
		}
		if ctx.Err() != nil || !errors.Is(err, quipu.ErrClosed) && !errors.Is(err, quipu.ErrUnavailable) {
			return err
		}
	}
}

// add adds, and takes down what it was told.
func (c *crowd) add(ctx context.Context, key string, n int64, opts ...quipu.WriteOption) (r quipu.Receipt, ok bool) {
	return c.addBy(ctx, rand.Int(), key, n, opts...)
}

func (c *crowd) addBy(ctx context.Context, pick int, key string, n int64, opts ...quipu.WriteOption) (r quipu.Receipt, ok bool) {
	began := time.Now()
	var by *quipu.DB
	err := c.with(ctx, pick, func(db *quipu.DB) (err error) {
		r, err = db.Add(ctx, key, n, opts...)
		by = db
		return err
	})
	ended := time.Now()
	if err != nil {
		c.problem(fmt.Errorf("add %d to %q: %w", n, key, err))
		return r, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.Replayed {
		c.deeds[key] = append(c.deeds[key], deed{n, began, ended, by})
	}
	if r.HasValue && !r.Replayed && key == grows {
		c.values = append(c.values, r.Value)
	}
	return r, true
}

// slip adds by way of the splitter, who knows of a split before anybody else.
func (c *crowd) slip(ctx context.Context, key string, n int64) bool {
	began := time.Now()
	c.changing.RLock()
	err := c.do(ctx, store.Delta{Cell: c.cell(key), Op: store.OpAdd, N: n})
	c.changing.RUnlock()
	if err != nil {
		c.problem(fmt.Errorf("add %d to %q by way of the splitter: %w", n, key, err))
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deeds[key] = append(c.deeds[key], deed{n, began, time.Now(), nil})
	return true
}

// call is what one caller does.
func (c *crowd) call(ctx context.Context, name, calls int, rng *rand.Rand) {
	sessions := map[string]string{}
	for i := range calls {
		key, n := grows, 1+rng.Int64N(9)
		if rng.IntN(2) == 0 {
			key, n = changes, n-5
		}
		who := quipu.Who(fmt.Sprint("caller", rng.IntN(callers)))
		var r quipu.Receipt
		var ok bool
		switch rng.IntN(10) {
		case 0:
			r, ok = c.add(ctx, key, n, quipu.WantValue(), who)
		case 1:
			r, ok = c.twice(ctx, rng, key, n, fmt.Sprint(name, "-", i))
		case 2, 3, 4:
			ok = c.look(ctx, rng, key, sessions[key])
		case 5:
			ok = c.slip(ctx, key, n)
		default:
			r, ok = c.add(ctx, key, n, who)
		}
		if !ok {
			return
		}
		if r.Key != "" {
			sessions[key] = r.Session()
		}
	}
}

// twice adds under a token, and again by the other front.
func (c *crowd) twice(ctx context.Context, rng *rand.Rand, key string, n int64, token string) (quipu.Receipt, bool) {
	pick, opts := rng.IntN(2), []quipu.WriteOption{quipu.Token(token)}
	if rng.IntN(2) == 0 {
		opts = append(opts, quipu.WantValue())
	}
	first, ok := c.addBy(ctx, pick, key, n, opts...)
	if !ok {
		return first, false
	}
	again, ok := c.addBy(ctx, 1-pick, key, n, opts...)
	if want := first; ok {
		want.Replayed = true
		if again != want {
			c.problem(fmt.Errorf("the repeat of %+v is told %+v", first, again))
			return first, false
		}
	}
	return first, ok
}

// look reads, in one of the ways there are.
func (c *crowd) look(ctx context.Context, rng *rand.Rand, key, session string) bool {
	var opts []quipu.ReadOption
	oldest := time.Duration(-1)
	switch rng.IntN(4) {
	case 0:
		opts, oldest = append(opts, quipu.Exact()), 0
	case 1:
		oldest = time.Duration(rng.IntN(int(3 * interval)))
		opts = append(opts, quipu.MaxStaleness(oldest))
	case 2:
		if session != "" {
			opts, oldest = append(opts, quipu.Session(session)), 0
		}
	}
	s := sight{key: key}
	err := c.with(ctx, rng.IntN(2), func(db *quipu.DB) (err error) {
		before, _ := db.PolicyOf(key)
		s.began = time.Now()
		s.got, err = db.Read(ctx, key, opts...)
		after, _ := db.PolicyOf(key)
		s.by, s.hybrid = db, before.Timing == quipu.Hybrid && after.Timing == quipu.Hybrid
		return err
	})
	s.ended = time.Now()
	if err == nil && oldest >= 0 {
		err = honest(s.got, s.began, s.ended.Sub(s.began), oldest)
	}
	if err != nil {
		c.problem(fmt.Errorf("read %q, at most %v old: %w", key, oldest, err))
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sights = append(c.sights, s)
	return true
}

// judge compares what was told with what there is.
func (c *crowd) judge(ctx context.Context) error {
	slices.Sort(c.values)
	if unique := slices.Compact(slices.Clone(c.values)); len(unique) < len(c.values) {
		return fmt.Errorf("a value was told twice: %v", c.values)
	}
	for _, key := range []string{grows, changes} {
		sum := int64(0)
		for _, d := range c.deeds[key] {
			sum += d.n
		}
		for _, folded := range []bool{false, true} {
			if folded {
				if err := c.folder.Fold(ctx, c.cell(key)); err != nil {
					return err
				}
			}
			for _, f := range c.fronts {
				got, err := f.Read(ctx, key, quipu.Exact())
				if err != nil || got.Value != sum || !got.Exact {
					return fmt.Errorf("%q is %+v, %w: %d was added; folded is %v", key, got, err, sum, folded)
				}
			}
		}
	}
	var errs []error
	for _, s := range c.sights {
		errs = append(errs, c.placed(s))
	}
	return errors.Join(errors.Join(errs...), c.forward())
}

// placed judges a read: it counts whatever was acknowledged before AsOf, or, if it
// is exact or was so by its own DB, before it began; and nothing that began after it
// ended.
func (c *crowd) placed(s sight) error {
	from := s.got.AsOf
	if s.got.Exact {
		from = s.began
	}
	low, high := int64(0), int64(0)
	for _, d := range c.deeds[s.key] {
		switch {
		case d.ended.Before(from), s.hybrid && d.by == s.by && d.ended.Before(s.began):
			low, high = low+d.n, high+d.n
		case d.began.Before(s.ended):
			low, high = low+min(d.n, 0), high+max(d.n, 0)
		}
	}
	if s.got.Value < low || s.got.Value > high || s.got.Upper < s.got.Value || s.got.Lower > s.got.Value {
		return fmt.Errorf("a read that took %v says %+v: want %d to %d", s.ended.Sub(s.began), s.got, low, high)
	}
	return nil
}

// forward judges the exact reads of the counter that grows: none is less than
// one that had ended before it began.
func (c *crowd) forward() error {
	for _, a := range c.sights {
		for _, b := range c.sights {
			if a.key == grows && b.key == grows && a.got.Exact && b.got.Exact && a.ended.Before(b.began) && a.got.Value > b.got.Value {
				return fmt.Errorf("a read says %+v, and a later one %+v", a.got, b.got)
			}
		}
	}
	return nil
}

// TestConcurrent has many callers at once over every store.
func TestConcurrent(t *testing.T) {
	f := func(name string, some, calls int, back func(t *testing.T, rng *rand.Rand) *backing) {
		t.Run(name, func(t *testing.T) {
			rng := chance(t)
			b := back(t, rng)
			for range some * max(1, *runs) {
				w := newWorld(t, b, rng, drawPolicy(rng))
				w.rush(calls)
				w.end()
			}
		})
	}
	f("memory of 1", 3, 1000, func(*testing.T, *rand.Rand) *backing { return inMemory(1) })
	f("memory of 8", 3, 1000, func(*testing.T, *rand.Rand) *backing { return inMemory(8) })
	f("embedded", 3, 500, embedded)
	f("PostgreSQL", 1, 100, func(t *testing.T, _ *rand.Rand) *backing { return overPostgres(t) })
	f("Redis", 2, 150, func(t *testing.T, _ *rand.Rand) *backing { return overRedis(t) })
	f("Redis Cluster", 1, 150, func(t *testing.T, _ *rand.Rand) *backing { return overCluster(t) })
}
