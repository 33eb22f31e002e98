package transfer

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/quipudb/quipu/store"
)

const (
	digestSlots = 1 << 16
	slotMS      = 60_000
)

// A digest stands for the cells of a store and their versions, in whatever order
// they are added. Cells that have a deadline are apart, by the minute of it: when
// it has come, those that are gone are no sign of a writer.
type digest struct {
	slots []uint64
	timed map[int64]uint64 // by minute
}

// seed makes digests comparable within this process.
var seed = maphash.MakeSeed()

func newDigest() *digest {
	return &digest{slots: make([]uint64, digestSlots), timed: make(map[int64]uint64)}
}

// add adds a cell.
func (d *digest) add(c store.Cell, v store.Value) {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(c.Namespace)
	_ = h.WriteByte(0xff) // in no namespace
	_, _ = h.WriteString(c.Key)
	slot := h.Sum64() % digestSlots
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], v.Version)
	binary.LittleEndian.PutUint64(b[8:], uint64(v.N))
	binary.LittleEndian.PutUint64(b[16:], uint64(v.DeadlineMS))
	_, _ = h.Write(b[:])
	if v.DeadlineMS != 0 {
		d.timed[v.DeadlineMS/slotMS] += h.Sum64()
		return
	}
	d.slots[slot] += h.Sum64()
}

// moved returns how many cells differ at least between two digests of a store,
// those left out whose deadline is before a time.
func (d *digest) moved(later *digest, fromMS int64) (n int64) {
	for i := range d.slots {
		if d.slots[i] != later.slots[i] {
			n++
		}
	}
	for minute, sum := range d.timed {
		if minute*slotMS >= fromMS && later.timed[minute] != sum {
			n++
		}
	}
	for minute := range later.timed {
		if _, ok := d.timed[minute]; !ok && minute*slotMS >= fromMS {
			n++
		}
	}
	return n
}
