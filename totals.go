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

	cached, coalesced, recalled, partial, behind, late atomic.Uint64
}

type totalStripe struct {
	mu    sync.Mutex // guards cells, and the fields of its totals
	cells map[store.Cell]*total
}

// A total is what a counter was.
type total struct {
	value   store.Value
	asOf    time.Time // zero if it was not read yet
	used    time.Time // by a reader
	tail    rollup.Tail
	duty    *rollup.Duty // nil if other servers have no part in it
	written time.Time    // when this DB was last told of a change that may be neither in value nor in tail
	rolling bool         // it is refreshed
	reading *reading     // under way, or nil
}

// A reading is one call of the store that several readers wait for.
type reading struct {
	done  chan struct{}
	value store.Value
	asOf  time.Time
	err   error
}

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
// another is forgotten, whichever comes first: the map begins anywhere. The
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
	e = &total{}
	s.cells[c] = e
	return e
}

// keep remembers what a counter was, and, if that is known, of which versions of
// its parts it is the sum. An older value never replaces a newer one.
func (t *totals) keep(c store.Cell, v store.Value, parts []uint64, asOf time.Time) {
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cells[c]
	if e == nil { // It was forgotten, and what was written since asOf with it.
		e = t.entry(s, c)
		e.written = time.Now()
	}
	if e.asOf.After(asOf) {
		return
	}
	e.value, e.asOf = v, asOf
	if parts == nil && !e.tail.Based() {
		return
	}
	if parts == nil && v.Layout == 0 {
		parts = []uint64{v.Version}
	}
	if !e.tail.Rebase(parts, asOf) {
		e.written = time.Now()
	}
}

// get returns what a counter was, if that is not older than some age, and if own
// is set with what this DB has written since.
func (t *totals) get(c store.Cell, now time.Time, age time.Duration, own bool) (v store.Value, from seen, ok bool) {
	if age <= 0 {
		return v, from, false
	}
	s := t.stripe(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.cells[c]
	if e == nil || e.asOf.IsZero() || now.Sub(e.asOf) > age || own && (!e.tail.Based() || !e.asOf.After(e.written)) {
		return v, from, false
	}
	e.used = now
	v, from = e.value, seen{asOf: e.asOf, source: sourceRollup}
	if v.DeadlineMS != 0 && v.DeadlineMS <= now.UnixMilli() { // It would be gone, if nobody had changed it.
		return store.Value{}, from, true
	}
	if tail, stamp := e.tail.Sum(); own && stamp != 0 {
		sum := v.N + tail
		ok = (sum > v.N) == (tail > 0) // else the total lacks what others have taken away
		from.tail, v.N, v.Exists, v.Version = tail, sum, true, spread.Mixed(v.Version, stamp)
		return v, from, ok
	}
	return v, from, true
}

// wrote notes what was changed, before anyone is told.
func (t *totals) wrote(batches []store.Batch, replies []store.Reply) {
	now := time.Now()
	for i := range batches {
		if replies[i].Err != nil {
			continue
		}
		for j := range batches[i].Deltas {
			d, r := &batches[i].Deltas[j], &replies[i].Results[j]
			if d.Op == store.OpGet || r.Outcome != store.Applied {
				continue
			}
			s := t.stripe(d.Cell)
			s.mu.Lock()
			if e := s.cells[d.Cell]; e != nil && !e.count(d, r, now) {
				e.written = now
			}
			s.mu.Unlock()
		}
	}
}

// count takes a change into the tail, and reports false if it is none that can
// be added to a total.
func (e *total) count(d *store.Delta, r *store.Result, now time.Time) bool {
	if d.Op != store.OpAdd || d.Expiry != store.ExpiryKeep || d.Guard.Bound != nil || r.Replayed || r.Version == 0 || e.value.DeadlineMS != 0 {
		return false
	}
	return e.tail.Note(int(r.Shard), r.Version&^spread.OfShards, d.N, now)
}

// disown has the totals that are kept not be served any more as if they counted
// what this DB has written: it did not note that.
func (t *totals) disown() {
	now := time.Now()
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
	if r = e.reading; r != nil && (!own || r.asOf.After(e.written)) {
		return r, false
	}
	e.reading = &reading{done: make(chan struct{}), asOf: now}
	return e.reading, true
}

// made ends a reading.
func (t *totals) made(c store.Cell, r *reading, v store.Value, parts []uint64, err error) {
	s := t.stripe(c)
	s.mu.Lock()
	if e := s.cells[c]; e != nil && e.reading == r {
		e.reading = nil
	}
	s.mu.Unlock()
	if err == nil {
		t.keep(c, v, parts, r.asOf)
	}
	r.value, r.err = v, err
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
	if staleness == 0 || staleness == byPolicy && !rules.keeps() {
		err = db.readStore(ctx, cells, values, asOf, rules, staleness)
	} else {
		from = make([]seen, len(cells))
		err = db.readKept(ctx, cells, values, from, asOf, rules, staleness)
	}
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

// readStore reads cells from the store. It does not wait for long if there is
// something to say without it.
func (db *DB) readStore(ctx context.Context, cells []store.Cell, values []store.Value, asOf time.Time, rules rules, staleness time.Duration) error {
	if !db.totals.all {
		return db.store.Read(ctx, cells, values)
	}
	cancel := context.CancelFunc(func() {})
	if db.allRecalled(cells, nil, nil, rules, staleness) {
		ctx, cancel = context.WithTimeout(ctx, recallWait)
	}
	err := db.store.Read(ctx, cells, values)
	cancel()
	if err == nil {
		for i := range cells {
			db.totals.keep(cells[i], values[i], nil, asOf)
		}
	}
	return err
}

// collect reads counters from the store, for their totals to be kept: if a policy
// has them count what is written here, with the versions of their parts.
func (s *shared) collect(ctx context.Context, cells []store.Cell, values []store.Value) (parts [][]uint64, err error) {
	parts = make([][]uint64, len(cells))
	p := s.policies.Load()
	switch {
	case p == nil || !p.hybrid:
		return parts, s.store.Read(ctx, cells, values)
	case s.spread != nil:
		return parts, s.spread.Collect(ctx, cells, values, parts)
	}
	err = s.store.Read(ctx, cells, values)
	for i := range values {
		parts[i] = []uint64{values[i].Version}
	}
	return parts, err
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
	err := db.readMine(ctx, cells, values, now, ask, mine)
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
	case now.Sub(r.asOf) <= age:
		values[0] = r.value
		if r.asOf.Before(now) { // It may lack what was written before this read.
			*from = seen{asOf: r.asOf, source: sourceRollup}
		}
		return nil
	}
	*from = seen{asOf: time.Now(), source: sourceStore}
	return db.store.Read(ctx, cells, values)
}

// readMine reads the cells that nobody else is reading.
func (db *DB) readMine(ctx context.Context, cells []store.Cell, values []store.Value, now time.Time, ask []int, mine []*reading) error {
	if len(ask) == 0 {
		return nil
	}
	wanted, got := make([]store.Cell, len(ask)), make([]store.Value, len(ask))
	for n, i := range ask {
		wanted[n] = cells[i]
	}
	parts, err := db.collect(ctx, wanted, got)
	for n, i := range ask {
		values[i] = got[n]
		switch {
		case mine[n] != nil:
			db.totals.made(wanted[n], mine[n], got[n], parts[n], err)
		case err == nil && db.totals.all:
			db.totals.keep(wanted[n], got[n], parts[n], now)
		}
	}
	return err
}

// allRecalled reports whether all cells may be as they were because the store
// can't be reached, and if values is not nil fills that in.
func (db *DB) allRecalled(cells []store.Cell, values []store.Value, from []seen, rules rules, staleness time.Duration) bool {
	now := time.Now()
	for i := range cells {
		age := staleness
		if age == byPolicy {
			age = rules.policy(cells[i].Key).Stale
		}
		v, was, ok := db.totals.get(cells[i], now, age, false)
		if !ok {
			return false
		}
		if values != nil {
			values[i], from[i] = v, seen{asOf: was.asOf, source: sourceRecalled}
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
