package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

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
