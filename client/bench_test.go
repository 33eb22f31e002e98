package client_test

import (
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	pb "github.com/quipudb/quipu/quipupb"
)

// cpu returns the processor time of this process.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// reportCPU reports the processor time of n operations, which is the same on a
// busy machine.
func reportCPU(b *testing.B, since time.Duration, n int) {
	b.ReportMetric(float64(cpu(b)-since)/float64(n), "cpu-ns/op")
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("page:%d:views", i)
	}
	return keys
}

// BenchmarkWriterAdd adds to 8 keys from 2 goroutines, beside a map and a mutex.
func BenchmarkWriterAdd(b *testing.B) {
	run := func(b *testing.B, add func(key string)) {
		b.ReportAllocs()
		start := cpu(b)
		b.ResetTimer()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				keys := benchKeys(8)
				for i := range b.N / 2 {
					add(keys[i%8])
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		reportCPU(b, start, b.N)
	}
	b.Run("writer", func(b *testing.B) {
		db := memory(quipu.Limits{}, 1)
		w := serve(b, db).writer(client.WriterOptions{Mode: client.Flush})
		ctx := b.Context()
		run(b, func(key string) {
			if err := w.Add(ctx, key, 1); err != nil {
				b.Error(err)
			}
		})
		closeWriter(b, w)
	})
	b.Run("mutex", func(b *testing.B) {
		o := oracle{sums: map[string]int64{}}
		run(b, func(key string) { o.add(key, 1) })
	})
}

// BenchmarkStream sends durable batches of 100 adds on one stream, without
// waiting for each answer. An operation is one add.
func BenchmarkStream(b *testing.B) {
	const size = 100
	for _, keys := range []int{8, 100_000} {
		b.Run(fmt.Sprint("keys ", keys), func(b *testing.B) {
			db, err := quipu.Open(b.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			conn, err := grpc.NewClient(serve(b, db).addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			rpc := pb.NewQuipuClient(conn)
			writer, err := rpc.Enlist(b.Context(), &pb.EnlistRequest{})
			if err != nil {
				b.Fatal(err)
			}
			s, err := rpc.Write(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			names := benchKeys(keys)
			batches := uint64(b.N/size + 1)
			start := cpu(b)
			b.ResetTimer()
			go func() {
				r := &pb.WriteRequest{Writer: writer.Writer, Deltas: make([]int64, size)}
				for i := range r.Deltas {
					r.Deltas[i] = 1
				}
				for i := range batches {
					r.Prev, r.Seq, r.Keys = i, i+1, r.Keys[:0]
					for j := range size {
						r.Keys = append(r.Keys, names[(int(i)*7919+j*31)%keys])
					}
					if err := s.Send(r); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			for i := range batches {
				if r, err := s.Recv(); err != nil || r.Error != nil || r.Mark != i+1 {
					b.Fatalf("answer %v, %v", r, err)
				}
			}
			b.StopTimer()
			reportCPU(b, start, b.N)
			if err := s.CloseSend(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
