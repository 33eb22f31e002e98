package engine_test

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

var (
	faultMode = flag.String("fault.mode", "", "the one mode of TestFaults to try")
	faultAt   = flag.Int("fault.at", -1, "the one operation of TestFaults to fail")
)

// TestFaults runs a script on a file system whose n-th operation fails, for
// many n and in several ways. Whatever fails: nothing hangs, nothing panics,
// every error has a kind, what was durable can be read, and what was
// acknowledged or seen is there when the store is opened again, after a kill
// and after a power loss.
func TestFaults(t *testing.T) {
	kinds := map[errorfs.OpKind]int{}
	for mode, f := range map[string]faultHow{
		"once":   {write: true},
		"on":     {write: true, sticky: true},
		"short":  {write: true, short: true},
		"reads":  {},
		"unread": {sticky: true},
	} {
		if *faultMode != "" && *faultMode != mode {
			continue
		}
		stride := 7
		if *long {
			stride = 1
		}
		first := len(mode) % stride // not the same operations in every mode
		for n := first; ; n += stride {
			if *faultAt >= 0 {
				n = *faultAt
			}
			r := faultRun{t: t, w: newWorld(uint64(n)), fs: &faultFS{faultHow: f, n: n}}
			within(t, fmt.Sprintf("mode %s, operation %d", mode, n), r.run)
			if r.fs.failed == nil {
				break // the script has no more operations
			}
			kinds[r.fs.failed.Kind]++
			if t.Failed() {
				t.Fatalf("%s %s failed\nagain: go test ./internal/engine -run TestFaults -fault.mode=%s -fault.at=%d",
					opName(r.fs.failed.Kind), r.fs.failed.Path, mode, n)
			}
			if *faultAt >= 0 {
				break
			}
		}
	}
	if !*long || *faultMode != "" {
		return
	}
	for _, k := range []errorfs.OpKind{
		errorfs.OpCreate, errorfs.OpLink, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpRemove, errorfs.OpRemoveAll,
		errorfs.OpRename, errorfs.OpReuseForWrite, errorfs.OpMkdirAll, errorfs.OpLock, errorfs.OpList, errorfs.OpStat,
		errorfs.OpFileClose, errorfs.OpFileRead, errorfs.OpFileReadAt, errorfs.OpFileWrite, errorfs.OpFileStat,
		errorfs.OpFileSync, errorfs.OpFileSyncData,
	} {
		if kinds[k] == 0 {
			t.Errorf("the script never comes by %s", opName(k))
		}
	}
}

// TestFaultsInCreate fails every operation of making a store. What is left
// behind is no obstacle to making it after all.
func TestFaultsInCreate(t *testing.T) {
	for _, how := range []faultHow{{write: true}, {write: true, sticky: true}, {write: true, short: true}, {}} {
		stride := 4
		if *long {
			stride = 1
		}
		for n := 0; ; n += stride {
			mem := newMemDisk()
			fs := &faultFS{faultHow: how, n: n}
			within(t, fmt.Sprintf("%+v, operation %d", how, n), func() {
				e, err := engine.Open(dir, engine.Options{FS: fs.wrap(mem)})
				if err == nil {
					_ = e.Close()
				} else if store.KindOf(err) == store.KindOther {
					t.Errorf("open: %v has no kind", err)
				}
				fs.heal()
				for _, percent := range []int{0, 50, 100} {
					rng := rand.New(rand.NewPCG(uint64(n), 0))
					e := open(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), engine.Options{})
					do(t, e, add(cell("a"), 1))
					holds(t, e, cell("a"), 1)
					mustClose(t, e)
				}
			})
			if fs.failed == nil {
				break
			}
			if t.Failed() {
				t.Fatalf("%+v: %s %s failed, operation %d", how, opName(fs.failed.Kind), fs.failed.Path, n)
			}
		}
	}
}

// TestManifestFails checks that a disk that can't be written to any more stops
// the writers and nobody else, and that nobody hangs.
func TestManifestFails(t *testing.T) {
	for _, match := range []func(errorfs.Op) bool{
		writesTo("/disk/MANIFEST"),
		func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == dir+"/disk" },
	} {
		mem := newMemDisk()
		fs, on := failing(mem, match)
		mustClose(t, open(t, fs, engine.Options{}))
		on.Store(true)
		within(t, "open", func() {
			_, err := engine.Open(dir, engine.Options{FS: errorfs.Wrap(cut(mem), failed{on, match})})
			wantKind(t, err, store.KindUnavailable)
		})
		on.Store(false)
		e := open(t, fs, engine.Options{})
		do(t, e, add(cell("a"), 1))
		on.Store(true)
		within(t, "the store", func() {
			errs := make(chan error)
			for range 3 {
				go func() { errs <- e.Checkpoint(bg) }()
			}
			for range 3 {
				if err := <-errs; err == nil || store.KindOf(err) != store.KindUnavailable {
					t.Errorf("checkpoint: %v", err)
				}
			}
			_, err := try(e, batch(add(cell("a"), 1)))
			if store.KindOf(err) != store.KindUnavailable {
				t.Errorf("apply: %v", err)
			}
			if _, err := e.Audit(bg); store.KindOf(err) != store.KindUnavailable {
				t.Errorf("audit: %v", err)
			}
			if err := e.Snapshot(bg, io.Discard); store.KindOf(err) != store.KindUnavailable {
				t.Errorf("snapshot: %v", err)
			}
			if _, err := e.Scan(bg, store.Range{}, 1); err != nil && store.KindOf(err) != store.KindUnavailable {
				t.Errorf("scan: %v", err)
			}
			e.Meters(func(string, string, float64) {})
			holds(t, e, cell("a"), 1)
			if v := value(t, e, cell("b")); v.Exists {
				t.Errorf("%+v", v)
			}
			wantKind(t, e.Close(), store.KindUnavailable)
		})
		e = open(t, cut(mem), engine.Options{})
		holds(t, e, cell("a"), 1)
		audited(t, e)
	}
}

// TestFlushFails checks that a checkpoint fails in good time when Pebble can't
// write, that it comes to nothing, and that the next one does it all when the
// disk is well again.
func TestFlushFails(t *testing.T) {
	mem := newMemDisk()
	fs, on := failing(mem, writesTo(".sst"))
	e := open(t, fs, engine.Options{Memory: 64 << 20, SegmentBytes: 1 << 20})
	// More than Pebble wants to hold.
	const cells = 120_000
	for from := 0; from < cells; from += store.BatchDeltasMax {
		b := store.Batch{Durability: store.Memory}
		for i := range store.BatchDeltasMax {
			b.Deltas = append(b.Deltas, add(cell(fmt.Sprintf("a counter with a rather long name, number %d", from+i)), 1))
		}
		doBatch(t, e, b)
	}
	on.Store(true)
	within(t, "the store", func() {
		for range 3 {
			do(t, e, add(cell("a"), 1))
			wantKind(t, e.Checkpoint(bg), store.KindUnavailable)
		}
		holds(t, e, cell("a"), 3)
	})
	crashed := open(t, cut(mem), engine.Options{})
	holds(t, crashed, cell("a"), 3)
	if n := audited(t, crashed).Cells; n != cells+1 {
		t.Fatalf("%d cells, want %d", n, cells+1)
	}
	mustClose(t, crashed)
	on.Store(false)
	within(t, "the store", func() { checkpoint(t, e) })
	on.Store(true)
	do(t, e, add(cell("a"), 1))
	within(t, "close", func() { wantKind(t, e.Close(), store.KindUnavailable) })
	e = open(t, cut(mem), engine.Options{})
	holds(t, e, cell("a"), 4)
	audited(t, e)
}

// TestSyncFails checks what a failed sync of the log does: those who wait are
// told that the outcome is unknown, nobody sees their changes, nothing is
// acknowledged any more, and what was durable can be read.
func TestSyncFails(t *testing.T) {
	mem := newMemDisk()
	entered := make(chan struct{}, 1)
	gate, release := newGate()
	defer release()
	fs, on := failing(mem, func(op errorfs.Op) bool {
		if op.Kind != errorfs.OpFileSyncData || !strings.Contains(op.Path, "/log/") {
			return false
		}
		notify(entered)
		<-gate
		return true
	})
	e := open(t, fs, engine.Options{})
	w, err := store.Enlist(bg, e)
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 1), once(add(cell("b"), 2), "old"), set(cell("c"), 3), add(cell("d"), 4))
	checkpoint(t, e)
	do(t, e, add(cell("a"), 10))
	doBatch(t, e, numbered(w, 0, 1, add(cell("e"), 5)))
	on.Store(true)
	batches := []store.Batch{
		batch(add(cell("a"), 100)),
		batch(once(add(cell("b"), 200), "new")),
		batch(set(cell("c"), 300)),
		batch(del(cell("d"))),
		numbered(w, 1, 2, add(cell("e"), 500)),
		batch(want(add(cell("f"), 600))),
		batch(once(add(cell("b"), 2), "old"), add(cell("g"), 1)), // a repeat, in a batch that waits
	}
	errs := make(chan error)
	for _, b := range batches {
		go func() {
			_, err := try(e, b)
			errs <- err
		}()
	}
	<-entered
	old := func() {
		t.Helper()
		for key, n := range map[string]int64{"a": 11, "b": 2, "c": 3, "d": 4, "e": 5} {
			holds(t, e, cell(key), n)
		}
		for _, key := range []string{"f", "g"} {
			if v := value(t, e, cell(key)); v.Exists {
				t.Fatalf("%s is seen before it is durable: %+v", key, v)
			}
		}
		entries, err := e.Scan(bg, store.Range{Namespace: "test"}, 100)
		if err != nil || len(entries) != 5 {
			t.Fatalf("scan: %v, %v", entries, err)
		}
	}
	old()
	release()
	for range batches {
		wantKind(t, <-errs, store.KindUnknown, store.KindUnavailable)
	}
	e.EvictAlways()
	for range 3 {
		old()
		for _, level := range []store.Durability{store.Synced, store.Written, store.Memory} {
			b := batch(add(cell("a"), 1))
			b.Durability = level
			_, err := try(e, b)
			wantKind(t, err, store.KindUnavailable)
		}
		_, err = try(e, batch(once(add(cell("b"), 2), "old")))
		wantKind(t, err, store.KindUnavailable)
		if f, err := e.Lookup(bg, cell("b"), "old"); err != nil || f.State != store.TokenApplied {
			t.Fatalf("look up: %+v, %v", f, err)
		}
		if f, err := e.Lookup(bg, cell("b"), "new"); err == nil && f.State != store.TokenUnknown {
			t.Fatalf("look up what is not durable: %+v", f)
		}
		wantKind(t, e.Checkpoint(bg), store.KindUnavailable)
	}
	within(t, "close", func() { wantKind(t, e.Close(), store.KindUnavailable) })

	// After a power loss nothing of it was ever there, and all of it can be
	// sent again.
	e = open(t, cut(mem), engine.Options{})
	old()
	for _, b := range batches {
		doBatch(t, e, b)
	}
	for key, n := range map[string]int64{"a": 111, "b": 202, "c": 300, "e": 505, "f": 600, "g": 1} {
		holds(t, e, cell(key), n)
	}
	audited(t, e)
}

// TestNoRoomEver checks that writers who wait for a checkpoint to make room do
// not wait for one that can't be made.
func TestNoRoomEver(t *testing.T) {
	for _, part := range []string{"/log/", "/disk/MANIFEST"} {
		entered := make(chan struct{}, 100)
		gate, release := newGate()
		defer release()
		mem := vfs.NewMem()
		fs, on := failing(mem, func(op errorfs.Op) bool {
			if !writesTo(part)(op) {
				return false
			}
			notify(entered)
			<-gate
			return true
		})
		e := open(t, fs, engine.Options{Memory: 16 << 20})
		on.Store(true)
		errs := make(chan error)
		go func() {
			for from := 0; ; from += store.BatchDeltasMax {
				b := store.Batch{Durability: store.Memory}
				for i := range store.BatchDeltasMax {
					b.Deltas = append(b.Deltas, add(cell(fmt.Sprint(from+i)), 1))
				}
				if _, err := try(e, b); err != nil {
					errs <- err
					return
				}
			}
		}()
		<-entered
		e.AwaitOverfull()
		release()
		within(t, "a writer", func() { wantKind(t, <-errs, store.KindUnavailable) })
		within(t, "close", func() { wantKind(t, e.Close(), store.KindUnavailable) })
	}
}

// A faultRun is one run of the script.
type faultRun struct {
	t       *testing.T
	w       *world
	fs      *faultFS
	row     row
	stopped bool // an outcome was unknown: nothing may be acknowledged any more
}

func (r *faultRun) run() {
	o := engine.Options{SegmentBytes: 1024}
	r.prepare(o)
	mem := r.w.fs
	o.FS = r.fs.wrap(mem)
	e, err := engine.Open(dir, o)
	if err == nil {
		r.w.e = e
		r.script()
		if err := e.Close(); err != nil && store.KindOf(err) == store.KindOther {
			r.t.Errorf("close: %v has no kind", err)
		}
		r.closed(e)
	} else if store.KindOf(err) == store.KindOther {
		r.t.Errorf("open: %v has no kind", err)
	}
	r.fs.heal()
	rng := rand.New(rand.NewPCG(uint64(r.fs.n), 0))
	for _, percent := range []int{0, 100, 50} {
		o.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		e, err := engine.Open(dir, o)
		if err != nil {
			r.t.Errorf("open after a crash that keeps %d%%: %v", percent, err)
			continue
		}
		known := r.w.clone()
		known.e = e
		if err := known.check(); err != nil {
			r.t.Errorf("after a crash that keeps %d%%: %v", percent, err)
		}
		if err := e.Close(); err != nil {
			r.t.Errorf("close after a crash: %v", err)
		}
	}
}

// prepare leaves a store that was killed, with a checkpoint and a log after it.
func (r *faultRun) prepare(o engine.Options) {
	o.FS = r.w.fs
	e, err := engine.Open(dir, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.w.e = e
	if r.row.writer, err = store.Enlist(bg, e); err != nil {
		r.t.Fatal(err)
	}
	r.w.rows = []*row{&r.row}
	r.load()
	checkpoint(r.t, e)
	r.load()
	r.w.fs = cut(r.w.fs)
	if err := e.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *faultRun) script() {
	r.load()
	r.kind("checkpoint", r.w.e.Checkpoint(bg))
	r.load()
	r.kind("snapshot", r.w.e.Snapshot(bg, io.Discard))
	r.load()
	a, err := r.w.e.Audit(bg)
	if r.kind("audit", err); err == nil && len(a.Drift) > 0 {
		r.t.Errorf("drift: %+v", a.Drift)
	}
	_, err = r.w.e.Scan(bg, store.Range{Namespace: cell("").Namespace, Prefix: "own/"}, 10)
	r.kind("scan", err)
	r.load()
}

func (r *faultRun) kind(what string, err error) {
	if err != nil && store.KindOf(err) == store.KindOther {
		r.t.Errorf("%s: %v has no kind", what, err)
	}
}

// load writes and reads a little of everything.
func (r *faultRun) load() {
	w := r.w
	for i := range 3 {
		c := cell(fmt.Sprint("blind/", w.next, i))
		g := w.growing(c)
		g.maybe += 5
		r.apply(batch(add(c, 5)), func(store.Reply) { g.maybe, g.acked, g.weak = g.maybe-5, g.acked+5, g.weak+5 },
			func() { g.maybe -= 5 })
	}
	seen := cell(fmt.Sprint("view/", w.next%3))
	g := w.growing(seen)
	g.maybe += 5
	r.apply(batch(planned(add(seen, 5), w.plan), planned(add(cell("lines"), 0), w.plan, line("some"))), func(store.Reply) { g.maybe, g.acked, g.weak = g.maybe-5, g.acked+5, g.weak+5 },
		func() { g.maybe -= 5 })
	w.pairs.maybe++
	r.apply(batch(add(cell("pair/a"), 1), want(add(cell("pair/b"), 1))),
		func(store.Reply) { w.pairs.maybe--; w.pairs.acked++; w.pairs.weak++ }, func() { w.pairs.maybe-- })

	w.next++
	op := &onceOp{cell: cell("once/0"), token: fmt.Sprint("token ", w.next), n: 3}
	w.tokens = append(w.tokens, op)
	r.apply(batch(once(add(op.cell, op.n), op.token)), func(reply store.Reply) { op.told(reply.Results[0]) }, func() {})

	if r.row.open == nil {
		b := numbered(r.row.writer, r.row.mark, r.row.mark+1, add(r.row.cell(), 7), add(cell("rows"), 7))
		r.row.open, r.row.n = &b, 7
	}
	r.apply(*r.row.open, func(store.Reply) {
		r.row.mark, r.row.sum, r.row.open = r.row.open.Seq, r.row.sum+r.row.n, nil
	}, func() {})

	c := cell(fmt.Sprint("own/", w.next%4))
	o := w.owned[c]
	if o == nil {
		o = &owned{states: []store.Value{{}}}
		w.owned[c] = o
	}
	next := store.Value{N: int64(w.next), Exists: true}
	o.states = append(o.states, next)
	r.apply(batch(set(c, next.N)), func(reply store.Reply) {
		next.Version = reply.Results[0].Version
		o.states = []store.Value{next}
	}, func() { o.states = o.states[:len(o.states)-1] })
	r.read()
}

// apply sends one batch and notes what came of it.
func (r *faultRun) apply(b store.Batch, done func(store.Reply), undone func()) {
	reply, err := try(r.w.e, b)
	switch kind := store.KindOf(err); {
	case err == nil:
		if r.stopped {
			r.t.Errorf("a write was acknowledged after another one's outcome was unknown")
		}
		done(reply)
	case kind == store.KindUnknown:
		r.stopped = true
	case kind == store.KindUnavailable:
		undone()
	default:
		r.t.Errorf("apply: %v, kind %d", err, kind)
		undone()
	}
}

// read reads everything, and notes what it saw.
func (r *faultRun) read() {
	w := r.w
	cells := []store.Cell{cell("pair/a"), cell("pair/b")}
	for c := range w.grows {
		cells = append(cells, c)
	}
	for c := range w.owned {
		cells = append(cells, c)
	}
	vs := make([]store.Value, len(cells))
	if err := w.e.Read(bg, cells, vs); err != nil {
		if r.fs.write || store.KindOf(err) == store.KindOther {
			r.t.Errorf("read: %v, kind %d", err, store.KindOf(err))
		}
		return
	}
	if err := w.checkViews(false); err != nil && (r.fs.write || store.KindOf(err) == store.KindOther) {
		r.t.Errorf("read views: %v", err)
	}
	if vs[0].N != vs[1].N {
		r.t.Errorf("half a batch was seen: %d and %d", vs[0].N, vs[1].N)
	}
	w.pairs.saw(r.t, vs[0])
	for i, c := range cells[2:] {
		if g := w.grows[c]; g != nil {
			g.saw(r.t, vs[2+i])
		} else if err := w.owned[c].saw(vs[2+i]); err != nil {
			r.t.Errorf("%s: %v", c.Key, err)
		}
	}
}

func (g *growing) saw(t *testing.T, v store.Value) {
	if v.N < g.acked || v.N < g.seen || v.N > g.acked+g.maybe {
		t.Errorf("read %d, want %d to %d, and not before %d", v.N, g.acked, g.acked+g.maybe, g.seen)
	}
	g.seen = v.N
}

// closed checks that a closed store says so everywhere.
func (r *faultRun) closed(e *engine.Engine) {
	_, applied := try(e, batch(add(cell("late"), 1)))
	_, looked := e.Lookup(bg, cell("late"), "late")
	_, audited := e.Audit(bg)
	for _, err := range []error{
		applied, looked, audited, e.Snapshot(bg, io.Discard),
		e.Read(bg, []store.Cell{cell("late")}, make([]store.Value, 1)),
	} {
		if k := store.KindOf(err); k != store.KindClosed && k != store.KindUnavailable {
			r.t.Errorf("after close: %v", err)
		}
	}
	if err := e.Close(); err != nil {
		r.t.Errorf("close again: %v", err)
	}
}

// clone returns a copy of what is known, to be checked against one of several
// futures.
func (w *world) clone() *world {
	c := newWorld(0)
	c.pairs = w.pairs
	for k, g := range w.grows {
		g := *g
		c.grows[k] = &g
	}
	for k, o := range w.owned {
		c.owned[k] = &owned{states: append([]store.Value(nil), o.states...)}
	}
	for _, op := range w.tokens {
		op := *op
		c.tokens = append(c.tokens, &op)
	}
	for _, r := range w.rows {
		r := *r
		c.rows = append(c.rows, &r)
	}
	return c
}

// TestReadOverFailure has the disk fail for good while a reader is in the midst
// of it: the reader holds what Pebble would let go of under a lock that is never
// free again.
func TestReadOverFailure(t *testing.T) {
	mem := vfs.NewMem()
	e := open(t, mem, engine.Options{})
	do(t, e, add(cell("a"), 1))
	for i := range 4000 { // more blocks than are kept in memory: that of "a", which is read first, is not
		b := batch(add(cell(fmt.Sprintf("z%d %s", i, strings.Repeat("long name ", 40))), 1))
		b.Durability = store.Memory
		doBatch(t, e, b)
	}
	mustClose(t, e)
	var files []string
	entered := make(chan struct{}, 1)
	gate, release := newGate()
	defer release()
	slow, hold := failing(mem, func(op errorfs.Op) bool { // a checkpoint of its own reads the table that it has written
		if name := path.Base(op.Path); op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(name, ".sst") && slices.Contains(files, name) {
			notify(entered)
			<-gate
		}
		return false
	})
	fs, on := failing(slow, writesTo("/disk/MANIFEST"))
	e = open(t, fs, engine.Options{Memory: 1 << 20})
	e.AwaitFilter()
	do(t, e, set(cell("zz"), 1)) // in another block of the same table
	var err error
	if files, err = mem.List(dir + "/disk"); err != nil {
		t.Fatal(err)
	}
	hold.Store(true)
	done := make(chan error, 1)
	go func() { done <- e.Read(bg, []store.Cell{cell("a")}, make([]store.Value, 1)) }()
	<-entered
	hold.Store(false)
	within(t, "the store", func() {
		checkpoint(t, e) // the reader is the last one of what was
		do(t, e, set(cell("zz"), 2))
		on.Store(true)
		wantKind(t, e.Checkpoint(bg), store.KindUnavailable)
	})
	release()
	within(t, "a reader", func() {
		if err := <-done; err != nil {
			wantKind(t, err, store.KindUnavailable)
		}
	})
	within(t, "close", func() { wantKind(t, e.Close(), store.KindUnavailable) })
}
