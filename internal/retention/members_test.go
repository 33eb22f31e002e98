package retention_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/retention"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

var post = store.Cell{Namespace: "ns", Key: "post"}

// choices has users choose something of posts.
func (w *world) choices() {
	w.Helper()
	all := []definition.Definition{{Pattern: "post*", Choices: []string{"like", "dislike"}}}
	if _, err := w.books.Publish(w.Context(), "ns", books.Proposal{Definitions: all}); err != nil {
		w.Fatal(err)
	}
}

// does applies deltas to one cell, and returns what becomes of the last.
func (w *world) does(deltas ...store.Delta) store.Result {
	w.Helper()
	const most = 1000 // of a batch
	for ; len(deltas) > most; deltas = deltas[most:] {
		w.does(deltas[:most]...)
	}
	b := store.Batch{Partition: store.PartitionOf(deltas[0].Cell, partitions), Books: w.books.Known("ns").Fence, Apart: true, Deltas: deltas}
	var replies [1]store.Reply
	if err := w.store.Apply(w.Context(), []store.Batch{b}, replies[:]); err != nil || replies[0].Err != nil {
		w.Fatal(err, replies[0].Err)
	}
	return replies[0].Results[len(deltas)-1]
}

// react has so many users of a cell choose something under a generation.
func (w *world) react(c store.Cell, generation int64, users int) {
	w.Helper()
	keys := w.books.Known("ns").Of("post")
	var deltas []store.Delta
	for i := range users {
		choice := int64(1 + i%2)
		p := keys.Plans.React(keys.Views, w.now.UnixMilli(), nil, view.Reaction{Choice: choice, Generation: generation})
		deltas = append(deltas, store.Delta{Cell: c, Op: store.OpSet, N: choice, Event: &store.Event{
			Part: view.Member(generation, fmt.Sprint("user", i)), Plan: p.Event.Plan,
		}})
	}
	if r := w.does(deltas...); r.Outcome != store.Applied {
		w.Fatalf("a reaction: %+v", r)
	}
}

// ends resets a cell, or deletes it.
func (w *world) ends(c store.Cell, op store.Op) {
	w.Helper()
	if r := w.does(store.Delta{Cell: c, Op: op, Event: w.books.Known("ns").Of("post").Assign}); r.Outcome != store.Applied {
		w.Fatalf("a reset: %+v", r)
	}
}

// users checks how many rows of users a cell has, of all generations, and how many numbers
// of them.
func (w *world) users(c store.Cell, members, counts int) {
	w.Helper()
	f := func(kind store.PartKind, want int) {
		w.Helper()
		rows := store.RowsOf(c, store.PartFields{Kind: kind}, store.PartFields{Kind: kind, Position: 1 << 40})
		found, err := w.store.ScanParts(w.Context(), rows, store.ScanMax)
		if err != nil || len(found) != want {
			w.Errorf("%d rows of kind %#x, %v; want %d", len(found), kind, err, want)
		}
	}
	f(store.PartMember, members)
	f(store.PartMembers, counts)
}

// clears has the worker remove what is gone, in so many rounds.
func (w *world) clears(rounds int) {
	w.Helper()
	for i := range rounds {
		if more, err := w.Members(w.Context()); err != nil || more != (i+1 < rounds) {
			w.Fatalf("round %d of %d: %v, %v", i+1, rounds, more, err)
		}
	}
}

func (w *world) value(c store.Cell) store.Value {
	w.Helper()
	var v [1]store.Value
	if err := w.store.Read(w.Context(), []store.Cell{c}, v[:]); err != nil {
		w.Fatal(err)
	}
	return v[0]
}

// Users who are gone are removed, however many they are, and others stay. Their counter is as
// it was, and one that was deleted does not come back.
func TestMembersAreCleared(t *testing.T) {
	w := newWorld(t)
	w.choices()
	w.clears(1)
	seat := store.ShardCell(post, 66)
	other := store.Cell{Namespace: "ns", Key: "post2"}
	for _, c := range []store.Cell{post, other, seat} {
		w.react(c, 0, 2500) // more than a page
		w.users(c, 2500, 2)
	}
	w.clears(1)
	w.users(post, 2500, 2)
	w.ends(post, store.OpSet)
	w.ends(other, store.OpDelete)
	w.ends(seat, store.OpSet)
	w.react(post, 1, 3)
	w.clears(1)
	w.users(post, 3, 2)
	w.users(other, 0, 0)
	w.users(seat, 0, 0)
	if v := w.value(post); v.N != 3 || !v.Exists {
		t.Errorf("the counter is %+v", v)
	}
	if v := w.value(other); v.Exists {
		t.Errorf("a counter that was deleted is %+v", v)
	}
	before := w.hooks.Calls(storetest.OnApply)
	w.clears(1)
	if n := w.hooks.Calls(storetest.OnApply) - before; n != 0 {
		t.Errorf("%d writes with nothing to remove", n)
	}
}

// A store in which the same counters are liked and reset again and again does not grow.
func TestMembersDoNotPileUp(t *testing.T) {
	w := newWorld(t)
	w.choices()
	size := func() int {
		t.Helper()
		all, err := w.store.ScanParts(t.Context(), store.Rows{Namespace: "ns"}, store.ScanMax)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	first := 0
	for generation := range int64(20) {
		w.react(post, generation, 100)
		w.ends(post, store.OpSet)
		w.clears(1)
		if generation == 0 {
			first = size()
		} else if n := size(); n != first {
			t.Fatalf("%d parts after %d resets, %d after the first", n, generation+1, first)
		}
	}
}

// A round ends in the middle of a counter if that has many, and the next one goes on.
func TestMembersInRounds(t *testing.T) {
	w := newWorld(t)
	w.choices()
	for g := range int64(5) {
		w.react(post, g, 9000)
		w.ends(post, store.OpSet)
	}
	w.clears(3)
	w.users(post, 0, 0)
}

// If a store has lost a reset, the users whom that had removed are its own again.
func TestMembersOfALostReset(t *testing.T) {
	w := newWorld(t)
	w.choices()
	w.react(post, 0, 100)
	w.ends(post, store.OpSet)
	w.hooks.On(storetest.OnApply, storetest.Nth(0, 1, storetest.Before(func() {
		w.does(store.Delta{Cell: post, Op: store.OpSet, Event: &store.Event{Part: view.Generation()}})
	})))
	w.clears(1)
	w.users(post, 100, 2)
}

// The worker goes on soon, if there is more to remove than in one round.
func TestMembersSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.choices()
		for g := range int64(5) {
			w.react(post, g, 9000)
			w.ends(post, store.OpSet)
		}
		w.Start()
		defer w.Close()
		<-time.After(retention.Every + 2*retention.Soon + time.Millisecond)
		synctest.Wait()
		w.users(post, 0, 0)
	})
}

// What is counted is right after a walk, however many rounds that takes, and of each namespace.
func TestCensus(t *testing.T) {
	w := newWorld(t)
	w.choices()
	counts := func(want int64) {
		t.Helper()
		if err := w.Count(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.Users("ns"); n != want {
			t.Errorf("%d users, want %d", n, want)
		}
	}
	counts(0)
	w.react(post, 0, 100)
	counts(100)
	w.ends(post, store.OpSet)
	w.clears(1)
	counts(0)
	const posts = 12_000 // more numbers than a round looks at
	for i := range posts {
		w.react(store.Cell{Namespace: "ns", Key: fmt.Sprint("post", i)}, 0, 2)
	}
	counts(0)
	counts(2 * posts)
	w.Meters(func(name, _ string, value float64) {
		if name == "quipu_members" && value != 2*posts {
			t.Errorf("%s is %v", name, value)
		}
	})
	if n := w.Users("other"); n != 0 {
		t.Errorf("another namespace has %d", n)
	}
}
