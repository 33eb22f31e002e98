package node_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A full queue is waited for, in order, as long as the context lasts.
func TestQueueFull(t *testing.T) {
	f := func(o node.Options, key string) {
		t.Helper()
		run(t, o, func(k *kit) {
			release := k.blocked() // takes one of three
			in := []*call{k.do(add(key, 1)), k.do(add(key, 1))}
			if n := k.meter("quipu_node_queue_deltas"); n != 3 {
				t.Errorf("%v deltas wait, want 3", n)
			}
			short, cancel := context.WithTimeout(k.ctx, time.Second)
			defer cancel()
			// The first to wait is too large for the room, the others would fit behind it.
			out := k.begin(short, k.batch(want(add(key, 1)), add(key, 1), add(key, 1), add(key, 1)))
			behind := k.do(want(add(key, 1)))
			pass(time.Minute)
			out.fails(store.KindUnavailable)
			out.ends(context.DeadlineExceeded)
			large := k.do(want(add(key, 1)), add(key, 1), add(key, 1), add(key, 1))
			if behind.over() || large.over() || len(k.flights()) != 1 {
				t.Errorf("%d flights", len(k.flights()))
			}
			release()
			for _, c := range in {
				c.results()
			}
			if r := behind.results()[0]; r.Before != 2 {
				t.Errorf("the one that waited longest: %+v", r)
			}
			if r := large.results()[0]; r.Before != 3 {
				t.Errorf("the one after it: %+v", r)
			}
			k.holds(key, 7)
			if n := k.meter("quipu_node_queue_deltas"); n != 0 {
				t.Errorf("%v deltas wait", n)
			}
		})
	}
	f(node.Options{QueueDeltas: 3, AttemptTimeout: time.Hour}, "a")
	f(node.Options{QueueBytes: 18, AttemptTimeout: time.Hour}, "fifth") // "n" and "first", "n" and "fifth"
}

// If one gives up, those behind it that fit get in.
func TestQueueFullAndGivenUp(t *testing.T) {
	run(t, node.Options{QueueDeltas: 3, AttemptTimeout: time.Hour}, func(k *kit) {
		release := k.blocked()
		short, cancel := context.WithCancel(k.ctx)
		large := k.begin(short, k.batch(add("a", 1), add("a", 1), add("a", 1)))
		small := k.do(add("a", 1))
		if n := k.meter("quipu_node_queue_deltas"); n != 1 {
			t.Errorf("%v deltas wait, want 1", n)
		}
		cancel()
		synctest.Wait()
		large.fails(store.KindUnavailable)
		if n := k.meter("quipu_node_queue_deltas"); n != 2 {
			t.Errorf("%v deltas wait, want 2", n)
		}
		release()
		small.results()
		k.holds("a", 1)
	})
}

// So many calls pass through at once, and no more.
func TestCallsAtOnce(t *testing.T) {
	run(t, node.Options{Calls: 2, Patience: time.Hour}, func(k *kit) {
		hold := make(chan struct{})
		k.onOthers(storetest.Wait(hold))
		given := k.batch(add("a", 1))
		given.If = []store.Condition{{Cell: cell("b")}}
		calls := []*call{k.begin(k.ctx, given), k.begin(k.ctx, given)}
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		out, last := k.begin(short, given), k.begin(k.ctx, given)
		out.fails(store.KindUnavailable)
		out.ends(context.DeadlineExceeded)
		close(hold)
		for _, c := range append(calls, last) {
			c.results()
		}
		k.holds("a", 3)
	})
}

// A caller that leaves before its batch is frozen changed nothing.
func TestLeaveTheQueue(t *testing.T) {
	run(t, node.Options{AttemptTimeout: time.Hour}, func(k *kit) {
		release := k.blocked()
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		before := k.do(want(add("a", 1)))
		left := []*call{
			k.begin(short, k.batch(add("a", 10))),
			k.begin(short, k.batch(add("a", 10)), k.batch(add("b", 10)), k.batch(add("a", 10))),
		}
		behind := k.do(want(add("a", 1)))
		for _, c := range left {
			c.ends(context.DeadlineExceeded)
		}
		last := k.begin(short, k.batch(add("a", 10)))
		last.ends(context.DeadlineExceeded)
		release()
		before.told(store.Result{Outcome: store.Applied, After: 1})
		behind.told(store.Result{Outcome: store.Applied, Before: 1, After: 2, Existed: true})
		k.holds("b", 0)
		if n := k.meter("quipu_node_queue_deltas"); n != 0 {
			t.Errorf("%v deltas wait", n)
		}
	})
}

// The outcome of one that leaves later is unknown, and its batch goes on, as it
// was.
func TestLeaveAFlight(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.failures(store.ErrUnavailable, store.ErrUnknown, store.ErrUnavailable)
		short, cancel := context.WithTimeout(k.ctx, 10*time.Millisecond)
		defer cancel()
		d := want(add("a", 1))
		d.Guard.Bound = &store.Bound{High: 100}
		b := k.batch(d, add("b", 1))
		c := k.begin(short, b)
		c.fails(store.KindUnknown)
		d.Guard.Bound.High = 0 // it is the caller's again
		clear(b.Deltas)
		pass(time.Second)
		k.holds("a", 1)
		k.holds("b", 1)
		if n := k.meter("quipu_node_queue_deltas"); n != 0 {
			t.Errorf("%v deltas wait", n)
		}
	})
}

// One that leaves while its run is refused is not sent again.
func TestLeaveARefusedRun(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(store.Delta{Cell: cell("a"), Op: store.OpSet, N: math.MaxInt64 - 1}).results()
		release := k.blocked()
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		stays, leaves := k.do(want(add("a", 1))), k.begin(short, k.batch(add("a", 1)))
		k.onFlights(storetest.Before(func() { pass(2 * time.Second) }))
		release()
		leaves.fails(store.KindUnknown)
		stays.told(store.Result{Outcome: store.Applied, Before: math.MaxInt64 - 1, After: math.MaxInt64, Existed: true})
		if ds := k.deltas(3); len(ds) != 1 || ds[0] != want(add("a", 1)) {
			t.Errorf("sent again: %+v", ds)
		}
		if n := k.meter("quipu_node_queue_deltas"); n != 0 {
			t.Errorf("%v deltas wait", n)
		}
	})
}

// Of a call of several batches that ends when some are frozen, those are unknown,
// and the others are what they are.
func TestLeaveHalfway(t *testing.T) {
	run(t, node.Options{AttemptTimeout: time.Hour}, func(k *kit) {
		release := k.blocked()
		half := make([]store.Delta, 6000)
		for i := range half {
			half[i] = add("a", 1)
		}
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		c := k.begin(short, k.batch(half...), k.batch(half...))
		k.onFlights(storetest.Before(func() { pass(time.Minute) }))
		release()
		c.each(store.ErrUnknown, context.DeadlineExceeded)
		pass(time.Hour)
		k.holds("a", 6000) // the second was taken out
	})
	// One lane has answered, one has not, and one was not asked yet.
	runOn(t, memstore.Options{Partitions: 3}, node.Options{AttemptTimeout: time.Hour}, func(k *kit) {
		keys := make([]string, 3)
		for i := 0; slices.Contains(keys, ""); i++ {
			keys[k.batch(add(fmt.Sprint(i), 1)).Partition] = fmt.Sprint(i)
		}
		hold := make(chan struct{})
		k.onFlights(storetest.If(func(c *storetest.Call) bool { return !c.In(1) }, storetest.Wait(hold)))
		k.do(add(keys[2], 1))
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		c := k.begin(short, k.batch(add(keys[0], 1)), k.batch(add(keys[1], 1)), k.batch(add(keys[2], 1)))
		c.each(store.ErrUnknown, nil, context.DeadlineExceeded)
		close(hold)
		synctest.Wait()
		for _, key := range keys {
			k.holds(key, 1)
		}
		if n := k.meter("quipu_node_queue_deltas"); n != 0 {
			t.Errorf("%v deltas wait", n)
		}
	})
	run(t, node.Options{QueueDeltas: 2, AttemptTimeout: time.Hour}, func(k *kit) {
		release := k.blocked()
		short, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		c := k.begin(short, k.batch(add("a", 1)), k.batch(add("a", 1)))
		c.each(context.DeadlineExceeded, context.DeadlineExceeded) // the first had room, and was taken out
		release()
		k.holds("a", 0)
	})
	run(t, node.Options{}, func(k *kit) {
		k.do(add("writer", 1)).results() // the lane has one from here on
		given := k.batch(add("a", 1))
		given.If = []store.Condition{{Cell: cell("b")}}
		k.onOthers(storetest.Fail(store.ErrUnavailable))
		k.begin(k.ctx, k.batch(add("a", 1)), given).each(nil, store.ErrUnavailable)
		k.begin(k.ctx, given, k.batch(add("a", 1))).fails(store.KindUnavailable)
		k.onOthers()
		k.holds("a", 1)
	})
}

// Close sends what is queued.
func TestCloseSends(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.failures(store.ErrUnknown, store.ErrUnavailable)
		frozen, queued := k.do(add("a", 1)), k.do(want(add("a", 1)))
		given := k.batch(add("a", 1))
		given.If = []store.Condition{{Cell: cell("b")}}
		k.onOthers(storetest.Delay(time.Second, store.KindOther))
		through := k.begin(k.ctx, given)
		closed := make(chan error)
		go func() { closed <- k.node.Close() }()
		synctest.Wait()
		for _, b := range []store.Batch{k.batch(add("a", 1)), given} {
			k.begin(k.ctx, b).fails(store.KindClosed)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if !frozen.over() || !queued.over() || !through.over() {
			t.Fatalf("Close did not wait")
		}
		frozen.results()
		queued.results()
		through.results()
		k.do(add("a", 1)).fails(store.KindClosed)
		k.shut(k.node)
	})
}

// Close gives up when its time is over, and everyone is told the truth.
func TestCloseGivesUp(t *testing.T) {
	f := func(name string, kind store.Kind, hook storetest.Hook) {
		t.Run(name, func(t *testing.T) {
			o := node.Options{QueueDeltas: 2, Calls: 1, AttemptTimeout: time.Minute, Patience: time.Hour}
			run(t, o, func(k *kit) {
				k.do(add("writer", 1)).results() // the lane has one from here on
				k.onFlights(hook)
				k.onOthers(hook)
				given := k.batch(add("a", 1))
				given.If = []store.Condition{{Cell: cell("b")}}
				frozen, queued, outside := k.do(add("a", 1)), k.do(add("a", 1)), k.do(add("a", 1))
				through, behind := k.begin(k.ctx, given), k.begin(k.ctx, given)
				begun := time.Now()
				k.shut(k.node)
				if took := time.Since(begun); took != 2*time.Second {
					t.Errorf("Close took %v", took)
				}
				frozen.fails(kind)
				queued.fails(store.KindClosed)
				outside.fails(store.KindClosed)
				if <-through.done; through.err == nil {
					t.Errorf("told %+v", through.replies)
				}
				if <-behind.done; behind.err == nil {
					t.Errorf("told %+v", behind.replies)
				}
			})
		})
	}
	f("hung", store.KindUnknown, storetest.Hang(nil, store.KindOther))
	f("away", store.KindClosed, storetest.Fail(store.ErrUnavailable))
	f("unknown", store.KindUnknown, storetest.Fail(store.ErrUnknown))
}

// A lane goes on for callers that have left, and Close waits for it.
func TestCloseAfterAllHaveLeft(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.failures(store.ErrUnavailable, store.ErrUnavailable)
		short, cancel := context.WithTimeout(k.ctx, time.Millisecond)
		defer cancel()
		k.begin(short, k.batch(add("a", 1))).fails(store.KindUnknown)
		k.shut(k.node)
		if n := len(k.flights()); n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
	})
}

// A server's own writes and reads are none of a caller.
func TestMetersOfItself(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1))
		k.begin(store.Unheard(k.ctx), k.batch(add("a", 1)))
		pass(time.Second)
		k.holds("a", 2)
		cell := store.Cell{Namespace: "default", Key: "a"}
		// The store of this test, which is not for nodes, counts too.
		meter := func(want string) (first float64) {
			n := 0
			k.node.Meters(func(name, _ string, value float64) {
				if name != want {
					return
				}
				if n++; n == 1 {
					first = value
				}
			})
			return first
		}
		before := meter("quipu_store_reads_total")
		for _, ctx := range []context.Context{k.ctx, store.Unheard(k.ctx)} {
			if err := k.node.Read(ctx, []store.Cell{cell}, make([]store.Value, 1)); err != nil {
				t.Error(err)
			}
			if err := k.node.ReadParts(ctx, []store.PartCell{{Cell: cell, Part: store.Object}}, make([]store.Content, 1)); err != nil {
				t.Error(err)
			}
		}
		if writes, reads := meter("quipu_writes_total"), meter("quipu_store_reads_total")-before; writes != 1 || reads != 2 {
			t.Errorf("%v writes and %v reads, want 1 and 2", writes, reads)
		}
	})
}

func TestMeters(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		release := k.blocked()
		for range 9 {
			k.do(add("a", 1))
		}
		pass(250 * time.Millisecond)
		release()
		pass(time.Second) // while the lane lingers
		got := map[string]float64{}
		k.node.Meters(func(name, help string, value float64) {
			if help == "" {
				t.Errorf("%s has no help", name)
			}
			_, twice := got[name]                                   // A store that is not for nodes counts writes and reads too.
			if !strings.HasPrefix(name, "quipu_clock_") && !twice { // the store's own
				got[name] = value
			}
		})
		want := map[string]float64{
			"quipu_writes_total": 10, "quipu_store_reads_total": 0,
			"quipu_node_flights_total": 2, "quipu_node_flight_deltas_total": 2, "quipu_node_flight_seconds_total": 0.25,
			"quipu_node_callers_total": 10, "quipu_node_resends_total": 0, "quipu_node_queue_deltas": 0,
			"quipu_node_queue_deltas_max": 100_000,
			"quipu_node_retired_total":    0, "quipu_node_lost_total": 0, "quipu_node_store_reachable": 1,
			"quipu_store_cells": 3, "quipu_store_tokens": 0, "quipu_store_marks": 1, "quipu_store_deltas_total": 3,
		}
		if !maps.Equal(got, want) {
			t.Errorf("meters %v, want %v", got, want)
		}
	})
}

// copies is a store that can copy itself, and nothing else: no hook adds a method.
type copies struct{ store.Store }

func (copies) Snapshot(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "copy")
	return err
}

func TestOptionalInterfaces(t *testing.T) {
	f := func(s store.Store, audits, lists, sizes, snapshots bool) {
		t.Helper()
		n := node.New(t.Context(), s, node.Options{})
		check := func(name string, err error, can bool) {
			t.Helper()
			if can && err != nil || !can && store.KindOf(err) != store.KindUnsupported {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := n.Audit(t.Context())
		check("Audit", err, audits)
		_, err = n.Namespaces(t.Context(), "", 1)
		check("Namespaces", err, lists)
		_, err = n.Size(t.Context(), "n")
		check("Size", err, sizes)
		var b bytes.Buffer
		err = n.Snapshot(t.Context(), &b)
		check("Snapshot", err, snapshots)
		if snapshots != (b.String() == "copy") {
			t.Errorf("snapshot %q", b.String())
		}
		n.Meters(func(string, string, float64) {})
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f(memstore.New(memstore.Options{}), true, true, true, false)
	f(copies{memstore.New(memstore.Options{})}, false, false, false, true)
}
