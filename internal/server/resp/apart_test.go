package resp_test

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A maimed store has a partition that does what a test says. It can't be asked without
// waiting.
type maimed struct {
	storetest.Hooks
	partition int
	gate      chan chan struct{} // stops who peeks, as the loop does, until what it was sent is closed
}

const partitions = 8

// set puts a hook before the calls that concern the partition.
func (m *maimed) set(h storetest.Hook) {
	m.On(storetest.OnApply|storetest.OnRead, storetest.If(func(c *storetest.Call) bool { return c.In(m.partition) }, h))
}

// maimedDoor opens a door over a store of which a partition can be maimed, and
// returns a key in it, and one in each of two others.
func maimedDoor(t *testing.T, o resp.Options) (d *door, m *maimed, bad string, good []string) {
	t.Helper()
	m = &maimed{gate: make(chan chan struct{}, 1)}
	m.On(storetest.OnStart, storetest.Fail(store.ErrUnavailable))
	m.On(storetest.OnPeek, func(*storetest.Call) error {
		select {
		case leave := <-m.gate:
			<-leave
		default:
		}
		return store.ErrUnavailable
	})
	db := quipu.New(storetest.Wrap(memstore.New(memstore.Options{Partitions: partitions}), &m.Hooks), quipu.Options{})
	m.partition = db.Port().Partition("bad")
	seen := map[int]bool{m.partition: true}
	for i := 0; len(good) < 2; i++ {
		key := "good" + strconv.Itoa(i)
		if p := db.Port().Partition(key); !seen[p] {
			seen[p] = true
			good = append(good, key)
		}
	}
	return openOver(t, db, o), m, "bad", good
}

// Each command of a pipeline is what became of its own counters.
func TestFateOfEach(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d, m, bad, good := maimedDoor(t, o)
		c := dial(t, d.addr)
		a, b := good[0], good[1]
		run := func(commands ...string) string {
			t.Helper()
			var all strings.Builder
			for _, words := range commands {
				all.WriteString(array(strings.Fields(words)...))
			}
			c.send(all.String() + array("PING"))
			var got strings.Builder
			for range commands {
				word, rest, _ := strings.Cut(c.reply(), " ")
				if rest == "" {
					word = strings.TrimSuffix(word, "\r\n")
				}
				got.WriteString(strings.ReplaceAll(word, "\r\n", ",") + " ")
			}
			if p := c.reply(); p != pong {
				t.Errorf("PING: %q", p)
			}
			return strings.TrimSpace(got.String())
		}
		f := func(want string, commands ...string) {
			t.Helper()
			if got := run(commands...); got != want {
				t.Errorf("%q: %q, want %q", commands, got, want)
			}
		}
		f(":1 :1 :1 :2", "INCR "+a, "INCR "+bad, "INCR "+b, "INCR "+a)
		for _, gone := range []struct {
			err  error
			word string
		}{{store.ErrUnavailable, "-UNAVAILABLE"}, {store.ErrUnknown, "-UNKNOWN"}} {
			m.set(storetest.Fail(gone.err))
			f(":3 "+gone.word+" :2 :4 "+gone.word, "INCR "+a, "INCR "+bad, "INCR "+b, "INCR "+a, "INCRBY "+bad+" 5")
			f("$1,4 "+gone.word+" $1,2", "GET "+a, "GET "+bad, "GET "+b)
			f(":1 -UNKNOWN :1", "DEL "+a, "DEL "+b+" "+bad, "INCR "+a)
			f(gone.word+" :2", "MGET "+a+" "+bad, "INCR "+a)
			f("+OK +OK", "SET "+a+" 2", "SET "+b+" 1")
			m.On(storetest.OnApply | storetest.OnRead)
			if errors.Is(gone.err, store.ErrUnavailable) {
				f(":1", "DECRBY "+a+" 1")
				f(":2 :2", "INCR "+b, "INCRBY "+a+" 1")
				f("$1,1", "GET "+bad)
				f("+OK +OK", "SET "+a+" 2", "SET "+b+" 1")
			}
		}
	})
}

// Sessions wait for their own commands, and not for those of others, however many
// those are.
func TestHungOthers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Timeout = 30 * time.Second
		d, m, bad, good := maimedDoor(t, o)
		hold := make(chan struct{})
		m.set(storetest.Hang(hold, store.KindOther))
		const many = 200
		waiting := make([]*client, many)
		live := dial(t, d.addr)
		for i := range waiting {
			waiting[i] = dial(t, d.addr)
			switch i % 3 {
			case 0: // its first reply comes, though not the second
				waiting[i].send(array("INCR", good[0]) + array("INCR", bad))
			case 1:
				waiting[i].send(array("GET", bad))
			case 2:
				waiting[i].send(array("MULTI") + array("INCR", bad) + array("EXEC"))
			}
			if got := live.do("INCR", good[1]); got != ":"+strconv.Itoa(i+1)+"\r\n" {
				t.Fatalf("reply %d: %q", i, got)
			}
			if got := live.do("GET", good[1]); got != bulk(strconv.Itoa(i+1)) {
				t.Fatalf("reply %d: %q", i, got)
			}
		}
		close(hold)
		for i, c := range waiting {
			if i%3 == 0 {
				if got := c.reply() + c.reply(); got[0] != ':' || strings.Count(got, ":") != 2 {
					t.Errorf("client %d: %q", i, got)
				}
			}
		}
	})
}

// One cycle has the commands of many: those that wait for a partition keep no other
// from its replies, and no session gets a reply before its earlier ones.
func TestHungInCycle(t *testing.T) {
	d, m, bad, good := maimedDoor(t, resp.Options{Timeout: 30 * time.Second})
	hold := make(chan struct{})
	m.set(storetest.Hang(hold, store.KindOther))
	stops, hung, live, mixed := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
	for _, c := range []*client{stops, hung, live, mixed} {
		c.expect("PING", pong)
	}
	leave := make(chan struct{})
	m.gate <- leave
	stops.send(array("GET", good[0]))
	for len(m.gate) > 0 { // until the loop is there
		runtime.Gosched()
	}
	hung.send(array("INCR", bad))
	mixed.send(array("INCR", good[0]) + array("INCR", bad) + array("INCR", good[0]))
	live.send(array("INCR", good[0]) + array("INCR", good[1]))
	close(leave)
	if got := live.reply() + live.reply(); got != ":2\r\n:1\r\n" && got != ":3\r\n:1\r\n" {
		t.Errorf("a session that waits for nothing: %q", got)
	}
	if err := mixed.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := mixed.r.ReadString('\n'); err == nil && !strings.HasPrefix(got, ":1") {
		t.Errorf("a session that waits: %q", got)
	}
	close(hold)
	if got := hung.reply(); got != ":1\r\n" && got != ":2\r\n" {
		t.Errorf("the one that waited: %q", got)
	}
}
