package port

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

// An Ask is one question to a limit.
type Ask struct {
	Name, Who string
	Cost      int64
	Burn      bool
	Token     string
	By        *Limiter // nil: the definitions'
}

// An Answer says what was decided.
type Answer struct {
	limit.Reply
	By       *Limiter
	Source   string
	Replayed bool
	Err      error // why nothing was
}

// Decision returns the answer in the words of a caller.
func (a *Answer) Decision() call.Decision {
	d := call.Decision{
		Allowed: a.Allowed, Remaining: a.Remaining, Limits: a.By.Limits, Source: a.Source, Replayed: a.Replayed,
		RetryAfter: time.Duration(a.RetryMS) * time.Millisecond, ResetAfter: time.Duration(a.ResetMS) * time.Millisecond,
	}
	if a.RetryMS == limit.Never {
		d.RetryAfter = call.Never
	}
	if a.Rule < len(d.Limits) {
		d.Policy, d.Limit = d.Limits[a.Rule].Called(), d.Limits[a.Rule].Most()
	}
	return d
}

// limitMeters count what was asked.
type limitMeters struct {
	allowed, refused, behind, crowded, open, closed, shared atomic.Uint64
}

func (m *limitMeters) meters(f func(name, help string, value float64)) {
	f("quipu_limits_allowed_total", "Calls that limits have allowed.", float64(m.allowed.Load()))
	f("quipu_limits_refused_total", "Calls that limits have refused.", float64(m.refused.Load()))
	f("quipu_limits_behind_total", "Calls refused because the store's clock had stepped back.", float64(m.behind.Load()))
	f("quipu_limits_crowded_total", "Calls refused because their limit had as many clients as it may have.", float64(m.crowded.Load()))
	f("quipu_limits_open_total", "Calls allowed because the store could not be reached, by their definition.", float64(m.open.Load()))
	f("quipu_limits_closed_total", "Calls refused because the store could not be reached, by their definition.", float64(m.closed.Load()))
	f("quipu_limits_shared_total", "Calls decided by a share of their limit in memory because the store could not be reached.", float64(m.shared.Load()))
}

// count counts an answer of the store.
func (m *limitMeters) count(a *Answer) {
	switch {
	case a.Err != nil, a.Replayed:
	case a.Allowed:
		m.allowed.Add(1)
	default:
		m.refused.Add(1)
		if a.Behind {
			m.behind.Add(1)
		}
	}
}

// CheckAsk returns an error if nobody can be asked that.
func CheckAsk(name, who string, cost int64) error {
	if err := store.CheckKey(name); err != nil {
		return err
	}
	if cost < 0 || cost > definition.LimitAmountMax {
		return store.Errorf(store.KindInvalid, "cost of %d: want 0 to %d", cost, int64(definition.LimitAmountMax))
	}
	return call.CheckWho(who)
}

// Allow asks limits, each by itself, and fills in the answers. Asks were checked. An error
// means that nothing can be said of any.
func (p *Port) Allow(ctx context.Context, asks []Ask, answers []Answer) error {
	switch {
	case p.err != nil:
		return p.err
	case p.readOnly:
		return store.ErrReadOnly
	}
	pending := make([]int, 0, len(asks))
	away := false
	for i := range asks {
		answers[i] = Answer{By: asks[i].By, Source: call.SourceStore}
		pending = append(pending, i)
	}
	for attempt := 1; len(pending) > 0; attempt++ {
		pending = slices.DeleteFunc(pending, func(i int) bool {
			a := &answers[i]
			if asks[i].By == nil {
				a.By, a.Err = p.find(ctx, asks[i].Name)
			}
			away = away || a.By != nil && a.By.Away.Then != definition.Fail
			return a.Err != nil || a.By.Away.Then != definition.Fail && p.awayNow() && p.decideAway(&asks[i], a)
		})
		if len(pending) == 0 {
			return nil
		}
		again, err := p.askStore(ctx, asks, answers, pending, away)
		if err != nil || len(again) == 0 {
			return err
		}
		if attempt == attemptsMax {
			return store.Errorf(store.KindUnavailable, "the limits or the store's clock changed at each attempt: try again")
		}
		pending = again
	}
	return nil
}

// A poll is asks on their way to the store.
type poll struct {
	made    store.Book
	batches []store.Batch
	replies []store.Reply
	asks    [][]int // of each batch
}

// poll makes batches of some asks.
func (p *Port) poll(ctx context.Context, asks []Ask, answers []Answer, pending []int) poll {
	known := p.books.Known(p.namespace)
	q := poll{made: store.Book{Namespace: p.namespace, ID: known.ID()}}
	events := make([]store.Event, len(pending))
	deltas := make([]store.Delta, 0, len(pending))
	rules := p.Rules()
	nowMS := p.NowMS(store.Cell{Namespace: p.namespace})
	at := map[int]int{}
	for n, i := range pending {
		a, by := &asks[i], answers[i].By
		all := by.lanesOf(p.namespace, a.Name, p.traits.Partitions)
		d := p.ask(a, by, &events[n], all.of(a.Who), nowMS)
		if events[n].Plan = by.plan; !p.near && !p.crowds(ctx, by, all) {
			events[n].Plan = counted
		}
		home := store.PartitionOf(d.Cell, p.traits.Partitions)
		b, ok := at[home]
		if !ok || len(q.batches[b].Deltas) == store.BatchDeltasMax {
			b = len(q.batches)
			at[home] = b
			batch := store.Batch{Partition: home, Apart: true, Durability: store.Memory}
			if known != nil {
				batch.Books = known.Fence
			}
			if len(pending) == 1 {
				batch.Deltas = deltas
			}
			q.batches, q.asks = append(q.batches, batch), append(q.asks, nil)
		}
		q.batches[b].Durability = max(q.batches[b].Durability, durabilityOf(rules.Policy(a.Name).Durability))
		q.batches[b].Deltas, q.asks[b] = append(q.batches[b].Deltas, d), append(q.asks[b], i)
	}
	q.replies = make([]store.Reply, len(q.batches))
	return q
}

func durabilityOf(d store.Durability) store.Durability {
	if d == store.DurabilityDefault {
		return store.Synced
	}
	return d
}

// ask returns the delta that asks.
func (p *Port) ask(a *Ask, by *Limiter, e *store.Event, cell store.Cell, nowMS int64) store.Delta {
	e.Part, e.Bytes = limitPart(a.Who), by.asks(a.Cost, a.Burn, nowMS)
	d := store.Delta{Cell: cell, Op: store.OpMerge, Want: true, Event: e}
	if a.Token != "" {
		h := fnv.New64a()
		var buf [binary.MaxVarintLen64 + 1]byte
		b := binary.AppendVarint(buf[:0], a.Cost)
		if a.Burn {
			b = append(b, 1)
		}
		_, _ = h.Write(append(b, a.Who...))
		d.Guard.Token, d.Guard.Digest = a.Token, h.Sum64()
	}
	return d
}

// crowds reports whether a limit may soon have too many clients. It is found out once in a
// second: in between the store is trusted not to be told so many.
func (p *Port) crowds(ctx context.Context, by *Limiter, all *lanes) bool {
	now, looked := time.Now().UnixMilli(), all.looked.Load()
	if now-looked < 1000 || !all.looked.CompareAndSwap(looked, now) {
		return all.crowded.Load()
	}
	values := make([]store.Value, len(all.cells))
	if err := p.store.Read(ctx, all.cells, values); err != nil {
		return all.crowded.Load()
	}
	sum := int64(0)
	for i := range values {
		sum += values[i].N
	}
	all.crowded.Store(sum > by.clients/2)
	return sum > by.clients/2
}

// askStore has the store decide some asks, and returns those that have to be asked again:
// definitions have changed, or a calendar's windows were not those of the store's time.
func (p *Port) askStore(ctx context.Context, asks []Ask, answers []Answer, pending []int, away bool) (again []int, err error) {
	within := ctx
	if away {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, awayAfter)
		defer cancel()
	}
	q := p.poll(within, asks, answers, pending)
	if len(q.batches) == 1 {
		err = p.store.Apply(within, q.batches, q.replies)
	} else {
		err = store.Apart(q.batches, q.replies, func(some []store.Batch, told []store.Reply) error {
			return p.store.Apply(within, some, told)
		})
	}
	var stale error
	for b := range q.batches {
		why := err
		if why == nil {
			why = q.replies[b].Err
		}
		if isStale(why) {
			stale, again = why, append(again, q.asks[b]...)
			continue
		}
		for n, i := range q.asks[b] {
			a := &answers[i]
			if a.Err = why; why == nil {
				p.fill(a, &asks[i], &q.replies[b].Results[n])
			}
			switch {
			case a.Err != nil && ctx.Err() == nil && isAway(a.Err) && p.decideAway(&asks[i], a):
				p.away.Store(time.Now().Add(awayFor).UnixNano())
				a.Err = nil
			case a.Err == nil && a.Outside:
				again = append(again, i)
			default:
				p.limits.count(a)
			}
		}
	}
	if stale != nil {
		if err := p.renew(ctx, q.made, stale); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// fill fills in an answer.
func (p *Port) fill(a *Answer, ask *Ask, r *store.Result) {
	switch r.Outcome {
	case store.Applied, store.Untimely:
		a.Reply, a.Replayed = limit.Unpack(r.Before, r.After), r.Replayed
		if a.Unknown {
			a.Err = store.Errorf(store.KindUnsupported, "the store can't read limit %q or the usage of its client: a newer Quipu may have written it", ask.Name)
		}
	case store.Bounded:
		p.limits.crowded.Add(1)
		a.Err = store.Errorf(store.KindFull, "limit %q is at its maximum of %d clients: wait until some of them are idle for long enough, or raise clients in the definition",
			ask.Name, a.By.clients)
	default:
		a.Err = r.Outcome.Err()
	}
}

// StartAllow is Allow for a caller that can't wait, as Start is Apply. The answers may be
// looked at when done is called.
func (p *Port) StartAllow(asks []Ask, answers []Answer, done func(error)) bool {
	s, ok := p.store.(store.Starter)
	if !ok || !p.near || p.err != nil || p.readOnly || p.traits.Partitions > 1 || len(asks) > store.BatchDeltasMax/2 {
		return false
	}
	all := make([]int, len(asks))
	for i := range asks {
		by := asks[i].By
		if by == nil {
			var err error
			if by, err = p.LimiterOf(asks[i].Name); by == nil || err != nil {
				return false
			}
		}
		answers[i], all[i] = Answer{By: by, Source: call.SourceStore}, i
	}
	q := p.poll(context.Background(), asks, answers, all)
	return s.Start(q.batches, q.replies, func(err error) {
		r := &q.replies[0]
		if isStale(r.Err) { // Start has reported false.
			return
		}
		if err == nil {
			err = r.Err
		}
		for i := range asks {
			a := &answers[i]
			if err != nil {
				a.Err = err
				continue
			}
			p.fill(a, &asks[i], &r.Results[i])
			if a.Err == nil && a.Outside {
				a.Err = store.Errorf(store.KindUnavailable, "the clocks of the store and of this server differ: try again")
			}
			p.limits.count(a)
		}
		done(nil)
	}) && !isStale(q.replies[0].Err)
}

// PeekLimit says what a limit would answer, by what the store has and by its time as it was
// told last. Nothing is used.
func (p *Port) PeekLimit(ctx context.Context, ask *Ask) (Answer, error) {
	if p.err != nil {
		return Answer{}, p.err
	}
	a := Answer{By: ask.By, Source: call.SourceStore}
	if a.By == nil {
		var err error
		if a.By, err = p.find(ctx, ask.Name); err != nil {
			return a, err
		}
	}
	cell := a.By.lanesOf(p.namespace, ask.Name, p.traits.Partitions).of(ask.Who)
	var content [1]store.Content
	if err := p.store.ReadParts(ctx, []store.PartCell{{Cell: cell, Part: limitPart(ask.Who)}}, content[:]); err != nil {
		return a, err
	}
	nowMS := p.NowMS(cell)
	_, _, a.Reply = limit.Decide(nil, content[0].Bytes, a.By.asks(ask.Cost, ask.Burn, nowMS), nowMS*1000)
	if a.Unknown {
		return a, store.Errorf(store.KindUnsupported, "the usage of the client of limit %q can't be read: a newer Quipu may have written it", ask.Name)
	}
	return a, nil
}

// ResetLimit forgets what a client of a limit has used.
func (p *Port) ResetLimit(ctx context.Context, name, who string) error {
	switch {
	case p.err != nil:
		return p.err
	case p.readOnly:
		return store.ErrReadOnly
	}
	d := store.Delta{
		Cell: newLanes(p.namespace, name, p.traits.Partitions).of(who), Op: store.OpDelete,
		Guard: store.Guard{Exists: store.ExistsMust},
		Event: &store.Event{Part: limitPart(who), Riders: []store.Rider{{Op: store.OpAdd, N: -1}}},
	}
	for attempt := 1; ; attempt++ {
		known := p.books.Known(p.namespace)
		b := store.Batch{
			Partition: store.PartitionOf(d.Cell, p.traits.Partitions), Deltas: []store.Delta{d},
			Durability: durabilityOf(p.Rules().Policy(name).Durability),
		}
		if known != nil {
			b.Books = known.Fence
		}
		var replies [1]store.Reply
		err := p.store.Apply(ctx, []store.Batch{b}, replies[:])
		if err == nil {
			err = replies[0].Err
		}
		switch {
		case isStale(err) && attempt < attemptsMax:
			if err := p.renew(ctx, store.Book{Namespace: p.namespace, ID: known.ID()}, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if o := replies[0].Results[0].Outcome; o != store.Unmet {
			return o.Err()
		}
		return nil
	}
}
