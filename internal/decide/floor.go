package decide

import "github.com/quipudb/quipu/store"

// Floors are from which epoch on a partition keeps the parts of a view. Those of an
// absent view are all kept.
type Floors map[Shelf]store.Epoch

// A Shelf is what has a floor: the parts of a kind of one view.
type Shelf struct {
	Namespace string
	Kind      store.PartKind
	View      uint16
}

// ShelfOf returns where a part of a cell stands, and in which epoch; ok is false if it is
// not kept for a time.
func ShelfOf(c store.Cell, p store.Part) (s Shelf, e store.Epoch, ok bool) {
	f, ok := p.FloorOf()
	if !ok {
		return Shelf{}, 0, false
	}
	return Shelf{store.SpaceOf(c), f.Kind, f.View}, f.Epoch, true
}

// Keeps reports whether a part of a cell is not below its floor.
func (f Floors) Keeps(c store.Cell, p store.Part) bool {
	s, e, ok := ShelfOf(c, p)
	return !ok || e >= f[s]
}

// Judge returns an error if an event of the batch changes a part that is below its
// floor.
func (f Floors) Judge(b *store.Batch) error {
	if len(f) == 0 {
		return nil
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Event == nil {
			continue
		}
		late := !f.Keeps(d.Cell, d.Event.Part)
		for j := 0; !late && j < d.Event.Len(); j++ {
			late = !f.Keeps(d.Cell, d.Event.Rider(j).Part)
		}
		if late {
			return store.Errorf(store.KindLate, "delta %d is for a time that is not kept any more", i)
		}
	}
	return nil
}

// Raise keeps the floors of a batch that is applied, and reports whether one has risen.
func (f Floors) Raise(b *store.Batch) (risen bool) {
	for _, to := range b.Floors {
		s := Shelf{to.Namespace, to.Kind, to.View}
		if to.Epoch > f[s] {
			f[s], risen = to.Epoch, true
		}
	}
	return risen
}
