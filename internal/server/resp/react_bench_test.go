//go:build unix

package resp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
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
			detours := 0
			w := startingWorker(d, &detours)
			var all []*session
			for range sessions {
				all = append(all, d.open("", "", func() {}, func() {}))
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

// startingWorker returns a worker that applies each cycle as the loop does, and notes how
// often the store would have had to wait.
func startingWorker(d *Door, detours *int) *worker {
	started := make(chan struct{}, 1)
	w := d.newWorker(nil)
	w.submit = func(c *cycle) {
		c.wake = func() { started <- struct{}{} }
		c.left.Store(1)
		if c.startLane(); len(c.deltas) > 0 {
			c.room()
			c.left.Add(1)
			if !c.db.Port().Start(c.deltas, c.results, c.done) {
				*detours++
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
	return w
}

// TestReactionsStart sends many reactions of new users at once: however they come, the
// store need not wait for anything but the sync.
func TestReactionsStart(t *testing.T) {
	db, err := quipu.Open(t.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Define(t.Context(), []definition.Definition{{Pattern: "post:*", Choices: []string{"like", "dislike"}}}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.React(t.Context(), "post:1", "nobody", "like"); err != nil {
		t.Fatal(err)
	}
	const users = 2*reactionsMost + 7
	d, detours := New(db, Options{}), 0
	w := startingWorker(d, &detours)
	s := d.open("", "", func() {}, func() {})
	for _, command := range []string{"Q.REACT post:1 u%d dislike\r\n", "SADD post:1 u%d\r\n", "Q.UNREACT post:1 u%d\r\n"} {
		var buf []byte
		for i := range users {
			buf = fmt.Appendf(buf, command, i)
		}
		for used := 0; used < len(buf); {
			used += w.gather(s, buf[used:])
		}
		w.flushAll()
		if got := strings.Count(string(s.out), ":1\r\n"); got != users || len(s.out) != 4*users || detours != 0 {
			t.Fatalf("%.20q: %d of %d replies are 1, and %d cycles had to wait: %.200q", command, got, users, detours, s.out)
		}
		s.out = s.out[:0]
	}
}
