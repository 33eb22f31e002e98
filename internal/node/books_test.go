package node_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// under names the book of a namespace that a batch was made under.
func under(b store.Batch, namespace string, id int64) store.Batch {
	b.Books = append(slices.Clone(b.Books), store.Book{Namespace: namespace, ID: id})
	return b
}

// of makes a delta one of another namespace.
func of(namespace string, d store.Delta) store.Delta {
	d.Cell.Namespace = namespace
	return d
}

// refused waits for the batch of a call to be refused as a whole.
func (c *call) refused(kind store.Kind) {
	c.k.Helper()
	<-c.done
	if c.err != nil || store.KindOf(c.replies[0].Err) != kind || len(c.replies[0].Results) != 0 {
		c.k.Errorf("%+v, %v; want an error of kind %v", c.replies, c.err, kind)
	}
}

// raise has another server raise the book of a namespace.
func (k *kit) raise(namespace string, id int64) {
	k.Helper()
	if replies, err := send(k.ctx, k.shelf, under(store.Batch{}, namespace, id)); err != nil || replies[0].Err != nil {
		k.Fatal(err, replies[0].Err)
	}
}

// Those who know one book share a flight. Whoever knows a lower one is refused alone, and
// a higher one is for the next flight.
func TestBooksOfAFlight(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		release := k.blocked()
		three := k.begin(k.ctx, under(k.batch(add("a", 1)), "n", 3))
		same := k.begin(k.ctx, under(k.batch(add("a", 1)), "n", 3))
		other := k.begin(k.ctx, under(k.batch(of("o", add("a", 1))), "o", 7)) // a book that nobody has named
		plain := k.do(of("p", add("a", 1)))
		four := k.begin(k.ctx, under(k.batch(add("a", 1)), "n", 4))
		k.begin(k.ctx, under(k.batch(add("a", 1)), "n", 3)).refused(store.KindOutdated)
		k.do(add("a", 1)).refused(store.KindOutdated)
		k.begin(k.ctx, under(k.batch(add("a", 1), of("p", add("b", 1))), "p", 1)).refused(store.KindOutdated)
		four2 := k.begin(k.ctx, under(under(k.batch(add("a", 1), of("o", add("a", 1))), "o", 7), "n", 4))
		release()
		for _, c := range []*call{three, same, other, plain, four, four2} {
			c.results()
		}
		k.holds("a", 4)
		var told []string
		for _, b := range k.flights()[1:] {
			told = append(told, fmt.Sprint(len(b.Deltas), b.Books))
		}
		if want := []string{"1 [{n 3}]", "2 [{o 7}]", "3 [{n 4} {o 7}]"}; !slices.Equal(told, want) {
			t.Errorf("flights %q, want %q", told, want)
		}
		k.do(add("a", 1)).refused(store.KindOutdated)
	})
}

// A flight that the store refuses because some of it is outdated is divided, until they
// are refused alone. Its number is used again.
func TestOutdatedAlone(t *testing.T) {
	f := func(name string, hooks ...storetest.Hook) {
		t.Run(name, func(t *testing.T) {
			run(t, node.Options{}, func(k *kit) {
				k.raise("o", 3)
				release := k.blocked()
				var good, bad []*call
				for range 20 {
					for _, namespace := range []string{"o", "n", "p", "q"} {
						c := k.begin(k.ctx, under(k.batch(want(of(namespace, add("a", 1)))), namespace, 2))
						if namespace == "o" {
							bad = append(bad, c)
						} else {
							good = append(good, c)
						}
					}
				}
				both := k.begin(k.ctx, under(under(k.batch(of("o", add("a", 1)), add("a", 1)), "n", 2), "o", 2))
				k.onFlights(hooks...)
				before := len(k.flights())
				release()
				for _, c := range good {
					c.results()
				}
				for _, c := range append(bad, both) {
					c.refused(store.KindOutdated)
				}
				k.holds("a", 20)
				flights := k.flights()[before:]
				if len(flights) > 12+2*len(hooks) {
					t.Errorf("%d flights", len(flights))
				}
				for i, b := range flights[1:] {
					if b.Prev != flights[i].Prev && b.Prev != flights[i].Seq || b.Writer != flights[i].Writer {
						t.Errorf("flight %d of writer %d follows %d, after %d to %d of %d", i, b.Writer, b.Prev, flights[i].Prev, flights[i].Seq, flights[i].Writer)
					}
				}
				if n := k.meter("quipu_node_queue_deltas"); n != 0 {
					t.Errorf("%v deltas wait", n)
				}
			})
		})
	}
	f("at once")
	// A book only rises: what was in doubt is refused for good.
	f("after doubt", storetest.Nth(0, 2, storetest.Fail(store.ErrUnknown)))
}

// The same for what is too late: events that share a plan are refused together, and the
// batches of one call stay in their order.
func TestLateAlone(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		in := func(epoch store.Epoch) *store.Plan {
			return plan(t, store.Rider{Part: store.PartFields{Kind: store.PartWindow, View: 1, Epoch: epoch}.Part(), Op: store.OpAdd, Amount: store.AmountApplied})
		}
		late, kept := in(7), in(8)
		floor := store.Batch{Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: 8}}}
		if replies, err := send(k.ctx, k.shelf, floor); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies[0].Err)
		}
		release := k.blocked()
		var good, bad []*call
		for i := range 50 {
			key := fmt.Sprint(i)
			bad = append(bad, k.do(with(add(key, 1), late)))
			good = append(good, k.do(with(add(key, 1), kept)), k.do(add(key, 1)), k.do(with(add(key, 1), kept), add(key, 1)))
		}
		set := store.Delta{Cell: cell("o"), Op: store.OpSet, N: 10}
		row := k.begin(k.ctx, k.batch(with(add("o", 1), kept)), k.batch(set), k.batch(with(add("o", 2), late)), k.batch(with(add("o", 3), kept)), k.batch(want(add("o", 4))))
		before := len(k.flights())
		release()
		for _, c := range good {
			c.results()
		}
		for _, c := range bad {
			c.refused(store.KindLate)
		}
		row.each(nil, nil, store.ErrLate, nil, nil)
		if r := row.replies[4].Results[0]; r.Before != 13 || r.After != 17 {
			t.Errorf("the batches of one call were not applied in their order: %+v", r)
		}
		k.holds("7", 4)
		// The batches of two deltas are each of their own kind, so they are parted in halves.
		if n := len(k.flights()) - before; n > 30 {
			t.Errorf("%d flights", n)
		}
	})
}
