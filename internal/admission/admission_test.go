package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

var first = store.Book{Namespace: "ns", ID: 1}

func want(key, name string) Want {
	return Want{Seat{store.Cell{Namespace: "ns", Key: key}, 7, name}, 2}
}

// look asks a desk what it knows of a value.
func look(d *Desk, w Want, book int64) (admitted, known bool) {
	q := []Question{{View: w.View, Name: w.Name}}
	d.Look(w.Cell, book, q)
	return q[0].Admitted, q[0].Known
}

// admitted asks for values, and returns which of them are admitted: the others are known
// not to be.
func admitted(t *testing.T, d *Desk, book store.Book, wants ...Want) (names string) {
	t.Helper()
	if err := d.Ask(t.Context(), book, wants); err != nil {
		t.Fatal(err)
	}
	for _, w := range wants {
		is, known := look(d, w, book.ID)
		if !known {
			t.Errorf("%s is not known", w.Name)
		}
		if is {
			names += w.Name
		}
	}
	return names
}

func TestAsk(t *testing.T) {
	s := memstore.New(memstore.Options{Partitions: 3})
	a, b := New(3, s), New(3, s)
	f := func(d *Desk, book store.Book, want string, wants ...Want) {
		t.Helper()
		if got := admitted(t, d, book, wants...); got != want {
			t.Errorf("admitted %q, want %q", got, want)
		}
	}
	if _, known := look(a, want("k", "a"), 1); known {
		t.Error("known before it was asked for")
	}
	f(a, first, "ab", want("k", "a"), want("k", "b"), want("k", "c"))
	f(b, first, "a", want("k", "d"), want("k", "a"))
	f(b, first, "dx", want("l", "d"), want("k", "e"), want("m", "x")) // another counter has room
	// Another book may have another limit.
	if _, known := look(a, want("k", "c"), 2); known {
		t.Error("a refusal outlives its book")
	}
	if is, known := look(a, want("k", "a"), 2); !is || !known {
		t.Error("an admission does not outlive its book")
	}
	more := want("k", "c")
	more.Limit = 3
	f(a, store.Book{Namespace: "ns", ID: 2}, "c", more)
	if err := a.Ask(t.Context(), first, []Want{want("k", "z")}); !errors.Is(err, store.ErrOutdated) {
		t.Errorf("under a book that is outdated: %v", err)
	}
	part := store.PartFields{Kind: store.PartAdmitted, View: 7}
	contents := make([]store.Content, 1)
	if err := s.ReadParts(t.Context(), []store.PartCell{{Cell: more.Cell, Part: part.Part()}}, contents); err != nil || contents[0].N != 3 {
		t.Errorf("%d are admitted, %v", contents[0].N, err)
	}
}

// decisions counts how often a store is asked to decide.
type decisions struct {
	store.Store
	n int
}

func (s *decisions) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	s.n++
	return s.Store.Apply(ctx, batches, replies)
}

// A desk that is new, such as that of a server that was started again, reads what was
// admitted, and has the store decide on what was not.
func TestAskAgain(t *testing.T) {
	s := &decisions{Store: memstore.New(memstore.Options{})}
	admitted(t, New(1, s), first, want("k", "a"), want("k", "b"), want("l", "a"))
	f := func(want string, decided int, wants ...Want) {
		t.Helper()
		s.n = 0
		if got := admitted(t, New(1, s), first, wants...); got != want || s.n != decided {
			t.Errorf("admitted %q by %d decisions, want %q by %d", got, s.n, want, decided)
		}
	}
	f("aba", 0, want("k", "a"), want("k", "b"), want("l", "a"))
	f("ab", 1, want("k", "a"), want("l", "b"), want("k", "c"))
	q := []Question{{View: 7}}
	if New(1, s).Look(want("k", "").Cell, 1, q); !q[0].Admitted || !q[0].Known {
		t.Errorf("an event without a value: %+v", q[0])
	}
}

// A counter that has a deadline takes no events: nothing is known of its values.
func TestDeadline(t *testing.T) {
	s := memstore.New(memstore.Options{})
	w := want("k", "a")
	b := store.Batch{Deltas: []store.Delta{{Cell: w.Cell, Op: store.OpAdd, N: 1, Expiry: store.ExpirySet | store.ExpiryAfter, DeadlineMS: 1 << 30}}}
	if err := s.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
		t.Fatal(err)
	}
	d := New(1, s)
	if err := d.Ask(t.Context(), first, []Want{w}); err != nil {
		t.Fatal(err)
	}
	if _, known := look(d, w, 1); known {
		t.Error("it is known")
	}
}

// More are asked for than fit into a batch, and remembered than fit: those that were asked
// for lately stay.
func TestMany(t *testing.T) {
	s := memstore.New(memstore.Options{})
	d := New(1, s)
	d.max = 250 // 2000 verdicts
	var wants []Want
	for i := range 5000 {
		wants = append(wants, want(fmt.Sprint("k", i), "a"))
	}
	known := func(wants []Want) (n int) {
		for _, w := range wants {
			if is, ok := look(d, w, 1); is && ok {
				n++
			}
		}
		return n
	}
	ask := func(wants []Want) {
		if err := d.Ask(t.Context(), first, wants); err != nil {
			t.Fatal(err)
		}
	}
	ask(wants[:500])
	for i := 500; i < len(wants); i += 500 {
		ask(wants[i : i+500])
		if n := known(wants[:500]); n < 350 {
			t.Errorf("%d of 500 are known that were asked for all the time", n)
		}
	}
	if n := known(wants); n < 1500 || n > 2000 {
		t.Errorf("%d are known", n)
	}
	ask(wants[4900:]) // again
	rows := *d.rows.Load()
	for i := range rows {
		seen := map[uint64]bool{0: true}
		for j := range rows[i] {
			if v := rows[i][j].Load(); v != 0 && seen[v] {
				t.Fatalf("row %d has verdict %x twice", i, v)
			} else {
				seen[v] = true
			}
		}
	}
}
