//go:build linux

package bare

import (
	"errors"
	"fmt"
	"hash/maphash"
	"syscall"
	"unsafe"
)

// keyMax is how long a key may be: it is in its slot.
const keyMax = 23

// minSlots is how many slots a table has in the beginning, a power of two.
const minSlots = 1 << 12

var errKey = errors.New("want a key of 1 to 23 bytes")

// A slot is a counter. Two of them fill a line of the processor's caches.
type slot struct {
	value  int64
	length uint8 // of the key; 0 if there is none
	key    [keyMax]byte
}

// A table is an open one, at most half full: a key is in the slot of its hash, or
// in the next one that was free.
type table struct {
	slots  []slot
	used   int
	seed   maphash.Seed
	memory []byte // that the slots are in
}

// make makes a table without counters. Its memory is no business of the garbage
// collector, and in large pages if the system has them.
func (t *table) make(slots int) error {
	memory, err := syscall.Mmap(-1, 0, slots*int(unsafe.Sizeof(slot{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map a table of %d slots: %w", slots, err)
	}
	_ = syscall.Madvise(memory, syscall.MADV_HUGEPAGE) // or it is a little slower
	*t = table{slots: unsafe.Slice((*slot)(unsafe.Pointer(&memory[0])), slots), seed: maphash.MakeSeed(), memory: memory}
	return nil
}

// hash returns the hash of a key, whatever the size of the table.
func (t *table) hash(key []byte) uint64 { return maphash.Bytes(t.seed, key) }

// touch has the processor fetch the slot of a hash.
func (t *table) touch(hash uint64) int { return int(t.slots[hash&uint64(len(t.slots)-1)].length) }

// look returns the slot of a key, or the free one that it would have; nil if no
// slot can have it.
func (t *table) look(hash uint64, key []byte) *slot {
	if len(key) == 0 || len(key) > keyMax {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.length == 0 || string(s.key[:s.length]) == string(key) {
			return s
		}
	}
}

// find returns the slot of a key, a new one if it had none.
func (t *table) find(hash uint64, key []byte) (*slot, error) {
	s := t.look(hash, key)
	switch {
	case s == nil:
		return nil, errKey
	case s.length > 0:
		return s, nil
	case 2*t.used >= len(t.slots):
		if err := t.grow(); err != nil {
			return nil, err
		}
		s = t.look(hash, key)
	}
	t.used++
	s.length = uint8(len(key))
	copy(s.key[:], key)
	return s, nil
}

// grow makes the table twice as large.
func (t *table) grow() error {
	old := *t
	if err := t.make(2 * len(old.slots)); err != nil {
		return err
	}
	t.used, t.seed = old.used, old.seed
	for i := range old.slots {
		if s := &old.slots[i]; s.length > 0 {
			key := s.key[:s.length]
			*t.look(t.hash(key), key) = *s
		}
	}
	return syscall.Munmap(old.memory)
}
