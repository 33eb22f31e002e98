package wal_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

var payload = make([]byte, 24)

func openBench(b *testing.B, fs vfs.FS, dir string) *wal.Log {
	b.Helper()
	o := wal.Options{FS: fs, Dir: dir}
	if err := wal.Create(o, 0, 1); err != nil {
		b.Fatal(err)
	}
	l, _, err := wal.Open(o, 0, func(wal.Position, []byte) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

// BenchmarkBeginEnd is what the log itself costs an append that nobody waits
// for.
func BenchmarkBeginEnd(b *testing.B) {
	l := openBench(b, vfs.NewMem(), "wal")
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Room(ctx); err != nil {
			b.Fatal(err)
		}
		f := l.Begin()
		f.Payload = append(f.Payload[:0], payload...)
		l.End(store.Memory)
	}
}

// BenchmarkAppendMemory is the same with everything written and synced in the
// background: the disk sets the pace.
func BenchmarkAppendMemory(b *testing.B) {
	l := openBench(b, vfs.Default, b.TempDir())
	ctx := context.Background()
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := l.Room(ctx); err != nil {
			b.Fatal(err)
		}
		f := l.Begin()
		f.Payload = append(f.Payload, payload...)
		l.End(store.Memory)
	}
}

// BenchmarkCommit is group commit: each committer appends one record and waits
// until it is synced.
func BenchmarkCommit(b *testing.B) {
	for _, committers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("committers=%d", committers), func(b *testing.B) {
			l := openBench(b, vfs.Default, b.TempDir())
			b.ReportAllocs()
			commitAll(b, l, committers)
		})
	}
}

func commitAll(b *testing.B, l *wal.Log, committers int) {
	var group sync.WaitGroup
	for c := range committers {
		group.Go(func() {
			for range (b.N + c) / committers {
				f := l.Begin()
				f.Payload = append(f.Payload, payload...)
				l.End(store.Synced)
				if err := f.Wait(context.Background(), store.Synced); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(l.Stats().Syncs)/b.Elapsed().Seconds(), "syncs/s")
	b.ReportMetric(float64(b.N)/float64(l.Stats().Syncs), "commits/sync")
}
