package store

import "slices"

// CheckPart returns an error if c can't have the part.
func CheckPart(c Cell, p Part) error {
	if _, ok := p.Fields(); !ok {
		return Errorf(KindInvalid, "%q is no part", string(p))
	}
	if _, _, slot, lane := LaneOf(c); lane != p.Kind().Shared() || lane && slot != p.slot() {
		return Errorf(KindInvalid, "part %q of %q: what many counters share is beside a lane, and lanes have nothing else", string(p), c.Key)
	}
	return CheckCell(c)
}

// CheckReadParts returns an error if no store can read parts into contents.
func CheckReadParts(parts []PartCell, contents []Content) error {
	if len(parts) != len(contents) {
		return Errorf(KindInvalid, "read %d parts into %d contents", len(parts), len(contents))
	}
	if len(parts) > ReadCellsMax {
		return Errorf(KindTooLarge, "read of %d parts: at most %d", len(parts), ReadCellsMax)
	}
	for i := range parts {
		if err := CheckPart(parts[i].Cell, parts[i].Part); err != nil {
			return err
		}
	}
	return nil
}

// checkBooks checks the books of a batch.
func checkBooks(books []Book) error {
	if len(books) > BatchDeltasMax {
		return Errorf(KindTooLarge, "batch of %d books: at most %d", len(books), BatchDeltasMax)
	}
	for i, b := range books {
		if err := CheckNamespace(b.Namespace); err != nil {
			return err
		}
		if b.ID <= 0 {
			return Errorf(KindInvalid, "book %d of namespace %q", b.ID, b.Namespace)
		}
		for _, other := range books[:i] {
			if other.Namespace == b.Namespace {
				return Errorf(KindInvalid, "two books of namespace %q", b.Namespace)
			}
		}
	}
	return nil
}

// checkFloors checks the floors of a batch. It must not change what it takes away.
func checkFloors(b *Batch) error {
	if len(b.Floors) > BatchDeltasMax {
		return Errorf(KindTooLarge, "batch of %d floors: at most %d", len(b.Floors), BatchDeltasMax)
	}
	for i := range b.Deltas {
		e := b.Deltas[i].Event
		if e == nil {
			continue
		}
		below := isBelow(b.Floors, b.Deltas[i].Cell, e.Part)
		for j := 0; !below && j < e.Len(); j++ {
			below = isBelow(b.Floors, b.Deltas[i].Cell, e.Rider(j).Part)
		}
		if below {
			return Errorf(KindInvalid, "delta %d changes a part that is below a floor of the batch", i)
		}
	}
	for _, f := range b.Floors {
		if err := CheckNamespace(f.Namespace); err != nil {
			return err
		}
		if !f.Kind.Known() || f.Kind&PartRetained == 0 || !f.Epoch.valid(f.Kind) {
			return Errorf(KindInvalid, "floor %#x of parts of kind %#x", uint32(f.Epoch), uint8(f.Kind))
		}
	}
	return nil
}

// isBelow reports whether a part of a cell is below one of some floors.
func isBelow(floors []Floor, c Cell, p Part) bool {
	at, ok := p.FloorOf()
	at.Namespace = SpaceOf(c)
	return ok && slices.ContainsFunc(floors, func(f Floor) bool {
		return f.Namespace == at.Namespace && f.Kind == at.Kind && f.View == at.View && at.Epoch < f.Epoch
	})
}

// checkEvent checks a delta that is an event, and returns the size of what only events
// have.
func checkEvent(d *Delta) (size int, err error) {
	e := d.Event
	if err := checkLead(d, e); err != nil {
		return 0, err
	}
	if e.Len() > EventRidersMax {
		return 0, Errorf(KindTooLarge, "event of %d riders: at most %d", e.Len(), EventRidersMax)
	}
	for i := range e.Riders {
		if err := checkRider(&e.Riders[i]); err != nil {
			return 0, err
		}
	}
	_, _, _, lane := LaneOf(d.Cell)
	for i := range e.Len() {
		if e.Part == "" && e.Rider(i).Part == "" {
			return 0, Errorf(KindInvalid, "rider %d is of the counter's own value, which leads", i)
		}
		if lane && !e.Rider(i).Part.Kind().Shared() {
			return 0, Errorf(KindInvalid, "rider %d is beside a lane, which has only parts of many counters", i)
		}
	}
	_, size = e.Weight()
	return size, nil
}

// checkLead checks an event without its riders.
func checkLead(d *Delta, e *Event) error {
	kind := e.Part.Kind()
	switch {
	case e.Is.Kind >= MetBook:
		return Errorf(KindInvalid, "condition %d on what a lead meets", e.Is.Kind)
	case e.NotBefore < 0, e.NotAfter < 0:
		return Errorf(KindInvalid, "an event not before %d, not after %d", e.NotBefore, e.NotAfter)
	case kind == PartObject:
		return checkObject(d, e)
	case d.Expiry != ExpiryKeep || d.DeadlineMS != 0:
		return Errorf(KindInvalid, "an event with expiry %d: a counter that has parts has no deadline", d.Expiry)
	}
	bytes := e.Bytes
	if d.Op != OpPut && d.Op != OpMerge && e.shares() {
		bytes = nil // They are its riders'.
	}
	if len(e.Bytes) > PartBytesMax {
		return tooManyBytes(e.Bytes)
	}
	if kind == 0 {
		if d.Op != OpAdd && d.Op != OpSet && d.Op != OpDelete || bytes != nil {
			return Errorf(KindInvalid, "operation %d leads an event", d.Op)
		}
		return checkDelta(d)
	}
	if err := checkPartOp(kind, d.Op, bytes); err != nil {
		return err
	}
	if kind.Shared() && d.Op != OpMerge {
		return Errorf(KindInvalid, "operation %d on a part of many counters: only merges change them", d.Op)
	}
	g := &d.Guard
	switch {
	case d.Op == OpGet:
		return Errorf(KindInvalid, "a part that is not changed leads an event")
	case g.Match || g.Version != 0 || g.Laid || g.Layout != 0:
		return Errorf(KindInvalid, "a part has no version and no layout")
	case g.Exists > ExistsNot:
		return Errorf(KindInvalid, "unknown condition on existence %d", g.Exists)
	case g.Bound != nil && d.Op != OpAdd && d.Op != OpSet:
		return Errorf(KindInvalid, "operation %d with a bound", d.Op)
	case g.Bound != nil:
		if err := checkBound(d); err != nil {
			return err
		}
	}
	if g.Token != "" {
		if err := CheckToken(g.Token); err != nil {
			return err
		}
	}
	return CheckPart(d.Cell, e.Part)
}

// checkObject checks an event that changes what a key holds.
func checkObject(d *Delta, e *Event) error {
	g := &d.Guard
	switch {
	case e.Part != Object:
		return Errorf(KindInvalid, "%q is no part: a key holds one thing", string(e.Part))
	case d.Op != OpPut && d.Op != OpSet && d.Op != OpMerge:
		return Errorf(KindInvalid, "operation %d on what a key holds", d.Op)
	case g.Laid || g.Layout != 0 || g.Bound != nil:
		return Errorf(KindInvalid, "bytes have no layout and no bound")
	}
	for i := range e.Len() {
		if e.Rider(i).Part.Kind() != PartSketch {
			return Errorf(KindInvalid, "rider %d of what a key holds is no piece of a sketch", i)
		}
	}
	if d.Op != OpSet {
		if err := checkPartOp(PartObject, d.Op, e.Bytes); err != nil {
			return err
		}
	} else if e.Bytes != nil {
		return Errorf(KindInvalid, "operation %d with bytes", d.Op)
	}
	if g.Token != "" {
		if err := CheckToken(g.Token); err != nil {
			return err
		}
	}
	if err := checkConditions(d); err != nil {
		return err
	}
	return CheckCell(d.Cell)
}

// checkPartOp checks what is done to a part.
func checkPartOp(kind PartKind, op Op, bytes []byte) error {
	switch op {
	case OpAdd, OpSet, OpMax:
		if kind.HasBytes() {
			return Errorf(KindInvalid, "operation %d on a part of kind %#x, which holds bytes", op, uint8(kind))
		}
	case OpPut:
		if !kind.HasBytes() {
			return Errorf(KindInvalid, "bytes for a part of kind %#x, which holds a number", uint8(kind))
		}
	case OpMerge:
		if !kind.Merges() {
			return Errorf(KindInvalid, "a part of kind %#x merges nothing", uint8(kind))
		}
	case OpDelete, OpGet:
	default:
		return Errorf(KindInvalid, "operation %d on a part", op)
	}
	if bytes != nil && op != OpPut && op != OpMerge {
		return Errorf(KindInvalid, "operation %d with bytes", op)
	}
	if len(bytes) > PartBytesMax {
		return tooManyBytes(bytes)
	}
	return nil
}

func tooManyBytes(bytes []byte) error {
	return Errorf(KindTooLarge, "part of %d bytes: at most %d", len(bytes), PartBytesMax)
}

// checkRider checks a rider by itself.
func checkRider(r *Rider) error {
	if r.Part != "" {
		if _, ok := r.Part.Fields(); !ok {
			return Errorf(KindInvalid, "%q is no part", string(r.Part))
		}
		if r.Part.Kind() == PartObject {
			return Errorf(KindInvalid, "what a key holds rides, and can only lead")
		}
	} else if r.Op == OpMax || r.Op == OpDelete {
		return Errorf(KindInvalid, "operation %d rides on a counter's own value", r.Op)
	}
	if err := checkPartOp(r.Part.Kind(), r.Op, r.Bytes); err != nil {
		return err
	}
	if r.Op == OpMerge && !r.Part.Kind().IsSketch() {
		return Errorf(KindInvalid, "a merge into a part of kind %#x rides, and can only lead", uint8(r.Part.Kind()))
	}
	if r.Part.Kind().Shared() && (r.Op != OpMerge || r.Place != PlaceFixed || r.Is != Met{}) {
		return Errorf(KindInvalid, "operation %d at place %d on a part of many counters: only merges are, without a condition", r.Op, r.Place)
	}
	computes := r.Op == OpAdd || r.Op == OpSet || r.Op == OpMax
	picks := r.shares() && r.N > 0 && r.N <= EventRidersMax // one of what the event asks
	switch {
	case r.Amount > AmountWas, r.Amount != AmountN && (r.N != 0 || !computes), r.N != 0 && !computes && !picks:
		return Errorf(KindInvalid, "operation %d with amount %d of %d", r.Op, r.Amount, r.N)
	case r.Place > PlaceMet, r.Place != PlaceFixed && r.Part == "":
		return Errorf(KindInvalid, "place %d", r.Place)
	case r.Place == PlaceVersion && (r.Op != OpPut && r.Op != OpSet || r.Is != Met{}),
		r.Place == PlaceMet && (r.Op != OpAdd || r.Is != Met{} || r.Bound != nil):
		return Errorf(KindInvalid, "operation %d at place %d, where no condition is judged", r.Op, r.Place)
	case r.Is.Kind >= MetBook, r.When.Kind > MetBook:
		return Errorf(KindInvalid, "conditions %d, %d of a rider", r.Is.Kind, r.When.Kind)
	case r.Bound != nil && (r.Op != OpAdd || r.Bound.Saturate):
		return Errorf(KindInvalid, "operation %d with a bound", r.Op)
	}
	return nil
}
