// Package limit decides whether a call is within its limits: by a token bucket,
// by fixed or sliding windows, or by calendar quotas. Several limits of one
// client are decided together.
//
// Decide is a pure function. It takes the state of a client, a request with the
// limits, and the time, and returns the new state. It uses integers only and
// never rounds in favour of the client: it admits no more than the limits
// allow, by the clock that is passed in.
package limit

import "fmt"

// The most that a request may ask for.
const (
	RulesMax  = 8
	AmountMax = 1_000_000_000_000            // of Rate, Burst and a cost
	PerUSMax  = 366 * 24 * 60 * 60 * 1000000 // a leap year
	EdgesMax  = 4
	TagMax    = 1<<32 - 1
)

// SkewUS is how far the time may step back without notice, in microseconds: two calls may
// be decided in another order than they were told the time. It stands still meanwhile.
// If it steps back farther, everything is refused until it has caught up.
const SkewUS = 1_000_000

// An Algorithm is how a limit is judged.
type Algorithm uint8

// The algorithms. They are stored and sent: append only.
const (
	// Bucket holds up to Burst, and Rate of it comes back in each PerUS, evenly.
	Bucket Algorithm = iota + 1
	// Window admits up to Rate in each stretch of PerUS, counted from 1970 on.
	Window
	// Sliding is Window, and of what the window before admitted, it counts as much as is
	// less than PerUS ago if that was spread evenly.
	Sliding
	// Calendar admits up to Rate from one of the Edges to the next.
	Calendar
)

// A Rule is one limit.
type Rule struct {
	Tag       uint32 // which one it is: what was used is kept under it when the rest changes
	Algorithm Algorithm
	Rate      int64
	PerUS     int64
	Burst     int64 // of a Bucket

	// Edges are where windows of a Calendar begin, in Unix microseconds, each later than the one
	// before, and where the last one ends. The time must be between them.
	Edges  [EdgesMax]int64
	NEdges int
}

// Most returns the most that the rule ever admits at once.
func (r *Rule) Most() int64 {
	if r.Algorithm == Bucket {
		return r.Burst
	}
	return r.Rate
}

// A Request asks for a cost within all of some rules.
type Request struct {
	Cost int64

	// Burn makes a refused request use up what there is of each limit, up to its cost.
	// Otherwise it uses nothing.
	Burn bool

	Rules  [RulesMax]Rule
	NRules int
}

// Check returns an error if nobody can decide the request.
func (r *Request) Check() error {
	if r.NRules < 1 || r.NRules > RulesMax {
		return fmt.Errorf("%d limits: want 1 to %d", r.NRules, RulesMax)
	}
	if r.Cost < 0 || r.Cost > AmountMax {
		return fmt.Errorf("cost %d: want 0 to %d", r.Cost, AmountMax)
	}
	for i := range r.NRules {
		if err := r.Rules[i].Check(); err != nil {
			return err
		}
		for j := range i {
			if r.Rules[j].Tag == r.Rules[i].Tag {
				return fmt.Errorf("limits %d and %d have one tag", j, i)
			}
		}
	}
	return nil
}

// Check returns an error if nobody can decide by the rule.
func (r *Rule) Check() error {
	if r.Rate < 1 || r.Rate > AmountMax {
		return fmt.Errorf("rate %d: want 1 to %d", r.Rate, AmountMax)
	}
	switch r.Algorithm {
	case Bucket, Window, Sliding:
		if r.PerUS < 1 || r.PerUS > PerUSMax {
			return fmt.Errorf("per %d µs: want 1 to %d, which is 366 days", r.PerUS, PerUSMax)
		}
		if r.NEdges != 0 {
			return fmt.Errorf("edges are for a calendar alone")
		}
	case Calendar:
		if r.PerUS != 0 {
			return fmt.Errorf("per %d µs: a calendar has edges", r.PerUS)
		}
		if r.NEdges < 2 || r.NEdges > EdgesMax {
			return fmt.Errorf("%d edges: want 2 to %d", r.NEdges, EdgesMax)
		}
		for i := range r.NEdges {
			if r.Edges[i] < 0 || r.Edges[i] > TimeUSMax || i > 0 && r.Edges[i] <= r.Edges[i-1] {
				return fmt.Errorf("edge %d does not follow the one before", i)
			}
		}
	default:
		return fmt.Errorf("unknown algorithm %d", r.Algorithm)
	}
	switch {
	case r.Algorithm != Bucket && r.Burst != 0:
		return fmt.Errorf("burst is for a bucket alone")
	case r.Algorithm == Bucket && (r.Burst < 1 || r.Burst > AmountMax):
		return fmt.Errorf("burst %d: want 1 to %d", r.Burst, AmountMax)
	}
	return nil
}

// TimeUSMax is the latest time: it leaves room for sums.
const TimeUSMax = 1 << 60

// A Reply says what was decided.
type Reply struct {
	Allowed bool

	// Rule is the index of the limit that the rest is of: the one that refuses for
	// longest, or if none does the one that has the least left.
	Rule      int
	Remaining int64 // what is left of it
	RetryMS   int64 // after how long the same cost can be had, if nothing else is used; 0 if it was allowed, Never
	ResetMS   int64 // after how long nothing of it is used any more

	Behind  bool // refused because the time has stepped back
	Outside bool // refused because the edges of a calendar do not have the time
	Unknown bool // refused because the request or the state is of a format that is not known
}

// Never is the RetryMS of a cost that is more than the limit admits at once.
const Never = 1<<replyMSBits - 1

// Decide decides a request at a time. State is what the last decision on the client
// returned, empty if there was none. If what is known of the client changes it is
// appended to dst, and changed is true: what is allowed changes it, and what is
// refused does only with Burn.
func Decide(dst []byte, state string, request []byte, nowUS int64) (next []byte, changed bool, reply Reply) {
	if next, changed, reply, done := decideOne(dst, state, request, nowUS); done {
		return next, changed, reply
	}
	var req Request
	var st entries
	if !req.parse(request) || !st.parse(state) || nowUS < 0 || nowUS > TimeUSMax {
		return dst, false, Reply{Unknown: true}
	}
	var all [RulesMax]judged
	worst := -1
	for i := range req.NRules {
		j := &all[i]
		j.judge(&req.Rules[i], st.find(req.Rules[i].Tag), req.Cost, nowUS)
		if j.refused() && (worst < 0 || j.later(&all[worst])) {
			worst = i
		}
	}
	if worst >= 0 {
		if req.Burn && !all[worst].stuck() {
			for i := range req.NRules { // and the cost has to wait for what is burnt, too
				all[i].use(min(req.Cost, all[i].left))
				all[i].wait(req.Cost)
				if all[i].refused() && all[i].later(&all[worst]) {
					worst = i
				}
			}
			next = st.append(dst, &req, &all, nowUS)
			changed = true
		} else {
			next = dst
		}
		return next, changed, all[worst].reply(worst, false)
	}
	least := 0
	for i := range req.NRules {
		all[i].use(req.Cost)
		if all[i].left < all[least].left || all[i].left == all[least].left && all[i].resetUS() > all[least].resetUS() {
			least = i
		}
	}
	return st.append(dst, &req, &all, nowUS), true, all[least].reply(least, true)
}

// decideOne is Decide for what most requests are: one limit, and a client that has used no
// other. It reports false if it is something else. BenchmarkDecide.
func decideOne(dst []byte, state string, request []byte, nowUS int64) (next []byte, changed bool, reply Reply, done bool) {
	c := cutter{b: request}
	cost, burn, n := c.head()
	if c.bad || n != 1 || burn || nowUS < 0 || nowUS > TimeUSMax {
		return dst, false, reply, false
	}
	var rule Rule
	if c.rule(&rule); c.bad || len(c.b) > 0 || cost > AmountMax || rule.Check() != nil {
		return dst, false, reply, false
	}
	var e entry
	var was *entry
	if state != "" {
		var room [64]byte
		s := cutter{b: append(room[:0], state...)}
		if s.byte() != version || s.byte() != 1 {
			return dst, false, reply, false
		}
		if s.entry(&e); s.bad || len(s.b) > 0 || e.tag != rule.Tag {
			return dst, false, reply, false
		}
		was = &e
	}
	var j judged
	j.judge(&rule, was, cost, nowUS)
	if j.refused() {
		return dst, false, j.reply(0, false), true
	}
	j.use(cost)
	return j.is.append(append(dst, version, 1)), true, j.reply(0, true), true
}

// Ends returns from when on a state is as good as none; ok is false if it is not known
// what it says.
func Ends(state string) (us int64, ok bool) {
	var st entries
	if !st.parse(state) {
		return 0, false
	}
	for i := range st.n {
		us = max(us, st.all[i].ends())
	}
	return us, true
}
