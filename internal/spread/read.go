package spread

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// Read fills values[i] with the durable value of the counter cells[i]: of one that
// is split, the sum of its shards, with its Layout, and a version that is no
// cell's. Of a counter whose shards are known it is one call.
func (s *Store) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	return s.read(ctx, cells, values, nil)
}

// Collect is Read that also tells of which versions of its cells each value is the
// sum, home's first: versions[i] for cells[i]. Of a shard that is not there it is 0.
func (s *Store) Collect(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	return s.read(ctx, cells, values, versions)
}

func (s *Store) read(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	if len(cells) != len(values) {
		return store.Errorf(store.KindInvalid, "read %d cells into %d values", len(cells), len(values))
	}
	if !s.anyKnown(cells) {
		if err := s.under.Read(ctx, cells, values); err != nil {
			return err
		}
		if !anyLaid(values) {
			for i := range versions {
				versions[i] = append(versions[i][:0], values[i].Version)
			}
			return nil
		}
		for i := range values {
			if values[i].Layout != 0 {
				s.learn(cells[i], nil, hot.Word(values[i].Layout), values[i].Version)
			}
		}
	}
	todo := make([]int, len(cells))
	for i := range todo {
		todo[i] = i
	}
	rounds := roundsMax
	if s.options.ReadOnly { // which can't fold what never stays the same
		rounds *= 4
	}
	for round := range rounds {
		var err error
		if todo, err = s.sum(ctx, cells, values, versions, todo); err != nil || len(todo) == 0 {
			return err
		}
		if round < roundsCalm || s.options.ReadOnly {
			continue
		}
		for _, i := range todo { // One cell can tell.
			if err := s.ask(ctx, cells[i]); err != nil {
				return err
			}
		}
	}
	return store.Errorf(store.KindUnavailable, "%q changes all the time, and can't be read at one moment", cells[todo[0]].Key)
}

// roundsCalm is how often a counter whose shards are read at different moments is
// read in vain before it is folded.
const roundsCalm = 4

// anyKnown reports whether one of the counters is known to be split.
func (s *Store) anyKnown(cells []store.Cell) bool {
	if s.known.Load() == 0 {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range cells {
		if s.counters[c] != nil {
			return true
		}
	}
	return false
}

func anyLaid(values []store.Value) bool {
	for i := range values {
		if values[i].Layout != 0 {
			return true
		}
	}
	return false
}

// sum reads some of the cells with what is known of their shards, and returns
// those that turned out to be laid out otherwise, or may have. Versions is nil if
// nobody asks.
func (s *Store) sum(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64, todo []int) (left []int, err error) {
	known := make([]*counter, len(todo))
	before := make([]uint64, len(todo)) // home's versions
	parts := make([][]store.Value, len(todo))
	var all []store.Cell
	var from int // of the counters that are read together
	flush := func(to int) error {
		read := make([]store.Value, len(all))
		if err := s.under.Read(ctx, all, read); err != nil {
			return err
		}
		for n := from; n < to; n++ {
			size := 1
			if known[n] != nil {
				size = len(known[n].cells)
			}
			parts[n], read = read[:size], read[size:]
		}
		all, from = all[:0], to
		return nil
	}
	for n, i := range todo {
		of := cells[i : i+1]
		if known[n] = s.get(cells[i]); known[n] != nil {
			of, before[n] = known[n].cells, known[n].version.Load()
		}
		// All of a counter is read by one call, and so at one moment where it can be.
		if len(all)+len(of) > store.ReadCellsMax {
			if err := flush(n); err != nil {
				return nil, err
			}
		}
		all = append(all, of...)
	}
	if err := flush(len(todo)); err != nil {
		return nil, err
	}
	for n, i := range todo {
		missing, again, err := s.take(ctx, cells[i], known[n], before[n], parts[n], &values[i])
		if err != nil {
			return nil, err
		}
		if again {
			left = append(left, i)
		} else if versions != nil {
			versions[i] = versionsOf(versions[i][:0], parts[n], missing)
		}
	}
	return left, nil
}

// take makes a value of what was read of a counter, whose home was at a version
// before that. It returns which of its shards are not there, a bit for each, and
// whether it has to be read again.
func (s *Store) take(ctx context.Context, c store.Cell, k *counter, before uint64, parts []store.Value, to *store.Value) (missing uint64, again bool, err error) {
	word := hot.Word(parts[0].Layout)
	if word == 0 && k != nil {
		if again, err := s.reassert(ctx, c, k, parts[0].Version); err != nil || again {
			return 0, again, err
		}
	}
	s.learn(c, k, newest(k, word), parts[0].Version)
	switch {
	case word == 0:
		*to = parts[0]
		return 0, false, nil
	case k == nil || !word.Same(k.word):
		return 0, true, nil
	}
	missing = total(parts, word, to)
	if s.traits.Partitions == 1 { // All was read at one moment.
		return missing, false, nil
	}
	// Shards only grow, and home changes before what it takes in is gone. If home
	// was the same before the first of them was read and after the last, the sum
	// lies between what the counter was then.
	home, err := s.home(ctx, c)
	k.version.Store(home.Version)
	return missing, home.Version != before, err
}

// versionsOf appends the versions of the parts that a counter's value is the sum
// of. Some shards are missing, a bit for each. If home is one cell, what else was
// read may be of a split that came after it was.
func versionsOf(to []uint64, parts []store.Value, missing uint64) []uint64 {
	to = append(to, parts[0].Version)
	if parts[0].Layout == 0 {
		return to
	}
	for i := range parts[1:] {
		v := parts[1+i].Version
		if missing&(1<<i) != 0 {
			v = 0
		}
		to = append(to, v)
	}
	return to
}

// newest returns the word to remember of a counter that was read with one: this
// server may be about to fold it, which a reader must not undo.
func newest(k *counter, word hot.Word) hot.Word {
	if k != nil && k.word.Folding() && k.word.Same(word) {
		return k.word
	}
	return word
}

// total adds up the parts of a counter, and returns which of its shards are not
// there, a bit for each.
func total(parts []store.Value, home hot.Word, to *store.Value) (missing uint64) {
	open := hot.Open(home.Gen())
	sum, version := parts[0].N, mix(0, parts[0].Version)
	for i := range parts[1:] {
		p := &parts[1+i]
		if w := hot.Word(p.Layout); w != open && w != open.Fold() {
			missing |= 1 << i
			continue
		}
		sum = plus(sum, p.N)
		version = mix(version, p.Version)
	}
	*to = store.Value{N: sum, Version: noCells(version), Exists: true, Layout: int64(home), AsOfMS: asOf(parts)}
	return missing
}

// asOf returns as of when the sum of parts is: as the oldest of them. 0 is now.
func asOf(parts []store.Value) (ms int64) {
	for i := range parts {
		if at := parts[i].AsOfMS; at != 0 && (ms == 0 || at < ms) {
			ms = at
		}
	}
	return ms
}

// OfShards marks a version of a counter that is split: no cell comes so far, so a
// write that is to be made at such a version is refused. It leaves versions
// within int64.
const OfShards = 1 << 62

func noCells(version uint64) uint64 { return version&(OfShards-1) | OfShards }

// Mixed returns a version for a value that is made of others, of which two stand
// for all: it is another whenever one of them is, and no cell's.
func Mixed(a, b uint64) uint64 { return noCells(mix(mix(0, a), b)) }

// mix adds a version to those before it, so that the result is another whenever
// one of them is.
func mix(h, version uint64) uint64 {
	h = (h ^ version) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// plus is a+b, held at the ends of int64.
func plus(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

// reassert gives a counter back a layout that its store has lost: home said that it
// has no shards, at a version, and after that there is one that is open, with counts.
// A fold would have closed it first. It reports whether the counter must be read
// again.
func (s *Store) reassert(ctx context.Context, c store.Cell, k *counter, version uint64) (bool, error) {
	if s.options.ReadOnly || k.word.Folding() || s.traits.Partitions == 1 {
		return false, nil // One partition loses all or nothing.
	}
	shards := k.cells[1:]
	values := make([]store.Value, len(shards))
	if err := s.under.Read(ctx, shards, values); err != nil {
		return false, err
	}
	open := int64(hot.Open(k.word.Gen()))
	for i := range values {
		if v := &values[i]; v.Layout != open || v.N == 0 {
			continue
		}
		named := layout(c, 0, k.word)
		named.Guard.Match, named.Guard.Version = true, version // or others have done it, and may have folded it since
		r, err := s.one(ctx, named)
		if err == nil && r[0].Outcome == store.Applied {
			s.meters.reasserted.Add(1)
		}
		return true, err
	}
	return false, nil
}

// Peek is Read without the waiting, of counters that are one cell.
func (s *Store) Peek(cells []store.Cell, values []store.Value) bool {
	return s.starter != nil && s.starter.Peek(cells, values) && !anyLaid(values)
}

// Scan returns up to n counters of a namespace in key order.
func (s *Store) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	found, err := s.under.Scan(ctx, r, n)
	if err != nil {
		return nil, err
	}
	var cells []store.Cell
	var at []int
	for i := range found {
		if found[i].Value.Layout != 0 {
			cells, at = append(cells, store.Cell{Namespace: r.Namespace, Key: found[i].Key}), append(at, i)
		}
	}
	if len(cells) == 0 {
		return found, nil
	}
	values := make([]store.Value, len(cells))
	if err := s.Read(ctx, cells, values); err != nil {
		return nil, err
	}
	last := ""
	if len(found) == n {
		last = found[n-1].Key
	}
	for i, v := range values {
		found[at[i]].Value = v
	}
	// Some may have been deleted meanwhile. A page that is short by them would look
	// like the last one.
	found = slices.DeleteFunc(found, func(e store.Entry) bool { return !e.Value.Exists })
	if last == "" || len(found) == n {
		return found, nil
	}
	r.After = last
	rest, err := s.Scan(ctx, r, n-len(found))
	return append(found, rest...), err
}

// partWait is how long each part of a counter is waited for, if what can't be
// read may be left out.
const partWait = 500 * time.Millisecond

// ReadPart reads a counter of which some cells can't be reached: the sum of the
// others, and how many are missing. What is known of its layout must do.
func (s *Store) ReadPart(ctx context.Context, c store.Cell) (v store.Value, missing int, err error) {
	k := s.get(c)
	if k == nil {
		return v, 0, store.Errorf(store.KindUnavailable, "%q can't be read, and it is not known to have shards", c.Key)
	}
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	values, errs := make([]store.Value, len(k.cells)), make([]error, len(k.cells))
	var wg sync.WaitGroup
	for i := range k.cells {
		wg.Go(func() { errs[i] = s.under.Read(ctx, k.cells[i:i+1], values[i:i+1]) })
	}
	wg.Wait()
	open := hot.Open(k.word.Gen())
	for i := range values {
		w := hot.Word(values[i].Layout)
		switch {
		case errs[i] != nil:
			missing++
			err = errs[i]
		case i == 0 && !w.Same(k.word), i > 0 && w != open && w != open.Fold():
			return v, 0, store.Errorf(store.KindUnavailable, "the layout of %q has changed", c.Key)
		default:
			v.N, v.Version = plus(v.N, values[i].N), mix(v.Version, values[i].Version)
		}
	}
	if missing == len(values) {
		return v, 0, err
	}
	v.Exists, v.Layout, v.Version, v.AsOfMS = true, int64(k.word), noCells(v.Version), asOf(values)
	return v, missing, nil
}
