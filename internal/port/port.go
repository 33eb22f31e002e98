// Package port is the DB as this module's servers use it: a store, the layouts
// of its counters, the policies in force, and the totals that are kept for
// readers. The root package is the product on top of it. It speaks of counters
// and amounts. A port also gives access to the deltas and results of the store,
// for protocols that need them.
package port

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/internal/admission"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/due"
	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/internal/retention"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// A Port is a view of one namespace. All views share the store and are closed
// together. It is safe for concurrent use.
type Port struct {
	*shared
	namespace string
	source    string // the source of its writes, for ledgers
	err       error  // why calls of this view fail, or nil
}

// shared is the state that all views have in common.
type shared struct {
	store    store.Store
	traits   store.Traits
	policies atomic.Pointer[policy.Set] // nil if there are none
	readOnly bool
	near     bool          // an exact read costs no more than reading a kept total
	spread   *spread.Store // the store, if it supports split counters; else nil
	totals   *total.Totals
	books    *books.Books      // the definitions of all namespaces
	gens     generations       // of members
	desk     *admission.Desk   // admits new values to dimensions
	keeping  *retention.Worker // removes data that definitions no longer keep
	due      *due.Worker       // gives back expired reservations
	most     store.Limits      // the port enforces those that stores do not
	err      error             // what is wrong with the options, or nil
	calls    sync.Pool         // of *Call

	texts texts // the namespaces that have keys with text
	turns turns

	limiters limiters
	limits   limitMeters
	shares   shares       // shares of limits, while the store can't be reached
	away     atomic.Int64 // until this time limits do not wait for the store, in Unix nanoseconds

	watchers atomic.Pointer[[]Watcher] // nil if there are none
	watching sync.Mutex                // held while watchers are changed

	issued atomic.Uint64 // this writer and all with lower numbers were issued

	refused      atomic.Uint64
	replayed     atomic.Uint64
	unknown      atomic.Uint64
	full         atomic.Uint64
	remade       atomic.Uint64
	late         atomic.Uint64
	clamped      atomic.Uint64
	tooLate      atomic.Uint64
	others       atomic.Uint64
	once         atomic.Uint64
	sessionsLost atomic.Uint64
	checkups     checkups
	unreachable  atomic.Int64 // partitions that the last call of Health could not reach
	verified     atomic.Pointer[verified]
}

// A verified is the result of the last verify.
type verified struct {
	at    time.Time
	cells int64
	drift int
}

// Options configure a port: see quipu.Options.
type Options struct {
	Policies []policy.Policy
	Limits   store.Limits
	Recall   int
	ReadOnly bool
	Logger   *slog.Logger
	Err      error // what is wrong with the options; every call returns it
}

// New returns a port over a store, in a namespace.
//
// If several servers share the store, New puts a node between: it combines the
// writes of its callers into batches.
func New(s store.Store, namespace string, o Options) *Port {
	if _, ok := s.(*node.Node); !ok && s.Traits().Shared {
		s = node.New(context.Background(), s, node.Options{Logger: o.Logger, ReadOnly: o.ReadOnly})
	}
	sh := &shared{store: s, traits: s.Traits(), readOnly: o.ReadOnly, err: o.Err, books: books.New(s, o.ReadOnly), most: o.Limits.WithDefaults()}
	sh.calls.New = func() any { return new(Call) }
	_, starts := s.(store.Starter) // a store in this process
	sh.near = starts && !sh.traits.Shared
	if sh.err == nil {
		sh.policies.Store(policy.NewSet(o.Policies))
	}
	if sh.traits.Layouts && sh.err == nil {
		sh.spread = spread.New(s, spread.Options{Policy: sh.layoutOf, Book: sh.bookOf, Members: sh.membersOf, Renew: sh.books.Renew, ReadOnly: o.ReadOnly, Logger: o.Logger})
		sh.store, sh.traits = sh.spread, sh.spread.Traits()
	}
	sh.keeping = retention.New(retention.Options{Store: s, Books: sh.books, NowMS: sh.NowMS, Logger: o.Logger})
	if sh.err == nil && !o.ReadOnly {
		sh.keeping.Start()
	}
	sh.due = due.New(due.Options{Store: s, NowMS: sh.NowMS, Logger: o.Logger, Sweep: sh.sweep, Clean: sh.cleanHeld})
	sh.desk = admission.New(sh.traits.Partitions, sh.store)
	sh.totals = total.New(total.Options{
		Store: sh.store, Under: s, Spread: sh.spread, Policies: sh.policies.Load, Left: sh.left,
		Recall: o.Recall, ReadOnly: o.ReadOnly, Near: sh.near,
	})
	if sh.err == nil && !o.ReadOnly {
		sh.due.Start()
	}
	return (&Port{shared: sh, source: "library"}).In(namespace)
}

// In returns a view of another namespace.
func (p *Port) In(namespace string) *Port {
	v := &Port{shared: p.shared, namespace: namespace, source: p.source, err: p.shared.err}
	if v.err == nil {
		v.err = store.CheckNamespace(namespace)
	}
	return v
}

// Via returns a view of the same namespace with another source of writes.
func (p *Port) Via(source string) *Port {
	v := *p
	if v.source = source; v.err == nil {
		v.err = checkSource(source)
	}
	return &v
}

// sourceBytesMax is the maximum length of the name of a source.
const sourceBytesMax = 64

func checkSource(source string) error {
	switch {
	case source == "":
		return store.Errorf(store.KindInvalid, "source is empty")
	case len(source) > sourceBytesMax:
		return store.Errorf(store.KindTooLarge, "source of %d bytes: at most %d", len(source), sourceBytesMax)
	case !utf8.ValidString(source):
		return store.Errorf(store.KindInvalid, "source is not UTF-8")
	}
	return nil
}

// Source returns where the writes of the view come from.
func (p *Port) Source() string { return p.source }

// Err returns the reason why calls of this view fail, or nil.
func (p *Port) Err() error { return p.err }

// Namespace returns the namespace of the view.
func (p *Port) Namespace() string { return p.namespace }

// Cell returns the address of a counter.
func (p *Port) Cell(key string) store.Cell { return store.Cell{Namespace: p.namespace, Key: key} }

// Store returns the store, with its layouts.
func (p *Port) Store() store.Store { return p.store }

// Books returns the definitions of all namespaces.
func (p *Port) Books() *books.Books { return p.books }

// Due returns the worker that gives back expired reservations.
func (p *Port) Due() *due.Worker { return p.due }

// Keeping returns the worker that removes data that is no longer kept.
func (p *Port) Keeping() *retention.Worker { return p.keeping }

// Totals returns the totals that are kept for readers.
func (p *Port) Totals() *total.Totals { return p.totals }

// Traits describes the store.
func (p *Port) Traits() store.Traits { return p.traits }

// ReadOnly reports whether writes are refused with ErrReadOnly.
func (p *Port) ReadOnly() bool { return p.readOnly }

// SetPolicies replaces the policies for all views at once. Calls that begin
// later use the new policies. If a policy is not valid, nothing changes.
func (p *Port) SetPolicies(policies []policy.Policy) error {
	if p.shared.err != nil {
		return p.shared.err
	}
	if err := policy.Check(policies); err != nil {
		return err
	}
	p.policies.Store(policy.NewSet(policies))
	return nil
}

// Policies returns the policies in force, of all namespaces.
func (p *Port) Policies() *policy.Set { return p.policies.Load() }

// Rules returns the present rules of the view's namespace.
func (p *Port) Rules() policy.Rules { return p.rulesIn(p.namespace) }

func (s *shared) rulesIn(namespace string) policy.Rules { return s.policies.Load().In(namespace) }

// SessionLost counts a read that was refused because the store has lost a write
// that its session had seen.
func (p *Port) SessionLost() { p.sessionsLost.Add(1) }

// Verified records the result of a verify.
func (p *Port) Verified(a *store.Audit) {
	p.verified.Store(&verified{at: time.Now(), cells: a.Cells, drift: len(a.Drift)})
}

// Meters calls f for each meter of the port and its store, always in the same
// order. Names are in the style of Prometheus; counters end in _total.
func (p *Port) Meters(f func(name, help string, value float64)) {
	f("quipu_writes_refused_total", "Writes refused: overflow, token, version, limits.", float64(p.refused.Load()))
	f("quipu_writes_replayed_total", "Writes that were repeats and returned the first result.", float64(p.replayed.Load()))
	f("quipu_writes_unknown_total", "Calls that ended before the outcome was known.", float64(p.unknown.Load()))
	f("quipu_writes_full_total", "Writes refused because of --key-quota, --token-quota, --namespace-quota, --user-quota or --hold-quota.", float64(p.full.Load()))
	f("quipu_writes_remade_total", "Writes made anew because definitions had changed, or windows had gone, since they were made.", float64(p.remade.Load()))
	f("quipu_events_late_total", "Events of which a window was not kept any more: the total has them, and the window's view has not.", float64(p.late.Load()))
	f("quipu_events_clamped_total", "Events that were too old, and by their definition were counted as if they were later.", float64(p.clamped.Load()))
	f("quipu_events_refused_late_total", "Events that were too old, and by their definition were refused.", float64(p.tooLate.Load()))
	f("quipu_events_once_total", "Events that were not counted, because their user had been counted in the window before.", float64(p.once.Load()))
	f("quipu_dimensions_other_total", "Values counted as other, because their dimension had as many as it may have.", float64(p.others.Load()))
	f("quipu_sessions_lost_total", "Reads refused because the store had lost what their session had seen.", float64(p.sessionsLost.Load()))
	f("quipu_partitions_unreachable", "Partitions of the store that did not answer when readiness was asked for last.", float64(p.unreachable.Load()))
	v := p.verified.Load()
	if v == nil {
		v = &verified{at: time.Unix(0, 0)}
	}
	f("quipu_verify_drift", "Differences that the last verify has found.", float64(v.drift))
	f("quipu_verify_cells", "Cells that the last verify has looked at.", float64(v.cells))
	f("quipu_verify_timestamp_seconds", "When the last verify ended, in Unix seconds; 0 if there was none since the start.", float64(v.at.UnixMilli())/1000)
	p.limits.meters(f)
	p.totals.Meters(f)
	p.keeping.Meters(f)
	p.due.Meters(f)
	if m, ok := p.store.(store.Meter); ok {
		m.Meters(f)
	}
}

// Close closes all views, and the store after the calls under way.
func (p *Port) Close() error {
	p.due.Close()
	p.keeping.Close()
	p.totals.Close()
	return p.store.Close()
}
