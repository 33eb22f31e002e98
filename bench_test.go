package quipu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// BenchmarkAddOverhead is what a DB costs over its store: the stub does next to
// nothing.
func BenchmarkAddOverhead(b *testing.B) {
	f := func(name string, o quipu.Options, opts ...quipu.WriteOption) {
		b.Run(name, func(b *testing.B) {
			db := quipu.New(newStub(), o)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.Add(ctx, "likes:post:42", 1, opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	f("plain", quipu.Options{})
	f("policies", quipu.Options{Policies: []quipu.Policy{
		{Pattern: "stock:*"}, {Pattern: "views:*", Durability: quipu.Memory}, {Pattern: "*", Durability: quipu.Written},
	}})
	f("value", quipu.Options{}, quipu.WantValue())
	f("token", quipu.Options{}, quipu.Token("01890a5d-ac96-774b-bcce-b302099a8057"))
}

// BenchmarkAddBatchOverhead is the same for a batch of a hundred events; the
// time is that of one event.
func BenchmarkAddBatchOverhead(b *testing.B) {
	f := func(partitions int) {
		b.Run(fmt.Sprint(partitions, " partitions"), func(b *testing.B) {
			s := newStub()
			s.traits.Partitions = partitions
			db := quipu.New(s, quipu.Options{})
			events := make([]quipu.Event, 100)
			for i := range events {
				events[i] = quipu.Event{Key: fmt.Sprint("likes:post:", i), Delta: 1}
			}
			ctx := b.Context()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%len(events) != 0 {
					continue
				}
				if _, err := db.AddBatch(ctx, events); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	f(1)
	f(64)
}

func openBench(b *testing.B, d quipu.Durability) *quipu.DB {
	b.Helper()
	db, err := quipu.Open(b.TempDir(), quipu.Options{
		Policies: []quipu.Policy{{Pattern: "*", Durability: d}},
		Memory:   1 << 30,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

// One hot counter, one Add after the other in each caller.
func BenchmarkAddHot(b *testing.B) {
	for _, d := range []quipu.Durability{quipu.Memory, quipu.Synced} {
		for _, callers := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", d, callers), func(b *testing.B) {
				db := openBench(b, d)
				b.ReportAllocs()
				b.ResetTimer()
				each(b, callers, func() error {
					_, err := db.Add(context.Background(), "counter:video:00000042", 1)
					return err
				})
			})
		}
	}
}

// One hot counter, acknowledged from memory: with its total alone, with three windows
// besides, and with two dimensions by these.
func BenchmarkAddViews(b *testing.B) {
	three := days("*")
	three.Windows = append(three.Windows,
		definition.Window{Every: width("1h"), Keep: definition.Keep(720 * time.Hour)}, definition.Window{Every: width("1m"), Keep: definition.Keep(24 * time.Hour)})
	twelve := three
	twelve.Dimensions = []definition.Dimension{{By: []string{"country"}}, {By: []string{"platform"}}}
	f := func(name string, definitions []definition.Definition, opts ...quipu.WriteOption) {
		b.Run(name, func(b *testing.B) {
			db := openBench(b, quipu.Memory)
			if _, err := db.Define(b.Context(), definitions, quipu.DefineOptions{}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			each(b, 1, func() error {
				_, err := db.Add(context.Background(), "counter:video:00000042", 1, opts...)
				return err
			})
		})
	}
	f("total", nil)
	f("windows", []definition.Definition{three})
	f("dimensions", []definition.Definition{twelve}, quipu.Dim("country", "DE"), quipu.Dim("platform", "iOS"))
}

// Batches of a thousand keys out of a million, uniform.
func BenchmarkAddBatchUniform(b *testing.B) {
	keys := make([]string, 1_000_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("counter:video:%08d", i)
	}
	db := openBench(b, quipu.Synced)
	events := make([]quipu.Event, 1000)
	for i, key := range keys { // they all exist
		events[i%1000] = quipu.Event{Key: key, Delta: 1}
		if i%1000 == 999 {
			if _, err := db.AddBatch(context.Background(), events); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ResetTimer()
	each(b, 16, func() error {
		events := make([]quipu.Event, 1000)
		for i := range events {
			events[i] = quipu.Event{Key: keys[rand.IntN(len(keys))], Delta: 1}
		}
		_, err := db.AddBatch(context.Background(), events)
		return err
	})
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "adds/s")
}

// each shares b.N calls of f among callers, and reports the CPU time of the
// process for each call.
func each(b *testing.B, callers int, f func() error) {
	b.Helper()
	before := cpu()
	defer func() { b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op") }()
	var wg sync.WaitGroup
	for c := range callers {
		n := b.N / callers
		if c < b.N%callers {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// cpu returns the CPU time the process has used, in nanoseconds.
func cpu() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
