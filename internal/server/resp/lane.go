package resp

import (
	"hash/maphash"
	"math"
	"slices"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// A lane is the plain additions that a cycle begins with: most cycles have nothing
// else. Those of one amount to one counter become one, whatever comes between them,
// and each caller gets its own value. The store takes them the short way (see
// store.Adder), all that it can. What it leaves is spelled as deltas.
type lane struct {
	store.Adds
	blind   []bool // of each: nobody asks for its values
	seen    *seen
	strange int        // keys that were looked for in vain, less what those that were found make up for
	spelled []spelling // of each, if it is left
	taken   bool       // the store has taken some
	landed  atomic.Bool
	fault   atomic.Pointer[error]
	err     error // of what it has taken
}

// A spelling says which deltas an addition that was left became: one with the sum of
// all its times, or one for each.
type spelling struct {
	at  int32
	sum bool
}

// seen is where to look for the last addition to a key, for most keys. It is never
// cleared: what it says is checked.
type seen struct {
	seed  maphash.Seed
	spots [seenSpots][2]spot
}

// A spot is 16 bits of a key's hash, and the index of the last addition to it.
type spot struct{ tag, index uint16 }

const (
	seenSpots = 2048
	// seenFrom is how many additions a cycle has before it looks for more than the
	// last: connections that send one at a time, each by itself, need no such memory.
	seenFrom = 8
	// strangeMax is how many strange keys make a cycle look for no more of them: its
	// keys are too many for looking to be worth it. One that is found makes up for
	// strangeLess others. 10,000 keys that come equally often are not too many.
	strangeMax  = 512
	strangeLess = 16
)

// The largest index is of none.
const _ uint = math.MaxUint16 - 1 - store.BatchDeltasMax

func (l *lane) reset() {
	l.Keys, l.Each, l.blind, l.spelled = l.Keys[:0], l.Each[:0], l.blind[:0], l.spelled[:0]
	l.taken, l.err, l.strange = false, nil, 0
	l.landed.Store(false)
	l.fault.Store(nil)
}

// add adds an amount to a key that was checked, once or more often, and returns which
// addition it is in, and its place there.
func (l *lane) add(key []byte, by int64, blind bool, times int) (at, nth int, err error) {
	n := len(l.Each)
	last := n - 1 // addition to the key, or -1
	if n > 0 && string(l.KeyOf(&l.Each[last])) != string(key) {
		last = -1
	}
	// Once it does not look it does not look again: it would find an addition that
	// is not the last to its key.
	looks := n >= seenFrom && l.strange < strangeMax
	var spot *spot
	if last < 0 && looks {
		if spot, last = l.find(key); last < 0 {
			l.strange++
		} else {
			l.strange -= strangeLess
		}
	}
	if last >= 0 && l.Each[last].N == by && l.blind[last] == blind {
		a := &l.Each[last]
		a.Times += uint32(times)
		return last, int(a.Times) - times, nil
	}
	if n == store.BatchDeltasMax || len(l.Keys) > store.BatchBytesMax/2 { // the rest is for the namespaces
		return 0, 0, errFull
	}
	if spot == nil && looks {
		spot, _ = l.find(key)
	}
	if spot != nil {
		spot.index = uint16(n)
	}
	l.Each = append(l.Each, store.Add{N: by, Key: uint32(len(l.Keys)), Times: uint32(times), Size: uint16(len(key))})
	l.Keys, l.blind = append(l.Keys, key...), append(l.blind, blind)
	return n, 0, nil
}

// find returns the spot of a key, and the last addition to it, or -1 if it has none, or
// none that is known. A key that has no spot takes the first of two from another, which
// moves to the second.
func (l *lane) find(key []byte) (*spot, int) {
	if l.seen == nil {
		l.seen = &seen{seed: maphash.MakeSeed()}
	}
	hash := maphash.Bytes(l.seen.seed, key)
	spots, tag := &l.seen.spots[hash%seenSpots], uint16(hash>>48)
	for i := range spots {
		s := &spots[i]
		if s.tag == tag && int(s.index) < len(l.Each) && string(l.KeyOf(&l.Each[s.index])) == string(key) {
			return s, int(s.index)
		}
	}
	spots[0], spots[1] = spot{tag: tag, index: math.MaxUint16}, spots[0]
	return &spots[0], -1
}

// land is called when what the store has taken is durable, or has failed.
func (l *lane) land(err error) {
	if err != nil {
		l.fault.Store(&err)
	}
	l.landed.Store(true)
}

// waits reports whether what the store has taken is still to be made durable.
func (l *lane) waits() bool { return l.taken && !l.landed.Load() }

// took reports whether the store has taken what an entry answers, or was about to.
func (l *lane) took(e *entry) bool { return l.err != nil || !l.Each[e.at].Left }

// leave makes all additions ones that the store has left.
func (l *lane) leave() {
	for i := range l.Each {
		l.Each[i].Left = true
	}
}

// recount takes back the additions that are in no entry.
func (l *lane) recount(entries []entry) {
	for i := range l.Each {
		l.Each[i].Times = 0
	}
	n := 0
	for i := range entries {
		if e := &entries[i]; e.kind == added {
			l.Each[e.at].Times += uint32(e.n)
			n = max(n, int(e.at)+1)
		}
	}
	l.Each, l.blind = l.Each[:n], l.blind[:n]
}

// sums returns the sum of all times of an addition, if that is an int64.
func sums(a *store.Add) (int64, bool) {
	sum := a.N * int64(a.Times)
	return sum, sum/int64(a.Times) == a.N
}

// startLane gives the additions of a cycle to the store, and makes deltas of what it
// leaves.
func (c *cycle) startLane() {
	c.unite()
	if len(c.lane.Each) == 0 {
		return
	}
	c.left.Add(1)
	c.lane.taken = c.db.Port().StartAdds(&c.lane.Adds, func(err error) {
		c.lane.land(err)
		c.done(nil)
	})
	if !c.lane.taken {
		c.left.Add(-1)
		c.lane.leave()
	}
	c.spell()
}

// spell makes deltas of the additions that were left, before all others. It sums up
// each, so that one delta stands for many commands; but not if the key comes again,
// because what is refused as a sum is done again, one by one, after everything else
// (see redo).
func (c *cycle) spell() {
	l := &c.lane
	if !slices.ContainsFunc(l.Each, func(a store.Add) bool { return a.Left }) { // Fast path.
		return
	}
	left, later := 0, keyFilter{}
	for i := range c.deltas {
		later.add(hash(c.deltas[i].Cell.Key))
	}
	l.spelled = append(l.spelled[:0], make([]spelling, len(l.Each))...)
	for i := len(l.Each) - 1; i >= 0; i-- {
		a := &l.Each[i]
		if !a.Left {
			continue
		}
		key := hash(l.KeyOf(a))
		_, ok := sums(a)
		if l.spelled[i].sum = ok && !later.has(key); l.spelled[i].sum {
			left++
		} else {
			left += int(a.Times)
		}
		later.add(key)
	}
	deltas := make([]store.Delta, 0, left+len(c.deltas))
	for i := range l.Each {
		a := &l.Each[i]
		if !a.Left {
			continue
		}
		d := store.Delta{Cell: store.Cell{Key: c.keep(l.KeyOf(a))}, Op: store.OpAdd, N: a.N, Want: !l.blind[i]}
		l.spelled[i].at = int32(len(deltas))
		if l.spelled[i].sum {
			d.N, _ = sums(a)
			d.Writes = a.Times
			deltas = append(deltas, d)
			continue
		}
		for range a.Times {
			deltas = append(deltas, d)
		}
	}
	for i := range c.entries {
		if e := &c.entries[i]; e.kind.ofResults() {
			e.at += int32(left)
		}
	}
	c.deltas = append(deltas, c.deltas...)
}

// redo appends those additions of a portion that were refused as a sum, because it
// would overflow or cross the floor or the ceiling of a definition, each as a delta of its
// own, and returns which those are.
func (c *cycle) redo(home int32) (at []int) {
	l := &c.lane
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range l.spelled {
		s, times := &l.spelled[i], l.Each[i].Times
		if !s.sum || times == 1 || home != all && c.homes[s.at] != home {
			continue
		}
		if o := c.results[s.at].Outcome; o != store.Overflow && o != store.Bounded {
			continue
		}
		d := c.deltas[s.at]
		d.N, d.Writes, d.Guard.Bound = l.Each[i].N, 0, nil
		*s = spelling{at: int32(len(c.deltas))}
		for range times {
			at = append(at, len(c.deltas))
			c.deltas = append(c.deltas, d)
			if home != all {
				c.homes, c.errs = append(c.homes, home), append(c.errs, nil)
			}
		}
	}
	c.room()
	return at
}

// keyFilter is a filter of keys, by their hashes: a hit may be false, a miss never.
type keyFilter [16]uint64

func (f *keyFilter) add(h uint32)      { f[h>>6&15] |= 1 << (h & 63) }
func (f *keyFilter) has(h uint32) bool { return f[h>>6&15]&(1<<(h&63)) != 0 }

// hash is FNV-1a.
func hash[T string | []byte](key T) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h ^ h>>16
}
