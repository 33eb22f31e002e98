package quipu

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/internal/rollup"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// A DB keeps counters. It is safe for concurrent use.
//
// A DB is a view of one namespace; all views of a DB share its store and are
// closed together.
type DB struct {
	*shared
	namespace string
	err       error // why this view can't be used, or nil
}

// shared is what all views of a DB have in common.
type shared struct {
	store    store.Store
	traits   store.Traits
	policies atomic.Pointer[policy.Set] // nil if there are none
	readOnly bool
	near     bool          // an exact read costs no more than a total that is kept
	spread   *spread.Store // the store, if it knows layouts; else nil
	totals   *total.Totals
	err      error // what is wrong with the options, or nil

	writes  sync.Pool // of *writeCall
	batches sync.Pool // of *batchCall
	reads   sync.Pool // of *readCall

	issued atomic.Uint64 // a writer that was issued, as all below it were

	refused      atomic.Uint64
	replayed     atomic.Uint64
	unknown      atomic.Uint64
	full         atomic.Uint64
	sessionsLost atomic.Uint64
	checkups     checkups
	unreachable  atomic.Int64 // partitions, when Ready was asked last
}

// New returns a DB over a store, in the namespace "default". Closing the DB
// closes the store. If the options are not valid, every call returns the error
// that Options.Validate returns.
//
// A store that others share is used by way of a node, which sums what callers
// have to write at the same moment.
func New(s store.Store, o Options) *DB {
	if _, ok := s.(*node.Node); !ok && s.Traits().Shared {
		s = node.New(context.Background(), s, node.Options{Logger: o.Logger, ReadOnly: o.ReadOnly})
	}
	sh := &shared{
		store:    s,
		traits:   s.Traits(),
		readOnly: o.ReadOnly,
		err:      o.Validate(),
	}
	_, starts := s.(store.Starter) // It answers from this process.
	sh.near = starts && !sh.traits.Shared
	if sh.err == nil {
		sh.policies.Store(policy.NewSet(o.Policies))
	}
	if sh.traits.Layouts && sh.err == nil {
		sh.spread = spread.New(s, spread.Options{Policy: sh.layoutOf, ReadOnly: o.ReadOnly, Logger: o.Logger})
		sh.store, sh.traits = sh.spread, sh.spread.Traits()
	}
	sh.totals = total.New(total.Options{
		Store: sh.store, Under: s, Spread: sh.spread, Policies: sh.policies.Load, Left: sh.left,
		Recall: o.Recall, ReadOnly: o.ReadOnly, Near: sh.near,
	})
	sh.writes.New = newWriteCall
	sh.batches.New = func() any { return new(batchCall) }
	sh.reads.New = func() any { return new(readCall) }
	return sh.in(defaultNamespace)
}

const defaultNamespace = "default"

// In returns a view of another namespace: 1 to 64 bytes of UTF-8 without '/'
// and control characters. If namespace is not that, every call of the view
// returns ErrInvalid or ErrTooLarge.
func (db *DB) In(namespace string) *DB { return db.in(namespace) }

func (s *shared) in(namespace string) *DB {
	db := &DB{shared: s, namespace: namespace, err: s.err}
	if db.err == nil {
		db.err = store.CheckNamespace(namespace)
	}
	return db
}

// Traits says what kind of store the DB is over.
func (db *DB) Traits() store.Traits { return db.traits }

// ReadOnly reports whether writes are refused with ErrReadOnly.
func (db *DB) ReadOnly() bool { return db.readOnly }

// An Audit is the result of Verify.
type Audit = store.Audit

// Verify checks what the DB serves, in all namespaces, against the store's
// independent record of what was applied. It returns ErrUnsupported for a store
// that keeps none. A nil error means that the check was made, not that it found
// no drift.
func (db *DB) Verify(ctx context.Context) (Audit, error) {
	if db.err != nil {
		return Audit{}, db.err
	}
	a, ok := db.store.(store.Auditor)
	if !ok {
		return Audit{}, store.Errorf(store.KindUnsupported, "verify: the %s store keeps no record to check against", db.traits.Name)
	}
	return a.Audit(ctx)
}

// Backup writes a consistent copy of all namespaces to w while the DB serves.
// It returns ErrUnsupported for a store that has its own way to be backed up.
func (db *DB) Backup(ctx context.Context, w io.Writer) error {
	if db.err != nil {
		return db.err
	}
	s, ok := db.store.(store.Snapshotter)
	if !ok {
		return store.Errorf(store.KindUnsupported, "backup: the %s store can't copy itself", db.traits.Name)
	}
	return s.Snapshot(ctx, w)
}

// Meters calls f for each meter of the DB and its store, always in the same
// order. Names are in the style of Prometheus; counters end in _total.
func (db *DB) Meters(f func(name, help string, value float64)) {
	f("quipu_writes_refused_total", "Writes refused: overflow, token, version, limits.", float64(db.refused.Load()))
	f("quipu_writes_replayed_total", "Writes that were repeats and returned the first result.", float64(db.replayed.Load()))
	f("quipu_writes_unknown_total", "Calls that ended before the outcome was known.", float64(db.unknown.Load()))
	f("quipu_writes_full_total", "Writes refused because of --key-quota, --token-quota or --namespace-quota.", float64(db.full.Load()))
	f("quipu_sessions_lost_total", "Reads refused because the store had lost what their session had seen.", float64(db.sessionsLost.Load()))
	f("quipu_partitions_unreachable", "Partitions of the store that did not answer when readiness was asked for last.", float64(db.unreachable.Load()))
	db.totals.Meters(f)
	if m, ok := db.store.(store.Meter); ok {
		m.Meters(f)
	}
}

// Close closes the DB, all its views, and the store after the calls under way.
// Later calls return ErrClosed; a second Close returns nil.
func (db *DB) Close() error {
	db.totals.Close()
	return db.store.Close()
}

// apply gives batches to the store, those of each partition by themselves.
func (s *shared) apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if s.readOnly && changes(batches) {
		return store.ErrReadOnly
	}
	s.bind(batches)
	if len(batches) > 1 && s.traits.Partitions > 1 {
		return s.applyApart(ctx, batches, replies)
	}
	began := s.totals.Begin()
	err := s.store.Apply(ctx, batches, replies)
	s.ended(batches, replies, began, err)
	return err
}

// applyApart gives the batches of each partition to the store by themselves, so that
// what happens to one does not concern the others.
func (s *shared) applyApart(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	return store.Apart(batches, replies, func(some []store.Batch, told []store.Reply) error {
		began := s.totals.Begin()
		err := s.store.Apply(ctx, some, told)
		s.ended(some, told, began, err)
		return err
	})
}

// ended takes notice of a call of the store, and of what became of its deltas,
// before anyone is told.
func (s *shared) ended(batches []store.Batch, replies []store.Reply, began rollup.Moment, err error) {
	if err != nil {
		if errors.Is(err, store.ErrUnknown) {
			s.unknown.Add(1)
		}
		return
	}
	s.totals.End(batches, replies, began)
	for i := range replies {
		if err := replies[i].Err; err != nil && errors.Is(err, store.ErrUnknown) {
			s.unknown.Add(1)
		}
		for j := range replies[i].Results {
			s.count(batches[i].Deltas[j].Op, &replies[i].Results[j], replies[i].Replayed)
		}
	}
}

// count counts what is not plainly applied. Want of room is counted apart: that is
// for operators to make, and other refusals are their callers' affair. A condition
// that was not met is an answer, and so is that a token is settled to who settles it.
func (s *shared) count(op store.Op, r *store.Result, replayed bool) {
	switch {
	case r.Outcome == store.Applied && !replayed && !r.Replayed, r.Outcome == store.Unmet, op == store.OpSettle:
	case r.Outcome == store.Applied:
		s.replayed.Add(1)
	case r.Outcome == store.Unknown:
		s.unknown.Add(1)
	case r.Outcome == store.Unavailable:
	case r.Outcome == store.Full:
		s.full.Add(1)
		s.refused.Add(1)
	default:
		s.refused.Add(1)
	}
}

// layoutOf returns how a counter is laid out.
func (s *shared) layoutOf(c store.Cell) spread.Policy {
	p := s.rulesIn(c.Namespace).Policy(c.Key)
	limits := hot.Limits{Shards: p.Shards, Max: p.MaxShards, CoolDown: p.CoolDown}
	if !p.Splits() {
		limits.Max = 1
	}
	return spread.Policy{Limits: limits, Spread: hot.Spread(p.Spread)}
}

// changes reports whether batches may change anything.
func changes(batches []store.Batch) bool {
	return slices.ContainsFunc(batches, func(b store.Batch) bool { return b.Changes() })
}
