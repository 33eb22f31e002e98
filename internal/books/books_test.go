package books_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

const partitions = 3

func open(t *testing.T) (store.Store, *storetest.Hooks) {
	t.Helper()
	h := new(storetest.Hooks)
	return storetest.Wrap(memstore.New(memstore.Options{Partitions: partitions}), h), h
}

// hourly returns definitions with hours for some patterns.
func hourly(patterns ...string) (all []definition.Definition) {
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		panic(err)
	}
	for _, p := range patterns {
		all = append(all, definition.Definition{Pattern: p, Windows: []definition.Window{{Every: hour, Keep: definition.Keep(24 * time.Hour)}}})
	}
	return all
}

func publish(t *testing.T, b *books.Books, definitions []definition.Definition) books.Change {
	t.Helper()
	c, err := b.Publish(t.Context(), "ns", books.Proposal{Definitions: definitions})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fenced reports whether all partitions refuse what was made under books below an id, and
// take what was made under it.
func fenced(t *testing.T, s store.Store, id int64) bool {
	t.Helper()
	for p := range partitions {
		for _, try := range []int64{id - 1, id} {
			b := store.Batch{Partition: p, Deltas: []store.Delta{{Cell: keyIn(p), Op: store.OpGet}}}
			if try > 0 {
				b.Books = []store.Book{{Namespace: "ns", ID: try}}
			}
			var r [1]store.Reply
			if err := s.Apply(t.Context(), []store.Batch{b}, r[:]); err != nil {
				t.Fatal(err)
			}
			if errors.Is(r[0].Err, store.ErrOutdated) != (try < id) {
				return false
			}
		}
	}
	return true
}

// keyIn returns a counter of a partition.
func keyIn(p int) store.Cell {
	for i := 0; ; i++ {
		if c := (store.Cell{Namespace: "ns", Key: fmt.Sprint("a", i)}); store.PartitionOf(c, partitions) == p {
			return c
		}
	}
}

func TestPublish(t *testing.T) {
	s, _ := open(t)
	a, b := books.New(s, false), books.New(s, false)
	if a.Any() || a.Known("ns") != nil || a.ID("ns") != 0 || a.Known("ns").Of("a") != nil {
		t.Error("a book is known")
	}
	c := publish(t, a, hourly("a*"))
	if want := []string{"a*: windows of 1h begin now"}; c.ID != 1 || !slices.Equal(c.Views, want) || !fenced(t, s, 1) {
		t.Errorf("%+v", c)
	}
	k := a.Known("ns")
	if !a.Any() || a.ID("ns") != 1 || k.InForce == 0 || k.Of("a1") == nil || k.Of("b") != nil || k.Fence[0] != (store.Book{Namespace: "ns", ID: 1}) {
		t.Errorf("%+v", k)
	}
	if at, ok := k.Since(k.Of("a1").Entry.Views[0]); !ok || at != k.InForce {
		t.Errorf("complete since %d, %v", at, ok)
	}
	got, err := b.Get(t.Context(), "ns")
	if err != nil || got.ID() != 1 || got.InForce != k.InForce || got.Of("a1") == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if none, err := b.Get(t.Context(), "other"); err != nil || none.ID() != 0 || none.Fence != nil || b.Known("other") != nil {
		t.Errorf("%+v, %v", none, err)
	}
	if c := publish(t, b, hourly("a*")); c.ID != 1 || len(c.Views) != 0 {
		t.Errorf("the same again: %+v", c)
	}
	if c, err := b.Publish(t.Context(), "ns", books.Proposal{IfNone: true}); c.ID != 1 || err != nil {
		t.Errorf("if there is none: %+v, %v", c, err)
	}
	if c, err := b.Publish(t.Context(), "ns", books.Proposal{Definitions: hourly("b*"), DryRun: true}); c.ID != 2 || len(c.Views) != 2 || err != nil || !fenced(t, s, 1) {
		t.Errorf("as a dry run: %+v, %v", c, err)
	}
	if _, err := b.Publish(t.Context(), "ns", books.Proposal{IfID: 2}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("if it were another: %v", err)
	}
	if c := publish(t, b, hourly("b*")); c.ID != 2 || !fenced(t, s, 2) {
		t.Errorf("%+v", c)
	}
	if c := publish(t, b, hourly("b*", "c*")); c.ID != 3 || !fenced(t, s, 3) {
		t.Errorf("twice by one server: %+v", c)
	}
	if a.ID("ns") != 1 {
		t.Error("nobody has told it")
	}
	if err := a.Renew(t.Context(), "ns", 1); err != nil || a.ID("ns") != 3 {
		t.Errorf("renewed: %d, %v", a.ID("ns"), err)
	}
	if err := a.Renew(t.Context(), "ns", 3); !errors.Is(err, store.ErrOutdated) || !strings.Contains(err.Error(), "lost definitions") {
		t.Errorf("a fence above the book: %v", err)
	}
}

func TestRefused(t *testing.T) {
	s, _ := open(t)
	f := func(b *books.Books, p books.Proposal, want error) {
		t.Helper()
		if _, err := b.Publish(t.Context(), "ns", p); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	f(books.New(s, false), books.Proposal{Definitions: hourly("")}, store.ErrInvalid)
	f(books.New(s, true), books.Proposal{Definitions: hourly("a")}, store.ErrReadOnly)
	f(books.New(s, true), books.Proposal{Definitions: hourly("a"), DryRun: true}, nil)
}

// TestCrashes has the publisher fail at each of its writes, before and after it is made.
// Another server finishes what it began.
func TestCrashes(t *testing.T) {
	f := func(name string, hook storetest.Hook, step int) (failed bool) {
		t.Helper()
		s, h := open(t)
		publish(t, books.New(s, false), hourly("old"))
		h.On(storetest.OnApply, storetest.Nth(step, step+1, hook))
		_, err := books.New(s, false).Publish(t.Context(), "ns", books.Proposal{Definitions: hourly("a*")})
		h.On(storetest.OnApply)
		next := books.New(s, false)
		if c := publish(t, next, hourly("a*")); c.ID != 2 || !fenced(t, s, 2) || next.Known("ns").InForce == 0 {
			t.Errorf("%s at step %d: %+v, in force %d", name, step, c, next.Known("ns").InForce)
		}
		return err != nil
	}
	lost := store.Errorf(store.KindUnknown, "lost")
	for _, hook := range []struct {
		name string
		do   storetest.Hook
	}{{"fail", storetest.Fail(lost)}, {"lose", storetest.Lose(lost)}} {
		step := 0
		for f(hook.name, hook.do, step) {
			step++
		}
		if step != 3 { // the book, the fences, the time
			t.Errorf("%s: %d steps", hook.name, step)
		}
	}
}

// TestCutOff has one partition out of reach while a book is published: it is not in force.
// A reader finishes it later.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := open(t)
		a := books.New(s, false)
		home := store.PartitionOf(store.Cell{Key: "book/ns"}, partitions)
		h.On(storetest.OnApply, storetest.Cut((home+1)%partitions, store.ErrUnavailable))
		if _, err := a.Publish(t.Context(), "ns", books.Proposal{Definitions: hourly("a*")}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "not yet in force") {
			t.Fatal(err)
		}
		h.On(storetest.OnApply)
		if fenced(t, s, 1) {
			t.Error("the fence is raised")
		}
		b := books.New(s, false)
		for _, want := range []bool{false, false, true} {
			k, err := b.Get(t.Context(), "ns")
			if err != nil || k.ID() != 1 || (k.InForce != 0) != want || fenced(t, s, 1) != want {
				t.Fatalf("%+v, %v", k, err)
			}
			if !want {
				<-time.After(600 * time.Millisecond)
			}
		}
	})
}

// The time at which a book came into force is written down once.
func TestInForceOnce(t *testing.T) {
	s, _ := open(t)
	cell := store.Cell{Key: "inforce/ns/1"}
	b := store.Batch{Partition: store.PartitionOf(cell, partitions), Deltas: []store.Delta{{Cell: cell, Op: store.OpSet, N: 5}}}
	if err := s.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
		t.Fatal(err)
	}
	a := books.New(s, false)
	publish(t, a, hourly("a*"))
	if at := a.Known("ns").InForce; at != 5 {
		t.Errorf("in force since %d", at)
	}
}

// TestRivals has servers publish side by side: all end with one book, and no id is given
// twice.
func TestRivals(t *testing.T) {
	s, _ := open(t)
	var wg sync.WaitGroup
	ids := make([]int64, 8)
	for i := range ids {
		wg.Go(func() {
			c, err := books.New(s, false).Publish(context.Background(), "ns", books.Proposal{Definitions: hourly(fmt.Sprint("p", i))})
			if err != nil {
				t.Error(err)
			}
			ids[i] = c.ID
		})
	}
	wg.Wait()
	sorted := slices.Sorted(slices.Values(ids))
	if !slices.Equal(sorted, []int64{1, 2, 3, 4, 5, 6, 7, 8}) || !fenced(t, s, 8) {
		t.Errorf("ids %v", ids)
	}
	k, err := books.New(s, false).Get(t.Context(), "ns")
	if err != nil || k.InForce == 0 || k.Of(fmt.Sprint("p", slices.Index(ids, 8))) == nil || k.Book.Views != 8 {
		t.Errorf("%+v, %v", k, err)
	}
}

// A book may have several pages, and fewer later.
func TestPages(t *testing.T) {
	s, _ := open(t)
	var many []string
	for i := range 900 {
		many = append(many, fmt.Sprintf("%s%d", strings.Repeat("x", 60), i))
	}
	f := func(patterns []string, id int64) {
		t.Helper()
		publish(t, books.New(s, false), hourly(patterns...))
		k, err := books.New(s, false).Get(t.Context(), "ns")
		if err != nil || k.ID() != id || len(k.Book.Entries) != len(patterns) {
			t.Errorf("%v", err)
		}
	}
	f(many, 1)
	f(many[:1], 2)
	f(nil, 3)
}

// A store that has lost its definitions gets them back from a server that knows them.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		a := books.New(s, false)
		publish(t, a, hourly("a*"))
		cell := store.Cell{Key: "book/ns"}
		page := store.PartFields{Kind: store.PartPage}.Part()
		b := store.Batch{Partition: store.PartitionOf(cell, partitions), Deltas: []store.Delta{{
			Cell: cell, Op: store.OpDelete, Event: &store.Event{Riders: []store.Rider{{Part: page, Op: store.OpDelete}}},
		}}}
		if err := s.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
			t.Fatal(err)
		}
		fresh, read := books.New(s, false), books.New(s, true)
		<-time.After(2 * time.Second)
		if k, err := read.Get(t.Context(), "ns"); err != nil || k.ID() != 0 {
			t.Errorf("%+v, %v", k, err)
		}
		if k, err := a.Get(t.Context(), "ns"); err != nil || k.ID() != 1 {
			t.Errorf("%+v, %v", k, err)
		}
		if k, err := fresh.Get(t.Context(), "ns"); err != nil || k.ID() != 1 || k.Of("a") == nil {
			t.Errorf("%+v, %v", k, err)
		}
	})
}
