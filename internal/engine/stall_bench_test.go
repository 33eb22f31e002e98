package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkStall measures how long adds take that come 30,000 times a second,
// whoever waits, while nothing else happens and while changed counters are saved. An
// add's time begins when it was to come. Run it with -benchtime 1x.
func BenchmarkStall(b *testing.B) {
	for _, counters := range []int{1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("counters=%d", counters), func(b *testing.B) {
			e, err := engine.Open(b.TempDir(), engine.Options{Memory: 4 << 30, CheckpointEvery: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			for b.Loop() {
				changeAll(b, e, counters)
				quiet := openLoop(b, e, counters, after(3*time.Second))
				saved := make(chan error, 1)
				go func() { saved <- e.Checkpoint(bg) }()
				began := time.Now()
				busy := openLoop(b, e, counters, func() bool {
					select {
					case err := <-saved:
						if err != nil {
							b.Error(err)
						}
						return true
					default:
						return false
					}
				})
				b.ReportMetric(time.Since(began).Seconds(), "s/checkpoint")
				for name, took := range map[string][]time.Duration{"quiet": quiet, "busy": busy} {
					slices.Sort(took)
					for _, p := range []float64{50, 99, 99.9, 100} {
						i := min(int(float64(len(took))*p/100), len(took)-1)
						b.ReportMetric(float64(took[i])/1e6, fmt.Sprintf("ms-p%v-%s", p, name))
					}
				}
			}
		})
	}
}

func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

func numberedCell(i int) store.Cell {
	return store.Cell{Namespace: "default", Key: fmt.Sprintf("counter:video:%08d", i)}
}

// changeAll adds to so many counters.
func changeAll(b *testing.B, e *engine.Engine, counters int) {
	b.Helper()
	batch := store.Batch{Durability: store.Memory}
	for i := range counters {
		batch.Deltas = append(batch.Deltas, add(numberedCell(i*7919%counters), 1))
		if len(batch.Deltas) == 1000 || i == counters-1 {
			doBatch(b, e, batch)
			batch.Deltas = batch.Deltas[:0]
		}
	}
}

// openLoop adds to counters at a steady rate until it is over, and returns how
// long each add took.
func openLoop(b *testing.B, e *engine.Engine, counters int, over func() bool) (took []time.Duration) {
	b.Helper()
	const gap = time.Second / 30_000
	batches, replies := make([]store.Batch, 1), make([]store.Reply, 1)
	start := time.Now()
	for !over() {
		due := min(int(time.Since(start)/gap)-len(took), store.BatchDeltasMax)
		if due <= 0 {
			<-time.After(gap)
			continue
		}
		batches[0].Deltas = batches[0].Deltas[:0]
		for range due {
			batches[0].Deltas = append(batches[0].Deltas, want(add(numberedCell(rand.IntN(counters)), 1)))
		}
		if e.Start(batches, replies, func(error) {}) {
			e.Flush(true)
		} else if err := e.Apply(bg, batches, replies); err != nil {
			b.Fatal(err)
		}
		now := time.Since(start)
		for range due {
			took = append(took, now-time.Duration(len(took))*gap)
		}
	}
	return took
}
