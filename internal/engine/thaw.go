package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// A checkpoint freezes all bundles when it begins: events are bundled anew from then on. It
// adds what is frozen to the rows of the parts while it writes them, in the order of the
// rows, so that parts which nobody reads never have a slot in memory.
//
// For a reader the base of a part is its row and what is frozen of it. When the checkpoint
// is published the row has both, and what is frozen is gone, at one moment: so a part that
// is unread, or not in memory, stays the same. A part whose value is known in memory does
// not look at its row any more. So what is frozen of it is thawed before: it is added to
// the slot, and a bit in the version of the bundle says so.

const (
	// thawBytes is what a frozen bundle takes, besides its slot and its owner's key, when it
	// is saved, and thawPartBytes what each of its parts takes.
	thawBytes     = 48
	thawPartBytes = 4
)

// freeze hands all bundles to a checkpoint that begins.
func (e *Engine) freeze(c *checkpoint) {
	vs := &e.views
	c.bundleBytes, c.bundleAmount = vs.bytes, vs.amount
	vs.frozen, vs.slots, vs.bytes = vs.slots, slotSet{}, 0
	c.afar, vs.afar = vs.afar, nil
	vs.turn++
	vs.renew()
}

// isThawing reports whether what is frozen may be added to parts: when it is durable. Then
// no reader asks for what a bundle was before.
func (e *Engine) isThawing() bool {
	return e.save != nil && e.views.frozen.count > 0 && e.log.Synced() >= e.save.frame.ID
}

// isFreezing reports whether a decision on a part has to wait: what is frozen of it is not
// durable yet.
func (e *Engine) isFreezing(part store.Part, p *plan) bool {
	if e.save == nil || e.views.frozen.count == 0 || e.isThawing() {
		return false
	}
	return slices.ContainsFunc(e.views.parts[part], func(at place) bool {
		return at.turn != e.views.turn && e.bundleAt(at, p.hash, p.slot) != 0
	})
}

// thaw takes what is frozen of a part out of its bundles, if it may be.
func (e *Engine) thaw(id uint32) (sum int64, is bool) {
	key := e.cells.keyOf(id)
	if !e.isThawing() || !isPart(key) {
		return 0, false
	}
	c, p, _ := decodePart(key)
	places := e.views.parts[p]
	if len(places) == 0 {
		return 0, false
	}
	own := appendCell(nil, c)
	hash := xxh3.HashSeed(own, e.id.seed())
	cell := e.cells.find(uint32(hash), own)
	if cell == 0 {
		return 0, false
	}
	for _, at := range places {
		if at.turn == e.views.turn {
			continue
		}
		if id := e.bundleAt(at, hash, cell); id != 0 && e.cells.slot(id).meta.state() == present {
			sum, is = sum+e.take(id, at.bit), true
		}
	}
	return sum, is
}

// take takes the share of a part out of a frozen bundle.
func (e *Engine) take(id uint32, bit uint64) int64 {
	s := e.cells.slot(id)
	s.meta = s.meta.withVersion(s.meta.version() | bit)
	return s.value
}

// thawPart thaws a part whose value is known.
func (e *Engine) thawPart(id uint32) {
	if e.cells.slot(id).meta.state() == unread {
		return // it is over what is frozen
	}
	if sum, is := e.thaw(id); is {
		e.addThawed(id, sum)
	}
}

// addThawed adds what was frozen of a part to its slot. It was there all the time, so what
// the part was before changes too.
func (e *Engine) addThawed(id uint32, sum int64) {
	s := e.cells.slot(id)
	e.preserve(id, s)
	for u := e.undo.at(s.undo, id); u != nil; u = e.undo.at(u.prev, id) {
		u.value, u.meta = u.value+sum, u.meta.withState(present)
	}
	s.value, s.meta = s.value+sum, s.meta.withState(present)
	e.keepThawed(id)
}

// keepThawed keeps a part in memory that has what its row will have.
func (e *Engine) keepThawed(id uint32) {
	e.cells.slot(id).meta |= saving
	e.save.thawed.add(id)
}

// thawAll thaws the parts whose value is known. Those that become known from now on are
// thawed then.
func (e *Engine) thawAll(c *checkpoint) {
	if e.views.frozen.count == 0 {
		return
	}
	var room [lockedCells]uint32
	for from, more := uint32(0), true; more; c.pace.breathe() {
		e.mu.Lock()
		ids := e.parts.some(from, room[:])
		for _, id := range ids {
			e.thawPart(id)
			from = id + 1
		}
		e.mu.Unlock()
		more = len(ids) > 0
		c.pace.yield()
	}
}

// bundles are what is frozen, as it is saved.
type bundles struct {
	all    []saved // slot: where the owner is; version: of of; value
	owners owners
	of     []*view
	groups []*group
	copied bool
	frees  []func()
}

// A group is all parts that bundles are added to whose rows begin alike: in it they are in
// the order of their owners.
type group struct {
	lead  []byte // the key of a part up to its owner
	space int    // bytes of an owner that are its namespace
	rests map[uint64][]store.Part
	list  []uint32 // bundles that have such parts
}

// owners are the cells of bundles: the namespace, and what is in the row of each part.
type owners struct{ b []byte }

const (
	ownerUnit     = 8 // so that a number reaches far
	ownerBytesMax = 2 + 1 + store.NamespaceBytesMax + store.KeyBytesMax + 1 + 2 + ownerUnit
)

// ready makes room for some more, for one who will hold the lock.
func (o *owners) ready(n int) { o.b = slices.Grow(o.b, n*ownerBytesMax) }

func (o *owners) add(cell []byte) uint32 {
	for len(o.b)%ownerUnit != 0 {
		o.b = append(o.b, 0)
	}
	from := len(o.b)
	o.b = append(o.b, 0, 0)
	c := decodeCell(cell)
	space := c.Namespace
	if of, _, ok := store.ShardOf(c); ok {
		space = of.Namespace
	}
	_, o.b = store.AppendRowOwner(appendNamespace(o.b, space), c)
	binary.LittleEndian.PutUint16(o.b[from:], uint16(len(o.b)-from-2))
	return uint32(from / ownerUnit)
}

func (o *owners) keyOf(id uint32) []byte {
	b := o.b[int(id)*ownerUnit:]
	return b[2 : 2+binary.LittleEndian.Uint16(b)]
}

func (o *owners) fetch(some []saved) {
	for i := range some {
		prefetch(unsafe.Pointer(&o.b[int(some[i].slot)*ownerUnit]))
	}
}

// copyBundles copies what is frozen, and puts it in the order of its owners.
func (e *Engine) copyBundles(c *checkpoint) {
	b := &c.bundles
	if b.copied {
		return
	}
	numbers := map[*view]uint64{}
	all, free := room[saved](e.views.frozen.count)
	b.frees = append(b.frees, free)
	ready(all, c.pace)
	some := make([]uint32, lockedCells)
	for ids := e.views.frozen.some(0, some); len(ids) > 0; ids = e.views.frozen.some(ids[len(ids)-1]+1, some) {
		b.owners.ready(len(ids))
		e.mu.Lock()
		for _, id := range ids {
			s := e.cells.slot(id)
			if s.meta.state() != present {
				continue // it was settled
			}
			owner, v := e.bundleOf(id)
			n, is := numbers[v]
			if !is {
				n = uint64(len(b.of))
				numbers[v], b.of = n, append(b.of, v)
			}
			all = append(all, saved{slot: b.owners.add(e.cells.keyOf(owner)), value: s.value, meta: meta(0).withVersion(n)})
		}
		e.mu.Unlock()
		c.pace.yield()
		c.pace.breathe()
	}
	b.all = all
	sortSaved(b.all, &b.owners, c.pace)
	b.group(c.fences)
	b.copied = true
}

// group finds the groups of all bundles, and the bundles of all groups.
func (b *bundles) group(f *fences) {
	many := make([]int, len(b.of)) // bundles of a view
	for i := range b.all {
		many[b.all[i].meta.version()]++
	}
	found := map[string]*group{}
	of := make([][]*group, len(b.of))
	sizes := map[*group]int{}
	list := 0
	for n, v := range b.of {
		space := appendNamespace(nil, v.namespace)
		for _, p := range v.parts {
			lead, rest := p.Row()
			key := slices.Concat([]byte{nsPart}, space, []byte(lead))
			g := found[string(key)]
			if g == nil {
				g = &group{lead: key, space: len(space), rests: map[uint64][]store.Part{}}
				found[string(key)] = g
			}
			if g.rests[uint64(n)] == nil {
				of[n] = append(of[n], g)
				sizes[g] += many[n]
				list += many[n]
			}
			g.rests[uint64(n)] = append(g.rests[uint64(n)], rest)
		}
	}
	lists, free := room[uint32](list)
	b.frees = append(b.frees, free)
	lists = lists[:list]
	for _, key := range slices.Sorted(maps.Keys(found)) {
		g := found[key]
		n := sizes[g]
		g.list, lists = lists[:0:n], lists[n:]
		if !f.gone(g.lead) { // else it goes with its epoch
			b.groups = append(b.groups, g)
		}
	}
	for i := range b.all {
		for _, g := range of[b.all[i].meta.version()] {
			g.list = append(g.list, uint32(i))
		}
	}
}

// each calls f for each part that is added to, in the order of their keys, with what is
// added to it.
func (b *bundles) each(f func(key []byte, sum int64) error) error {
	type addend struct {
		rest store.Part
		n    int64
	}
	var addends []addend
	var key []byte
	for _, g := range b.groups {
		for i := 0; i < len(g.list); {
			first := b.all[g.list[i]].slot
			owner := b.owners.keyOf(first)
			addends = addends[:0]
			for ; i < len(g.list); i++ {
				s := &b.all[g.list[i]]
				if s.slot != first && !bytes.Equal(b.owners.keyOf(s.slot), owner) {
					break
				}
				for _, rest := range g.rests[s.meta.version()] {
					addends = append(addends, addend{rest, s.value})
				}
			}
			if len(addends) > 1 {
				slices.SortFunc(addends, func(a, b addend) int { return cmp.Compare(a.rest, b.rest) })
			}
			key = append(append(key[:0], g.lead...), owner[g.space:]...)
			own := len(key)
			for j := 0; j < len(addends); {
				rest, sum := addends[j].rest, int64(0)
				for ; j < len(addends) && addends[j].rest == rest; j++ {
					sum += addends[j].n
				}
				key = append(key[:own], rest...)
				if err := f(key, sum); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// A merger adds what is frozen to the rows of parts, or to their copies, in the order of
// their keys.
type merger struct {
	e       *Engine
	c       *checkpoint
	keys    *table
	copies  run // from the next one on
	fetched int // copies whose keys were fetched
	rows    *pebble.Iterator
	has     bool // it is at a row
	over    bool // there are no more rows
	row     []byte
}

// base returns what a part is without what is frozen of it, and passes its copy.
func (m *merger) base(key []byte) (int64, error) {
	if m.copies.from < m.copies.to {
		s := &m.c.copies[m.copies.from]
		if bytes.Equal(m.keys.keyOf(s.slot), key) {
			m.copies.from++
			if s.meta.state() != present {
				return 0, nil
			}
			return s.value, nil
		}
	}
	m.row = appendRowKey(m.row[:0], key)
	if m.has && bytes.Compare(m.rows.Key(), m.row) < 0 {
		m.has = m.rows.Next() // it often is the next
		m.over = !m.has
	}
	if !m.over && (!m.has || bytes.Compare(m.rows.Key(), m.row) < 0) {
		m.has = m.rows.SeekGE(m.row)
		m.over = !m.has
	}
	if !m.has || !bytes.Equal(m.rows.Key(), m.row) {
		return 0, diskErrorOrNil(m.rows.Error())
	}
	r, err := decodeBase(m.rows, key)
	return r.value, err
}

// isAfar notes that a part is far from 0, and perhaps near the ends of int64. The rows that
// tell of that are written already: it is among those of the next checkpoint. Until then a
// crash would forget it, and nothing is lost: it is beyond nearLimit by less than
// bundledMax, and the next checkpoint that adds to it finds it again.
func (e *Engine) isAfar(key []byte, sum int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.views.far = true
	if isNear(sum) {
		e.near.add(e.hashOf(key))
		e.views.afar = append(e.views.afar, bytes.Clone(key))
	}
}

// free gives the memory back.
func (b *bundles) free() {
	for _, free := range b.frees {
		free()
	}
	*b = bundles{}
}

// dropFrozen removes the bundles of a checkpoint that is published, and their views.
func (e *Engine) dropFrozen(c *checkpoint) {
	vs := &e.views
	e.mu.Lock()
	vs.amount -= c.bundleAmount
	ids := uint32(len(vs.all))
	e.mu.Unlock()
	e.some(c.pace, &vs.frozen, func(ids []uint32) {
		for _, id := range ids {
			e.cells.remove(id)
		}
	})
	e.mu.Lock()
	vs.frozen = slotSet{}
	e.mu.Unlock()
	for from := uint32(1); from < ids; from += lockedCells {
		e.mu.Lock()
		for id := from; id < min(from+lockedCells, ids); id++ {
			if v := vs.all[id]; v != nil && v.turn != vs.turn {
				vs.drop(v)
			}
		}
		e.mu.Unlock()
		c.pace.yield()
		c.pace.breathe()
	}
}

// drop forgets a view, and what else is over of its parts.
func (vs *views) drop(v *view) {
	vs.all[v.id], vs.free = nil, append(vs.free, v.id)
	for _, p := range v.parts {
		left := slices.DeleteFunc(vs.parts[p], func(at place) bool { return at.turn != vs.turn })
		if vs.parts[p] = left; len(left) == 0 {
			delete(vs.parts, p)
		}
	}
}
