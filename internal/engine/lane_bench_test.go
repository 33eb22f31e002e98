//go:build unix

package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// BenchmarkLane measures the processor time of an add in the lane, with its share of
// the sync, in turns of many adds that are started so many at a time: to a million
// counters that are there, in no order, and to counters that it makes.
func BenchmarkLane(b *testing.B) {
	const counters, turn = 1_000_000, 8192
	for _, created := range []bool{false, true} {
		for _, size := range []int{256, 1024, turn} {
			b.Run(fmt.Sprintf("created=%v/adds=%d", created, size), func(b *testing.B) {
				e, err := engine.Open(b.TempDir(), engine.Options{Memory: 4 << 30})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = e.Close() }()
				a := &store.Adds{Namespace: "default"}
				at := 0
				fly := func(number func() int) {
					for range turn / size {
						a.Keys, a.Each = a.Keys[:0], a.Each[:0]
						for range size {
							from := len(a.Keys)
							a.Keys = append(a.Keys, "counter:video:00000000"...)
							n := number()
							for i := len(a.Keys) - 1; n > 0; i-- {
								a.Keys[i] = '0' + byte(n%10)
								n /= 10
							}
							a.Each = append(a.Each, store.Add{N: 1, Times: 1, Key: uint32(from), Size: uint16(len(a.Keys) - from)})
						}
						if !e.StartAdds(a, func(error) {}) {
							b.Fatal("adds were left")
						}
					}
					e.Flush(true)
				}
				next := func() int { at++; return at }
				for !created && at < counters {
					fly(next)
				}
				before := cpuTime(b)
				for b.Loop() {
					if created {
						fly(next)
					} else {
						fly(func() int { return rand.IntN(counters) })
					}
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/turn, "cpu-ns/add")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
