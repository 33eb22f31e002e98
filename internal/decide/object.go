package decide

import "github.com/quipudb/quipu/store"

// object decides a lead that changes what its key holds: the time is judged first, then
// what it meets, then what any delta is judged by. There may be bytes of a key
// that is no object now, and was one when its deadline came: they are nothing, but they
// are replaced.
func (st *step) object(d *store.Delta) store.Outcome {
	e, g, nowUS := d.Event, &d.Guard, st.at.us()
	was := st.state.Part(d.Cell, store.Object)
	if st.is.Layout == store.LayoutObject {
		st.met = was
	}
	st.became = st.met
	switch {
	case nowUS < e.NotBefore, e.NotAfter != 0 && nowUS > e.NotAfter:
		return store.Untimely
	case !e.Is.Holds(st.met.N):
		return store.Unmet
	case g.Match && g.Version != st.is.Version:
		return store.Changed
	case d.Splits(st.is.Layout):
		return store.Split
	case g.Exists == store.ExistsMust && !st.is.Exists, g.Exists == store.ExistsNot && st.is.Exists:
		return store.Unmet
	}
	ms, _ := d.Deadline(st.is.DeadlineMS, st.at.NowMS)
	will, asks := store.Content{}, []byte(nil)
	if d.Op == store.OpMerge {
		if st.is.Exists && st.is.Layout != store.LayoutObject {
			return store.Unmet // It is a count.
		}
		if st.met == was { // else it is merged into nothing, and not into what the key held before its deadline
			asks = e.Bytes
		}
	}
	if d.Op == store.OpSet { // a count from now on
		st.became, st.will = store.Content{N: d.N}, store.Value{N: d.N, Exists: true, DeadlineMS: ms}
	} else {
		if outcome := st.change(d); outcome != store.Applied {
			return outcome
		}
		will = st.became
		st.will = store.Value{Exists: true, DeadlineMS: min(ms, store.ObjectDeadlineMax), Layout: store.LayoutObject}
	}
	if ms != 0 && ms <= st.at.NowMS {
		st.will, will, asks = store.Value{}, store.Content{}, nil // it is over already
	}
	st.parts = append(st.parts, changed{part: store.Object, was: was, will: will, asks: asks})
	return store.Applied
}

// still reports whether a step changes nothing: it merges into an object what that has.
func (st *step) still(d *store.Delta) bool {
	if d.Op != store.OpMerge || !d.IsObject() || !st.is.Exists || st.will.DeadlineMS != st.is.DeadlineMS {
		return false
	}
	for i := range st.parts {
		if p := &st.parts[i]; p.was != p.will {
			return false
		}
	}
	return true
}

// tell completes the result of a lead that changes what its key holds.
func (st *step) tell(d *store.Delta, res *store.Result) {
	if !d.Want {
		return
	}
	switch res.Outcome {
	case store.Applied:
		res.Existed, res.DeadlineMS = st.is.Exists, st.will.DeadlineMS
	case store.Unmet:
		res.Existed, res.DeadlineMS = st.is.Exists, st.is.DeadlineMS
	default:
	}
}

// Lose removes the bytes of a key that was an object and has gone, and returns the
// record of that. Those who remove a cell whose deadline has come call it too.
func Lose(s Parts, c store.Cell) Record {
	has := s.Part(c, store.Object)
	if !has.Exists {
		return Record{}
	}
	s.PutPart(c, store.Object, store.Content{})
	return PartChange(c, store.Object, -uint64(has.N))
}
