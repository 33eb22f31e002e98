// Package books keeps the definitions of namespaces in the store, for all
// servers that use it. It reads a namespace's book, publishes the next one, and
// knows the views of its keys.
//
// A book is stored as pages of a cell in the store's own namespace. One step
// writes them, on condition of the version that they follow, so two servers
// never publish two books with one number. Then the fence of every partition is
// raised to that number: from that moment the partition refuses writes that
// were made under a lower one. The book is in force when all fences are raised,
// and that time is recorded once. Any server that finds a book that is not in
// force can finish the job, because each step may be repeated.
package books

import (
	"context"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// Books are those of all namespaces of a store. They are safe for concurrent use.
type Books struct {
	store    store.Store
	readOnly bool
	slot     int                               // of the lanes that this server writes
	known    atomic.Pointer[map[string]*Known] // of namespaces that have one; nil if none is known

	mu      sync.Mutex // guards shelves
	shelves map[string]*shelf
}

// A shelf is what is known of one namespace.
type shelf struct {
	busy    chan struct{} // has a value while somebody reads or writes the book; guards the fields below
	known   *Known
	at      time.Time // when it was read last
	version uint64    // of the cell then
}

// A Known book is one that was read, made ready. It does not change.
type Known struct {
	Namespace string
	Book      *book.Book   // with id 0 if the namespace has none
	InForce   int64        // since when all partitions count by it, in Unix milliseconds; 0 if not yet
	Fence     []store.Book // for batches; nil if the namespace has no book

	keys    []*Keys        // of each entry, nil if it has no views
	bounds  []*store.Bound // of each entry, nil if it has none; nil if no entry has one
	sharded bool           // users of some counters may be laid over several cells
}

// Keys are those of one entry of a book.
type Keys struct {
	*view.Views
	Entry *book.Entry
	Plans view.Plans
}

// fresh is for how long a book that was read is good enough for reads. Writes are told by
// the store when theirs is outdated.
const fresh = time.Second

// New returns the books of a store.
func New(s store.Store, readOnly bool) *Books {
	b := &Books{store: s, readOnly: readOnly, shelves: make(map[string]*shelf)}
	if s.Traits().Shared { // Servers that write one lane wait for each other.
		b.slot = rand.IntN(store.LaneSlots)
	}
	return b
}

// Any reports whether a namespace is known to have a book.
func (b *Books) Any() bool { return b.known.Load() != nil }

// Known returns the book of a namespace as it is known here, without asking the store; nil
// if none is known.
func (b *Books) Known(namespace string) *Known {
	if all := b.known.Load(); all != nil {
		return (*all)[namespace]
	}
	return nil
}

// ID returns the id of the book of a namespace as it is known here; 0 is none.
func (b *Books) ID(namespace string) int64 { return b.Known(namespace).ID() }

// ID returns the id of the book; that of no book is 0.
func (k *Known) ID() int64 {
	if k == nil {
		return 0
	}
	return int64(k.Book.ID)
}

// Of returns the keys that a key belongs to, or nil if it has no views.
func (k *Known) Of(key string) *Keys {
	if k == nil {
		return nil
	}
	if i := k.Book.Index(key); i >= 0 {
		return k.keys[i]
	}
	return nil
}

// Defines returns the entry of the book that a key belongs to, or nil if it has none.
func (k *Known) Defines(key string) *book.Entry {
	if k == nil {
		return nil
	}
	return k.Book.Of(key)
}

// Holds reports whether counters of the namespace may have reservations.
func (k *Known) Holds() bool { return k != nil && k.Book.Holds }

// Bound returns where a counter must stay, which is shared and must not be changed, or nil
// if that is anywhere.
func (k *Known) Bound(key string) *store.Bound {
	if k == nil || k.bounds == nil {
		return nil
	}
	if i := k.Book.Index(key); i >= 0 {
		return k.bounds[i]
	}
	return nil
}

// Whole reports whether one cell decides what is written to a counter, by its definition: as
// a part of it, none can.
func (k *Known) Whole(key string) bool {
	if k == nil {
		return false
	}
	e := k.Book.Of(key)
	if e == nil {
		return false
	}
	d := &e.Definition
	return d.Bound() != nil || len(d.Choices) > 0 || d.Once != (definition.Once{}) || d.Reservations != nil
}

// Shards returns over how many cells the users of a counter are laid if it has none yet, and
// whether those that it has may be laid over several, by this book or by an earlier one.
func (k *Known) Shards(key string) (shards int, may bool) {
	if k == nil || !k.sharded || !k.Book.Sharded(key) {
		return 1, false
	}
	if e := k.Book.Of(key); e != nil {
		return max(1, e.Definition.Shards), true
	}
	return 1, true
}

// Since returns from when on a view of the book is complete.
func (k *Known) Since(v book.View) (at int64, ok bool) { return k.Book.Since(v, k.InForce) }

// Get returns the book of a namespace as it was in the store at most a second ago.
func (b *Books) Get(ctx context.Context, namespace string) (*Known, error) {
	s, err := b.take(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer s.put()
	if s.known != nil && time.Since(s.at) < fresh {
		return s.known, nil
	}
	lingers := s.known.ID() != 0 && s.known.InForce == 0
	if err := b.load(ctx, namespace, s); err != nil {
		return nil, err
	}
	if lingers && s.known.InForce == 0 && !b.readOnly { // Its publisher may be gone.
		return s.known, b.finish(ctx, s)
	}
	return s.known, nil
}

// Renew reads the book of a namespace, unless one above an id is known by now: a store has
// refused what was made under that.
func (b *Books) Renew(ctx context.Context, namespace string, id int64) error {
	s, err := b.take(ctx, namespace)
	if err != nil {
		return err
	}
	defer s.put()
	if s.known.ID() > id {
		return nil
	}
	if err := b.load(ctx, namespace, s); err != nil {
		return err
	}
	if s.known.ID() <= id {
		return store.Errorf(store.KindOutdated, "the %s store refuses writes under book %d of namespace %q, but has no later book: it has lost definitions. Publish them again",
			b.store.Traits().Name, id, namespace)
	}
	return nil
}

// Ended reports whether the store has a later book than k, which is then read. If it has
// none, nothing was counted by a later one until now: a book is written before its fences
// are raised.
func (b *Books) Ended(ctx context.Context, k *Known) (bool, error) {
	var value [1]store.Value
	if err := b.store.Read(ctx, []store.Cell{cellOf(k.Namespace)}, value[:]); err != nil {
		return false, err
	}
	if value[0].N <= k.ID() {
		return false, nil
	}
	return true, b.Renew(ctx, k.Namespace, k.ID())
}

// take returns the shelf of a namespace when nobody else has it. The caller puts it back.
func (b *Books) take(ctx context.Context, namespace string) (*shelf, error) {
	b.mu.Lock()
	s := b.shelves[namespace]
	if s == nil {
		s = &shelf{busy: make(chan struct{}, 1)}
		b.shelves[namespace] = s
	}
	b.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *shelf) put() { <-s.busy }

// prefix is what the key of a book begins with, in the store's own namespace. The name of
// the book's namespace follows.
const prefix = "book/"

// Namespaces returns the namespaces that have a book, whether or not it is known here.
func (b *Books) Namespaces(ctx context.Context) (all []string, err error) {
	for r := (store.Range{Prefix: prefix}); ; {
		found, err := b.store.Scan(ctx, r, store.ScanMax)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			r.After = e.Key
			all = append(all, strings.TrimPrefix(e.Key, prefix))
		}
		if len(found) < store.ScanMax {
			return all, nil
		}
	}
}

// cellOf returns the cell of a namespace's book, and forceCell that of when one came into
// force.
func cellOf(namespace string) store.Cell { return store.Cell{Key: prefix + namespace} }

func forceCell(namespace string, id uint64) store.Cell {
	return store.Cell{Key: "inforce/" + namespace + "/" + strconv.FormatUint(id, 10)}
}

// pagesMax is how many pages a book may have.
const pagesMax = (book.BytesMax + store.PartBytesMax - 1) / store.PartBytesMax

func page(i int) store.Part {
	return store.PartFields{Kind: store.PartPage, Position: int64(i)}.Part()
}

// load reads the book of a namespace. If it is older than the one that is known, the store
// has lost that, and gets it back.
func (b *Books) load(ctx context.Context, namespace string, s *shelf) error {
	cell := cellOf(namespace)
	for {
		var value [1]store.Value
		if err := b.store.Read(ctx, []store.Cell{cell}, value[:]); err != nil {
			return err
		}
		s.version = value[0].Version
		if has := value[0].N; has < s.known.ID() && !b.readOnly {
			if err := b.write(ctx, namespace, s.known.Book, value[0].Version); err != nil && store.KindOf(err) != store.KindChanged {
				return err
			}
			continue
		} else if s.known != nil && (has < s.known.ID() || has == s.known.ID() && s.known.InForce != 0) {
			s.at = time.Now()
			return nil
		}
		k, err := read(ctx, b.store, namespace, b.slot)
		if err != nil {
			return err
		}
		if k.Book.ID != uint64(value[0].N) { // Another was published in between.
			continue
		}
		if k.Book.ID != 0 {
			if err := b.store.Read(ctx, []store.Cell{forceCell(namespace, k.Book.ID)}, value[:]); err != nil {
				return err
			}
			k.InForce = value[0].N
		}
		b.keep(s, k)
		return nil
	}
}

// read reads the pages of a namespace's book.
func read(ctx context.Context, from store.Store, namespace string, slot int) (*Known, error) {
	var pages [pagesMax]store.PartCell
	var contents [pagesMax]store.Content
	for i := range pages {
		pages[i] = store.PartCell{Cell: cellOf(namespace), Part: page(i)}
	}
	if err := from.ReadParts(ctx, pages[:], contents[:]); err != nil {
		return nil, err
	}
	var raw []byte
	for i := range contents {
		raw = append(raw, contents[i].Bytes...)
	}
	if len(raw) == 0 {
		return newKnown(namespace, &book.Book{}, slot), nil
	}
	parsed, err := book.Parse(raw)
	if err != nil {
		return nil, err
	}
	return newKnown(namespace, parsed, slot), nil
}

// newKnown makes a book ready, for a server that writes what many counters share into the lanes
// of a slot.
func newKnown(namespace string, of *book.Book, slot int) *Known {
	k := &Known{Namespace: namespace, Book: of}
	if of.ID == 0 {
		return k
	}
	k.Fence = []store.Book{{Namespace: namespace, ID: int64(of.ID)}}
	k.keys = make([]*Keys, len(of.Entries))
	k.sharded = of.AnySharded()
	for i := range of.Entries {
		e := &of.Entries[i]
		if len(e.Views) > 0 {
			k.keys[i] = &Keys{Views: view.New(of, e).InLane(slot), Entry: e}
		}
		if bound := e.Definition.Bound(); bound != nil {
			if k.bounds == nil {
				k.bounds = make([]*store.Bound, len(of.Entries))
			}
			k.bounds[i] = bound
		}
	}
	return k
}

// keep makes k what is known of its namespace. The shelf is the caller's.
func (b *Books) keep(s *shelf, k *Known) {
	s.known, s.at = k, time.Now()
	if k.Book.ID == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]*Known{}
	if old := b.known.Load(); old != nil {
		maps.Copy(all, *old)
	}
	all[k.Namespace] = k
	b.known.Store(&all)
}

// nowMS returns the store's time of a partition, or of this machine if the store has not
// told it.
func (b *Books) nowMS(partition int) int64 {
	if clock, ok := b.store.(store.Clock); ok {
		if ms := clock.NowMS(store.ProbeCell(partition, b.store.Traits().Partitions)); ms != 0 {
			return ms
		}
	}
	return time.Now().UnixMilli()
}

// zoneOf returns a time zone as this machine has it.
func zoneOf(name string) (*calendar.Zone, error) {
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	return calendar.NewZone(l), nil
}
