//go:build unix

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkUniform measures the processor time of an add that wants its value, without
// the waiting, in batches of several sizes: to a million counters that are there, in no
// order, and to counters that it makes.
func BenchmarkUniform(b *testing.B) {
	const counters = 1_000_000
	for _, created := range []bool{false, true} {
		for _, size := range []int{16, 64, 256, 1000} {
			b.Run(fmt.Sprintf("created=%v/batch=%d", created, size), func(b *testing.B) {
				e, err := engine.Open(b.TempDir(), engine.Options{Memory: 2 << 30})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = e.Close() }()
				f := newFlight(e, size)
				for i := 0; !created && i < counters; i += size {
					f.fly(b, func(n int) int { return i + n })
				}
				at := 0
				before := cpuTime(b)
				for b.Loop() {
					f.fly(b, func(int) int {
						if at++; created {
							return at
						}
						return rand.IntN(counters)
					})
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/float64(size), "cpu-ns/delta")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// A flight is a batch of adds whose keys are written anew for each use, as a server
// has them from its clients.
type flight struct {
	e       *engine.Engine
	batches []store.Batch
	replies []store.Reply
	keys    [][]byte
}

func newFlight(e *engine.Engine, size int) *flight {
	f := &flight{e: e, batches: []store.Batch{{Durability: store.Memory}}, replies: make([]store.Reply, 1)}
	for range size {
		key := []byte("counter:video:00000000")
		f.keys = append(f.keys, key)
		f.batches[0].Deltas = append(f.batches[0].Deltas, store.Delta{
			Cell: store.Cell{Namespace: "default", Key: unsafe.String(&key[0], len(key))}, Op: store.OpAdd, N: 1, Want: true,
		})
	}
	return f
}

func (f *flight) fly(b *testing.B, number func(i int) int) {
	for i, key := range f.keys {
		n := number(i)
		for at := len(key) - 1; at >= len(key)-8; at-- {
			key[at] = '0' + byte(n%10)
			n /= 10
		}
	}
	if f.e.Start(f.batches, f.replies, func(error) {}) {
		return
	}
	if err := f.e.Apply(b.Context(), f.batches, f.replies); err != nil {
		b.Fatal(err)
	}
}

// cpuTime returns the processor time that the process has used, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
