package port

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/store"
)

// ErrText is returned when a key is to hold anything else than a count that has a definition.
var ErrText = store.Errorf(store.KindInvalid, "the key has a definition as a counter, so it can't hold text, a sketch, a hash or a sorted set")

// Text executes commands on keys that may hold text, as one step. Do is given a snapshot of
// the keys that it names, and what it makes of them is one batch, on condition that they are
// still so, and that the other conditions hold. If they are not, it is given a newer one: it
// must depend on nothing else. Keys are those that it is likely to name, which are read at one
// moment. If a condition of the caller's does not hold, it returns ErrChanged.
//
// Nothing is written if do returns an error.
func (p *Port) Text(ctx context.Context, keys []string, watched []store.Condition, do func(*keyspace.Space) error) error {
	_, err := p.execute(ctx, keys, watched, once{}, func(s *keyspace.Space, _ bool) error { return do(s) })
	return err
}

// execute is Text for a write that may have a token: if it was taken before, nothing that do makes is written.
func (p *Port) execute(ctx context.Context, keys []string, watched []store.Condition, o once, do func(s *keyspace.Space, replayed bool) error) (w written, err error) {
	if p.err != nil {
		return w, p.err
	}
	leave, err := p.turns.take(ctx, p.namespace, keys)
	if err != nil {
		return w, err
	}
	defer leave()
	for tries := 0; ; tries++ {
		if err := rest(ctx, tries); err != nil {
			return w, store.Errorf(store.KindUnavailable, "others changed the keys during each attempt: %w", err)
		}
		w, again, err := p.attempt(ctx, keys, watched, o, do)
		if !again {
			return w, err
		}
	}
}

// rest waits before another try: longer each time, and not as long as others do.
func rest(ctx context.Context, tries int) error {
	if tries == 0 {
		return ctx.Err()
	}
	longest := time.Millisecond << min(tries, 5)
	t := time.NewTimer(longest/2 + rand.N(longest/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempt is execute once. Again says that others have changed a key meanwhile.
func (p *Port) attempt(ctx context.Context, keys []string, watched []store.Condition, o once, do func(s *keyspace.Space, replayed bool) error) (w written, again bool, err error) {
	snap := snapshot{p: p, held: make(map[string]held), asOf: time.Now()}
	if err := snap.read(ctx, keys); err != nil {
		return w, false, err
	}
	if w.replayed, err = p.known(ctx, &o); err != nil {
		return w, false, err
	}
	space, later := snap.space(ctx, keys)
	err = do(space, w.replayed)
	w.asOf = snap.asOf
	switch fault := space.Err(); {
	case errors.Is(fault, errMoved):
		return w, true, nil
	case fault != nil:
		return w, false, fault
	case err != nil:
		return w, false, err
	}
	var deltas []store.Delta
	if !w.replayed {
		changes := space.Changes()
		if slices.ContainsFunc(changes, func(c keyspace.Change) bool { return len(c.Pieces) > 0 }) {
			if err := p.keeping.NotePieces(ctx, p.namespace); err != nil {
				return w, false, err
			}
		}
		if deltas, err = p.textDeltas(changes); err != nil {
			return w, false, err
		}
		deltas = o.under(deltas, space)
	}
	if len(deltas) == 0 && len(watched) == 0 {
		if !*later || len(snap.held) < 2 {
			return w, false, nil // What was read was so at one moment, or is one key.
		}
		same, err := snap.still(ctx, space.Keys())
		return w, !same && err == nil, err
	}
	conditions := slices.Clone(watched)
	for _, key := range space.Keys() {
		conditions = append(conditions, store.Condition{Cell: store.Cell{Key: key}, Version: snap.held[key].version})
	}
	results := make([]store.Result, len(deltas))
	w.durability, err = p.applyIf(ctx, conditions, deltas, results)
	switch store.KindOf(err) {
	case store.KindChanged:
		changed, err := p.changed(ctx, watched)
		return w, err == nil && !changed, errors.Join(err, ifTrue(changed, store.ErrChanged))
	case store.KindSplit, store.KindNotCount:
		return w, true, nil
	case store.KindTooLarge:
		return w, false, store.Errorf(store.KindTooLarge, "this changes more than fits into one step, which may be many pieces of a large sketch: use fewer commands or items: %w", err)
	default:
	}
	if err != nil {
		return w, false, err
	}
	for i := range results {
		switch o := results[i].Outcome; o {
		case store.Applied, store.Unmet: // A deadline that is gone by now.
		case store.Split, store.NotCount, store.Changed:
			return w, true, nil
		default:
			return w, false, o.Err()
		}
	}
	return w, false, nil
}

func ifTrue(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

// changed reports whether a condition does not hold.
func (p *Port) changed(ctx context.Context, watched []store.Condition) (bool, error) {
	keys := make(map[string][]string)
	for _, w := range watched {
		keys[w.Cell.Namespace] = append(keys[w.Cell.Namespace], w.Cell.Key)
	}
	versions := make(map[store.Cell]uint64, len(watched))
	for namespace, keys := range keys {
		of := p
		if namespace != "" {
			of = p.In(namespace)
		}
		values, err := of.whole(ctx, keys)
		if err != nil {
			return false, err
		}
		for i, key := range keys {
			versions[store.Cell{Namespace: namespace, Key: key}] = values[i].Version
		}
	}
	for _, w := range watched {
		if versions[w.Cell] != w.Version {
			return true, nil
		}
	}
	return false, nil
}

// Copy makes a key of another namespace what a key is, in one step, if that is there, and the other is not
// or may be replaced. It reports whether it did.
func (p *Port) Copy(ctx context.Context, from string, to *Port, as string, replace bool) (done bool, err error) {
	if err := errors.Join(p.err, to.err); err != nil {
		return false, err
	}
	for tries := 0; ; tries++ {
		if err := rest(ctx, tries); err != nil {
			return false, store.Errorf(store.KindUnavailable, "others changed the keys during each attempt: %w", err)
		}
		snap := snapshot{p: p, held: make(map[string]held)}
		if err := snap.read(ctx, []string{from}); err != nil {
			return false, err
		}
		is := []store.Condition{{Cell: p.Cell(from), Version: snap.held[from].version}}
		err = to.Text(ctx, []string{as}, is, func(space *keyspace.Space) (err error) {
			if done, err = space.Put(as, snap.held[from].Value, replace); err != nil {
				err = store.Errorf(store.KindInvalid, "%w", err)
			}
			return err
		})
		if !errors.Is(err, store.ErrChanged) {
			return done && err == nil, err
		}
	}
}

// textDeltas returns what changes come to.
func (p *Port) textDeltas(changes []keyspace.Change) (deltas []store.Delta, err error) {
	for _, c := range changes {
		d := store.Delta{Cell: store.Cell{Key: c.Key}, N: c.N}
		if c.Ages {
			switch {
			case c.LivesMS != 0:
				d.Expiry, d.DeadlineMS = store.ExpirySet|store.ExpiryAfter, c.LivesMS
			case c.DeadlineMS != 0:
				d.Expiry, d.DeadlineMS = store.ExpirySet, c.DeadlineMS
			default:
				d.Expiry = store.ExpiryClear
			}
		}
		switch c.Op {
		case keyspace.OpDelete:
			d.Op = store.OpDelete
		case keyspace.OpAdd:
			if err := p.CheckAdd(c.Key, c.Before, c.N); err != nil { // None of several may be refused alone.
				return nil, err
			}
			d.Op = store.OpAdd
		case keyspace.OpExpire:
			d.Op = store.OpExpire
		case keyspace.OpPut:
			p.texts.found(p.namespace)
			d.Op, d.Event = store.OpPut, &store.Event{Part: store.Object, Bytes: keyspace.Content(c.Text)}
		case keyspace.OpSet:
			if err := p.CheckValue(c.Key, c.N); err != nil { // None of several may be refused alone.
				return nil, err
			}
			if d.Op = store.OpSet; c.WasObject {
				d.Event = &store.Event{Part: store.Object}
			}
		case keyspace.OpMerge:
			p.texts.found(p.namespace)
			d.Op, d.Event = store.OpMerge, &store.Event{Part: store.Object, Bytes: c.Asks}
		case keyspace.OpHold:
			p.texts.found(p.namespace)
			d.Op, d.Event = store.OpPut, &store.Event{Part: store.Object, Bytes: []byte(c.Held)}
			deltas = append(deltas, withPieces(d, c.Held, c.Pieces)...)
			continue
		}
		deltas = append(deltas, d)
	}
	return deltas, nil
}

// withPieces returns the deltas that make a key hold a sketch, and change its pieces.
func withPieces(d store.Delta, held string, pieces []keyspace.Piece) (deltas []store.Delta) {
	name, _, _ := keyspace.PiecesOf(held)
	for some := range slices.Chunk(pieces, store.EventRidersMax) {
		e := &store.Event{Part: store.Object, Bytes: d.Event.Bytes}
		for _, piece := range some {
			r := store.Rider{Part: pieceOf(name, piece.Index), Op: store.OpMerge, Bytes: piece.Asks}
			if piece.Asks == nil {
				r.Op, r.Bytes = store.OpPut, []byte(piece.State)
			}
			e.Riders = append(e.Riders, r)
		}
		next := d
		next.Event = e
		deltas = append(deltas, next)
	}
	if len(pieces) == 0 {
		return []store.Delta{d}
	}
	return deltas
}

// pieceOf returns the part that has a piece of a sketch.
func pieceOf(name string, i int) store.Part {
	return store.PartFields{Kind: store.PartSketch, Position: int64(i), Name: name}.Part()
}

// A snapshot is what keys hold.
type snapshot struct {
	p    *Port
	held map[string]held
	asOf time.Time
}

type held struct {
	keyspace.Value
	version uint64
}

// space returns what commands are executed on that name some keys, and perhaps others, which are read then: later
// says so.
func (s *snapshot) space(ctx context.Context, keys []string) (space *keyspace.Space, later *bool) {
	of := ""
	if len(keys) > 0 {
		of = keys[0]
	}
	later = new(bool)
	space = keyspace.New(s.p.NowMS(s.p.Cell(of)), func(key string) (keyspace.Value, error) {
		if _, known := s.held[key]; !known {
			*later = true
			if err := s.read(ctx, []string{key}); err != nil {
				return keyspace.Value{}, err
			}
		}
		return s.held[key].Value, nil
	})
	space.Seed = rand.Uint64()
	space.Pieces = func(key, name string, indexes []int) ([]string, error) { return s.pieces(ctx, key, name, indexes) }
	return space, later
}

// read reads keys. Those of one partition are read at one moment: what a key holds besides its
// cell is of the version that the cell had then, since it has it afterwards too.
func (s *snapshot) read(ctx context.Context, keys []string) error {
	for tries := 0; ; tries++ {
		if err := rest(ctx, tries); err != nil {
			return store.Errorf(store.KindUnavailable, "others changed the keys during each attempt: %w", err)
		}
		values, err := s.p.whole(ctx, keys)
		if err != nil {
			return err
		}
		same, err := s.take(ctx, keys, values)
		if same || err != nil {
			return err
		}
	}
}

// still reports whether keys that were read one after the other are as they were, and so were so at one
// moment.
func (s *snapshot) still(ctx context.Context, keys []string) (bool, error) {
	for _, key := range keys {
		if cell := s.p.Cell(key); store.PartitionOf(cell, s.p.traits.Partitions) != store.PartitionOf(s.p.Cell(keys[0]), s.p.traits.Partitions) {
			return false, store.Errorf(store.KindUnsupported, "the keys are in different partitions of the %s store", s.p.traits.Name)
		}
	}
	values, err := s.p.whole(ctx, keys)
	for i := range values {
		if err == nil && values[i].Version != s.held[keys[i]].version {
			return false, nil
		}
	}
	return err == nil, err
}

// take takes keys as they were read, and reads what they hold besides.
func (s *snapshot) take(ctx context.Context, keys []string, values []store.Value) (same bool, err error) {
	var parts []store.PartCell
	var at []int
	for i := range values {
		v := &values[i]
		s.asOf = total.AsOf(s.asOf, *v)
		s.held[keys[i]] = held{keyspace.Value{Exists: v.Exists, N: v.N, DeadlineMS: v.DeadlineMS}, v.Version}
		if v.IsObject() {
			at, parts = append(at, i), append(parts, store.PartCell{Cell: s.p.Cell(keys[i]), Part: store.Object})
		}
	}
	if len(parts) == 0 {
		return true, nil
	}
	s.p.texts.found(s.p.namespace)
	contents, cells := make([]store.Content, len(parts)), make([]store.Cell, len(parts))
	if err := s.p.store.ReadParts(ctx, parts, contents); err != nil {
		return false, err
	}
	now := make([]store.Value, len(parts))
	for i := range parts {
		cells[i] = parts[i].Cell
	}
	if err := s.p.store.Read(ctx, cells, now); err != nil {
		return false, err
	}
	for n, i := range at {
		if now[n].Version != values[i].Version {
			return false, nil
		}
		v, is := keyspace.Hold(contents[n].Bytes)
		if !is {
			return false, store.Errorf(store.KindNotCount, "%q holds something that this server does not know", keys[i])
		}
		v.DeadlineMS = values[i].DeadlineMS
		s.held[keys[i]] = held{v, values[i].Version}
	}
	return true, nil
}

// errMoved says that a key was changed between two looks at it.
var errMoved = errors.New("port: a key has changed")

// pieces returns pieces of the sketch that a key holds. They are of the version that its cell had, since it
// has it afterwards too: whatever changes a piece changes that.
func (s *snapshot) pieces(ctx context.Context, key, name string, indexes []int) ([]string, error) {
	c := s.p.Cell(key)
	parts, contents := make([]store.PartCell, len(indexes)), make([]store.Content, len(indexes))
	for n, i := range indexes {
		parts[n] = store.PartCell{Cell: c, Part: pieceOf(name, i)}
	}
	if err := s.p.store.ReadParts(ctx, parts, contents); err != nil {
		return nil, err
	}
	var now [1]store.Value
	if err := s.p.store.Read(ctx, []store.Cell{c}, now[:]); err != nil {
		return nil, err
	}
	if now[0].Version != s.held[key].version {
		return nil, errMoved
	}
	states := make([]string, len(indexes))
	for n := range contents {
		states[n] = contents[n].Bytes
	}
	return states, nil
}

// whole reads the cells of keys, with the versions that conditions compare. A counter that is
// split is put together for it, since its parts have no version in common.
func (p *Port) whole(ctx context.Context, keys []string) ([]store.Value, error) {
	values, cells := make([]store.Value, len(keys)), p.cells(keys)
	for tries := 0; ; tries++ {
		if err := rest(ctx, tries); err != nil {
			return nil, err
		}
		if err := p.store.Read(ctx, cells, values); err != nil {
			return nil, err
		}
		var deltas []store.Delta
		for i := range values {
			if hot.Of(values[i]) != 0 {
				deltas = append(deltas, store.Delta{Cell: store.Cell{Key: keys[i]}, Op: store.OpGet, Want: true})
			}
		}
		if len(deltas) == 0 || p.readOnly {
			return values, nil
		}
		if err := p.Apply(ctx, deltas, make([]store.Result, len(deltas))); err != nil {
			return nil, err
		}
	}
}

// texts says which namespaces may have keys that hold text. As long as one has none, nobody
// has to look for any.
type texts struct{ spaces sync.Map }

type textsOf struct {
	some    atomic.Bool  // it stays so
	lookMS  atomic.Int64 // when the store said that there are none, by this machine; 0 if it was not asked
	looking atomic.Bool
}

// textsEvery is for how long it is believed that a namespace of a shared store has no text.
const textsEvery = time.Second

func (t *texts) of(namespace string) *textsOf {
	of, ok := t.spaces.Load(namespace)
	if !ok {
		of, _ = t.spaces.LoadOrStore(namespace, &textsOf{})
	}
	return of.(*textsOf)
}

func (t *texts) found(namespace string) { t.of(namespace).some.Store(true) }

// MayHoldText reports whether keys of the namespace may hold text. If it is not known yet, they
// may, and the store is asked meanwhile; and once in a while if others share it.
func (p *Port) MayHoldText() bool {
	if p.err != nil {
		return false
	}
	of := p.texts.of(p.namespace)
	if of.some.Load() {
		return true
	}
	at := of.lookMS.Load()
	if at == 0 || p.traits.Shared && time.Since(time.UnixMilli(at)) > textsEvery {
		p.lookForText(of, at == 0)
	}
	return of.some.Load() || of.lookMS.Load() == 0
}

// FoundText notes that a key of the namespace holds text.
func (p *Port) FoundText() { p.texts.found(p.namespace) }

// lookForText asks the store whether a namespace has text.
func (p *Port) lookForText(of *textsOf, wait bool) {
	if !of.looking.CompareAndSwap(false, true) {
		return
	}
	look := func() {
		defer of.looking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		now := time.Now()
		found, err := p.store.ScanParts(ctx, store.RowsUnder(p.namespace, store.PartFields{Kind: store.PartObject}, ""), 1)
		if err != nil {
			return
		}
		if len(found) > 0 {
			of.some.Store(true)
		}
		of.lookMS.Store(now.UnixMilli())
	}
	if wait && p.near {
		look()
		return
	}
	go look()
}

// turns keep callers in this process that would change the same keys from making each other try
// again.
type turns struct {
	once sync.Once
	seed maphash.Seed
	all  [turnsMax]chan struct{}
}

const turnsMax = 256

// take waits for the turn of some keys.
func (t *turns) take(ctx context.Context, namespace string, keys []string) (leave func(), err error) {
	t.once.Do(func() {
		t.seed = maphash.MakeSeed()
		for i := range t.all {
			t.all[i] = make(chan struct{}, 1)
		}
	})
	var mine []int
	for _, key := range keys {
		mine = append(mine, int((maphash.String(t.seed, key)^maphash.String(t.seed, namespace))%turnsMax))
	}
	slices.Sort(mine)
	mine = slices.Compact(mine)
	taken := 0
	leave = func() {
		for _, i := range mine[:taken] {
			<-t.all[i]
		}
	}
	for _, i := range mine {
		select {
		case t.all[i] <- struct{}{}:
			taken++
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
