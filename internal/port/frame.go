package port

import (
	"context"
	"slices"

	"github.com/quipudb/quipu/internal/admission"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A frame is the events that definitions make of the deltas of batches of one namespace,
// for one attempt to write them. Every way to the store leads through here.
type frame struct {
	s         *shared
	source    string // of lines in the ledger
	namespace string
	known     *books.Known // nil if the namespace has no book
	nowMS     int64

	changed []change
	bounds  []bounded
	others  uint64           // values that are counted as other
	wants   []admission.Want // values that nobody here knows of
	asked   bool             // they are known now, as far as they can be
	looked  map[store.Cell]looked
	resets  map[store.Cell]int64 // how often all reactions were taken away, by earlier deltas
	room    [4]string

	questions []admission.Question // about the values of one delta
}

// A change is a delta that could not be sent as it was given, or that is late, and what it
// was.
type change struct {
	batch, delta int
	was          store.Delta
	err          error // why it is barred, or nil
	late         lateness
	held         uint8 // the rider that refuses it while reservations are open, from 1 on; 0 is none
	resets       bool  // it takes all reactions away
	follows      bool  // it is a reaction that comes after that
	once         int   // the rider that refuses it if its user was counted, as Result.Refused names it; or 0
}

// lateness is what an event is to views that do not keep its time any more.
type lateness uint8

const (
	onTime  lateness = iota
	missed           // it is missing in some of them
	clamped          // it is counted as later than it was
	tooLate          // it is refused
)

// barred is the event of a delta that definitions do not allow: the store refuses it, by
// its time, unless its token, or its writer's mark, says that it was applied before. Then
// it is a repeat all the same.
var barred = &store.Event{NotAfter: 1}

// newFrame returns a frame for batches. It asks the store for the definitions only if
// a delta brings dimensions, which nobody but them could declare: a store that has some
// refuses what is made without them.
func (p *Port) newFrame(ctx context.Context, batches []store.Batch, facts []Fact) (frame, error) {
	f := frame{s: p.shared, source: p.source}
	i := slices.IndexFunc(batches, func(b store.Batch) bool { return len(b.Deltas) > 0 })
	if i < 0 {
		return f, nil
	}
	cell := batches[i].Deltas[0].Cell
	f.namespace, f.known, f.nowMS = cell.Namespace, p.books.Known(cell.Namespace), p.NowMS(cell)
	if f.known == nil && slices.ContainsFunc(facts, func(f Fact) bool { return len(f.Dims) > 0 }) {
		if _, err := p.books.Get(ctx, f.namespace); err != nil {
			return f, err
		}
		f.known = p.books.Known(f.namespace)
	}
	return f, nil
}

// made returns the book that the events are made under.
func (f *frame) made() store.Book { return store.Book{Namespace: f.namespace, ID: f.known.ID()} }

// frame fills in what the definitions say of batches, whose facts follow each other. It
// returns an error if they can't be made, now or at all.
func (f *frame) frame(ctx context.Context, batches []store.Batch, facts []Fact) error {
	err := f.look(ctx, batches, facts)
	if err == nil {
		err = f.fill(batches, facts)
	}
	if err == nil && len(f.wants) > 0 {
		f.undo(batches, nil)
		if err = f.ask(ctx); err == nil {
			err = f.fill(batches, facts)
		}
	}
	return err
}

// fill is frame, as far as it is known which values are admitted.
func (f *frame) fill(batches []store.Batch, facts []Fact) error {
	at := 0
	clear(f.resets)
	for i := range batches {
		b := &batches[i]
		if b.Books = nil; f.known != nil {
			b.Books = f.known.Fence
		}
		for j := range b.Deltas {
			var fact *Fact
			if len(facts) > 0 {
				fact = &facts[at]
			}
			at++
			d := &b.Deltas[j]
			if d.IsObject() && f.known.Defines(d.Cell.Key) == nil {
				continue // It is an event already.
			}
			if err := f.bind(i, j, b); err != nil {
				return err
			}
			e, late, err := f.event(d, fact)
			if err == nil {
				if open := f.looked[d.Cell].open; open > 0 && mayEndHolds(d, fact) && !b.Apart {
					return ErrHeld // Its neighbours would go on without it.
				}
				e, held := f.guard(e, d, fact)
				clears := e != nil && d.Expiry != store.ExpiryKeep // A counter with views has no deadline that could be cleared.
				once := onceOf(e)
				frees := e != nil && e.Part != "" && d.Guard.Bound != nil // It rides.
				resets, follows := f.reset(d, fact)
				if clears || frees || resets || follows || late != onTime || once != 0 || held != 0 {
					f.changed = append(f.changed, change{batch: i, delta: j, was: *d, late: late, once: once, held: held, resets: resets, follows: follows})
				}
				if clears {
					d.Expiry = store.ExpiryKeep
				}
				if frees {
					d.Guard.Bound = nil
				}
				d.Event = e
				continue
			}
			if b.Writer == 0 && !divides(b) { // It can't be left out alone.
				return err
			}
			f.changed = append(f.changed, change{batch: i, delta: j, was: *d, err: err, late: late})
			if d.Op == store.OpExpire || d.Op == store.OpMerge {
				*d = store.Delta{Cell: d.Cell, Op: store.OpGet}
			} else {
				d.Expiry, d.DeadlineMS, d.Event = store.ExpiryKeep, 0, barred
			}
		}
	}
	return nil
}

// undo makes the deltas of batches again what they were given as, and says in the replies,
// if there are any, which of them were barred and which were late.
func (f *frame) undo(batches []store.Batch, replies []store.Reply) {
	for i := range f.changed {
		c := &f.changed[i]
		d := &batches[c.batch].Deltas[c.delta]
		e := d.Event
		*d = c.was
		if c.err == nil && !c.follows {
			d.Event = e
		} else if r, _ := reacting(d, nil); r.Kind == 0 && !d.IsObject() {
			d.Event = nil
		}
		if replies != nil && replies[c.batch].Err == nil {
			f.tell(c, d.Op, &replies[c.batch])
		}
	}
	f.changed = f.changed[:0]
	f.unbind(batches, replies)
}

// divides reports whether a delta of a batch may be refused alone.
func divides(b *store.Batch) bool { return b.Apart && len(b.If) == 0 }

// tell says in its result what became of a delta that was changed. A repeat is not late
// again.
func (f *frame) tell(c *change, op store.Op, reply *store.Reply) {
	r := &reply.Results[c.delta]
	if c.resets && r.Outcome == store.Applied && !r.Replayed {
		f.s.gens.rise(c.was.Cell)
	}
	switch {
	case c.held != 0 && r.Outcome == store.Unmet && r.Refused == c.held:
		*r = store.Result{Outcome: store.Barred, Refused: c.held, Replayed: r.Replayed}
		return
	case c.once != 0 && r.Outcome == store.Full && int(r.Refused) == c.once:
		*r = store.Result{Outcome: store.Barred, Refused: r.Refused}
		return
	case c.err != nil:
		if r.Outcome != store.Untimely && op != store.OpExpire && op != store.OpMerge {
			return
		}
		*r = store.Result{Outcome: store.Barred}
	case c.once != 0 && r.Outcome == store.Unmet && int(r.Refused) == c.once:
		r.Outcome, r.Refused, r.Once = store.Applied, 0, true
		if !r.Replayed && !reply.Replayed {
			f.s.once.Add(1)
		}
		return
	case c.late == onTime || r.Outcome != store.Applied || r.Replayed || reply.Replayed:
		return
	default:
		r.Late = true
	}
	switch c.late {
	case onTime:
	case missed:
		f.s.late.Add(1)
	case clamped:
		f.s.clamped.Add(1)
	case tooLate:
		f.s.tooLate.Add(1)
	}
}

// ErrDeadline is why a definition bars a delta that says no more than a command of Redis
// can: such a delta brings neither a time nor dimensions.
var ErrDeadline = store.Errorf(store.KindInvalid, "this counter can't have a deadline, because its definition has windows, dimensions, a ledger, choices or once")

// Why returns why the definition of its counter bars a delta, of which a fact may be known
// besides.
func (p *Port) Why(ctx context.Context, d *store.Delta, fact *Fact) error {
	f, err := p.newFrame(ctx, []store.Batch{{Deltas: []store.Delta{*d}}}, nil)
	if err == nil {
		_, _, err = f.event(d, fact)
	}
	if store.KindOf(err) == store.KindFull {
		p.full.Add(1)
		p.refused.Add(1)
	}
	if err == nil && (mayEndHolds(d, fact) || d.Expiry&store.ExpirySet != 0) {
		return ErrHeld
	}
	if err == nil {
		if keys := f.known.Of(d.Cell.Key); keys != nil && keys.OnceError() > 0 { // All that such a definition bars in the store.
			return fullOnce(keys)
		}
		return store.Barred.Err() // It is allowed by now.
	}
	return err
}

// event returns what a delta does besides changing its counter, nil if that is nothing; or
// why the definition of the counter does not allow it; and whether it is late. The fact may
// be nil.
func (f *frame) event(d *store.Delta, fact *Fact) (*store.Event, lateness, error) {
	if d.IsObject() {
		return nil, onTime, ErrText
	}
	keys := f.known.Of(d.Cell.Key)
	if r, user := reacting(d, fact); r.Kind != 0 {
		return f.react(d, r, user, keys)
	}
	if fact != nil && fact.hold != nil {
		e, err := f.hold(d, fact, keys)
		return e, onTime, err
	}
	if fact != nil && fact.Unite != nil {
		return f.unite(d, fact, keys)
	}
	if d.Expiry&store.ExpirySet != 0 {
		switch {
		case keys != nil:
			return nil, onTime, ErrDeadline
		case reservations(f.known, d.Cell.Key) != nil, f.looked[d.Cell].open > 0:
			return nil, onTime, ErrHeld
		}
	}
	if keys != nil && len(keys.Choices()) > 0 && (d.Op == store.OpAdd || d.Op == store.OpSet && d.N != 0) {
		return nil, onTime, ErrReactions
	}
	switch d.Op {
	case store.OpAdd:
		return f.add(d, fact, keys)
	case store.OpSet, store.OpDelete:
		if keys == nil {
			return nil, onTime, nil
		}
		line, ok := keys.Line(f.nowMS, true)
		e, err := f.withLine(keys.Assign, line, ok, d, fact, 0)
		return e, onTime, err
	default:
		return nil, onTime, nil
	}
}

// add returns the event of an add.
func (f *frame) add(d *store.Delta, fact *Fact, keys *books.Keys) (e *store.Event, late lateness, err error) {
	at, always := f.nowMS, false
	if fact != nil {
		if always = fact.always(); fact.AtMS != 0 {
			at = fact.AtMS
		}
	}
	if keys == nil {
		if fact != nil && len(fact.Dims) > 0 && fact.Undoes == nil {
			return nil, onTime, view.NoDimensions(fact.Dims[0].Name)
		}
		if !always {
			return nil, onTime, nil
		}
		e, err = f.withLine(&store.Event{}, unasked, true, d, fact, 0)
		return e, onTime, err
	}
	if at, late, err = f.admit(at, fact, keys); err != nil {
		return nil, late, err
	}
	names, err := f.names(d, fact, keys)
	if err != nil {
		return nil, onTime, err
	}
	p, err := keys.Plans.Of(keys.Views, at, f.nowMS, names)
	if err != nil {
		return nil, onTime, err
	}
	if p.Late && late == onTime {
		late = missed
	}
	line, ok := keys.Line(f.nowMS, always)
	if !ok && always {
		line, ok = unasked, true
	}
	if e, err = asked(p.Event, d, fact, keys); err != nil {
		return nil, onTime, err
	}
	if e, err = f.withLine(e, line, ok, d, fact, at); err == nil && keys.CountsOnce() {
		e, err = f.once(e, fact, keys, at)
	}
	return e, late, err
}

// admit returns the moment that an add at a time is counted at, or why it is refused. What
// is taken back was admitted once, and goes from where it was counted.
func (f *frame) admit(at int64, fact *Fact, keys *books.Keys) (int64, lateness, error) {
	if fact != nil && fact.Undoes != nil {
		return at, onTime, nil
	}
	moment, moved, err := keys.Admit(at, f.nowMS)
	switch {
	case err != nil:
		return at, tooLate, err
	case moved:
		return moment, clamped, nil
	}
	return moment, onTime, nil
}

// unasked is where lines are written down that no definition asks for.
var unasked = store.PartFields{Kind: store.PartEntries, Epoch: store.EpochForever}

// withLine returns an event with its line in the ledger, if it has one; then it is a copy.
// The line says for which moment an add was counted: when it is written down, the next
// window may have begun, or the moment is not the one that was given, and an Undo must find
// the window that it was counted in.
func (f *frame) withLine(e *store.Event, at store.PartFields, has bool, d *store.Delta, fact *Fact, momentMS int64) (*store.Event, error) {
	if !has {
		return e, nil
	}
	if fact == nil {
		fact = &Fact{}
	}
	l := fact.line(d)
	l.Source = f.source
	if momentMS != 0 {
		l.AtMS = momentMS
	}
	bytes, err := l.Append(nil)
	if err != nil {
		return nil, err
	}
	with := new(*e)
	with.Riders = append(with.Riders, store.Rider{Part: at.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: bytes})
	if fact.Undoes != nil {
		with.Riders = append(with.Riders, store.Rider{
			Part: fact.Undoes.mark(), Op: store.OpPut, Bytes: bytes, Is: store.Met{Kind: store.MetEqual},
		})
	}
	return with, nil
}

// names returns what the parts of an event are called in each dimension. A value that is
// not admitted is other. Those that nobody here knows of are wanted.
func (f *frame) names(d *store.Delta, fact *Fact, keys *books.Keys) ([]string, error) {
	if fact == nil {
		return keys.Names(f.room[:0], nil)
	}
	names, err := keys.Names(f.room[:0], fact.dims(keys))
	if err != nil {
		return nil, err
	}
	f.questions = f.questions[:0]
	for i, name := range names {
		f.questions = append(f.questions, admission.Question{View: keys.Admits(i), Name: name})
	}
	f.s.desk.Look(d.Cell, f.known.ID(), f.questions)
	for i := range f.questions {
		q := &f.questions[i]
		if !q.Known && !f.asked {
			at := admission.Seat{Cell: d.Cell, View: q.View, Name: q.Name}
			f.wants = append(f.wants, admission.Want{Seat: at, Limit: keys.Limit(i)})
		}
		if !q.Admitted {
			names[i] = view.Other
			f.others++
		}
	}
	return names, nil
}

// ask has the store decide on the values that nobody here knows of, all at once.
func (f *frame) ask(ctx context.Context) error {
	wants := make([]admission.Want, 0, len(f.wants))
	seen := make(map[admission.Seat]bool, len(f.wants))
	for _, w := range f.wants {
		if !seen[w.Seat] {
			wants, seen[w.Seat] = append(wants, w), true
		}
	}
	f.wants, f.asked, f.others = nil, true, 0
	return f.s.desk.Ask(ctx, f.known.Fence[0], wants)
}
