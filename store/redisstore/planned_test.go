package redisstore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// Plain adds take one call, also to the parts of a counter: what is expected of a
// cell is compared where it is. The mark tells by whom a batch was decided.
func TestPlainAdds(t *testing.T) {
	p := prefix()
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: p, Partitions: 1})}
	w, seq := k.enlist(), uint64(0)
	f := func(plain bool, want store.Outcome, ds ...store.Delta) {
		t.Helper()
		b := k.numbered(w, seq, seq+1, ds...)
		b.Apart = true
		r := k.reply(b)
		seq++
		if got := r.Results[len(ds)-1].Outcome; got != want {
			t.Fatalf("%+v: outcome %d, want %d", ds, got, want)
		}
		mark := command(t, single, "hget", p+":{0}:marks", fmt.Sprint(w))
		if got := strings.Contains(mark, " f"); got != plain {
			t.Errorf("%+v: applied by the server alone: %v, want %v", ds, got, plain)
		}
		if again := k.reply(b); !again.Replayed || again.Results[len(ds)-1] != replayed(r.Results[len(ds)-1]) {
			t.Fatalf("repeat %+v of %+v", again, r)
		}
	}
	blind := func(c store.Cell) store.Delta { return store.Delta{Cell: c, Op: store.OpAdd, N: 3} }
	laid := func(d store.Delta, layout int64) store.Delta {
		d.Guard.Laid, d.Guard.Layout = true, layout
		return d
	}
	wanted := func(d store.Delta) store.Delta {
		d.Want = true
		return d
	}
	const most = math.MaxInt64
	whole, home, other := cell("whole"), cell("home"), cell("other")
	shard := store.ShardCell(home, 1)
	for c, layout := range map[store.Cell]int64{home: most, shard: 7, other: most - 1} {
		k.reply(k.batch(laid(store.Delta{Cell: c, Op: store.OpLayout, N: layout}, 0)))
	}
	timed := blind(cell("timed"))
	timed.Expiry, timed.DeadlineMS = store.ExpirySet, 1<<50
	k.reply(k.batch(timed))

	bound := func(d store.Delta, low, high int64) store.Delta {
		d.Guard.Bound = &store.Bound{Low: low, High: high, Inward: true}
		return d
	}
	f(true, store.Applied, bound(blind(cell("few")), 0, 9))
	f(true, store.Applied, wanted(bound(blind(cell("few")), 0, 6)), bound(blind(cell("few")), math.MinInt64, 9), wanted(blind(whole)))
	f(false, store.Bounded, bound(blind(cell("few")), 0, 9))
	f(false, store.Bounded, bound(blind(cell("none")), 0, 2))
	down := func(floor int64) store.Delta {
		d := bound(blind(cell("few")), floor, 99)
		d.N = -1
		return d
	}
	f(false, store.Bounded, down(9))
	f(true, store.Applied, down(8))
	f(true, store.Applied, down(math.MinInt64), down(6))
	f(true, store.Applied, bound(blind(cell("few")), 0, 9))
	f(true, store.Applied, bound(blind(cell("none")), 0, 3))
	f(false, store.Applied, bound(blind(cell("none")), 0, 1<<60)) // Lua can't compare it exactly.
	f(false, store.Bounded, bound(blind(cell("few")), 0, 20), bound(blind(cell("few")), 0, 14))

	f(true, store.Applied, blind(whole))
	f(true, store.Applied, wanted(blind(whole)))
	f(true, store.Applied, laid(blind(whole), 0))
	f(true, store.Applied, laid(blind(cell("new")), 0))
	f(true, store.Applied, wanted(blind(timed.Cell)))
	f(true, store.Applied, blind(home))
	f(true, store.Applied, once(blind(home), "t"))
	f(true, store.Applied, laid(blind(home), most))
	f(true, store.Applied, wanted(laid(blind(home), most)))
	f(true, store.Applied, laid(once(blind(shard), "t"), 7))
	f(true, store.Applied, blind(home), wanted(blind(whole)), laid(blind(shard), 7), blind(other), laid(blind(home), most))
	f(true, store.Applied, blind(other), laid(blind(home), most))

	f(false, store.Split, wanted(blind(home)))
	f(false, store.Unmet, laid(blind(home), most-1)) // the same to a float64
	f(false, store.Unmet, laid(blind(other), most))
	f(false, store.Unmet, laid(blind(shard), 0))
	f(false, store.Unmet, laid(blind(whole), 7))
	f(false, store.Unmet, laid(blind(timed.Cell), 7))
	f(false, store.Unmet, laid(blind(cell("none")), 7))
	f(false, store.Unmet, laid(blind(shard), 7), laid(blind(shard), 8))
	f(false, store.Applied, laid(blind(shard), 8), laid(blind(shard), 7))
	f(false, store.Split, laid(blind(shard), 7), wanted(blind(shard)))
	f(false, store.Applied, wanted(blind(shard)), laid(blind(shard), 7))

	viewed := func(d store.Delta, more ...store.Rider) store.Delta {
		return sharing(t, d, append(more, append(based(3), applied(window(7, 0)), applied(window(7, 60)))...)...)
	}
	bounded := rides(held, 1)
	bounded.Bound = &store.Bound{High: 100}
	f(false, store.Applied, viewed(blind(whole))) // its base
	f(true, store.Applied, viewed(blind(whole)))
	f(true, store.Applied, viewed(blind(cell("fresh"))), viewed(blind(cell("fresh"))), viewed(blind(whole)))
	f(true, store.Applied, viewed(blind(cell("fresh"))))
	f(false, store.Applied, blind(cell("fresher")), viewed(blind(cell("fresher"))))
	f(false, store.Applied, viewed(blind(cell("freshest"))), sharing(t, blind(cell("freshest")), based(4)...))
	f(true, store.Applied, once(viewed(blind(whole), applied(held)), "viewed"), blind(whole))
	f(true, store.Applied, sharing(t, blind(cell("first")), applied(held)))
	f(true, store.Applied, sharing(t, blind(home), applied(held)), sharing(t, blind(shard), applied(held)))
	f(false, store.Applied, viewed(blind(whole), line("x")))
	f(false, store.Applied, viewed(blind(whole), bounded))
	f(false, store.Applied, viewed(blind(whole), rides(held, 1<<62)))
	f(false, store.Applied, viewed(blind(whole), applied(held)))
	f(false, store.Overflow, viewed(blind(whole), rides(held, 1)), viewed(blind(whole), rides(held, 1<<62)))
	f(false, store.Unmet, sharing(t, blind(timed.Cell), applied(held)))
	f(false, store.Applied, sharing(t, blind(whole), based(4)...))
	f(true, store.Applied, sharing(t, blind(whole), based(4)...))
	k.clean()
}

func replayed(r store.Result) store.Result {
	r.Replayed = true
	return r
}
