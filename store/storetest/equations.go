package storetest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/store"
)

// equations runs one random history of what events are for: adds with views, views
// that come later, assignments, reservations, likes. After each step the equations
// between the parts must hold. The riders are those that the decision page
// 0026-second-edition names for each of them.
func equations(t *testing.T, r *rapid.T, open Opener) {
	k := newKit(t, r, open(t, Config{}))
	defer k.close()
	m := &ledgerMachine{kit: k, c: cell("a"), book: 1, holds: make(map[string]int64), likes: make(map[string]bool)}
	n := func(r *rapid.T) int64 { return rapid.Int64Range(-3, 9).Draw(r, "n") }
	r.Repeat(map[string]func(*rapid.T){
		"publish": func(*rapid.T) { m.book++ },
		"add":     func(r *rapid.T) { m.one(m.viewed(add(m.c, n(r)), "", counted)) },
		"set":     func(r *rapid.T) { m.one(m.viewed(set(m.c, n(r)), "", assigned)) },
		"reset":   func(*rapid.T) { m.reset(set(m.c, 0)) },
		"delete":  func(*rapid.T) { m.reset(del(m.c)) },
		"reserve": m.doReserve,
		"end":     m.doEnd,
		"like":    m.doLike,
		"unlike":  m.doUnlike,
		"audit":   func(*rapid.T) { k.audited() },
		"":        func(*rapid.T) { m.check() },
	})
}

// Views 1 to 3 come with books 2 to 4.
const viewsMax = 3

type ledgerMachine struct {
	*kit
	c          store.Cell
	book       int64
	holds      map[string]int64 // open ones, by id: their amounts
	made       int
	generation int64
	likes      map[string]bool
}

func outsideOf(view uint16) store.Part {
	return store.PartFields{Kind: store.PartOutside, View: view}.Part()
}

func windowOf(view uint16) store.Part {
	return store.PartFields{Kind: store.PartWindow, View: view, Epoch: 7}.Part()
}

func memberOf(generation int64, name string) store.Part {
	return store.PartFields{Kind: store.PartMember, Position: generation, Name: name}.Part()
}

func likesOf(generation int64) store.Part {
	return store.PartFields{Kind: store.PartMembers, Position: generation<<16 + 1}.Part()
}

var partGeneration = store.PartFields{Kind: store.PartGeneration}.Part()

// An event is one of these to a view: it is in its windows, or outside of them.
func counted(view uint16) []store.Rider  { return []store.Rider{applied(windowOf(view))} }
func assigned(view uint16) []store.Rider { return []store.Rider{applied(outsideOf(view))} }
func nothing(uint16) []store.Rider       { return nil }

// viewed makes a delta an event under the book.
func (m *ledgerMachine) viewed(d store.Delta, lead store.Part, each func(view uint16) []store.Rider, riders ...store.Rider) store.Delta {
	for view := uint16(1); view <= viewsMax && int64(view) < m.book; view++ {
		base := store.Rider{Part: outsideOf(view), Op: store.OpAdd, Amount: store.AmountWas}
		riders = append(append(riders, when(base, store.MetBook, int64(view)+1)), each(view)...)
	}
	riders = append(riders, store.Rider{Part: partBook, Op: store.OpMax, N: m.book})
	return led(d, lead, riders...)
}

// reset assigns, and begins a generation of members. It is refused while holds are open.
func (m *ledgerMachine) reset(d store.Delta) {
	free := provided(store.Rider{Part: partHeld, Op: store.OpGet}, store.MetEqual, 0)
	want := store.Applied
	if len(m.holds) > 0 {
		want = store.Unmet
	}
	m.outcome(m.one(m.viewed(d, "", assigned, free, plus(partGeneration, 1))), want)
	if want == store.Applied {
		m.generation++
		clear(m.likes)
	}
}

const holdDeadline = 1_800_000_000_000_000

func holdOf(id string, amount int64) store.Part {
	return store.PartFields{Kind: store.PartHold, Position: amount, Name: id}.Part()
}

func (m *ledgerMachine) doReserve(r *rapid.T) {
	m.made++
	id, amount := fmt.Sprint("hold", m.made), rapid.Int64Range(1, 4).Draw(r, "amount")
	has := m.read(m.c).N
	hold := provided(store.Rider{Part: holdOf(id, amount), Op: store.OpSet, N: holdDeadline}, store.MetEqual, 0)
	d := m.viewed(within(add(m.c, -amount), store.Bound{High: 1 << 40}), "", assigned, hold, plus(partHeld, amount))
	if has < amount {
		m.outcome(m.one(d), store.Bounded)
		return
	}
	m.outcome(m.one(d), store.Applied)
	m.holds[id] = amount
}

// doEnd commits a part of a reservation; nothing of it is what a sweep does. The second
// to end one is refused.
func (m *ledgerMachine) doEnd(r *rapid.T) {
	id := fmt.Sprint("hold", rapid.IntRange(1, m.made+1).Draw(r, "id"))
	amount, open := m.holds[id]
	if !open {
		amount = 1
	}
	took := rapid.Int64Range(0, amount).Draw(r, "took")
	d := m.viewed(del(m.c), holdOf(id, amount), func(view uint16) []store.Rider {
		return []store.Rider{plus(outsideOf(view), amount), plus(windowOf(view), -took)}
	}, plus(partHeld, -amount), plus("", amount-took))
	d.Event.Is = store.Met{Kind: store.MetEqual, N: holdDeadline}
	want := store.Applied
	if !open {
		want = store.Unmet
	}
	m.outcome(m.one(d), want)
	delete(m.holds, id)
}

func (m *ledgerMachine) like(r *rapid.T, d store.Delta, is store.Met, counts int64) {
	name := rapid.SampledFrom([]string{"eve", "bob"}).Draw(r, "name")
	generation := m.generation - rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(r, "old")
	same := provided(store.Rider{Part: partGeneration, Op: store.OpGet}, store.MetEqual, generation)
	d = m.viewed(d, memberOf(generation, name), nothing, same, plus(likesOf(generation), counts))
	d.Event.Is = is
	want := store.Applied
	if generation != m.generation || m.likes[name] == (counts > 0) {
		want = store.Unmet
	}
	m.outcome(m.one(d), want)
	if want == store.Applied {
		m.likes[name] = counts > 0
	}
}

func (m *ledgerMachine) doLike(r *rapid.T) {
	m.like(r, set(m.c, 1), store.Met{Kind: store.MetNot, N: 1}, 1)
}

func (m *ledgerMachine) doUnlike(r *rapid.T) {
	m.like(r, del(m.c), store.Met{Kind: store.MetEqual, N: 1}, -1)
}

// check evaluates the equations.
func (m *ledgerMachine) check() {
	m.Helper()
	total, book := m.read(m.c).N, m.part(m.c, partBook).N
	for view := uint16(1); view <= viewsMax && int64(view) < book; view++ {
		if outside, windows := m.part(m.c, outsideOf(view)).N, m.part(m.c, windowOf(view)).N; total != outside+windows {
			m.Fatalf("view %d: the total is %d, outside of it %d, in its windows %d", view, total, outside, windows)
		}
	}
	held, likes := int64(0), int64(0)
	for _, amount := range m.holds {
		held += amount
	}
	for _, liked := range m.likes {
		if liked {
			likes++
		}
	}
	if got := m.part(m.c, partHeld).N; got != held {
		m.Fatalf("held are %d, want %d", got, held)
	}
	if got := m.part(m.c, likesOf(m.generation)).N; got != likes {
		m.Fatalf("%d likes, want %d", got, likes)
	}
}
