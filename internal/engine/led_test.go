package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

var (
	ledGeneration = store.PartFields{Kind: store.PartGeneration}.Part()
	ledParts      = []store.Part{ledGeneration, ledChoice(0), ledChoice(1), ledChoice(2), viewBook, viewBase, viewHour}
)

func ledChoice(n int64) store.Part {
	return store.PartFields{Kind: store.PartMembers, Position: n}.Part()
}

// reactionPlan returns the riders of a reaction, as definitions make them.
func reactionPlan(choice int64) []store.Rider {
	had := store.Met{Kind: store.MetNot}
	n, when := int64(1), store.Met{Kind: store.MetEqual}
	if choice == 0 {
		n, when = -1, had
	}
	riders := []store.Rider{
		{Part: ledGeneration, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual}},
		{Part: ledGeneration, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: -1}, When: store.Met{Kind: store.MetEqual, N: choice}},
		{Part: ledChoice(0), Place: store.PlaceMet, Op: store.OpAdd, N: -1, When: had},
	}
	if choice != 0 {
		riders = append(riders, store.Rider{Part: ledChoice(choice), Op: store.OpAdd, N: 1})
	}
	return append(riders, store.Rider{Op: store.OpAdd, N: n, When: when}, store.Rider{Part: viewBook, Op: store.OpMax, N: 2})
}

// anyRiders returns riders that definitions do not make, of which the short way must leave most.
func anyRiders(rng *rand.Rand) []store.Rider {
	var riders []store.Rider
	for range 1 + rng.IntN(6) {
		r := store.Rider{Part: ledParts[rng.IntN(len(ledParts))], Op: store.OpAdd, N: rng.Int64N(4) - 1}
		switch rng.IntN(14) {
		case 0:
			r.Op, r.Is = store.OpGet, store.Met{Kind: store.MetKind(rng.IntN(3)), N: rng.Int64N(3)}
		case 1:
			r.Op = []store.Op{store.OpMax, store.OpSet, store.OpDelete}[rng.IntN(3)]
		case 2:
			r.Amount = store.Amount(rng.IntN(3))
		case 3:
			r.Bound = &store.Bound{Low: -3, High: 3 + rng.Int64N(30)}
		case 4:
			r.Is = store.Met{Kind: store.MetNot, N: rng.Int64N(3)}
		case 5:
			r.Part, r.Place = ledChoice(0), store.PlaceMet
		case 6:
			r.When = store.Met{Kind: store.MetBook, N: rng.Int64N(4)}
		case 7:
			r.Part = ""
		case 8:
			r.Part, r.N = ledChoice(2), math.MaxInt64/2
		case 9:
			r.Part = memberOf(2 * rng.IntN(3))
		case 10:
			r.N = math.MinInt64 / 3
		}
		if rng.IntN(4) == 0 {
			r.When = store.Met{Kind: store.MetKind(1 + rng.IntN(2)), N: rng.Int64N(3)}
		}
		riders = append(riders, r)
	}
	return riders
}

// TestLed has two engines decide the same events of members at random: one finds their
// riders in plans, which it decides the short way where it can, and the other finds them in
// each event. They answer the same, with the same versions, which are places in the log, and
// have the same parts in the end, over checkpoints and evictions.
func TestLed(t *testing.T) {
	seeds := uint64(60)
	if *long {
		seeds = 3000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { sameLed(t, seed) })
	}
}

func sameLed(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 12))
	now := time.UnixMilli(1_700_000_000_000)
	o := engine.Options{Now: func() time.Time { return now }}
	fs := [2]vfs.FS{newMemDisk(), newMemDisk()}
	short, long := open(t, fs[0], o), open(t, fs[1], o)
	both := func(f func(e *engine.Engine)) { f(short); f(long) }
	plans := []*store.Plan{}
	var riders [][]store.Rider
	for _, r := range [][]store.Rider{reactionPlan(0), reactionPlan(1), reactionPlan(2), anyRiders(rng), anyRiders(rng), anyRiders(rng)} {
		p, err := store.NewPlan(slices.Clone(r)...)
		if err != nil {
			continue // it is no plan
		}
		plans, riders = append(plans, p), append(riders, r)
	}
	var cells []store.Cell
	for i := range 2 {
		cells = append(cells, cell(fmt.Sprint("post ", i)))
	}
	users := 2 + rng.IntN(30)
	for round := range 80 {
		a, b := store.Batch{Apart: true}, store.Batch{Apart: true}
		c, which := cells[0], rng.IntN(len(plans))
		for range 1 + rng.IntN(12) {
			if rng.IntN(4) == 0 {
				c, which = cells[rng.IntN(2)], rng.IntN(len(plans))
			}
			d := reacts(c, 2*rng.IntN(users), int64(which%3))
			switch rng.IntN(40) {
			case 0:
				d = add(c, 5)
			case 1:
				d = store.Delta{Cell: c, Op: store.OpSet, N: rng.Int64N(3), Event: &store.Event{Part: ledGeneration}}
			case 2:
				d.Guard.Exists = store.ExistsNot
			case 3:
				d.Event.Is = store.Met{Kind: store.MetEqual, N: 1}
			case 4:
				d.Guard.Token, d.Guard.Digest = fmt.Sprint(rng.IntN(20)), 7
			case 5:
				d = del(c)
			case 6:
				d = set(c, math.MaxInt64-rng.Int64N(3))
			case 7:
				d.Want = false
			}
			x, y := d, d
			if d.Event != nil && d.Event.Part != ledGeneration {
				with, own := *d.Event, *d.Event
				with.Riders, with.Plan = nil, plans[which]
				own.Riders = riders[which]
				x.Event, y.Event = &with, &own
			}
			a.Deltas, b.Deltas = append(a.Deltas, x), append(b.Deltas, y)
		}
		ra, rb := make([]store.Reply, 1), make([]store.Reply, 1)
		ea, eb := short.Apply(bg, []store.Batch{a}, ra), long.Apply(bg, []store.Batch{b}, rb)
		if ea != nil || eb != nil || fmt.Sprint(ra[0].Err) != fmt.Sprint(rb[0].Err) || !slices.Equal(ra[0].Results, rb[0].Results) {
			t.Fatalf("round %d: %v, %v:\n%+v\n%+v\nof %+v", round, ea, eb, ra[0], rb[0], a.Deltas)
		}
		switch rng.IntN(12) {
		case 0:
			both(func(e *engine.Engine) { checkpoint(t, e); e.EvictNow() })
		case 1:
			now = now.Add(time.Millisecond)
		}
	}
	parts := append([]store.Part{}, ledParts...)
	for user := range users {
		parts = append(parts, memberOf(2*user))
	}
	same := func() {
		t.Helper()
		x, errX := contents(short, cells, parts...)
		y, errY := contents(long, cells, parts...)
		if errX != nil || errY != nil || !slices.Equal(x, y) {
			t.Fatalf("parts:\n%+v (%v)\n%+v (%v)", x, errX, y, errY)
		}
		for _, c := range cells {
			if x, y := value(t, short, c), value(t, long, c); x != y {
				t.Fatalf("%v is %+v, or %+v", c, x, y)
			}
		}
		both(func(e *engine.Engine) { audited(t, e) })
	}
	same()
}
