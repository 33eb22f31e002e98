//go:build unix

package resp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu"
)

// BenchmarkExecute measures what a command costs between the socket's buffers:
// pipelines of 64 from one connection, on the embedded store, 50 of them to a
// cycle, as the loop gathers them.
func BenchmarkExecute(b *testing.B) {
	const depth, sessions = 64, 50
	hot := strings.Repeat("*2\r\n$4\r\nINCR\r\n$16\r\nkey:000000000001\r\n", depth)
	var uniform, get, set strings.Builder
	for i := range depth {
		fmt.Fprintf(&uniform, "*2\r\n$4\r\nINCR\r\n$16\r\nkey:%012d\r\n", i)
		fmt.Fprintf(&get, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012d\r\n", i)
		fmt.Fprintf(&set, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$2\r\n42\r\n", i)
	}
	for name, stream := range map[string]string{
		"incr-hot": hot, "get-hot": strings.ReplaceAll(hot, "$4\r\nINCR", "$3\r\nGET"),
		"incr": uniform.String(), "get": get.String(), "set": set.String(),
	} {
		b.Run(name, func(b *testing.B) {
			db, err := quipu.Open(b.TempDir(), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			d := New(db, Options{})
			started := make(chan struct{}, 1)
			w := d.newWorker(nil)
			w.submit = func(c *cycle) {
				c.wake = func() { started <- struct{}{} }
				c.left.Store(1)
				if c.startLane(); len(c.deltas) > 0 {
					c.room()
					c.left.Add(1)
					if !c.db.Port().Start(c.deltas, c.results, c.done) {
						c.apply(context.Background(), nil)
						c.done(c.err)
					}
				}
				c.done(nil)
				c.db.Port().Flush(true)
				<-started
				if err := c.fault.Load(); err != nil {
					b.Fatal(*err)
				}
				c.finish()
				w.done(c)
			}
			var all []*session
			for range sessions {
				all = append(all, d.open("", "", func() {}, func() {}))
			}
			buf := []byte(stream)
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				for _, s := range all {
					s.out = s.out[:0]
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
		})
	}
}

// cpu returns the time that the process has used: on a busy machine the clock
// tells little.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
