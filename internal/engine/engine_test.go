package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// opener makes engines on a file system in memory that can lose what was not
// synced. Options given are kept, so that one suite runs under many, and each store
// that was opened is prepared.
func opener(o engine.Options, prepare ...func(*engine.Engine)) storetest.Opener {
	return func(t testing.TB, c storetest.Config) *storetest.Instance {
		fs := newMemDisk()
		rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
		o := o
		o.Limits, o.Now, o.Elapsed = c.Limits, c.Now, c.Elapsed
		open := func(t testing.TB) *engine.Engine {
			t.Helper()
			o.FS = fs
			e, err := engine.Open("/data", o)
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			for _, f := range prepare {
				f(e)
			}
			t.Cleanup(func() { _ = e.Close() }) // again, or of one that was left behind by a crash
			return e
		}
		e := open(t)
		return &storetest.Instance{
			Store: e,
			Crash: func(t testing.TB) store.Store {
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				e = open(t)
				return e
			},
			Reopen: func(t testing.TB) store.Store {
				if err := e.Close(); err != nil {
					t.Fatalf("close: %v", err)
				}
				e = open(t)
				return e
			},
		}
	}
}

func TestClocks(t *testing.T) { storetest.Clocks(t, opener(engine.Options{})) }

func TestLaws(t *testing.T) {
	t.Run("default", func(t *testing.T) { storetest.Run(t, opener(engine.Options{})) })

	// Options never change answers: tiny segments, checkpoints all the time,
	// and no cell stays in memory.
	restless := engine.Options{SegmentBytes: 4096, CheckpointEvery: time.Microsecond}
	evict := (*engine.Engine).EvictAlways
	t.Run("restless", func(t *testing.T) { storetest.Run(t, opener(restless, evict)) })

	// Nor does it whether it is known which keys are on disk.
	t.Run("unfiltered", func(t *testing.T) {
		storetest.Run(t, opener(restless, evict, func(e *engine.Engine) { e.LimitFilter(0) }))
	})
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b testing.TB, c storetest.Config) *storetest.Instance {
		e, err := engine.Open(b.TempDir(), engine.Options{Limits: c.Limits, Now: c.Now})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := e.Close(); err != nil {
				b.Error(err)
			}
		})
		return &storetest.Instance{Store: e}
	})
}
