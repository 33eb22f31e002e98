package decide_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

var seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")

// source returns what a test draws from. If the test fails, it says how to repeat
// it.
func source(t *testing.T) draw {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: go test ./internal/decide -run '^%s$' -seed %d", t.Name(), *seed)
		}
	})
	return draw{rand.New(rand.NewPCG(*seed, 0))}
}

// A draw makes what meets in a small world: few values, near the places where
// something changes.
type draw struct{ *rand.Rand }

func (r draw) one(n int) bool { return r.IntN(n) == 0 }

func of[T any](r draw, from ...T) T { return from[r.IntN(len(from))] }

func (r draw) number() int64 {
	n := of[int64](r, 0, 0, 1, -1, 5, 1000, store.AddMax, -store.AddMax, 1<<62, -1<<62, math.MaxInt64, math.MinInt64)
	return n + int64(r.IntN(5)) - 2 // it may wrap around
}

const nowMS = 1_700_000_000_000

func (r draw) time() int64 {
	return of[int64](r, 1, nowMS-1, nowMS, nowMS+1, nowMS+1000, math.MaxInt64-1, math.MaxInt64)
}

// cell returns a cell as it can be at the time.
func (r draw) cell() store.Value {
	if r.one(4) {
		return store.Value{}
	}
	v := store.Value{N: r.number(), Version: uint64(r.IntN(3)) + 1, Exists: true}
	switch r.IntN(4) {
	case 0:
		v.DeadlineMS = max(r.time(), nowMS+1)
	case 1:
		v.Layout = of[int64](r, 1, 2, math.MaxInt64)
	case 2:
		if v.N, v.Layout = 0, store.LayoutObject; r.one(2) {
			v.DeadlineMS = min(max(r.time(), nowMS+1), store.ObjectDeadlineMax)
		}
	}
	return v
}

// delta returns a delta that a cell decides.
func (r draw) delta() store.Delta {
	d := store.Delta{
		Cell: store.Cell{Namespace: "n", Key: "k"}, N: r.number(), Want: r.one(2),
		Op: of(r, store.OpAdd, store.OpAdd, store.OpAdd, store.OpSet, store.OpDelete, store.OpExpire, store.OpGet, store.OpLayout),
	}
	g := &d.Guard
	if r.one(4) {
		g.Match, g.Version = true, uint64(r.IntN(3))
	}
	if r.one(4) {
		g.Exists = of(r, store.ExistsMust, store.ExistsNot)
	}
	if d.Op == store.OpLayout || r.one(4) {
		g.Laid, g.Layout = true, of[int64](r, 0, 1, 2, math.MaxInt64)
	}
	if d.Op == store.OpLayout {
		d.N = max(d.N, 0)
	}
	if d.Op == store.OpExpire || (d.Op == store.OpAdd || d.Op == store.OpSet) && r.one(3) {
		g.Laid, g.Layout = false, 0
		if d.Expiry = store.ExpiryClear; !r.one(4) {
			d.Expiry = store.ExpirySet | store.Expiry(r.IntN(32))<<2
			d.DeadlineMS = r.time()
		}
	}
	if (d.Op == store.OpAdd || d.Op == store.OpSet || d.Op == store.OpLayout) && r.one(2) {
		b := store.Bound{Low: r.number(), High: r.number(), Saturate: d.Op == store.OpAdd && r.one(2), Inward: r.one(2)}
		if b.Low > b.High && b.Saturate && !b.Inward {
			b.Low, b.High = b.High, b.Low
		}
		g.Bound = &b
	}
	if d.Op != store.OpGet && d.Op != store.OpLayout && r.one(4) {
		g.Token, g.Digest = "t", 7
	}
	return d
}

// cell returns what a delta makes of a cell.
func cell(is store.Value, d store.Delta, nowMS int64, full bool) (store.Value, store.Result) {
	res := decide.Cell(&is, &d, nowMS, full)
	return is, res
}

// TestCell compares the decider with the oracle.
func TestCell(t *testing.T) {
	r := source(t)
	seen := make(map[store.Outcome]int)
	for range 300_000 {
		is, d, full := r.cell(), r.delta(), r.one(4)
		if err := store.CheckBatch(&store.Batch{Deltas: []store.Delta{d}}, 1); err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
		v, res := cell(is, d, nowMS, full)
		if want, wanted := oracle(is, d, nowMS, full); v != want || res != wanted {
			t.Fatalf("%+v of %+v, bound %+v, full %t:\ngot  %+v, %+v\nwant %+v, %+v", d, is, d.Guard.Bound, full, v, res, want, wanted)
		}
		seen[res.Outcome]++
	}
	for _, o := range []store.Outcome{
		store.Applied, store.Overflow, store.Changed, store.Full, store.Unmet, store.Bounded, store.Split,
	} {
		if seen[o] < 1000 {
			t.Errorf("outcome %d came %d times", o, seen[o])
		}
	}
}

// TestCellAlone checks that neither the time nor the room matters where the
// contract does not ask for them: stores may leave them open.
func TestCellAlone(t *testing.T) {
	r := source(t)
	for range 100_000 {
		is, d := r.cell(), r.delta()
		v, res := cell(is, d, nowMS, false)
		if d.Expiry == store.ExpiryKeep {
			if got, told := cell(is, d, 0, false); got != v || told != res {
				t.Fatalf("%+v of %+v depends on the time", d, is)
			}
		}
		if is.Exists {
			if got, told := cell(is, d, nowMS, true); got != v || told != res {
				t.Fatalf("%+v of %+v depends on the room", d, is)
			}
		}
	}
}

// TestCellCan checks that what no cell can do is not taken for something else.
func TestCellCan(t *testing.T) {
	is := store.Value{N: 5, Version: 3, Exists: true}
	for _, op := range []store.Op{0, store.OpSettle, store.OpRetire, store.OpLayout + 1} {
		if v, res := cell(is, store.Delta{Op: op}, nowMS, false); v != is || res.Outcome.Err() == nil {
			t.Errorf("operation %d: %+v, %+v", op, v, res)
		}
	}
}

func TestCellAllocates(t *testing.T) {
	d := store.Delta{Op: store.OpAdd, N: 1, Want: true, Guard: store.Guard{Bound: &store.Bound{High: 5}}}
	if n := testing.AllocsPerRun(100, func() { decide.Cell(&store.Value{}, &d, nowMS, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCell(b *testing.B) {
	is := store.Value{N: 5, Version: 3, Exists: true}
	for name, d := range map[string]store.Delta{
		"blind": {Op: store.OpAdd, N: 1},
		"want":  {Op: store.OpAdd, N: 1, Want: true},
		"bound": {Op: store.OpAdd, N: 1, Want: true, Guard: store.Guard{Bound: &store.Bound{High: 10}}},
		"set":   {Op: store.OpSet, N: 1, Want: true, Expiry: store.ExpirySet, DeadlineMS: nowMS + 5},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				v := is
				if res := decide.Cell(&v, &d, nowMS, false); res.Outcome != store.Applied {
					b.Fatal(res)
				}
			}
		})
	}
}
