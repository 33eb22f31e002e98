package port

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

// A Limiter is limits made ready to be asked. It does not change.
type Limiter struct {
	Limits []definition.Limit
	Away   definition.Away

	clients int64 // of each limit
	request limit.Request
	grids   [limit.RulesMax]calendar.Grid // of calendars
	dated   bool                          // one of them is a calendar
	one     []byte                        // the bytes of a request for 1, unless it is dated
	plan    *store.Plan                   // counts the clients, up to the share of a lane

	mu    sync.RWMutex // guards names
	names map[limitName]*lanes
}

// A limitName is which limit it is. Many may be of one definition.
type limitName struct{ namespace, name string }

// namesMax is of how many limits a limiter remembers what their cells are called.
const namesMax = 10_000

// lanes are the cells of a limit. Its clients are divided among them, so that they are in
// several partitions of a store that has some.
type lanes struct {
	cells   []store.Cell
	looked  atomic.Int64 // when their clients were counted last, in Unix milliseconds
	crowded atomic.Bool  // there may soon be too many
}

// lanesOf is in how many cells a limit is, on a store of so many partitions. It must not
// change for a store.
func lanesOf(partitions int) int { return min(partitions, 16) }

// counted is the plan of limits that are far from their number of clients: it does not look
// at what the number is, so that servers do not get in each other's way.
var counted = func() *store.Plan {
	p, err := store.NewPlan(store.Rider{Op: store.OpAdd, N: 1, When: store.Met{Kind: store.MetEqual}})
	if err != nil {
		panic(err) // it is always the same
	}
	return p
}()

// newLimiter makes limits that were checked ready, for a store of so many partitions.
func newLimiter(limits []definition.Limit, away definition.Away, clients int64, partitions int, zone func(string) (*calendar.Zone, error)) (*Limiter, error) {
	l := &Limiter{Limits: limits, Away: away, clients: clients}
	l.request.NRules, l.request.Cost = len(limits), 1
	for i := range limits {
		d, r := &limits[i], &l.request.Rules[i]
		r.Tag, r.Rate = d.Tag(), d.Rate
		switch d.Algorithm {
		case definition.Bucket:
			r.Algorithm, r.Burst = limit.Bucket, d.Most()
		case definition.FixedWindow:
			r.Algorithm = limit.Window
		case definition.SlidingWindow:
			r.Algorithm = limit.Sliding
		case definition.Calendar:
			r.Algorithm, l.dated = limit.Calendar, true
			l.grids[i] = calendar.Grid{Width: d.Per}
			if d.Zone != "" {
				z, err := zone(d.Zone)
				if err != nil {
					return nil, store.Errorf(store.KindInvalid, "limit %q: unknown time zone %q: %w", d.Called(), d.Zone, err)
				}
				l.grids[i].Zone = z
			}
			continue
		}
		r.PerUS = d.Per.Shortest().Microseconds()
	}
	if !l.dated {
		l.one = l.request.Append(nil)
	}
	share := store.Limits{KeysMax: clients}.Share(lanesOf(partitions)).KeysMax
	plan, err := store.NewPlan(store.Rider{
		Op: store.OpAdd, N: 1, When: store.Met{Kind: store.MetEqual}, Bound: &store.Bound{Low: 0, High: share, Inward: true},
	})
	l.plan = plan
	return l, err
}

// asks returns the bytes of a request for a cost, at about a time.
func (l *Limiter) asks(cost int64, burn bool, nowMS int64) []byte {
	if l.one != nil && cost == 1 && !burn {
		return l.one
	}
	r := l.at(nowMS)
	r.Cost, r.Burn = cost, burn
	return r.Append(nil)
}

// at returns the request with the windows of calendars about a time: the one it is in, the
// one before and the next one, since the time of the store may be a little different.
func (l *Limiter) at(nowMS int64) limit.Request {
	r := l.request
	if !l.dated {
		return r
	}
	for i := range r.NRules {
		x := &r.Rules[i]
		if x.Algorithm != limit.Calendar {
			continue
		}
		g := &l.grids[i]
		is := g.At(nowMS)
		x.NEdges = 0
		for _, ms := range [...]int64{g.At(is.From - 1).From, is.From, is.To, g.At(is.To).To} {
			x.Edges[x.NEdges] = ms * 1000
			x.NEdges++
		}
	}
	return r
}

// lanesOf returns the lanes of a limit.
func (l *Limiter) lanesOf(namespace, name string, partitions int) *lanes {
	l.mu.RLock()
	all := l.names[limitName{namespace, name}]
	l.mu.RUnlock()
	if all != nil {
		return all
	}
	all = newLanes(namespace, name, partitions)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil || len(l.names) == namesMax {
		l.names = make(map[limitName]*lanes)
	}
	l.names[limitName{namespace, name}] = all
	return all
}

func newLanes(namespace, name string, partitions int) *lanes {
	all := &lanes{}
	for i := range lanesOf(partitions) {
		all.cells = append(all.cells, store.LimitCell(namespace, name, i))
	}
	return all
}

// of returns the lane of a client.
func (all *lanes) of(who string) store.Cell {
	if len(all.cells) == 1 {
		return all.cells[0]
	}
	return all.cells[store.PartitionOf(store.Cell{Namespace: "who", Key: who}, len(all.cells))]
}

// limitPart is the part that says what a client has used.
func limitPart(who string) store.Part {
	return store.PartFields{Kind: store.PartLimit, Name: who}.Part()
}

// limiters are those of definitions, by namespace, and of calls that bring their own.
type limiters struct {
	mu        sync.Mutex // guards the fields below
	all       map[string]*defined
	throttles map[Throttle]*Limiter

	zones sync.Map // of names to *calendar.Zone, as this machine has them: there are some hundreds
}

// defined are the limiters of a book.
type defined struct {
	known *books.Known
	of    sync.Map // of *book.Entry to *Limiter
}

// LimiterOf returns the limiter that the definitions have for a name, as it is known here;
// nil if there is none.
func (p *Port) LimiterOf(name string) (*Limiter, error) {
	known := p.books.Known(p.namespace)
	if known == nil {
		return nil, nil
	}
	e := known.Book.Of(name)
	if e == nil || len(e.Definition.Limits) == 0 {
		return nil, nil
	}
	of := p.limiters.in(p.namespace, known)
	if l, ok := of.of.Load(e); ok {
		return l.(*Limiter), nil
	}
	l, err := newLimiter(e.Definition.Limits, e.Definition.Away, e.Definition.MaxClients(), p.traits.Partitions, func(name string) (*calendar.Zone, error) {
		return known.Book.Zones[name], nil
	})
	if err == nil {
		of.of.Store(e, l)
	}
	return l, err
}

// in returns the limiters of a book.
func (ls *limiters) in(namespace string, known *books.Known) *defined {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	of := ls.all[namespace]
	if of == nil || of.known != known {
		of = &defined{known: known}
		if ls.all == nil {
			ls.all = make(map[string]*defined)
		}
		ls.all[namespace] = of
	}
	return of
}

// NewLimiter returns the limiter of a call that brings its own limits, which were checked.
func (p *Port) NewLimiter(limits []definition.Limit, away definition.Away) (*Limiter, error) {
	return newLimiter(limits, away, (&definition.Definition{}).MaxClients(), p.traits.Partitions, p.limiters.zone)
}

// A Throttle is a bucket as a call of CL.THROTTLE has it: so many at once, and Count more
// in each Seconds.
type Throttle struct{ Burst, Count, Seconds int64 }

// throttlesMax is how many of them are remembered.
const throttlesMax = 1000

// Throttle returns the limiter of a bucket.
func (p *Port) Throttle(t Throttle) (*Limiter, error) {
	ls := &p.limiters
	ls.mu.Lock()
	l := ls.throttles[t]
	ls.mu.Unlock()
	if l != nil {
		return l, nil
	}
	per, err := definition.PerSeconds(t.Seconds)
	if err != nil {
		return nil, store.Errorf(store.KindInvalid, "period: %w", err)
	}
	limits := []definition.Limit{{Name: "throttle", Rate: t.Count, Per: per, Burst: t.Burst}}
	if err := definition.CheckLimits(limits); err != nil {
		return nil, store.Errorf(store.KindInvalid, "%w", err)
	}
	if l, err = newLimiter(limits, definition.Away{}, definition.ClientsMax, p.traits.Partitions, ls.zone); err != nil {
		return nil, err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.throttles == nil || len(ls.throttles) == throttlesMax {
		ls.throttles = make(map[Throttle]*Limiter)
	}
	ls.throttles[t] = l
	return l, nil
}

// zone returns a time zone as this machine has it.
func (ls *limiters) zone(name string) (*calendar.Zone, error) {
	if z, ok := ls.zones.Load(name); ok {
		return z.(*calendar.Zone), nil
	}
	at, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	z := calendar.NewZone(at)
	ls.zones.Store(name, z)
	return z, nil
}

// FindLimiter is LimiterOf for a caller that can wait: what the store has is known by then, as
// it was at most a second ago.
func (p *Port) FindLimiter(ctx context.Context, name string) (*Limiter, error) {
	l, err := p.LimiterOf(name)
	if l != nil || err != nil {
		return l, err
	}
	if _, err := p.books.Get(ctx, p.namespace); err != nil {
		return nil, err
	}
	return p.LimiterOf(name)
}

// find is FindLimiter for a name that must have limits.
func (p *Port) find(ctx context.Context, name string) (*Limiter, error) {
	l, err := p.FindLimiter(ctx, name)
	if l == nil && err == nil {
		err = store.Errorf(store.KindInvalid, "no limits are defined for %q: define them, or send them with the call", name)
	}
	return l, err
}
