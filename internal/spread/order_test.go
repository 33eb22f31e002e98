package spread_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// A gated store lets its only user go on by one call at a time.
type gated struct {
	*shared
	last bool // home is read last
	shut atomic.Bool
	at   chan bool     // the user is at a call, or with false has ended
	pass chan struct{} // it may go on
}

func (g *gated) wait() {
	if g.shut.Load() {
		g.at <- true
		<-g.pass
	}
}

func (g *gated) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	g.wait()
	return g.shared.Apply(ctx, batches, replies)
}

// Read reads at one moment what is in one partition, as a store does that is several
// servers.
func (g *gated) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if g.Traits().Partitions == 1 {
		g.wait()
		return g.shared.Read(ctx, cells, values)
	}
	for n := range cells {
		if g.last {
			n = len(cells) - 1 - n
		}
		g.wait()
		if err := g.shared.Read(ctx, cells[n:n+1], values[n:n+1]); err != nil {
			return err
		}
	}
	return nil
}

// An actor is a server that does what it is told, a call of the store at a time.
type actor struct {
	*spread.Store
	gate *gated
	busy bool // it is at a call
}

func newActor(t *testing.T, under *shared, last bool) *actor {
	t.Helper()
	g := &gated{shared: under, last: last, at: make(chan bool), pass: make(chan struct{})}
	return &actor{Store: server(t, g, lazy), gate: g}
}

// begin has it do something, and leaves it at the first call.
func (a *actor) begin(do func(*spread.Store)) {
	a.gate.shut.Store(true)
	go func() {
		do(a.Store)
		a.gate.shut.Store(false)
		a.gate.at <- false
	}()
	a.busy = <-a.gate.at
}

// step lets it make some calls, and returns how many it made: fewer if it has
// ended.
func (a *actor) step(calls int) (made int) {
	for ; made < calls && a.busy; made++ {
		a.gate.pass <- struct{}{}
		a.busy = <-a.gate.at
	}
	return made
}

// all is more calls than an actor makes.
const all = 1 << 20

// A stage is a counter in a store, and those who act on it. Only one does at a time.
type stage struct {
	t     *testing.T
	under *shared
	c     store.Cell
	acked int64         // what the counter is
	was   []int64       // what it has been
	knows *spread.Store // looks at it all the time
	lossy bool          // home has forgotten that it was split
}

// A part is something that an actor does.
type part func(*spread.Store)

func newStage(t *testing.T, partitions int) *stage {
	t.Helper()
	g := &stage{t: t, under: newShared(partitions), c: cell("a"), was: []int64{0}}
	g.knows = server(t, g.under, lazy)
	g.add(g.knows, 1)
	return g
}

func (g *stage) splits(shards int) part {
	return func(s *spread.Store) { _, _ = s.Split(g.t.Context(), g.c, shards) }
}

// add adds, blindly.
func (g *stage) add(s *spread.Store, n int64) {
	if _, err := do(g.t.Context(), s, add(g.c, n)); err != nil {
		g.t.Error(err)
	}
	g.changed(n)
}

func (g *stage) changed(n int64) {
	g.acked += n
	g.was = append(g.was, g.acked)
}

func (g *stage) adds(s *spread.Store) {
	for range 4 {
		g.add(s, 1)
	}
}

func (g *stage) takes(s *spread.Store) { g.add(s, -2) }

func (g *stage) folds(s *spread.Store) { _ = s.Fold(g.t.Context(), g.c) }

func (g *stage) asks(s *spread.Store) {
	r, err := do(g.t.Context(), s, want(add(g.c, 1)))
	if g.changed(1); err != nil || r.After != g.acked {
		g.t.Errorf("told %+v, %v, want %d", r, err, g.acked)
	}
}

// reads reads: whatever others do meanwhile, the counter was that, or less and more.
func (g *stage) reads(s *spread.Store) {
	var v [1]store.Value
	since := len(g.was)
	if err := s.Read(g.t.Context(), []store.Cell{g.c}, v[:]); err != nil {
		g.t.Error(err)
	}
	been := g.was[since-1:]
	if n := v[0].N; n > slices.Max(been) || n < slices.Min(been) && !g.lossy {
		g.t.Errorf("a read says %d of what was %d", n, been)
	}
}

// forgets has home forget that it is split, as a store does that loses its last
// writes.
func (g *stage) forgets(*spread.Store) {
	d := store.Delta{Cell: g.c, Op: store.OpLayout}
	d.Guard.Laid, d.Guard.Layout = true, read(g.t, g.under, g.c).Layout
	mustDo(g.t, g.under, d)
	g.lossy = true
}

// begins has an actor do all parts.
func (g *stage) begins(a *actor, parts ...part) {
	a.begin(func(s *spread.Store) {
		for _, p := range parts {
			p(s)
		}
	})
}

// check looks at the counter as one who knows of the last split and as one who
// knows of none. After a loss the counter may be less, and may never be more; the
// one who knows would find what is lost.
func (g *stage) check(when string) {
	g.t.Helper()
	f := func(s *spread.Store) {
		g.t.Helper()
		if v := read(g.t, s, g.c); v.N > g.acked || v.N < g.acked && !g.lossy {
			g.t.Errorf("%s: it is %+v, want %d", when, v, g.acked)
		}
	}
	f(server(g.t, g.under, lazy))
	if !g.lossy {
		f(g.knows)
	}
}

// end has all actors end, in this order, and checks.
func (g *stage) end(when string, actors ...*actor) {
	g.t.Helper()
	for _, a := range actors {
		a.step(all)
		g.check(when + ", one has ended")
	}
	g.folds(g.knows)
	if g.lossy {
		g.splits(4)(g.knows) // finds what is still lost
		g.folds(g.knows)
		g.lossy = false
	}
	g.check(when + ", folded")
	if g.t.Failed() {
		g.t.FailNow()
	}
}

// Two servers change one counter's layout, and each may rest between any two of its
// calls while the other goes on. At every moment the counter is what was
// acknowledged. If its store has forgotten that it was split, what the shards have
// comes back, and is never counted twice.
func TestOrders(t *testing.T) {
	type play func(*stage) (before, one, two []part)
	type world struct {
		name       string
		partitions int
		last       bool // home is read last
	}
	whole, first, last := world{"1 partition", 1, false}, world{"home first", 8, false}, world{"home last", 8, true}
	f := func(name string, play play, over ...world) {
		run := func(t *testing.T, w world, first, then, later int) (ended [3]bool) {
			g := newStage(t, w.partitions)
			a, b := newActor(t, g.under, w.last), newActor(t, g.under, w.last)
			before, one, two := play(g)
			for _, p := range before {
				p(a.Store)
			}
			when := fmt.Sprintf("%d, %d and %d calls", first, then, later)
			g.begins(a, one...)
			ended[0] = a.step(first) < first
			g.check(when)
			g.begins(b, two...)
			ended[1] = b.step(then) < then
			g.check(when)
			ended[2] = a.step(later) < later
			g.check(when)
			g.end(when, b, a)
			return ended
		}
		for _, w := range over {
			t.Run(name+", "+w.name, func(t *testing.T) {
				for first, ended := 0, [3]bool{}; !ended[0]; first++ {
					ended[1] = false
					for then := 0; !ended[1]; then++ {
						ended[2] = false
						for later := 0; !ended[2]; later++ {
							ended = run(t, w, first, then, later)
						}
					}
				}
			})
		}
	}
	f("split and life", func(g *stage) (before, one, two []part) {
		return nil, []part{g.splits(4)}, []part{g.splits(3), g.adds, g.folds}
	}, whole, first)
	f("grow and fold", func(g *stage) (before, one, two []part) {
		return []part{g.splits(2), g.adds}, []part{g.splits(4), g.adds}, []part{g.folds, g.splits(3), g.adds}
	}, whole, first)
	f("fold and ask", func(g *stage) (before, one, two []part) {
		return []part{g.splits(3), g.adds}, []part{g.folds, g.splits(3)}, []part{g.adds, g.asks, g.splits(2), g.adds}
	}, whole, first)
	f("read and life", func(g *stage) (before, one, two []part) {
		return []part{g.splits(3), g.adds, g.reads}, []part{g.reads, g.reads}, []part{g.reads, g.takes, g.adds, g.takes, g.folds, g.takes, g.splits(4), g.adds}
	}, whole, first, last)
	f("fold and fold", func(g *stage) (before, one, two []part) {
		return []part{g.splits(3), g.adds}, []part{g.folds, g.splits(2)}, []part{g.folds, g.adds, g.splits(2)}
	}, whole, first)
	// One partition loses all or nothing.
	f("forgotten, read and split", func(g *stage) (before, one, two []part) {
		return []part{g.splits(3), g.adds, g.forgets}, []part{g.reads, g.folds, g.takes}, []part{g.splits(4), g.folds}
	}, first)
	f("forgotten, split and fold", func(g *stage) (before, one, two []part) {
		return []part{g.splits(3), g.adds, g.forgets}, []part{g.splits(4), g.takes}, []part{g.splits(3), g.takes, g.folds}
	}, first)
}

// Of three servers, each doing what it likes, any may rest at any time.
func TestAnyOrder(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		rng := chance(t)
		for n := range 300 {
			g := newStage(t, under.Traits().Partitions)
			var actors []*actor
			for range 3 {
				a := newActor(t, g.under, rng.IntN(2) == 0)
				var parts []part
				for range 1 + rng.IntN(6) {
					parts = append(parts, []part{g.splits(2 + rng.IntN(3)), g.adds, g.folds, g.asks, g.reads, g.takes}[rng.IntN(6)])
				}
				g.begins(a, parts...)
				actors = append(actors, a)
			}
			for range 20 {
				actors[rng.IntN(3)].step(rng.IntN(8))
				g.check(fmt.Sprint("world ", n))
			}
			g.end(fmt.Sprint("world ", n), actors...)
		}
	})
}

// One split is forgotten, and the next does not know of it: what both have counts.
func TestForgottenTwice(t *testing.T) {
	g := newStage(t, 8)
	s := server(t, g.under, lazy)
	g.splits(3)(s)
	lost := add(store.ShardCell(g.c, 2), 100)
	lost.Guard.Laid, lost.Guard.Layout = true, read(t, g.under, lost.Cell).Layout
	mustDo(t, g.under, lost)
	g.changed(100)
	g.forgets(s)
	s = server(t, g.under, lazy)
	g.splits(2)(s) // Shard 1 was empty: nothing tells of the other.
	g.adds(s)
	for range 2 { // It is folded first, and then the other is found.
		g.splits(4)(s)
	}
	holds(t, s, g.c, g.acked, hot.ShardsMax)
}
