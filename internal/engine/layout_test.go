package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// layout makes the layout of a cell one, if it is another now.
func layout(c store.Cell, now, then int64) store.Delta {
	return laid(store.Delta{Cell: c, Op: store.OpLayout, N: then}, now)
}

// laid makes a delta depend on the layout of its cell.
func laid(d store.Delta, word int64) store.Delta {
	d.Guard.Laid, d.Guard.Layout = true, word
	return d
}

func laidOut(t testing.TB, s store.Store, c store.Cell, n, word int64) {
	t.Helper()
	if v := value(t, s, c); !v.Exists || v.N != n || v.Layout != word || v.DeadlineMS != 0 {
		t.Fatalf("%v is %+v, want %d laid out as %d", c, v, n, word)
	}
}

// outcome applies a delta and checks what becomes of it.
func outcome(t testing.TB, s store.Store, d store.Delta, want store.Outcome) {
	t.Helper()
	r, err := try(s, batch(d))
	if err != nil || r.Results[0].Outcome != want {
		t.Fatalf("%+v: %+v, %v, want outcome %d", d, r, err, want)
	}
}

// TestLayoutUnderSync reads cells whose layouts are not durable yet.
func TestLayoutUnderSync(t *testing.T) {
	entered := make(chan struct{}, 100)
	gate, release := newGate()
	defer release()
	fs, on := failing(newMemDisk(), func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileSyncData {
			notify(entered)
			<-gate
		}
		return false
	})
	e := open(t, fs, engine.Options{})
	do(t, e, add(cell("split"), 1), layout(cell("grown"), 0, 2), layout(cell("folded"), 0, 3), layout(cell("gone"), 0, 4))
	on.Store(true)
	done := make(chan error)
	go func() {
		_, err := try(e, batch(layout(cell("split"), 0, 1), layout(cell("grown"), 2, 22), layout(cell("folded"), 3, 0),
			laid(del(cell("gone")), 4), layout(cell("new"), 0, 5)))
		done <- err
	}()
	<-entered
	within(t, "a reader", func() {
		laidOut(t, e, cell("split"), 1, 0)
		laidOut(t, e, cell("grown"), 0, 2)
		laidOut(t, e, cell("folded"), 0, 3)
		laidOut(t, e, cell("gone"), 0, 4)
		if v := value(t, e, cell("new")); v != (store.Value{}) {
			t.Errorf("%+v", v)
		}
	})
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	laidOut(t, e, cell("split"), 1, 1)
	laidOut(t, e, cell("grown"), 0, 22)
	laidOut(t, e, cell("folded"), 0, 0)
	laidOut(t, e, cell("new"), 0, 5)
	if v := value(t, e, cell("gone")); v.Exists {
		t.Errorf("%+v", v)
	}
	audited(t, e)
}

// TestLayoutsDuringCheckpoint changes layouts after a checkpoint has begun, so
// weakly that a power loss takes the changes: then what it saved is what was.
func TestLayoutsDuringCheckpoint(t *testing.T) {
	mem := newMemDisk()
	gate, release := newGate()
	defer release()
	fs, on := failing(mem, func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileSyncData && strings.Contains(op.Path, "/log/") {
			<-gate
		}
		return false
	})
	e := open(t, fs, engine.Options{})
	do(t, e, add(cell("split"), 1), layout(cell("grown"), 0, 2), layout(cell("folded"), 0, 3), layout(cell("cold"), 0, 4))
	mustClose(t, e)
	e = open(t, fs, engine.Options{})
	do(t, e, add(cell("split"), 1), add(cell("grown"), 1), add(cell("folded"), 1), add(cell("cold"), 1))
	checkpoint(t, e)
	do(t, e, add(cell("split"), 1), add(cell("grown"), 1), add(cell("folded"), 1), add(cell("cold"), 1))
	finish := e.BeginCheckpoint()
	do(t, e, add(cell("other"), 1)) // the checkpoint's frame is synced with it
	on.Store(true)
	weak := batch(layout(cell("split"), 0, 1), layout(cell("grown"), 2, 22), layout(cell("folded"), 3, 0))
	weak.Durability = store.Memory
	doBatch(t, e, weak)
	check := func(e *engine.Engine, split, grown, folded int64) {
		t.Helper()
		laidOut(t, e, cell("split"), 3, split)
		laidOut(t, e, cell("grown"), 2, grown)
		laidOut(t, e, cell("folded"), 2, folded)
		laidOut(t, e, cell("cold"), 2, 4)
	}
	check(e, 1, 22, 0)
	within(t, "the checkpoint", func() {
		if err := finish(bg, false); err != nil {
			t.Error(err)
		}
	})
	crashed := open(t, cut(mem), engine.Options{})
	check(crashed, 0, 2, 3)
	audited(t, crashed)
	release()
	check(e, 1, 22, 0)
	audited(t, e)
	check(open(t, cut(mem), engine.Options{}), 1, 22, 0)
}

// TestLayoutOverOldDeadline expires counters, one of which has lost its deadline
// and got a layout since a checkpoint noted when to look at it.
func TestLayoutOverOldDeadline(t *testing.T) {
	clock, mem := newClock(), newMemDisk()
	o := engine.Options{Now: clock.now, Limits: store.Limits{KeysMax: 3}}
	e := open(t, mem, o)
	until := func(key string) store.Delta {
		return store.Delta{Cell: cell(key), Op: store.OpSet, N: 1, Expiry: store.ExpirySet, DeadlineMS: clock.ms.Load() + 1000}
	}
	do(t, e, until("split"), until("over"), until("over too"))
	checkpoint(t, e)
	do(t, e, store.Delta{Cell: cell("split"), Op: store.OpExpire, Expiry: store.ExpiryClear})
	do(t, e, layout(cell("split"), 0, 7))
	mustClose(t, e)
	e = open(t, mem, o)
	clock.advance(time.Second)
	do(t, e, add(cell("new"), 1)) // there is room for it
	laidOut(t, e, cell("split"), 1, 7)
	audited(t, e)
}

// TestLayoutsEvicted checks that what cells have beside their value leaves memory
// with them.
func TestLayoutsEvicted(t *testing.T) {
	e := open(t, vfs.NewMem(), engine.Options{})
	for i := range int64(20) {
		do(t, e, layout(cell(fmt.Sprint(i)), 0, 1+i))
	}
	checkpoint(t, e)
	e.EvictNow()
	e.Meters(func(name, _ string, n float64) {
		if name == "quipu_memory_extras" && n != 0 {
			t.Errorf("%v layouts in memory", n)
		}
	})
	for i := range int64(20) {
		laidOut(t, e, cell(fmt.Sprint(i)), 0, 1+i)
	}
}

// TestLayoutOfColdCells changes cells that are only on disk: those that have a
// layout are read first, whatever is known of them.
func TestLayoutOfColdCells(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{})
	do(t, e, add(cell("plain"), 1), layout(cell("a"), 0, 7), layout(cell("b"), 0, 8), layout(cell("c"), 0, 9))
	mustClose(t, e)
	e = open(t, mem, engine.Options{})
	apart := batch(add(cell("a"), 1), laid(add(cell("b"), 1), 7), laid(add(cell("c"), 1), 9), laid(add(cell("plain"), 1), 9), add(cell("plain"), 2))
	apart.Apart = true
	r, err := try(e, apart)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []store.Outcome{store.Applied, store.Unmet, store.Applied, store.Unmet, store.Applied} {
		if got := r.Results[i].Outcome; got != want {
			t.Errorf("delta %d: outcome %d, want %d", i, got, want)
		}
	}
	check := func(e *engine.Engine) {
		t.Helper()
		laidOut(t, e, cell("a"), 1, 7)
		laidOut(t, e, cell("b"), 0, 8)
		laidOut(t, e, cell("c"), 1, 9)
		laidOut(t, e, cell("plain"), 3, 0)
		outcome(t, e, set(cell("a"), 5), store.Split)
		outcome(t, e, set(cell("plain"), 3), store.Applied)
		audited(t, e)
	}
	check(e)
	check(open(t, cut(mem), engine.Options{}))
	// The adds that are replayed are not over what is read, and the rows have the
	// layouts nevertheless.
	e = open(t, cut(mem), engine.Options{})
	checkpoint(t, e)
	check(open(t, cut(mem), engine.Options{}))

	to := vfs.NewMem()
	if err := engine.Restore(to, bytes.NewReader(snapshot(t, e)), dir); err != nil {
		t.Fatal(err)
	}
	check(open(t, to, engine.Options{}))
}
