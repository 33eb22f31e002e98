package spread_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/hot"
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

// busy has a server add to a counter, and look at it. Each add is of so many writes.
func busy(t *testing.T, s *spread.Store, c store.Cell, writes func(shards int) int) {
	t.Helper()
	for range 1000 { // one of 16 is looked at
		d := add(c, 1000)
		d.Writes = uint32(writes(s.Shards(c)))
		mustDo(t, s, d)
	}
	if err := s.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// heat keeps a server busy until a counter has so many shards.
func heat(t *testing.T, s *spread.Store, c store.Cell, shards int, writes func(shards int) int) {
	t.Helper()
	for i := 0; s.Shards(c) != shards; i++ {
		if i == 100 {
			t.Fatalf("it has %d shards, want %d", s.Shards(c), shards)
		}
		busy(t, s, c, writes)
	}
}

// helping is if shards help: there are more writes, though the clock runs faster by
// them.
func helping(n int) int { return 100 * n * n * n * n }

// A server has shards on trial when another gives their counter others, and takes
// them away for that. It looks in between: that is no reason to let it rest.
func TestGrownByOthers(t *testing.T) {
	under, c := newShared(8), cell("a")
	a, b := paced(t, under, lazy, 50*time.Microsecond), server(t, under, lazy)
	heat(t, a, c, 2, helping)
	busy(t, a, c, func(int) int { return 100 })
	if err := b.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	hot := func(int) int { return 3000 }
	busy(t, a, c, hot)
	split(t, b, c, 4)
	busy(t, a, c, hot)
	if n := a.Shards(c); n < 4 {
		t.Fatalf("it has %d shards, want 4", n)
	}
	heat(t, a, c, 8, hot)
}

// A hot counter splits by itself, and folds when it is cold.
func TestByItself(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	p := lazy
	p.Max, p.CoolDown = 8, 0
	a := paced(t, under, p, 50*time.Microsecond)
	heat(t, a, c, 8, helping)
	v := read(t, a, c)
	for i := 0; a.Shards(c) > 1; i++ {
		if i == 20_000 { // a second or two
			t.Fatal("it is not folded")
		}
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, a, c, v.N, 1)
	if top := a.Hottest(3); len(top) != 1 || top[0].Cell != c || top[0].Shards != 1 || top[0].Rate < 1000 {
		t.Errorf("the hottest are %+v", top)
	}
}

// A split whose shards do not help is undone.
func TestUndone(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	a := paced(t, under, lazy, 50*time.Microsecond)
	most := 1
	for i := range 600 {
		for range 200 {
			d := add(c, 1000)
			d.Writes = 1000
			mustDo(t, a, d)
		}
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most = max(most, a.Shards(c)); most > 1 && a.Shards(c) == 1 {
			holds(t, a, c, int64(i+1)*200_000, 1)
			return
		}
	}
	t.Errorf("it has %d shards, and had %d", a.Shards(c), most)
}

// A counter that is deleted while it is being split stays so.
func TestSplitOfDeleted(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, c := server(t, under, lazy), cell("a")
		mustDo(t, a, add(c, 5))
		under.fails(func(batches []store.Batch) error {
			if d := &batches[0].Deltas[0]; d.Op != store.OpLayout || d.Cell != c {
				return nil
			}
			gone := store.Batch{Partition: batches[0].Partition, Deltas: []store.Delta{{Cell: c, Op: store.OpDelete}}}
			return under.Store.Apply(t.Context(), []store.Batch{gone}, make([]store.Reply, 1))
		}, nil)
		if ok, err := a.Split(t.Context(), c, 8); ok || err != nil {
			t.Errorf("it is split: %v, %v", ok, err)
		}
		under.fails(nil, nil)
		if v := read(t, a, c); v.Exists {
			t.Errorf("it is back: %+v", v)
		}
		mustDo(t, a, add(c, 2))
		holds(t, a, c, 2, 1)
	})
}

// A policy may want shards from the start, or none at all; and a server finds
// what others have split and left.
func TestPolicies(t *testing.T) {
	under := newShared(8)
	c := cell("a")
	always, single := lazy, lazy
	always.Limits.Shards, single.Max = 4, 1
	a := server(t, under, always)
	for i := 0; a.Shards(c) < 4; i++ {
		if i == 1000 {
			t.Fatal("it is not split")
		}
		mustDo(t, a, add(c, 1))
		if err := a.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v := read(t, a, c)
	for range 3 {
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, a, c, v.N, 4)
	b := server(t, under, single)
	if err := b.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, under, c, v.N, 1)
	if hot.Word(read(t, under, c).Layout) != 0 {
		t.Error("it is still split")
	}
}

// The slowest shard shows, however fast the others are, and if only one in twenty
// of its writes is slow: the mean over shards is then 13 ms, and over its own writes
// 50 ms.
func TestSlowestShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, c := newShared(1), cell("k")
		s := spread.New(under, spread.Options{Policy: func(store.Cell) spread.Policy { return lazy }, Every: never})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		mustDo(t, s, add(c, 1))
		split(t, s, c, 4)
		slow, writes := store.ShardCell(c, 3), 0
		under.fails(func(batches []store.Batch) error {
			if batches[0].Deltas[0].Cell == slow {
				if writes++; writes%20 == 0 {
					<-time.After(time.Second)
				}
			}
			return nil
		}, nil)
		for range 1000 {
			mustDo(t, s, add(c, 1))
			<-time.After(10 * time.Millisecond) // they move on to another shard
		}
		got := -1.0
		s.Meters(func(name, _ string, value float64) {
			if name == "quipu_shard_seconds_max" {
				got = value
			}
		})
		hottest := s.Hottest(1)
		if len(hottest) != 1 || math.Abs(got-1) > 0.15 || hottest[0].ShardP99.Seconds() != got {
			t.Errorf("the slowest shard takes %v s, and %+v; want some 1 s", got, hottest)
		}
	})
}

// It shows how long the slowest writes to a counter take, which of them only its own
// cell can take, and which ask for its value.
func TestHottestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newShared(1)
		s := spread.New(under, spread.Options{Policy: func(store.Cell) spread.Policy { return lazy }, Every: never})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		slow, asked, less := cell("slow"), cell("asked"), cell("less")
		writes := 0
		under.fails(func(batches []store.Batch) error {
			if batches[0].Deltas[0].Cell == slow {
				if writes++; writes%20 == 0 {
					<-time.After(100 * time.Millisecond)
				}
			}
			<-time.After(time.Millisecond)
			return nil
		}, nil)
		for range 8000 {
			mustDo(t, s, add(slow, 1))
			mustDo(t, s, want(add(asked, 1)))
			mustDo(t, s, add(less, -1))
		}
		found := map[store.Cell]spread.Counter{}
		for _, k := range s.Hottest(3) {
			found[k.Cell] = k
		}
		f := func(c store.Cell, p99, tied, asked float64) {
			t.Helper()
			if k := found[c]; math.Abs(k.P99.Seconds()-p99) > p99/7 || k.Tied != tied || k.Asked != asked {
				t.Errorf("%+v, want %v s, %v tied, %v asked", k, p99, tied, asked)
			}
		}
		f(slow, 0.1, 0, 0)
		f(asked, 0.001, 1, 1)
		f(less, 0.001, 1, 0)
	})
}

// retrying says of each batch that it was decided again, so many times.
type retrying struct {
	*shared
	retries int
}

func (s *retrying) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	err := s.shared.Apply(ctx, batches, replies)
	for i := range replies {
		replies[i].Retries = s.retries
	}
	return err
}

// It shows how many writes to a counter had to be made again, by the store or
// because its layout had changed.
func TestRetries(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		busy := &retrying{shared: under}
		a, b := server(t, busy, lazy), server(t, under, lazy)
		c, other := cell("a"), cell("b")
		rates := func() (of, ofOther spread.Counter) {
			t.Helper()
			for _, k := range a.Hottest(2) {
				switch k.Cell {
				case c:
					of = k
				case other:
					ofOther = k
				}
			}
			if of.Rate < 1 || ofOther.Rate < 1 {
				t.Fatalf("not known: %+v, %+v", of, ofOther)
			}
			return of, ofOther
		}
		f := func(retries int) {
			t.Helper()
			busy.retries = retries
			for range 2000 { // what was before is forgotten
				mustDo(t, a, add(c, 1))
				mustDo(t, a, add(other, 1))
			}
			of, ofOther := rates()
			for _, k := range []spread.Counter{of, ofOther} {
				if math.Abs(k.Retries-float64(retries)*k.Rate) > 0.01 {
					t.Errorf("%+v, want %d retries of each write", k, retries)
				}
			}
		}
		f(2)
		split(t, a, c, 4)
		f(3)
		f(0)
		mustDo(t, b, want(add(c, 1))) // folds it
		for i := 0; rerouted(a) == 0; i++ {
			if i == 1000 {
				t.Fatal("no shard is closed")
			}
			mustDo(t, a, add(c, 1))
		}
		if of, ofOther := rates(); of.Retries < 1 || ofOther.Retries > 0.01 {
			t.Errorf("an add found its shard closed: %+v, and another counter %+v", of, ofOther)
		}
	})
}

// When a store is gone every counter has the same error: it is said once a look, in
// words that are the same each time.
func TestSaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newShared(1)
		var log bytes.Buffer
		s := spread.New(under, spread.Options{
			Policy: func(store.Cell) spread.Policy { return lazy }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for i := range 5 {
			c := cell(fmt.Sprint("k", i))
			mustDo(t, s, add(c, 1))
			split(t, s, c, 4)
		}
		under.cannotRead(func(store.Cell) bool { return true })
		<-time.After(5 * time.Second)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) < 2 {
			t.Fatalf("it said %q", lines)
		}
		for _, line := range lines {
			if _, said, _ := strings.Cut(line, "msg="); said != `"maintenance of hot counters failed" error="`+store.ErrUnavailable.Error()+`" more=4` {
				t.Errorf("it said %q", line)
			}
		}
	})
}
