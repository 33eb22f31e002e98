//go:build unix

package resp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// BenchmarkReact measures what a like costs between the socket's buffers, as
// BenchmarkExecute does: of a million users, who mostly like one of a hundred posts for the
// first time.
func BenchmarkReact(b *testing.B) {
	const depth, sessions, users, posts = 64, 50, 1_000_000, 100
	for _, name := range []string{"SADD", "Q.REACT"} {
		b.Run(name, func(b *testing.B) {
			db, err := quipu.Open(b.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := db.Define(b.Context(), []definition.Definition{{Pattern: "post:*", Choices: []string{"like", "dislike"}}}, quipu.DefineOptions{}); err != nil {
				b.Fatal(err)
			}
			d := New(db, Options{})
			started := make(chan struct{}, 1)
			detours := 0
			w := d.newWorker(nil)
			w.submit = func(c *cycle) {
				c.wake = func() { started <- struct{}{} }
				c.left.Store(1)
				if c.startLane(); len(c.deltas) > 0 {
					c.room()
					c.left.Add(1)
					if !c.db.Port().Start(c.deltas, c.results, c.done) {
						detours++
						c.apply(context.Background(), nil)
						c.done(c.err)
					}
				}
				c.done(nil)
				c.db.Port().Flush(true)
				<-started
				c.finish()
				w.done(c)
			}
			var all []*session
			for range sessions {
				all = append(all, d.open("", "", func() {}))
			}
			var buf []byte
			fill := func() {
				buf = buf[:0]
				for range depth {
					post, user := rand.IntN(posts), rand.IntN(users)
					if name == "SADD" {
						buf = fmt.Appendf(buf, "*3\r\n$4\r\nSADD\r\n$13\r\npost:%08d\r\n$16\r\n%016x\r\n", post, user*0x9e3779b1)
					} else {
						buf = fmt.Appendf(buf, "*4\r\n$7\r\nQ.REACT\r\n$13\r\npost:%08d\r\n$16\r\n%016x\r\n$4\r\nlike\r\n", post, user*0x9e3779b1)
					}
				}
			}
			for i := range posts {
				if _, err := db.React(b.Context(), fmt.Sprintf("post:%08d", i), "nobody", "like"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				for _, s := range all {
					s.out = s.out[:0]
					fill()
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
