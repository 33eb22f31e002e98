package view

import (
	"math"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// A Plan is the parts that an event changes besides the total, each by what the event
// applies. Events of one minute with the same values share one. It does not change.
type Plan struct {
	Parts []Part

	at, now calendar.Span // of events, and of store's times, that it is right for
}

// Plan returns that of an event at a time, if the store's time is now. Names are what
// Names returned, with Other for what is not admitted. A view that does not keep the
// event's window any more has it added to what is outside of it.
func (v *Views) Plan(at, now int64, names []string) (*Plan, error) {
	switch {
	case at < 0:
		return nil, store.Errorf(store.KindInvalid, "an event before 1970 can't be counted")
	case at > now+book.Ahead:
		return nil, store.Errorf(store.KindInvalid, "the time of the event is %s ahead: at most %s",
			time.Duration(at-now)*time.Millisecond, time.Duration(book.Ahead)*time.Millisecond)
	}
	p := &Plan{at: calendar.Span{To: math.MaxInt64}, now: calendar.Span{From: math.MinInt64, To: math.MaxInt64}}
	for i := range v.views {
		r := &v.views[i]
		if r.ledger {
			continue
		}
		part := Part{Kind: r.kind(), View: r.ID}
		if r.dimension != NoDimension {
			part.Name = names[r.dimension]
		}
		if r.windowed() {
			span := r.grid.At(at)
			p.at.From, p.at.To = max(p.at.From, span.From), min(p.at.To, span.To)
			if end := span.To + r.keep; now < end {
				part.Position, part.Epoch = span.From, Epoch(span.From, r.Epoch)
				p.now.To = min(p.now.To, end)
			} else {
				part = Part{Kind: Outside, View: r.ID}
				p.now.From = max(p.now.From, end)
			}
		}
		p.Parts = append(p.Parts, part)
	}
	return p, nil
}

// holds reports whether p is the plan of an event at a time, if the store's time is now.
func (p *Plan) holds(at, now int64) bool {
	return at >= p.at.From && at < p.at.To && now >= p.now.From && now < p.now.To && at <= now+book.Ahead
}

// Plans remembers plans, so that events share them. It is not safe for concurrent use.
type Plans struct {
	plans map[planKey]*Plan
}

type planKey struct {
	views *Views
	slot  int64
	names string
}

// plansMax is how many plans are remembered: enough for all values of a dimension in a
// minute, and more.
const plansMax = 4096

// Of returns what v.Plan returns.
func (c *Plans) Of(v *Views, at, now int64, names []string) (*Plan, error) {
	key := planKey{v, at / time.Minute.Milliseconds(), strings.Join(names, "\x00")}
	if p := c.plans[key]; p != nil && p.holds(at, now) {
		return p, nil
	}
	p, err := v.Plan(at, now, names)
	if err != nil {
		return nil, err
	}
	if c.plans == nil || len(c.plans) >= plansMax {
		c.plans = make(map[planKey]*Plan)
	}
	c.plans[key] = p
	return p, nil
}
