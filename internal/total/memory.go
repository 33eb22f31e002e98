package total

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

const (
	// totalStripes is how many locks share the totals.
	totalStripes = 16

	// totalsMin is how many totals are kept at least, if a policy asks for any.
	totalsMin = 10_000

	// recallWait is how long a store is waited for if there is something to say
	// without it, or another way to ask.
	recallWait = time.Second

	// evictLooks is how many totals are looked at for one to forget.
	evictLooks = 8
)

// memory is what was read last of some counters: for readers whom a value of
// some age will do, and for when the store can't be reached.
type memory struct {
	seed    maphash.Seed
	left    func(c store.Cell, deadlineMS int64) int64
	max     int  // in each stripe
	all     bool // whatever is read is kept, not only what policies ask for
	stripes [totalStripes]totalStripe
	rollups rollups
	ticks   atomic.Uint64 // how many events there were
	any     atomic.Bool   // there is a total, or was one
	tails   atomic.Bool   // there is one with a tail, or was: writes are noted

	cached, coalesced, recalled, partial, fallbacks, refreshFailures atomic.Uint64
}

type totalStripe struct {
	mu        sync.Mutex // guards the rest, and the fields of its totals
	cells     map[store.Cell]*total
	forgotten uint64 // the tick at which a reader was told last of a total that was forgotten
}

// A total is what a counter was. Whether one value can be told after another
// without going back is decided by ticks:
//
//	asked ----------- the store looked at it ----------- got
//	  counts what was told before      may lack what is told after
//
// So a value that was asked for after another was got counts all that the other
// does. Of two that overlap, nobody knows which counts more.
type total struct {
	value   store.Value
	asked   rollup.Moment // when value was asked for
	got     uint64        // the tick at which it was known; 0 if nothing is
	looked  uint64        // if another server has summed it, the tick at which the look began that took it; else 0
	shown   uint64        // a reader was told by this tick what value may lack: it is served if it was asked for since
	written uint64        // this DB was told by this tick of a change that may be neither in value nor in tail
	tail    rollup.Tail
	over    time.Time // when the deadline passes, by this server's clock; zero if there is none
	used    time.Time // by a reader
	reading *reading  // the last that began, if it is under way; else nil

	schedule   schedule     // how it is refreshed, if it is
	duty       *rollup.Duty // nil if other servers have no part in that
	refreshing bool         // it is under way
	apart      bool         // the last time it failed: it must not keep others from being refreshed
}

// A snapshot is what was read of a counter.
type snapshot struct {
	value  store.Value
	parts  []uint64      // of which versions of its cells it is the sum, if that is known
	asked  rollup.Moment // it counts what was told before
	got    uint64        // what was told after this tick is not in it
	looked uint64        // if another server has summed it, when the look at it began; else 0
	shown  bool          // a reader is told
}

// tick returns a number above all before it.
func (t *memory) tick() uint64 { return t.ticks.Add(1) }

// now returns this moment. Its tick tells it from others if the clock stands still.
func (t *memory) now() rollup.Moment { return rollup.Moment{Time: time.Now(), Tick: t.tick()} }

// leftMaxMS is as far ahead as a deadline is told from none: it is further than
// anything that is kept.
const leftMaxMS = 1 << 40

// newMemory returns a memory of counters: of every one that is read, up to n, if
// that is not 0. Left is how long a counter has before its deadline.
func newMemory(n int, left func(c store.Cell, deadlineMS int64) int64) *memory {
	t := &memory{seed: maphash.MakeSeed(), left: left, all: n > 0, max: (max(n, totalsMin) + totalStripes - 1) / totalStripes}
	if t.all {
		t.max = (n + totalStripes - 1) / totalStripes
	}
	for i := range t.stripes {
		t.stripes[i].cells = make(map[store.Cell]*total)
	}
	return t
}

func (t *memory) stripe(c store.Cell) *totalStripe {
	return &t.stripes[maphash.Comparable(t.seed, c)%totalStripes]
}

// entry returns the total of a counter. If there is no room for a new one, others
// are forgotten, whichever come first: the map begins anywhere. Those that are being
// read stay, so there may be more for a while. What was
// written and told before there was one, or meanwhile if it was forgotten, is not
// noted: so what was asked for before now is not served. The caller holds s.mu.
func (t *memory) entry(s *totalStripe, c store.Cell) *total {
	e := s.cells[c]
	if e != nil {
		return e
	}
	looked := 0
	for other, o := range s.cells {
		if looked++; len(s.cells) < t.max || looked > evictLooks {
			break
		}
		if o.reading == nil {
			s.forgotten = max(s.forgotten, o.got, o.shown)
			delete(s.cells, other)
		}
	}
	now := t.tick()
	e = &total{shown: now, written: now}
	s.cells[c] = e
	t.any.Store(true)
	return e
}

// keep remembers what was read of a counter, and reports whether it does. What was
// asked for before the present total was known may lack what that has, and does not
// replace it. It may have more, too: if a reader is told, the present one is not
// served any more. Of what was forgotten meanwhile, nothing is kept but what a
// reader is told, where all of that is.
func (t *memory) keep(c store.Cell, v snapshot) bool {
	var over time.Time
	if v.value.DeadlineMS != 0 {
		over = time.Now().Add(time.Duration(min(t.left(c, v.value.DeadlineMS), leftMaxMS)) * time.Millisecond)
	}
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cells[c]
	if e == nil {
		if !t.all || !v.shown {
			return false
		}
		e = t.entry(s, c)
		e.shown = s.forgotten
	}
	known := e.got
	if v.looked != 0 && e.looked != 0 {
		// Both were summed elsewhere. The look that took the first saw no claim to the
		// second, which was summed after that claim, and so counts all that the first does.
		known = e.looked
	}
	if v.asked.Tick < known {
		if v.shown { // Nobody is told less from now on.
			e.shown = max(e.shown, v.got)
		}
		return false
	}
	e.value, e.over, e.asked, e.got, e.looked, e.apart = v.value, over, v.asked, v.got, v.looked, false
	if v.parts == nil && !e.tail.Based() {
		return true
	}
	if v.parts == nil && v.value.Layout == 0 {
		v.parts = []uint64{v.value.Version}
	}
	if !e.tail.Rebase(v.parts, v.asked.Tick, v.got) {
		e.written = t.tick()
	}
	return true
}

// outdo has totals that are kept of counters not be served any more: a reader is told
// something else, which may be more. There is nothing to do before the first total.
func (t *memory) outdo(cells []store.Cell) {
	if !t.all && !t.any.Load() {
		return
	}
	now := t.tick()
	for _, c := range cells {
		s := t.stripe(c)
		s.mu.Lock()
		if e := s.cells[c]; e != nil {
			e.shown = max(e.shown, now)
		}
		s.mu.Unlock()
	}
}

// get returns what a counter was, if that is not older than some age, and not
// less than readers were told; if own is set with what this DB has written since.
func (t *memory) get(c store.Cell, now time.Time, age time.Duration, own bool) (v store.Value, from Seen, ok bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cells[c]; e != nil && e.asked.Tick >= e.shown && e.within(age, now) {
		return e.serve(now, own)
	}
	return v, from, false
}

// recall is get for when the store can't be asked: then what there is must do,
// also if it may lack what this DB has written, or be over.
func (t *memory) recall(c store.Cell, now time.Time, age time.Duration, own bool) (v store.Value, from Seen, ok bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cells[c]
	if e == nil || !e.within(age, now) {
		return v, from, false
	}
	if v, from, ok = e.serve(now, own); !ok {
		if v, from = e.value, (Seen{AsOf: e.asked.Time}); e.isOver(now) {
			// Most likely it is gone. If somebody has moved the deadline, it is not.
			v, from.Unproved = store.Value{}, true
		}
	}
	from.Source = SourceRecalled
	return v, from, true
}

// within reports whether there is a total, not older than some age.
func (e *total) within(age time.Duration, now time.Time) bool {
	return age > 0 && e.got != 0 && now.Sub(e.asked.Time) <= age
}

// isOver reports whether the deadline that the counter had has passed.
func (e *total) isOver(now time.Time) bool { return !e.over.IsZero() && !now.Before(e.over) }

// serve returns the total. With own it adds the tail; ok is false if the tail does
// not belong to this total, as here:
//
//	the next total is being read
//	an add of ours goes to shard 3, and is told
//	another server folds the counter: home takes in shard 3
//	the total comes, and it has no shard 3
//
// If home was read before the fold, the total lacks the add, and else it has it:
// nobody can tell. So written is set, to a tick after that total was asked for, and
// the one after it, which is asked for later, has the add for certain.
//
// A total whose deadline has passed is served to nobody: another server may have
// moved the deadline.
func (e *total) serve(now time.Time, own bool) (v store.Value, from Seen, ok bool) {
	if e.isOver(now) || own && (!e.tail.Based() || e.asked.Tick < e.written) {
		return v, from, false
	}
	e.used = now
	v, from = e.value, Seen{AsOf: e.asked.Time, Source: SourceRollup}
	tail, stamp := e.tail.Sum()
	if !own || stamp == 0 {
		return v, from, true
	}
	sum := v.N + tail
	ok = (sum > v.N) == (tail > 0) // else the total lacks what others have taken away
	from.Tail, v.N, v.Exists, v.Version = tail, sum, true, spread.Mixed(v.Version, stamp)
	return v, from, ok
}

// wrote notes what a call has changed, and what callers are told by it.
func (t *memory) wrote(batches []store.Batch, replies []store.Reply, began rollup.Moment) {
	told := t.tick()
	for i := range batches {
		if replies[i].Err != nil {
			continue
		}
		for j := range batches[i].Deltas {
			d, r := &batches[i].Deltas[j], &replies[i].Results[j]
			s := t.stripe(d.Cell)
			s.mu.Lock()
			if e := s.cells[d.Cell]; e != nil {
				e.note(d, r, began.Tick, told)
			}
			s.mu.Unlock()
		}
	}
}

// note takes one result into account. An add goes into the tail. Anything else (a
// set, a delete, a repeat) makes the total one that is not served to those who
// write here, until the next is collected. So does a write that told its value:
//
//	a total of 10 is kept
//	another server adds 5
//	an add of 1 here tells its caller 16
//
// The total and its tail are 11, less than he was told just now.
func (e *total) note(d *store.Delta, r *store.Result, began, told uint64) {
	if d.Want || r.Outcome == store.Applied && !e.count(d, r, began, told) {
		e.written = max(e.written, told) // Who was told later may have come here first.
	}
}

// tailServes is what an add may ask for that, if it is applied, adds its N.
const tailServes = store.NeedValue | store.NeedToken | store.NeedVersion | store.NeedLayout | store.NeedExists

// count takes a change into the tail, and reports false if it is none that can
// be added to a total.
func (e *total) count(d *store.Delta, r *store.Result, began, told uint64) bool {
	if d.Needs()&^tailServes != 0 || r.Replayed || r.Version == 0 || e.value.DeadlineMS != 0 {
		return false
	}
	return e.tail.Note(int(r.Shard), r.Version&^spread.OfShards, d.N, began, told)
}
