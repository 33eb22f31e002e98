package quipu

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/hot"
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
	// without it.
	recallWait = time.Second
)

// The sources of a Count.
const (
	sourceStore    = "store"
	sourceRollup   = "rollup"
	sourceRecalled = "recalled"
)

// totals are what was read last of some counters: for readers whom a value of
// some age will do, and for when the store can't be reached.
type totals struct {
	seed    maphash.Seed
	max     int  // in each stripe
	all     bool // whatever is read is kept, not only what policies ask for
	stripes [totalStripes]totalStripe
	rollups rollups
	ticks   atomic.Uint64 // how many events there were: see now

	cached, coalesced, recalled, partial, behind, late atomic.Uint64
}

type totalStripe struct {
	mu    sync.Mutex // guards cells, and the fields of its totals
	cells map[store.Cell]*total
}

// A total is what a counter was.
type total struct {
	value   store.Value
	asked   rollup.Moment // when it was asked for; zero if it was not read yet
	got     uint64        // the tick at which it was known
	shown   uint64        // the tick at which a reader was told what may be newer
	used    time.Time     // by a reader
	tail    rollup.Tail
	written uint64       // the tick at which this DB was last told of a change that may be neither in value nor in tail
	duty    *rollup.Duty // nil if other servers have no part in it
	rolled  rolled       // how it is refreshed, if it is
	reading *reading     // under way, or nil
}

// A reading is one call of the store that several readers wait for.
type reading struct {
	done  chan struct{}
	asked rollup.Moment
	value store.Value
	err   error
}

// A sight is what was seen of a counter.
type sight struct {
	value store.Value
	parts []uint64      // of which versions of its cells it is the sum, if that is known
	asked rollup.Moment // it counts what was told before
	got   uint64        // what was told after this tick is not in it
	shown bool          // a reader is told
}

// now returns this moment. Its tick is above all before it, also if the clock
// stands still.
func (t *totals) now() rollup.Moment { return rollup.Moment{Time: time.Now(), Tick: t.ticks.Add(1)} }

// newTotals returns a memory of counters: of every one that is read, up to n, if
// that is not 0.
func newTotals(n int) *totals {
	t := &totals{seed: maphash.MakeSeed(), all: n > 0, max: (max(n, totalsMin) + totalStripes - 1) / totalStripes}
	if t.all {
		t.max = (n + totalStripes - 1) / totalStripes
	}
	for i := range t.stripes {
		t.stripes[i].cells = make(map[store.Cell]*total)
	}
	return t
}

func (t *totals) stripe(c store.Cell) *totalStripe {
	return &t.stripes[maphash.Comparable(t.seed, c)%totalStripes]
}

// entry returns the total of a counter. If there is no room for a new one,
// another is forgotten, whichever comes first: the map begins anywhere. What was
// written before there was one, or meanwhile if it was forgotten, is not noted. The
// caller holds s.mu.
func (t *totals) entry(s *totalStripe, c store.Cell) *total {
	e := s.cells[c]
	if e != nil {
		return e
	}
	if len(s.cells) >= t.max {
		for other, o := range s.cells {
			if o.reading == nil {
				delete(s.cells, other)
				break
			}
		}
	}
	e = &total{written: t.now().Tick}
	s.cells[c] = e
	return e
}

// keep remembers what was seen of a counter. What was asked for before the present
// total was known may lack what that has, and does not replace it. It may have more,
// too: if a reader is told, the present one is not served any more.
func (t *totals) keep(c store.Cell, v sight) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.entry(s, c)
	if v.asked.Tick < e.got {
		if v.shown { // Nobody is told less from now on.
			e.shown = max(e.shown, v.got)
		}
		return
	}
	e.value, e.asked, e.got = v.value, v.asked, v.got
	if v.parts == nil && !e.tail.Based() {
		return
	}
	if v.parts == nil && v.value.Layout == 0 {
		v.parts = []uint64{v.value.Version}
	}
	if !e.tail.Rebase(v.parts, v.asked.Tick, v.got) {
		e.written = t.now().Tick
	}
}

// get returns what a counter was, if that is not older than some age, and not
// less than readers were told; if own is set with what this DB has written since.
func (t *totals) get(c store.Cell, now time.Time, age time.Duration, own bool) (v store.Value, from seen, ok bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cells[c]; e != nil && e.asked.Tick >= e.shown && e.within(age, now) {
		return e.serve(now, own)
	}
	return v, from, false
}

// recall is get for when the store can't be asked: then what there is must do, and
// if it can't be told whether that has what this DB has written, without.
func (t *totals) recall(c store.Cell, now time.Time, age time.Duration, own bool) (v store.Value, from seen, ok bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.cells[c]; e != nil && e.within(age, now) {
		if v, from, ok = e.serve(now, own); !ok {
			v, from, ok = e.serve(now, false)
		}
		from.source = sourceRecalled
	}
	return v, from, ok
}

// within reports whether there is a total, not older than some age.
func (e *total) within(age time.Duration, now time.Time) bool {
	return age > 0 && e.got != 0 && now.Sub(e.asked.Time) <= age
}

// serve returns the total, and if own is set with its tail, if it can be told what
// that is.
func (e *total) serve(now time.Time, own bool) (v store.Value, from seen, ok bool) {
	if own && (!e.tail.Based() || e.asked.Tick < e.written) {
		return v, from, false
	}
	e.used = now
	v, from = e.value, seen{asOf: e.asked.Time, source: sourceRollup}
	tail, stamp := e.tail.Sum()
	gone := v.DeadlineMS != 0 && v.DeadlineMS <= now.UnixMilli() // if nobody has changed it
	switch {
	case !own || stamp == 0:
		if gone {
			v = store.Value{}
		}
		return v, from, true
	case gone:
		return v, from, false
	}
	sum := v.N + tail
	ok = (sum > v.N) == (tail > 0) // else the total lacks what others have taken away
	from.tail, v.N, v.Exists, v.Version = tail, sum, true, spread.Mixed(v.Version, stamp)
	return v, from, ok
}

// beginWrite returns the moment at which a write begins, for endWrite; zero if no
// total counts what is written here.
func (s *shared) beginWrite() (m rollup.Moment) {
	if p := s.policies.Load(); p != nil && p.hybrid {
		m = s.totals.now()
	}
	return m
}

// endWrite notes what was changed by a write, before anyone is told. Policies may
// have been set since it began: then it is one that began at no known moment.
func (s *shared) endWrite(batches []store.Batch, replies []store.Reply, began rollup.Moment) {
	if p := s.policies.Load(); p != nil && p.hybrid {
		s.totals.wrote(batches, replies, began)
	}
}

// wrote notes what a call has changed, and what callers are told by it.
func (t *totals) wrote(batches []store.Batch, replies []store.Reply, began rollup.Moment) {
	told := t.now().Tick
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

// note takes one result into account: an add goes into the tail. What can't be
// added there makes the total one that is not served to those who write here; so
// does a value that is told, which counts what others have added.
func (e *total) note(d *store.Delta, r *store.Result, began, told uint64) {
	if d.Want || r.Outcome == store.Applied && !e.count(d, r, began, told) {
		e.written = told
	}
}

// count takes a change into the tail, and reports false if it is none that can
// be added to a total.
func (e *total) count(d *store.Delta, r *store.Result, began, told uint64) bool {
	if d.Op != store.OpAdd || d.Expiry != store.ExpiryKeep || d.Guard.Bound != nil || r.Replayed || r.Version == 0 || e.value.DeadlineMS != 0 {
		return false
	}
	return e.tail.Note(int(r.Shard), r.Version&^spread.OfShards, d.N, began, told)
}

// disown has the totals that are kept not be served any more as if they counted
// what this DB has written: it did not note that.
func (t *totals) disown() {
	now := t.now().Tick
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		for _, e := range s.cells {
			e.written = now
		}
		s.mu.Unlock()
	}
}

// join returns a reading of a counter that is under way, or a new one that the
// caller has to make.
func (t *totals) join(c store.Cell, now time.Time, own bool) (r *reading, mine bool) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.entry(s, c)
	e.used = now
	if r = e.reading; r != nil && (!own || r.asked.Tick > e.written) {
		return r, false
	}
	e.reading = &reading{done: make(chan struct{}), asked: rollup.Moment{Time: now, Tick: t.ticks.Add(1)}}
	return e.reading, true
}

// made ends a reading.
func (t *totals) made(c store.Cell, r *reading, v sight, err error) {
	s := t.stripe(c)
	s.mu.Lock()
	if e := s.cells[c]; e != nil && e.reading == r {
		e.reading = nil
	}
	s.mu.Unlock()
	if err == nil {
		t.keep(c, v)
	}
	r.value, r.err = v.value, err
	close(r.done)
}

// seen is where a value came from, as of when it is what it is, what was added to
// it since, and how many of its shards are missing in it.
type seen struct {
	asOf    time.Time
	source  string
	tail    int64
	missing int
}

// unreachable reports whether an error of a read means that the store could not
// be asked.
func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// read reads cells of the view, and says where each value came from. It is from
// the store, or, where the caller's staleness or the counter's policy allows,
// what was read earlier. From is nil if all are from the store as of asOf.
func (db *DB) read(ctx context.Context, cells []store.Cell, values []store.Value, staleness time.Duration) (asOf time.Time, from []seen, err error) {
	asOf = time.Now()
	rules := db.rules()
	within, cancel := ctx, context.CancelFunc(func() {})
	if db.totals.all && db.allRecalled(cells, nil, nil, rules, staleness) {
		within, cancel = context.WithTimeout(ctx, recallWait)
	}
	if staleness == 0 || staleness == byPolicy && !rules.keeps() {
		err = db.readStore(within, cells, values)
	} else {
		from = make([]seen, len(cells))
		err = db.readKept(within, cells, values, from, asOf, rules, staleness)
	}
	cancel()
	if err == nil {
		return asOf, from, nil
	}
	from = make([]seen, len(cells))
	if ctx.Err() == context.Canceled || !unreachable(err) {
		return asOf, nil, err
	}
	if db.allRecalled(cells, values, from, rules, staleness) {
		db.totals.recalled.Add(uint64(len(cells)))
		return asOf, from, nil
	}
	if staleness == byPolicy && db.readParts(ctx, cells, values, from, rules) {
		db.totals.partial.Add(uint64(len(cells)))
		return asOf, from, nil
	}
	return asOf, nil, err
}

// readParts reads what can be read of counters, and reports whether there is
// something of all of them, and their policies take it.
func (db *DB) readParts(ctx context.Context, cells []store.Cell, values []store.Value, from []seen, rules rules) bool {
	if db.spread == nil {
		return false
	}
	for i := range cells {
		if !rules.policy(cells[i].Key).Partial {
			return false
		}
	}
	for i := range cells {
		from[i] = seen{asOf: time.Now(), source: sourceStore}
		var err error
		if values[i], from[i].missing, err = db.spread.ReadPart(ctx, cells[i]); err != nil {
			return false
		}
	}
	return true
}

// readStore reads cells from the store.
func (db *DB) readStore(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if !db.totals.all {
		return db.store.Read(ctx, cells, values)
	}
	asked := db.totals.now()
	if err := db.store.Read(ctx, cells, values); err != nil {
		return err
	}
	got := db.totals.now().Tick
	for i := range cells {
		db.totals.keep(cells[i], sight{value: values[i], asked: asked, got: got, shown: true})
	}
	return nil
}

// collect reads counters from the store, for their totals to be kept: if a policy
// has them count what is written here, with the versions of their parts.
func (s *shared) collect(ctx context.Context, cells []store.Cell) (sights []sight, err error) {
	p := s.policies.Load()
	asked := s.totals.now()
	values, parts := make([]store.Value, len(cells)), make([][]uint64, len(cells))
	switch {
	case p == nil || !p.hybrid:
		err = s.store.Read(ctx, cells, values)
	case s.spread != nil:
		err = s.spread.Collect(ctx, cells, values, parts)
	default:
		err = s.store.Read(ctx, cells, values)
		for i := range values {
			parts[i] = []uint64{values[i].Version}
		}
	}
	got := s.totals.now().Tick
	sights = make([]sight, len(cells))
	for i := range sights {
		sights[i] = sight{value: values[i], parts: parts[i], asked: asked, got: got}
	}
	return sights, err
}

// terms returns how old a value of a counter may be, whether it must count what
// this DB has written, and how often it is refreshed if the policy keeps it.
func (rs rules) terms(key string, staleness time.Duration) (age time.Duration, own bool, every time.Duration) {
	p := rs.policy(key)
	if p.Timing != FanIn {
		own, every = p.Timing == Hybrid, p.Interval
	}
	if age = staleness; age == byPolicy {
		age = 2 * every // One that is refreshed in time is never as old.
	}
	return age, own, every
}

// readKept reads cells of which some may be as they were. Those that several ask
// for at once are read once.
func (db *DB) readKept(ctx context.Context, cells []store.Cell, values []store.Value, from []seen, now time.Time, rules rules, staleness time.Duration) error {
	t := db.totals
	var ask []int // of the store
	var mine []*reading
	var others []*reading // by others; nil where this call asks itself
	for i := range cells {
		age, own, every := rules.terms(cells[i].Key, staleness)
		rolling := every > 0 && db.roll(cells[i], rolled{every, own}, now)
		var ok bool
		if values[i], from[i], ok = t.get(cells[i], now, age, own); ok {
			t.cached.Add(1)
			continue
		}
		// Who wants what was written here may not be served by a total that is in time.
		if from[i] = (seen{asOf: now, source: sourceStore}); rolling && !own && staleness == byPolicy {
			t.late.Add(1)
		}
		if age == 0 {
			ask, mine = append(ask, i), append(mine, nil)
			continue
		}
		r, lead := t.join(cells[i], now, own)
		if lead {
			ask, mine = append(ask, i), append(mine, r)
			continue
		}
		if others == nil {
			others = make([]*reading, len(cells))
		}
		others[i] = r
		t.coalesced.Add(1)
	}
	err := db.readMine(ctx, cells, values, ask, mine)
	for i, r := range others {
		if r != nil && err == nil {
			err = db.await(ctx, r, cells[i:i+1], values[i:i+1], &from[i], now, rules, staleness)
		}
	}
	return err
}

// await waits for what another reader asks of the store. If it will not do, it is
// asked again: that one may have been given up, or have begun too long ago.
func (db *DB) await(ctx context.Context, r *reading, cells []store.Cell, values []store.Value, from *seen, now time.Time, rules rules, staleness time.Duration) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return store.Errorf(store.KindUnavailable, "waiting for the store: %w", ctx.Err())
	}
	age, own, _ := rules.terms(cells[0].Key, staleness)
	switch {
	case r.err != nil:
	case own:
		var ok bool
		if values[0], *from, ok = db.totals.get(cells[0], now, age, own); ok {
			return nil
		}
	case now.Sub(r.asked.Time) <= age:
		values[0] = r.value
		if r.asked.Time.Before(now) { // It may lack what was written before this read.
			*from = seen{asOf: r.asked.Time, source: sourceRollup}
		}
		return nil
	}
	*from = seen{asOf: time.Now(), source: sourceStore}
	return db.store.Read(ctx, cells, values)
}

// readMine reads the cells that nobody else is reading.
func (db *DB) readMine(ctx context.Context, cells []store.Cell, values []store.Value, ask []int, mine []*reading) error {
	if len(ask) == 0 {
		return nil
	}
	wanted := make([]store.Cell, len(ask))
	for n, i := range ask {
		wanted[n] = cells[i]
	}
	sights, err := db.collect(ctx, wanted)
	for n, i := range ask {
		sights[n].shown = true
		values[i] = sights[n].value
		switch {
		case mine[n] != nil:
			db.totals.made(wanted[n], mine[n], sights[n], err)
		case err == nil && db.totals.all:
			db.totals.keep(wanted[n], sights[n])
		}
	}
	return err
}

// allRecalled reports whether all cells may be as they were because the store
// can't be reached, and if values is not nil fills that in.
func (db *DB) allRecalled(cells []store.Cell, values []store.Value, from []seen, rules rules, staleness time.Duration) bool {
	now := time.Now()
	for i := range cells {
		age, p := staleness, rules.policy(cells[i].Key)
		if age == byPolicy {
			age = p.Stale
		}
		v, was, ok := db.totals.recall(cells[i], now, age, p.Timing == Hybrid)
		if !ok {
			return false
		}
		if values != nil {
			values[i], from[i] = v, was
		}
	}
	return len(cells) > 0
}

// count is what a reader is told of a value.
func count(key string, v store.Value, from seen) Count {
	c := Count{
		Key: key, Value: v.N, Lower: v.N, Upper: v.N, Bounded: true, Complete: true, Exists: v.Exists,
		AsOf: from.asOf, Source: from.source, Shards: hot.Word(v.Layout).Shards(), Version: v.Version,
	}
	switch {
	case from.missing > 0:
		c.Complete, c.Bounded, c.Lower, c.Upper = false, false, 0, 0
	case from.source == sourceStore:
		c.Exact = true
	default:
		c.Staleness = time.Since(from.asOf)
		c.Lower, c.Upper = v.N-max(0, from.tail), v.N-min(0, from.tail)
	}
	return c
}
