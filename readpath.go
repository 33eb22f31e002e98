package quipu

import (
	"context"
	"errors"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// The sources of a Count.
const (
	sourceStore    = "store"
	sourceRollup   = "rollup"
	sourceRecalled = "recalled"
	sourceReplica  = "replica"
)

// seen is where a value came from, as of when it is what it is, and what was added
// to it since.
type seen struct {
	asOf     time.Time
	source   string
	tail     int64
	unproved bool // the counter need not have been that at any moment
	missing  int  // how many of its cells are not in it
}

// count is what a reader is told of a value.
func count(key string, v store.Value, from seen) Count {
	if from.source == sourceStore && v.AsOfMS != 0 {
		from.asOf, from.source = since(from.asOf, v), sourceReplica
	}
	c := Count{
		Key: key, Value: v.N, Lower: v.N, Upper: v.N, Bounded: true, Complete: from.missing == 0, Exists: v.Exists,
		AsOf: from.asOf, Source: from.source, Shards: hot.Word(v.Layout).Shards(), Version: v.Version,
	}
	if v.DeadlineMS != 0 {
		c.ExpiresAt = time.UnixMilli(v.DeadlineMS)
	}
	if from.source == sourceStore {
		c.Exact = !from.unproved
	} else {
		c.Staleness = time.Since(from.asOf)
		c.Lower, c.Upper = v.N-max(0, from.tail), v.N-min(0, from.tail)
	}
	if from.unproved {
		c.Bounded, c.Lower, c.Upper = false, 0, 0
	}
	return c
}

// since returns as of when a value is that the store was asked for at some time.
func since(asked time.Time, v store.Value) time.Time {
	if v.AsOfMS == 0 {
		return asked
	}
	if at := time.UnixMilli(v.AsOfMS); at.Before(asked) {
		return at
	}
	return asked
}

// tooOld returns an error if a value is from a replica that may lack what the reader
// needs.
func (t *readTerms) tooOld(c *Count) error {
	if c.Source != sourceReplica || t.oldest < 0 || t.oldest > 0 && c.Staleness <= t.oldest {
		return nil
	}
	need := "an exact value"
	if t.oldest > 0 {
		need = "one as young as " + t.oldest.String()
	}
	return store.Errorf(store.KindUnavailable, "this server reads a replica that may lack the writes of the last %v, so it can't tell %s; ask a server that writes",
		c.Staleness.Round(time.Millisecond), need)
}

// unreachable reports whether an error of a read means that the store could not
// be asked.
func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// A keptRead is a read of counters of which some may be as they were.
type keptRead struct {
	cells     []store.Cell
	values    []store.Value
	room      []seen        // as many, for from; nil if they are to be made
	from      []seen        // where values came from; nil if all are from the store as of when the read began
	began     rollup.Moment // all that was told before has a tick up to this one
	rules     policy.Rules
	staleness time.Duration
}

// read reads cells of the view, and says where each value came from. It is from
// the store, or, where the caller's staleness or the counter's policy allows,
// what was read earlier. From is nil if all are from the store as of asOf.
func (db *DB) read(ctx context.Context, cells []store.Cell, values []store.Value, staleness time.Duration) (asOf time.Time, from []seen, err error) {
	k := keptRead{cells: cells, values: values, staleness: staleness}
	err = db.readInto(ctx, &k)
	return k.began.Time, k.from, err
}

// readInto is read with everything in one place.
func (db *DB) readInto(ctx context.Context, k *keptRead) error {
	k.began, k.rules = rollup.Moment{Time: time.Now(), Tick: db.totals.ticks.Load()}, db.rules()
	partial := db.takesParts(k)
	within, cancel := ctx, context.CancelFunc(func() {})
	if partial || db.totals.all && db.recallAll(k, false) {
		within, cancel = context.WithTimeout(ctx, recallWait)
	}
	err := db.readWhole(within, k)
	cancel()
	if err == nil || ctx.Err() == context.Canceled || !unreachable(err) {
		return err
	}
	k.setFrom()
	if db.recallAll(k, true) {
		db.totals.recalled.Add(uint64(len(k.cells)))
		return nil
	}
	if partial && db.readParts(ctx, k) {
		db.totals.partial.Add(uint64(len(k.cells)))
		return nil
	}
	if within.Err() == context.DeadlineExceeded && ctx.Err() == nil { // It may only be slow, and there is time left.
		return db.readWhole(ctx, k)
	}
	return err
}

// terms returns how old a value of a counter may be, whether it must count what
// this DB has written, and how often it is refreshed if the policy keeps it.
func terms(rules policy.Rules, key string, staleness time.Duration) (age time.Duration, own bool, every time.Duration) {
	p := rules.Policy(key)
	if p.Timing != FanIn {
		own, every = p.Timing == Hybrid, p.Interval
	}
	if age = staleness; age == byPolicy {
		age = 2 * every // One that is refreshed in time is never as old.
	}
	return age, own, every
}

func (k *keptRead) terms(i int) (age time.Duration, own bool, every time.Duration) {
	return terms(k.rules, k.cells[i].Key, k.staleness)
}

// setFrom makes room to say where each value came from.
func (k *keptRead) setFrom() {
	if k.from = k.room; k.from == nil {
		k.from = make([]seen, len(k.cells))
	}
}

// readWhole reads whole counters, from the store or as they were. That a value may
// be old is an allowance: where an exact one is as cheap, it is exact.
func (db *DB) readWhole(ctx context.Context, k *keptRead) error {
	if k.from = nil; db.near || k.staleness == 0 || k.staleness == byPolicy && !k.rules.Keeps() {
		return db.readStore(ctx, k.cells, k.values)
	}
	k.setFrom()
	return db.readKept(ctx, k)
}

// recallAll reports whether all cells may be as they were because the store can't
// be reached, and with fill fills that in. Who asks for none gets that.
func (db *DB) recallAll(k *keptRead, fill bool) bool {
	now := time.Now()
	for i := range k.cells {
		age, p := k.staleness, k.rules.Policy(k.cells[i].Key)
		if age == byPolicy {
			age = p.Stale
		}
		v, was, ok := db.totals.recall(k.cells[i], now, age, p.Timing == Hybrid)
		if !ok {
			return false
		}
		if fill {
			k.values[i], k.from[i] = v, was
		}
	}
	return true
}

// takesParts reports whether what can be read of the counters will do, by the
// policies of all.
func (db *DB) takesParts(k *keptRead) bool {
	if db.spread == nil || k.staleness != byPolicy || len(k.rules) == 0 {
		return false
	}
	for i := range k.cells {
		if !k.rules.Policy(k.cells[i].Key).Partial {
			return false
		}
	}
	return true
}

// readParts reads what can be read of counters, and reports whether there is
// something of all of them. The parts of one are each read at another moment, so
// their sum proves nothing, also if none is missing.
func (db *DB) readParts(ctx context.Context, k *keptRead) bool {
	for i, c := range k.cells {
		k.from[i] = seen{asOf: time.Now(), source: sourceStore, unproved: true}
		var err error
		if k.values[i], k.from[i].missing, err = db.spread.ReadPart(ctx, c); err != nil {
			return false
		}
	}
	return true
}

// readStore reads cells from the store. Where totals are kept of them, no reader
// is told less from then on.
func (db *DB) readStore(ctx context.Context, cells []store.Cell, values []store.Value) error {
	t := db.totals
	if !t.all && !t.any.Load() { // Fast path: TestAllocs.
		err := db.store.Read(ctx, cells, values)
		t.outdo(cells) // if the first was begun meanwhile
		return err
	}
	asked := t.now()
	if err := db.store.Read(ctx, cells, values); err != nil {
		return err
	}
	got := t.tick()
	for i := range cells {
		at := rollup.Moment{Time: since(asked.Time, values[i]), Tick: asked.Tick}
		t.keep(cells[i], snapshot{value: values[i], asked: at, got: got, shown: true})
	}
	return nil
}

// collect reads counters from the store, for their totals to be kept: if a policy
// has them count what is written here, with the versions of their parts.
func (s *shared) collect(ctx context.Context, cells []store.Cell) ([]snapshot, error) {
	p := s.policies.Load()
	hybrid := p != nil && p.Hybrid
	if hybrid {
		s.totals.tails.Store(true) // before it is asked for: see beginWrite
	}
	asked := s.totals.now()
	values, parts := make([]store.Value, len(cells)), make([][]uint64, len(cells))
	var err error
	if hybrid && s.spread != nil {
		err = s.spread.Collect(ctx, cells, values, parts)
	} else {
		err = s.store.Read(ctx, cells, values)
	}
	for i := range parts {
		if hybrid && s.spread == nil {
			parts[i] = []uint64{values[i].Version}
		}
	}
	got := s.totals.tick()
	snapshots := make([]snapshot, len(cells))
	for i := range snapshots {
		at := rollup.Moment{Time: since(asked.Time, values[i]), Tick: asked.Tick}
		snapshots[i] = snapshot{value: values[i], parts: parts[i], asked: at, got: got}
	}
	return snapshots, err
}

// readKept reads cells of which some may be as they were. Those that several ask
// for at once are read once.
func (db *DB) readKept(ctx context.Context, k *keptRead) error {
	if db.ctx.Err() != nil {
		return store.ErrClosed
	}
	t := db.totals
	var exact, late []int // what must be asked of the store, and what may be as another reader is told
	for i, c := range k.cells {
		age, own, every := k.terms(i)
		rolling := every > 0 && db.roll(c, schedule{every, own}, k.began.Time)
		var ok bool
		if k.values[i], k.from[i], ok = t.get(c, k.began.Time, age, own); ok {
			t.cached.Add(1)
			continue
		}
		k.from[i] = seen{asOf: k.began.Time, source: sourceStore}
		// Who wants what was written here may not be served by a total that is in time.
		if rolling && !own && k.staleness == byPolicy {
			t.fallbacks.Add(1)
		}
		if age == 0 {
			exact = append(exact, i)
		} else {
			late = append(late, i)
		}
	}
	if err := ctx.Err(); err != nil && len(late) > 0 {
		return err // Nobody would wait for what is begun.
	}
	readings := db.join(ctx, k, late, len(k.cells) > 1)
	if err := db.readSome(ctx, k, exact); err != nil {
		return err
	}
	late, err := db.await(ctx, k, late, readings)
	if err == nil && len(late) > 0 { // From here on, all that is waited for began after this read.
		_, err = db.await(ctx, k, late, db.join(ctx, k, late, false))
	}
	return err
}

// readSome reads some of the cells from the store.
func (db *DB) readSome(ctx context.Context, k *keptRead, some []int) error {
	if len(some) == 0 {
		return nil
	}
	cells, values := make([]store.Cell, len(some)), make([]store.Value, len(some))
	for n, i := range some {
		cells[n] = k.cells[i]
	}
	err := db.readStore(ctx, cells, values)
	for n, i := range some {
		k.values[i] = values[n]
	}
	return err
}
