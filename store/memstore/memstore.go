// Package memstore is the reference store: maps and a mutex.
//
// It exists to say what the contract means in the plainest code, to test
// everything above a store without files, and to serve programs that accept
// that a restart forgets. Every call holds one lock from its first line to its
// last, so the store is linearizable, and nothing is durable: every
// acknowledgement says store.Memory.
package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Options are the settings of a store. The zero value is useful.
type Options struct {
	Limits     store.Limits     // zero fields mean their defaults
	Partitions int              // default 1
	Shared     bool             // several in this process use it at the same time
	Now        func() time.Time // the wall clock; default the machine's

	// Elapsed is the monotonic clock beside Now. Without it Now is believed,
	// however it jumps; without both, the machine's clocks are read.
	Elapsed func() time.Duration
}

// A Store keeps everything in memory. It is safe for concurrent use.
type Store struct {
	limits store.Limits
	shared bool

	mu      sync.Mutex // guards the fields below
	closed  bool
	clock   *clock.Clock
	nowMS   int64                      // the store's time: never goes back
	nowUS   int64                      // the same in microseconds
	first   uint64                     // all versions are above it
	version uint64                     // the last one given to a cell: no cell ever gets it again
	cells   map[store.Cell]store.Value // none is past its deadline
	due     dueHeap
	keys    map[string]int64 // existing cells of each namespace
	tokens  map[tokenID]decide.Token
	decided map[string][]tokenID // tokens of each namespace, oldest first
	refused map[string]int64     // those that remember a refusal
	parts   []partition
	held    map[store.PartCell]store.Content

	writes, reads uint64 // of callers, and of cells
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Auditor    = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
	_ store.Starter    = (*Store)(nil)
	_ store.Clock      = (*Store)(nil)
	_ store.Sizer      = (*Store)(nil)
	_ store.Namespacer = (*Store)(nil)
	_ store.Witness    = (*Store)(nil)
)

// New returns an empty store.
func New(o Options) *Store {
	s := &Store{
		limits:  o.Limits.WithDefaults(),
		clock:   clock.New(o.Now, o.Elapsed),
		shared:  o.Shared,
		cells:   make(map[store.Cell]store.Value),
		due:     dueHeap{place: make(map[store.Cell]int)},
		keys:    make(map[string]int64),
		tokens:  make(map[tokenID]decide.Token),
		decided: make(map[string][]tokenID),
		refused: make(map[string]int64),
		parts:   make([]partition, max(o.Partitions, 1)),
		held:    make(map[store.PartCell]store.Content),
	}
	s.clock.Start(0)
	// The versions of earlier processes are below it, unless one of them made more
	// than a change for each microsecond that it lived.
	s.first = uint64(max(s.clock.NowMS()*1000, 0))
	s.version = s.first
	for i := range s.parts {
		s.parts[i].marks = make(map[store.Writer]*decide.Mark)
		s.parts[i].books = make(decide.Fences)
		s.parts[i].floors = make(decide.Floors)
		s.parts[i].tallies = make(map[epoch]decide.Record)
	}
	return s
}

// Traits says what kind of store this is.
func (s *Store) Traits() store.Traits {
	return store.Traits{
		Name:       "memory",
		Partitions: len(s.parts),
		Durability: store.Memory,
		Limits:     s.limits,
		Layouts:    true,
		Shared:     s.shared,
	}
}

// Read fills values[i] with the value of cells[i], all at one moment.
func (s *Store) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if err := store.CheckRead(cells, values); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.reads += uint64(len(cells))
	for i, c := range cells {
		values[i] = s.cells[c]
	}
	return nil
}

// Scan returns up to n cells of a namespace in key order. It looks at every
// cell of the store.
func (s *Store) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d cells: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var found []store.Entry
	for c, v := range s.cells {
		if c.Namespace == r.Namespace && strings.HasPrefix(c.Key, r.Prefix) && c.Key > r.After {
			found = append(found, store.Entry{Key: c.Key, Value: v})
		}
	}
	slices.SortFunc(found, func(a, b store.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return slices.Clip(found[:min(n, len(found))]), nil
}

// NowMS returns the store's time.
func (s *Store) NowMS(store.Cell) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.NowMS()
}

// Size returns the number of cells of a namespace.
func (s *Store) Size(ctx context.Context, namespace string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.keys[namespace], nil
}

// Namespaces returns up to n namespaces that have a cell, in order.
func (s *Store) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "list of %d namespaces: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var found []string
	for ns, keys := range s.keys {
		if keys > 0 && ns > after { // the store's own is ""
			found = append(found, ns)
		}
	}
	slices.Sort(found)
	return slices.Clip(found[:min(n, len(found))]), nil
}

// Lost reports whether a version is one of another process.
func (s *Store) Lost(ctx context.Context, _ store.Cell, version uint64, _ store.Value) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return version <= s.first || version > s.version, nil
}

// Peek is Read: it never waits. It reports false if Read would return an error.
func (s *Store) Peek(cells []store.Cell, values []store.Value) bool {
	return s.Read(context.Background(), cells, values) == nil
}

// Lookup reports what is known of a token now.
func (s *Store) Lookup(ctx context.Context, c store.Cell, name string) (store.Fate, error) {
	if err := store.CheckCell(c); err != nil {
		return store.Fate{}, err
	}
	if err := store.CheckToken(name); err != nil {
		return store.Fate{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Fate{}, err
	}
	defer s.mu.Unlock()
	return decide.Fate(state{s}, s.at(), c, name), nil
}

// Close refuses all later calls. A second Close returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// enter locks the store and brings it to the present: its time, and what has
// expired by then. Or it says why the call can't be served.
func (s *Store) enter(ctx context.Context) error {
	s.mu.Lock()
	err := ctx.Err()
	if s.closed {
		err = store.ErrClosed
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.nowMS = s.clock.NowMS()
	s.nowUS = s.clock.US()
	s.expire()
	return nil
}
