package resp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// idleAt is set in the environment of a child that holds idle connections.
const idleAt = "RESP_TEST_IDLE_AT"

func TestMain(m *testing.M) {
	if addr := os.Getenv(idleAt); addr != "" {
		if err := holdIdle(addr); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// until does something again and again until a condition holds.
func until(t *testing.T, what string, condition func() bool, meanwhile func()) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
		meanwhile()
	}
}

// A client that takes no replies for too long is closed, and what it held is
// free again. Others are served meanwhile.
func TestStalled(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Stall = 100 * time.Millisecond
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		if err := c.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		var sent sync.WaitGroup
		sent.Go(func() { // until it is closed
			ask := strings.Repeat("COMMAND\r\n", 1000)
			for {
				if _, err := io.WriteString(c, ask); err != nil {
					return
				}
			}
		})
		n := 0
		until(t, "the client that takes no replies is closed", func() bool { return d.meter("quipu_resp_stalled_total") > 0 }, func() {
			n++
			other.expect("INCR a", fmt.Sprintf(":%d\r\n", n))
			if got := d.meter("quipu_resp_buffer_bytes"); got > 2<<20 {
				t.Fatalf("%v bytes are held", got)
			}
		})
		until(t, "what it held is free", func() bool { return d.meter("quipu_resp_buffer_bytes") == 0 }, func() { other.expect("PING", pong) })
		sent.Wait()
		if got := d.meter("quipu_resp_stalled_total"); got != 1 {
			t.Errorf("%v connections were closed", got)
		}
		other.expect("INCR a", fmt.Sprintf(":%d\r\n", n+1))
	})
}

// Half a command does not keep a connection from being idle.
func TestHalfFrameTimeout(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, in := dial(t, d.addr), dial(t, d.addr)
		in.expect("CONFIG SET timeout 1", ok)
		in.expect("MULTI", ok)
		c.send("*2\r\n$4\r\nINCR\r\n$5\r\nab")
		c.ended()
		in.ended()
	})
}

// Lengths that can't be are refused before anything is kept for them.
func TestLengths(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		f := func(raw, want string) {
			t.Helper()
			c := dial(t, d.addr)
			c.send(raw + "PING\r\n")
			if got := c.reply(); got != want {
				t.Errorf("%q: %q, want %q", raw, got, want)
			}
			if want != pong {
				c.ended()
			}
		}
		const bulkLength, arrayLength = "-ERR Protocol error: invalid bulk length\r\n", "-ERR Protocol error: invalid multibulk length\r\n"
		f("*0\r\n", pong)
		f("*-1\r\n", pong)
		f("*-9223372036854775808\r\n", pong)
		f("*-9223372036854775809\r\n", arrayLength)
		f("*9223372036854775807\r\n", arrayLength)
		f("*2147483648\r\n", arrayLength)
		f("*1\r\n$-1\r\n", bulkLength)
		f("*1\r\n$-9223372036854775809\r\n", bulkLength)
		f("*1\r\n$9223372036854775807\r\n", bulkLength)
		f("*2\r\n$3\r\nGET\r\n$2147483647\r\n", bulkLength)
		f("*131072\r\n$-1\r\n", bulkLength)
		f("*131073\r\n$-1\r\n", arrayLength)
		if got := d.meter("quipu_resp_buffer_bytes"); got != 0 {
			t.Errorf("%v bytes are held", got)
		}
	})
}

// What one command or transaction may have is bounded, and the connection
// survives being told so.
func TestLimits(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		f := c.expect
		many := func(n int) []string {
			var keys []string
			for i := range n {
				keys = append(keys, fmt.Sprint("k", i))
			}
			return keys
		}
		f("WATCH "+strings.Join(many(600), " "), ok)
		f("WATCH "+strings.Join(many(1000), " "), ok) // of which 600 are watched already
		f("WATCH one-more", "-ERR too many keys watched: at most 1000, in 256 KiB\r\n")
		f("UNWATCH", ok)
		f("WATCH "+strings.Join(many(1001), " "), "-ERR too many keys watched: at most 1000, in 256 KiB\r\n")
		f("WATCH one", ok)

		const tooMany = "-ERR too many keys in one command or transaction: at most 10000 counters and 2 MiB of keys\r\n"
		const aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n"
		transaction := func(command string, n int, want string) {
			t.Helper()
			f("MULTI", ok)
			c.send(strings.Repeat(command, n))
			for i := range n {
				if got := c.reply(); got != queued {
					t.Fatalf("command %d of %d: %.60q", i+1, n, got)
				}
			}
			if want != "" {
				c.send(command)
				if got := c.reply(); got != want {
					t.Errorf("one more than %d: %.60q", n, got)
				}
				f("EXEC", aborted)
				return
			}
			c.send(array("EXEC"))
			if got := c.reply(); !strings.HasPrefix(got, fmt.Sprintf("*%d\r\n:1\r\n", n)) || !strings.HasSuffix(got, fmt.Sprintf(":%d\r\n", n)) {
				t.Errorf("EXEC of %d: %.60q", n, got)
			}
		}
		transaction(array("INCR", "a"), 10_000, "")
		transaction(array("INCR", "b"), 10_000, tooMany)
		f("EXISTS b", zero)
		transaction(array("ECHO", strings.Repeat("x", 1<<20)), 8, tooMany) // 8 MiB
		f("MULTI", ok)
		c.send(array(append([]string{"MGET"}, many(6000)...)...) + array(append([]string{"MGET"}, many(6000)...)...) + array("INCR", "b") + array("EXEC"))
		if got := c.reply() + c.reply() + c.reply() + c.reply(); got != queued+queued+queued+tooMany {
			t.Errorf("12,001 counters: %.90q", got)
		}
		f("EXISTS b", zero)
		f("MULTI", ok)
		f("DISCARD", ok)

		// As many cursors are remembered as it says.
		f("MSET x 1 y 1 z 1", ok)
		cursor := func(reply string) string { return strings.Split(reply, "\r\n")[2] }
		first := cursor(c.line("SCAN 0 COUNT 1"))
		const remembered = 1 << 14
		last := ""
		for range remembered / 128 {
			c.send(strings.Repeat(array("SCAN", "0", "COUNT", "1"), 128))
			for range 128 {
				last = cursor(c.reply())
			}
		}
		f("SCAN "+first, "-ERR invalid cursor\r\n")
		if got := c.line("SCAN " + last); !strings.HasPrefix(got, "*2\r\n") {
			t.Errorf("SCAN of the last cursor: %q", got)
		}
		// A page has a limit too.
		for _, part := range []string{"p", "q"} {
			args := []string{"MSET"}
			for i := range quipu.PageMax/2 + 1 {
				args = append(args, fmt.Sprint(part, i), "1")
			}
			if got := c.do(args...); got != ok {
				t.Fatal(got)
			}
		}
		page := c.line("SCAN 0 COUNT 1000000")
		if got := strings.Split(page, "\r\n")[3]; got != fmt.Sprintf("*%d", quipu.PageMax) || cursor(page) == "0" {
			t.Errorf("SCAN of a million: %.60q", page)
		}
	})
}

// A reply of KEYS has a limit, and what is too much for it can be scanned.
func TestKeysLimit(t *testing.T) {
	c := dial(t, open(t, resp.Options{}).addr)
	for i := range 9 { // of 2 MB each
		args := []string{"MSET"}
		for j := range 4000 {
			args = append(args, fmt.Sprintf("%d:%0*d", i, 508, j), "1")
		}
		if got := c.do(args...); got != ok {
			t.Fatalf("MSET: %.60q", got)
		}
	}
	c.expect("KEYS *", "-ERR the keys are too many for one reply: use SCAN\r\n")
	if got := c.line("KEYS 3:*"); !strings.HasPrefix(got, "*4000\r\n") {
		t.Errorf("KEYS of a part: %.60q", got)
	}
}

// A cursor is of one start of the server: the next refuses it.
func TestScanOverRestart(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		first := openOver(t, db, o)
		c := dial(t, first.addr)
		c.expect("MSET a 1 b 2 c 3", ok)
		page := c.line("SCAN 0 COUNT 1")
		cursor := strings.Split(page, "\r\n")[2]
		if want := fmt.Sprintf("*2\r\n%s*1\r\n%s", bulk(cursor), bulk("a")); page != want || cursor == "0" {
			t.Fatalf("SCAN: %q", page)
		}
		if err := first.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = dial(t, openOver(t, db, o).addr)
		c.expect("SCAN "+cursor, "-ERR invalid cursor\r\n")
		c.line("SCAN 0 COUNT 1") // now there are cursors again
		c.line("SCAN 0 COUNT 2")
		c.expect("SCAN "+cursor, "-ERR invalid cursor\r\n")
		c.expect("SCAN 0", "*2\r\n"+bulk("0")+"*3\r\n"+bulk("a")+bulk("b")+bulk("c"))
	})
}

// A connection that is killed in the midst of a pipeline has counted at least
// what it was told, and at most what it sent.
func TestKillInPipeline(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		killer := dial(t, d.addr)
		for round := range 20 {
			victim := dial(t, d.addr)
			id := strings.Trim(victim.line("CLIENT ID"), ":\r\n")
			key := fmt.Sprint("k", round)
			const each = 100
			sent := make(chan int)
			go func() {
				n := 0
				for raw := strings.Repeat(array("INCR", key), each); ; {
					n += each
					if _, err := io.WriteString(victim, raw); err != nil {
						sent <- n
						return
					}
				}
			}()
			// When some is counted, there is more on its way.
			until(t, "it counts", func() bool { return killer.line("EXISTS "+key) == one }, func() {})
			killer.expect("CLIENT KILL ID "+id, one)
			told := 0
			for {
				reply, err := resp.ReadReply(victim.r)
				if err != nil {
					break
				}
				told++
				if reply != fmt.Sprintf(":%d\r\n", told) {
					t.Fatalf("reply %d is %q", told, reply)
				}
			}
			value, err := strconv.Atoi(strings.Trim(killer.line("INCRBY "+key+" 0"), ":\r\n"))
			if n := <-sent; err != nil || value < told || value > n {
				t.Errorf("%d counted, %v: %d were told, %d sent", value, err, told, n)
			}
		}
		until(t, "the victims are gone", func() bool { return d.meter("quipu_resp_connections") == 1 }, func() { killer.expect("PING", pong) })
	})
}

const crowd = 10_000

// Ten thousand connections that do nothing cost little, and those that work do
// not mind them. Another process has their other ends.
func TestIdleCrowd(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		const working, each = 50, 2000
		o.ConnectionsMax = crowd + working
		d := open(t, o)
		before := held()
		child := startCrowd(t, d.addr)
		if got := d.meter("quipu_resp_connections"); got != crowd {
			t.Fatalf("%v connections", got)
		}
		// A connection has buffers of up to 4 KiB each for commands and replies, and
		// one that has a goroutine also that one's stack.
		most := 10 << 10
		if o.Goroutines {
			most = 20 << 10
		}
		if got := int(held()-before) / crowd; got > most {
			t.Errorf("an idle connection holds %d bytes", got)
		} else {
			t.Logf("an idle connection holds %d bytes", got)
		}
		if got := d.meter("quipu_resp_buffer_bytes"); got != 0 {
			t.Errorf("%v bytes in large buffers", got)
		}
		var wg sync.WaitGroup
		for range working {
			c := dial(t, d.addr)
			wg.Go(func() {
				_ = c.SetDeadline(time.Now().Add(patience))
				for range each / 100 {
					_, _ = io.WriteString(c, strings.Repeat(array("INCR", "a"), 100))
					for range 100 {
						if got, err := resp.ReadReply(c.r); err != nil || got[0] != ':' {
							t.Errorf("reply %q, %v", got, err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		if count, err := d.db.Read(t.Context(), "a"); err != nil || count.Value != working*each {
			t.Errorf("%+v, %v", count, err)
		}
		child()
	})
}

// held returns the memory in use.
func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// startCrowd starts a child that opens idle connections, and returns when they
// are there. What it returns ends the child, and checks that all were open.
func startCrowd(t *testing.T, addr string) (end func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), idleAt+"="+addr)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the child says %q: %v, %v", line, err, c.Wait())
	}
	return func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	}
}

// holdIdle is the child. Each connection says something once, and at the end
// once more.
func holdIdle(addr string) error {
	conns := make([]net.Conn, crowd)
	var room [7]byte
	ping := func(c net.Conn) error {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "PING\r\n"); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, room[:]); err != nil || string(room[:]) != pong {
			return fmt.Errorf("reply %q: %w", room[:], err)
		}
		return nil
	}
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = ping(c)
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		conns[i] = c
	}
	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	for i, c := range conns {
		if err := ping(c); err != nil {
			return fmt.Errorf("connection %d, later: %w", i, err)
		}
	}
	return nil
}

// Those who go through all keys keep nobody else from the store.
func TestSweepsAndOthers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		h := new(storetest.Hooks)
		h.On(storetest.OnScan, storetest.Hang(nil, store.KindOther))
		d := openOver(t, quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{}), o)
		other := dial(t, d.addr)
		for range 100 {
			dial(t, d.addr).send(array("KEYS", "*"))
		}
		until(t, "all have been read", func() bool { return d.meter("quipu_resp_connections") == 101 }, func() { other.expect("PING", pong) })
		for range 100 { // by when the sweeps hold what they can
			other.expect("Q.ADD a 1 ID t", one)
			other.expect("RENAME a a", ok)
		}
		_ = d.Close()
	})
}

// A pattern costs its length at every byte that it is held against.
func TestLongPatterns(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, openOver(t, quipu.New(memstore.New(memstore.Options{}), quipu.Options{}), o).addr)
		f := func(want string, words ...string) {
			t.Helper()
			c.send(array(words...))
			if got, err := resp.ReadReply(c.r); err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%.40q: %q, %v", words, got, err)
			}
		}
		fits := "[" + strings.Repeat("a", 1022) + "]"
		const refused = "-ERR pattern is too long"
		f("*0", "KEYS", fits)
		f(refused, "KEYS", fits+"b")
		f("*2", "SCAN", "0", "MATCH", fits)
		f(refused, "SCAN", "0", "MATCH", fits+"b")
		f("*0", "COMMAND", "LIST", "FILTERBY", "PATTERN", fits)
		f(refused, "COMMAND", "LIST", "FILTERBY", "PATTERN", fits+"b")
		f("*0", "CONFIG", "GET", fits)
		f(refused, "CONFIG", "GET", fits+"b")
		f("*0", append([]string{"CONFIG", "GET"}, slices.Repeat([]string{"none"}, 64)...)...)
		f("-ERR too many patterns", append([]string{"CONFIG", "GET"}, slices.Repeat([]string{"none"}, 65)...)...)
	})
}
