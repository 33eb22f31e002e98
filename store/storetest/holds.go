package storetest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// holds runs one random history of reservations on one counter, with a clock that goes on
// and back, and compares every answer and all parts with an oracle in plain words. Commits,
// extensions and sweeps name deadlines that were right once. What was sent is sent again, also
// after a crash.
func holds(t *testing.T, r *rapid.T, open Opener) {
	cl := newClock()
	k := newKit(t, r, open(t, Config{Now: cl.now}))
	m := &holdMachine{
		kit: k, clock: cl, c: cell("a"), own: 20, tokens: make(map[string]told),
		limits: hold.Limits{Number: 4, Total: 12, PerWho: 2, TotalPerWho: 9},
	}
	defer func() { m.close() }()
	m.one(set(m.c, m.own))
	m.nowMS = cl.now().UnixMilli()
	actions := map[string]func(*rapid.T){
		"reserve": m.doReserve,
		"commit":  func(r *rapid.T) { m.doEnd(r, rapid.Int64Range(0, 3).Draw(r, "taken")) },
		"release": func(r *rapid.T) { m.doEnd(r, -1) },
		"extend":  m.doExtend,
		"sweep":   m.doSweep,
		"again": func(r *rapid.T) {
			if len(m.sent) > 0 {
				m.send(rapid.SampledFrom(m.sent).Draw(r, "sent"))
			}
		},
		"set":  func(r *rapid.T) { m.own = rapid.Int64Range(0, 20).Draw(r, "n"); m.one(set(m.c, m.own)) },
		"time": func(r *rapid.T) { cl.move(time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms")) * time.Millisecond) },
		"back": func(r *rapid.T) {
			m.one(add(m.c, 0)) // The store has seen the time there was.
			m.nowMS = max(m.nowMS, cl.now().UnixMilli())
			cl.move(-time.Duration(rapid.IntRange(0, 5000).Draw(r, "ms")) * time.Millisecond)
		},
		"audit": func(*rapid.T) { m.audited() },
		"":      func(*rapid.T) { m.check() },
	}
	if k.inst.Reopen != nil {
		actions["reopen"] = func(*rapid.T) { m.replace(m.inst.Reopen(t)) }
	}
	if k.inst.Crash != nil {
		actions["crash"] = func(*rapid.T) { m.replace(m.inst.Crash(t)) }
	}
	r.Repeat(actions)
}

// An openHold is a reservation as the oracle has it.
type openHold struct {
	hold.Hold
	deadline int64
}

// told is what the first write under a token was told.
type told struct {
	digest  uint64
	outcome store.Outcome
}

// A step is a delta, and what it does to the oracle if it is taken now: it reports what
// becomes of it.
type holdStep struct {
	delta store.Delta
	take  func() store.Outcome
}

type holdMachine struct {
	*kit
	clock  *clock
	c      store.Cell
	own    int64
	nowMS  int64
	limits hold.Limits
	open   []openHold
	made   []openHold // all there ever were, with each deadline that they had
	tokens map[string]told
	sent   []holdStep
}

func (m *holdMachine) find(h hold.Hold) int {
	return slices.IndexFunc(m.open, func(o openHold) bool { return o.Hold == h })
}

// send sends a step, and checks its outcome against the oracle.
func (m *holdMachine) send(s holdStep) {
	m.Helper()
	m.nowMS = max(m.nowMS, m.clock.now().UnixMilli()) // It never falls for anyone.
	token := s.delta.Guard.Token
	want, known := store.Outcome(0), false
	if token != "" {
		var first told
		if first, known = m.tokens[token]; known {
			if want = first.outcome; first.digest != s.delta.Guard.Digest {
				want = store.Mismatch
			}
		}
	}
	if !known {
		e := s.delta.Event
		if now := m.nowMS * 1000; now < e.NotBefore || e.NotAfter != 0 && now > e.NotAfter {
			want = store.Untimely
		} else {
			want = s.take()
		}
		if token != "" && want != store.Untimely {
			m.tokens[token] = told{s.delta.Guard.Digest, want}
		}
	}
	got := m.one(s.delta)
	if got.Outcome != want {
		m.Fatalf("%+v ends with %d, want %d", s.delta, got.Outcome, want)
	}
	if replays := known && want != store.Mismatch; got.Replayed != replays {
		m.Fatalf("%+v: a repeat is %t, want %t", s.delta, got.Replayed, replays)
	}
}

func (m *holdMachine) new(s holdStep) {
	m.Helper()
	m.sent = append(m.sent, s)
	m.send(s)
}

func (m *holdMachine) doReserve(r *rapid.T) {
	token := rapid.SampledFrom([]string{"", "s", "t", "u", "v"}).Draw(r, "token")
	h := hold.Hold{Key: m.c.Key, Amount: rapid.Int64Range(1, 7).Draw(r, "amount"), Who: rapid.SampledFrom([]string{"", "eve", "bob"}).Draw(r, "who")}
	if h.Name = hold.NameOf(namespace, m.c.Key, token); token == "" {
		h.Name = hold.NameOf("", m.c.Key, fmt.Sprint(len(m.sent)))
	}
	now := max(m.nowMS, m.clock.now().UnixMilli())
	deadline := now*1000 + rapid.Int64Range(-1, 4).Draw(r, "seconds")*1_000_000 + rapid.Int64Range(0, 999).Draw(r, "us")
	d := want(within(add(m.c, -h.Amount), store.Bound{High: math.MaxInt64, Inward: true}))
	d.Guard.Token, d.Guard.Digest = token, uint64(h.Amount)*100+uint64(len(h.Who))
	d.Event = &store.Event{Riders: h.Reserve(deadline, m.limits), NotAfter: deadline}
	m.new(holdStep{d, func() store.Outcome {
		number, sum := m.held("")
		whoNumber, whoSum := m.held(h.Who)
		switch {
		case m.own < h.Amount:
			return store.Bounded
		case m.find(h) >= 0:
			return store.Unmet
		case number+1 > m.limits.Number, sum+h.Amount > m.limits.Total,
			h.Who != "" && (whoNumber+1 > m.limits.PerWho || whoSum+h.Amount > m.limits.TotalPerWho):
			return store.Bounded
		}
		m.own -= h.Amount
		m.open, m.made = append(m.open, openHold{h, deadline}), append(m.made, openHold{h, deadline})
		return store.Applied
	}})
}

// held returns how many holds of one who are open, or of all, and their sum.
func (m *holdMachine) held(who string) (number, sum int64) {
	for _, o := range m.open {
		if who == "" || o.Who == who {
			number, sum = number+1, sum+o.Amount
		}
	}
	return number, sum
}

// draw returns a reservation as it was once.
func (m *holdMachine) draw(r *rapid.T) (openHold, bool) {
	if len(m.made) == 0 {
		return openHold{}, false
	}
	return rapid.SampledFrom(m.made).Draw(r, "hold"), true
}

// ends is what any end does: the hold must be there, with the deadline that is named, if one
// is.
func (m *holdMachine) ends(o openHold, back int64, exact bool) func() store.Outcome {
	return func() store.Outcome {
		i := m.find(o.Hold)
		if i < 0 || exact && m.open[i].deadline != o.deadline {
			return store.Unmet
		}
		m.own += back
		m.open = slices.Delete(m.open, i, i+1)
		return store.Applied
	}
}

// doEnd commits a reservation with an amount, or releases it: -1.
func (m *holdMachine) doEnd(r *rapid.T, taken int64) {
	o, ok := m.draw(r)
	if !ok {
		return
	}
	if i := m.find(o.Hold); i >= 0 { // Its due part is removed by its deadline, which is read just before.
		o.deadline = m.open[i].deadline
	}
	d := only(del(m.c), store.ExistsMust)
	d.N = min(taken, o.Amount)
	d.Guard.Token, d.Guard.Digest = o.EndToken(), uint64(d.N+2)
	back := o.Amount - max(d.N, 0)
	d.Event = &store.Event{Part: o.Part(), Riders: o.End(o.deadline, back), NotAfter: o.deadline}
	m.sendOnce(holdStep{d, m.ends(o, back, false)})
}

// sendOnce is new for what is not right any more when it is sent again later.
func (m *holdMachine) sendOnce(s holdStep) {
	m.Helper()
	token := s.delta.Guard.Token
	m.send(s)
	if _, settled := m.tokens[token]; settled {
		m.sent = append(m.sent, s)
	}
}

func (m *holdMachine) doSweep(r *rapid.T) {
	o, ok := m.draw(r)
	if !ok {
		return
	}
	d := del(m.c)
	d.Event = &store.Event{
		Part: o.Part(), Riders: o.End(o.deadline, o.Amount), NotBefore: o.deadline, Is: store.Met{Kind: store.MetEqual, N: o.deadline},
	}
	m.new(holdStep{d, m.ends(o, o.Amount, true)})
}

func (m *holdMachine) doExtend(r *rapid.T) {
	o, ok := m.draw(r)
	if !ok {
		return
	}
	next := max(o.deadline, max(m.nowMS, m.clock.now().UnixMilli())*1000+rapid.Int64Range(0, 4_000_000).Draw(r, "us"))
	d := store.Delta{Cell: m.c, Op: store.OpMax, N: next, Event: &store.Event{
		Part: o.Part(), Riders: o.Extend(o.deadline, next), NotAfter: o.deadline, Is: store.Met{Kind: store.MetEqual, N: o.deadline},
	}}
	m.new(holdStep{d, func() store.Outcome {
		i := m.find(o.Hold)
		if i < 0 || m.open[i].deadline != o.deadline {
			return store.Unmet
		}
		m.open[i].deadline = next
		m.made = append(m.made, m.open[i])
		return store.Applied
	}})
}

// check compares all that the store has with the oracle.
func (m *holdMachine) check() {
	m.Helper()
	m.holds(m.c, m.own)
	want := map[store.Part]int64{}
	for _, who := range []string{"", "eve", "bob"} {
		number, sum := m.held(who)
		if number > 0 {
			want[hold.Number(who)], want[hold.Sum(who)] = number, sum
		}
	}
	for _, o := range m.open {
		want[o.Part()], want[o.Due(o.deadline)] = o.deadline, o.Amount
	}
	got := map[store.Part]int64{}
	for _, kind := range []store.PartKind{store.PartHold, store.PartHeld, store.PartDue} {
		es, err := m.store.ScanParts(m.ctx, hold.RowsOfKind(m.c, kind), store.ScanMax)
		if err != nil {
			m.Fatalf("ScanParts: %v", err)
		}
		for _, e := range es {
			if e.Content.N != 0 {
				got[e.Part] = e.Content.N
			}
		}
	}
	if !maps.Equal(got, want) {
		m.Fatalf("the parts are %v, want %v", got, want)
	}
	due, err := m.store.ScanParts(m.ctx, hold.DueRows(m.c, m.nowMS*1000), store.ScanMax)
	if err != nil {
		m.Fatalf("ScanParts: %v", err)
	}
	number := 0
	for _, o := range m.open {
		if o.deadline <= m.nowMS*1000 {
			number++
		}
	}
	if len(due) != number {
		m.Fatalf("%d are due, want %d", len(due), number)
	}
}
