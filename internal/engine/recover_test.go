package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// TestCrashPoints pulls the plug at every file operation of two checkpoints
// that are too large for one of Pebble's memtables, and of a Close.
func TestCrashPoints(t *testing.T) {
	const cells = 4200
	name := strings.Repeat("long name ", 50)
	key := func(i int) store.Cell { return cell(fmt.Sprintf("%04d %s", i, name)) }
	mem := newMemDisk()
	var on atomic.Bool
	var mu sync.Mutex // one crash at a time; guards the fields below
	var rounds int64  // acknowledged
	var points int
	dice := rand.New(rand.NewPCG(1, 1))
	check := func(percent int) {
		fs := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: dice})
		e, err := engine.Open(dir, engine.Options{FS: fs})
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer func() { _ = e.Close() }()
		if a, err := e.Audit(bg); err != nil || len(a.Drift) > 0 || a.Cells != cells+1 {
			t.Errorf("audit: %+v, %v", a, err)
		}
		some, values := []store.Cell{key(0), key(1), key(cells / 2), key(cells - 1)}, make([]store.Value, 4)
		if err := e.Read(bg, some, values); err != nil {
			t.Errorf("read: %v", err)
		}
		for i, v := range values { // not holds: it must not end a goroutine of Pebble's
			if v.N != rounds {
				t.Errorf("%.4s is %+v, want %d", some[i].Key, v, rounds)
			}
		}
		reply, err := try(e, numbered(7, uint64(rounds-1), uint64(rounds), add(cell("row"), rounds)))
		if err != nil || !reply.Replayed {
			t.Errorf("batch %d again: %+v, %v", rounds, reply, err)
		}
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && !t.Failed() {
			mu.Lock()
			defer mu.Unlock()
			if points++; *long || points%6 == 0 || op.Kind == errorfs.OpRename || strings.Contains(op.Path, "MANIFEST") {
				check([]int{0, 100, 50}[points%3])
			}
			if t.Failed() {
				t.Errorf("crash before %s %s", opName(op.Kind), op.Path)
			}
		}
		return nil
	}))
	e := open(t, fs, engine.Options{SegmentBytes: 1 << 20, CheckpointEvery: time.Hour})
	for round := range int64(2) {
		for from := 0; from < cells; from += 1000 {
			b := store.Batch{Durability: store.Memory}
			for i := from; i < min(cells, from+1000); i++ {
				b.Deltas = append(b.Deltas, add(key(i), 1))
			}
			doBatch(t, e, b)
		}
		doBatch(t, e, numbered(7, uint64(round), uint64(round+1), add(cell("row"), round+1)))
		mu.Lock()
		rounds++
		mu.Unlock()
		on.Store(true)
		checkpoint(t, e)
		on.Store(false)
	}
	on.Store(true)
	mustClose(t, e)
	on.Store(false)
	if points < 30 {
		t.Errorf("only %d points", points)
	}
}

// TestWritesDuringCheckpoint changes cells, tokens and marks after a checkpoint
// has begun: it must save what was, and the log the rest.
func TestWritesDuringCheckpoint(t *testing.T) {
	for _, sweep := range []bool{false, true} {
		mem := newMemDisk()
		e := open(t, mem, engine.Options{})
		w, err := store.Enlist(bg, e)
		if err != nil {
			t.Fatal(err)
		}
		do(t, e, add(cell("on disk"), 1), set(cell("on disk too"), 2), add(cell("to go"), 3))
		mustClose(t, e)
		e = open(t, mem, engine.Options{})
		doBatch(t, e, numbered(w, 0, 1, add(cell("row"), 1)))
		do(t, e, add(cell("on disk"), 10), add(cell("new"), 20), add(cell("looked at"), 70), once(add(cell("once"), 30), "first")) // unread ones
		do(t, e, want(add(cell("read"), 40)), set(cell("on disk too"), 50), add(cell("back"), 1))
		do(t, e, del(cell("back")))
		finish := e.BeginCheckpoint()
		holds(t, e, cell("looked at"), 70) // a key that is known to be a new one from here on
		doBatch(t, e, numbered(w, 1, 2, add(cell("row"), 2)))
		do(t, e, add(cell("on disk"), 100), add(cell("new"), 200), once(add(cell("once"), 300), "second"))
		do(t, e, want(add(cell("read"), 400)), add(cell("on disk too"), 500), del(cell("to go")), add(cell("back"), 600))
		do(t, e, want(add(cell("on disk"), 1000)), add(cell("new"), 2000)) // the first is read now
		if err := finish(bg, sweep); err != nil {
			t.Fatal(err)
		}
		check := func(e *engine.Engine) {
			t.Helper()
			for key, n := range map[string]int64{
				"on disk": 1111, "new": 2220, "once": 330, "read": 440, "on disk too": 550, "back": 600, "row": 3, "looked at": 70,
			} {
				holds(t, e, cell(key), n)
			}
			if v := value(t, e, cell("to go")); v.Exists {
				t.Fatalf("%+v", v)
			}
			for _, token := range []string{"first", "second"} {
				if f, err := e.Lookup(bg, cell("once"), token); err != nil || f.State != store.TokenApplied {
					t.Fatalf("%s: %+v, %v", token, f, err)
				}
			}
			r, err := try(e, numbered(w, 1, 2, add(cell("row"), 2)))
			if err != nil || !r.Replayed {
				t.Fatalf("batch again: %+v, %v", r, err)
			}
			entries, err := e.Scan(bg, store.Range{Namespace: "test"}, 100)
			if err != nil || len(entries) != 8 {
				t.Fatalf("scan: %+v, %v", entries, err)
			}
		}
		check(e)
		crashed := open(t, cut(mem), engine.Options{})
		check(crashed)
		audited(t, crashed)
		check(crashed)
		audited(t, e)
		check(e)
		crashed = open(t, cut(mem), engine.Options{})
		check(crashed)
	}
}

// TestNothingSavedBeforeSync checks that no checkpoint, and so no audit and no
// snapshot, goes beyond the synced log.
func TestNothingSavedBeforeSync(t *testing.T) {
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
	do(t, e, add(cell("a"), 1))
	on.Store(true)
	b := batch(add(cell("a"), 10))
	b.Durability = store.Memory
	doBatch(t, e, b)
	for name, f := range map[string]func(context.Context) error{
		"checkpoint": e.Checkpoint,
		"audit":      func(ctx context.Context) error { _, err := e.Audit(ctx); return err },
		"snapshot":   func(ctx context.Context) error { return e.Snapshot(ctx, io.Discard) },
	} {
		ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
		if err := f(ctx); err == nil {
			t.Errorf("%s did not wait for the log", name)
		}
		cancel()
	}
	crashed := open(t, cut(mem), engine.Options{})
	holds(t, crashed, cell("a"), 1)
	audited(t, crashed)
	release()
	restored := vfs.NewMem()
	if err := engine.Restore(restored, bytes.NewReader(snapshot(t, e)), dir); err != nil {
		t.Fatal(err)
	}
	holds(t, open(t, restored, engine.Options{}), cell("a"), 11)
}

// hookContext calls a function when it is asked, for the n-th time without the
// engine's lock, whether it has ended.
type hookContext struct {
	context.Context
	e    *engine.Engine
	n    atomic.Int64
	hook func()
}

func (c *hookContext) Err() error {
	if c.e.Unlocked() && c.n.Add(-1) == 0 {
		c.hook()
	}
	return nil
}

// TestStaleRow has a row change on disk, and its cell leave memory, between the
// moment that a call read the row and that it used it.
func TestStaleRow(t *testing.T) {
	for n := int64(1); n <= 4; n++ {
		for _, apply := range []bool{false, true} {
			e := open(t, vfs.NewMem(), engine.Options{})
			cells := []store.Cell{cell("a"), cell("b")}
			do(t, e, add(cells[0], 1), add(cells[1], 1))
			checkpoint(t, e)
			e.EvictNow()
			final := int64(1)
			ctx := &hookContext{Context: bg, e: e, hook: func() {
				final = 11
				do(t, e, add(cells[0], 10), add(cells[1], 10))
				checkpoint(t, e)
				e.EvictNow()
			}}
			ctx.n.Store(n)
			if apply {
				r, err := tryContext(ctx, e, batch(want(add(cells[0], 100)), want(add(cells[1], 100))))
				if err != nil {
					t.Fatal(err)
				}
				for _, res := range r.Results {
					if res.After != res.Before+100 || res.After != 101 && res.After != 111 {
						t.Fatalf("hook %d: %+v", n, res)
					}
				}
				final += 100
			} else {
				vs := make([]store.Value, 2)
				if err := e.Read(ctx, cells, vs); err != nil {
					t.Fatal(err)
				}
				if vs[0].N != vs[1].N || vs[0].N != 1 && vs[0].N != 11 {
					t.Fatalf("hook %d: %+v", n, vs)
				}
			}
			holds(t, e, cells[0], final)
			holds(t, e, cells[1], final)
			audited(t, e)
		}
	}
}

// TestReadUnderSync reads cells whose changes are not durable yet, some of
// which are deltas over rows that nobody has read.
func TestReadUnderSync(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{})
	do(t, e, add(cell("a"), 100), add(cell("b"), 100))
	mustClose(t, e)
	entered := make(chan struct{}, 100)
	gate, release := newGate()
	defer release()
	fs, on := failing(mem, func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileSyncData {
			notify(entered)
			<-gate
		}
		return false
	})
	e = open(t, fs, engine.Options{})
	do(t, e, add(cell("b"), 1), add(cell("c"), 1), set(cell("d"), 1))
	on.Store(true)
	b := batch(add(cell("a"), 10), add(cell("b"), 10), add(cell("c"), 10), set(cell("d"), 10), add(cell("e"), 10))
	first := make(chan error)
	go func() {
		_, err := try(e, b)
		first <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
	defer cancel()
	_, err := tryContext(ctx, e, b) // in the next frame, while the one before is written and not synced
	wantKind(t, err, store.KindUnknown)
	within(t, "a reader", func() {
		for range 3 {
			for key, n := range map[string]int64{"a": 100, "b": 101, "c": 1, "d": 1} {
				holds(t, e, cell(key), n)
			}
			if v := value(t, e, cell("e")); v.Exists {
				t.Errorf("%+v", v)
			}
		}
	})
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	doBatch(t, e, b)
	for key, n := range map[string]int64{"a": 130, "b": 131, "c": 31, "d": 10, "e": 30} {
		holds(t, e, cell(key), n)
	}
	audited(t, e)
}

// TestWeakOverStrong asks for little durability, of answers that tell of a change
// which was asked to be synced and is not yet: they wait for it.
func TestWeakOverStrong(t *testing.T) {
	entered := make(chan struct{}, 1)
	gate, release := newGate()
	defer release()
	fs, on := failing(vfs.NewMem(), func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileSyncData {
			notify(entered)
			<-gate
		}
		return false
	})
	e := open(t, fs, engine.Options{})
	on.Store(true)
	done := make(chan error)
	go func() {
		_, err := try(e, batch(set(cell("a"), 5), once(add(cell("b"), 6), "applied"), settle(cell("c"), "settled")))
		done <- err
	}()
	<-entered
	for _, level := range []store.Durability{store.Memory, store.Written} {
		for name, b := range map[string]store.Batch{
			"an add":         batch(want(add(cell("a"), 1))),
			"two adds":       batch(want(add(cell("a"), 1)), add(cell("d"), 1)),
			"a refusal":      batch(store.Delta{Cell: cell("a"), Op: store.OpDelete, Guard: store.Guard{Match: true, Version: 1}}),
			"a repeat":       batch(once(add(cell("b"), 6), "applied")),
			"another settle": batch(settle(cell("c"), "settled")),
		} {
			b.Durability = level
			ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
			r, err := tryContext(ctx, e, b)
			cancel()
			if store.KindOf(err) != store.KindUnknown {
				t.Errorf("%s at level %v did not wait: %+v, %v", name, level, r, err)
			}
		}
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	holds(t, e, cell("b"), 6)
}

var hourly = store.Limits{TokenWindow: time.Hour}

// TestNamespaceEmptied checks that a namespace that is left by its last key
// makes room for another one, and is not counted any more, whatever happens.
func TestNamespaceEmptied(t *testing.T) {
	mem := newMemDisk()
	o := engine.Options{Limits: store.Limits{NamespacesMax: 2}}
	in := func(ns string) store.Cell { return store.Cell{Namespace: ns, Key: "key"} }
	e := open(t, mem, o)
	do(t, e, add(in("one"), 1), add(in("two"), 1))
	r, err := try(e, batch(add(in("three"), 1)))
	if err != nil || r.Results[0].Outcome != store.Full {
		t.Fatalf("one too many: %+v, %v", r, err)
	}
	checkpoint(t, e)
	do(t, e, del(in("one")))
	do(t, e, want(add(in("three"), 1)))
	audited(t, e)
	crashed := open(t, cut(mem), o)
	audited(t, crashed)
	do(t, crashed, del(in("two")))
	do(t, crashed, add(in("one"), 5))
	audited(t, crashed)
	holds(t, crashed, in("one"), 5)
}

// TestKeyMadeAgain deletes and makes a key in one batch, in a namespace that is
// full, while it is not known how many of its changed cells are new ones.
func TestKeyMadeAgain(t *testing.T) {
	mem := newMemDisk()
	o := engine.Options{Limits: store.Limits{KeysMax: 2}}
	e := open(t, mem, o)
	both := batch(add(cell("a"), 1), add(cell("b"), 1))
	doBatch(t, e, both)
	checkpoint(t, e)
	doBatch(t, e, both)
	e = open(t, cut(mem), o) // replay has read neither row
	do(t, e, del(cell("b")), add(cell("b"), 5))
	holds(t, e, cell("a"), 2)
	holds(t, e, cell("b"), 5)
	audited(t, e)
}

// TestBlindToTheLimit adds blindly to a row that nobody has read, until no more
// fits in.
func TestBlindToTheLimit(t *testing.T) {
	mem := vfs.NewMem()
	e := open(t, mem, engine.Options{})
	do(t, e, set(cell("a"), 1<<62))
	mustClose(t, e)
	e = open(t, mem, engine.Options{})
	b := store.Batch{Durability: store.Memory}
	for range store.BatchDeltasMax {
		b.Deltas = append(b.Deltas, add(cell("a"), 1<<47))
	}
	var applied, refused int64
	for refused == 0 {
		r, err := try(e, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Results {
			if res.Outcome == store.Applied {
				applied++
			} else {
				refused++
			}
		}
	}
	if applied != 1<<15-1 {
		t.Errorf("%d adds were applied, want %d", applied, 1<<15-1)
	}
	holds(t, e, cell("a"), 1<<62+applied<<47)
	audited(t, e)
}

// TestScanSeesBorn lists a key that was made anew while a checkpoint was saving
// that it was gone.
func TestScanSeesBorn(t *testing.T) {
	e := open(t, vfs.NewMem(), engine.Options{Memory: 256 << 20})
	for round := range 10 {
		for from := 0; from < 20_000; from += store.BatchDeltasMax {
			b := store.Batch{Durability: store.Memory}
			for i := range store.BatchDeltasMax {
				b.Deltas = append(b.Deltas, add(cell(fmt.Sprintf("%d %d", round, from+i)), 1))
			}
			doBatch(t, e, b)
		}
		c := cell(fmt.Sprint("x", round))
		do(t, e, add(c, 1))
		do(t, e, del(c))
		finish := e.BeginCheckpoint()
		do(t, e, add(c, 1))
		stop := make(chan struct{})
		done := make(chan error)
		go func() {
			for {
				entries, err := e.Scan(bg, store.Range{Namespace: "test", Prefix: c.Key}, 1)
				if err == nil && len(entries) != 1 {
					err = fmt.Errorf("round %d: scan has %d entries, want 1", round, len(entries))
				}
				select {
				case <-stop:
					done <- err
					return
				default:
				}
				if err != nil {
					done <- err
					return
				}
			}
		}()
		err := finish(bg, false)
		close(stop)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenAgainAndAgain crashes while the store opens, many times in a row:
// nothing is counted twice.
func TestOpenAgainAndAgain(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{SegmentBytes: 512})
	for i := range 50 {
		do(t, e, add(cell("a"), 1), once(add(cell("b"), 1), fmt.Sprint(i)))
		if i == 25 {
			checkpoint(t, e)
		}
	}
	fs := cut(mem)
	rng := rand.New(rand.NewPCG(5, 5))
	for range 30 {
		left, at := fs, int64(1+rng.IntN(80))
		var n atomic.Int64
		var mu sync.Mutex
		o := engine.Options{SegmentBytes: 512, FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && n.Add(1) == at {
				mu.Lock()
				defer mu.Unlock()
				left = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			}
			return nil
		}))}
		e, err := engine.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, e, cell("a"), 50)
		holds(t, e, cell("b"), 50)
		mustClose(t, e)
		mu.Lock()
		fs = left
		mu.Unlock()
	}
	e = open(t, fs, engine.Options{})
	holds(t, e, cell("a"), 50)
	audited(t, e)
}

// TestDumpRuns checks that the log of a running store can be looked at.
func TestDumpRuns(t *testing.T) {
	mem := vfs.NewMem()
	e := open(t, mem, engine.Options{})
	w, err := store.Enlist(bg, e)
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 5), set(cell("b"), 6), once(add(cell("a"), 7), "token"))
	do(t, e, del(cell("b")), layout(cell("d"), 0, 9))
	doBatch(t, e, numbered(w, 0, 4, want(add(cell("c"), 8))))
	do(t, e, store.Delta{Op: store.OpRetire, N: int64(w)})
	var out bytes.Buffer
	if err := engine.Dump(mem, dir, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`add "a" in "test" +5`, `set "b" in "test" 6`, `delete "b" in "test"`, `layout "d" in "test" 9`, `token "token" of "a" in "test"`,
		"writer 1", "mark 4, ", "retire writers up to 1", "time ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "can't") {
		t.Errorf("in\n%s", out.String())
	}
}

// TestLostVersions checks that the version of a change that was seen, and then
// lost with the computer's memory, is never that of another change.
func TestLostVersions(t *testing.T) {
	mem := newMemDisk()
	seen := map[uint64]int{}
	for life := range 4 {
		e := open(t, mem, engine.Options{CheckpointEvery: time.Hour})
		for range 100 {
			r := doBatch(t, e, store.Batch{Durability: store.Memory, Deltas: []store.Delta{add(cell("a"), 1)}})
			if other, ok := seen[r[0].Version]; ok {
				t.Fatalf("version %d was of life %d and is of life %d", r[0].Version, other, life)
			}
			seen[r[0].Version] = life
		}
		crashed := mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, e)
		mem = crashed
	}
}
