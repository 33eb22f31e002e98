package storetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// The hooks that are ready do what they say to writes, however they come.
func TestReadyHooks(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	f := func(hook storetest.Hook, want error, starts bool, told error, n int64) {
		t.Helper()
		was := value(t, s, key)
		h.On(storetest.OnWrite, hook)
		if err := apply(t.Context(), s, key); !errors.Is(err, want) {
			t.Errorf("Apply: %v, want %v", err, want)
		}
		if ok, err := start(s); ok != starts || !errors.Is(err, told) {
			t.Errorf("Start: %v, %v; want %v, %v", ok, err, starts, told)
		}
		if got := value(t, s, key) - was; got != n {
			t.Errorf("%d were counted, want %d", got, n)
		}
	}
	closed := make(chan struct{})
	close(closed)
	f(storetest.Fail(store.ErrFull), store.ErrFull, false, nil, 0)
	f(storetest.Lose(store.ErrUnknown), store.ErrUnknown, true, store.ErrUnknown, 2)
	f(storetest.Wait(closed), nil, true, nil, 2)
	f(storetest.Hold(make(chan struct{}), closed), nil, true, nil, 2)
	f(storetest.Hang(closed, store.KindUnknown), nil, true, nil, 2)
	f(storetest.Delay(time.Microsecond, store.KindUnknown), nil, false, nil, 1)
	f(storetest.Nth(0, 1, storetest.Fail(store.ErrFull)), store.ErrFull, true, nil, 1)
	f(storetest.Nth(1, 2, storetest.Fail(store.ErrFull)), nil, false, nil, 1)
	f(storetest.If(func(c *storetest.Call) bool { return c.Op == storetest.OnStart }, storetest.Fail(store.ErrFull)), nil, false, nil, 1)

	// A call that failed by itself is not said to be lost.
	h.On(storetest.OnWrite, storetest.Lose(store.ErrUnknown), storetest.Fail(store.ErrFull))
	if err := apply(t.Context(), s, key); !errors.Is(err, store.ErrFull) {
		t.Errorf("a call that failed: %v", err)
	}
	h.On(storetest.OnGet, storetest.Hang(nil, store.KindOther))
	if peek(s) {
		t.Error("Peek does not hang")
	}
}

// What hangs ends with its context, by the error that was named, or waits for ever.
func TestHooksThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(storetest.Hooks)
		s := storetest.Wrap(memory(), h)
		f := func(hook storetest.Hook, want error, after time.Duration) {
			t.Helper()
			h.On(storetest.OnApply, hook)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := apply(ctx, s, key); !errors.Is(err, want) || time.Since(began) != after {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), want, after)
			}
		}
		later := func(d time.Duration) <-chan struct{} {
			c := make(chan struct{})
			time.AfterFunc(d, func() { close(c) })
			return c
		}
		f(storetest.Hang(nil, store.KindOther), context.DeadlineExceeded, time.Second)
		f(storetest.Hang(nil, store.KindUnknown), store.ErrUnknown, time.Second)
		f(storetest.Hang(later(time.Millisecond), store.KindUnknown), nil, time.Millisecond)
		f(storetest.Delay(time.Millisecond, store.KindUnknown), nil, time.Millisecond)
		f(storetest.Delay(time.Minute, store.KindUnavailable), store.ErrUnavailable, time.Second)
		f(storetest.Wait(later(time.Minute)), context.DeadlineExceeded, time.Minute) // as the store says then

		entered, release := make(chan struct{}), make(chan struct{})
		h.On(storetest.OnApply, storetest.Hold(entered, release))
		var first atomic.Bool
		go func() {
			_ = apply(t.Context(), s, key)
			first.Store(true)
		}()
		<-entered
		if err := apply(t.Context(), s, key); err != nil || first.Load() {
			t.Errorf("the second passes before the first: %v", err)
		}
		close(release)
		if synctest.Wait(); !first.Load() {
			t.Error("the first is held for ever")
		}
	})
}

// A partition that is cut off fails alone, however it is asked.
func TestCut(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(everything(), h)
	h.On(storetest.OnAll, storetest.Cut(2, store.ErrUnavailable))
	replies := make([]store.Reply, 2)
	if err := s.Apply(t.Context(), to(in(1), in(2)), replies); err != nil || replies[0].Err != nil || !errors.Is(replies[1].Err, store.ErrUnavailable) {
		t.Errorf("Apply: %v, %+v", err, replies)
	}
	if got := value(t, s, in(1)); got != 1 {
		t.Errorf("beside it, %d", got)
	}
	f := func(want error, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	f(store.ErrUnavailable, apply(t.Context(), s, in(2)))
	f(nil, apply(t.Context(), s, in(3)))
	f(store.ErrUnavailable, s.Read(t.Context(), []store.Cell{in(1), in(2)}, make([]store.Value, 2)))
	if adds(s, in(2)) || !adds(s, in(1)) {
		t.Error("plain adds meet it not as others do")
	}
	f(store.ErrUnavailable, store.Probe(t.Context(), s, 2))
	f(store.ErrFull, store.Probe(t.Context(), s, 1))
}

// Partitions that are read apart are each read once, and all values arrive.
func TestApart(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	var cells []store.Cell
	for i := range 8 {
		c := in(i % 4)
		c.Namespace = string(rune('a' + i))
		for range i {
			if err := apply(t.Context(), s, c); err != nil {
				t.Fatal(err)
			}
		}
		cells = append(cells, c)
	}
	var reads atomic.Int64
	h.On(storetest.OnRead, storetest.Apart, func(c *storetest.Call) error {
		reads.Add(1)
		for _, cell := range c.Cells {
			if !c.In(store.PartitionOf(cell, 4)) || store.PartitionOf(cell, 4) != store.PartitionOf(c.Cells[0], 4) {
				t.Errorf("%v are read together", c.Cells)
			}
		}
		return c.Pass()
	})
	values := make([]store.Value, len(cells))
	if err := s.Read(t.Context(), cells, values); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if v.N != int64(i) {
			t.Errorf("cell %d holds %d", i, v.N)
		}
	}
	if got := reads.Load(); got > 4 || got < 2 {
		t.Errorf("%d reads", got)
	}
}

// A record is as the batches were, whatever their owner makes of them.
func TestRecord(t *testing.T) {
	var r storetest.Record
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	h.On(storetest.OnWrite, r.Hook)
	batches := to(key)
	batches[0].Deltas[0].Guard.Bound = &store.Bound{High: 9}
	if err := s.Apply(t.Context(), batches, make([]store.Reply, 1)); err != nil {
		t.Fatal(err)
	}
	batches[0].Deltas[0].Guard.Bound.High, batches[0].Deltas[0].N = 0, 0
	if s := storetest.Wrap(everything(), h); adds(s, key) {
		t.Error("plain adds are not recorded")
	}
	if got := r.Batches(); len(got) != 1 || got[0].Deltas[0].N != 1 || got[0].Deltas[0].Guard.Bound.High != 9 {
		t.Errorf("%+v", got)
	}
	other := store.Cell{Namespace: "n", Key: "other"}
	f := func(c storetest.Call, touches bool) {
		t.Helper()
		if c.Touches(func(c store.Cell) bool { return c == key }) != touches {
			t.Errorf("%+v: touches it is not %v", c, touches)
		}
	}
	f(storetest.Call{Batches: to(other, key)}, true)
	f(storetest.Call{Batches: to(other)}, false)
	f(storetest.Call{Cells: []store.Cell{other, key}}, true)
	f(storetest.Call{}, false)
}
