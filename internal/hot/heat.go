package hot

import (
	"math"
	"time"

	"github.com/quipudb/quipu/store"
)

const (
	// halfLife is how long a burst takes to count half.
	halfLife = 500 * time.Millisecond
	// instant is within which nothing cools: what is hot is noted many times in one.
	instant = time.Millisecond
	// probes is how many entries are looked at for the coldest, which makes room
	// for another.
	probes = 16
)

// A Heat knows the hottest of the counters that are written to, whatever their
// number: about as many as it was made for. A counter that is hotter than the
// coldest of those gets in, and is at first taken to be as hot as the one whose
// place it took: so nothing hot is missed, and what is lukewarm may look a little
// warmer.
type Heat struct {
	entries []Entry // in no order
	index   map[store.Cell]int
	max     int
	hand    int
	last    int // that was noted
}

// An Entry is what is known of a counter.
type Entry struct {
	Cell store.Cell

	warmth float64 // writes, each counting less the longer ago it was
	tied   float64 // those of them that no shard could take
	asked  float64 // those of them that asked for the value
	again  float64 // how often they had to be made again
	at     int64   // as of when, in nanoseconds
	waits  float64 // which part of the calls' time was waiting when it was looked at last
	times  Times

	// The counts since it was looked at last, or entered.
	since  int64
	writes float64
	calls  int // whose time is known
	took   time.Duration
	waited time.Duration
}

// A Write is what was seen of a call that wrote to a counter.
type Write struct {
	Cell  store.Cell
	Count float64 // how many writes it stands for
	Tied  bool    // they are for one cell, whatever shards there are
	Asked bool    // they ask for the value

	// Of the time that the call Took, if that is known, it Waited for others who
	// changed the same cell, for whom it was made again so many times.
	Took, Waited time.Duration
	Retries      int
}

// NewHeat returns a Heat that knows up to max counters.
func NewHeat(maxEntries int) *Heat {
	return &Heat{index: make(map[store.Cell]int), max: maxEntries}
}

// Note counts writes to a counter, made by a call that ended now.
func (h *Heat) Note(w Write, now time.Time) {
	if h.last >= len(h.entries) || h.entries[h.last].Cell != w.Cell { // What is hot comes again and again.
		at, known := h.index[w.Cell]
		if !known {
			at = h.enter(w.Cell, now.UnixNano())
		}
		h.last = at
	}
	e := &h.entries[h.last]
	e.cool(now.UnixNano())
	e.warmth += w.Count
	e.writes += w.Count
	if w.Tied {
		e.tied += w.Count
	}
	if w.Asked {
		e.asked += w.Count
	}
	e.again += w.Count * float64(w.Retries)
	e.waited += w.Waited
	if w.Took > 0 {
		e.took += w.Took
		e.calls++
		e.times.Note(w.Took, now)
	}
}

// Timed notes how long a write took that ended now, of a counter that is known.
func (h *Heat) Timed(c store.Cell, took time.Duration, now time.Time) {
	if e := h.Get(c); e != nil {
		e.times.Note(took, now)
	}
}

// Retried counts writes that had to be made again, of a counter that is known.
func (h *Heat) Retried(c store.Cell, writes float64, now time.Time) {
	if e := h.Get(c); e != nil {
		e.cool(now.UnixNano())
		e.again += writes
	}
}

// enter returns the place of a new entry.
func (h *Heat) enter(c store.Cell, now int64) int {
	if len(h.entries) < h.max {
		h.entries = append(h.entries, Entry{Cell: c, at: now, since: now})
		h.index[c] = len(h.entries) - 1
		return len(h.entries) - 1
	}
	coldest, least := 0, math.Inf(1)
	for range min(probes, len(h.entries)) {
		h.hand = (h.hand + 1) % len(h.entries)
		if w := h.entries[h.hand].warmth * h.entries[h.hand].left(now); w < least {
			coldest, least = h.hand, w
		}
	}
	delete(h.index, h.entries[coldest].Cell)
	h.entries[coldest] = Entry{Cell: c, warmth: least, at: now, since: now}
	h.index[c] = coldest
	return coldest
}

// left is how much of what an entry counts is left.
func (e *Entry) left(now int64) float64 {
	return math.Exp2(-float64(max(0, now-e.at)) / float64(halfLife))
}

// cool brings an entry up to date, if more than an instant has passed.
func (e *Entry) cool(now int64) {
	if now > e.at+int64(instant) {
		left := e.left(now)
		e.warmth *= left
		e.tied *= left
		e.asked *= left
		e.again *= left
		e.at = now
	}
}

// Tied reports whether most writes are for one cell: then shards would be of no
// use, or be folded as soon as they are there.
func (e *Entry) Tied() bool { return e.TiedShare() > 0.5 }

// TiedShare returns which part of the writes are for one cell, whatever shards there
// are.
func (e *Entry) TiedShare() float64 { return e.share(e.tied) }

// AskedShare returns which part of the writes ask for the value.
func (e *Entry) AskedShare() float64 { return e.share(e.asked) }

func (e *Entry) share(some float64) float64 {
	if e.warmth == 0 {
		return 0
	}
	return some / e.warmth
}

// P99 returns how long the slowest in a hundred of the writes took, 0 if it is not
// known.
func (e *Entry) P99(now time.Time) time.Duration { return e.times.P99(now) }

// Rate returns writes a second, those of the last second above all.
func (e *Entry) Rate(now time.Time) float64 { return e.warmth * e.perSecond(now) }

// FreeRate is Rate of the writes that shards can take.
func (e *Entry) FreeRate(now time.Time) float64 { return (e.warmth - e.tied) * e.perSecond(now) }

// RetryRate returns how many writes a second had to be made again, one as often as
// it was.
func (e *Entry) RetryRate(now time.Time) float64 { return e.again * e.perSecond(now) }

func (e *Entry) perSecond(now time.Time) float64 {
	return e.left(now.UnixNano()) * math.Ln2 / halfLife.Seconds()
}

// Idle returns how long ago the last write was noted.
func (e *Entry) Idle(now time.Time) time.Duration { return time.Duration(now.UnixNano() - e.at) }

// Look returns what was written since it was called last.
func (e *Entry) Look(now time.Time) Look {
	const shortest = 20 * time.Millisecond // A moment says nothing of a second.
	passed := max(time.Duration(now.UnixNano()-e.since), shortest).Seconds()
	k := Look{Rate: e.writes / passed, At: now}
	if e.calls > 0 {
		k.Took = e.took / time.Duration(e.calls)
		// A server has one call to a cell under way, and combines those that come
		// meanwhile into the next. So what took long was not many calls for the store.
		k.Calls = min(float64(e.calls)/passed, 2/k.Took.Seconds())
		e.waits = float64(e.waited) / float64(e.took)
		k.Waiting = e.waits
	}
	e.since, e.writes, e.calls, e.took, e.waited = now.UnixNano(), 0, 0, 0, 0
	return k
}

// Waited returns which part of the calls' time was waiting, when that was looked at
// last.
func (e *Entry) Waited() float64 { return e.waits }

// Each calls f for every entry, in no order.
func (h *Heat) Each(f func(e *Entry)) {
	for i := range h.entries {
		f(&h.entries[i])
	}
}

// Get returns the entry of a counter, or nil.
func (h *Heat) Get(c store.Cell) *Entry {
	if at, ok := h.index[c]; ok {
		return &h.entries[at]
	}
	return nil
}
