package quipu_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

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
	if name := full.Traits().Name; name != "stub" {
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
		db.Meters(func(_, _ string, value float64) { got = append(got, value) })
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
