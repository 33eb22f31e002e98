package engine

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// A slot is one entry of a table. It has no pointers, and is one line of the
// processor's caches, with its key, unless that is long.
//
//	value 8 | version 7, bits 1 | hash 4 | next 4 | undo 4 | size 1 | entry 35
type slot struct {
	value int64
	meta  meta
	hash  uint32
	next  uint32 // the next slot of the same bucket; in a free slot, of the free list
	undo  uint32 // the newest undo entry of this slot, if it is still there
	size  uint8  // of the entry; inArena if only its ref is here; 0 in a free slot
	short [shortMax]byte
}

const (
	slotBytes = 64
	shortMax  = 35
	inArena   = 255
)

func (s *slot) isFree() bool { return s.size == 0 }

// ref returns where the entry is, if it is not in the slot.
func (s *slot) ref() ref { return ref(binary.LittleEndian.Uint32(s.short[:])) }

// meta is a version and eight bits.
type meta uint64

// The states of a cell and its bits.
const (
	stateMask meta = 3
	unread    meta = 0 // value is a delta over what the disk has, which nobody has looked at
	absent    meta = 1 // the cell does not exist
	present   meta = 2 // value is the cell's value

	dirty0 meta = 1 << 2 // changed since a checkpoint began; the two bits take
	dirty1 meta = 1 << 3 // turns, so that a checkpoint begins without a pass
	saving meta = 1 << 4 // copied by the checkpoint under way: not on disk yet
	born   meta = 1 << 5 // perhaps not on disk: in the set that Scan looks through
	recent meta = 1 << 6 // touched since the clock's hand came by

	hasExtra meta = 1 << 7 // has a deadline or a layout, in Engine.extras

	bitsMask meta = 0xff
)

const versionShift = 8

func (m meta) state() meta     { return m & stateMask }
func (m meta) version() uint64 { return uint64(m >> versionShift) }

func (m meta) withVersion(v uint64) meta { return m&bitsMask | meta(v)<<versionShift }
func (m meta) withState(s meta) meta     { return m&^stateMask | s }

const (
	pageBits  = 12
	pageSlots = 1 << pageBits

	headPageBits = 14
	headPage     = 1 << headPageBits

	// headsPerSlot is how many buckets there are for each slot: so most chains
	// are one slot long, and a key that is not there is not looked for in others'.
	headsPerSlot = 2
	// growMin is how many buckets are added at once.
	growMin = 32
)

// table maps short keys to slots. Slots have stable numbers, so that lists of
// them need no keys. Buckets grow a few at a time (linear hashing), so that no
// insert waits for a table to be copied; slots and buckets are in pages, so
// that growing copies nothing.
type table struct {
	removed    uint64  // slots, ever
	arena              // of the long entries
	skip       int     // bytes of an entry before its key
	pages      []*slot // the first slot of each page
	slotMemory slab[slot]
	headMemory slab[uint32]
	slots      uint32    // slots ever used; slot 0 is none
	unused     uint32    // list of free slots
	heads      []*uint32 // the first head of each page
	split      uint32    // buckets beyond the largest power of two
	level      uint32    // that power of two
	count      int
}

func newTable(skip int) *table {
	return &table{skip: skip, level: 1, slots: 1, heads: []*uint32{&new([headPage]uint32)[0]}, pages: []*slot{&new([pageSlots]slot)[0]}}
}

// slot returns slot id.
func (t *table) slot(id uint32) *slot { return item(t.pages[id>>pageBits], id&(pageSlots-1)) }

// item returns item i of a page. An index of an array behind a pointer would be the
// same, but Go looks at the array's beginning first, to see that the pointer is not nil:
// at a line of memory for each page, all of which want the same few places of the caches.
func item[T any](first *T, i uint32) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*unsafe.Sizeof(*first)))
}

// entry returns the whole bytes of a slot's entry, keyOf only its key. They are
// valid until it is removed.
func (t *table) entry(id uint32) []byte { return t.entryIn(t.slot(id)) }
func (t *table) keyOf(id uint32) []byte { return t.entry(id)[t.skip:] }

// fetch has the keys of some copies fetched: first their slots, and then those that are not in
// there. Copies in the order of their keys are anywhere in memory, so whoever looks at one after
// the other would wait for each.
func (t *table) fetch(some []saved) {
	for i := range some {
		prefetch(unsafe.Pointer(t.slot(some[i].slot)))
	}
	for i := range some {
		if s := t.slot(some[i].slot); s.size == inArena {
			prefetch(unsafe.Pointer(unsafe.SliceData(t.raw(s.ref()))))
		}
	}
}

func (t *table) entryIn(s *slot) []byte {
	if s.size != inArena {
		return s.short[:s.size:s.size]
	}
	return t.at(s.ref())
}

// keys returns the table for one who does not hold the lock and looks only at the
// keys of slots that are not removed meanwhile: they do not move when it grows.
func (t *table) keys() *table {
	return &table{arena: arena{chunks: t.chunks}, skip: t.skip, pages: t.pages}
}

func (t *table) head(hash uint32) *uint32 {
	b := hash & (2*t.level - 1)
	if b >= t.level+t.split {
		b &= t.level - 1
	}
	return t.bucket(b)
}

// find returns the slot of a key, or 0.
func (t *table) find(hash uint32, key []byte) uint32 {
	for id := *t.head(hash); id != 0; {
		s := t.slot(id)
		if s.hash == hash && bytes.Equal(t.entryIn(s)[t.skip:], key) {
			return id
		}
		id = s.next
	}
	return 0
}

// groupMax is how many keys are looked for together. For less than groupMin it is not
// worth it.
const (
	groupMax = 32
	groupMin = 8
)

// findNext is find for the group of plans that begins at i: it sets the slot of each, or
// 0, and returns them. In a table larger than the processor's caches finding a key is
// waiting for memory, once for the head of its chain and once for each slot of that. So
// what the next groups need is fetched meanwhile: their heads, then the first slots of
// their chains, then the second ones. Whoever goes through all groups in order waits for
// hardly any (BenchmarkLane). Between two groups keys may be added, but not removed.
func (t *table) findNext(all []plan, i int, keys []byte) []plan {
	group := groupAt(all, i)
	if len(all) >= groupMin {
		if i == 0 {
			t.fetchHeads(groupAt(all, 0))
			t.fetchHeads(groupAt(all, groupMax))
			t.fetchFirst(groupAt(all, 0))
			t.fetchHeads(groupAt(all, 2*groupMax))
			t.fetchFirst(groupAt(all, groupMax))
			t.fetchSecond(groupAt(all, 0))
		}
		t.fetchHeads(groupAt(all, i+3*groupMax))
		t.fetchFirst(groupAt(all, i+2*groupMax))
		t.fetchSecond(groupAt(all, i+groupMax))
	}
	for i := range group {
		p := &group[i]
		p.slot = t.find(uint32(p.hash), keys[p.from:p.to])
	}
	return group
}

// groupAt returns the group of plans that begins at i, if there is one.
func groupAt(all []plan, i int) []plan {
	i = min(i, len(all))
	return all[i:min(i+groupMax, len(all))]
}

func (t *table) fetchHeads(group []plan) {
	for i := range group {
		prefetch(unsafe.Pointer(t.head(uint32(group[i].hash))))
	}
}

func (t *table) fetchFirst(group []plan) {
	for i := range group {
		if id := *t.head(uint32(group[i].hash)); id != 0 {
			prefetch(unsafe.Pointer(t.slot(id)))
		}
	}
}

func (t *table) fetchSecond(group []plan) {
	for i := range group {
		hash := uint32(group[i].hash)
		if s := t.slot(*t.head(hash)); s.hash != hash && s.next != 0 { // slot 0 is none, and is there
			prefetch(unsafe.Pointer(t.slot(s.next)))
		}
	}
}

// touch has the slots of some plans fetched.
func (t *table) touch(group []plan) {
	for i := range group {
		prefetch(unsafe.Pointer(t.slot(group[i].slot)))
	}
}

// insert adds an entry that is not in the table: prefix, of skip bytes, and
// key. The new slot is zero but for its key.
func (t *table) insert(hash uint32, prefix, key []byte) uint32 {
	id := t.unused
	if id != 0 {
		t.unused = t.slot(id).next
	} else {
		id = t.slots
		t.slots++
		if int(id>>pageBits) >= len(t.pages) {
			t.pages = append(t.pages, &t.slotMemory.run(pageSlots)[0])
		}
	}
	head := t.head(hash)
	s := t.slot(id)
	*s = slot{hash: hash, next: *head}
	if n := len(prefix) + len(key); n <= shortMax {
		s.size = uint8(n)
		copy(s.short[copy(s.short[:], prefix):], key)
	} else {
		s.size = inArena
		binary.LittleEndian.PutUint32(s.short[:], uint32(t.add(prefix, key)))
	}
	*head = id
	t.count++
	if headsPerSlot*t.count > int(t.buckets()) {
		t.grow()
	}
	return id
}

func (t *table) buckets() uint32 { return t.level + t.split }

// bucket returns the head of a bucket.
func (t *table) bucket(b uint32) *uint32 { return item(t.heads[b>>headPageBits], b&(headPage-1)) }

// grow adds buckets and moves into each what belongs there from the bucket it
// splits. It splits as many as are left of this level, but not more than some, and has
// the slots fetched that the next call may move.
func (t *table) grow() {
	n := min(growMin, t.level-t.split)
	for range n {
		t.splitBucket()
	}
	for b := t.split; b < min(t.split+growMin, t.level); b++ {
		if id := *t.bucket(b); id != 0 {
			prefetch(unsafe.Pointer(t.slot(id)))
		}
	}
}

func (t *table) splitBucket() {
	from := t.split
	t.split++
	to := t.level + from
	if t.split == t.level {
		t.level *= 2
		t.split = 0
	}
	if int(to>>headPageBits) >= len(t.heads) {
		t.heads = append(t.heads, &t.headMemory.run(headPage)[0])
	}
	src, dst := t.bucket(from), t.bucket(to)
	for *src != 0 {
		s := t.slot(*src)
		if t.head(s.hash) == dst {
			id := *src
			*src = s.next
			s.next = *dst
			*dst = id
			continue
		}
		src = &s.next
	}
}

// remove takes a slot out of the table and frees it.
func (t *table) remove(id uint32) {
	t.removed++
	s := t.slot(id)
	p := t.head(s.hash)
	for *p != id {
		p = &t.slot(*p).next
	}
	*p = s.next
	if s.size == inArena {
		t.drop(s.ref())
	}
	*s = slot{next: t.unused}
	t.unused = id
	t.count--
}

// free gives the table's memory back. It is empty afterwards.
func (t *table) free() {
	t.memory.free()
	t.slotMemory.free()
	t.headMemory.free()
	*t = *newTable(t.skip)
}

// bytes returns the memory that the live entries take.
func (t *table) bytes() int64 {
	return t.used + int64(t.count)*slotBytes + int64(t.buckets())*4
}
