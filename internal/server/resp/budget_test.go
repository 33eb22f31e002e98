package resp_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/hostile"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

const (
	replyLong   = "the reply is too long: at most 16 MiB\r\n"
	replyMemory = "OOM the memory for replies is used up: try again later\r\n"
)

// describe returns a command that asks for the longest description n times.
func describe(n int) string {
	return fmt.Sprintf("*%d\r\n", n+2) + bulk("COMMAND") + bulk("INFO") + strings.Repeat(bulk("command"), n)
}

// free waits until nobody holds anything.
func (d *door) free(t *testing.T, other *client) {
	t.Helper()
	d.holds(t, other, 0, 0)
}

// holds waits until connections hold so many bytes.
func (d *door) holds(t *testing.T, other *client, least, most float64) {
	t.Helper()
	until(t, fmt.Sprintf("connections hold %v to %v bytes", least, most), func() bool {
		got := d.meter("quipu_resp_buffer_bytes")
		return got >= least && got <= most
	}, func() { other.expect("PING", pong) })
}

// A reply that would be too long is refused while it is made, and the connection is
// good for more.
func TestReplyTooLong(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		c.send(describe(100_000))
		until(t, "it is refused", func() bool { return c.r.Buffered() > 0 || d.meter("quipu_resp_buffer_bytes") > 0 }, func() { other.expect("PING", pong) })
		if got := c.reply(); got != "-ERR "+replyLong {
			t.Errorf("COMMAND INFO: %.100q", got)
		}
		c.expect("PING", pong)

		// A transaction is refused as a whole: what it counts must not depend on what
		// can be told.
		c.expect("MULTI", ok)
		c.expect("INCR a", queued)
		c.send(strings.Repeat(array("COMMAND", "DOCS"), 5000))
		for range 5000 {
			if got := c.reply(); got != queued {
				t.Fatalf("COMMAND DOCS: %.100q", got)
			}
		}
		c.expect("EXEC", "-EXECABORT Transaction discarded because of: "+replyLong)
		c.expect("EXISTS a", zero)

		// Replies nobody wants count while they are made, and not longer.
		c.send(array("CLIENT", "REPLY", "SKIP") + describe(5000) + array("INCR", "a"))
		if got := c.reply(); got != one {
			t.Errorf("after a skipped reply: %.100q", got)
		}
		d.free(t, other)
	})
}

// Replies that wait for a write before them are limited, though each is short.
func TestRepliesBehindWrite(t *testing.T) {
	h, durable := new(storetest.Hooks), make(chan struct{})
	h.On(storetest.OnStart, func(c *storetest.Call) error {
		done := c.Done
		c.Done = func(err error) {
			go func() {
				<-durable
				done(err)
			}()
		}
		return c.Pass()
	})
	d := hookedDoor(t, h, resp.Options{})
	c, other := dial(t, d.addr), dial(t, d.addr)
	const times = 200
	text := strings.Repeat("x", 50_000)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, array("INCR", "a")+strings.Repeat(array("ECHO", text), times))
		sent <- err
	}()
	d.holds(t, other, 200<<10, 1<<20)
	for range 200 {
		other.expect("PING", pong)
	}
	d.holds(t, other, 200<<10, 1<<20)
	close(durable)
	_ = c.SetDeadline(time.Now().Add(patience))
	if got := c.reply(); got != one {
		t.Fatal(got)
	}
	for i := range times {
		if got := c.reply(); got != bulk(text) {
			t.Fatalf("reply %d: %.100q", i, got)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	d.free(t, other)
}

// A reply for which the server has no memory is refused; others who hold less are
// served.
func TestReplyMemory(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Memory = 1 << 20
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		c.send(describe(5000))
		if got := c.reply(); got != "-"+replyMemory {
			t.Errorf("COMMAND INFO: %.100q", got)
		}
		c.expect("INCR a", one)
		other.expect("INCR a", ":2\r\n")
		d.free(t, other)
		if got := d.meter("quipu_resp_evicted_total"); got != 0 {
			t.Errorf("%v connections were closed", got)
		}
	})
}

// What was counted can't be refused any more: if its replies do not fit the
// connection is closed, and those of others are whole.
func TestReplyOverflow(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Memory = 16 << 10
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		other.expect("SET k 1000000000000000000", ok)
		c.send(array("INCR", "a") + array(strings.Fields("MGET"+strings.Repeat(" k", 1000))...) + array("INCR", "b"))
		if got, err := io.ReadAll(c.r); err != nil && len(got) > 0 && string(got) != one {
			t.Errorf("it was told %.100q, %v", got, err)
		}
		if got := d.meter("quipu_resp_overflowed_total"); got != 1 {
			t.Errorf("%v connections overflowed", got)
		}
		other.expect("GET a", bulk("1"))
		d.free(t, other)
	})
}

// What a connection is called and watches is short, and counts.
func TestNamesAndWatches(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		fits, long := strings.Repeat("n", 256), strings.Repeat("n", 257)
		f := func(want string, words ...string) {
			t.Helper()
			if got := c.do(words...); !strings.HasPrefix(got, want) {
				t.Errorf("%.40q: %.100q, want %q", words, got, want)
			}
		}
		f("-ERR Client names can have at most 256 bytes.", "CLIENT", "SETNAME", long)
		f("-ERR Client names can have at most 256 bytes.", "HELLO", "2", "SETNAME", long)
		f("-ERR lib-name can have at most 256 bytes.", "CLIENT", "SETINFO", "lib-name", long)
		f("-ERR lib-ver can have at most 256 bytes.", "CLIENT", "SETINFO", "LIB-VER", long)
		f(null, "CLIENT", "GETNAME")
		f(ok, "CLIENT", "SETNAME", fits)
		f(bulk(fits), "CLIENT", "GETNAME")
		f(ok, "CLIENT", "SETINFO", "lib-name", fits)
		f(ok, "CLIENT", "SETINFO", "lib-ver", fits)
		d.holds(t, other, 3*256, 3*256)
		keys := func(n, from int) []string {
			words := []string{"WATCH"}
			for i := range n {
				words = append(words, fmt.Sprintf("%0*d", 512, from+i))
			}
			return words
		}
		f(ok, keys(400, 0)...)
		d.holds(t, other, 400*512, 256<<10)
		f("-ERR too many keys watched", keys(100, 400)...)
		f(ok, keys(400, 0)...) // those it has
		f(ok, "UNWATCH")
		f(ok, keys(100, 400)...)
		f("+RESET", "RESET")
		f(ok, "CLIENT", "SETINFO", "lib-name", "")
		f(ok, "CLIENT", "SETINFO", "lib-ver", "")
		d.free(t, other)

		// The same word again and again costs no more than once.
		began := time.Now()
		f(ok, append([]string{"WATCH"}, strings.Fields(strings.Repeat("w ", 120_000))...)...)
		f("-ERR Invalid client ID", append([]string{"CLIENT", "LIST", "ID"}, strings.Fields(strings.Repeat("1 ", 120_000)+"x")...)...)
		if took := time.Since(began); took > patience/2 {
			t.Errorf("120,000 words took %v", took)
		}
	})
}

// Through every attack a well-behaved client is served, and what the attackers hold
// stays within its limit.
func TestHostile(t *testing.T) {
	for _, a := range hostile.RESP() {
		t.Run(a.Name, func(t *testing.T) {
			d := open(t, resp.Options{Memory: 32 << 20})
			report, err := hostile.Besiege(t.Context(), a, hostile.Target{RESP: d.addr}, 200*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			// The machine may have much else to do: that p99 is short is a figure of
			// the benchmarks.
			if slowest := report.Quantile(1); slowest > 5*time.Second {
				t.Errorf("a reply took %v", slowest)
			}
			t.Logf("%d replies, p99 %v, slowest %v", len(report), report.Quantile(0.99), report.Quantile(1))
			if got := d.meter("quipu_resp_buffer_bytes"); got > 40<<20 {
				t.Errorf("%v bytes are held", got)
			}
			d.free(t, dial(t, d.addr))
		})
	}
}

// A short command does not wait for long ones, even if many of them come to their
// end at the same time.
func TestShortBeforeLong(t *testing.T) {
	h := new(storetest.Hooks)
	d := hookedDoor(t, h, resp.Options{})
	const attackers, keys = 32, 4000
	words := []string{"MSET"}
	for i := range keys {
		words = append(words, fmt.Sprintf("attacker:%0*d", 50, i), "1")
	}
	long := array(words...)
	var crowd []*client
	for range attackers {
		c := dial(t, d.addr)
		c.send(long[:len(long)-1])
		crowd = append(crowd, c)
	}
	first, short := dial(t, d.addr), dial(t, d.addr)
	short.expect("PING", pong)
	d.holds(t, short, float64(attackers*(len(long)-1<<14)), 64<<20) // all but their ends were read
	var sent storetest.Record
	entered, leave := make(chan struct{}), make(chan struct{})
	h.On(storetest.OnStart, sent.Hook, storetest.Hold(entered, leave))
	first.send(array("INCR", "first"))
	<-entered // the loop sees everything that comes now in its next turn
	for _, c := range crowd {
		c.send(long[len(long)-1:])
	}
	short.send(array("INCR", "short"))
	close(leave)
	if got := short.reply(); got != one {
		t.Errorf("reply %q", got)
	}
	for _, c := range crowd {
		if got := c.reply(); got != ok {
			t.Fatalf("MSET: %q", got)
		}
	}
	batches := sent.Batches()
	i := slices.IndexFunc(batches, func(b store.Batch) bool { return b.Deltas[0].Cell.Key == "short" })
	if i != 1 {
		t.Errorf("the short command is first in batch %d of %d", i, len(batches))
	}
}

// What may take long is made aside, one at a time, also in a transaction. Others are
// served meanwhile.
func TestLongAside(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		begun, end := make(chan struct{}, 2), make(chan struct{})
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		d := serveDoor(t, listen(t, o), db, resp.NewWithWait(db, o, begun, end))
		alone, within, other := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		alone.send(array("WAIT"))
		<-begun
		within.expect("MULTI", ok)
		within.expect("INCR a", queued)
		within.expect("WAIT", queued)
		within.send(array("EXEC"))
		for i := range 100 {
			other.expect("INCR b", fmt.Sprintf(":%d\r\n", i+1))
		}
		other.expect("EXISTS a", zero)
		if len(begun) > 0 {
			t.Error("two long commands at a time")
		}
		close(end)
		if got := alone.reply(); got != ok {
			t.Error(got)
		}
		if got := within.reply(); got != "*2\r\n"+one+ok {
			t.Error(got)
		}
		other.expect("GET a", bulk("1"))
	})
}
