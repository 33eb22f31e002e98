package quipu_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/dbtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

func TestLaws(t *testing.T) {
	f := func(name string, open func(t testing.TB, o quipu.Options) *quipu.DB) {
		t.Run(name, func(t *testing.T) { dbtest.Run(t, dbtest.InProcess(open)) })
	}
	memory := func(partitions int) func(testing.TB, quipu.Options) *quipu.DB {
		return func(_ testing.TB, o quipu.Options) *quipu.DB {
			return quipu.New(memstore.New(memstore.Options{Limits: o.Limits, Partitions: partitions}), o)
		}
	}
	f("memory", memory(1))
	f("memory of many partitions", memory(7))
	f("embedded", func(t testing.TB, o quipu.Options) *quipu.DB {
		o.Logger = slog.New(slog.DiscardHandler)
		db, err := quipu.Open(t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		return db
	})
}

// The URL of a shared store is no name of a directory, and its password is not told.
func TestOpenURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"postgres://eve:secret@localhost/shop", "redis://localhost:6379", "file:///var/lib/quipu"} {
		db, err := quipu.Open(dir, quipu.Options{})
		if err == nil {
			_ = db.Close()
		}
		if !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), "store/pgstore or store/redisstore") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestOptionsValidate(t *testing.T) {
	f := func(o quipu.Options, want error) {
		t.Helper()
		if err := o.Validate(); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", o, err, want)
		}
		_, err := quipu.New(newStub(), o).In("other").Add(t.Context(), "a", 1)
		if !errors.Is(err, want) {
			t.Errorf("Add with %+v: %v, want %v", o, err, want)
		}
	}
	policy := func(p quipu.Policy) quipu.Options {
		return quipu.Options{Policies: []quipu.Policy{{Pattern: "*"}, p}}
	}
	f(quipu.Options{}, nil)
	f(policy(quipu.Policy{Namespace: "shop", Pattern: "stock:*", Durability: quipu.Synced}), nil)
	f(policy(quipu.Policy{Pattern: "a key"}), nil)
	f(policy(quipu.Policy{}), quipu.ErrInvalid)
	f(policy(quipu.Policy{Pattern: "a*b"}), quipu.ErrInvalid)
	f(policy(quipu.Policy{Pattern: "a**"}), quipu.ErrInvalid)
	f(policy(quipu.Policy{Pattern: "\xff*"}), quipu.ErrInvalid)
	f(policy(quipu.Policy{Pattern: strings.Repeat("k", 513) + "*"}), quipu.ErrTooLarge)
	f(policy(quipu.Policy{Pattern: "*", Namespace: "a/b"}), quipu.ErrInvalid)
	f(policy(quipu.Policy{Pattern: "*", Durability: quipu.Synced + 1}), quipu.ErrInvalid)
	f(quipu.Options{Memory: -1}, quipu.ErrInvalid)
	f(quipu.Options{Limits: quipu.Limits{TokenWindow: -1}}, quipu.ErrInvalid)
}

// Every call that reaches the store is told that it is closed.
func TestInvalidIsNotSent(t *testing.T) {
	ctx := t.Context()
	s := newStub()
	s.err = store.ErrClosed
	db := quipu.New(s, quipu.Options{})
	f := func(want error, call func() error) {
		t.Helper()
		if err := call(); !errors.Is(err, want) {
			t.Errorf("error is %v, want %v", err, want)
		}
	}
	f(quipu.ErrClosed, func() error { _, err := db.Add(ctx, "a", 1); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.Set(ctx, "a", 1, quipu.Token("")); return err })
	f(nil, func() error { _, err := db.AddBatch(ctx, []quipu.Event{{Key: "\xff"}}); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.Read(ctx, ""); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.ReadBatch(ctx, []string{"a", ""}); return err })
	f(quipu.ErrTooLarge, func() error { _, err := db.ReadBatch(ctx, make([]string, quipu.KeysMax+1)); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.Lookup(ctx, "a", ""); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.Settle(ctx, "", "t"); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.List(ctx, "\xff", quipu.ListOptions{}); return err })
	f(quipu.ErrTooLarge, func() error { _, err := db.List(ctx, "", quipu.ListOptions{Limit: quipu.PageMax + 1}); return err })
	f(quipu.ErrInvalid, func() error { _, err := db.In("a/b").Add(ctx, "a", 1); return err })
}

// able is a stub that can do all that a store may.
type able struct {
	*stub
}

func (able) Audit(context.Context) (store.Audit, error) {
	return store.Audit{Cells: 3}, nil
}

func (able) Snapshot(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "snapshot")
	return err
}

func (able) Meters(f func(name, help string, value float64)) {
	f("quipu_stub_total", "A meter of the store.", 7)
}

func TestOptionalInterfaces(t *testing.T) {
	ctx := t.Context()
	plain, full := quipu.New(newStub(), quipu.Options{}), quipu.New(able{newStub()}, quipu.Options{})

	if _, err := plain.Verify(ctx); !errors.Is(err, quipu.ErrUnsupported) {
		t.Errorf("Verify: %v, want %v", err, quipu.ErrUnsupported)
	}
	if audit, err := full.Verify(ctx); err != nil || audit.Cells != 3 {
		t.Errorf("Verify: %+v, %v", audit, err)
	}
	if err := plain.Backup(ctx, io.Discard); !errors.Is(err, quipu.ErrUnsupported) {
		t.Errorf("Backup: %v, want %v", err, quipu.ErrUnsupported)
	}
	var b bytes.Buffer
	if err := full.Backup(ctx, &b); err != nil || b.String() != "snapshot" {
		t.Errorf("Backup: %q, %v", &b, err)
	}
	if name := full.Port().Traits().Name; name != "stub" {
		t.Errorf("the store is %q", name)
	}
}

func TestMeters(t *testing.T) {
	ctx := t.Context()
	s := newStub()
	db := quipu.New(able{s}, quipu.Options{})
	expect := func(want ...float64) {
		t.Helper()
		var got []float64
		db.Port().Meters(func(_, _ string, value float64) { got = append(got, value) })
		last := len(got) - 1
		if got = append(got[:len(want)], got[last]); !slices.Equal(got, append(want, 7)) {
			t.Fatalf("refused, replayed, unknown and the store's are %v, want %v", got, want)
		}
	}
	call := func() { // what it returns is tested elsewhere
		_, _ = db.Add(ctx, "a", 1)
		_, _ = db.AddBatch(ctx, []quipu.Event{{Key: "a"}, {Key: "b"}})
	}
	expect(0, 0, 0)
	call()
	expect(0, 0, 0)
	s.result.Replayed = true
	call()
	expect(0, 3, 0)
	s.result = store.Result{Outcome: store.Overflow}
	call()
	expect(3, 3, 0)
	s.err = store.ErrUnavailable
	call()
	expect(3, 3, 0)
	s.err = store.ErrUnknown
	call()
	expect(3, 3, 2)
}

// TestCloseReading closes a DB while somebody begins to read a counter whose total is
// to be kept: he is answered or told that it is closed, and nothing goes on. What is
// wrong here, the race detector finds.
func TestCloseReading(t *testing.T) {
	for range 1000 {
		db := quipu.New(far{memstore.New(memstore.Options{})}, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Timing: quipu.Rollup, Interval: time.Second}}})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := db.Read(t.Context(), "a"); err != nil && !errors.Is(err, quipu.ErrClosed) {
				t.Error(err)
			}
		})
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestReadOnly writes to a DB that is read-only, in every way there is: each is
// refused and changes nothing, while reads go on.
func TestReadOnly(t *testing.T) {
	s := memstore.New(memstore.Options{})
	writer, reader := quipu.New(s, quipu.Options{}), quipu.New(s, quipu.Options{ReadOnly: true})
	ctx := t.Context()
	if _, err := writer.Add(ctx, "k", 5, quipu.Token("t")); err != nil {
		t.Fatal(err)
	}
	f := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, quipu.ErrReadOnly) {
			t.Errorf("%s: %v, want %v", what, err, quipu.ErrReadOnly)
		}
	}
	_, err := reader.Add(ctx, "k", 1)
	f("add", err)
	_, err = reader.Add(ctx, "k", 5, quipu.Token("t"))
	f("repeat", err)
	_, err = reader.AddBatch(ctx, []quipu.Event{{Key: "k", Delta: 1}})
	f("batch", err)
	_, err = reader.Set(ctx, "k", 1)
	f("set", err)
	_, err = reader.Reset(ctx, "k")
	f("reset", err)
	_, err = reader.Delete(ctx, "k")
	f("delete", err)
	_, err = reader.Settle(ctx, "k", "u")
	f("settle", err)
	f("clear", reader.Port().Clear(ctx))
	_, err = reader.Port().Enlist(ctx)
	f("enlist", err)
	add := []store.Delta{{Cell: store.Cell{Key: "k"}, Op: store.OpAdd, N: 1}}
	f("apply", reader.Port().Apply(ctx, add, make([]store.Result, 1)))
	f("apply if", reader.Port().ApplyIf(ctx, nil, add, make([]store.Result, 1)))
	if reader.Port().Start(add, make([]store.Result, 1), func(error) { t.Error("done") }) {
		t.Error("started a write")
	}

	if err := reader.Ready(ctx); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if c, err := reader.Read(ctx, "k"); err != nil || c.Value != 5 {
		t.Errorf("read %d, %v", c.Value, err)
	}
	get := []store.Delta{{Cell: store.Cell{Key: "k"}, Op: store.OpGet, Want: true}}
	results := make([]store.Result, 1)
	if err := reader.Port().Apply(ctx, get, results); err != nil || results[0].After != 5 {
		t.Errorf("got %+v, %v", results[0], err)
	}
	if fate, err := reader.Lookup(ctx, "k", "t"); err != nil || fate.State != store.TokenApplied {
		t.Errorf("lookup: %+v, %v", fate, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Ready(ctx); !errors.Is(err, quipu.ErrClosed) {
		t.Errorf("ready after close: %v", err)
	}
}

// A stub is a store that decides nothing and allocates nothing: it gives the
// answers it was made with.
type stub struct {
	traits store.Traits
	result store.Result   // what each delta is told
	refuse map[int]error  // what batches of a partition are told
	value  store.Value    // what each cell holds
	fate   store.Fate     // what each token's is
	err    error          // what every call returns
	mu     sync.Mutex     // guards what sent points to
	sent   *[]store.Batch // if not nil, takes a copy of what Apply is given
}

func newStub() *stub {
	return &stub{
		traits: store.Traits{Name: "stub", Partitions: 1, Durability: store.Synced},
		result: store.Result{Outcome: store.Applied, Version: 1},
	}
}

// record makes the stub keep what Apply is given from now on.
func (s *stub) record() *[]store.Batch {
	s.sent = new([]store.Batch)
	return s.sent
}

func (s *stub) Apply(_ context.Context, batches []store.Batch, replies []store.Reply) error {
	for i := range batches {
		b, r := &batches[i], &replies[i]
		r.Durability = b.Durability
		r.Err = s.refuse[b.Partition]
		r.Results = r.Results[:0]
		for range b.Deltas {
			r.Results = append(r.Results, s.result)
		}
		if s.sent != nil {
			sent := *b
			sent.Deltas = slices.Clone(b.Deltas)
			s.mu.Lock()
			*s.sent = append(*s.sent, sent)
			s.mu.Unlock()
		}
	}
	return s.err
}

func (s *stub) Read(_ context.Context, _ []store.Cell, values []store.Value) error {
	for i := range values {
		values[i] = s.value
	}
	return s.err
}

func (s *stub) Scan(context.Context, store.Range, int) ([]store.Entry, error) { return nil, s.err }

func (s *stub) ReadParts(context.Context, []store.PartCell, []store.Content) error { return s.err }

func (s *stub) ScanParts(context.Context, store.Rows, int) ([]store.PartEntry, error) {
	return nil, s.err
}

func (s *stub) Lookup(context.Context, store.Cell, string) (store.Fate, error) { return s.fate, s.err }

func (s *stub) Traits() store.Traits { return s.traits }

func (s *stub) Close() error { return nil }

// far is a store that is not in this process, for all that a DB can tell: then
// totals are kept for readers.
type far struct{ store.Store }
