package dbtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// tb is what a kit needs of a test: a *testing.T, or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A kit is a DB under test with short names for what laws do to it. Its methods
// end the test when the answer is not the one wanted; goroutines of a law use
// db itself, and return their error to parallel.
type kit struct {
	tb
	t    *testing.T
	ctx  context.Context
	door Door
	in   func(namespace string) DB
	db   DB // the namespace the methods below count in
}

// with returns a kit that reports to t and counts in another namespace.
func (k *kit) with(t tb, namespace string) *kit {
	return &kit{tb: t, t: k.t, ctx: k.ctx, door: k.door, in: k.in, db: k.in(namespace)}
}

func (k *kit) add(key string, n int64, opts ...quipu.WriteOption) quipu.Receipt {
	k.Helper()
	r, err := k.db.Add(k.ctx, key, n, opts...)
	if err != nil {
		k.Fatalf("Add(%q, %d): %v", key, n, err)
	}
	return r
}

func (k *kit) set(key string, n int64, opts ...quipu.WriteOption) quipu.Receipt {
	k.Helper()
	r, err := k.db.Set(k.ctx, key, n, opts...)
	if err != nil {
		k.Fatalf("Set(%q, %d): %v", key, n, err)
	}
	return r
}

func (k *kit) reset(key string, opts ...quipu.WriteOption) quipu.Receipt {
	k.Helper()
	r, err := k.db.Reset(k.ctx, key, opts...)
	if err != nil {
		k.Fatalf("Reset(%q): %v", key, err)
	}
	return r
}

func (k *kit) delete(key string, opts ...quipu.WriteOption) quipu.Receipt {
	k.Helper()
	r, err := k.db.Delete(k.ctx, key, opts...)
	if err != nil {
		k.Fatalf("Delete(%q): %v", key, err)
	}
	return r
}

func (k *kit) addBatch(events ...quipu.Event) []quipu.Receipt {
	k.Helper()
	rs, err := k.db.AddBatch(k.ctx, events)
	if err != nil {
		k.Fatalf("AddBatch of %d events: %v", len(events), err)
	}
	if len(rs) != len(events) {
		k.Fatalf("AddBatch of %d events returned %d receipts", len(events), len(rs))
	}
	for i, r := range rs {
		if r.Key != events[i].Key {
			k.Fatalf("receipt %d is of key %q, its event of %q", i, r.Key, events[i].Key)
		}
	}
	return rs
}

func (k *kit) read(key string, opts ...quipu.ReadOption) quipu.Count {
	k.Helper()
	c, err := k.db.Read(k.ctx, key, opts...)
	if err != nil {
		k.Fatalf("Read(%q): %v", key, err)
	}
	if c.Key != key {
		k.Fatalf("Read(%q) returned the count of %q", key, c.Key)
	}
	return c
}

func (k *kit) page(prefix string, o quipu.ListOptions) quipu.Page {
	k.Helper()
	p, err := k.db.List(k.ctx, prefix, o)
	if err != nil {
		k.Fatalf("List(%q, %+v): %v", prefix, o, err)
	}
	return p
}

// define makes definitions those of the namespace.
func (k *kit) define(definitions ...definition.Definition) {
	k.Helper()
	if _, err := k.db.Define(k.ctx, definitions, quipu.DefineOptions{}); err != nil {
		k.Fatalf("Define(%v): %v", definitions, err)
	}
}

func (k *kit) lookup(key, token string) quipu.Fate {
	k.Helper()
	f, err := k.db.Lookup(k.ctx, key, token)
	if err != nil {
		k.Fatalf("Lookup(%q, %q): %v", key, token, err)
	}
	return f
}

func (k *kit) settle(key, token string) quipu.Fate {
	k.Helper()
	f, err := k.db.Settle(k.ctx, key, token)
	if err != nil {
		k.Fatalf("Settle(%q, %q): %v", key, token, err)
	}
	return f
}

// holds checks the value of a counter that exists.
func (k *kit) holds(key string, want int64) {
	k.Helper()
	if c := k.read(key, quipu.Exact()); !c.Exists || c.Value != want {
		k.Fatalf("%q holds %d (exists: %v), want %d", key, c.Value, c.Exists, want)
	}
}

// absent checks that a counter does not exist.
func (k *kit) absent(key string) {
	k.Helper()
	if c := k.read(key, quipu.Exact()); c.Exists || c.Value != 0 || c.Version != 0 {
		k.Fatalf("%q holds %d at version %d (exists: %v), want it absent", key, c.Value, c.Version, c.Exists)
	}
}

// moved checks a receipt that wants its value.
func (k *kit) moved(r quipu.Receipt, before, after int64) {
	k.Helper()
	if !r.HasValue || r.Before != before || r.Value != after {
		k.Fatalf("receipt %+v, want a value that went from %d to %d", r, before, after)
	}
}

// repeats checks that r is a repeat of first.
func (k *kit) repeats(r, first quipu.Receipt) {
	k.Helper()
	if !k.replayed(r) {
		k.Fatalf("receipt %+v, want it replayed", r)
	}
	first.Replayed = r.Replayed
	if r != first {
		k.Fatalf("the repeat returned %+v, the first %+v", r, first)
	}
}

// replayed reports whether a receipt is that of a repeat, or does not say.
func (k *kit) replayed(r quipu.Receipt) bool { return r.Replayed || k.door.Unreplayed }

// succeeds checks that there is no error.
func (k *kit) succeeds(err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("error is %v, want none", err)
	}
}

// fails checks the kind of an error.
func (k *kit) fails(err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Fatalf("error is %v, want %v", err, want)
	}
}

// parallel calls f in n goroutines at once and fails on the first error.
func (k *kit) parallel(n int, f func(i int) error) {
	k.Helper()
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
	for _, err := range errs {
		if err != nil {
			k.Fatalf("%v", err)
		}
	}
}

// poll calls f every millisecond until it returns true.
func (k *kit) poll(f func() bool) {
	k.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			k.Fatalf("nothing happened for 30 s")
		}
	}
}

// uuid returns a UUID of version 7 that was made at t.
func uuid(t time.Time) string {
	ms, a, b := t.UnixMilli(), rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", ms>>16, ms&0xffff, a&0xfff, 0x8000|a>>16&0x3fff, b&0xffffffffffff)
}
