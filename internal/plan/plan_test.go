package plan_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

func cell(key string) store.Cell { return store.Cell{Namespace: "n", Key: key} }

func add(key string, n int64) store.Delta { return store.Delta{Cell: cell(key), Op: store.OpAdd, N: n} }

func with(d store.Delta, change func(*store.Delta)) store.Delta {
	change(&d)
	return d
}

// What is not only adds is left to the decider.
func TestNotPlain(t *testing.T) {
	f := func(want bool, ds ...store.Delta) {
		t.Helper()
		if _, ok := plan.Of(&store.Batch{Deltas: ds}); ok != want {
			t.Errorf("%+v is plain: %v", ds, ok)
		}
	}
	token := func(d store.Delta, name string) store.Delta {
		return with(d, func(d *store.Delta) { d.Guard.Token = name })
	}
	laid := func(d store.Delta, layout int64) store.Delta {
		return with(d, func(d *store.Delta) { d.Guard.Laid, d.Guard.Layout = true, layout })
	}
	want := with(add("a", 1), func(d *store.Delta) { d.Want = true })
	f(true)
	f(true, add("a", 1), add("b", -1), want)
	f(true, token(add("a", 1), "x"), token(add("a", 1), "y"), token(add("b", 1), "x"))
	f(false, token(add("a", 1), "x"), add("b", 1), token(add("a", 1), "x"))
	f(true, laid(add("a", 1), 7), add("a", 1), laid(add("b", 1), 8))
	f(false, laid(add("a", 1), 7), laid(add("a", 1), 8))
	f(false, laid(add("a", 1), 7), want)
	f(true, laid(add("a", 1), 0), want)
	f(true, add("a", math.MaxInt64), add("a", -1), add("b", 1))
	bound := func(d store.Delta, low, high int64) store.Delta {
		return with(d, func(d *store.Delta) { d.Guard.Bound = &store.Bound{Low: low, High: high} })
	}
	f(true, bound(add("a", -1), 0, 9), bound(add("a", -1), 0, 9), want)
	f(false, bound(add("a", -1), 0, 9), bound(add("a", 20), 0, 9)) // No value will do.
	f(false, add("a", math.MaxInt64), add("a", 1))
	f(false, add("a", math.MinInt64), add("a", -1))
	for _, change := range []func(*store.Delta){
		func(d *store.Delta) { d.Op = store.OpSet },
		func(d *store.Delta) { d.Op = store.OpGet },
		func(d *store.Delta) { d.Expiry, d.DeadlineMS = store.ExpirySet, 1 },
		func(d *store.Delta) { d.Guard.Match = true },
		func(d *store.Delta) { d.Guard.Exists = store.ExistsMust },
	} {
		f(false, add("b", 1), with(add("a", 1), change))
	}
	if _, ok := plan.Of(&store.Batch{If: []store.Condition{{Cell: cell("a")}}, Deltas: []store.Delta{add("a", 1)}}); ok {
		t.Error("a condition is plain")
	}
}

// A sum is direct if it overflows exactly if one of its adds does.
func TestDirect(t *testing.T) {
	f := func(want bool, ns ...int64) {
		t.Helper()
		var b store.Batch
		for _, n := range ns {
			b.Deltas = append(b.Deltas, add("a", n))
		}
		if a, ok := plan.Of(&b); !ok || a.Cells[0].Direct() != want {
			t.Errorf("%d: %+v", ns, a)
		}
	}
	f(true, 0)
	f(true, 1, 2, 3)
	f(true, -1, 0, -3)
	f(true, 5, -3, 3)
	f(false, 5, -3)
	f(false, -5, 5)
	f(false, -1, 9)
}

// Adds come to what the decider makes of them, one by one: cells, results, tokens.
func TestAsDecided(t *testing.T) {
	seed := cmp.Or(seedOf(os.Getenv("QUIPU_SEED")), rand.Uint64())
	for i := range uint64(400) {
		if !asDecided(t, rand.New(rand.NewPCG(seed, i))) {
			t.Fatalf("replay with QUIPU_SEED=%d go test ./internal/plan -run TestAsDecided", seed)
		}
	}
}

func seedOf(text string) uint64 {
	seed, _ := strconv.ParseUint(text, 10, 64)
	return seed
}

func asDecided(t *testing.T, r *rand.Rand) (ok bool) {
	s := memstore.New(memstore.Options{})
	defer func() { _ = s.Close() }()
	keys := []string{"a", "b", "c", "d"}
	some := func() []store.Delta {
		ds := make([]store.Delta, r.IntN(12))
		for i := range ds {
			ds[i] = add(keys[r.IntN(len(keys))], r.Int64N(21)-10)
			ds[i].Cell.Namespace = string('m' + byte(r.IntN(2)))
			ds[i].Want = r.IntN(2) == 0
			if r.IntN(3) == 0 {
				ds[i].Guard.Token, ds[i].Guard.Digest = "t"+strconv.Itoa(i), 1
			}
		}
		return ds
	}
	apply := func(b store.Batch) []store.Result {
		replies := make([]store.Reply, 1)
		if err := s.Apply(t.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil {
			t.Fatalf("apply %+v: %v, %v", b, err, replies[0].Err)
		}
		return replies[0].Results
	}
	first := some()
	for i := range first {
		first[i].Guard = store.Guard{}
		if r.IntN(3) == 0 {
			first[i].Expiry, first[i].DeadlineMS = store.ExpirySet, 1<<50
		}
	}
	apply(store.Batch{Deltas: first})

	b := store.Batch{Deltas: some()}
	a, plain := plan.Of(&b)
	if !plain {
		t.Errorf("%+v is not plain", b.Deltas)
		return false
	}
	cells, before, after := make([]store.Cell, len(a.Cells)), make([]store.Value, len(a.Cells)), make([]store.Value, len(a.Cells))
	for i := range a.Cells {
		cells[i] = a.Cells[i].Cell
	}
	read := func(values []store.Value) {
		if err := s.Read(t.Context(), cells, values); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.IsSortedFunc(cells, plan.Compare) || len(slices.Compact(slices.Clone(cells))) != len(cells) {
		t.Errorf("cells %+v", cells)
		return false
	}
	read(before)
	decided := apply(b)
	read(after)

	versions := make(map[int]uint64)
	got := a.Results(nil, func(i int) store.Value { return before[i] }, func(_, delta, _ int) uint64 {
		versions[delta] = decided[delta].Version
		return versions[delta]
	})
	ok = slices.Equal(got, decided) && len(versions) == len(decided)
	tokens := 0
	for i, c := range a.Cells {
		ok = ok && before[i].N+c.Sum == after[i].N
		for at, delta := range a.Order[c.From:c.To] { // the last delta has the version of the cell
			ok = ok && (at < c.To-c.From-1 || decided[delta].Version == after[i].Version)
		}
	}
	for i := range b.Deltas {
		if b.Deltas[i].Guard.Token != "" {
			tokens++
		}
	}
	ok = ok && tokens == len(a.Tokens)
	for _, tok := range a.Tokens {
		fate, err := s.Lookup(t.Context(), tok.Delta.Cell, tok.Guard.Token)
		if err != nil {
			t.Fatal(err)
		}
		met := before[tok.Cell].N + tok.Before
		ok = ok && tok.Delta == &b.Deltas[tok.Place] && (!tok.Want || fate.Result.Before == met && fate.Result.After == met+tok.N)
		ok = ok && a.Order[a.Cells[tok.Cell].To-1-tok.Later] == int32(tok.Place)
	}
	if !ok {
		t.Errorf("%+v\nbecame %+v\ndecided %+v\nplan %s", b.Deltas, got, decided, fmt.Sprintf("%+v", a))
	}
	return ok
}
