package wal_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

var (
	crashSeed = flag.Uint64("crash.seed", 1, "first seed of TestPowerLoss")
	crashRuns = flag.Uint64("crash.runs", 150, "number of seeds of TestPowerLoss")
)

// TestPowerLoss pulls the plug at a random file operation of a random history,
// opens what is left, goes on, and pulls it again. What was acknowledged as
// synced has to be replayed, in order and once, and nothing that was not
// appended.
func TestPowerLoss(t *testing.T) {
	for seed := *crashSeed; seed < *crashSeed+*crashRuns; seed++ {
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewCrashableMem()}
		if err := wal.Create(options(w.fs), 0, 1); err != nil {
			t.Fatal(err)
		}
		for life := range 6 {
			if err := w.live(); err != nil {
				t.Fatalf("life %d: %v\nreplay: go test ./internal/wal -run TestPowerLoss -crash.seed=%d -crash.runs=1", life, err, seed)
			}
		}
	}
}

// A world is a disk and what is known of the log on it.
type world struct {
	t   *testing.T
	rng *rand.Rand
	fs  *vfs.MemFS

	mu      sync.Mutex // guards the fields below
	all     []record   // appended since the checkpoint, in order; those after synced may be lost
	synced  int        // how many of them were acknowledged
	saved   wal.Position
	next    int // the next id
	ops     int // file operations until the plug is pulled
	crashed *vfs.MemFS
	known   struct {
		synced int
		saved  wal.Position
	}
}

// live opens the log, checks it, uses it, and leaves the disk as a power loss
// at some moment would have.
func (w *world) live() error {
	w.ops, w.crashed = 1+w.rng.IntN(120), nil
	percent := []int{0, 0, 20, 50, 80, 100}[w.rng.IntN(6)]
	dice := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	o := options(errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			w.maybeCrash(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: dice})
		}
		return nil
	})))
	o.SegmentBytes = int64(300 + w.rng.IntN(8000))
	l, r, got, err := tryOpen(o, w.saved)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := w.check(r, got); err != nil {
		_ = l.Close()
		return err
	}
	if err := w.use(l); err != nil {
		_ = l.Close()
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed == nil { // it lived to be closed
		w.crashed = w.fs.CrashClone(vfs.CrashCloneCfg{})
		w.known.synced, w.known.saved = len(w.all), w.saved
	}
	w.fs, w.synced, w.saved = w.crashed, w.known.synced, w.known.saved
	return nil
}

func (w *world) maybeCrash(cfg vfs.CrashCloneCfg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops--
	if w.ops == 0 {
		w.known.synced, w.known.saved = w.synced, w.saved
		w.crashed = w.fs.CrashClone(cfg)
	}
}

// check compares what was replayed with what had been appended, and forgets
// what was lost.
func (w *world) check(r wal.Recovery, got []record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := 0
	for first < len(w.all) && w.all[first].end() <= w.saved {
		first++
	}
	// The first frame may begin before the checkpoint.
	for len(got) > 0 && got[0].end() <= w.saved {
		got = got[1:]
	}
	for i, g := range got {
		if first+i >= len(w.all) || w.all[first+i] != g {
			return fmt.Errorf("replayed %v as number %d of %v", g, i, w.all[first:])
		}
	}
	if first+len(got) < w.synced {
		return fmt.Errorf("replayed %d of %d acknowledged records; found %+v", len(got), w.synced-first, r)
	}
	w.all = w.all[:first+len(got)]
	w.synced = len(w.all) // Open made them durable
	return nil
}

// use appends, waits, makes checkpoints and releases segments.
func (w *world) use(l *wal.Log) error {
	for range w.rng.IntN(60) {
		level := []wal.Level{store.Memory, store.Written, store.Synced, store.Synced}[w.rng.IntN(4)]
		f := l.Begin()
		w.mu.Lock()
		for range 1 + w.rng.IntN(5)*w.rng.IntN(8) {
			r := record{pos: f.Pos(), id: w.next}
			w.next++
			f.Payload = append(f.Payload, r.bytes()...)
			w.all = append(w.all, r)
		}
		n := len(w.all)
		w.mu.Unlock()
		l.End(level)
		if err := f.Wait(w.t.Context(), level); err != nil {
			return err
		}
		if level == store.Synced {
			w.mu.Lock()
			w.synced = n
			w.mu.Unlock()
		}
		if w.rng.IntN(8) == 0 {
			if err := w.checkpoint(l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) checkpoint(l *wal.Log) error {
	w.mu.Lock()
	if w.synced > 0 {
		w.saved = w.all[w.synced-1].end()
	}
	w.mu.Unlock()
	return l.Release(w.saved)
}
