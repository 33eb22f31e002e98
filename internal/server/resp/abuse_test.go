package resp_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// meter returns one of the door's meters.
func (d *door) meter(name string) (value float64) {
	d.Meters(func(n, _ string, v float64) {
		if n == name {
			value = v
		}
	})
	return value
}

func TestPipelines(t *testing.T) {
	run := func(t *testing.T, c *client) {
		// Everything in one write: replies in order, and each value once.
		var raw, want strings.Builder
		value := 0
		for i := range 2000 {
			switch i % 7 {
			case 0, 1, 2, 3:
				raw.WriteString(array("INCR", "a"))
				value++
				fmt.Fprintf(&want, ":%d\r\n", value)
			case 4:
				raw.WriteString(array("GET", "a"))
				want.WriteString(bulk(strconv.Itoa(value)))
			case 5:
				raw.WriteString("PING\r\n" + array("NOSUCH") + array("INCRBY", "b", "x"))
				want.WriteString("+PONG\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n" + notInteger)
			case 6:
				raw.WriteString(array("MULTI") + array("DECR", "a") + array("EXEC") + array("RENAME", "a", "a") + array("Q.ADD", "a", "1", "ID", fmt.Sprint(i)))
				fmt.Fprintf(&want, "+OK\r\n+QUEUED\r\n*1\r\n:%d\r\n+OK\r\n:%d\r\n", value-1, value)
			}
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(c, raw.String())
		}()
		got := make([]byte, want.Len())
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(c.r, got); err != nil {
			t.Fatal(err)
		}
		<-sent
		if string(got) != want.String() {
			a, b := strings.Split(string(got), "\r\n"), strings.Split(want.String(), "\r\n")
			for i := range a {
				if a[i] != b[i] {
					t.Fatalf("line %d of the replies: %q, want %q", i, a[i], b[i])
				}
			}
		}
	}
	story(t, func(c *client) { run(c.t.(*testing.T), c) })
}

// Additions that are merged overflow one by one.
func TestMergedOverflow(t *testing.T) {
	story(t, func(c *client) {
		c.expect("SET a 9223372036854775800", ok)
		raw := ""
		for range 10 {
			raw += array("INCR", "a")
		}
		c.send(raw + array("SET", "a", "0") + array("INCR", "a"))
		for i := range 10 {
			want := fmt.Sprintf(":%d\r\n", 9223372036854775801+i)
			if i >= 7 {
				want = overflow
			}
			if got := c.reply(); got != want {
				t.Errorf("reply %d: %q, want %q", i, got, want)
			}
		}
		if got := c.reply() + c.reply(); got != ok+one {
			t.Errorf("after it: %q", got)
		}
		c.expect("SET a 9223372036854775806", ok)
		c.send(array("INCRBY", "a", "5") + array("INCRBY", "a", "0") + array("INCR", "a") + array("INCR", "a"))
		if got := c.reply() + c.reply() + c.reply() + c.reply(); got != overflow+":9223372036854775806\r\n:9223372036854775807\r\n"+overflow {
			t.Errorf("with a zero: %q", got)
		}
	})
}

// Replies to INCR are unique and exact, however many connections ask.
func TestUniqueValues(t *testing.T) {
	run := func(t *testing.T, d *door) {
		const clients, each = 20, 500
		seen := make([]bool, clients*each+1)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range clients {
			c := dial(t, d.addr)
			wg.Go(func() {
				_, _ = io.WriteString(c, strings.Repeat(array("INCR", "a"), each))
				_ = c.SetDeadline(time.Now().Add(patience))
				last := 0
				for range each {
					r, err := resp.ReadReply(c.r)
					n, e := strconv.Atoi(strings.Trim(r, ":\r\n"))
					mu.Lock()
					if err != nil || e != nil || n <= last || n >= len(seen) || seen[n] {
						t.Errorf("reply %q after %d, %v", r, last, err)
						mu.Unlock()
						return
					}
					seen[n] = true
					mu.Unlock()
					last = n
				}
			})
		}
		wg.Wait()
		if count, err := d.db.Read(t.Context(), "a"); err != nil || count.Value != clients*each {
			t.Errorf("in the end %+v, %v", count, err)
		}
	}
	transports(t, func(t *testing.T, o resp.Options) { run(t, open(t, o)) })
	t.Run("embedded", func(t *testing.T) { run(t, openEmbedded(t)) })
}

func TestGarbage(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		good := dial(t, d.addr)
		f := func(raw, want string) {
			t.Helper()
			c := dial(t, d.addr)
			c.send(raw)
			if got := c.reply(); got != want {
				t.Errorf("%.50q: %q, want %q", raw, got, want)
			}
			c.ended()
			good.expect("PING", "+PONG\r\n")
		}
		f("*1\r\n$2147483648\r\n", "-ERR Protocol error: invalid bulk length\r\n")
		f("*1\r\n:5\r\n", "-ERR Protocol error: expected '$', got ':'\r\n")
		f("*nonsense\r\n", "-ERR Protocol error: invalid multibulk length\r\n")
		f(strings.Repeat("x", 70_000), "-ERR Protocol error: too big inline request\r\n")
		f("SET a 'b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n")
		if got := d.meter("quipu_resp_protocol_errors_total"); got != 5 {
			t.Errorf("protocol errors metered: %v", got)
		}
		// What came before garbage is executed and answered.
		c := dial(t, d.addr)
		c.send(array("INCR", "before") + "*x\r\n")
		if got := c.reply() + c.reply(); got != one+"-ERR Protocol error: invalid multibulk length\r\n" {
			t.Errorf("a command and garbage: %q", got)
		}
		c.ended()
		// A command longer than all.
		c = dial(t, d.addr)
		go func() {
			_, _ = io.WriteString(c, "*20\r\n"+strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 9))
		}()
		_ = c.SetDeadline(time.Now().Add(patience))
		if got, err := resp.ReadReply(c.r); err == nil && got != "-ERR Protocol error: too big query\r\n" {
			t.Errorf("too long: %q", got)
		} else if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			t.Error("too long: it is still taken")
		}
		if got := d.meter("quipu_resp_protocol_errors_total"); got != 7 {
			t.Errorf("protocol errors metered: %v", got)
		}
		// Browsers are shown the door, with whatever they bring along.
		for _, head := range []string{"POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n"} {
			c = dial(t, d.addr)
			c.send(head + "\r\nSET browser 1\r\n")
			rest, _ := io.ReadAll(c)
			if strings.Contains(string(rest), "OK") {
				t.Errorf("a browser was served: %q", rest)
			}
		}
		good.expect("EXISTS browser", zero)
	})
}

// Half a command waits for its other half, and costs only its own bytes.
func TestHalfFrames(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		for _, b := range []byte(array("INCRBY", "a", "5")) {
			c.send(string(b))
			other.expect("PING", "+PONG\r\n")
		}
		if got := c.reply(); got != ":5\r\n" {
			t.Errorf("byte by byte: %q", got)
		}
		c.send("*2\r\n$4\r\nINC")
		other.expect("GET a", bulk("5"))
		_ = c.Close()
		other.expect("GET a", bulk("5"))
	})
}

// A client that only closes its own side gets its replies.
func TestHalfClosed(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c := dial(t, d.addr)
		c.send(array("INCR", "a") + array("KEYS", "*") + array("INCR", "a"))
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := c.reply() + c.reply() + c.reply(); got != one+"*1\r\n"+bulk("a")+":2\r\n" {
			t.Errorf("replies: %q", got)
		}
		c.ended()
	})
}

// A client that does not read stops being served, and when all of its like hold
// too much, the worst is closed.
func TestNeverReads(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Memory = 2 << 20
		d := open(t, o)
		good := dial(t, d.addr)
		if got := good.do("SET", strings.Repeat("k", 500), "1"); got != ok {
			t.Fatal(got)
		}
		// COMMAND is long.
		ask := strings.Repeat("COMMAND\r\n", 1000)
		var wg sync.WaitGroup
		for range 20 {
			c := dial(t, d.addr)
			if err := c.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				_ = c.SetWriteDeadline(time.Now().Add(patience))
				for {
					if _, err := io.WriteString(c, ask); err != nil {
						return // closed, or nobody takes it
					}
				}
			})
		}
		for until := time.Now().Add(patience); d.meter("quipu_resp_evicted_total") == 0; {
			good.expect("PING", "+PONG\r\n")
			if time.Now().After(until) {
				t.Fatal("nobody was closed")
			}
		}
		for i := range 100 {
			good.expect("INCR a", fmt.Sprintf(":%d\r\n", i+1))
		}
		for until := time.Now().Add(patience); d.meter("quipu_resp_connections") > 10; {
			good.expect("PING", "+PONG\r\n")
			if time.Now().After(until) {
				t.Fatalf("%v connections are open, of which each holds its limit", d.meter("quipu_resp_connections"))
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// A client that reads slowly gets everything in the end, and holds little
// meanwhile.
func TestSlowReader(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		const asked = 2000
		c.send(strings.Repeat("COMMAND\r\n", asked) + "PING\r\n")
		for until := time.Now().Add(patience); d.meter("quipu_resp_buffer_bytes") < 256<<10; {
			other.expect("PING", "+PONG\r\n")
			if time.Now().After(until) {
				t.Fatal("the replies do not pile up")
			}
		}
		for range 100 {
			other.expect("PING", "+PONG\r\n")
			if got := d.meter("quipu_resp_buffer_bytes"); got > 2<<20 {
				t.Fatalf("%v bytes are held", got)
			}
		}
		want := other.line("COMMAND")
		for i := range asked {
			if got := c.reply(); got != want {
				t.Fatalf("reply %d: %.50q", i, got)
			}
		}
		if got := c.reply(); got != "+PONG\r\n" {
			t.Errorf("the last: %q", got)
		}
	})
}

// The same for replies that wait for the store.
func TestSlowReaderOfWrites(t *testing.T) {
	run := func(t *testing.T, d *door) {
		c, other := dial(t, d.addr), dial(t, d.addr)
		const asked, keys = 6000, 300
		raw := array("MULTI") + array("INCR", "a") + array(strings.Fields("MGET"+strings.Repeat(" x", keys))...) + array("EXEC")
		go func() { _, _ = io.WriteString(c, strings.Repeat(raw, asked)) }()
		// How much it may have unsent depends on how long turns take. That it has all
		// it may shows in that others are served, and it is not.
		last, same := null, 0
		until(t, "the replies pile up", func() bool { return same == 100 }, func() {
			now := other.line("GET a")
			if same++; now != last || now == null {
				last, same = now, 0
			}
		})
		if got := d.meter("quipu_resp_buffer_bytes"); got > 2<<20 {
			t.Errorf("%v bytes are held", got)
		}
		if last == bulk(strconv.Itoa(asked)) {
			t.Error("all of its commands were executed")
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		for i := range asked {
			want := fmt.Sprintf("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:%d\r\n*%d\r\n", i+1, keys) + strings.Repeat(null, keys)
			if got := c.reply() + c.reply() + c.reply() + c.reply(); got != want {
				t.Fatalf("reply %d: %.100q", i+1, got)
			}
		}
	}
	transports(t, func(t *testing.T, o resp.Options) { run(t, open(t, o)) })
	t.Run("embedded", func(t *testing.T) { run(t, openEmbedded(t)) })
}

// Those who send much of a command and never its end are closed when they hold
// too much together.
func TestHalfFramesTogether(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Memory = 4 << 20
		d := open(t, o)
		good := dial(t, d.addr)
		half := "*2\r\n$4\r\nINCR\r\n$1048576\r\n" + strings.Repeat("x", 1000_000)
		for range 20 {
			c := dial(t, d.addr)
			go func() { _, _ = io.WriteString(c, half) }()
		}
		for until := time.Now().Add(patience); d.meter("quipu_resp_evicted_total") < 10; {
			good.expect("PING", "+PONG\r\n")
			if time.Now().After(until) {
				t.Fatalf("%v were closed", d.meter("quipu_resp_evicted_total"))
			}
		}
	})
}

// Of many that rename to one new name at the same time, one does.
func TestRenameRace(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		var clients []*client
		for range 10 {
			clients = append(clients, dial(t, d.addr))
		}
		for range 100 {
			for i, c := range clients {
				c.expect(fmt.Sprintf("SET from:%d 1", i), ok)
			}
			for i, c := range clients {
				c.send(array("RENAMENX", fmt.Sprintf("from:%d", i), "to"))
			}
			done := 0
			for _, c := range clients {
				if c.reply() == one {
					done++
				}
			}
			if done != 1 {
				t.Fatalf("%d renamed", done)
			}
			clients[0].expect("DEL to", one)
		}
	})
}

func TestManyConnections(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		const connections = 2000
		clients := make([]*client, connections)
		for i := range clients {
			clients[i] = dial(t, d.addr)
		}
		for _, c := range clients {
			c.send(array("INCR", "a"))
		}
		for _, c := range clients {
			if got := c.reply(); got[0] != ':' {
				t.Fatalf("reply %q", got)
			}
		}
		if count, err := d.db.Read(t.Context(), "a"); err != nil || count.Value != connections {
			t.Errorf("%+v, %v", count, err)
		}
		if got := d.meter("quipu_resp_connections"); got != connections {
			t.Errorf("%v connections metered", got)
		}
		if got := d.meter("quipu_resp_buffer_bytes"); got > connections*(1<<10) {
			t.Errorf("%v bytes are held", got)
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.ConnectionsMax = 2
		d := open(t, o)
		a, b := dial(t, d.addr), dial(t, d.addr)
		a.expect("PING", "+PONG\r\n")
		b.expect("PING", "+PONG\r\n")
		c := dial(t, d.addr)
		_ = c.SetDeadline(time.Now().Add(patience))
		if got := c.reply(); got != resp.Refusal {
			t.Errorf("the third: %q", got)
		}
		c.ended()
		a.expect("CONFIG GET maxclients", "*2\r\n"+bulk("maxclients")+bulk("2"))
		a.expect("QUIT", ok)
		a.ended()
		// The place is free again, soon.
		for until := time.Now().Add(patience); ; {
			c := dial(t, d.addr)
			c.send("PING\r\n")
			if got, _ := resp.ReadReply(c.r); got == "+PONG\r\n" {
				break
			}
			if time.Now().After(until) {
				t.Fatal("the place was not given back")
			}
		}
	})
}

func TestShutdown(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		idle, busy := dial(t, d.addr), dial(t, d.addr)
		idle.expect("PING", "+PONG\r\n")
		busy.send(strings.Repeat(array("INCR", "a"), 100))
		if got := busy.reply(); got != one {
			t.Fatalf("reply %q", got)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := 2; i <= 100; i++ {
			if got := busy.reply(); got != fmt.Sprintf(":%d\r\n", i) {
				t.Fatalf("reply %q", got)
			}
		}
		busy.ended()
		idle.ended()
		if _, err := net.Dial("tcp", d.addr); err == nil {
			t.Error("it still accepts")
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		c.expect("CONFIG SET timeout 1", ok)
		c.ended()
	})
}

// The same over TLS, which has a goroutine for each connection.
func TestTLS(t *testing.T) {
	h := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	defer h.Close()
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	l, _, err := server.Listen{Addr: "127.0.0.1:0", ConnectionsMax: 10, TLS: h.TLS}.Open()
	if err != nil {
		t.Fatal(err)
	}
	d := serveOn(t, l, db, resp.Options{})
	raw, err := (&tls.Dialer{Config: h.Client().Transport.(*http.Transport).TLSClientConfig}).DialContext(t.Context(), "tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	c := &client{t, raw, bufio.NewReader(raw)}
	c.expect("INCR a", one)
	c.send(strings.Repeat(array("INCR", "a"), 1000))
	for i := range 1000 {
		if got := c.reply(); got != fmt.Sprintf(":%d\r\n", i+2) {
			t.Fatalf("reply %q", got)
		}
	}
}

// A store with partitions can't change counters of different ones in one step.
func TestPartitions(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{Partitions: 8}), quipu.Options{})
		c := dial(t, openOver(t, db, o).addr)
		const crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		near, far := "", ""
		home := store.PartitionOf(store.Cell{Namespace: "default", Key: "a"}, 8)
		for i := 0; near == "" || far == ""; i++ {
			key := fmt.Sprint(i)
			if store.PartitionOf(store.Cell{Namespace: "default", Key: key}, 8) == home {
				near = key
			} else {
				far = key
			}
		}
		f := c.expect
		f("MSET a 1 "+far+" 2", crossSlot)
		f("EXISTS a "+far, zero)
		f("MSET a 1 "+near+" 2", ok)
		f("MSETNX b 1 c 1 d 1 e 1", crossSlot)
		f("RENAME a "+far, crossSlot)
		f("RENAME a "+near, ok)
		f("INCR a", one)
		f("MGET a "+near+" "+far, "*3\r\n"+bulk("1")+bulk("1")+null)
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("INCR "+far, "+QUEUED\r\n")
		f("EXEC", crossSlot)
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("INCR "+near, "+QUEUED\r\n")
		f("EXEC", "*2\r\n:2\r\n:2\r\n")
		f("DEL a "+near+" "+far, ":2\r\n")
		f("MSET a 1 "+near+" 2", ok)
		f("UNLINK a "+near, ":2\r\n")
		// A transaction may have nothing to do but to see whether something has changed.
		for i := range 20 {
			key := fmt.Sprint(i)
			f("WATCH "+key, ok)
			f("MULTI", ok)
			f("PING", "+QUEUED\r\n")
			f("EXEC", "*1\r\n+PONG\r\n")
			f("WATCH "+key, ok)
			f("INCR "+key, one)
			f("MULTI", ok)
			f("EXEC", "*-1\r\n")
		}
	})
}
