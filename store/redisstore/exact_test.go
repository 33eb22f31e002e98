package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// Numbers that a float64 can't tell apart, and the ends of int64, go through
// every operation, and come back as they are: from results, reads, scans, tokens
// and marks.
func TestNumbersAreExact(t *testing.T) {
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 2})}
	w, seq := k.enlist(), uint64(0)
	for i, n := range []int64{
		1<<53 + 1, -1<<53 - 1, 1<<62 - 1, 1<<62 + 1, -1<<62 - 1, 4_600_000_000_000_000_001, -4_600_000_000_000_000_001,
		math.MaxInt64 - 1, math.MinInt64 + 1, math.MaxInt64, math.MinInt64,
	} {
		c := cell(fmt.Sprint("exact", i))
		token := fmt.Sprint("t", i)
		set := store.Delta{Cell: c, Op: store.OpSet, N: n, Want: true}
		k.one(set, store.Applied, 0, n)
		step := int64(1)
		if n > 0 {
			step = -1
		}
		by := func(n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpAdd, N: n, Want: true} }
		k.one(by(step), store.Applied, n, n+step)
		k.one(by(-step), store.Applied, n+step, n)
		first := k.one(once(by(step), token), store.Applied, n, n+step)
		if r := k.one(once(by(step), token), store.Applied, n, n+step); !r.Replayed || r.Version != first.Version {
			t.Fatalf("repeat %+v of %+v", r, first)
		}
		f, err := k.Lookup(t.Context(), c, token)
		if err != nil || f.Result.Before != n || f.Result.After != n+step || f.N != step {
			t.Fatalf("fate %+v, %v of an add to %d", f, err, n)
		}
		b := k.numbered(w, seq, seq+1, by(-step), by(step), by(-step))
		if k.batch(set).Partition == k.batch(add("exact0", 1)).Partition {
			for range 2 { // a repeat tells the same
				rs := k.reply(b).Results
				if rs[0].Before != n+step || rs[1].Before != n || rs[2].After != n {
					t.Fatalf("results %+v of adds to %d", rs, n+step)
				}
			}
			seq++
		} else {
			k.one(by(-step), store.Applied, n+step, n)
		}
		bounded := by(-step)
		bounded.Guard.Bound = &store.Bound{Low: n, High: n}
		k.one(bounded, store.Bounded, n, n)
		k.holds(c.Key, n)
		es, err := k.Scan(t.Context(), store.Range{Namespace: "n", Prefix: c.Key}, 2)
		if err != nil || es[0].Value.N != n {
			t.Fatalf("scan lists %+v, %v, want %d", es, err, n)
		}
		// To the end of the range and not beyond it.
		end, over := int64(math.MaxInt64), int64(1)
		if n < 0 {
			end, over = math.MinInt64, -1
		}
		k.one(by(end-n), store.Applied, n, end)
		k.one(by(over), store.Overflow, 0, 0)
		k.one(by(-over), store.Applied, end, end-over)
		k.one(by(over), store.Applied, end-over, end)
		k.one(store.Delta{Cell: c, Op: store.OpGet, Want: true}, store.Applied, end, end)
		k.one(store.Delta{Cell: c, Op: store.OpDelete, Want: true}, store.Applied, end, 0)
	}
	k.clean()
}

// A batch of adds to one cell overflows where the sum of a part does, even if the
// sum of all does not.
func TestOverflowOfAPart(t *testing.T) {
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 1})}
	f := func(start int64, adds ...int64) {
		t.Helper()
		k.reply(k.batch(store.Delta{Cell: cell("a"), Op: store.OpSet, N: start}))
		ds := make([]store.Delta, len(adds))
		for i, n := range adds {
			ds[i] = add("a", n)
			ds[i].Want = i%2 == 0
		}
		at := start
		for i, r := range k.reply(k.batch(ds...)).Results {
			sum := at + adds[i]
			want := store.Applied
			if (sum > at) != (adds[i] > 0) {
				want, sum = store.Overflow, at
			}
			if r.Outcome != want || (want == store.Applied && ds[i].Want && (r.Before != at || r.After != sum)) {
				t.Fatalf("from %d, add %d of %d: %+v at %d", start, i, adds, r, at)
			}
			at = sum
		}
		k.holds("a", at)
	}
	f(math.MaxInt64-5, 5, 1, -6)
	f(math.MaxInt64-5, 3, 3, -6, 9)
	f(math.MinInt64+5, -3, -3, 6)
	f(1<<62, 1<<61, 1<<61, -1<<61)
	f(1<<62, 1<<62-1, 1, -1)
	f(0, math.MaxInt64, 1, math.MinInt64)
	f(-1, math.MinInt64, 1, math.MinInt64)
	f(1<<61, 1<<61, 1<<61, 1<<61, 1<<61, 1<<61, 1<<61)
	k.clean()
}

// Any UTF-8 is a key, a namespace or a token: what means something to Redis, to
// Lua or to us too.
func TestHostileNames(t *testing.T) {
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 4})}
	names := []string{
		"\x00", "\x00\x00", "a\x00b", "{", "}", "{}", "}{", "a}:v:n", ":", "4:laws", "-1:", " ", "1 2", "\r\n", "\n", "*", "[a-z]", "%d", "%s%n",
		"'; redis.call('FLUSHALL') --", "]]", "é", "\U0010ffff", "v:n", "meta", "'", "\"", "\\", "(a", "[a", "+", "-", "+inf", "nil", "false", "0", strings.Repeat("\x00", 64),
	}
	for _, ns := range names {
		for i, key := range names {
			c := store.Cell{Namespace: ns, Key: key}
			d := store.Delta{Cell: c, Op: store.OpAdd, N: int64(i + 1), Want: true, Guard: store.Guard{Token: key}}
			k.one(d, store.Applied, 0, d.N)
			k.one(d, store.Applied, 0, d.N)
			k.one(store.Delta{Cell: c, Op: store.OpSet, N: -d.N, Want: true}, store.Applied, d.N, -d.N)
		}
		es, err := k.Scan(t.Context(), store.Range{Namespace: ns}, store.ScanMax)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, e := range es {
			keys = append(keys, e.Key)
			if i := slices.Index(names, e.Key); e.Value.N != -int64(i+1) {
				t.Fatalf("%q in %q holds %d", e.Key, ns, e.Value.N)
			}
		}
		if want := slices.Sorted(slices.Values(names)); !slices.Equal(keys, want) {
			t.Fatalf("%q lists %q, want %q", ns, keys, want)
		}
		for _, p := range names { // a prefix is no pattern
			es, err := k.Scan(t.Context(), store.Range{Namespace: ns, Prefix: p}, store.ScanMax)
			if err != nil || len(es) == 0 || !strings.HasPrefix(es[len(es)-1].Key, p) {
				t.Fatalf("prefix %q lists %+v, %v", p, es, err)
			}
		}
	}
	k.clean()
}

// Two stores on one server are two nodes: what one hands out the other does not.
func TestTwoStores(t *testing.T) {
	o := redisstore.Options{Prefix: prefix(), Partitions: 4}
	var ks [2]kit
	for i := range ks {
		ks[i] = kit{t, open(t, "redis://"+single.Addr, o)}
	}
	const rounds = 50

	t.Run("a token", func(t *testing.T) {
		for i := range int64(rounds) {
			var fresh atomic.Int64
			ks[0].parallel(func(g int) error {
				k := ks[g%2]
				r, err := k.try(t.Context(), k.batch(once(add("token", 1), fmt.Sprint(i))))
				if err != nil {
					return err
				}
				if res := r.Results[0]; res.Before != i || res.After != i+1 {
					return fmt.Errorf("round %d: %+v", i, res)
				}
				if !r.Results[0].Replayed {
					fresh.Add(1)
				}
				return nil
			})
			if fresh.Load() != 1 {
				t.Fatalf("round %d: %d were the first", i, fresh.Load())
			}
		}
	})

	t.Run("a mark", func(t *testing.T) {
		w := ks[0].enlist()
		for i := range uint64(rounds) {
			var fresh atomic.Int64
			ks[0].parallel(func(g int) error {
				k := ks[g%2]
				r, err := k.try(t.Context(), k.numbered(w, i, i+1, add("mark", 1)))
				if err == nil && !r.Replayed {
					fresh.Add(1)
				}
				return err
			})
			if fresh.Load() != 1 {
				t.Fatalf("round %d: %d were the first", i, fresh.Load())
			}
		}
		ks[1].holds("mark", rounds)
	})

	t.Run("values", func(t *testing.T) {
		var mu sync.Mutex
		seen := make(map[int64]bool)
		ks[0].parallel(func(g int) error {
			k := ks[g%2]
			for i := range rounds {
				d := add("ids", 1)
				if i%3 == 2 { // decided here, not in the server
					d.Guard.Bound = &store.Bound{High: math.MaxInt64}
				}
				r, err := k.try(t.Context(), k.batch(d))
				if err != nil {
					return err
				}
				mu.Lock()
				twice := seen[r.Results[0].After]
				seen[r.Results[0].After] = true
				mu.Unlock()
				if twice {
					return fmt.Errorf("%d was handed out twice", r.Results[0].After)
				}
			}
			return nil
		})
		ks[1].holds("ids", 4*rounds)
	})

	t.Run("a bound", func(t *testing.T) {
		var taken atomic.Int64
		ks[0].parallel(func(g int) error {
			k := ks[g%2]
			for range rounds {
				d := add("stock", 1)
				d.Guard.Bound = &store.Bound{High: 2 * rounds}
				r, err := k.try(t.Context(), k.batch(d))
				if err != nil {
					return err
				}
				if r.Results[0].Outcome == store.Applied {
					taken.Add(1)
				}
			}
			return nil
		})
		if taken.Load() != 2*rounds {
			t.Fatalf("%d were taken of %d", taken.Load(), 2*rounds)
		}
	})

	t.Run("a cell that comes and goes", func(t *testing.T) {
		// Each life begins above all versions before it, whoever begins it.
		var mu sync.Mutex
		versions := make(map[uint64]bool)
		ks[0].parallel(func(g int) error {
			k, last := ks[g%2], uint64(0)
			for i := range rounds {
				d := add("lives", 1)
				d.Guard.Bound = &store.Bound{High: math.MaxInt64}
				if i%2 == 1 {
					d = store.Delta{Cell: cell("lives"), Op: store.OpDelete}
				}
				r, err := k.try(t.Context(), k.batch(d))
				if err != nil {
					return err
				}
				v := r.Results[0].Version
				if v == 0 {
					continue
				}
				mu.Lock()
				twice := versions[v]
				versions[v] = true
				mu.Unlock()
				if twice || v <= last {
					return fmt.Errorf("version %d after %d, told twice: %v", v, last, twice)
				}
				last = v
			}
			return nil
		})
	})
	ks[0].clean()
}

// Expired cells go by themselves, whichever partition they are in.
func TestSweep(t *testing.T) {
	var ms atomic.Int64
	ms.Store(1_000_000)
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{
		Prefix: prefix(), Partitions: 2, Now: func() time.Time { return time.UnixMilli(ms.Load()) },
	})}
	for i := range 500 {
		d := add(fmt.Sprint("due", i), 1<<40)
		d.Expiry, d.DeadlineMS = store.ExpirySet, ms.Load()+1
		k.reply(k.batch(d))
	}
	k.reply(k.batch(add("stays", 5)))
	ms.Add(1)
	for begun := time.Now(); ; {
		n, err := k.Store.(store.Sizer).Size(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		removed := k.meter("quipu_redis_expired_total")
		if n == 1 && removed == 500 {
			break
		}
		if time.Since(begun) > 20*time.Second || removed > 500 {
			t.Fatalf("%d cells are left long after their deadline, %v were removed", n, removed)
		}
	}
	k.clean()
}

// A token that has been kept long enough is a new one, also if the store has not
// come to forgetting it.
func TestOldTokens(t *testing.T) {
	var ms atomic.Int64
	ms.Store(1_000_000)
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{
		Prefix: prefix(), Partitions: 1, Limits: store.Limits{TokenWindow: time.Minute},
		Now: func() time.Time { return time.UnixMilli(ms.Load()) },
	})}
	ds := make([]store.Delta, 500)
	for i := range ds {
		ds[i] = once(add("a", 1), fmt.Sprint(i))
	}
	k.reply(k.batch(ds...))
	ms.Add(2 * time.Minute.Milliseconds())
	k.one(ds[499], store.Applied, 500, 501)
	k.one(ds[400], store.Applied, 501, 502)
	for range 2 { // now they are remembered again
		k.one(ds[499], store.Applied, 500, 501)
		k.one(ds[400], store.Applied, 501, 502)
	}
	k.clean()
	ms.Add(2 * time.Minute.Milliseconds())
	for range 30 { // some are forgotten with each decision
		k.reply(k.batch(settle("s")))
	}
	a, err := k.Store.(store.Auditor).Audit(t.Context())
	if err != nil || a.Tokens != 1 || len(a.Drift) != 0 {
		t.Fatalf("audit %+v, %v: want one token", a, err)
	}
}

// Partitions are apart, so each has a share of a namespace's limit.
func TestShares(t *testing.T) {
	const limit = 400
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{
		Prefix: prefix(), Partitions: 4, Limits: store.Limits{KeysMax: limit, TokensMax: limit},
	})}
	share := k.Traits().Limits.Share(4)
	if share.KeysMax <= limit/4 || share.KeysMax >= limit/2 {
		t.Fatalf("a share of %d of %d", share.KeysMax, limit)
	}
	for i := range limit { // about the limit fits
		k.one(once(add(fmt.Sprint("key", i), 1), "t"), store.Applied, 0, 1)
	}
	full := 0
	for i := range 4 * limit {
		r := k.reply(k.batch(once(add(fmt.Sprint("more", i), 1), "t"))).Results[0]
		if r.Outcome == store.Full {
			full++
		}
	}
	n, err := k.Store.(store.Sizer).Size(t.Context(), "n")
	if err != nil || n != 4*share.KeysMax || full == 0 {
		t.Fatalf("%d keys, %v: want %d, four shares; %d were refused", n, err, 4*share.KeysMax, full)
	}
	k.clean()
}
