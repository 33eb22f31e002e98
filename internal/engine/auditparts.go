package engine

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// part adds up the row of a part: with those of its epoch, or with all cells.
func (a *audit) part(row, b []byte) bool {
	if a.parts++; a.parts%lockedCells == 0 {
		a.pace.breathe()
	}
	key := append(append(a.key[:0], nsPart), row...)
	a.key = key
	c, p, ok := decodePart(key)
	if !ok || a.ctx.Err() != nil {
		return false
	}
	has, ok := decodePartRow(key, b)
	if !ok {
		return false
	}
	if isMember(key) {
		if a.members = append(a.members, a.e.memberHash(key)); len(a.members) == lockedCells {
			a.compareMembers()
		}
	}
	weight := a.e.weight(xxh3.HashSeed(appendCell(a.cellKey[:0], c), a.e.id.seed()), p)
	if epoch := epochOf(key); epoch == nil {
		a.cells.cell(weight, has.value)
	} else {
		a.epochs.of(epoch).cell(weight, has.value)
	}
	return true
}

// compareMembers checks that the filter of members has those that have a row.
func (a *audit) compareMembers() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	for _, hash := range a.members {
		if a.e.members.lost(a.memberFills, hash) {
			a.same("note that a user who has reacted, or was counted once, is on disk", 0, 1)
		}
	}
	a.members = a.members[:0]
}

// compareEpochs compares the sums over the parts of each epoch with its tally. Those of
// epochs below a floor are gone.
func (a *audit) compareEpochs(snap *pebble.Snapshot) error {
	f := newFences()
	if err := scanRows(snap, rowFloor, func(key, value []byte) bool {
		r := reader{b: append(append([]byte(nil), key...), value...)}
		s := r.shelf()
		f.floors[s] = r.epoch()
		return !r.bad && len(r.b) == 0
	}); err != nil {
		return err
	}
	if err := scanRows(snap, rowEpoch, func(key, value []byte) bool {
		want, ok := decodeEpochTally(value)
		a.epoch(key, want, &f)
		delete(a.epochs, string(key))
		return ok && isEpoch(key)
	}); err != nil {
		return err
	}
	for key := range a.epochs {
		a.epoch([]byte(key), tally{}, &f) // it has no row
	}
	return nil
}

func (a *audit) epoch(key []byte, want tally, f *fences) {
	if f.gone(append([]byte{nsPart}, key...)) {
		return
	}
	var have tally
	if t := a.epochs[string(key)]; t != nil {
		have = t.tally
	}
	n := len(key) - epochBytes
	r := reader{b: key[n:]}
	kind, view := r.byte(), r.bytes(2)
	name := fmt.Sprintf("parts of kind %#x, view %d, epoch %#x of namespace %q",
		kind, uint16(view[0])<<8|uint16(view[1]), uint32(r.epoch()), decodeNamespaceOf(key[:n]))
	a.same("sum of "+name, int64(have.sum), int64(want.sum))
	a.same("checksum of "+name, int64(have.check), int64(want.check))
}
