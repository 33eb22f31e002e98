package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/store"
)

// A plan is a concurrent history before it happens. What each caller does
// follows from the seed; how the callers meet does not.
type plan struct {
	callers, calls int
	crashes        int
	seed           uint64
}

// concurrent runs one random history of many callers, with crashes where the
// store can have them, and checks what must hold of any: nothing acknowledged
// is lost, nothing counts twice, nothing that was seen goes back, and one order
// explains every answer.
func concurrent(t *testing.T, r *rapid.T, open Opener) {
	p := plan{
		callers: rapid.IntRange(1, 5).Draw(r, "callers"),
		calls:   rapid.IntRange(1, 20).Draw(r, "calls"),
		seed:    rapid.Uint64().Draw(r, "seed"),
	}
	c := newClock()
	k := newKit(t, r, open(t, Config{Now: c.now}))
	defer k.close()
	if k.inst.Crash != nil {
		p.crashes = rapid.IntRange(0, 2).Draw(r, "crashes")
	}
	h := newHistory(k, p, c)
	if err := h.run(); err != nil {
		k.Fatalf("%v", err)
	}
	h.check()
	if k.inst.Reopen != nil {
		k.replace(k.inst.Reopen(t))
		h.check()
	}
}

// A history is a plan while it happens.
type history struct {
	*kit
	plan    plan
	clock   *clock
	hot     store.Cell    // changed in every way, with tokens
	pair    [2]store.Cell // of one partition; added to and taken from in one numbered batch
	blind   store.Cell    // added to without a guard
	limited store.Cell    // added to within a bound, with tokens, until it expires
	writers []store.Writer

	life     atomic.Pointer[life]
	finished atomic.Int64  // calls
	crashNow chan struct{} // told when the next crash is due
	tick     atomic.Int64

	mu               sync.Mutex     // guards the fields below
	steps            []step         // to hot
	lives            []store.Result // of adds to limited
	moved            int64          // from one of the pair to the other
	acked, attempted int64          // added to blind
}

// A life is a store between two crashes.
type life struct {
	store    store.Store
	ending   atomic.Bool   // what it says from here on counts for nothing
	replaced chan struct{} // closed when the next life has begun
}

func newHistory(k *kit, p plan, c *clock) *history {
	cs := k.together(2)
	h := &history{
		kit: k, plan: p, clock: c,
		hot: cell("hot"), pair: [2]store.Cell(cs), blind: cell("blind"), limited: cell("limited"),
		crashNow: make(chan struct{}, p.crashes),
	}
	for range p.callers {
		h.writers = append(h.writers, k.enlist())
	}
	h.life.Store(&life{store: k.store, replaced: make(chan struct{})})
	return h
}

// run makes the history. The crashes are made here, in the goroutine of the
// test, where a store that can't be opened again may end it.
func (h *history) run() error {
	over := make(chan struct{})
	errs := make(chan error, 2)
	go func() { errs <- h.look(over) }()
	go func() {
		defer close(over)
		errs <- parallel(h.plan.callers, h.call)
	}()
	h.crash(over)
	return errors.Join(<-errs, <-errs)
}

// crash ends one life and begins the next, as often as it is told.
func (h *history) crash(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-h.crashNow:
		}
		old := h.life.Load()
		old.ending.Store(true)
		h.replace(h.inst.Crash(h.t))
		h.life.Store(&life{store: h.store, replaced: make(chan struct{})})
		close(old.replaced)
	}
}

// done counts a finished call and tells when a crash is due.
func (h *history) done() {
	total := int64(h.plan.callers * h.plan.calls)
	n := h.finished.Add(1)
	for i := range int64(h.plan.crashes) {
		if n == total*(i+1)/int64(h.plan.crashes+1) {
			h.crashNow <- struct{}{}
		}
	}
}

// attempt sends a batch once. ok is false if the outcome is unknown.
func (h *history) attempt(b store.Batch) (r store.Reply, ok bool, err error) {
	l := h.life.Load()
	r, err = send(h.ctx, l.store, b)
	if l.ending.Load() {
		<-l.replaced
		return store.Reply{}, false, nil
	}
	if errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrUnavailable) {
		return store.Reply{}, false, nil
	}
	return r, err == nil, err
}

// insist sends a batch until the answer is known.
func (h *history) insist(b store.Batch) (store.Reply, error) {
	for {
		if r, ok, err := h.attempt(b); ok || err != nil {
			return r, err
		}
	}
}

// call is one caller: it makes its calls, and repeats some for no reason.
func (h *history) call(caller int) error {
	rng := rand.New(rand.NewPCG(h.plan.seed, uint64(caller)))
	w, seq := h.writers[caller], uint64(0)
	for i := range h.plan.calls {
		var err error
		switch rng.IntN(6) {
		case 0:
			err = h.addBlind(rng.Int64N(9))
		case 1:
			err = h.move(h.numbered(w, seq, seq+1, add(h.pair[0], 1), want(add(h.pair[1], -1))), rng.IntN(2))
			seq++
		case 2:
			var moved bool
			moved, err = h.moveIf(h.numbered(w, seq, seq+1, add(h.pair[0], 1), want(add(h.pair[1], -1))), rng.IntN(2))
			if moved {
				seq++
			}
		case 3:
			err = h.limit(1+rng.Int64N(3), fmt.Sprintf("%d-%d", caller, i))
		default:
			err = h.change(h.drawChange(rng, fmt.Sprintf("%d-%d", caller, i)), rng.IntN(2))
		}
		if err != nil {
			return fmt.Errorf("caller %d, call %d: %w", caller, i, err)
		}
		h.done()
	}
	return nil
}

func (h *history) addBlind(n int64) error {
	_, ok, err := h.attempt(h.batch(add(h.blind, n)))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempted += n
	if ok {
		h.acked += n
	}
	return err
}

// move adds to one of the pair and takes from the other.
func (h *history) move(b store.Batch, repeats int) error {
	first, err := h.insist(b)
	if err != nil {
		return err
	}
	for range repeats {
		again, err := h.insist(b)
		if err != nil {
			return err
		}
		if !again.Replayed || again.Results[1].After != first.Results[1].After || again.Results[0].Version != first.Results[0].Version {
			return fmt.Errorf("repeat of %+v returns %+v, the first %+v", b, again, first)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved++
	return nil
}

// moveIf moves only if nobody has since it looked. A batch that was refused
// was not applied, however often it was sent, and its number is free.
func (h *history) moveIf(b store.Batch, repeats int) (bool, error) {
	vs := make([]store.Value, 2)
	if err := h.life.Load().store.Read(h.ctx, h.pair[:], vs); err != nil {
		return false, nil //nolint:nilerr // a store that is being killed may say anything
	}
	for i, c := range h.pair {
		b = given(b, c, vs[i].Version)
	}
	err := h.move(b, repeats)
	if store.KindOf(err) == store.KindChanged {
		return false, nil
	}
	return err == nil, err
}

// limitedMax is how much fits into one life of the limited cell.
const limitedMax = 9

// limit adds to the limited cell. Its first add gives it a short life.
func (h *history) limit(n int64, token string) error {
	h.clock.move(time.Millisecond)
	d := once(within(add(h.limited, n), store.Bound{High: limitedMax}), token)
	r, err := h.insist(h.batch(expiring(d, store.ExpirySet|store.ExpiryIfNone, h.clock.ms()+5)))
	if err != nil {
		return err
	}
	res := r.Results[0]
	switch {
	case res.Outcome == store.Bounded:
		return nil
	case res.Outcome != store.Applied:
		return res.Outcome.Err()
	case res.Version == 0: // its deadline had passed before it came
		return nil
	case res.After != res.Before+n || res.After > limitedMax:
		return fmt.Errorf("an add of %d went from %d to %d", n, res.Before, res.After)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives = append(h.lives, res)
	return nil
}

// oneLifeAfterAnother checks that each add to the limited cell went on from the
// one before, or began from nothing.
func (h *history) oneLifeAfterAnother() error {
	slices.SortFunc(h.lives, func(a, b store.Result) int { return cmp.Compare(a.Version, b.Version) })
	last := store.Result{}
	for _, r := range h.lives {
		if r.Version == last.Version || (r.Before != last.After && r.Before != 0) {
			return fmt.Errorf("%+v after %+v", r, last)
		}
		last = r
	}
	return nil
}

func (h *history) drawChange(rng *rand.Rand, token string) store.Delta {
	switch rng.IntN(6) {
	case 0:
		return once(set(h.hot, rng.Int64N(1000)), token)
	case 1:
		return once(del(h.hot), token)
	default:
		return once(add(h.hot, rng.Int64N(20)-5), token)
	}
}

// change makes a decided change of the hot cell.
func (h *history) change(d store.Delta, repeats int) error {
	st := step{delta: d, began: h.tick.Add(1)}
	r, err := h.insist(h.batch(d))
	if err != nil {
		return err
	}
	st.ended, st.result = h.tick.Add(1), r.Results[0]
	for range repeats {
		again, err := h.insist(h.batch(d))
		if err != nil {
			return err
		}
		first := kept(st.result)
		first.Replayed = true
		if again.Results[0] != first {
			return fmt.Errorf("repeat of %+v returns %+v, want %+v", d, again.Results[0], first)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, st)
	return nil
}

// look reads until the history is over. The pair is seen as batches leave it,
// and what was seen is never unseen: not even by a crash.
func (h *history) look(over <-chan struct{}) error {
	cells := []store.Cell{h.pair[0], h.pair[1], h.blind}
	last, now := make([]store.Value, 3), make([]store.Value, 3)
	for {
		select {
		case <-over:
			return nil
		default:
		}
		l := h.life.Load()
		err := l.store.Read(h.ctx, cells, now)
		if l.ending.Load() {
			<-l.replaced
			continue
		}
		switch {
		case errors.Is(err, store.ErrUnavailable):
			continue
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case now[0].N != -now[1].N:
			return fmt.Errorf("half a batch was seen: %+v", now)
		case now[0].N < last[0].N || now[2].N < last[2].N || now[0].Version < last[0].Version:
			return fmt.Errorf("seen %+v, and before it %+v", now, last)
		}
		copy(last, now)
	}
}

// check compares what the store holds in the end with what the callers know.
func (h *history) check() {
	h.Helper()
	vs := h.readAll(h.pair[0], h.pair[1], h.blind, h.hot)
	if vs[0].N != h.moved || vs[1].N != -h.moved {
		h.Fatalf("%d batches were applied, the pair holds %d and %d", h.moved, vs[0].N, vs[1].N)
	}
	if vs[2].N < h.acked || vs[2].N > h.attempted {
		h.Fatalf("%d was acknowledged and %d attempted, the cell holds %d", h.acked, h.attempted, vs[2].N)
	}
	if err := explain(slices.Clone(h.steps), vs[3]); err != nil {
		h.Fatalf("%v", err)
	}
	if err := h.oneLifeAfterAnother(); err != nil {
		h.Fatalf("%v", err)
	}
	for _, st := range h.steps {
		d := st.delta
		if f := h.lookup(d.Cell, d.Guard.Token); f.State != store.TokenApplied || f.Result.Version != st.result.Version {
			h.Fatalf("token %q is %v with %+v, its write returned %+v", d.Guard.Token, f.State, f.Result, st.result)
		}
	}
	h.audited()
}
