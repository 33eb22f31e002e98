package resp_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// common returns a store in memory that several servers share: it stays open when one
// of them ends.
func common() *memstore.Store { return memstore.New(memstore.Options{Shared: true}) }

// saw tells of each batch that was applied.
func saw(f func(*store.Batch, *store.Reply)) storetest.Hook {
	return func(c *storetest.Call) error {
		err := c.Pass()
		for i := range c.Batches {
			if err == nil && c.Replies[i].Err == nil {
				f(&c.Batches[i], &c.Replies[i])
			}
		}
		return err
	}
}

// split has another server add to a counter until it is split, and end.
func split(t *testing.T, s store.Store, key string) (value int64) {
	t.Helper()
	lasting := new(storetest.Hooks)
	lasting.On(storetest.OnClose, storetest.Ignore)
	db := quipu.New(storetest.Wrap(s, lasting), quipu.Options{Policies: []quipu.Policy{{Pattern: key, Shards: 8}}})
	splitBy(t, db, key, &value)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return value
}

// splitBy adds to a counter until it is split.
func splitBy(t *testing.T, db *quipu.DB, key string, value *int64) {
	t.Helper()
	for begun := time.Now(); ; {
		if _, err := db.Add(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		*value++
		c, err := db.Read(t.Context(), key, quipu.Exact())
		if err != nil {
			t.Fatal(err)
		}
		if c.Shards > 1 {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("%s was not split", key)
		}
	}
}

// What is one step stays one when another server has split a counter of it.
func TestOneStep(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		f := func(want string, commands ...string) {
			t.Helper()
			under, h := common(), new(storetest.Hooks)
			var torn, whole atomic.Int32
			h.On(storetest.OnWrite, saw(func(b *store.Batch, r *store.Reply) {
				n := 0
				for i := range b.Deltas {
					d := &b.Deltas[i]
					if (d.Cell.Key == "a" || d.Cell.Key == "b") && !d.Guard.Laid && r.Results[i].Outcome == store.Applied {
						n++
					}
				}
				switch n {
				case 0:
				case 2:
					whole.Add(1)
				default:
					torn.Add(1)
				}
			}))
			c := dial(t, openOver(t, quipu.New(storetest.Wrap(under, h), quipu.Options{}), o).addr)
			c.expect("SET a 1", ok)
			torn.Store(0)
			split(t, under, "b")
			for _, words := range commands[:len(commands)-1] {
				c.line(words)
			}
			c.expect(commands[len(commands)-1], want)
			if torn.Load() != 0 || whole.Load() != 1 {
				t.Errorf("%s: %d batches with a part of it, %d with all", commands, torn.Load(), whole.Load())
			}
		}
		f(ok, "MSET a 5 b 5")
		f(":2\r\n", "DEL a b")
		f(":2\r\n", "UNLINK a b")
		f("*2\r\n+OK\r\n+OK\r\n", "MULTI", "SET a 5", "SET b 5", "EXEC")
		f("*1\r\n:2\r\n", "MULTI", "DEL a b", "EXEC")
		f("*2\r\n+OK\r\n+OK\r\n", "MULTI", "Q.ADD a 1 NOVALUE", "SET b 5", "EXEC")
		f("*2\r\n+OK\r\n+OK\r\n", "WATCH c", "MULTI", "SET a 5", "SET b 5", "EXEC")
	})
}

// It is a step of its own: those whose commands come at the same time do not wait
// for what it has to wait for.
func TestOneStepAlone(t *testing.T) {
	under, h := common(), new(storetest.Hooks)
	split(t, under, "b")
	var together atomic.Int32
	h.On(storetest.OnWrite, saw(func(b *store.Batch, _ *store.Reply) {
		has := func(key string) bool {
			return slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return d.Cell.Key == key })
		}
		if has("a") && has("other") {
			together.Add(1)
		}
	}))
	log := &stuck{entered: make(chan struct{}), leave: make(chan struct{})}
	d := openOver(t, quipu.New(storetest.Wrap(under, h), quipu.Options{}), resp.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	browser, c, other := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
	browser.send("POST / HTTP/1.1\r\n")
	<-log.entered // the loop gathers all that comes now in its next turn
	other.send(array("INCR", "other"))
	c.send(array("MSET", "a", "5", "b", "5"))
	close(log.leave)
	if got := c.reply() + other.reply(); got != ok+one {
		t.Errorf("replies %q", got)
	}
	if together.Load() != 0 {
		t.Error("they were one batch")
	}
}

// A stuck log keeps the first who writes to it.
type stuck struct {
	once           sync.Once
	entered, leave chan struct{}
}

func (l *stuck) Write(b []byte) (int, error) {
	l.once.Do(func() {
		close(l.entered)
		<-l.leave
	})
	return len(b), nil
}

// A transaction is one step also where a counter of it has shards to add to.
func TestOneStepOfShards(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		h := new(storetest.Hooks)
		var torn atomic.Int32 // batches that have one addition of 7, and not two
		h.On(storetest.OnWrite, saw(func(b *store.Batch, _ *store.Reply) {
			n := 0
			for i := range b.Deltas {
				if b.Deltas[i].N == 7 {
					n++
				}
			}
			if n == 1 {
				torn.Add(1)
			}
		}))
		d := openOver(t, quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{Policies: []quipu.Policy{{Pattern: "b", Shards: 64}}}), o)
		value := int64(0)
		splitBy(t, d.db, "b", &value)
		c := dial(t, d.addr)
		for range 10 {
			c.send(array("MULTI") + array("Q.ADD", "a", "7", "NOVALUE") + array("Q.ADD", "b", "7", "NOVALUE") + array("EXEC"))
			if got := c.reply() + c.reply() + c.reply() + c.reply(); got != ok+queued+queued+"*2\r\n"+ok+ok {
				t.Fatalf("EXEC: %q", got)
			}
		}
		if torn.Load() != 0 {
			t.Errorf("%d batches with a part of a transaction", torn.Load())
		}
		for key, want := range map[string]int64{"a": 70, "b": value + 70} {
			if got, err := d.db.Read(t.Context(), key, quipu.Exact()); err != nil || got.Value != want {
				t.Errorf("%s: %d, %v, want %d", key, got.Value, err, want)
			}
		}
	})
}

// What decides is never a total that is kept for readers.
func TestDecidesOnCells(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		kept := quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: time.Hour}
		d := openOver(t, quipu.New(common(), quipu.Options{Policies: []quipu.Policy{kept}}), o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		f := c.expect
		f("GET a", null)
		f("INCR a", one)
		f("GET a", null) // it is what the policy asks for
		f("RENAME a b", ok)
		f("RENAME a b", "-ERR no such key\r\n")
		f("SET c 1", ok)
		f("GET c", bulk("1"))
		f("DEL c", one)
		f("RENAMENX b c", one)
		f("SET b 1", ok)
		f("RENAMENX b c", zero)
		// A client that reads, reckons and writes under WATCH loses no update.
		f("GET w", null)
		other.expect("SET w 5", ok)
		f("GET w", null)
		f("WATCH w", ok)
		f("GET w", bulk("5"))
		f("MGET w w", "*2\r\n"+bulk("5")+bulk("5"))
		f("EXISTS w", one)
		if got := c.line("Q.GET w"); !strings.Contains(got, bulk("value")+":5\r\n") {
			t.Errorf("Q.GET of what is watched: %q", got)
		}
		f("MULTI", ok)
		f("SET w 6", queued)
		f("EXEC", "*1\r\n"+ok)
		f("WATCH w", ok)
		other.expect("INCR w", ":7\r\n")
		f("GET w", bulk("7"))
		f("MULTI", ok)
		f("SET w 0", queued)
		f("EXEC", "*-1\r\n")
		f("WATCH w", ok)
		f("MULTI", ok)
		f("GET w", queued)
		f("EXEC", "*1\r\n"+bulk("7"))
		f("GET w", bulk("5")) // nothing is watched any more, and by Q.GET readers were told 5
	})
}

// A counter that is split can be watched and renamed.
func TestWatchSplit(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		under := common()
		c := dial(t, openOver(t, quipu.New(under, quipu.Options{}), o).addr)
		value := split(t, under, "a")
		c.expect("WATCH a", ok)
		c.expect("GET a", bulk(fmt.Sprint(value)))
		c.expect("MULTI", ok)
		c.expect("INCR a", queued)
		c.expect("EXEC", "*1\r\n:"+fmt.Sprint(value+1)+"\r\n")
		value = split(t, under, "b")
		c.expect("RENAME b c", ok)
		c.expect("MGET b c", "*2\r\n"+null+bulk(fmt.Sprint(value)))
	})
}

// A counter that changes while it is renamed is renamed as it is then. One that
// never stays the same is tried for a while, and not all the time.
func TestRenameTriesAgain(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		o.Timeout = 100 * time.Millisecond
		under, h := common(), new(storetest.Hooks)
		var tries atomic.Int32
		always := atomic.Bool{}
		h.On(storetest.OnApply, func(c *storetest.Call) error {
			b := &c.Batches[0] // those with conditions come alone
			if len(b.If) == 0 {
				return c.Pass()
			}
			if tries.Add(1) == 1 {
				one := store.Batch{Deltas: []store.Delta{{Cell: b.If[0].Cell, Op: store.OpAdd, N: 1}}}
				if err := under.Apply(t.Context(), []store.Batch{one}, make([]store.Reply, 1)); err != nil {
					t.Error(err)
				}
			}
			if always.Load() {
				c.Replies[0] = store.Reply{Err: store.ErrChanged}
				return nil
			}
			return c.Pass()
		})
		c := dial(t, openOver(t, quipu.New(storetest.Wrap(under, h), quipu.Options{}), o).addr)
		c.expect("SET a 1", ok)
		tries.Store(0)
		c.expect("RENAME a b", ok)
		c.expect("MGET a b", "*2\r\n"+null+bulk("2"))
		if n := tries.Load(); n != 2 {
			t.Errorf("%d tries, want 2", n)
		}
		always.Store(true)
		if got := c.line("RENAME b a"); !strings.HasPrefix(got, "-UN") { // available, or known if it ends at the store
			t.Errorf("RENAME of what changes all the time: %q", got)
		}
		if n := tries.Load(); n > 50 {
			t.Errorf("%d tries in a tenth of a second", n)
		}
		c.expect("MGET a b", "*2\r\n"+null+bulk("2"))
	})
}
