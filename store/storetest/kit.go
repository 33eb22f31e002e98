package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

// tb is what the kit needs of a test: a *testing.T, or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// namespace is where the laws count, unless they need two.
const namespace = "laws"

// A kit is a store under test with short names for what laws do to it. Its
// methods end the test when the store can't answer, except for try and watch,
// which are for goroutines.
type kit struct {
	tb
	t     testing.TB // what Crash, Reopen and Beside are given
	ctx   context.Context
	inst  *Instance
	store store.Store
	parts int
}

// newKit returns a kit that reports to r while t, the test around it, owns
// what the store leaves behind.
func newKit(t testing.TB, r tb, inst *Instance) *kit {
	return &kit{tb: r, t: t, ctx: t.Context(), inst: inst, store: inst.Store, parts: inst.Store.Traits().Partitions}
}

func (k *kit) close() {
	k.Helper()
	if err := k.store.Close(); err != nil {
		k.Errorf("Close: %v", err)
	}
}

// replace puts the store that Crash or Reopen returned in place.
func (k *kit) replace(s store.Store) {
	k.inst.Store, k.store = s, s
}

func cell(key string) store.Cell { return store.Cell{Namespace: namespace, Key: key} }

func add(c store.Cell, n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpAdd, N: n} }
func set(c store.Cell, n int64) store.Delta { return store.Delta{Cell: c, Op: store.OpSet, N: n} }
func del(c store.Cell) store.Delta          { return store.Delta{Cell: c, Op: store.OpDelete} }

func settle(c store.Cell, token string) store.Delta {
	return store.Delta{Cell: c, Op: store.OpSettle, Guard: store.Guard{Token: token}}
}

// get asks what a cell is.
func get(c store.Cell) store.Delta { return store.Delta{Cell: c, Op: store.OpGet, Want: true} }

// expire changes nothing but the deadline.
func expire(c store.Cell, x store.Expiry, ms int64) store.Delta {
	return expiring(store.Delta{Cell: c, Op: store.OpExpire}, x, ms)
}

// expiring makes a delta change the deadline too.
func expiring(d store.Delta, x store.Expiry, ms int64) store.Delta {
	d.Expiry, d.DeadlineMS = x, ms
	return d
}

// until makes a delta set the deadline.
func until(d store.Delta, ms int64) store.Delta { return expiring(d, store.ExpirySet, ms) }

// lasting makes a delta give its cell a lifetime.
func lasting(d store.Delta, ms int64) store.Delta {
	return expiring(d, store.ExpirySet|store.ExpiryAfter, ms)
}

// only makes a delta depend on whether its cell exists.
func only(d store.Delta, e store.Existence) store.Delta {
	d.Guard.Exists = e
	return d
}

// layout makes the layout of a cell one, if it is another now.
func layout(c store.Cell, now, then int64) store.Delta {
	return laid(store.Delta{Cell: c, Op: store.OpLayout, N: then}, now)
}

// laid makes a delta depend on the layout of its cell.
func laid(d store.Delta, word int64) store.Delta {
	d.Guard.Laid, d.Guard.Layout = true, word
	return d
}

// apartly lets the deltas of a batch be refused alone.
func apartly(b store.Batch) store.Batch {
	b.Apart = true
	return b
}

// within puts a bound on a delta.
func within(d store.Delta, b store.Bound) store.Delta {
	d.Guard.Bound = &b
	return d
}

func want(d store.Delta) store.Delta {
	d.Want = true
	return d
}

// once puts a token on a delta that wants its value. The digest is that of the
// delta itself, as a careful caller's would be.
func once(d store.Delta, token string) store.Delta {
	d.Want = true
	d.Guard.Token = token
	d.Guard.Digest = uint64(d.Op)<<56 ^ uint64(d.N)
	return d
}

func match(d store.Delta, version uint64) store.Delta {
	d.Guard.Match, d.Guard.Version = true, version
	return d
}

// together returns n cells of one partition.
func (k *kit) together(n int) []store.Cell {
	return k.find(n, func(home int, found []store.Cell) bool {
		return len(found) == 0 || home == k.home(found[0])
	})
}

// apart returns a cell of each partition.
func (k *kit) apart() []store.Cell {
	seen := make(map[int]bool)
	return k.find(k.parts, func(home int, _ []store.Cell) bool {
		fresh := !seen[home]
		seen[home] = true
		return fresh
	})
}

func (k *kit) find(n int, ok func(home int, found []store.Cell) bool) []store.Cell {
	var found []store.Cell
	for i := 0; len(found) < n; i++ {
		if c := cell(fmt.Sprintf("c%d", i)); ok(k.home(c), found) {
			found = append(found, c)
		}
	}
	return found
}

func (k *kit) home(c store.Cell) int { return store.PartitionOf(c, k.parts) }

// batch returns the batch of some deltas to cells of one partition.
func (k *kit) batch(ds ...store.Delta) store.Batch {
	b := store.Batch{Deltas: ds}
	if len(ds) > 0 {
		b.Partition = k.home(ds[0].Cell)
	}
	return b
}

// numbered returns a batch of a writer that covers (prev, seq].
func (k *kit) numbered(w store.Writer, prev, seq uint64, ds ...store.Delta) store.Batch {
	b := k.batch(ds...)
	b.Writer, b.Prev, b.Seq = w, prev, seq
	return b
}

// given puts a condition on a batch: a cell is at a version.
func given(b store.Batch, c store.Cell, version uint64) store.Batch {
	b.If = append(b.If, store.Condition{Cell: c, Version: version})
	return b
}

// try applies one batch. An error is the call's or the batch's.
func (k *kit) try(b store.Batch) (store.Reply, error) { return send(k.ctx, k.store, b) }

func send(ctx context.Context, s store.Store, b store.Batch) (store.Reply, error) {
	replies := make([]store.Reply, 1)
	if err := s.Apply(ctx, []store.Batch{b}, replies); err != nil {
		return store.Reply{}, err
	}
	r := replies[0]
	if r.Err == nil && len(r.Results) != len(b.Deltas) {
		return r, fmt.Errorf("%d results for %d deltas", len(r.Results), len(b.Deltas))
	}
	return r, r.Err
}

// apply applies batches in one call and returns a reply for each.
func (k *kit) apply(bs ...store.Batch) []store.Reply {
	k.Helper()
	replies := make([]store.Reply, len(bs))
	if err := k.store.Apply(k.ctx, bs, replies); err != nil {
		k.Fatalf("Apply: %v", err)
	}
	return replies
}

// do applies one batch of deltas to cells of one partition.
func (k *kit) do(ds ...store.Delta) []store.Result {
	k.Helper()
	return k.reply(k.batch(ds...)).Results
}

// one applies one delta.
func (k *kit) one(d store.Delta) store.Result {
	k.Helper()
	return k.do(d)[0]
}

// reply applies one batch that must not be refused.
func (k *kit) reply(b store.Batch) store.Reply {
	k.Helper()
	r, err := k.try(b)
	if err != nil {
		k.Fatalf("Apply: %v", err)
	}
	return r
}

// refused applies one batch that must be refused as a whole with an error of a
// kind, and returns the reply.
func (k *kit) refused(b store.Batch, kind store.Kind) store.Reply {
	k.Helper()
	r := k.apply(b)[0]
	k.kind(r.Err, kind)
	return r
}

func (k *kit) kind(err error, kind store.Kind) {
	k.Helper()
	if err == nil {
		k.Fatalf("no error, want one of kind %d", kind)
	}
	if store.KindOf(err) != kind {
		k.Fatalf("error of kind %d, want %d: %v", store.KindOf(err), kind, err)
	}
}

func (k *kit) read(c store.Cell) store.Value {
	k.Helper()
	return k.readAll(c)[0]
}

func (k *kit) readAll(cs ...store.Cell) []store.Value {
	k.Helper()
	vs := make([]store.Value, len(cs))
	for i := range vs {
		vs[i] = store.Value{N: -77, Version: 77, Exists: true, DeadlineMS: 7, Layout: 7} // to be overwritten
	}
	if err := k.store.Read(k.ctx, cs, vs); err != nil {
		k.Fatalf("Read: %v", err)
	}
	return vs
}

// watch reads cells until done is closed, and checks what they are each time.
func (k *kit) watch(done <-chan struct{}, cs []store.Cell, check func(vs []store.Value) error) error {
	vs := make([]store.Value, len(cs))
	for {
		select {
		case <-done:
			return nil
		default:
		}
		if err := k.store.Read(k.ctx, cs, vs); err != nil {
			return err
		}
		if err := check(vs); err != nil {
			return err
		}
	}
}

// holds checks that a cell exists and has a value.
func (k *kit) holds(c store.Cell, n int64) {
	k.Helper()
	if v := k.read(c); !v.Exists || v.N != n || v.Version == 0 {
		k.Fatalf("%q reads %+v, want %d", c.Key, v, n)
	}
}

// holdsUntil checks that a cell exists and has a value and a deadline.
func (k *kit) holdsUntil(c store.Cell, n, ms int64) {
	k.Helper()
	if v := k.read(c); !v.Exists || v.N != n || v.Version == 0 || v.DeadlineMS != ms {
		k.Fatalf("%q reads %+v, want %d until %d", c.Key, v, n, ms)
	}
}

// absent checks that a cell does not exist.
func (k *kit) absent(c store.Cell) {
	k.Helper()
	if v := k.read(c); v != (store.Value{}) {
		k.Fatalf("%q reads %+v, want the zero Value", c.Key, v)
	}
}

func (k *kit) lookup(c store.Cell, token string) store.Fate {
	k.Helper()
	f, err := k.store.Lookup(k.ctx, c, token)
	if err != nil {
		k.Fatalf("Lookup: %v", err)
	}
	return f
}

// state checks the state of a token and returns its fate.
func (k *kit) state(c store.Cell, token string, s store.TokenState) store.Fate {
	k.Helper()
	f := k.lookup(c, token)
	if f.State != s {
		k.Fatalf("token %q is %v, want %v", token, f.State, s)
	}
	return f
}

// outcome checks the outcome of a result.
func (k *kit) outcome(r store.Result, o store.Outcome) {
	k.Helper()
	if r.Outcome != o {
		k.Fatalf("outcome %d (%v), want %d (%v)", r.Outcome, r.Outcome.Err(), o, o.Err())
	}
}

// told checks everything but the version of a result that asked for it.
func (k *kit) told(r, want store.Result) {
	k.Helper()
	want.Version = r.Version
	if r != want || (r.Version != 0 && r.Outcome != store.Applied) {
		k.Fatalf("result is %+v, want %+v", r, want)
	}
}

// applied checks a result that asked for its value.
func (k *kit) applied(r store.Result, before, after int64) {
	k.Helper()
	k.outcome(r, store.Applied)
	if r.Before != before || r.After != after {
		k.Fatalf("result is %d to %d, want %d to %d", r.Before, r.After, before, after)
	}
}

// repeats checks that a result is the first one again, as a token tells it.
func (k *kit) repeats(got, first store.Result) {
	k.Helper()
	first = kept(first)
	first.Replayed = true
	if got != first {
		k.Fatalf("repeat returns %+v, want the first result %+v", got, first)
	}
}

// kept returns what a token keeps of a first result.
func kept(first store.Result) store.Result {
	first.Existed, first.DeadlineMS = false, 0
	return first
}

func (k *kit) enlist() store.Writer {
	k.Helper()
	w, err := store.Enlist(k.ctx, k.store)
	if err != nil {
		k.Fatalf("Enlist: %v", err)
	}
	return w
}

// scan returns up to n entries.
func (k *kit) scan(r store.Range, n int) []store.Entry {
	k.Helper()
	es, err := k.store.Scan(k.ctx, r, n)
	if err != nil {
		k.Fatalf("Scan: %v", err)
	}
	if len(es) > n {
		k.Fatalf("Scan returned %d entries, asked for %d", len(es), n)
	}
	return es
}

// parallel runs f in n goroutines at once and reports what they return.
func (k *kit) parallel(n int, f func(i int) error) {
	k.Helper()
	if err := parallel(n, f); err != nil {
		k.Fatalf("%v", err)
	}
}

func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// A clock is a time that laws move by hand.
type clock struct {
	mu sync.Mutex // guards t
	t  time.Time
}

func newClock() *clock {
	return &clock{t: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// ms returns the time in Unix milliseconds.
func (c *clock) ms() int64 { return c.now().UnixMilli() }

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}
