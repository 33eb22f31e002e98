package engine

import (
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// Parts are slots of the table of cells, and have rows of their own. What holds for
// cells holds for them, but they have no version, count for no limit, and are not in the
// filter of keys: an unread one may have a row. Bytes are in a map beside the table, as
// extras are.

// weight returns the hash of a part of a cell, which has this hash: what its value is
// multiplied with in tallies. It is a product, so that what a plan adds to many parts
// is added up once (see bundle).
func (e *Engine) weight(cell uint64, p store.Part) uint64 {
	return (cell | 1) * (xxh3.HashStringSeed(string(p), e.id.seed()) | 1)
}

// placed returns the hash by which a part of this weight is found. A weight is odd.
func placed(weight uint64) uint64 { return weight ^ weight>>32 }

// weightOf returns the weight of a cell or a part, by its key.
func (e *Engine) weightOf(key []byte) uint64 {
	if !isPart(key) {
		return xxh3.HashSeed(key, e.id.seed())
	}
	c, p, _ := decodePart(key)
	return e.weight(xxh3.HashSeed(appendCell(nil, c), e.id.seed()), p)
}

// hashOf returns the hash by which a cell or a part is found, by its key.
func (e *Engine) hashOf(key []byte) uint64 {
	if isPart(key) {
		return placed(e.weightOf(key))
	}
	return xxh3.HashSeed(key, e.id.seed())
}

// locatePart returns the slot of a part of a cell, and its weight.
func (e *Engine) locatePart(cell uint64, c store.Cell, p store.Part) (id uint32, weight uint64) {
	m := e.places.of(cell, p)
	if m != nil && m.removed == e.cells.removed && m.part == p && m.cell == c {
		return m.id, m.weight
	}
	weight = e.weight(cell, p)
	id = e.locateWeighed(weight, c, p)
	if m != nil {
		if m.cell != c {
			m.cell = store.Cell{Namespace: strings.Clone(c.Namespace), Key: strings.Clone(c.Key)}
		}
		m.part, m.removed, m.id, m.weight = p, e.cells.removed, id, weight
	}
	return id, weight
}

// locateWeighed is locatePart for a part whose weight is known.
func (e *Engine) locateWeighed(weight uint64, c store.Cell, p store.Part) uint32 {
	e.partBuf = appendPart(e.partBuf[:0], c, p)
	return e.locate(placed(weight), e.partBuf)
}

// locateOwned is locatePart for a part that an event of c changes: what many counters share is
// beside a lane.
func (e *Engine) locateOwned(cell uint64, c store.Cell, p store.Part) (id uint32, weight uint64) {
	if p.Kind().Shared() {
		c = p.Owner(c, 0)
		cell = xxh3.HashSeed(appendCell(nil, c), e.id.seed())
	}
	return e.locatePart(cell, c, p)
}

// places are where parts without names were found last. An event looks for each of its parts
// several times, and those of a hot counter have the same, while the parts that have names
// are many (BenchmarkReact).
type places [1 << placesBits]spot

const placesBits = 12

// A spot is the slot of a part, as long as no slot was removed since it was found.
type spot struct {
	cell    store.Cell
	part    store.Part
	removed uint64
	weight  uint64
	id      uint32
}

// of returns the spot of a part; nil if it has none.
func (ps *places) of(cell uint64, p store.Part) *spot {
	const head, epoch = 1 + 2 + 8, 4
	if n := len(p); n != head && n != head+epoch {
		return nil
	}
	// Parts of one counter differ in their kind, their view and the end of their position.
	h := cell ^ uint64(p[0])<<8 ^ uint64(p[2])<<3 ^ uint64(p[len(p)-1])
	return &ps[h*0x9e3779b97f4a7c15>>(64-placesBits)]
}

// content returns the newest value of a part. Of an unread one it is what was added to
// what nobody has looked at.
func (e *Engine) content(id uint32) store.Content {
	s := e.cells.slot(id)
	switch s.meta.state() {
	case absent:
		return store.Content{}
	case unread:
		return store.Content{N: s.value, Exists: s.meta&(dirty0|dirty1|saving) != 0}
	default:
	}
	c := store.Content{N: s.value, Exists: true}
	if s.meta&hasExtra != 0 {
		e.still(id)
		c.N, c.Bytes = s.value, e.blobs[id]
	}
	return c
}

// setBytes gives a part other bytes, or none. It is called after put, as setExtra is. Again
// is whether the part was changed since the last checkpoint began: what it had then is not
// saved, and takes no room any more.
func (e *Engine) setBytes(id uint32, bytes string, has, again bool) {
	s := e.cells.slot(id)
	if s.meta&hasExtra != 0 {
		e.blobBytes -= int64(len(e.blobs[id]))
		if again {
			e.putBytes -= int64(len(e.blobs[id]))
		}
		delete(e.live, id)
		if s.meta &^= hasExtra; !has {
			delete(e.blobs, id)
		}
	}
	if has {
		s.meta |= hasExtra
		e.blobs[id] = bytes
		e.blobBytes += int64(len(bytes))
		e.putBytes += int64(len(bytes))
	}
}

// putPart makes a part v, an unread one v over what it is over. Nobody sees it before what it builds on.
func (e *Engine) putPart(id uint32, v store.Content, frame uint64, level store.Durability) {
	s := e.cells.slot(id)
	next, again := present, s.meta&e.dirtyBit != 0
	switch {
	case !v.Exists:
		next = absent
	case s.meta.state() == unread:
		next = unread
	}
	e.put(id, v.N, next, 0, frame, e.levelOn(s, id, level))
	if v.N > nearLimit/2 || v.N < -nearLimit/2 {
		e.views.far = e.views.far || !kindOf(e.cells.keyOf(id)).HasBytes()
	}
	if s.meta&hasExtra != 0 || v.Exists && kindOf(e.cells.keyOf(id)).HasBytes() {
		e.setBytes(id, v.Bytes, v.Exists, again)
	}
}

// levelOn returns a level, or that of the change in a slot that is not as durable yet as
// it was asked to be, if that is stronger.
func (e *Engine) levelOn(s *slot, id uint32, level store.Durability) store.Durability {
	if u := e.undo.at(s.undo, id); u != nil && u.level > level && e.horizon().pending(u.frame, u.level) {
		return u.level
	}
	return level
}

// epochOf returns the part of a part's key that names its epoch; nil if it has none.
func epochOf(key []byte) []byte {
	n := partRow(key)
	if store.PartKind(key[n])&store.PartRetained == 0 {
		return nil
	}
	return key[1 : n+epochBytes]
}

const epochBytes = 1 + 2 + 4 // kind, view, number

// isEpoch reports whether a key is that of an epoch.
func isEpoch(key []byte) bool {
	r := reader{b: key}
	if len(key) > 0 && key[0] == nsOwn { // it may have parts too
		r.byte()
		s := r.bytes(3)
		return len(s) == 3 && store.PartKind(s[0])&store.PartRetained != 0 && len(r.b) == 4
	}
	r.shelf()
	r.epoch()
	return !r.bad && len(r.b) == 0
}

// An epochTally is the record of what was changed in an epoch of parts, apart from
// them. It outlives the epoch.
type epochTally struct {
	tally
	dirty bool
}

// tallies are found by the epoch's part of a part's key.
type tallies map[string]*epochTally

func (t tallies) of(epoch []byte) *epochTally {
	has := t[string(epoch)]
	if has == nil {
		has = &epochTally{}
		t[string(epoch)] = has
	}
	has.dirty = true
	return has
}

// countPart enters a change of a part in the tally of its epoch, or if it has none in
// that of the mark.
func (e *Engine) countPart(m *mark, id uint32, weight uint64, change int64) {
	if epoch := epochOf(e.cells.keyOf(id)); epoch != nil {
		e.epochs.of(epoch).cell(weight, change)
	} else {
		m.tally.cell(weight, change)
	}
}
