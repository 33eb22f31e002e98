package view

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// A Plan is what an event changes besides the total. Events of one window with the same
// values share one, so that a store and a node can tell at a glance that they change the
// same parts. It does not change.
type Plan struct {
	Event *store.Event // it has no riders but those of the plan
	Late  bool         // a view does not keep the event's window any more

	at, now calendar.Span // of events, and of store's times, that it is right for
}

// Admit returns the moment that an event at a time is counted at, if the store's time is
// now, and whether that is another one. It returns an error if the event is too old, and the
// definition refuses such events.
func (v *Views) Admit(at, now int64) (moment int64, clamped bool, err error) {
	oldest := now - time.Duration(v.lateAfter).Milliseconds()
	switch {
	case v.late == definition.Count || at >= oldest || at < 0: // Nothing was before 1970: see Plan.
		return at, false, nil
	case v.late == definition.Clamp:
		return oldest, true, nil
	}
	age := time.Duration(now-at) * time.Millisecond
	return 0, false, store.Errorf(store.KindInvalid, "the event is %s old, and the definition of its counter refuses events older than %s",
		definition.Keep(age.Round(time.Second)), v.lateAfter)
}

func rfc3339(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// Plan returns that of an event at a time, if the store's time is now. Names are what
// Names returned, with Other for what is not admitted. Each view counts what the event
// applies in one part: its own, or if it does not keep the event's window any more, what
// is outside of it.
func (v *Views) Plan(at, now int64, names []string) (*Plan, error) {
	switch {
	case at < 0:
		return nil, store.Errorf(store.KindInvalid, "an event before 1970 can't be counted")
	case at > now+book.Ahead:
		return nil, store.Errorf(store.KindInvalid, "an event at %s is more than %s ahead of the store's clock, which shows %s",
			rfc3339(at), definition.Keep(book.Ahead*int64(time.Millisecond)), rfc3339(now))
	}
	p := &Plan{at: calendar.Span{To: math.MaxInt64}, now: calendar.Span{From: math.MinInt64, To: math.MaxInt64}}
	riders := v.bases()
	for _, part := range v.parts(p, at, now, names, (*ready).counts) {
		riders = append(riders, store.Rider{Part: part, Op: store.OpAdd, Amount: store.AmountApplied})
	}
	p.Event = planned(v.merged(riders, p, at, now, names))
	return p, nil
}

// parts returns the part of each of some views that an event at a time changes, and notes in
// p for how long they are right.
func (v *Views) parts(p *Plan, at, now int64, names []string, some func(*ready) bool) (parts []store.Part) {
	for i := range v.views {
		r := &v.views[i]
		if !some(r) {
			continue
		}
		part := store.PartFields{Kind: r.kind(), View: r.ID}
		if r.dimension != NoDimension {
			part.Name = names[r.dimension]
		}
		if r.shared {
			part.Name = v.lane
		}
		if r.windowed() {
			span := r.grid.At(at)
			p.at.From, p.at.To = max(p.at.From, span.From), min(p.at.To, span.To)
			if end := span.To + r.keep; now < end {
				part.Position, part.Epoch = span.From, r.epoch(span.From)
				p.now.To = min(p.now.To, end)
			} else {
				part, p.Late = outside(r.ID), true
				p.now.From = max(p.now.From, end)
				if r.merges() {
					continue // Nothing is outside of a sketch.
				}
			}
		}
		parts = append(parts, part.Part())
	}
	return parts
}

// bases returns the riders that begin every plan. The first event of a counter that was
// last written under a lower book than the one that brought a view adds what the total was
// to what is outside of it. All leave the book that they were made under.
func (v *Views) bases() []store.Rider {
	riders := make([]store.Rider, 0, 2*len(v.views)+1)
	for i := range v.views {
		if r := &v.views[i]; v.sums(r) {
			riders = append(riders, store.Rider{
				Part: outside(r.ID).Part(), Op: store.OpAdd, Amount: store.AmountWas,
				When: store.Met{Kind: store.MetBook, N: int64(r.Book)},
			})
		}
	}
	return append(riders, store.Rider{Part: store.PartFields{Kind: store.PartBook}.Part(), Op: store.OpMax, N: v.book})
}

// assigns returns the riders of what sets a counter or deletes it: all views have the jump
// outside of them.
func (v *Views) assigns() []store.Rider {
	riders := v.bases()
	for i := range v.views {
		switch r := &v.views[i]; {
		case r.choices: // All that it had is gone, members and what was outside of them.
			riders = append(riders, store.Rider{Part: outside(r.ID).Part(), Op: store.OpDelete}, store.Rider{Part: generation, Op: store.OpAdd, N: 1})
		case v.sums(r):
			riders = append(riders, store.Rider{Part: outside(r.ID).Part(), Op: store.OpAdd, Amount: store.AmountApplied})
		}
	}
	return riders
}

// outside returns the part that holds what a view lacks of the total.
func outside(view uint16) store.PartFields {
	return store.PartFields{Kind: store.PartOutside, View: view}
}

// planned returns an event of riders. A definition that was checked has none that no store
// would take.
func planned(riders []store.Rider) *store.Event {
	p, err := store.NewPlan(riders...)
	if err != nil {
		panic(err)
	}
	return &store.Event{Plan: p}
}

// holds reports whether p is the plan of an event at a time, if the store's time is now.
func (p *Plan) holds(at, now int64) bool {
	return at >= p.at.From && at < p.at.To && now >= p.now.From && now < p.now.To && at <= now+book.Ahead
}

// Plans remembers the plans of some Views, so that events share them. It is safe for
// concurrent use.
type Plans struct {
	mu    sync.RWMutex // guards plans
	plans map[string]*Plan
}

// plansMax is how many plans are remembered: enough for all values of a dimension in a
// window, and more.
const plansMax = 4096

// slot returns where the shortest window of a time begins: for all times in it the plans
// are mostly the same. It need not be so, and Plan.holds knows.
func (v *Views) slot(at int64) int64 {
	if v.finest == nil {
		return 0
	}
	return v.finest.At(at).From
}

// Of returns what v.Plan returns, for always the same v.
func (c *Plans) Of(v *Views, at, now int64, names []string) (*Plan, error) {
	return c.of(v, 0, at, now, names, func() (*Plan, error) { return v.Plan(at, now, names) })
}

// of returns what was remembered of a kind, from 0 on, or what is made now.
func (c *Plans) of(v *Views, kind uint64, at, now int64, names []string, plan func() (*Plan, error)) (*Plan, error) {
	var room [128]byte
	key := binary.BigEndian.AppendUint64(room[:0], kind)
	key = binary.BigEndian.AppendUint64(key, uint64(v.slot(at)))
	for _, name := range names {
		key = append(append(key, name...), 0)
	}
	c.mu.RLock()
	p := c.plans[string(key)]
	c.mu.RUnlock()
	if p != nil && p.holds(at, now) {
		return p, nil
	}
	p, err := plan()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.plans[string(key)]; other != nil && other.holds(at, now) {
		return other, nil
	}
	if c.plans == nil || len(c.plans) >= plansMax {
		c.plans = make(map[string]*Plan)
	}
	c.plans[string(key)] = p
	return p, nil
}
