package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
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

func (w *world) checkAudit() error {
	a, err := w.e.Audit(bg)
	if err == nil && len(a.Drift) > 0 {
		err = fmt.Errorf("drift: %+v", a.Drift)
	}
	return err
}
