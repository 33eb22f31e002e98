package total

import (
	"context"
	"errors"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// The sources of a value.
const (
	SourceStore    = "store"
	SourceRollup   = "rollup"
	SourceRecalled = "recalled"
	SourceReplica  = "replica"
)

// Seen is where a value came from, as of when it is what it is, and what was added
// to it since.
type Seen struct {
	AsOf     time.Time
	Source   string
	Tail     int64
	Unproved bool // the counter need not have been that at any moment
	Missing  int  // how many of its cells are not in it
}

// AsOf returns as of when a value is that the store was asked for at some time.
func AsOf(asked time.Time, v store.Value) time.Time {
	if v.AsOfMS == 0 {
		return asked
	}
	if at := time.UnixMilli(v.AsOfMS); at.Before(asked) {
		return at
	}
	return asked
}

// unreachable reports whether an error of a read means that the store could not
// be asked.
func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// ByPolicy is the staleness of a caller who leaves it to the policy.
const ByPolicy time.Duration = -1

// A Read is a read of counters of one namespace, of which some may be as they were.
type Read struct {
	Cells     []store.Cell
	Values    []store.Value
	Room      []Seen // as many, for From; nil if they are to be made
	Rules     policy.Rules
	Staleness time.Duration // how old a value may be, or ByPolicy

	// The outcome: where the values came from, nil if all are from the store as
	// of when the read began; and when that was. All that was told before has a tick up
	// to that one.
	From  []Seen
	Began rollup.Moment
}

// Read reads counters, and says where each value came from: from the store, or,
// where the caller's staleness or the counter's policy allows, what was read earlier.
func (ts *Totals) Read(ctx context.Context, k *Read) error {
	k.Began = rollup.Moment{Time: time.Now(), Tick: ts.memory.ticks.Load()}
	partial := ts.takesParts(k)
	within, cancel := ctx, context.CancelFunc(func() {})
	if partial || ts.memory.all && ts.recallAll(k, false) {
		within, cancel = context.WithTimeout(ctx, recallWait)
	}
	err := ts.readWhole(within, k)
	cancel()
	if err == nil || ctx.Err() == context.Canceled || !unreachable(err) {
		return err
	}
	k.setFrom()
	if ts.recallAll(k, true) {
		ts.memory.recalled.Add(uint64(len(k.Cells)))
		return nil
	}
	if partial && ts.readParts(ctx, k) {
		ts.memory.partial.Add(uint64(len(k.Cells)))
		return nil
	}
	if within.Err() == context.DeadlineExceeded && ctx.Err() == nil { // It may only be slow, and there is time left.
		return ts.readWhole(ctx, k)
	}
	return err
}

// terms returns how old a value of a counter may be, whether it must count what
// this DB has written, and how often it is refreshed if the policy keeps it.
func terms(rules policy.Rules, key string, staleness time.Duration) (age time.Duration, own bool, every time.Duration) {
	p := rules.Policy(key)
	if p.Timing != policy.FanIn {
		own, every = p.Timing == policy.Hybrid, p.Interval
	}
	if age = staleness; age == ByPolicy {
		age = 2 * every // One that is refreshed in time is never as old.
	}
	return age, own, every
}

func (k *Read) terms(i int) (age time.Duration, own bool, every time.Duration) {
	return terms(k.Rules, k.Cells[i].Key, k.Staleness)
}

// setFrom makes room to say where each value came from.
func (k *Read) setFrom() {
	if k.From = k.Room; k.From == nil {
		k.From = make([]Seen, len(k.Cells))
	}
}

// readWhole reads whole counters, from the store or as they were. That a value may
// be old is an allowance: where an exact one is as cheap, it is exact.
func (ts *Totals) readWhole(ctx context.Context, k *Read) error {
	if k.From = nil; ts.near || k.Staleness == 0 || k.Staleness == ByPolicy && !k.Rules.Keeps() {
		return ts.readStore(ctx, k.Cells, k.Values)
	}
	k.setFrom()
	return ts.readKept(ctx, k)
}

// recallAll reports whether all cells may be as they were because the store can't
// be reached, and with fill fills that in. Who asks for none gets that.
func (ts *Totals) recallAll(k *Read, fill bool) bool {
	now := time.Now()
	for i := range k.Cells {
		age, p := k.Staleness, k.Rules.Policy(k.Cells[i].Key)
		if age == ByPolicy {
			age = p.Stale
		}
		v, was, ok := ts.memory.recall(k.Cells[i], now, age, p.Timing == policy.Hybrid)
		if !ok {
			return false
		}
		if fill {
			k.Values[i], k.From[i] = v, was
		}
	}
	return true
}

// takesParts reports whether what can be read of the counters will do, by the
// policies of all.
func (ts *Totals) takesParts(k *Read) bool {
	if ts.spread == nil || k.Staleness != ByPolicy || len(k.Rules) == 0 {
		return false
	}
	for i := range k.Cells {
		if !k.Rules.Policy(k.Cells[i].Key).Partial {
			return false
		}
	}
	return true
}

// readParts reads what can be read of counters, and reports whether there is
// something of all of them. The parts of one are each read at another moment, so
// their sum proves nothing, also if none is missing.
func (ts *Totals) readParts(ctx context.Context, k *Read) bool {
	for i, c := range k.Cells {
		k.From[i] = Seen{AsOf: time.Now(), Source: SourceStore, Unproved: true}
		var err error
		if k.Values[i], k.From[i].Missing, err = ts.spread.ReadPart(ctx, c); err != nil {
			return false
		}
	}
	return true
}

// readStore reads cells from the store. Where totals are kept of them, no reader
// is told less from then on.
func (ts *Totals) readStore(ctx context.Context, cells []store.Cell, values []store.Value) error {
	t := ts.memory
	if !t.all && !t.any.Load() { // Fast path: TestAllocs.
		err := ts.store.Read(ctx, cells, values)
		t.outdo(cells) // if the first was begun meanwhile
		return err
	}
	asked := t.now()
	if err := ts.store.Read(ctx, cells, values); err != nil {
		return err
	}
	got := t.tick()
	for i := range cells {
		at := rollup.Moment{Time: AsOf(asked.Time, values[i]), Tick: asked.Tick}
		t.keep(cells[i], snapshot{value: values[i], asked: at, got: got, shown: true})
	}
	return nil
}

// collect reads counters from the store, for their totals to be kept: if a policy
// has them count what is written here, with the versions of their parts.
func (ts *Totals) collect(ctx context.Context, cells []store.Cell) ([]snapshot, error) {
	p := ts.policies()
	hybrid := p != nil && p.Hybrid
	if hybrid {
		ts.memory.tails.Store(true) // before it is asked for: see beginWrite
	}
	asked := ts.memory.now()
	values, parts := make([]store.Value, len(cells)), make([][]uint64, len(cells))
	var err error
	if hybrid && ts.spread != nil {
		err = ts.spread.Collect(ctx, cells, values, parts)
	} else {
		err = ts.store.Read(ctx, cells, values)
	}
	for i := range parts {
		if hybrid && ts.spread == nil {
			parts[i] = []uint64{values[i].Version}
		}
	}
	got := ts.memory.tick()
	snapshots := make([]snapshot, len(cells))
	for i := range snapshots {
		at := rollup.Moment{Time: AsOf(asked.Time, values[i]), Tick: asked.Tick}
		snapshots[i] = snapshot{value: values[i], parts: parts[i], asked: at, got: got}
	}
	return snapshots, err
}

// readKept reads cells of which some may be as they were. Those that several ask
// for at once are read once.
func (ts *Totals) readKept(ctx context.Context, k *Read) error {
	if ts.ctx.Err() != nil {
		return store.ErrClosed
	}
	t := ts.memory
	var exact, late []int // what must be asked of the store, and what may be as another reader is told
	for i, c := range k.Cells {
		age, own, every := k.terms(i)
		rolling := every > 0 && ts.roll(c, schedule{every, own}, k.Began.Time)
		var ok bool
		if k.Values[i], k.From[i], ok = t.get(c, k.Began.Time, age, own); ok {
			t.cached.Add(1)
			continue
		}
		k.From[i] = Seen{AsOf: k.Began.Time, Source: SourceStore}
		// A total that is in time does not serve a reader who wants what was written here.
		if rolling && !own && k.Staleness == ByPolicy {
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
	readings := ts.join(ctx, k, late, len(k.Cells) > 1)
	if err := ts.readSome(ctx, k, exact); err != nil {
		return err
	}
	late, err := ts.await(ctx, k, late, readings)
	if err == nil && len(late) > 0 { // From here on, all that is waited for began after this read.
		_, err = ts.await(ctx, k, late, ts.join(ctx, k, late, false))
	}
	return err
}

// readSome reads some of the cells from the store.
func (ts *Totals) readSome(ctx context.Context, k *Read, some []int) error {
	if len(some) == 0 {
		return nil
	}
	cells, values := make([]store.Cell, len(some)), make([]store.Value, len(some))
	for n, i := range some {
		cells[n] = k.Cells[i]
	}
	err := ts.readStore(ctx, cells, values)
	for n, i := range some {
		k.Values[i] = values[n]
	}
	return err
}
