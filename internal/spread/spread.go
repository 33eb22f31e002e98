// Package spread splits hot counters over several cells.
//
// A Store is a store.Store on top of one that supports layouts. Its callers see
// each counter as one cell. Inside, a hot counter has shards, which take adds
// that ask for nothing back. Reads add the shards up. A write that needs the
// whole value folds the counter first: it merges the shards into one cell. The
// Store finds the hot counters by itself.
//
// Each operation (a split, a fold, a read, a write) is a step machine that
// returns the next calls of the store and does no I/O; driver.go makes the
// calls. DESIGN.md has the machines as tables, and docs/design/0013-layout.md
// says why they are correct.
package spread

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A Policy is how one counter is laid out.
type Policy struct {
	hot.Limits
	Spread hot.Spread
}

// Options are the settings of a Store.
type Options struct {
	// Policy returns that of a counter. It is called from any goroutine.
	Policy func(store.Cell) Policy

	// Book returns the book of definitions of a counter's namespace, 0 if it has none;
	// and, if the counter has views, the event of a change that they do not count, which
	// keeps the book and what the counter was before it. It is called from any
	// goroutine, often, and must not wait. By default nothing has definitions.
	Book func(store.Cell) (id int64, touch *store.Event)

	// Renew has the book of a namespace read again: the store has refused the one with
	// this id. By default nobody does.
	Renew func(ctx context.Context, namespace string, id int64) error

	// Members returns what the definitions say of the users of a counter. It is called from
	// any goroutine, often, and must not wait. By default counters have no users.
	Members func(store.Cell) Members

	// Rules say when a counter is split; the zero value is what suits the store.
	Rules hot.Rules

	// ReadOnly neither splits nor folds.
	ReadOnly bool

	// Every is how often the hottest counters are looked at; default 100 ms.
	Every time.Duration

	// Now is the time; default time.Now.
	Now func() time.Time

	Logger *slog.Logger
}

// A Store is a store whose counters may be laid out over several cells. It is
// safe for concurrent use.
type Store struct {
	under   store.Store
	starter store.Starter // under, or nil if it is none or is shared
	traits  store.Traits
	options Options
	server  uint64 // tells this one from others, for choosing shards
	core

	// A caller reads it when it starts, so that none is under way when a counter's home
	// is split: see Start.
	splitting sync.RWMutex

	folding sync.Mutex // guards the two below
	folds   map[store.Cell]*folding
	closed  bool           // no more of them
	folders sync.WaitGroup // those under way

	heating sync.Mutex // guards the two below
	judges  *hot.Judges
	noted   int         // calls that were
	turn    atomic.Bool // the next call of the embedded store is timed

	ctx     context.Context // of what is done in the background
	cancel  context.CancelFunc
	done    chan struct{} // closed when that has ended
	loaded  atomic.Bool   // known has what was split when the store was opened
	closing sync.Once
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Auditor     = (*Store)(nil)
	_ store.Meter       = (*Store)(nil)
	_ store.Namespacer  = (*Store)(nil)
	_ store.Clock       = (*Store)(nil)
	_ store.Prober      = (*Store)(nil)
	_ store.Sizer       = (*Store)(nil)
	_ store.Snapshotter = (*Store)(nil)
	_ store.Adder       = (*Store)(nil)
	_ store.Witness     = (*Store)(nil)
)

// entriesMax is how many counters' heat is known: some 200 KiB, and a little more
// than half a MiB if their keys are as long as can be.
const entriesMax = 512

// New returns a Store around one that knows layouts, which it closes when it is
// closed.
func New(under store.Store, o Options) *Store {
	if o.Every == 0 {
		o.Every = 100 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		under: under, traits: under.Traits(), options: o, server: rand.Uint64(),
		folds: make(map[store.Cell]*folding),
		done:  make(chan struct{}),
	}
	if !s.traits.Shared {
		s.starter, _ = under.(store.Starter)
	}
	s.partitions, s.readOnly, s.sole, s.book = s.traits.Partitions, o.ReadOnly, s.starter != nil, o.Book
	rules := o.Rules
	if rules == (hot.Rules{}) {
		rules = rulesFor(s.traits)
	}
	s.judges = hot.NewJudges(rules, s.limits, entriesMax)
	s.traits.Layouts = false
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run()
	return s
}

// viewedMax is how many shards a counter with views has at most in a store of several
// partitions: whoever reads a view asks all that there ever were.
const viewedMax = 8

// limits returns how a counter may be laid out.
func (s *Store) limits(c store.Cell) hot.Limits {
	l := s.options.Policy(c).Limits
	if s.partitions > 1 && s.defined(c).touch != nil {
		l.Max = min(l.Max, viewedMax)
	}
	return l
}

// rulesFor returns when a counter is split in a store. One partition decides by
// itself who waits for whom, and a store that nobody else uses never says that
// anyone does; several are several machines, over which a counter can be spread. A
// write takes up to two trips to the store, since it may have to wait for the one
// before, and others are waited for in one of them only.
func rulesFor(t store.Traits) hot.Rules {
	r := hot.Rules{Waiting: 0.15, Least: 100}
	if t.Partitions > 1 {
		r.Calls = 10_000
	}
	return r
}

// Traits are those of the store under it, but that layouts are its own affair.
func (s *Store) Traits() store.Traits { return s.traits }

// ReadParts reads parts of counters and of their shards: they stay where they were
// counted.
func (s *Store) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	return s.under.ReadParts(ctx, parts, contents)
}

// ScanParts returns up to n parts of a range of rows in their order.
func (s *Store) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	return s.under.ScanParts(ctx, r, n)
}

// Probe finds out whether a partition of the store under it takes writes.
func (s *Store) Probe(ctx context.Context, partition int) error {
	return store.Probe(ctx, s.under, partition)
}

// Audit checks the store under it.
func (s *Store) Audit(ctx context.Context) (store.Audit, error) {
	if a, ok := s.under.(store.Auditor); ok {
		return a.Audit(ctx)
	}
	return store.Audit{}, s.unsupported("verify", "keeps no record to check against")
}

// NowMS returns the time of the store under this one, as far as that tells it.
func (s *Store) NowMS(c store.Cell) int64 {
	if u, ok := s.under.(store.Clock); ok {
		return u.NowMS(c)
	}
	return 0
}

// Size returns the number of cells of a namespace.
func (s *Store) Size(ctx context.Context, namespace string) (int64, error) {
	if u, ok := s.under.(store.Sizer); ok {
		return u.Size(ctx, namespace)
	}
	return 0, s.unsupported("size", "can't count its keys")
}

// Namespaces returns up to n namespaces that have a cell, in order.
func (s *Store) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if u, ok := s.under.(store.Namespacer); ok {
		return u.Namespaces(ctx, after, n)
	}
	return nil, s.unsupported("namespaces", "can't list them")
}

// Snapshot writes a consistent copy of the store under it, shards and all.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	if u, ok := s.under.(store.Snapshotter); ok {
		return u.Snapshot(ctx, w)
	}
	return s.unsupported("backup", "can't copy itself")
}

func (s *Store) unsupported(what, why string) error {
	return store.Errorf(store.KindUnsupported, "%s: the %s store %s", what, s.traits.Name, why)
}

// Close ends what is done in the background and closes the store. What is split
// stays so. A second Close returns nil.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.cancel()
		<-s.done
		s.folding.Lock()
		s.closed = true
		s.folding.Unlock()
		s.folders.Wait()
	})
	return s.under.Close()
}
