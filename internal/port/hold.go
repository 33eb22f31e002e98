package port

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// An act is one step in the life of a hold. It travels as a fact beside the delta that leads
// it, to where the definitions of the counter are known.
type act struct {
	do       doing
	hold     hold.Hold
	deadline int64         // of the hold as it was read, or as it is made, Unix microseconds
	next     int64         // of doExtend: the new one
	ttl      time.Duration // that the caller asked for
	floor    *int64        // of doReserve: that the caller asked for, or nil
	taken    int64         // of doCommit: how much is taken for good
	who      string        // of doClean
}

type doing uint8

// The operations. They are in digests: append only.
const (
	doReserve doing = iota + 1
	doCommit
	doRelease
	doExpire
	doExtend
	doClean
)

// reservations returns the limits that the definition of a key has; nil is none.
func reservations(known *books.Known, key string) *definition.Reservations {
	if known == nil {
		return nil
	}
	if e := known.Book.Of(key); e != nil {
		return e.Definition.Reservations
	}
	return nil
}

// hold returns the event of an act, or why the policy or the definition of the counter does
// not allow it. What was reserved before they changed can always be given back.
func (f *frame) hold(d *store.Delta, fact *Fact, keys *books.Keys) (*store.Event, error) {
	a := fact.hold
	e := &store.Event{}
	if keys != nil {
		e.Plan = keys.Touch.Plan
	}
	switch a.do {
	case doReserve:
		return f.reserve(d, fact, keys, e)
	case doExtend:
		if r := reservations(f.known, d.Cell.Key); r != nil {
			if err := hold.CheckTTL(a.ttl, time.Duration(r.MaxTTL)); err != nil {
				return nil, err
			}
		}
		e.Part, e.Is, e.NotAfter = a.hold.Part(), store.Met{Kind: store.MetEqual, N: a.deadline}, a.deadline
		e.Riders = a.hold.Extend(a.deadline, a.next)
		return e, nil
	case doClean:
		e.Riders = hold.Clean(a.who)
		return e, nil
	default:
	}
	// A commit or a release needs the hold to be there, and not to be what it was when it was
	// read: so a token never remembers that somebody has extended it in between.
	e.Part = a.hold.Part()
	if e.NotAfter = a.deadline; a.do == doExpire {
		e.NotBefore, e.NotAfter, e.Is = a.deadline, 0, store.Met{Kind: store.MetEqual, N: a.deadline}
	}
	e.Riders = a.hold.End(a.deadline, a.hold.Amount-a.taken)
	f.outside(e, keys, a.hold.Amount)
	if keys == nil {
		return e, nil
	}
	if a.taken > 0 {
		if err := f.counted(e, keys, -a.taken); err != nil {
			return nil, err
		}
	}
	return e, f.lines(e, keys, d, fact)
}

// reserve is hold for what makes one.
func (f *frame) reserve(d *store.Delta, fact *Fact, keys *books.Keys, e *store.Event) (*store.Event, error) {
	a := fact.hold
	limits, longest := hold.Limits{}, time.Duration(0)
	if r := reservations(f.known, d.Cell.Key); r != nil {
		limits = hold.Limits{Number: r.Max, Total: r.Total, PerWho: r.PerWho, TotalPerWho: r.Who}
		longest = time.Duration(r.MaxTTL)
	}
	if err := hold.CheckTTL(a.ttl, longest); err != nil {
		return nil, err
	}
	bound := store.Unbounded()
	if of := f.known.Bound(d.Cell.Key); of != nil {
		bound = *of
	}
	if bound.High != math.MaxInt64 {
		return nil, store.Errorf(store.KindInvalid, "%q has a ceiling, so it can't be reserved: a released amount might not fit under the ceiling", d.Cell.Key)
	}
	switch {
	case a.floor != nil:
		bound.Low = max(bound.Low, *a.floor)
	case bound.Low == math.MinInt64:
		bound.Low = 0
	}
	d.Guard.Bound = &bound
	if entry := f.entry(keys); entry != nil {
		if len(entry.Choices) > 0 {
			return nil, store.Errorf(store.KindInvalid, "%q is counted by reactions, and can't be reserved", d.Cell.Key)
		}
		if n := definition.HoldCells(entry.Cells()); n > definition.RidersMax {
			return nil, store.Errorf(store.KindInvalid, "%q has %d views, so a commit of a reservation would change %d cells: at most %d", d.Cell.Key, entry.Cells(), n, definition.RidersMax)
		}
	}
	e.NotAfter = a.deadline
	e.Riders = a.hold.Reserve(a.deadline, limits)
	f.outside(e, keys, -a.hold.Amount)
	if keys == nil {
		return e, nil
	}
	return e, f.lines(e, keys, d, fact)
}

func (f *frame) entry(keys *books.Keys) *definition.Definition {
	if keys == nil {
		return nil
	}
	return &keys.Entry.Definition
}

// outside puts an amount outside of all views that the counter has by the book: that of view
// 0 is.
func (f *frame) outside(e *store.Event, keys *books.Keys, n int64) {
	if keys != nil {
		part := store.PartFields{Kind: store.PartOutside, Position: f.known.ID()}
		e.Riders = append(e.Riders, store.Rider{Part: part.Part(), Op: store.OpAdd, N: n})
	}
}

// counted has the views count an amount that the lead does not apply: as an add of it now.
func (f *frame) counted(e *store.Event, keys *books.Keys, n int64) error {
	names, err := keys.Names(f.room[:0], nil)
	if err != nil {
		return err
	}
	p, err := keys.Plans.Of(keys.Views, f.nowMS, f.nowMS, names)
	if err != nil {
		return err
	}
	for i := range p.Event.Len() {
		if r := *p.Event.Rider(i); r.Amount == store.AmountApplied {
			r.Amount, r.N = store.AmountN, n
			e.Riders = append(e.Riders, r)
		}
	}
	return nil
}

// lines has the ledger of all events write down what an act does.
func (f *frame) lines(e *store.Event, keys *books.Keys, d *store.Delta, fact *Fact) error {
	at, ok := keys.Line(f.nowMS, false)
	if !ok {
		return nil
	}
	a := fact.hold
	l := ledger.Line{Token: d.Guard.Token, Actor: a.hold.Who, Source: f.source}
	var bytes []byte
	add := func(kind ledger.Kind, n int64) (err error) {
		l.Kind, l.Amount = kind, n
		bytes, err = l.Append(bytes)
		return err
	}
	var err error
	switch a.do {
	case doReserve:
		err = add(ledger.Reserve, -a.hold.Amount)
	case doCommit:
		if err = add(ledger.Release, a.hold.Amount); err == nil && a.taken > 0 {
			err = add(ledger.Commit, -a.taken)
		}
	case doExpire:
		l.Reason = "expired"
		err = add(ledger.Release, a.hold.Amount)
	default:
		err = add(ledger.Release, a.hold.Amount)
	}
	e.Riders = append(e.Riders, store.Rider{Part: at.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: bytes})
	return err
}

// looked is what was read of a counter in a namespace that has had holds, before a delta is
// sent that must not meet an open one.
type looked struct {
	deadline bool  // the counter has one: it takes no events, and had no hold when it got it
	text     bool  // the key holds some: it takes no events either
	open     int64 // holds
}

// mayHold reports whether counters of the namespace may have holds. By the time that the first
// is made, its partition refuses whoever has not heard of it.
func (f *frame) mayHold() bool { return f.known.Holds() || f.s.due.Uses(f.namespace) }

// mayEndHolds reports whether a delta is not allowed while holds of its counter are open: it
// would take away what they are given back to.
func mayEndHolds(d *store.Delta, fact *Fact) bool {
	if fact != nil && fact.hold != nil {
		return false
	}
	if r, _ := reacting(d, fact); r.Kind != 0 {
		return false
	}
	return d.Op == store.OpDelete || d.Op == store.OpSet && fact != nil && fact.Kind == ledger.Reset
}

// look reads what has to be known of counters whose holds must not be open.
func (f *frame) look(ctx context.Context, batches []store.Batch, facts []Fact) error {
	if !f.mayHold() {
		return nil
	}
	var cells []store.Cell
	at := 0
	for i := range batches {
		for j := range batches[i].Deltas {
			d, fact := &batches[i].Deltas[j], factAt(facts, at)
			if at++; mayEndHolds(d, fact) || d.Expiry&store.ExpirySet != 0 {
				cells = append(cells, d.Cell)
			}
		}
	}
	if len(cells) == 0 {
		return nil
	}
	parts := make([]store.PartCell, len(cells))
	for i, c := range cells {
		parts[i] = store.PartCell{Cell: c, Part: hold.Number("")}
	}
	f.looked = make(map[store.Cell]looked, len(cells))
	for len(cells) > 0 {
		n := min(len(cells), store.ReadCellsMax)
		values, contents := make([]store.Value, n), make([]store.Content, n)
		if err := f.s.store.Read(ctx, cells[:n], values); err != nil {
			return err
		}
		if err := f.s.store.ReadParts(ctx, parts[:n], contents); err != nil {
			return err
		}
		for i := range n {
			f.looked[cells[i]] = looked{values[i].DeadlineMS != 0, values[i].IsObject(), contents[i].N}
		}
		cells, parts = cells[n:], parts[n:]
	}
	return nil
}

func factAt(facts []Fact, i int) *Fact {
	if len(facts) == 0 {
		return nil
	}
	return &facts[i]
}

// guard adds to the event of a delta that no hold of its counter may be open. It returns which rider says so, from
// 1 on; 0 is none.
func (f *frame) guard(e *store.Event, d *store.Delta, fact *Fact) (*store.Event, uint8) {
	if was := f.looked[d.Cell]; !f.mayHold() || !mayEndHolds(d, fact) || e == nil && (was.deadline || was.text) {
		return e, 0
	}
	with := &store.Event{}
	if e != nil {
		*with = *e
	}
	with.Riders = append(slices.Clip(with.Riders), hold.NoneOpen())
	return with, uint8(with.Len())
}

// ErrHeld is why a counter is not deleted or reset, and gets no deadline.
var ErrHeld = store.Errorf(store.KindUnmet, "the counter has open reservations: until they have ended, it can't be deleted or reset, and can't have a deadline")
