package redisstore_test

import (
	"bytes"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// A decision is written only if everything that it was made on is still so.
func TestBetweenReadingAndWriting(t *testing.T) {
	var ms atomic.Int64
	ms.Store(1 << 40)
	window := store.Limits{TokenWindow: time.Hour}
	f := func(name string, l store.Limits, written bool, before []store.Batch, b store.Batch, between func(k kit)) {
		t.Helper()
		s := open(t, "redis://"+single.Addr, redisstore.Options{
			Prefix: prefix(), Partitions: 1, Limits: l, Now: func() time.Time { return time.UnixMilli(ms.Load()) },
		})
		k := kit{t, s}
		for _, b := range before {
			k.reply(b)
		}
		wrote, err := s.DecideOnce(t.Context(), b, func() { between(k) })
		if err != nil {
			t.Fatal(err)
		}
		if wrote != written {
			t.Errorf("%s: written is %v, want %v", name, wrote, written)
		}
		k.clean()
	}
	batch := func(ds ...store.Delta) store.Batch { return store.Batch{Deltas: ds} }
	by := func(w store.Writer, prev uint64, ds ...store.Delta) store.Batch {
		return store.Batch{Writer: w, Prev: prev, Seq: prev + 1, Deltas: ds}
	}
	decided := func(key string) store.Delta {
		d := add(key, 1)
		d.Guard.Bound = &store.Bound{Low: math.MinInt64, High: math.MaxInt64}
		return d
	}
	until := func(d store.Delta, after int64) store.Delta {
		d.Expiry, d.DeadlineMS = store.ExpirySet, ms.Load()+after
		return d
	}
	del := func(key string) store.Delta { return store.Delta{Cell: cell(key), Op: store.OpDelete} }
	in := func(ns string) store.Delta {
		return store.Delta{Cell: store.Cell{Namespace: ns, Key: "a"}, Op: store.OpSet, N: 1}
	}
	do := func(b store.Batch) func(kit) { return func(k kit) { k.reply(b) } }
	later := func(d time.Duration) func(kit) { return func(kit) { ms.Add(d.Milliseconds()) } }
	there := []store.Batch{batch(add("a", 1), add("b", 1))}

	f("nothing happens", window, true, there, batch(decided("a")), func(kit) {})
	f("another cell changes", window, true, there, batch(decided("a")), do(batch(add("b", 1))))
	f("another cell goes", window, true, there, batch(decided("a")), do(batch(del("b"))))
	f("another token is decided", window, true, there, batch(once(decided("a"), "t")), do(batch(settle("u"))))
	f("time passes", window, true, there, batch(decided("a")), later(time.Hour))

	f("the cell changes", window, false, there, batch(decided("a")), do(batch(add("a", 1))))
	f("the cell of a condition changes", window, false, []store.Batch{batch(add("b", 1))},
		store.Batch{If: []store.Condition{{Cell: cell("a")}}, Deltas: []store.Delta{decided("b")}}, do(batch(add("a", 1))))
	f("the cell goes", window, false, there, batch(decided("a")), do(batch(del("a"))))
	f("the cell comes", window, false, nil, batch(decided("a")), do(batch(add("a", 1))))
	f("the cell comes and goes", window, false, nil, batch(decided("a")), func(k kit) {
		k.reply(batch(add("a", 1)))
		k.reply(batch(del("a")))
	})
	f("the cell comes and goes in a batch", window, false, nil, batch(decided("a")), do(batch(add("a", 1), del("a"))))
	f("the token is settled", window, false, there, batch(once(decided("a"), "t")), do(batch(settle("t"))))
	f("the mark moves", window, false, append(there, by(7, 0)), by(7, 1, decided("a")), do(by(7, 1)))
	f("the writer's first batch comes", window, false, there, by(7, 0, decided("a")), do(by(7, 0)))
	f("the writer is retired", window, false, there, by(7, 0, decided("a")), do(batch(store.Delta{Op: store.OpRetire, N: 7})))
	f("the cell expires", window, false, []store.Batch{batch(until(add("a", 1), 1000))}, batch(decided("a")), later(time.Second))
	f("the cell it makes expires", window, false, there, batch(until(add("c", 1), 1000)), later(time.Second))
	f("a token it met expires", window, false, []store.Batch{batch(once(add("a", 1), "t"))},
		batch(once(add("a", 1), "t"), decided("b")), later(time.Hour))

	few := store.Limits{KeysMax: 2, TokensMax: 1, NamespacesMax: 2, WritersMax: 1, TokenWindow: time.Hour}
	a := []store.Batch{batch(add("a", 1))}
	f("there is room for the key", few, true, a, batch(decided("b")), func(kit) {})
	f("the room for a key is taken", few, false, a, batch(decided("b")), do(batch(add("c", 1))))
	f("a key is removed and one made", few, true, there, batch(del("a"), decided("c")), func(kit) {})
	f("there comes room for a key", few, false, there, batch(decided("c"), decided("a")), do(batch(del("b"))))
	f("the room for a token is taken", few, false, a, batch(once(decided("a"), "t")), do(batch(settle("u"))))
	f("there is room for the writer", few, true, a, by(7, 0, decided("a")), func(kit) {})
	f("the room for a writer is taken", few, false, a, by(7, 0, decided("a")), do(by(8, 0)))
	f("there is room for the namespace", few, true, a, batch(in("m")), func(kit) {})
	f("the room for a namespace is taken", few, false, a, batch(in("m")), do(batch(in("o"))))
}

// A betweenConn lets something happen before a decision is written.
type betweenConn struct {
	net.Conn
	between func()
}

func (c betweenConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(redisstore.CommitSHA)) {
		c.between()
	}
	return c.Conn.Write(b)
}

// A reply says how often its batch was decided again because another was faster.
func TestRetries(t *testing.T) {
	o := redisstore.Options{Prefix: prefix(), Partitions: 1}
	other := kit{t, open(t, "redis://"+single.Addr, o)}
	var faster atomic.Int64
	k := kit{t, open(t, "redis://"+single.Addr, o.Wrapped(func(conn net.Conn) net.Conn {
		return betweenConn{conn, func() {
			if faster.Add(-1) >= 0 {
				if _, err := other.try(t.Context(), other.batch(add("a", 1))); err != nil {
					t.Error(err)
				}
			}
		}}
	}))}
	set := store.Delta{Cell: cell("a"), Op: store.OpSet, N: 7}
	for _, n := range []int{0, 2, 0} { // the first sends the script
		faster.Store(int64(n))
		if r := k.reply(k.batch(set)); r.Retries != n {
			t.Errorf("%d retries, want %d", r.Retries, n)
		}
	}
	if n := k.meter("quipu_redis_conflicts_total"); n != 2 {
		t.Errorf("%v conflicts, want 2", n)
	}
	k.holds("a", 7)
}
