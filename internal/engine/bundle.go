package engine

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// Most events add what they add to the total to all parts of a plan too. What was added
// under one plan to one counter is kept as one number, a bundle, in a slot of the table
// of cells: so an event changes two slots, however many parts its plan has. A checkpoint
// freezes all bundles, and adds them to the rows of their parts (see thaw.go). A bundle is
// settled, which is adding it to its parts in memory, if a decision looks at one of them.
// Readers add up a part and the bundles that it is in.

// A view is a plan whose events may be bundled.
type view struct {
	id        uint32 // in the keys of bundles
	turn      uint64 // of the views that it is of: see views.turn
	namespace string // of its counters
	parts     []store.Part
	book      int64  // a counter whose book is at least that has no other riders
	keeps     int64  // the book of a counter after an event
	weight    uint64 // of the plan, by which bundles are found; odd
	first     uint32 // the last bundle that was made; see nextBundle

	plan   *store.Plan // or nil
	record string      // of replay, or ""
	named  uint64      // the last frame that names it
	number uint64      // its number there
	judged uint64      // by which floors its parts are kept: see fences.rises

	// The sum of what was applied under the plan, plain and with each change multiplied by the
	// hash of its cell, since the last checkpoint began. It goes into the tallies then.
	sum, check uint64
	loose      share   // of the parts without an epoch: they go into marks, at once
	epochs     []share // of the others
}

// A share is what a tally has of the events of a plan: parts of them, and the sum of
// their weights.
type share struct {
	epoch  string
	parts  uint64
	weight uint64
}

// views are the plans that bundles are of.
type views struct {
	of     map[*store.Plan]*view
	named  map[string]*view // those of replay, by the record of the plan and the namespace
	all    []*view          // by id, from 1 on; nil where one is gone
	free   []uint32         // ids of those
	parts  map[store.Part][]place
	last   *view // and its plan
	plan   *store.Plan
	frame  uint64 // in which plans were last named
	names  uint64 // how many of them
	slots  slotSet
	bytes  int64    // that its bundles take, and will take when they are saved
	amount int64    // that was bundled and is not on disk, either way
	far    bool     // none are made any more: a part is near the ends of int64
	afar   [][]byte // parts that the next checkpoint has to call near
	turn   uint64
	frozen slotSet // bundles of the turn before, which the checkpoint under way saves
	logged struct {
		slot, view uint32
		frame      uint64
		end        uint64
	}
}

// A place is that of a part among those of a view.
type place struct {
	*view
	bit uint64 // the part's, in the version of a frozen bundle
}

func newViews() views {
	return views{of: map[*store.Plan]*view{}, named: map[string]*view{}, parts: map[store.Part][]place{}, all: []*view{nil}}
}

const (
	nsBundle    = 253 // + slot 4, view 4, hash of the cell 8: the key of a bundle
	bundleBytes = 17
	viewsMax    = 1 << 16
	// bundlePartsMax is how many parts a bundle may have: a bit for each is in the version
	// of its slot.
	bundlePartsMax = 56
	// bundledMax is how much is bundled at most: with it no part that is not far
	// leaves int64.
	bundledMax = 1 << 60
)

// bundleServes is what an event may need to be bundled.
const bundleServes = store.NeedRiders | store.NeedBook | store.NeedValue | store.NeedToken

// isPlain reports whether an event may be bundled, by what it asks for. An add of 0 makes
// no part exist, and a bundle does.
func isPlain(d *store.Delta) bool {
	return d.N != 0 && d.N <= blindMax && d.N >= -blindMax &&
		d.Event.Plan != nil && len(d.Event.Riders) == 0 && d.Needs()&^bundleServes == 0
}

// isViewed reports whether bundles may have parts of a kind. There are many of other kinds,
// such as members, of which none has to be thawed.
func isViewed(k store.PartKind) bool {
	switch k {
	case store.PartOutside, store.PartDim, store.PartWindow, store.PartWindowDim:
		return true
	default:
		return false
	}
}

// viewOf returns the view of an event, or nil if it can't be bundled.
func (e *Engine) viewOf(d *store.Delta) *view {
	vs := &e.views
	if vs.far || !isPlain(d) {
		return nil
	}
	v := vs.last
	if d.Event.Plan != vs.plan {
		if v = vs.of[d.Event.Plan]; v == nil {
			if v = e.newView(d); v == nil {
				return nil
			}
		}
		vs.last, vs.plan = v, d.Event.Plan
	}
	if v.namespace != d.Cell.Namespace {
		if of, _, ok := store.ShardOf(d.Cell); !ok || of.Namespace != v.namespace {
			return nil
		}
	}
	return v
}

// newView makes the view of an event's plan, or returns nil.
func (e *Engine) newView(d *store.Delta) *view {
	if !d.Event.Plan.Sums() || len(e.views.all)-len(e.views.free) > viewsMax {
		return nil
	}
	v := &view{namespace: d.Cell.Namespace, plan: d.Event.Plan}
	if of, _, ok := store.ShardOf(d.Cell); ok {
		v.namespace = of.Namespace
	}
	for i := range d.Event.Len() {
		if r := d.Event.Rider(i); r.Amount == store.AmountApplied {
			if v.parts = append(v.parts, r.Part); !isViewed(r.Part.Kind()) {
				return nil
			}
		} else {
			v.book = max(v.book, r.N, r.When.N)
			v.keeps = max(v.keeps, r.N)
		}
	}
	if len(v.parts) > bundlePartsMax {
		return nil
	}
	e.addView(v)
	e.views.of[d.Event.Plan] = v
	return v
}

// addView gives a view its place.
func (e *Engine) addView(v *view) {
	vs := &e.views
	if n := len(vs.free); n > 0 {
		v.id, vs.free = vs.free[n-1], vs.free[:n-1]
	} else {
		v.id, vs.all = uint32(len(vs.all)), append(vs.all, nil)
	}
	vs.all[v.id], v.turn = v, vs.turn
	v.named, v.judged = math.MaxUint64, math.MaxUint64 // in no frame, by no floors
	v.weight = xxh3.HashSeed(binary.LittleEndian.AppendUint32(nil, v.id), e.id.seed()) | 1
	shares := map[string]*share{}
	for i, p := range v.parts {
		vs.parts[p] = append(vs.parts[p], place{v, 1 << i})
		weight := xxh3.HashStringSeed(string(p), e.id.seed()) | 1
		to := &v.loose
		if p.Kind()&store.PartRetained != 0 {
			epoch := string(append(appendNamespace(nil, v.namespace), p[:epochBytes]...))
			if to = shares[epoch]; to == nil {
				to = &share{epoch: epoch}
				shares[epoch] = to
			}
		}
		to.parts++
		to.weight += weight
	}
	for _, s := range shares {
		v.epochs = append(v.epochs, *s)
	}
}

// count enters an event of a view.
func (v *view) count(m *mark, hash uint64, n int64) {
	v.sum += uint64(n)
	v.check += uint64(n) * (hash | 1)
	m.tally.sum += uint64(n) * v.loose.parts
	m.tally.check += uint64(n) * (hash | 1) * v.loose.weight
}

// tallyViews enters what was applied under plans in the tallies of epochs.
func (e *Engine) tallyViews() {
	for _, v := range e.views.all {
		if v != nil {
			e.tallyView(v)
		}
	}
}

func (e *Engine) tallyView(v *view) {
	if v.sum == 0 && v.check == 0 {
		return
	}
	for _, s := range v.epochs {
		t := e.epochs.of([]byte(s.epoch))
		t.sum += v.sum * s.parts
		t.check += v.check * s.weight
	}
	v.sum, v.check = 0, 0
}

// bundleKey returns the key of the bundle of a cell, which has this hash. A bundle that
// is empty does not keep its cell in memory: so the hash is there to tell another cell
// that got its slot.
func bundleKey(cell, view uint32, hash uint64) (key [bundleBytes]byte) {
	key[0] = nsBundle
	binary.LittleEndian.PutUint32(key[1:], cell)
	binary.LittleEndian.PutUint32(key[5:], view)
	binary.LittleEndian.PutUint64(key[9:], hash)
	return key
}

// bundleHash returns the hash by which the bundle of a cell, which has this hash, is
// found.
func (v *view) bundleHash(cell uint64) uint32 { return uint32(placed((cell | 1) * v.weight)) }

// bundle returns the slot of the bundle of a cell, or 0.
func (e *Engine) bundle(v *view, hash uint64, cell uint32) uint32 {
	key := bundleKey(cell, v.id, hash)
	return e.cells.find(v.bundleHash(hash), key[:])
}

// newBundle makes the bundle of a cell. It stays in memory until it is on disk.
func (e *Engine) newBundle(v *view, hash uint64, cell uint32) uint32 {
	key := bundleKey(cell, v.id, hash)
	id := e.cells.insert(v.bundleHash(hash), nil, key[:])
	s := e.cells.slot(id)
	s.undo = e.undo.tail - 1 // none
	s.meta = absent | saving
	binary.LittleEndian.PutUint32(s.short[bundleBytes:], v.first)
	v.first = id
	e.views.slots.add(id)
	e.views.bytes += slotBytes + int64(thawBytes+len(v.parts)*thawPartBytes+len(e.cells.keyOf(cell)))
	return id
}

// nextBundle returns the bundle of the same view that was made before one, or 0. It stands
// behind the key.
func (e *Engine) nextBundle(id uint32) uint32 {
	return binary.LittleEndian.Uint32(e.cells.slot(id).short[bundleBytes:])
}

// fetchEvents has the memory fetched in which the bundles of some events are, or the parts that
// lead them, and weighs these.
func (e *Engine) fetchEvents(deltas []store.Delta, group []plan) {
	var hashes [groupMax]uint32
	n := 0
	for i := range deltas {
		d, p := &deltas[i], &group[i]
		if d.Event == nil {
			continue
		}
		if d.Event.Part != "" {
			p.weight = e.weight(p.hash, d.Event.Part)
			hashes[n] = uint32(placed(p.weight))
		} else if v := e.viewOf(d); v != nil {
			hashes[n] = v.bundleHash(p.hash)
		} else {
			continue
		}
		prefetch(unsafe.Pointer(e.cells.head(hashes[n])))
		n++
	}
	for _, hash := range hashes[:n] {
		if id := *e.cells.head(hash); id != 0 {
			prefetch(unsafe.Pointer(e.cells.slot(id)))
		}
	}
}

// planBundle returns whether an event can be bundled, as far as is known before it is
// decided, and the level that its bundle needs. The book of the counter is looked at until
// the bundle has something: it does not fall, or views.renew is called.
func (e *Engine) planBundle(v *view, d *store.Delta, p *plan, level store.Durability, n *needs) (store.Durability, bool) {
	id := e.bundle(v, p.hash, p.slot)
	if id == 0 || e.cells.slot(id).meta.state() == absent {
		book, _ := e.locatePart(p.hash, d.Cell, partBook)
		s := e.cells.slot(book)
		s.meta |= recent
		if s.meta.state() == unread {
			n.cell(e.cells.keyOf(book))
			return level, true
		}
		if !v.mayHave(e.cells.slot(p.slot), s) {
			return level, false
		}
		level = e.levelOn(s, book, level)
		if id == 0 {
			id = e.newBundle(v, p.hash, p.slot)
		}
	}
	return e.levelOn(e.cells.slot(id), id, level), true
}

// mayHave reports whether a counter, by its own slot and that of its book, has nothing that
// views lack: it was written under the view's book, or it has no book and is 0.
func (v *view) mayHave(own, book *slot) bool {
	switch book.meta.state() {
	case present:
		return book.value >= v.book
	case absent:
		return v.keeps > 0 && own.meta.state() != unread && own.value == 0
	default:
		return false
	}
}

// bundled adds an event to its cell and its bundle. It reports false if something is in
// the way: then nothing was done.
func (c *change) bundled(v *view, d *store.Delta, p *plan) (res store.Result, ok bool) {
	e := c.e
	s := e.cells.slot(p.slot)
	state, old, n := s.meta.state(), s.value, d.N
	changed := s.meta&(dirty0|dirty1|saving) != 0
	switch {
	case s.meta&hasExtra != 0 && !e.takes(d, p.slot), state == unread && d.Want, state != unread && !inRange(old, n),
		(state == absent || state == unread && !changed) && e.names.full(e.cells.keyOf(p.slot), 1, &e.o.Limits):
		return res, false
	}
	id := e.bundle(v, p.hash, p.slot)
	if id == 0 || e.views.amount+max(n, -n) > bundledMax {
		return res, false
	}
	book := uint32(0) // of a counter that is new
	if e.cells.slot(id).meta.state() == absent {
		book, _ = e.locatePart(p.hash, d.Cell, partBook)
		at := e.cells.slot(book)
		if !v.mayHave(s, at) {
			return res, false
		}
		if at.meta.state() == present {
			book = 0
		}
	}
	cell := e.cells.keyOf(p.slot)
	e.nameView(c, v)
	res.Outcome, res.Version = store.Applied, e.version(c.f.Pos())
	e.logEvent(c, v, p.slot, cell, n)
	c.mark.tally.count(p.hash, n)
	v.count(c.mark, p.hash, n)
	next := state
	if state == absent {
		next = present
	}
	e.put(p.slot, old+n, next, res.Version, c.f.ID, c.level)
	e.addBundle(id, n, c.f.ID, e.levelOn(e.cells.slot(id), id, c.level))
	if book != 0 {
		events := events{change: c, plan: *p}
		events.PutPart(d.Cell, partBook, store.Content{N: v.keeps, Exists: true})
	}
	if d.Want {
		res.Before, res.After, res.Existed = old, old+n, state == present
	}
	return res, true
}

// nameView logs a plan, once for each frame.
func (e *Engine) nameView(c *change, v *view) {
	vs := &e.views
	if vs.frame != c.f.ID {
		vs.frame, vs.names = c.f.ID, 0
	}
	if v.named != c.f.ID {
		v.named, v.number = c.f.ID, vs.names
		vs.names++
		c.f.Payload = appendPlan(c.f.Payload, v.parts)
	}
}

// logEvent logs an event that adds to the parts of a plan. When it follows one of the same
// plan to the same cell, it is two bytes.
func (e *Engine) logEvent(c *change, v *view, id uint32, cell []byte, n int64) {
	l := &e.views.logged
	b := c.f.Payload
	if l.slot == id && l.view == v.id && l.frame == c.f.ID && l.end == uint64(c.f.Pos()) {
		b = append(b, recEventAgain)
	} else {
		b = binary.AppendUvarint(appendCellRecord(b, recEvent, cell), v.number)
		l.slot, l.view, l.frame = id, v.id, c.f.ID
	}
	c.f.Payload = binary.AppendVarint(b, n)
	l.end = uint64(c.f.Pos())
}

// addBundle adds to a bundle.
func (e *Engine) addBundle(id uint32, n int64, frame uint64, level store.Durability) {
	e.views.amount += max(n, -n)
	s := e.cells.slot(id)
	e.undoBundle(id, s, frame, level)
	s.value, s.meta = s.value+n, s.meta.withState(present)
}

// undoBundle keeps what a bundle is for readers, who see it until a frame has its level.
func (e *Engine) undoBundle(id uint32, s *slot, frame uint64, level store.Durability) {
	if level <= store.Memory {
		return
	}
	if u := e.undo.at(s.undo, id); u == nil || u.frame != frame || u.level != level {
		n, u := e.undo.push(e.log)
		*u = undo{frame: frame, value: s.value, meta: s.meta, slot: id, prev: s.undo, level: level}
		s.undo = n
	}
}

// settle adds a bundle to its parts. Readers see the one or the other: all change with
// one frame, at one level.
func (e *Engine) settle(id uint32, frame uint64, level store.Durability) {
	s := e.cells.slot(id)
	if s.meta.state() == absent {
		return
	}
	owner, v := e.bundleOf(id)
	cell := e.cells.keyOf(owner)
	hash, c := xxh3.HashSeed(cell, e.id.seed()), decodeCell(cell)
	level = e.levelOn(s, id, level)
	var room [store.EventRidersMax]uint32
	parts := room[:len(v.parts)]
	for i, p := range v.parts {
		parts[i], _ = e.locatePart(hash, c, p)
		level = e.levelOn(e.cells.slot(parts[i]), parts[i], level)
	}
	for _, part := range parts { // a part may be there twice
		has := e.content(part)
		has.N, has.Exists = has.N+s.value, true
		e.putPart(part, has, frame, level)
	}
	e.undoBundle(id, s, frame, level)
	s.value, s.meta = 0, s.meta.withState(absent)
}

// bundleOf returns the cell and the view of a bundle.
func (e *Engine) bundleOf(id uint32) (cell uint32, v *view) {
	key := e.cells.keyOf(id)
	return binary.LittleEndian.Uint32(key[1:]), e.views.all[binary.LittleEndian.Uint32(key[5:])]
}

// settlePart settles the bundles of a cell that a part is in. Those that are frozen are
// not: see thawPart.
func (e *Engine) settlePart(hash uint64, cell uint32, p store.Part, frame uint64, level store.Durability) {
	for _, at := range e.views.parts[p] {
		if at.turn != e.views.turn {
			continue
		}
		if id := e.bundle(at.view, hash, cell); id != 0 {
			e.settle(id, frame, level)
		}
	}
}

// inBundles returns what readers may see of a part in bundles, and whether it is in one.
func (e *Engine) inBundles(at *look, h *horizon) (sum int64, is bool) {
	places := e.views.parts[at.of.Part]
	if len(places) == 0 {
		return 0, false
	}
	key := appendCell(e.cellBuf[:0], at.of.Cell)
	e.cellBuf = key
	cell := e.cells.find(uint32(at.cell), key)
	if cell == 0 {
		return 0, false
	}
	for _, p := range places {
		if id := e.bundleAt(p, at.cell, cell); id != 0 {
			if n, m, _ := e.visible(id, h); m.state() == present {
				sum, is = sum+n, true
			}
		}
	}
	return sum, is
}

// bundleAt returns the slot of the bundle that has what is to be added to a part of a
// cell, or 0.
func (e *Engine) bundleAt(p place, hash uint64, cell uint32) uint32 {
	frozen := p.turn != e.views.turn
	if frozen && e.save == nil {
		return 0 // it is on disk
	}
	id := e.bundle(p.view, hash, cell)
	if frozen && e.cells.slot(id).meta.version()&p.bit != 0 {
		return 0 // it was added to the part (slot 0 is none, and has no bits)
	}
	return id
}

// renew has all bundles look at the books of their counters again, by making other ones.
func (vs *views) renew() {
	vs.of, vs.named = map[*store.Plan]*view{}, map[string]*view{}
	vs.last, vs.plan = nil, nil
}
