package spread_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// As long as nothing is hot, the store is what it was.
func TestLaws(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, c storetest.Config) *storetest.Instance {
				under := memstore.New(memstore.Options{Partitions: partitions, Limits: c.Limits, Now: c.Now})
				return &storetest.Instance{Store: server(t, under, lazy)}
			})
		})
	}
}

func TestSplitAndFold(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, b, c := server(t, under, lazy), server(t, under, lazy), cell("a")
		mustDo(t, a, add(c, 5))
		split(t, a, c, 4)
		holds(t, b, c, 5, 4)
		for i := range 500 {
			s := a
			if i%3 == 0 {
				s = b
			}
			mustDo(t, s, add(c, 2))
		}
		holds(t, a, c, 1005, 4)
		holds(t, b, c, 1005, 4)
		if v := read(t, under, c); v.N == 1005 {
			t.Error("nothing went to a shard")
		}
		split(t, b, c, 16)
		holds(t, a, c, 1005, 16)
		mustDo(t, a, add(c, -1006)) // a shard may be positive under a negative total
		holds(t, b, c, -1, 16)

		// Whoever asks gets the whole, and the counter is one again.
		if r := mustDo(t, a, want(add(c, 1))); r.Before != -1 || r.After != 0 {
			t.Errorf("result %+v, want -1 to 0", r)
		}
		holds(t, a, c, 0, 1)
		holds(t, b, c, 0, 1)
		left, err := under.Scan(t.Context(), store.Range{Prefix: "shard/"}, 100)
		if err != nil || len(left) > 0 {
			t.Errorf("shards are left: %v, %v", left, err)
		}
	})
}

// What asks, asks the whole counter, whatever it is and whoever has split it.
func TestDecided(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, b := server(t, under, lazy), server(t, under, lazy)
		n := 0
		f := func(name string, d func(store.Cell) store.Delta, check func(store.Result, error) bool, after int64) {
			t.Helper()
			for _, s := range []*spread.Store{a, b} { // one knows of the split, the other does not
				n++
				c := cell(fmt.Sprint("k", n))
				mustDo(t, a, add(c, 10))
				split(t, a, c, 8)
				for range 20 {
					mustDo(t, a, add(c, 1))
				}
				if r, err := do(t.Context(), s, d(c)); !check(r, err) {
					t.Errorf("%s: %+v, %v", name, r, err)
				}
				if v := read(t, s, c); v.N != after || v.Exists != (name != "delete") || (v.Layout != 0) != (name == "token") {
					t.Errorf("%s: reads %+v, want %d, whole but for a token", name, v, after)
				}
			}
		}
		applied := func(before, after int64) func(store.Result, error) bool {
			return func(r store.Result, err error) bool { return err == nil && r.Before == before && r.After == after }
		}
		is := func(want error) func(store.Result, error) bool {
			return func(_ store.Result, err error) bool { return errors.Is(err, want) }
		}
		f("want", func(c store.Cell) store.Delta { return want(add(c, 3)) }, applied(30, 33), 33)
		f("set", func(c store.Cell) store.Delta { return want(store.Delta{Cell: c, Op: store.OpSet, N: 4}) }, applied(30, 4), 4)
		f("delete", func(c store.Cell) store.Delta { return want(store.Delta{Cell: c, Op: store.OpDelete}) }, applied(30, 0), 0)
		f("get", func(c store.Cell) store.Delta { return want(store.Delta{Cell: c, Op: store.OpGet}) }, applied(30, 30), 30)
		f("bound", func(c store.Cell) store.Delta {
			d := want(add(c, -31))
			d.Guard.Bound = &store.Bound{High: 100}
			return d
		}, is(store.ErrBound), 30)
		f("saturate", func(c store.Cell) store.Delta {
			d := want(add(c, -31))
			d.Guard.Bound = &store.Bound{High: 100, Saturate: true}
			return d
		}, applied(30, 0), 0)
		f("exists", func(c store.Cell) store.Delta {
			d := add(c, 1)
			d.Guard.Exists = store.ExistsNot
			return d
		}, is(store.ErrUnmet), 30)
		f("expire", func(c store.Cell) store.Delta {
			return store.Delta{Cell: c, Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: 1 << 50}
		}, is(nil), 30)
		f("token and value", func(c store.Cell) store.Delta {
			d := want(add(c, 5))
			d.Guard.Token = "t"
			return d
		}, applied(30, 35), 35)
		f("token", func(c store.Cell) store.Delta {
			d := add(c, 5)
			d.Guard.Token = "t"
			return d
		}, func(r store.Result, err error) bool { return err == nil && !r.Replayed }, 35)
	})
}

// A token that was given before a split is known after it, and after the fold.
func TestTokens(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, b, c := server(t, under, lazy), server(t, under, lazy), cell("a")
		d := want(add(c, 5))
		d.Guard.Token = "t"
		first := mustDo(t, a, d)
		split(t, a, c, 8)
		for _, s := range []*spread.Store{b, a, b} {
			if r := mustDo(t, s, d); !r.Replayed || r.After != first.After {
				t.Errorf("repeat: %+v, the first was %+v", r, first)
			}
			if ok, err := a.Split(t.Context(), c, 8); err != nil {
				t.Fatalf("split: %v, %v", ok, err)
			}
		}
		holds(t, a, c, 5, 8)
	})
}

// Whatever step of a split or a fold is the last that is made, and whether its
// answer arrives or not: the counter is what it is, for servers that know of it
// and for new ones, and goes on.
func TestEveryStep(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		for _, lost := range []bool{false, true} {
			for step := 0; ; step++ {
				if !breakAt(t, partitions, step, lost) {
					if step < 6 {
						t.Errorf("only %d steps", step)
					}
					break
				}
			}
		}
	}
}

// breakAt splits, adds and folds, and lets a step fail: what was to be applied is
// not, or the answer is lost. It reports false if there are no so many steps.
func breakAt(t *testing.T, partitions, step int, lost bool) bool {
	t.Helper()
	under := newShared(partitions)
	a, b, c := server(t, under, lazy), server(t, under, lazy), cell("a")
	mustDo(t, a, add(c, 7))
	holds(t, b, c, 7, 1)
	steps, failed := 0, false
	var mu sync.Mutex // A new server goes on with a fold by itself.
	fail := func(batches []store.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for i := range batches {
			for j := range batches[i].Deltas {
				if d := &batches[i].Deltas[j]; d.Guard.Laid && (d.Op != store.OpAdd || d.Cell == c) {
					if steps++; steps-1 == step {
						failed = true
						return store.Errorf(store.KindUnknown, "cut off")
					}
					return nil
				}
			}
		}
		return nil
	}
	if lost {
		under.fails(nil, fail)
	} else {
		under.fails(fail, nil)
	}
	total := int64(7)
	for range 3 {
		_, _ = a.Split(t.Context(), c, 4)
		for _, s := range []*spread.Store{a, b} {
			for range 5 {
				mustDo(t, s, add(c, 1))
				total++
			}
			if v := read(t, s, c); v.N != total {
				t.Fatalf("step %d of %d partitions, lost %v: reads %+v, want %d", step, partitions, lost, v, total)
			}
		}
		_ = a.Fold(t.Context(), c)
		for _, s := range []*spread.Store{a, b, server(t, under, lazy)} {
			if v := read(t, s, c); v.N != total {
				t.Fatalf("step %d of %d partitions, lost %v: after the fold reads %+v, want %d", step, partitions, lost, v, total)
			}
		}
	}
	under.fails(nil, nil)
	if r := mustDo(t, b, want(add(c, 1))); r.After != total+1 {
		t.Fatalf("step %d of %d partitions, lost %v: add returns %+v, want %d", step, partitions, lost, r, total+1)
	}
	holds(t, a, c, total+1, 1)
	mu.Lock()
	defer mu.Unlock()
	return failed
}

// Many servers add, ask, read, split and fold at once. Nothing is lost, nothing is
// counted twice, no value is given twice, and no read goes back.
func TestMany(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		from := chance(t)
		c := cell("a")
		servers := []*spread.Store{server(t, under, lazy), server(t, under, lazy), server(t, under, lazy)}
		mustDo(t, servers[0], add(c, 1))
		var added atomic.Int64
		added.Add(1)
		var values sync.Map
		var wg, writing sync.WaitGroup
		stop := make(chan struct{})
		for _, s := range servers {
			writing.Go(func() { // blind
				for range 800 {
					mustDo(t, s, add(c, 1))
					added.Add(1)
				}
			})
			writing.Go(func() { // asks
				for range 60 {
					r := mustDo(t, s, want(add(c, 1)))
					added.Add(1)
					if _, twice := values.LoadOrStore(r.After, true); twice {
						t.Errorf("value %d was given twice", r.After)
					}
				}
			})
			wg.Go(func() { // reads
				last := int64(0)
				for {
					before := added.Load()
					v := read(t, s, c)
					if v.N < last || v.N < before {
						t.Errorf("read %d after %d, and after %d were acknowledged", v.N, last, before)
					}
					last = v.N
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			rng := rand.New(rand.NewPCG(from.Uint64(), 0))
			wg.Go(func() { // changes the layout
				for {
					if rng.IntN(3) > 0 {
						_, _ = s.Split(t.Context(), c, 2<<rng.IntN(5))
					} else {
						_ = s.Fold(t.Context(), c)
					}
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond):
					}
				}
			})
		}
		writing.Wait()
		close(stop)
		wg.Wait()
		if v := read(t, servers[1], c); v.N != added.Load() {
			t.Errorf("reads %+v, want %d", v, added.Load())
		}
		if err := servers[2].Fold(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		holds(t, under, c, added.Load(), 1)
	})
}

// What a batch must do together it does together, of a split counter too; and a
// numbered batch goes as its writer numbered it.
func TestBatches(t *testing.T) {
	under := newShared(1)
	a, b, c, other := server(t, under, lazy), server(t, under, lazy), cell("a"), cell("b")
	mustDo(t, a, add(c, 10))
	split(t, a, c, 8)
	replies := make([]store.Reply, 2)
	err := a.Apply(t.Context(), []store.Batch{
		{Deltas: []store.Delta{add(other, 1), want(add(c, 1))}},
		{Apart: true, Deltas: []store.Delta{add(c, 1), want(add(other, 1)), add(c, 1)}},
	}, replies)
	if err != nil || replies[0].Results[1].After != 11 || replies[1].Results[1].After != 2 {
		t.Fatalf("replies %+v, %v", replies, err)
	}
	holds(t, a, c, 13, 1)

	split(t, a, c, 8)
	w, err := store.Enlist(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	numbered := store.Batch{Writer: w, Seq: 1, Deltas: []store.Delta{add(other, 1), want(add(c, 1))}}
	for i, replayed := range []bool{false, true} {
		if err := b.Apply(t.Context(), []store.Batch{numbered}, replies[:1]); err != nil || replies[0].Err != nil {
			t.Fatalf("%v, %v", err, replies[0].Err)
		}
		if r := replies[0]; r.Results[1].After != 14 || r.Replayed != replayed {
			t.Errorf("time %d: reply %+v", i, r)
		}
	}
	holds(t, a, c, 14, 1)
	holds(t, a, other, 3, 1)
}

func TestScan(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, b := server(t, under, lazy), server(t, under, lazy)
		for i := range 10 {
			mustDo(t, a, add(cell(fmt.Sprint(i)), int64(i)))
			if i%2 == 0 {
				split(t, a, cell(fmt.Sprint(i)), 4)
				for range 5 {
					mustDo(t, a, add(cell(fmt.Sprint(i)), 10))
				}
			}
		}
		for _, limit := range []int{3, 100} {
			var got []string
			r := store.Range{Namespace: "n"}
			for {
				page, err := b.Scan(t.Context(), r, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					got = append(got, fmt.Sprint(e.Key, "=", e.Value.N))
				}
				if len(page) < limit {
					break
				}
				r.After = page[len(page)-1].Key
			}
			if s := strings.Join(got, " "); s != "0=50 1=1 2=52 3=3 4=54 5=5 6=56 7=7 8=58 9=9" {
				t.Errorf("scan by %d lists %s", limit, s)
			}
		}
	})
}

// The read of a counter whose shards are known is one call, and another server's
// first is two. Where cells are read at different moments, home is looked at once
// more.
func TestOneCall(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, b, c := server(t, under, lazy), server(t, under, lazy), cell("a")
		mustDo(t, a, add(c, 1))
		split(t, a, c, 64)
		more := 0
		if under.Traits().Partitions > 1 {
			more = 1
		}
		for _, f := range []struct {
			s    *spread.Store
			want int
		}{{a, 1}, {b, 2}, {b, 1}} {
			was := under.reads
			holds(t, f.s, c, 1, 64)
			if n := under.reads - was; n != f.want+more {
				t.Errorf("%d calls, want %d", n, f.want+more)
			}
		}
	})
}

// Counters that can't be split are not: too long a key is no obstacle, a deadline
// is, and so is a value near the ends of int64.
func TestNotSplit(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a := server(t, under, lazy)
		f := func(c store.Cell, can bool, ds ...store.Delta) {
			t.Helper()
			for _, d := range ds {
				d.Cell = c
				mustDo(t, a, d)
			}
			if ok, err := a.Split(t.Context(), c, 4); ok != can || err != nil {
				t.Errorf("%.20q: %v, %v, want %v", c.Key, ok, err, can)
			}
		}
		f(store.Cell{Namespace: strings.Repeat("n", store.NamespaceBytesMax), Key: strings.Repeat("k", store.KeyBytesMax)}, true, add(store.Cell{}, 1))
		f(cell("absent"), false)
		f(cell("deadline"), false, store.Delta{Op: store.OpSet, N: 1, Expiry: store.ExpirySet, DeadlineMS: 1 << 50})
		f(cell("high"), false, store.Delta{Op: store.OpSet, N: math.MaxInt64 - 5})
		f(cell("low"), false, store.Delta{Op: store.OpSet, N: math.MinInt64 + 5})
	})
}

// Large adds go where they are refused if they must be.
func TestOverflow(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, c := server(t, under, lazy), cell("a")
		mustDo(t, a, add(c, 1))
		split(t, a, c, 8)
		for range 3 {
			mustDo(t, a, add(c, 1<<61-1))
		}
		if _, err := do(t.Context(), a, add(c, 1<<62)); !errors.Is(err, store.ErrOverflow) {
			t.Errorf("%v, want an overflow", err)
		}
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		holds(t, a, c, 3*(1<<61-1)+1, 1) // it is near the end: folded
	})
}
