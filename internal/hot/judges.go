package hot

import (
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

const (
	// RefreshEvery is how often the counters that are split are read, to see
	// whether they are cold; refreshHot, if this server alone keeps them from it.
	RefreshEvery = time.Second
	refreshHot   = 5 * time.Second

	// askedFirst is for how long a counter is not split again that was folded
	// because it was asked; twice as long each time, up to askedLongest.
	askedFirst   = 5 * time.Second
	askedLongest = time.Minute

	// goneLooks is how many looks in a row must find that a counter has no shards any
	// more: who gives it others takes away the ones that it has.
	goneLooks = 3

	// far is how far from zero a counter is looked at more often.
	far = 1 << 40
)

// Near is how far a counter that is split may be from zero: far from the ends of
// int64, however much is added before someone looks again.
const Near = 1 << 61

// IsNear reports whether a counter is near enough to zero to be split.
func IsNear(n int64) bool { return -Near <= n && n <= Near }

// Judges decide about all counters of a server: which are hot, which are given
// shards, and which are folded. What is done to the counters is told to them, and
// the time. They are not safe for concurrent use.
type Judges struct {
	*Heat
	rules  Rules
	limits func(store.Cell) Limits
	of     map[store.Cell]*judged
}

// judged is what is decided about a counter.
type judged struct {
	Judge
	rest  time.Duration // how long it rests after it was asked
	until time.Time     // and until when
	gone  int           // looks in a row that did not find the shards it had

	// The total when it was last read, and at what rate it changed; what its shards
	// had, and of late in which part of the looks they had more than before.
	total, shards int64
	at            time.Time
	rate, busy    float64
}

// NewJudges returns judges that know the heat of up to entries counters. Limits
// returns those of a counter's policy.
func NewJudges(r Rules, limits func(store.Cell) Limits, entries int) *Judges {
	return &Judges{Heat: NewHeat(entries), rules: r, limits: limits, of: make(map[store.Cell]*judged)}
}

func (js *Judges) judge(c store.Cell) *judged {
	j := js.of[c]
	if j == nil {
		j = &judged{}
		js.of[c] = j
	}
	return j
}

// Asked notes that a counter is folded because one cell has to decide: it rests.
func (js *Judges) Asked(c store.Cell, now time.Time) {
	j := js.judge(c)
	if now.After(j.until) {
		j.rest = min(max(2*j.rest, askedFirst), askedLongest)
	}
	j.until = now.Add(j.rest)
}

// Missing returns up to n counters that had shards at the last looks, and are not
// known to have some now: mostly, others have just laid them out anew.
func (js *Judges) Missing(word func(store.Cell) Word, n int) (cells []store.Cell) {
	for c, j := range js.of {
		if len(cells) == n {
			break
		}
		if j.Shards() > 1 && j.gone < goneLooks && word(c) == 0 {
			j.gone++
			cells = append(cells, c)
		}
	}
	return cells
}

// A Want is how many shards a counter should have: fewer than it has if the last
// ones were of no use.
type Want struct {
	Cell   store.Cell
	Shards int
}

// Wants returns what should change, given what layouts counters are known to have.
func (js *Judges) Wants(word func(store.Cell) Word, now time.Time) (wants []Want) {
	js.Each(func(e *Entry) {
		k, limits, is := e.Look(now), js.limits(e.Cell), word(e.Cell)
		k.Shards = is.Shards()
		if is.Folding() || limits.Shards <= k.Shards && k.Rate < js.rules.Least || limits.Max < 2 || e.Tied() {
			return
		}
		j := js.judge(e.Cell)
		if k.Shards > 1 {
			j.gone = 0
		} else if j.Shards() > 1 && j.gone < goneLooks {
			return
		}
		if now.Before(j.until) {
			return
		}
		if n := j.Grow(js.rules, limits, k); n != k.Shards {
			wants = append(wants, Want{e.Cell, n})
		}
	})
	js.prune(word, now)
	return wants
}

// prune forgets what was decided about counters that are neither hot nor split
// nor resting.
func (js *Judges) prune(word func(store.Cell) Word, now time.Time) {
	if len(js.of) < js.max {
		return
	}
	for c, j := range js.of {
		if js.Get(c) == nil && word(c) == 0 && now.After(j.until) {
			delete(js.of, c)
		}
	}
}

// MayBeCold reports whether a counter that is split may be cold, for all that this
// server knows: to read it is to read all its shards.
func (js *Judges) MayBeCold(c store.Cell, now time.Time) bool {
	j, e := js.judge(c), js.Get(c)
	return e == nil || e.Rate(now) < js.rules.Least || e.Idle(now) >= RefreshEvery/4 ||
		now.Sub(j.at) >= refreshHot || j.total <= -far || j.total >= far
}

// Cold takes into account what was read of a counter, its total and what its shards
// have of it, and reports whether it should be folded.
func (js *Judges) Cold(c store.Cell, w Word, total, shards int64, now time.Time) bool {
	j := js.judge(c)
	// It was not split, or not looked at, until now: what it was says nothing.
	first := j.at.IsZero() || now.Sub(j.at) > 2*refreshHot
	passed := now.Sub(j.at).Seconds()
	if first {
		j.busy = 1
	} else if passed > 0 {
		j.rate = math.Abs(float64(total)-float64(j.total)) / passed
	}
	writes := math.Inf(1)
	if !first {
		writes = js.writes(c, j, shards, passed, now)
	}
	j.total, j.shards, j.at = total, shards, now
	switch {
	case w == 0:
		j.at = time.Time{}
		return false
	case w.Folding(), !IsNear(total):
		return true
	default:
		return j.Fold(js.rules, js.limits(c), w.Shards(), writes, now)
	}
}

// writes returns how many writes a second the shards of a counter take, as far as
// it can be told: those of this server, or by how much the shards have grown, which
// they only do. If they grow in few looks only, a few large adds are all that there
// is.
func (js *Judges) writes(c store.Cell, j *judged, shards int64, passed float64, now time.Time) (rate float64) {
	const looks = 8
	grown := 0.0
	if shards != j.shards {
		grown = 1
	}
	if j.busy += (grown - j.busy) / looks; j.busy >= 0.5 && passed > 0 {
		rate = math.Abs(float64(shards)-float64(j.shards)) / passed
	}
	if e := js.Get(c); e != nil && e.Idle(now) < RefreshEvery {
		rate = max(rate, e.FreeRate(now))
	}
	return rate
}

// Changing returns by how much a second a counter changed when it was last read,
// whoever wrote to it.
func (js *Judges) Changing(c store.Cell) float64 {
	if j := js.of[c]; j != nil {
		return j.rate
	}
	return 0
}
