package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

var (
	powerSeed = flag.Uint64("power.seed", 1, "first seed of TestPowerLoss")
	powerRuns = flag.Uint64("power.runs", 0, "number of seeds of TestPowerLoss; 0 is some")
)

// TestPowerLoss pulls the plug at a random file operation of a busy store, opens
// what is left, checks it against everything that was acknowledged or seen,
// finishes what was unknown, goes on, and pulls it again, also while it opens.
func TestPowerLoss(t *testing.T) {
	runs := *powerRuns
	if runs == 0 {
		runs = 25
		if *long {
			runs = 1000
		}
	}
	for seed := *powerSeed; seed < *powerSeed+runs; seed++ {
		w := newWorld(seed)
		for life := range 5 {
			var err error
			within(t, "the store", func() { err = w.live() })
			if err != nil {
				t.Fatalf("life %d: %v\nagain: go test ./internal/engine -run TestPowerLoss -power.seed=%d -power.runs=1", life, err, seed)
			}
		}
	}
}

// A world is a disk and what is known of the store on it.
type world struct {
	rng *rand.Rand
	fs  *memDisk
	e   *engine.Engine

	plan *store.Plan // of counters that have views

	mu      sync.Mutex // guards the fields below
	life    int        // counts those who lived on the disk
	ops     int        // file operations until the plug is pulled
	crashed *memDisk
	kill    bool // the process ends, and not the computer
	closed  bool // nothing was lost, and nothing was written since
	next    int  // makes keys and tokens unique

	grows  map[store.Cell]*growing
	pairs  growing // pair/a and pair/b, which change together
	owned  map[store.Cell]*owned
	tokens []*onceOp
	rows   []*row
	ids    map[int64]bool // values that were returned as unique ones
}

// growing is a counter that only grows.
type growing struct {
	acked int64 // acknowledged as synced
	weak  int64 // acknowledged at any level
	maybe int64 // asked for, and not known to have failed
	seen  int64 // the highest value anyone was told
}

// owned is a counter that one worker sets, lays out and deletes. It has one of the
// states since the last one that is known to be durable.
type owned struct {
	states []store.Value // the durable one, then those that may be
}

// onceOp is a write with a token.
type onceOp struct {
	cell  store.Cell
	token string
	n     int64
	fate  store.TokenState // what anyone was told
	res   store.Result
}

// row is a writer and its batches.
type row struct {
	writer store.Writer
	mark   uint64       // acknowledged
	told   uint64       // the highest mark that a refusal told
	sum    int64        // of the batches up to mark
	open   *store.Batch // the batch that was sent and not answered
	n      int64        // its amount
}

func newWorld(seed uint64) *world {
	return &world{
		plan: planOf(1, viewParts...),
		rng:  rand.New(rand.NewPCG(seed, 0)), fs: newMemDisk(),
		grows: map[store.Cell]*growing{}, owned: map[store.Cell]*owned{}, ids: map[int64]bool{},
	}
}

// note writes down what is known, unless the plug was pulled: what is learnt
// after that is of another world.
func (w *world) note(f func()) (on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed != nil {
		return false
	}
	f()
	return true
}

func (w *world) on() bool { return w.note(func() {}) }

func (w *world) growing(c store.Cell) *growing {
	g := w.grows[c]
	if g == nil {
		g = &growing{}
		w.grows[c] = g
	}
	return g
}

// live opens the store, checks it, uses it, and leaves the disk as a power loss
// at some moment would have, or as a kill would have: then the next life begins
// with what was written and not synced, and must not build on it before it is.
func (w *world) live() error {
	kill := w.rng.IntN(3) == 0
	ops := 1 + w.rng.IntN(150) // while it opens or is checked
	if w.rng.IntN(3) > 0 {
		ops += w.rng.IntN(3000)
	}
	life := w.begin(kill, ops)
	percent := []int{0, 0, 20, 50, 80, 100}[w.rng.IntN(6)]
	dice := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	o := engine.Options{
		FS: noLocks{errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return w.maybeCrash(life, kill, vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: dice})
			}
			return nil
		}))},
		SegmentBytes:    int64(512 + w.rng.IntN(16<<10)),
		CheckpointEvery: []time.Duration{time.Millisecond, time.Hour}[w.rng.IntN(2)],
	}
	e, err := engine.Open(dir, o)
	if err == nil {
		w.e = e
		if w.rng.IntN(2) == 0 {
			e.EvictAlways()
		}
		if err = w.check(); err == nil {
			w.note(func() { w.closed = false })
			err = w.use()
		}
		if w.rng.IntN(2) == 0 {
			w.note(func() { w.crash(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: dice}) })
		}
		err = errors.Join(err, e.Close())
	}
	if w.note(func() { w.crashed, w.closed = cut(w.fs), true }) || !kill {
		if err != nil {
			return err
		}
	} // what goes wrong for one who was killed does not matter
	w.fs = w.crashed
	return nil
}

var errKilled = errors.New("killed")

// begin begins a life, and returns its number.
func (w *world) begin(kill bool, ops int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life++
	w.crashed, w.kill, w.ops = nil, kill, ops
	return w.life
}

// maybeCrash counts the operations of a life, and fails those of one who was
// killed, also later: a goroutine of Pebble's may still run in the next life.
func (w *world) maybeCrash(life int, kill bool, cfg vfs.CrashCloneCfg) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life == w.life && w.crashed == nil {
		if w.ops--; w.ops > 0 {
			return nil
		}
		w.crash(cfg)
	}
	if kill {
		return errKilled
	}
	return nil
}

func (w *world) crash(cfg vfs.CrashCloneCfg) {
	w.crashed = w.fs
	if !w.kill {
		w.crashed = w.fs.CrashClone(cfg)
	}
}

// noLocks is a file system whose locks nobody holds: those of one who was
// killed are free.
type noLocks struct{ vfs.FS }

func (noLocks) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// check compares what the store has with what is known, and settles what is
// not.
func (w *world) check() error {
	for _, f := range []func() error{w.checkTokens, w.checkRows, w.checkCells, w.checkAudit} {
		if !w.on() {
			return nil
		}
		if err := f(); err != nil && w.on() {
			return err
		}
	}
	return nil
}

func (w *world) checkTokens() error {
	want := map[store.Cell]int64{}
	for _, op := range w.tokens {
		f, err := w.e.Lookup(bg, op.cell, op.token)
		if err != nil {
			return fmt.Errorf("look up %s: %w", op.token, err)
		}
		if op.fate == store.TokenUnknown {
			d := once(add(op.cell, op.n), op.token)
			if w.rng.IntN(2) == 0 {
				d = settle(op.cell, op.token)
			}
			r, err := try(w.e, batch(d))
			if err != nil {
				return fmt.Errorf("repeat %s: %w", op.token, err)
			}
			if f.State == store.TokenApplied && !same(f.Result, r.Results[0]) {
				return fmt.Errorf("token %s: looked up %+v, repeated %+v", op.token, f, r.Results[0])
			}
			w.note(func() { op.told(r.Results[0]) })
			f.State, f.Result = op.fate, op.res
		}
		if f.State != op.fate || op.fate == store.TokenApplied && !same(f.Result, op.res) {
			return fmt.Errorf("token %s is %+v, but it was said to be %v with %+v", op.token, f, op.fate, op.res)
		}
		if f.State == store.TokenApplied {
			want[op.cell] += op.n
		}
	}
	for c, n := range want {
		if err := w.exactly(c, n); err != nil {
			return err
		}
	}
	return nil
}

// told notes the first result of a token.
func (op *onceOp) told(r store.Result) {
	op.fate, op.res = store.TokenSettled, r
	if r.Outcome == store.Applied {
		op.fate = store.TokenApplied
	}
}

func same(a, b store.Result) bool {
	return a.Outcome == b.Outcome && a.Before == b.Before && a.After == b.After && a.Version == b.Version
}

func (w *world) exactly(c store.Cell, n int64) error {
	vs := make([]store.Value, 1)
	if err := w.e.Read(bg, []store.Cell{c}, vs); err != nil {
		return err
	}
	if vs[0].N != n && w.on() {
		return fmt.Errorf("%s is %+v, want %d", c.Key, vs[0], n)
	}
	return nil
}

func (w *world) checkRows() error {
	var all int64
	for _, r := range w.rows {
		if r.open != nil {
			if err := w.send(w.e, r); err != nil {
				return err
			}
		}
		reply, err := try(w.e, numbered(r.writer, 1<<40, 1<<41, add(cell("never"), 1)))
		if store.KindOf(err) != store.KindMark || reply.Mark != r.mark {
			return fmt.Errorf("writer %d: mark %d, want %d: %w", r.writer, reply.Mark, r.mark, err)
		}
		if err := w.exactly(r.cell(), r.sum); err != nil {
			return err
		}
		all += r.sum
	}
	return w.exactly(cell("rows"), all)
}

func (r *row) cell() store.Cell { return cell(fmt.Sprint("row/", r.writer)) }

// send sends a writer's open batch until it is answered.
func (w *world) send(s store.Store, r *row) error {
	var told uint64
	w.note(func() { told = r.told })
	reply, err := try(s, *r.open)
	if err != nil {
		return fmt.Errorf("writer %d, batch %d: %w", r.writer, r.open.Seq, err)
	}
	if reply.Mark != r.open.Seq {
		return fmt.Errorf("writer %d: mark %d after batch %d", r.writer, reply.Mark, r.open.Seq)
	}
	if told == r.open.Seq && !reply.Replayed {
		return fmt.Errorf("writer %d: batch %d was in the mark, and was applied again", r.writer, r.open.Seq)
	}
	w.note(func() { r.mark, r.sum, r.open = r.open.Seq, r.sum+r.n, nil })
	return nil
}

func (w *world) checkCells() error {
	var cells []store.Cell
	for c := range w.grows {
		cells = append(cells, c)
	}
	cells = append(cells, cell("pair/a"), cell("pair/b"))
	for c := range w.owned {
		cells = append(cells, c)
	}
	vs := make([]store.Value, len(cells))
	if err := w.e.Read(bg, cells, vs); err != nil {
		return err
	}
	for i, c := range cells {
		var err error
		w.note(func() {
			if o := w.owned[c]; o != nil {
				err = o.became(vs[i])
			} else if g := w.grows[c]; g != nil {
				err = g.became(vs[i], w.closed)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	if err := w.checkViews(true); err != nil {
		return err
	}
	a, b := vs[len(w.grows)], vs[len(w.grows)+1]
	var err error
	w.note(func() { err = w.pairs.became(a, w.closed) })
	if a.N != b.N {
		err = fmt.Errorf("half a batch: %d and %d", a.N, b.N)
	}
	return err
}

// became checks what is left of a counter, which is known from here on.
func (g *growing) became(v store.Value, closed bool) error {
	least := max(g.acked, g.seen)
	if closed {
		least = max(least, g.weak)
	}
	if v.N < least || v.N > g.weak+g.maybe {
		return fmt.Errorf("%d, want %d to %d (acknowledged %d, seen %d)", v.N, least, g.weak+g.maybe, g.acked, g.seen)
	}
	*g = growing{acked: v.N, weak: v.N, seen: v.N}
	return nil
}

func (o *owned) became(v store.Value) error {
	i := slices.IndexFunc(o.states, func(s store.Value) bool {
		return s.Exists == v.Exists && s.N == v.N && s.Layout == v.Layout && (s.Version == v.Version || s.Version == 0)
	})
	if i < 0 {
		return fmt.Errorf("%+v, want one of %+v", v, o.states)
	}
	o.states = []store.Value{v}
	return nil
}

// saw checks what was read of it: those states that may be and are not yet may
// still come.
func (o *owned) saw(v store.Value) error {
	later := o.states
	if err := o.became(v); err != nil {
		return err
	}
	for i, s := range later {
		if s.Exists == v.Exists && s.N == v.N && s.Layout == v.Layout {
			o.states = append(o.states, later[i+1:]...)
			break
		}
	}
	return nil
}

func (w *world) checkAudit() error {
	a, err := w.e.Audit(bg)
	if err == nil && len(a.Drift) > 0 {
		err = fmt.Errorf("drift: %+v", a.Drift)
	}
	return err
}

// use keeps the store busy until the plug is pulled or everybody is done.
func (w *world) use() error {
	steps := 20 + w.rng.IntN(60)
	workers := []func(*rand.Rand) error{
		w.blind, w.blind, w.pair, w.wanted, w.once, w.once, w.look, w.weak, w.read, w.probe, w.save, w.view, w.view,
	}
	for i := range 2 {
		r := &row{}
		workers = append(workers, func(rng *rand.Rand) error { return w.write(rng, r) })
		workers = append(workers, func(rng *rand.Rand) error { return w.own(rng, i) })
	}
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, f := range workers {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		wg.Go(func() {
			for range steps {
				if err := f(rng); !w.on() {
					return
				} else if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// impatient is a context that sometimes ends soon.
func impatient(rng *rand.Rand) (context.Context, context.CancelFunc) {
	if rng.IntN(20) == 0 {
		return context.WithTimeout(bg, time.Duration(rng.IntN(200))*time.Microsecond)
	}
	return bg, func() {}
}

// grow adds to one or two counters and notes what came of it.
func (w *world) grow(rng *rand.Rand, g func() *growing, n int64, b store.Batch) (store.Reply, error) {
	ctx, cancel := impatient(rng)
	defer cancel()
	var before int64
	if !w.note(func() { before = g().weak; g().maybe += n }) {
		return store.Reply{}, nil
	}
	r, err := tryContext(ctx, w.e, b)
	switch {
	case err == nil:
		w.note(func() {
			g().maybe -= n
			g().weak += n
			if r.Durability == store.Synced {
				g().acked = max(g().acked, before+n)
			}
		})
	case store.KindOf(err) == store.KindUnknown: // it stays in maybe
	case ctx.Err() != nil: // it changed nothing
		w.note(func() { g().maybe -= n })
	default:
		return r, err
	}
	if err != nil {
		r.Results = nil
	}
	return r, nil
}

func (w *world) blind(rng *rand.Rand) error {
	c, n := cell(fmt.Sprint("blind/", rng.IntN(4))), int64(1+rng.IntN(9))
	_, err := w.grow(rng, func() *growing { return w.growing(c) }, n, batch(add(c, n)))
	return err
}

func (w *world) pair(rng *rand.Rand) error {
	_, err := w.grow(rng, func() *growing { return &w.pairs }, 1, batch(add(cell("pair/a"), 1), want(add(cell("pair/b"), 1))))
	return err
}

func (w *world) weak(rng *rand.Rand) error {
	c, n := cell("weak"), int64(1+rng.IntN(9))
	b := batch(add(c, n))
	b.Durability = store.Durability(1 + rng.IntN(3))
	_, err := w.grow(rng, func() *growing { return w.growing(c) }, n, b)
	return err
}

func (w *world) wanted(rng *rand.Rand) error {
	c := cell("ids")
	r, err := w.grow(rng, func() *growing { return w.growing(c) }, 1, batch(want(add(c, 1))))
	if err != nil || len(r.Results) == 0 {
		return err
	}
	id := r.Results[0].After
	w.note(func() {
		if w.ids[id] {
			err = fmt.Errorf("id %d was given twice", id)
		}
		w.ids[id] = true
		w.growing(c).seen = max(w.growing(c).seen, id)
	})
	return err
}

func (w *world) once(rng *rand.Rand) error {
	op := &onceOp{cell: cell(fmt.Sprint("once/", rng.IntN(2))), n: int64(1 + rng.IntN(9))}
	if !w.note(func() {
		w.next++
		op.token = fmt.Sprint("token ", w.next)
		w.tokens = append(w.tokens, op)
	}) {
		return nil
	}
	for {
		ctx, cancel := impatient(rng)
		r, err := tryContext(ctx, w.e, batch(once(add(op.cell, op.n), op.token)))
		cancel()
		if err == nil {
			w.note(func() {
				if op.fate != store.TokenUnknown && !same(op.res, r.Results[0]) {
					err = fmt.Errorf("%s: %+v, but it was said to be %+v", op.token, r.Results[0], op.res)
				}
				op.told(r.Results[0])
			})
			return err
		}
		if ctx.Err() == nil {
			return err
		}
	}
}

// look asks what became of tokens, some of which are on their way.
func (w *world) look(rng *rand.Rand) error {
	var op *onceOp
	w.note(func() {
		if n := len(w.tokens); n > 0 {
			op = w.tokens[n-1-rng.IntN(min(n, 4))]
		}
	})
	if op == nil {
		return nil
	}
	f, err := w.e.Lookup(bg, op.cell, op.token)
	if err != nil {
		return err
	}
	w.note(func() {
		switch {
		case op.fate == store.TokenUnknown && f.State == store.TokenApplied:
			op.told(f.Result)
		case f.State == store.TokenApplied && !same(op.res, f.Result):
			err = fmt.Errorf("%s: %+v, but it was said to be %+v", op.token, f.Result, op.res)
		}
	})
	return err
}

func (w *world) write(rng *rand.Rand, r *row) error {
	if r.writer == 0 {
		id, err := store.Enlist(bg, w.e)
		if err != nil {
			return err
		}
		if !w.note(func() { r.writer = id; w.rows = append(w.rows, r) }) {
			return nil
		}
	}
	n := int64(1 + rng.IntN(9))
	b := numbered(r.writer, r.mark, r.mark+1+uint64(rng.IntN(3)), add(r.cell(), n), want(add(cell("rows"), n)))
	if !w.note(func() { r.open, r.n = &b, n }) {
		return nil
	}
	for range rng.IntN(3) { // send it and do not wait for the answer
		ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(50))*time.Microsecond)
		_, err := tryContext(ctx, w.e, b)
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return w.send(w.e, r)
}

// probe learns from refusals.
func (w *world) probe(rng *rand.Rand) error {
	var r *row
	w.note(func() {
		if len(w.rows) > 0 {
			r = w.rows[rng.IntN(len(w.rows))]
		}
	})
	if r == nil {
		return nil
	}
	reply, err := try(w.e, numbered(r.writer, 1<<40, 1<<41, add(cell("never"), 1)))
	if store.KindOf(err) != store.KindMark {
		return fmt.Errorf("a batch that follows nothing: %w", err)
	}
	w.note(func() { r.told = max(r.told, reply.Mark) })
	return nil
}

// own sets, lays out, deletes and lists keys that nobody else writes.
func (w *world) own(rng *rand.Rand, i int) error {
	prefix := fmt.Sprintf("own/%d/", i)
	c := cell(fmt.Sprint(prefix, rng.IntN(8)))
	var next store.Value
	var o *owned
	if !w.note(func() {
		if o = w.owned[c]; o == nil {
			o = &owned{states: []store.Value{{}}}
			w.owned[c] = o
		}
		w.next++
		next = store.Value{N: int64(w.next), Exists: true, Layout: o.states[0].Layout}
	}) {
		return nil
	}
	d, now := set(c, next.N), o.states[0]
	switch rng.IntN(6) {
	case 0:
		d, next = del(c), store.Value{}
	case 1: // blind
		d.Op, d.N = store.OpAdd, next.N-now.N
	case 2:
		d.Guard.Match, d.Guard.Version = true, now.Version
	case 3:
		next.N, next.Layout = now.N, rng.Int64N(3)
		d.Op, d.N = store.OpLayout, next.Layout
	}
	if d.NeedsWhole() || rng.IntN(2) == 0 {
		d = laid(d, now.Layout)
	}
	if !w.note(func() { o.states = append(o.states, next) }) {
		return nil
	}
	r, err := try(w.e, batch(d))
	if err != nil {
		return err
	}
	if r.Results[0].Outcome != store.Applied {
		return fmt.Errorf("%s: %+v was refused: %w", c.Key, d, r.Results[0].Outcome.Err())
	}
	next.Version = r.Results[0].Version
	if !w.note(func() { o.states = []store.Value{next} }) || rng.IntN(3) > 0 {
		return nil
	}
	return w.list(prefix)
}

// list checks that a scan has exactly the keys of an owner.
func (w *world) list(prefix string) error {
	got, err := w.e.Scan(bg, store.Range{Namespace: cell("").Namespace, Prefix: prefix}, 100)
	if err != nil {
		return err
	}
	have := map[string]store.Value{}
	for _, entry := range got {
		have[entry.Key] = entry.Value
	}
	w.note(func() {
		for c, o := range w.owned {
			if c.Key[:min(len(c.Key), len(prefix))] == prefix && have[c.Key] != o.states[0] {
				err = fmt.Errorf("list has %s as %+v, want %+v", c.Key, have[c.Key], o.states[0])
			}
		}
	})
	return err
}

// read reads everything and remembers what it saw.
func (w *world) read(*rand.Rand) error {
	if err := w.checkViews(false); err != nil {
		return err
	}
	cells := []store.Cell{cell("pair/a"), cell("pair/b")}
	var before []int64
	w.note(func() {
		for c := range w.grows {
			cells = append(cells, c)
		}
		for _, c := range cells[2:] {
			before = append(before, w.grows[c].seen)
		}
	})
	vs := make([]store.Value, len(cells))
	if err := w.e.Read(bg, cells, vs); err != nil {
		return err
	}
	if vs[0].N != vs[1].N {
		return fmt.Errorf("half a batch was seen: %d and %d", vs[0].N, vs[1].N)
	}
	var err error
	w.note(func() {
		w.pairs.seen = max(w.pairs.seen, vs[0].N)
		for i, c := range cells[2:] {
			v, g := vs[2+i].N, w.grows[c]
			if v < before[i] {
				err = fmt.Errorf("%s went back from %d to %d", c.Key, before[i], v)
			}
			if c.Key != "weak" { // what is seen of it may be lost
				g.seen = max(g.seen, v)
			}
		}
	})
	return err
}

// save makes checkpoints, some of which are given up half way.
func (w *world) save(rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(3000))*time.Microsecond)
	defer cancel()
	var err error
	switch rng.IntN(6) {
	case 0:
		var a store.Audit
		if a, err = w.e.Audit(ctx); err == nil && len(a.Drift) > 0 {
			return fmt.Errorf("drift: %+v", a.Drift)
		}
	case 1:
		err = w.e.Checkpoint(bg)
	default:
		err = w.e.Checkpoint(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
