package metamorph

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
)

var (
	runs = flag.Int("runs", 0, "how many histories each test draws; 0 is the short form")
	seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// chance says how to run a test again, and returns its randomness. The seed
// decides the history and what befalls it; how servers interleave differs.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("replay: go test ./internal/metamorph -run '^%s$' -count=1 -v -args -seed=%d -runs=%d", t.Name(), *seed, *runs)
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// A plain is what a history comes to where nothing is ever split.
type plain struct {
	told      []string           // by step
	states    []map[string]state // after each step
	chronicle *chronicle         // of a history of events; else nil
}

type state struct {
	value  int64
	exists bool
}

// steps is how long a history is.
const steps = 60

// plainly runs a history in one DB, over one partition in memory, with one cell
// for each counter.
func plainly(t *testing.T, history []step, c *chronicle) plain {
	t.Helper()
	s, err := inMemory(1).use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db := quipu.New(s, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Single: true}}})
	defer func() { _ = db.Close() }() // nobody counts on it
	p := plain{chronicle: c}
	for _, s := range history {
		said := ""
		if !s.stale() {
			said, err = s.decide(t.Context(), db) // an error is an answer
			if err != nil && s.verb == define {
				t.Fatalf("%v: %v", s, err)
			}
		}
		now := map[string]state{}
		cs, err := db.ReadBatch(t.Context(), keys, quipu.Exact())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			now[c.Key] = state{c.Value, c.Exists}
		}
		p.told, p.states = append(p.told, said), append(p.states, now)
	}
	if err := c.judge(t.Context(), db); err != nil {
		t.Fatalf("plainly: %v", err)
	}
	return p
}

// A course is a history on its way through a world.
type course struct {
	*world
	plain
	history []step
	ended   []time.Time // when each step was answered
	by      []*front    // which front a step went through, if that is hybrid
	knows   int         // the front that has published the last definitions, or follows it
}

// run runs a history in the world, and compares. Between steps whatever may
// happen to a layout or a server happens.
func (w *world) run(history []step, p plain) {
	w.t.Helper()
	c := course{world: w, plain: p, history: history}
	for i := range history {
		if err := c.step(w.t.Context(), i); err != nil {
			w.t.Fatalf("%s, policies %v: step %d, %v: %v", w.back.name, w.policies, i, history[i], err)
		}
	}
	c.judge(nil)
	for _, key := range keys {
		if err := w.folder.Fold(w.t.Context(), w.cell(key)); err != nil {
			w.t.Fatalf("fold %q at the end: %v", key, err)
		}
	}
	if said, err := (step{verb: readMany}).decide(w.t.Context(), w.fronts[0].DB); err != nil || said != c.final() {
		w.t.Fatalf("%s, policies %v: at the end %s, %v: want %s", w.back.name, w.policies, said, err, c.final())
	}
	c.judge(history)
}

// judge judges what a front tells that has just been opened, also after it has repeated
// what it is given.
func (c *course) judge(again []step) {
	c.t.Helper()
	if c.chronicle == nil {
		return
	}
	f := c.open()
	err := c.chronicle.judge(c.t.Context(), f.DB)
	if err == nil && again != nil {
		err = c.chronicle.again(c.t.Context(), f.DB, again)
	}
	if err = errors.Join(err, f.all.Close()); err != nil {
		c.t.Fatalf("%s, policies %v: at the end: %v", c.back.name, c.policies, err)
	}
}

// final is what an exact read of all says at the end.
func (c *course) final() (out string) {
	for i, key := range keys {
		s := c.states[len(c.states)-1][key]
		if i > 0 {
			out += "; "
		}
		out += fmt.Sprintf("%s=%d exists %v exact true from %d to %d bounded true complete true", key, s.value, s.exists, s.value, s.value)
	}
	return out
}

func (c *course) step(ctx context.Context, i int) error {
	if err := c.befall(ctx, i); err != nil {
		return err
	}
	s, by := c.history[i], c.rng.IntN(len(c.fronts))
	switch s.verb {
	case define:
		c.knows = by
	case undo: // Lines are looked for by definitions that may be a second old.
		by = c.knows
	default:
	}
	f := c.fronts[by]
	if s.stale() {
		if err := c.kept(ctx, f, i); err != nil {
			return err
		}
	} else {
		said, err := s.decide(ctx, f.DB)
		if said != c.told[i] {
			return errors.Join(fmt.Errorf("said %s, plainly %s", said, c.told[i]), err)
		}
	}
	c.ended = append(c.ended, time.Now())
	if !f.hybrid {
		f = nil
	}
	c.by = append(c.by, f)
	return nil
}

// befall has something happen before a step, or nothing.
func (c *course) befall(ctx context.Context, i int) error {
	key := keys[c.rng.IntN(len(keys))]
	if c.chronicle != nil {
		key = drawKey(c.rng)
	}
	exists := i > 0 && c.states[i-1][key].exists
	switch n := c.rng.IntN(20); {
	case n < 5 && exists:
		if err := c.split(ctx, key, 2+c.rng.IntN(7)); err != nil || c.chronicle == nil {
			return err
		}
		return c.learn(ctx, key)
	case n == 5 && exists && c.chronicle == nil:
		return c.split(ctx, key, 2+c.rng.IntN(63))
	case n < 8:
		return c.folder.Fold(ctx, c.cell(key))
	case n == 8:
		return c.crash()
	case n == 9:
		return c.swap()
	case n < 10+c.rests: // fronts look at counters, and let their shards have parts
		pause(ctx, 120*time.Millisecond)
	case n < 13: // adds go to other shards, and totals grow old
		pause(ctx, time.Duration(c.rng.IntN(int(2*interval))))
	}
	return nil
}

// learn has fronts read a counter, so that they know its shards.
func (c *course) learn(ctx context.Context, key string) error {
	for _, f := range c.fronts {
		if _, err := f.Read(ctx, key, quipu.Exact()); err != nil {
			return err
		}
	}
	return nil
}

// kept makes a read that need not be exact, and judges what it says of itself.
func (c *course) kept(ctx context.Context, f *front, i int) error {
	s := c.history[i]
	var opts []quipu.ReadOption
	p, _ := f.PolicyOf(s.key)
	oldest := 2 * p.Interval
	if s.verb == readAge {
		oldest = time.Duration(s.n+11) * time.Millisecond
		opts = append(opts, quipu.MaxStaleness(oldest))
	}
	began := time.Now()
	got, err := f.Read(ctx, s.key, opts...)
	took := time.Since(began)
	if err != nil {
		return err
	}
	if err := honest(got, began, took, oldest); err != nil {
		return err
	}
	// It is what the counter was after one of the steps from the last that was
	// answered before AsOf; if exact, now; in a hybrid, with what this DB added
	// since, and not before what it was told of and is no add, or told the value.
	// If partitions were read at different moments meanwhile, it lies between.
	low, high, torn := int64(math.MaxInt64), int64(math.MinInt64), f.Port().Traits().Partitions > 1
	tail, added := int64(0), false
	for j := i - 1; ; j-- {
		is := c.after(j, s.key)
		low, high = min(low, is.value), max(high, is.value)
		// A read that is not sure of an add says so, and lies between.
		if was := is.value + tail; (was == got.Value || got.Lower < got.Upper && got.Lower <= was && was <= got.Upper) && (is.exists || added) == got.Exists {
			return nil
		}
		switch {
		case got.Exact:
			return fmt.Errorf("%+v is exact, and the counter is %+v", got, is)
		case j < 0 || c.ended[j].Before(got.AsOf):
			if torn && low+tail <= got.Value && got.Value <= high+tail {
				return nil
			}
			return fmt.Errorf("%+v is nothing that the counter was from then on, with %d that was added", got, tail)
		case f.hybrid && c.by[j] == f && slices.Contains(c.history[j].touched(), s.key):
			if !c.history[j].adds() && is != c.after(j-1, s.key) || c.history[j].want && c.history[j].verb == add {
				return fmt.Errorf("%+v of a hybrid does not count what it was told %v before", got, began.Sub(c.ended[j]))
			}
			tail, added = tail+is.value-c.after(j-1, s.key).value, true
		}
		for _, e := range c.history[j].events { // of a batch, each is decided by itself
			if e.Key == s.key {
				low, high = low+min(0, e.Delta), high+max(0, e.Delta)
			}
		}
	}
}

// after returns what a counter was after a step; -1 is the beginning.
func (c *course) after(step int, key string) state {
	if step < 0 {
		return state{}
	}
	return c.states[step][key]
}

// honest judges what a read says of itself.
func honest(got quipu.Count, began time.Time, took, oldest time.Duration) error {
	age := began.Sub(got.AsOf)
	switch {
	case got.Lower > got.Value || got.Upper < got.Value || !got.Bounded || !got.Complete:
		return fmt.Errorf("%+v does not bound itself", got)
	case age > oldest || got.AsOf.After(began.Add(took)):
		return fmt.Errorf("%+v is %v old, allowed is %v", got, age, oldest)
	case !got.Exact && (got.Staleness < age || got.Staleness > age+took), got.Exact && got.Staleness != 0:
		return fmt.Errorf("%+v is %v old", got, age)
	}
	return nil
}

// TestMemory runs histories under every policy in memory. Time there costs
// nothing: counters rest, cool down and are looked at.
func TestMemory(t *testing.T) {
	rng := chance(t)
	for range 3 * max(1, *runs) {
		history := draw(rng, steps)
		p := plainly(t, history, nil)
		for _, policy := range policies() {
			for _, partitions := range []int{1, 8} {
				mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, inMemory(partitions), mine, policy)
					defer w.end()
					w.run(history, p)
				})
			}
		}
	}
}

// under runs histories over a store, under some policies.
func under(t *testing.T, some int, back func(t *testing.T, rng *rand.Rand) *backing) {
	rng := chance(t)
	b := back(t, rng)
	for range max(1, *runs) {
		history := draw(rng, steps)
		p := plainly(t, history, nil)
		for range some {
			w := newWorld(t, b, rng, drawPolicy(rng))
			w.run(history, p)
			w.end()
		}
	}
}

func TestEmbedded(t *testing.T) {
	under(t, 6, embedded)
}

func TestPostgres(t *testing.T) {
	under(t, 2, func(t *testing.T, _ *rand.Rand) *backing { return overPostgres(t) })
}

func TestRedis(t *testing.T) {
	under(t, 4, func(t *testing.T, _ *rand.Rand) *backing { return overRedis(t) })
}

func TestCluster(t *testing.T) {
	under(t, 3, func(t *testing.T, _ *rand.Rand) *backing { return overCluster(t) })
}
