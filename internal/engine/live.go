package engine

import (
	"unsafe"

	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A sketch of uniques under a key of its own, the short way. A merge makes bytes of what was
// bytes, some thousand of them for a handful of items, and their number is made of all. So
// merges change them where they are, as long as nobody else has them, and the number follows
// when somebody asks: a decision, a reader, or the checkpoint that writes them. What the
// short way leaves is for decide.Event, which decides the same (TestLive plays one against
// the other).

// liveServes is what a merge may need to be decided the short way.
const liveServes = store.NeedOp | store.NeedValue | store.NeedPart | store.NeedRiders | store.NeedBytes

// isLive reports whether an event may be decided the short way, by what it asks for.
func isLive(d *store.Delta) bool {
	e := d.Event
	return d.Op == store.OpMerge && d.IsObject() && e.Plan == nil && len(e.Riders) == 0 && d.Needs()&^liveServes == 0
}

// live are the bytes of parts that nobody else has, by slot: they are those of
// Engine.blobs too, and may be changed. Their slots were changed since the last
// checkpoint began, and have the number of what they were before.
type live map[uint32][]byte

// still makes the bytes of a part ones that do not change any more, for somebody to have
// them, and gives them their number.
func (e *Engine) still(id uint32) {
	b, is := e.live[id]
	if !is {
		return
	}
	delete(e.live, id)
	s, key := e.cells.slot(id), e.cells.keyOf(id)
	n := kindOf(key).Number(b)
	e.countPart(e.marks.get(0), id, e.weightOf(key), n-s.value)
	s.value = n
}

// stillFirst is still for up to n parts.
func (e *Engine) stillFirst(n int) {
	for id := range e.live {
		if n--; n < 0 {
			return
		}
		e.still(id)
	}
}

// stillCells is how many parts get their number under one hold of the lock: some 40 µs.
const stillCells = 16

// stillSome is still for the parts there are, for one who does not hold the lock. Writers change some of
// them again meanwhile: few are left for the moment in which a checkpoint begins.
func (e *Engine) stillSome(p *pace) {
	e.mu.Lock()
	n := len(e.live)
	e.mu.Unlock()
	for ; n > 0; n -= stillCells {
		e.mu.Lock()
		e.stillFirst(stillCells)
		e.mu.Unlock()
		p.yield()
		p.breathe()
	}
}

// enliven returns the bytes of a part for one who changes them.
func (e *Engine) enliven(id uint32) []byte {
	b := e.live[id]
	if b == nil {
		b = []byte(e.blobs[id])
		e.blobs[id], e.live[id] = unsafe.String(unsafe.SliceData(b), len(b)), b
	}
	return b
}

// taken decides a merge the short way, or leaves it.
func (c *change) taken(d *store.Delta, p *plan) (res store.Result, done bool) {
	e := c.e
	own, lead := e.cells.slot(p.slot), e.cells.slot(p.lead)
	if !isLive(d) || own.meta.state() != present || e.extra(p.slot) != objectUntil(0) || lead.meta.state() != present || lead.meta&hasExtra == 0 {
		return res, false
	}
	asks := d.Event.Bytes
	has, ok := sketch.Takes(e.blobs[p.lead], asks)
	if !ok {
		return res, false
	}
	c.time()
	res.Outcome, res.Version = store.Applied, own.meta.version()
	if has {
		res.Existed = d.Want
		return res, true
	}
	f := c.f
	res.Version = e.version(f.Pos())
	c.mark.tally.count(p.hash, 0)
	f.Payload = appendObject(f.Payload, e.cells.keyOf(p.slot), 0)
	e.put(p.slot, 0, present, res.Version, f.ID, c.level)
	f.Payload = appendAsk(f.Payload, asks)
	answer, rise := e.takeIn(p.lead, asks, f.ID, c.level)
	f.Payload = appendPartRecord(f.Payload, store.Object, partTake, int64(rise))
	if d.Want {
		res.Before, res.After, res.Existed = answer[0], answer[1], true
	}
	return res, true
}

// takeIn takes a request into a sketch that Takes it and has not all of it.
func (e *Engine) takeIn(id uint32, asks []byte, frame uint64, level store.Durability) (answer [2]int64, rise uint64) {
	s := e.cells.slot(id)
	again := s.meta&e.dirtyBit != 0
	e.put(id, s.value, present, 0, frame, e.levelOn(s, id, level)) // The checkpoint under way gets what it was.
	b := e.enliven(id)
	if !again {
		e.putBytes += int64(len(b))
	}
	return sketch.Take(b, asks)
}
