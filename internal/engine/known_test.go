package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// TestNewKeysNeedNoDisk writes and reads new keys in every way: the disk is not asked
// about them, whether it is empty, has rows, or was opened with rows.
func TestNewKeysNeedNoDisk(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, fs, engine.Options{})
	keys := 0
	next := func() store.Cell {
		keys++
		return cell(fmt.Sprint("key ", keys))
	}
	check := func(what string) {
		t.Helper()
		before, waits := meter(t, e, "quipu_store_disk_reads_total"), 0
		for range 100 {
			c := next()
			holdsNot(t, e, c)
			if !e.Peek([]store.Cell{c}, make([]store.Value, 1)) {
				t.Fatalf("%s: a key that is nowhere can't be peeked at", what)
			}
			if res := do(t, e, want(add(c, 5)))[0]; res.Existed || res.After != 5 {
				t.Fatalf("%s: %+v", what, res)
			}
			started := []store.Batch{batch(want(add(next(), 1)), add(next(), 1), set(next(), 1), del(next()))}
			done := make(chan error, 1)
			if !e.Start(started, make([]store.Reply, 1), func(err error) { done <- err }) {
				waits++
				continue
			}
			e.Flush(true)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if waits > 10 { // the filter may be wrong
			t.Fatalf("%s: new keys have to wait %d times", what, waits)
		}
		if n := meter(t, e, "quipu_store_disk_reads_total") - before; n > 20 { // likewise
			t.Fatalf("%s: the disk was asked %v times", what, n)
		}
	}
	check("empty")
	checkpoint(t, e)
	e.EvictNow()
	check("rows on disk")
	mustClose(t, e)
	e = open(t, fs, engine.Options{})
	if !e.AwaitFilter() {
		t.Fatal("there is no filter")
	}
	check("opened")
	if meter(t, e, "quipu_filter_bytes") == 0 || meter(t, e, "quipu_filter_checks_total") == 0 {
		t.Fatal("the filter is not metered")
	}
	audited(t, e)
}

func holdsNot(t testing.TB, s store.Store, c store.Cell) {
	t.Helper()
	if v := value(t, s, c); v.Exists {
		t.Fatalf("%v is %+v, want none", c, v)
	}
}

// TestFilterAndCheckpoint makes filters before, while and after a checkpoint writes
// new rows: whichever is in place then knows the rows.
func TestFilterAndCheckpoint(t *testing.T) {
	c, other := cell("a"), cell("b")
	f := func(name string, steps func(e *engine.Engine)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			e := open(t, vfs.NewMem(), engine.Options{})
			do(t, e, add(other, 1))
			checkpoint(t, e)
			do(t, e, add(c, 10))
			steps(e)
			if !e.AwaitFilter() {
				t.Fatal("there is no filter")
			}
			audited(t, e)
			e.EvictNow()
			if res := do(t, e, want(add(c, 1)))[0]; res.After != 11 {
				t.Fatalf("it is %+v, want 11", res)
			}
			holds(t, e, other, 1)
			audited(t, e)
		})
	}
	f("checkpoint", func(e *engine.Engine) { checkpoint(t, e) })
	f("filter after checkpoint", func(e *engine.Engine) {
		checkpoint(t, e)
		e.BeginFilter()()
	})
	f("checkpoint while filling", func(e *engine.Engine) {
		fill := e.BeginFilter()
		checkpoint(t, e)
		fill()
	})
	f("filter while a checkpoint waits", func(e *engine.Engine) {
		finish := e.BeginCheckpoint()
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			e.BeginFilter()()
		}()
		if err := finish(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		<-filled
	})
	f("no filter, then one that the next checkpoint begins", func(e *engine.Engine) {
		e.LimitFilter(64)
		checkpoint(t, e)
	})
	f("filling ends before the checkpoint", func(e *engine.Engine) {
		fill := e.BeginFilter()
		finish := e.BeginCheckpoint()
		fill()
		if err := finish(context.Background(), false); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFilterModel does random things to few keys, of which none stays in memory longer
// than it has to, while filters are made, widened, dropped and replaced, and the store
// is closed or killed and opened again. Whatever a write or a read says must be what a
// map says.
func TestFilterModel(t *testing.T) {
	seeds := uint64(5)
	if *long {
		seeds = 300
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { filterModel(t, seed) })
	}
}

func filterModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 6))
	fs := newMemDisk()
	o := engine.Options{Memory: 16 << 20, SegmentBytes: 1 << 16}
	e := open(t, fs, o)
	model := map[store.Cell]int64{}
	key := func() store.Cell { return cell(fmt.Sprint("key ", rng.IntN(400))) }
	var fill func()
	finishFill := func() {
		if fill != nil {
			fill()
			fill = nil
		}
	}
	defer func() { finishFill() }()
	for range 1500 {
		c := key()
		switch p := rng.IntN(100); {
		case p < 25:
			model[c]++
			if res := do(t, e, want(add(c, 1)))[0]; res.After != model[c] {
				t.Fatalf("%v is %d, want %d", c, res.After, model[c])
			}
		case p < 45:
			model[c] += 2
			d := key()
			model[d] += 3
			do(t, e, add(c, 2), add(d, 3))
		case p < 55:
			delete(model, c)
			do(t, e, del(c))
		case p < 75:
			if v := value(t, e, c); v.N != model[c] {
				t.Fatalf("%v is %+v, want %d", c, v, model[c])
			}
		case p < 85:
			checkpoint(t, e)
			e.EvictNow()
		case p < 90:
			finishFill()
			if e.AwaitFilter(); rng.IntN(2) == 0 {
				fill = e.BeginFilter()
			}
		case p < 93:
			finishFill()
		case p < 95:
			finishFill()
			e.LimitFilter(rng.IntN(2) << (6 + rng.IntN(4)))
		case p < 96:
			var more []store.Delta // than there is room for
			for range 3000 {
				c := cell(fmt.Sprint("more ", rng.IntN(10_000)))
				model[c]++
				more = append(more, add(c, 1))
			}
			do(t, e, more...)
		case p < 97:
			finishFill()
			mustClose(t, e)
			e = open(t, fs, o)
		case p < 98:
			finishFill()
			fs = cut(fs)
			e = open(t, fs, o)
		default:
			audited(t, e)
		}
	}
	finishFill()
	for c, n := range model {
		if v := value(t, e, c); v.N != n || !v.Exists {
			t.Fatalf("%v is %+v, want %d", c, v, n)
		}
	}
	audited(t, e)
}
