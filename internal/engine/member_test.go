package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// reacts makes a user have a choice of a counter; 0 is none any more. Users with odd numbers
// are counted once instead. Rows of other parts stand before those of users, and between them.
func reacts(c store.Cell, user int, choice int64) store.Delta {
	d := store.Delta{Cell: c, Op: store.OpSet, N: choice, Want: true, Event: &store.Event{Part: memberOf(user), Riders: []store.Rider{
		{Part: viewBook, Op: store.OpMax, N: 1},
		{Part: store.PartFields{Kind: store.PartMembers}.Part(), Op: store.OpAdd, N: 1},
		{Part: viewHour, Op: store.OpAdd, N: 1},
	}}}
	if choice == 0 {
		d.Op = store.OpDelete
	}
	return d
}

func memberOf(user int) store.Part {
	f := store.PartFields{Kind: store.PartMember, Position: int64(user % 4), Name: fmt.Sprint("user ", user)}
	if user%2 == 1 {
		f.Kind, f.View, f.Epoch = store.PartOnce, 3, store.Epoch(7+user%3)
	}
	return f.Part()
}

// TestNewMembersNeedNoDisk has users react who have not done so before: the disk is not
// asked about them, whether it is empty, has members, or was opened with members. Other parts
// that lead are looked for.
func TestNewMembersNeedNoDisk(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, fs, engine.Options{})
	users, c := 0, cell("post")
	check := func(what string) {
		t.Helper()
		do(t, e, reacts(c, 0, 1)) // what all share is in memory
		before, waits := meter(t, e, "quipu_store_disk_reads_total"), 0
		for range 100 {
			users++
			if got, err := contents(e, []store.Cell{c}, memberOf(users)); err != nil || got[0].Exists {
				t.Fatalf("%s: user %d has %+v (%v)", what, users, got[0], err)
			}
			done := make(chan error, 1)
			if !e.Start([]store.Batch{batch(reacts(c, users, 1))}, make([]store.Reply, 1), func(err error) { done <- err }) {
				waits++
				continue
			}
			e.Flush(true)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := meter(t, e, "quipu_store_disk_reads_total") - before; waits > 2 || n > 4 { // the filter may be wrong
			t.Fatalf("%s: new users have to wait %d times, and the disk was asked %v times", what, waits, n)
		}
	}
	do(t, e, reacts(c, 0, 1)) // from here on the files may have members
	check("empty")
	checkpoint(t, e)
	e.EvictNow()
	check("members on disk")
	mustClose(t, e)
	e = open(t, fs, engine.Options{})
	if !e.AwaitMembers() {
		t.Fatal("there is no filter")
	}
	check("opened")
	audited(t, e)
	for user := 1; user <= users; user += 7 {
		if got, err := contents(e, []store.Cell{c}, memberOf(user)); err != nil || got[0].N != 1 {
			t.Fatalf("user %d has %+v (%v)", user, got[0], err)
		}
	}
}

// TestMembersModel does random things to few members, as TestFilterModel does to keys:
// filters of them are made, outgrown, dropped and replaced, and the store is closed or killed and
// opened again, while none stays in memory longer than it has to.
func TestMembersModel(t *testing.T) {
	seeds := uint64(5)
	if *long {
		seeds = 300
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { membersModel(t, seed) })
	}
}

// A reactor is a counter and a user.
type reactor struct {
	cell store.Cell
	user int
}

func membersModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	fs := newMemDisk()
	o := engine.Options{Memory: 16 << 20, SegmentBytes: 1 << 16}
	e := open(t, fs, o)
	model := map[reactor]int64{}
	some := func() reactor {
		return reactor{store.Cell{Namespace: fmt.Sprint("space", rng.IntN(3)), Key: fmt.Sprint("post ", rng.IntN(3))}, rng.IntN(60)}
	}
	var fill func()
	finishFill := func() {
		if fill != nil {
			fill()
			fill = nil
		}
	}
	defer func() { finishFill() }()
	reopen := func(next func()) {
		finishFill()
		next()
		e = open(t, fs, o)
	}
	check := func(r reactor) {
		t.Helper()
		got, err := contents(e, []store.Cell{r.cell}, memberOf(r.user))
		if err != nil || got[0].N != model[r] || got[0].Exists != (model[r] != 0) {
			t.Fatalf("%v has %+v, want %d (%v)", r, got[0], model[r], err)
		}
	}
	for range 1500 {
		r := some()
		switch p := rng.IntN(100); {
		case p < 45:
			n := rng.Int64N(3)
			if res := do(t, e, reacts(r.cell, r.user, n))[0]; res.Before != model[r] || res.After != n {
				t.Fatalf("%v: %+v, want %d before and %d after", r, res, model[r], n)
			}
			if model[r] = n; n == 0 {
				delete(model, r)
			}
		case p < 70:
			check(r)
		case p < 83:
			checkpoint(t, e)
			e.EvictNow()
		case p < 90:
			finishFill()
			if e.AwaitMembers(); rng.IntN(2) == 0 {
				fill = e.BeginMembers()
			}
		case p < 93:
			finishFill()
		case p < 94:
			finishFill()
			e.LimitMembers(rng.IntN(2) << (6 + rng.IntN(4)))
		case p < 95: // more than there is room for
			for range 3 {
				var more []store.Delta
				for range 1500 {
					r := reactor{cell("crowd"), rng.IntN(20_000)}
					model[r] = 1
					more = append(more, reacts(r.cell, r.user, 1))
				}
				do(t, e, more...)
				checkpoint(t, e)
			}
		case p < 96:
			reopen(func() { mustClose(t, e) })
		case p < 97:
			reopen(func() { fs = cut(fs) })
		default:
			audited(t, e)
		}
	}
	finishFill()
	for r := range model {
		check(r)
	}
	audited(t, e)
}

// TestMembersAndCheckpoint makes filters of members before, while and after a checkpoint
// writes new ones, as TestFilterAndCheckpoint does of keys.
func TestMembersAndCheckpoint(t *testing.T) {
	c := cell("a")
	f := func(name string, steps func(e *engine.Engine)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			e := open(t, vfs.NewMem(), engine.Options{})
			do(t, e, reacts(c, 1, 1))
			checkpoint(t, e)
			do(t, e, reacts(c, 2, 2), reacts(c, 4, 1))
			steps(e)
			if !e.AwaitMembers() {
				t.Fatal("there is no filter")
			}
			audited(t, e)
			e.EvictNow()
			if res := do(t, e, reacts(c, 2, 1))[0]; res.Before != 2 {
				t.Fatalf("it was %+v, want 2", res)
			}
			audited(t, e)
		})
	}
	f("checkpoint", func(e *engine.Engine) { checkpoint(t, e) })
	f("checkpoint while filling", func(e *engine.Engine) {
		fill := e.BeginMembers()
		checkpoint(t, e)
		fill()
	})
	f("filter while a checkpoint waits", func(e *engine.Engine) {
		finish := e.BeginCheckpoint()
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			e.BeginMembers()()
		}()
		if err := finish(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		<-filled
	})
	f("filling ends before the checkpoint", func(e *engine.Engine) {
		fill := e.BeginMembers()
		finish := e.BeginCheckpoint()
		fill()
		if err := finish(context.Background(), false); err != nil {
			t.Fatal(err)
		}
	})
}
