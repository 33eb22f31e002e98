package resp

import (
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A key may hold a sketch: see package keyspace, which executes the commands on them on a snapshot of their
// keys. PFADD needs none: those of many callers to one key are one delta, and all of a cycle are one batch.

const errNotUniques = wireError("WRONGTYPE Key is not a valid HyperLogLog string value.")

func sketchCommands() []*command {
	uniques := []*command{
		{name: "PFADD", arity: -2, flags: flagGrow | writes | flagEntries, keys: oneKey.used("RW insert"), plan: planPFAdd, since: "2.8.9", about: "Adds items to a sketch of uniques."},
		{name: "PFCOUNT", arity: -2, flags: flagText | flagRead, keys: allKeys.used("RW access"), slow: pfCount, since: "2.8.9", about: "Returns how many different items sketches have together."},
		{name: "PFMERGE", arity: -2, flags: flagText | flagGrow | flagWrite, keys: allKeys.used("RW access insert", "RO access"), slow: textCommand, since: "2.8.9", about: "Merges sketches of uniques into one."},
	}
	filters := []*command{
		{name: "BF.RESERVE", arity: -4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Makes a filter of a capacity and an error rate."},
		{name: "BF.ADD", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds an item to a filter."},
		{name: "BF.MADD", arity: -3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds items to a filter."},
		{name: "BF.INSERT", arity: -4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds items to a filter, which it makes as it is told."},
		{name: "BF.EXISTS", arity: 3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns whether an item was added to a filter."},
		{name: "BF.MEXISTS", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns which items were added to a filter."},
		{name: "BF.INFO", arity: -2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns how large a filter is, and how full."},
		{name: "BF.CARD", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.4.4", about: "Returns how many items were added to a filter."},
	}
	counts := []*command{
		{name: "CMS.INITBYDIM", arity: 4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a sketch of frequencies of a width and a depth."},
		{name: "CMS.INITBYPROB", arity: 4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a sketch of frequencies that is seldom wrong by more than a share."},
		{name: "CMS.INCRBY", arity: -4, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts items in a sketch of frequencies."},
		{name: "CMS.QUERY", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how often items came."},
		{name: "CMS.MERGE", arity: -4, flags: flagText | flagWrite, keys: oneKey.used("RW update"), since: "2.0.0", about: "Makes a sketch of frequencies the sum of others."},
		{name: "CMS.INFO", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the size of a sketch of frequencies, and its total."},
	}
	tops := []*command{
		{name: "TOPK.RESERVE", arity: -3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a list of the most frequent items."},
		{name: "TOPK.ADD", arity: -3, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts items in a top list."},
		{name: "TOPK.INCRBY", arity: -4, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts amounts of items in a top list."},
		{name: "TOPK.QUERY", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns which items are in a top list."},
		{name: "TOPK.COUNT", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how often items came."},
		{name: "TOPK.LIST", arity: -2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the most frequent items."},
		{name: "TOPK.INFO", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the size of a top list."},
	}
	for _, c := range slices.Concat(filters, counts, tops) {
		c.slow = textCommand
	}
	return slices.Concat(grouped("hyperloglog", uniques), grouped("bf", filters), grouped("cms", counts), grouped("topk", tops))
}

// A united is the PFADDs of a cycle to one key that are one delta: the store says of each item whether it was
// new, so each caller has its own reply.
type united struct {
	delta  int32
	n      uint8                          // items
	hashes [sketch.UniquesToldMost]uint64 // of the items, each once, in the order in which they came
	at     [sketch.UniquesToldMost]uint8  // the bit of each in the answer
}

// keptUnited is how many of these a cycle keeps room for.
const keptUnited = 1 << 10

// A visit is the reply to one PFADD: whether one of some items of a united was new.
type visit struct {
	united int32
	first  bool   // it may have made the sketch
	mine   uint64 // the items that nobody before it has asked for
}

func planPFAdd(c *cycle, _ *session, args [][]byte) (encode, error) {
	if len(c.deltas) != c.unitedTo { // Something else came between.
		clear(c.unions)
	}
	items := args[2:]
	few := len(items) <= sketch.UniquesToldMost && !c.whole
	if few && len(c.entries) < cycleCommandsMax {
		if u, is := c.unions[textOf(args[1])]; is && int(c.united[u].n)+len(items) <= sketch.UniquesToldMost {
			c.join(u, items, false)
			return nil, nil
		}
	}
	if c.crammed(1) || c.asked > askedBytesMax && !c.whole {
		return nil, errFull
	}
	d, err := c.delta(store.OpMerge, args[1])
	if err != nil {
		return nil, err
	}
	d.Event = &store.Event{Part: store.Object}
	c.unitedTo = len(c.deltas)
	c.db.Port().FoundText() // What comes after it may meet the sketch.
	if !few {
		delete(c.unions, d.Cell.Key)
		d.Event.Bytes = keyspace.UniquesAsk(items)
		c.asked += len(d.Event.Bytes)
		c.encoded(encodePFAdd, len(c.deltas)-1)
		return nil, nil
	}
	if c.unions == nil {
		c.unions = make(map[string]int32)
	}
	u := int32(len(c.united))
	c.unions[d.Cell.Key] = u
	c.united = append(c.united, united{delta: int32(len(c.deltas) - 1)})
	c.join(u, items, true)
	return nil, nil
}

// askedBytesMax is how much a cycle asks of sketches before the next one begins: what is asked counts towards what
// a batch may have.
const askedBytesMax = store.BatchBytesMax / 4

// join adds items to those that are asked for together. The first of a key may make the sketch.
func (c *cycle) join(at int32, items [][]byte, first bool) {
	u, v := &c.united[at], visit{united: at, first: first}
	for _, item := range items {
		hash := sketch.Hash(textOf(item))
		if !slices.Contains(u.hashes[:u.n], hash) {
			v.mine |= 1 << u.n
			u.hashes[u.n] = hash
			u.n++
			c.asked += int(unsafe.Sizeof(hash))
		}
	}
	c.entries = append(c.entries, entry{kind: visited, at: u.delta, n: 1, nth: int32(len(c.visits))})
	c.visits = append(c.visits, v)
}

// visited replies to a PFADD by what the store has answered to all of its key.
func (c *cycle) visited(e *encoder, v *visit, r *store.Result) {
	switch {
	case r.Outcome == store.Unmet:
		e.fail(string(errNotUniques))
	case !refusal(e, r):
		e.flag(v.first && !r.Existed || c.united[v.united].changed(v.mine, uint64(r.After)))
	}
}

// changed reports whether one of some items was new, by the answer of the store.
func (u *united) changed(mine, fresh uint64) bool {
	for ; mine != 0; mine &= mine - 1 {
		if fresh>>u.at[bits.TrailingZeros64(mine)]&1 != 0 {
			return true
		}
	}
	return false
}

// unite has the deltas of a cycle ask for what came together.
func (c *cycle) unite() {
	if len(c.united) == 0 {
		return
	}
	asks := make([]byte, 0, c.asked+8*len(c.united)) // some more than that is; the batch has views of it
	for i := range c.united {
		u := &c.united[i]
		if int(u.delta) >= len(c.deltas) { // It was taken back: see trim.
			continue
		}
		from := len(asks)
		asks = sketch.AppendUniqueRequestAt(asks, sketch.PrecisionDefault, u.hashes[:u.n], u.at[:])
		c.deltas[u.delta].Event.Bytes = asks[from:len(asks):len(asks)]
	}
	clear(c.unions)
	c.unitedTo = -1
}

// unions are how many items sketches had together, by their keys: as long as none of them has another version, they have
// as many.
type unions struct {
	mu  sync.Mutex
	all map[string]unionOf
}

type unionOf struct {
	versions []uint64
	n        int64
}

const (
	unionsMax     = 1024 // then all are forgotten
	unionKeysMax  = 64
	unionNamesMax = 4 << 10 // bytes
)

func (u *unions) get(name string, versions []uint64) (n int64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	has, ok := u.all[name]
	return has.n, ok && slices.Equal(has.versions, versions)
}

func (u *unions) put(name string, versions []uint64, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) >= unionsMax || u.all == nil {
		u.all = make(map[string]unionOf)
	}
	u.all[name] = unionOf{versions, n}
}

// versionsOf returns the versions of the sketches that keys hold, nil if they hold something else.
func (s *session) versionsOf(ctx context.Context, keys []string) []uint64 {
	var room [unionKeysMax]store.Value
	values := room[:len(keys)]
	if !s.db.Port().Peek(keys, values) && s.db.Port().Values(ctx, keys, values) != nil {
		return nil // Counting says why.
	}
	versions := make([]uint64, len(keys))
	for i := range values {
		if versions[i] = values[i].Version; values[i].Exists && !values[i].IsObject() {
			return nil
		}
	}
	return versions
}

// pfCount counts what sketches have together, if it is not known.
func pfCount(ctx context.Context, s *session, args [][]byte) error {
	keys := make([]string, len(args)-1)
	room := append([]byte(s.db.Port().Namespace()), '/')
	for i, key := range args[1:] {
		if err := checkKey(key); err != nil {
			return err
		}
		keys[i] = string(key)
		room = append(binary.AppendUvarint(room, uint64(len(key))), key...)
	}
	name := string(room)
	if len(keys) > unionKeysMax || len(name) > unionNamesMax {
		return textCommand(ctx, s, args)
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	before := s.versionsOf(ctx, keys)
	if before != nil {
		if n, ok := s.d.unions.get(name, before); ok {
			s.integer(n)
			return nil
		}
	}
	each, err := distinct(slices.Clone(keys))
	if err != nil {
		return err
	}
	var r keyspace.Reply
	if err := s.db.Port().Text(ctx, each, nil, func(space *keyspace.Space) error {
		r = space.Do(args)
		return nil
	}); err != nil {
		return err
	}
	if before != nil && r.Kind == keyspace.Number && slices.Equal(before, s.versionsOf(ctx, keys)) {
		s.d.unions.put(name, before, r.N)
	}
	s.answerText(&r)
	return nil
}

// encodePFAdd replies whether the sketch has changed.
func encodePFAdd(e *encoder, results []store.Result) {
	switch r := &results[0]; {
	case r.Outcome == store.Unmet:
		e.fail(string(errNotUniques))
	case !refusal(e, r):
		e.flag(r.Before != 0)
	}
}
