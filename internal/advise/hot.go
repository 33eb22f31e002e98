package advise

import (
	"fmt"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// The share of waiting that is too much, and the rate of writes from which it matters.
const (
	waitingMax  = 0.25
	waitingRate = 100
)

// SeenMin is how many writes to a counter must be seen before there is advice for
// it. A rate that was told by so many calls is right to a tenth; one by a handful,
// or by none, would have every layout and every total be too much.
const SeenMin = 100

// A Hot is a counter of a running server, as that shows it.
type Hot struct {
	Namespace, Key string
	Writes         float64 // a second, through this server
	Shards         int
	Waiting        float64      // which part of its writes' time was waiting for others
	Asked          float64      // which part of its writes ask for its value
	Decided        float64      // which part only its own cell can take: those, and more
	Policy         quipu.Policy // that it has; with no pattern if none names it
}

// A Verdict is what is advised for a hot counter.
type Verdict struct {
	Needs   Needs        // that were judged by
	Policy  quipu.Policy // for this counter; what it has if nothing has to change
	Changes []Change
	Notes   []string
}

// A Change is a setting that should be another.
type Change struct {
	Setting string `json:"setting"`
	From    string `json:"from"`
	To      string `json:"to"`
	Why     string `json:"why"`
}

// Judge advises for a hot counter. Of the needs it takes the reads, the servers
// and the store. What readers need is what its policy promises them, unless the
// needs have an accuracy; and so it is what the policy costs that is judged, not
// what it is for.
func Judge(h Hot, n Needs) (*Verdict, error) {
	had := h.Policy.Effective()
	n.Pattern, n.Writes = h.Key, h.Writes*float64(n.Nodes)
	if n.Accuracy == "" {
		n.Accuracy, n.Freshness = promised(had)
	}
	n.Bounded = had.Single && n.Accuracy == Exact
	a, err := For(n)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Needs: n, Policy: h.Policy, Changes: []Change{}, Notes: []string{}}
	v.Policy.Namespace, v.Policy.Pattern = h.Namespace, h.Key
	to := a.Policy.Effective()
	v.shards(a, h, had, to)
	v.timing(a, had, to)
	v.durability(a, had, to)
	v.contended(h, had)
	if n.Store != Embedded && n.Accuracy == Exact && !had.Single && n.Reads > n.Writes && n.Reads > waitingRate {
		v.note("every read asks the store: if readers of this counter may get a value that is a second old, see what --accuracy bounded --freshness 1s advises")
	}
	return v, nil
}

// promised returns what a policy promises to readers.
func promised(p quipu.Policy) (accuracy Accuracy, freshness time.Duration) {
	accuracy = Exact
	if p.Timing != quipu.FanIn {
		accuracy, freshness = Bounded, 2*p.Interval
	}
	if p.Durability != store.Synced {
		accuracy = Approximate
	}
	return accuracy, freshness
}

func (v *Verdict) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// change notes that a setting should be another, and why: the advice's reason for
// it, or for rejecting what there is.
func (v *Verdict) change(a *Advice, setting string, from, to any, rejected string) {
	why := a.Reasons[setting]
	for _, r := range a.Rejected {
		if why == "" && strings.HasPrefix(r.What, rejected) {
			why = r.Why
		}
	}
	v.Changes = append(v.Changes, Change{setting, fmt.Sprint(from), fmt.Sprint(to), why})
}

// shards judges the layout that a policy asks for. More shards than it asks for
// come by themselves.
func (v *Verdict) shards(a *Advice, h Hot, had, to quipu.Policy) {
	switch {
	case had.Single, had.Shards == to.Shards:
	case to.Shards > had.MaxShards:
		v.change(a, "max-shards", had.MaxShards, to.Shards, "")
		v.Changes[len(v.Changes)-1].Why = a.Reasons["shards"]
		v.Policy.MaxShards = to.Shards
	case to.Shards > h.Shards || to.Shards < had.Shards:
		v.change(a, "shards", had.Shards, to.Shards, "shards")
		v.Policy.Shards = a.Policy.Shards
	}
}

// timing judges when totals are made for readers.
func (v *Verdict) timing(a *Advice, had, to quipu.Policy) {
	if v.Needs.Reads == 0 && a.Store != Embedded && had.Timing != quipu.FanIn {
		v.note("no reads came to this server, so whether its timing pays is not judged: look at one that is read from")
		return
	}
	if had.Timing != to.Timing {
		v.change(a, "timing", had.Timing, to.Timing, "rollup")
		v.Policy.Timing, v.Policy.Interval = a.Policy.Timing, a.Policy.Interval
	}
	if to.Timing != quipu.FanIn && had.Interval != to.Interval {
		v.change(a, "interval", had.Interval, to.Interval, "")
		v.Policy.Interval = a.Policy.Interval
	}
}

// durability judges what an acknowledgement survives, and an outage leaves to
// readers. More than is advised is let be.
func (v *Verdict) durability(a *Advice, had, to quipu.Policy) {
	if had.Durability != to.Durability {
		v.change(a, "durability", had.Durability, to.Durability, "weaker durability")
		v.Policy.Durability = a.Policy.Durability
	}
	if had.Stale < to.Stale {
		v.change(a, "stale", had.Stale, to.Stale, "")
		v.Policy.Stale = a.Policy.Stale
	}
	if to.Partial && !had.Partial {
		v.change(a, "partial", had.Partial, to.Partial, "")
		v.Policy.Partial = true
	}
}

// contended says what no policy can mend: writers that wait for each other,
// because one cell decides.
func (v *Verdict) contended(h Hot, had quipu.Policy) {
	if h.Waiting <= waitingMax || h.Writes <= waitingRate {
		return
	}
	waits := fmt.Sprintf("its writes wait for each other for %.0f %% of their time", 100*h.Waiting)
	switch {
	case had.Single:
		v.note("%s, and its policy keeps it in one cell: leave single out if it has no floor or ceiling, or send its writes through one server", waits)
	case h.Shards >= had.MaxShards:
		v.note("%s, and it has all shards that it may have: raise max-shards, or let its writers send sums", waits)
	case h.Asked > 0.5:
		v.note("%s, because they ask for its value: have them ask for nothing back (Prefer: return=minimal, Q.ADD with NOVALUE), or send them through one server", waits)
	case h.Decided > 0.5:
		v.note("%s, because only its own cell can take them: they have a token or a condition, set it, or take away from it; send them through one server, or let its writers send sums", waits)
	default:
		v.note("%s, and any shard could take most of them: it is about to be split, or was and that did not help (quipu_splits_undone_total); look again in a minute, and if it stays so, let its writers send sums", waits)
	}
}
