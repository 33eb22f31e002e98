package store_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

func TestLimitsWithDefaults(t *testing.T) {
	want := store.Limits{KeysMax: 1_000_000_000, TokensMax: 10_000_000, TokenWindow: 24 * time.Hour, NamespacesMax: 10_000, WritersMax: 10_000, UsersMax: 1_000_000_000, HoldsMax: 10_000_000}
	if got := (store.Limits{}).WithDefaults(); got != want {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
	set := store.Limits{KeysMax: 1, TokensMax: 2, TokenWindow: 3, NamespacesMax: 5, WritersMax: 4, UsersMax: 6, HoldsMax: 7}
	if got := set.WithDefaults(); got != set {
		t.Errorf("%+v became %+v", set, got)
	}
}

// checks calls a check and compares the kind of its error; 0 is none.
func checks(t *testing.T, err error, want store.Kind) {
	t.Helper()
	if got := store.KindOf(err); got != want || (err == nil) != (want == 0) {
		t.Errorf("error %v of kind %d, want kind %d", err, got, want)
	}
}

func TestCheckCell(t *testing.T) {
	f := func(ns, key string, want store.Kind) {
		t.Helper()
		checks(t, store.CheckCell(store.Cell{Namespace: ns, Key: key}), want)
	}
	f("", "k", 0)
	f("n", "k", 0)
	f("n\x00", "\x00", 0)
	f(strings.Repeat("n", 64), strings.Repeat("k", 512), 0)
	f("n", strings.Repeat("é", 256), 0)
	f("n", "", store.KindInvalid)
	f("n", "\xff", store.KindInvalid)
	f("n", "a\xed\xa0\x80", store.KindInvalid) // half of a surrogate pair
	f("\xc3", "k", store.KindInvalid)
	f("n", strings.Repeat("k", 513), store.KindTooLarge)
	f("n", strings.Repeat("é", 257), store.KindTooLarge)
	f(strings.Repeat("n", 65), "k", store.KindTooLarge)
}

func TestCheckToken(t *testing.T) {
	f := func(token string, want store.Kind) {
		t.Helper()
		checks(t, store.CheckToken(token), want)
	}
	f("t", 0)
	f("\x00", 0)
	f(strings.Repeat("t", 255), 0)
	f("", store.KindInvalid)
	f("t\xff", store.KindInvalid)
	f(strings.Repeat("t", 256), store.KindTooLarge)
}

func TestCheckRead(t *testing.T) {
	f := func(cells []store.Cell, values int, want store.Kind) {
		t.Helper()
		checks(t, store.CheckRead(cells, make([]store.Value, values)), want)
	}
	good, bad := store.Cell{Namespace: "n", Key: "k"}, store.Cell{Namespace: "n"}
	f(nil, 0, 0)
	f(many(good, store.ReadCellsMax), store.ReadCellsMax, 0)
	f(many(good, store.ReadCellsMax+1), store.ReadCellsMax+1, store.KindTooLarge)
	f(nil, 1, store.KindInvalid)
	f([]store.Cell{good}, 0, store.KindInvalid)
	f([]store.Cell{good, bad}, 2, store.KindInvalid)
}

func TestCheckBatch(t *testing.T) {
	c := store.Cell{Namespace: "n", Key: "k"}
	good := store.Delta{Cell: c, Op: store.OpAdd, N: 1}
	f := func(want store.Kind, change func(b *store.Batch)) {
		t.Helper()
		b := store.Batch{Partition: 3, Deltas: []store.Delta{good, good}}
		change(&b)
		checks(t, store.CheckBatch(&b, 4), want)
	}
	f(0, func(*store.Batch) {})
	f(0, func(b *store.Batch) { b.Deltas = nil })
	f(0, func(b *store.Batch) { b.Partition = 0 })
	f(store.KindInvalid, func(b *store.Batch) { b.Partition = 4 })
	f(store.KindInvalid, func(b *store.Batch) { b.Partition = -1 })

	f(0, func(b *store.Batch) { b.Writer, b.Prev, b.Seq = 1, 0, 1 })
	f(0, func(b *store.Batch) { b.Prev, b.Seq = 9, 3 }) // no writer, no numbers
	f(store.KindInvalid, func(b *store.Batch) { b.Writer = 1 })
	f(store.KindInvalid, func(b *store.Batch) { b.Writer, b.Prev, b.Seq = 1, 5, 5 })
	f(store.KindInvalid, func(b *store.Batch) { b.Writer, b.Prev, b.Seq = 1, 5, 4 })

	f(0, func(b *store.Batch) { b.Durability = store.Synced })
	f(store.KindInvalid, func(b *store.Batch) { b.Durability = store.Synced + 1 })

	f(0, func(b *store.Batch) { b.Deltas = many(good, store.BatchDeltasMax) })
	f(store.KindTooLarge, func(b *store.Batch) { b.Deltas = many(good, store.BatchDeltasMax+1) })

	// Namespaces, keys and tokens all count.
	wide := store.Delta{
		Cell:  store.Cell{Namespace: strings.Repeat("n", 64), Key: strings.Repeat("k", 512)},
		Op:    store.OpAdd,
		Guard: store.Guard{Token: strings.Repeat("t", 192)},
	}
	fits := store.BatchBytesMax / (64 + 512 + 192)
	f(0, func(b *store.Batch) { b.Deltas = many(wide, fits) })
	f(store.KindTooLarge, func(b *store.Batch) { b.Deltas = many(wide, fits+1) })

	// So do those of conditions.
	wideIf := store.Condition{Cell: wide.Cell}
	f(0, func(b *store.Batch) { b.If = many(store.Condition{Cell: c}, 1) })
	f(0, func(b *store.Batch) { b.Deltas, b.If = nil, many(wideIf, store.BatchBytesMax/(64+512)) })
	f(store.KindTooLarge, func(b *store.Batch) { b.Deltas, b.If = nil, many(wideIf, store.BatchBytesMax/(64+512)+1) })
	f(store.KindTooLarge, func(b *store.Batch) { b.Deltas, b.If = many(wide, fits), many(wideIf, 1) })
	f(0, func(b *store.Batch) { b.If = many(store.Condition{Cell: c}, store.BatchDeltasMax) })
	f(store.KindTooLarge, func(b *store.Batch) { b.If = many(store.Condition{Cell: c}, store.BatchDeltasMax+1) })
	f(store.KindInvalid, func(b *store.Batch) { b.If = many(store.Condition{}, 1) })
	f(store.KindTooLarge, func(b *store.Batch) {
		b.If = []store.Condition{{Cell: c}, {Cell: store.Cell{Namespace: "n", Key: strings.Repeat("k", 513)}}}
	})

	delta := func(want store.Kind, change func(d *store.Delta)) {
		t.Helper()
		f(want, func(b *store.Batch) { change(&b.Deltas[1]) })
	}
	delta(0, func(d *store.Delta) { d.Op = store.OpSet })
	delta(0, func(d *store.Delta) { d.Op = store.OpDelete })
	delta(0, func(d *store.Delta) { d.Guard.Token = "t" })
	delta(0, func(d *store.Delta) { d.Op, d.Guard.Token = store.OpSettle, "t" })
	delta(0, func(d *store.Delta) { *d = store.Delta{Op: store.OpRetire, N: 1} })
	delta(store.KindInvalid, func(d *store.Delta) { d.Op = 0 })
	delta(store.KindInvalid, func(d *store.Delta) { d.Op = store.OpLayout + 1 })
	delta(store.KindInvalid, func(d *store.Delta) { d.Op = store.OpSettle })
	delta(store.KindInvalid, func(d *store.Delta) { d.Op, d.N = store.OpRetire, 0 })
	delta(store.KindInvalid, func(d *store.Delta) { d.Op, d.N = store.OpRetire, -1 })
	delta(store.KindInvalid, func(d *store.Delta) { d.Guard.Token = "\xff" })
	delta(store.KindTooLarge, func(d *store.Delta) { d.Guard.Token = strings.Repeat("t", 256) })
	delta(store.KindInvalid, func(d *store.Delta) { d.Cell.Key = "" })
	delta(store.KindTooLarge, func(d *store.Delta) { d.Cell.Key = strings.Repeat("k", 513) })
}

func TestCheckBatchConditions(t *testing.T) {
	f := func(want store.Kind, d store.Delta) {
		t.Helper()
		d.Cell = store.Cell{Namespace: "n", Key: "k"}
		checks(t, store.CheckBatch(&store.Batch{Deltas: []store.Delta{d}}, 1), want)
	}
	const bad = store.KindInvalid
	all := store.ExpirySet | store.ExpiryIfNone | store.ExpiryIfSome | store.ExpiryIfLater | store.ExpiryIfSooner | store.ExpiryAfter
	for _, op := range []store.Op{store.OpAdd, store.OpSet, store.OpExpire} {
		f(0, store.Delta{Op: op, Expiry: store.ExpiryClear})
		f(0, store.Delta{Op: op, Expiry: store.ExpirySet, DeadlineMS: 1})
		f(0, store.Delta{Op: op, Expiry: all, DeadlineMS: math.MaxInt64, Guard: store.Guard{Token: "t"}})
		f(bad, store.Delta{Op: op, Expiry: store.ExpirySet})
		f(bad, store.Delta{Op: op, Expiry: store.ExpirySet, DeadlineMS: -1})
		f(bad, store.Delta{Op: op, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryClear, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryClear | store.ExpiryIfSome})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryClear | store.ExpirySet, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryIfSooner, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryIfSooner})
		f(bad, store.Delta{Op: op, Expiry: all + 1, DeadlineMS: 1})
		f(0, store.Delta{Op: op, Expiry: store.ExpiryAfter | store.ExpirySet, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryAfter | store.ExpirySet})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryAfter | store.ExpirySet, DeadlineMS: -1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryAfter, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: store.ExpiryAfter | store.ExpiryClear})
		f(bad, store.Delta{Op: op, Expiry: 128 | store.ExpirySet, DeadlineMS: 1})
		f(bad, store.Delta{Op: op, Expiry: 128})
	}
	f(bad, store.Delta{Op: store.OpExpire})
	f(0, store.Delta{Op: store.OpGet, Want: true})
	f(bad, store.Delta{Op: store.OpGet, Guard: store.Guard{Token: "t"}})
	settled := store.Guard{Token: "t"}
	for _, d := range []store.Delta{{Op: store.OpDelete}, {Op: store.OpGet}, {Op: store.OpSettle, Guard: settled}} {
		d.Expiry = store.ExpiryClear
		f(bad, d)
		d.Expiry, d.DeadlineMS = store.ExpirySet, 1
		f(bad, d)
	}
	for _, op := range []store.Op{store.OpAdd, store.OpSet, store.OpDelete, store.OpGet} {
		f(0, store.Delta{Op: op, Guard: store.Guard{Exists: store.ExistsMust}})
		f(0, store.Delta{Op: op, Guard: store.Guard{Exists: store.ExistsNot}})
		f(bad, store.Delta{Op: op, Guard: store.Guard{Exists: store.ExistsNot + 1}})
	}
	f(0, store.Delta{Op: store.OpAdd, Guard: store.Guard{Bound: &store.Bound{}}})
	f(0, store.Delta{Op: store.OpAdd, Guard: store.Guard{Bound: &store.Bound{Low: math.MinInt64, High: math.MaxInt64, Saturate: true}}})
	f(0, store.Delta{Op: store.OpAdd, Guard: store.Guard{Bound: &store.Bound{Low: 1}}})
	f(bad, store.Delta{Op: store.OpAdd, Guard: store.Guard{Bound: &store.Bound{Low: 1, Saturate: true}}})
	f(0, store.Delta{Op: store.OpAdd, Guard: store.Guard{Bound: &store.Bound{Low: 1, Saturate: true, Inward: true}}})
	f(0, store.Delta{Op: store.OpSet, Guard: store.Guard{Bound: &store.Bound{}}})
	f(bad, store.Delta{Op: store.OpSet, Guard: store.Guard{Bound: &store.Bound{Saturate: true}}})
	f(bad, store.Delta{Op: store.OpDelete, Guard: store.Guard{Bound: &store.Bound{}}})
	f(bad, store.Delta{Op: store.OpGet, Guard: store.Guard{Bound: &store.Bound{}}})
	f(bad, store.Delta{Op: store.OpExpire, Expiry: store.ExpiryClear, Guard: store.Guard{Bound: &store.Bound{}}})
}

func many[T any](v T, n int) []T { return slices.Repeat([]T{v}, n) }

func TestShare(t *testing.T) {
	f := func(all int64, partitions int, want int64) {
		t.Helper()
		l := store.Limits{KeysMax: all, TokensMax: all, NamespacesMax: 7, WritersMax: 8, TokenWindow: 9}
		shared := store.Limits{KeysMax: want, TokensMax: want, NamespacesMax: 7, WritersMax: 8, TokenWindow: 9}
		if got := l.Share(partitions); got != shared {
			t.Errorf("share of %d among %d is %+v, want %+v", all, partitions, got, shared)
		}
	}
	f(4, 1, 4)
	f(1_000_000_000, 1, 1_000_000_000)
	f(6400, 64, 100+40+1)
	f(10_000_000, 64, 157833) // 156250 + 1581.1 + 1, rounded up
	f(1, 64, 1)
	f(4, 64, 3)
	f(0, 64, 0)
}

func TestCheckWindow(t *testing.T) {
	f := func(has, asked time.Duration, ok bool) {
		t.Helper()
		if err := store.CheckWindow(has, asked); (err == nil) != ok || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s for %s: %v", has, asked, err)
		}
	}
	f(time.Hour, time.Hour, true)
	f(time.Hour, time.Hour+time.Microsecond, true)
	f(time.Hour, 0, true)
	f(time.Hour, time.Hour+time.Millisecond, false)
	f(time.Hour, time.Minute, false)
}
