package engine

import (
	"sort"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// An undo entry is what a cell was before a frame changed it.
type undo struct {
	frame uint64
	value int64
	extra extra
	meta  meta
	slot  uint32
	prev  uint32 // the slot's undo entry before this one
	level store.Durability
}

// undos is a ring of undo entries, numbered in order, oldest frames first.
//
// A slot holds the newest value of its cell, which the next write builds on;
// what readers may see is found by following the undo entries of the frames
// that are not durable yet. So a frame becomes visible when the log says it is
// durable, at no cost for each cell, and a frame that failed never does.
//
// Slots keep the number of their newest entry and are not told when it goes:
// a number that is out of the ring, or whose entry is another slot's, is none.
type undos struct {
	ring       []undo // its length is a power of two
	tail, head uint32 // the entries [tail, head) are there
}

// at returns entry n of a slot, or nil.
func (u *undos) at(n, slot uint32) *undo {
	if n-u.tail >= u.head-u.tail {
		return nil
	}
	if e := &u.ring[n&uint32(len(u.ring)-1)]; e.slot == slot {
		return e
	}
	return nil
}

// push adds an entry, for the caller to fill in, and returns its number. When the ring is
// full, entries of frames that the log has synced are no longer needed and make room.
func (u *undos) push(log *wal.Log) (n uint32, e *undo) {
	if int(u.head-u.tail) == len(u.ring) {
		if u.drop(log.Synced()); int(u.head-u.tail) == len(u.ring) {
			u.grow()
		}
	}
	n = u.head
	u.head++
	return n, &u.ring[n&uint32(len(u.ring)-1)]
}

// drop drops the entries of frames up to one.
func (u *undos) drop(frame uint64) {
	u.tail += uint32(sort.Search(int(u.head-u.tail), func(i int) bool {
		return u.ring[(u.tail+uint32(i))&uint32(len(u.ring)-1)].frame > frame
	}))
}

func (u *undos) grow() {
	old := u.ring
	u.ring = make([]undo, max(64, 2*len(old)))
	for n := u.tail; n != u.head; n++ {
		u.ring[n&uint32(len(u.ring)-1)] = old[n&uint32(len(old)-1)]
	}
}

// A horizon is how far the log was durable at one moment. What is read at one
// moment is judged by one horizon.
type horizon struct {
	written, synced uint64
	nowMS           int64 // the store's time at that moment; 0 before it is asked for
	expiredMS       int64 // the last deadline that was found to have passed; 0 if none was
}

// expired notes that a cell is told to have expired, if it had a deadline.
func (h *horizon) expired(deadline int64) { h.expiredMS = max(h.expiredMS, deadline) }

func (e *Engine) horizon() horizon {
	return horizon{synced: e.log.Synced(), written: e.log.Written()}
}

// pending reports whether what a frame changed is not yet as durable as it was
// asked to be.
func (h horizon) pending(frame uint64, level store.Durability) bool {
	switch level {
	case store.Memory:
		return false
	case store.Written:
		return frame > h.written
	default:
		return frame > h.synced
	}
}
