//go:build unix

package resp

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/quipudb/quipu"
)

// BenchmarkPFAdd measures what a visit costs between the socket's buffers, as BenchmarkExecute does: a million
// people visit a hundred pages, one after the other.
func BenchmarkPFAdd(b *testing.B) {
	const sessions, users, pages = 50, 1_000_000, 100
	for _, depth := range []int{16, 64} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			db, err := quipu.Open(b.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			d := New(db, Options{})
			detours := 0
			w := startingWorker(d, &detours)
			var all []*session
			for range sessions {
				all = append(all, d.open("", "", func() {}, func() {}))
			}
			var buf []byte
			n := 0
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				for _, s := range all {
					s.out, buf = s.out[:0], buf[:0]
					for range depth {
						buf = fmt.Appendf(buf, "*3\r\n$5\r\nPFADD\r\n$7\r\npage:%02d\r\n$16\r\nuser-%011d\r\n", n%pages, n/pages%users)
						n++
					}
					for used := 0; used < len(buf); {
						used += w.gather(s, buf[used:])
						if s.job != nil {
							s.job(context.Background())
							s.job = nil
						}
					}
				}
				w.flushAll()
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N*depth*sessions), "cpu-ns/command")
			b.ReportMetric(float64(detours)/float64(b.N), "detours/op")
		})
	}
}

// BenchmarkPFCount measures a count of ten sketches together, of 100,000 items each.
func BenchmarkPFCount(b *testing.B) {
	db, err := quipu.Open(b.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	d, detours := New(db, Options{}), 0
	w := startingWorker(d, &detours)
	s := d.open("", "", func() {}, func() {})
	do := func(buf []byte) {
		for used := 0; used < len(buf); {
			used += w.gather(s, buf[used:])
			if s.job != nil {
				s.job(context.Background())
				s.job = nil
			}
		}
		w.flushAll()
		s.out = s.out[:0]
	}
	for i := range 1_000 * 10 {
		buf := fmt.Appendf(nil, "PFADD page:%02d", i/1000)
		for j := range 100 {
			buf = fmt.Appendf(buf, " user-%d", i*50+j)
		}
		do(append(buf, "\r\n"...))
	}
	count := []byte("PFCOUNT page:00 page:01 page:02 page:03 page:04 page:05 page:06 page:07 page:08 page:09\r\n")
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		do(count)
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/command")
}
