package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A model is a store written to be obviously right: maps, and one call at a time.
// It learns what a delta makes of a cell from decide.Cell, which has an oracle of its
// own, with unbounded integers, in the tests of its package. It does not predict
// versions, which are a store's own choice, but holds it to what it said: they
// rise, and a repeat tells the same one. It is told each reply, and says what is
// wrong with it.
type model struct {
	limits store.Limits
	nowMS  int64
	cells  map[store.Cell]*modelCell
	tokens map[modelTokenID]modelToken
	parts  []modelPart
	bytes  map[store.Cell]string // of objects
	layers bool                  // something between callers and layouts says what a Split by an object means
}

type modelCell struct {
	store.Value        // it may be one whose deadline has passed
	highest     uint64 // version of the cell's whole life
}

type modelTokenID struct {
	cell store.Cell
	name string
}

type modelToken struct {
	settled bool
	digest  uint64
	atMS    int64
	result  store.Result
}

type modelPart struct {
	floor store.Writer
	marks map[store.Writer]modelMark
}

type modelMark struct {
	batch   store.Batch
	results []store.Result
}

func newModel(t store.Traits) *model {
	m := &model{
		limits: t.Limits,
		cells:  make(map[store.Cell]*modelCell),
		tokens: make(map[modelTokenID]modelToken),
		parts:  make([]modelPart, t.Partitions),
		bytes:  make(map[store.Cell]string),
		layers: !t.Layouts,
	}
	for i := range m.parts {
		m.parts[i].marks = make(map[store.Writer]modelMark)
	}
	return m
}

// replied takes the reply to a valid batch, or returns what is wrong with it.
func (m *model) replied(b store.Batch, r store.Reply) error {
	p := &m.parts[b.Partition]
	if b.Writer == 0 {
		switch {
		case r.Replayed || r.Mark != 0:
			return fmt.Errorf("reply %+v to a batch without a writer", r)
		case m.isChanged(b.If):
			return wantErr(r, store.KindChanged)
		case m.isSplit(b):
			return wantErr(r, m.splitKinds()...)
		case m.isCrowded(b, store.KindOf(r.Err) == store.KindFull):
			return wantErr(r, store.KindFull)
		case r.Err != nil:
			return fmt.Errorf("refused with %w", r.Err)
		}
		return m.decided(b, r.Results)
	}
	last, known := p.marks[b.Writer]
	switch mark := last.batch.Seq; {
	case !known && b.Writer <= p.floor:
		return wantErr(r, store.KindRetired)
	case !known && len(p.marks) >= m.limits.WritersMax && b.Prev == 0:
		return wantErr(r, store.KindFull)
	case !known && len(p.marks) >= m.limits.WritersMax:
		return wantErr(r, store.KindFull, store.KindMark)
	case known && sameBatch(last.batch, b):
		return sameReply(r, last)
	case b.Prev != mark:
		if r.Mark != mark {
			return fmt.Errorf("reply with mark %d, want %d", r.Mark, mark)
		}
		return wantErr(r, store.KindMark)
	case m.isChanged(b.If):
		if r.Mark != mark {
			return fmt.Errorf("reply with mark %d, want %d", r.Mark, mark)
		}
		return wantErr(r, store.KindChanged)
	case m.isSplit(b):
		if r.Mark != mark {
			return fmt.Errorf("reply with mark %d, want %d", r.Mark, mark)
		}
		return wantErr(r, m.splitKinds()...)
	case m.isCrowded(b, store.KindOf(r.Err) == store.KindFull):
		if r.Mark != mark {
			return fmt.Errorf("reply with mark %d, want %d", r.Mark, mark)
		}
		return wantErr(r, store.KindFull)
	}
	if r.Err != nil || r.Replayed || r.Mark != b.Seq {
		return fmt.Errorf("reply %+v to a batch that follows the mark", r)
	}
	if err := m.decided(b, r.Results); err != nil {
		return err
	}
	p.marks[b.Writer] = modelMark{batch: b, results: slices.Clone(r.Results)}
	return nil
}

func wantErr(r store.Reply, kinds ...store.Kind) error {
	if r.Err == nil || !slices.Contains(kinds, store.KindOf(r.Err)) || len(r.Results) != 0 || r.Replayed {
		return fmt.Errorf("reply %+v, want an error of kind %v", r, kinds)
	}
	return nil
}

func sameBatch(a, b store.Batch) bool {
	return a.Prev == b.Prev && a.Seq == b.Seq && reflect.DeepEqual(a.If, b.If) && reflect.DeepEqual(a.Deltas, b.Deltas)
}

func (m *model) isChanged(conditions []store.Condition) bool {
	return slices.ContainsFunc(conditions, func(c store.Condition) bool { return m.value(c.Cell).Version != c.Version })
}

// isSplit reports whether a part of a counter would have to decide alone what the
// batch does not let it refuse alone.
func (m *model) isSplit(b store.Batch) bool {
	together := !b.Apart && (b.Writer != 0 || len(b.Deltas) > 1)
	return together && slices.ContainsFunc(b.Deltas, func(d store.Delta) bool {
		switch m.value(d.Cell).Layout {
		case 0:
			return false
		case store.LayoutObject:
			return !d.Guard.Laid && !d.IsObject() && slices.Contains([]store.Op{store.OpAdd, store.OpSet}, d.Op)
		default:
			return d.NeedsWhole()
		}
	})
}

// splitKinds are how a batch is refused that is not meant for an object. What is started comes
// back as the store says it.
func (m *model) splitKinds() []store.Kind {
	if m.layers {
		return []store.Kind{store.KindNotCount, store.KindSplit}
	}
	return []store.Kind{store.KindSplit}
}

// put decides a delta that makes a key hold bytes.
func (m *model) put(d *store.Delta, full bool) (is store.Value, r store.Result) {
	was := m.value(d.Cell)
	met, will := int64(0), store.PartObject.Number(d.Event.Bytes)
	if d.Op == store.OpSet {
		will = d.N
	}
	if was.Layout == store.LayoutObject {
		met = store.PartObject.Number([]byte(m.bytes[d.Cell]))
	}
	merged := m.merge(d)
	switch x := d.Guard.Exists; {
	case d.Guard.Match && d.Guard.Version != was.Version:
		return was, store.Result{Outcome: store.Changed}
	case was.Layout != 0 && was.Layout != store.LayoutObject:
		return was, store.Result{Outcome: store.Split}
	case x == store.ExistsMust && !was.Exists, x == store.ExistsNot && was.Exists, d.Op == store.OpMerge && !merged.ok:
		r = store.Result{Outcome: store.Unmet}
		if d.Want {
			r.Before, r.After, r.Existed, r.DeadlineMS = met, met, was.Exists, was.DeadlineMS
		}
		return was, r
	case !was.Exists && full:
		return was, store.Result{Outcome: store.Full}
	}
	ms, _ := d.Deadline(was.DeadlineMS, m.nowMS)
	if ms = min(ms, store.ObjectDeadlineMax); ms == 0 || ms > m.nowMS {
		is = store.Value{Exists: true, DeadlineMS: ms, Layout: store.LayoutObject}
	}
	if ms, _ = d.Deadline(was.DeadlineMS, m.nowMS); d.Op == store.OpSet && is.Exists {
		is = store.Value{N: d.N, Exists: true, DeadlineMS: ms}
	}
	if r.Outcome = store.Applied; d.Want {
		r.Before, r.After, r.Existed, r.DeadlineMS = met, will, was.Exists, is.DeadlineMS
	}
	if d.Op == store.OpMerge {
		if d.Want {
			r.Before, r.After = merged.answer[0], merged.answer[1]
		}
		if was.Exists && is.Exists && !merged.changed && is.DeadlineMS == was.DeadlineMS { // else it is over already, or changed
			is, r.Version = was, was.Version
		}
	}
	return is, r
}

// A modelMerge is what becomes of what a key holds if something is merged into it.
type modelMerge struct {
	next        string
	answer      [2]int64
	changed, ok bool
}

func (m *model) merge(d *store.Delta) (r modelMerge) {
	was, held := m.value(d.Cell), ""
	if d.Op != store.OpMerge || was.Exists && was.Layout != store.LayoutObject {
		return r
	}
	if was.Exists {
		held = m.bytes[d.Cell]
	}
	var next []byte
	next, r.changed, r.answer, r.ok = sketch.Decide(nil, held, d.Event.Bytes)
	if r.next = held; r.changed {
		r.next = string(next)
	}
	return r
}

func sameReply(r store.Reply, last modelMark) error {
	want := slices.Clone(last.results)
	for i := range want {
		want[i].Replayed = true
	}
	if r.Err != nil || !r.Replayed || r.Mark != last.batch.Seq || !slices.Equal(r.Results, want) {
		return fmt.Errorf("reply %+v, want the first results %+v", r, want)
	}
	return nil
}

func (m *model) decided(b store.Batch, rs []store.Result) error {
	if len(rs) != len(b.Deltas) {
		return fmt.Errorf("%d results for %d deltas", len(rs), len(b.Deltas))
	}
	for i, d := range b.Deltas {
		var err error
		switch d.Op {
		case store.OpRetire:
			err = equal(rs[i], store.Result{Outcome: store.Applied})
			m.retire(&m.parts[b.Partition], store.Writer(d.N))
		case store.OpSettle:
			err = m.settled(d, rs[i])
		default:
			err = m.changed(d, rs[i])
		}
		if err != nil {
			return fmt.Errorf("delta %d, %+v: %w", i, d, err)
		}
	}
	return nil
}

func equal(got store.Result, want ...store.Result) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("result %+v, want %+v", got, want)
}

func refusal(os ...store.Outcome) []store.Result {
	rs := make([]store.Result, len(os))
	for i, o := range os {
		rs[i].Outcome = o
	}
	return rs
}

func (m *model) retire(p *modelPart, last store.Writer) {
	p.floor = max(p.floor, last)
	for w := range p.marks {
		if w <= last {
			delete(p.marks, w)
		}
	}
}

// state returns what is known of a token. Long after the window a store may
// have forgotten it or not: then loose is true, and unknown is as good as
// expired.
func (m *model) state(id modelTokenID) (s store.TokenState, t modelToken, loose bool) {
	t, ok := m.tokens[id]
	age := m.nowMS - t.atMS
	stale := store.TokenStale(id.name, m.nowMS, m.limits.TokenWindow)
	switch {
	case !ok && stale:
		return store.TokenExpired, t, false
	case !ok:
		return store.TokenUnknown, t, false
	case age >= store.TokenKeptMS(m.limits.TokenWindow):
		return store.TokenExpired, t, !stale
	case age >= m.limits.TokenWindow.Milliseconds():
		return store.TokenExpired, t, false
	case t.settled:
		return store.TokenSettled, t, false
	case t.result.Outcome != store.Applied:
		return store.TokenRefused, t, false
	default:
		return store.TokenApplied, t, false
	}
}

// tokensFull reports whether a namespace has no room for a new token. What a
// store may have forgotten takes none.
func (m *model) tokensFull(ns string) bool { return ns != "" && m.tokensHeld(ns) >= m.limits.TokensMax }

func (m *model) tokensHeld(ns string) (held int64) {
	for id, t := range m.tokens {
		if id.cell.Namespace == ns && m.nowMS-t.atMS < store.TokenKeptMS(m.limits.TokenWindow) {
			held++
		}
	}
	return held
}

// keys returns how many keys a namespace has, and how many a store may count
// that has not removed those that have expired.
func (m *model) keys(ns string) (live, counted int64) {
	for c, v := range m.cells {
		if c.Namespace == ns && v.Exists {
			counted++
			if m.value(c).Exists {
				live++
			}
		}
	}
	return live, counted
}

// isCrowded reports whether there is no room for all keys that a batch with conditions would make, or for its tokens. Expired keys
// may take up room, if the store says so.
func (m *model) isCrowded(b store.Batch, said bool) bool {
	if len(b.If) == 0 || !b.Together() {
		return false
	}
	is, grown := map[store.Cell]bool{}, map[string]int64{}
	for _, d := range b.Deltas {
		if d.Op != store.OpDelete && !decide.Makes(&d) {
			continue
		}
		was, known := is[d.Cell]
		if !known {
			was = m.value(d.Cell).Exists
		}
		is[d.Cell] = d.Op != store.OpDelete
		ns := d.Cell.Namespace
		if was && d.Op == store.OpDelete {
			grown[ns]--
		}
		if was || d.Op == store.OpDelete || ns == "" {
			continue
		}
		grown[ns]++
		if live, counted := m.keys(ns); live+grown[ns] > m.limits.KeysMax || said && counted+grown[ns] > m.limits.KeysMax {
			return true
		}
	}
	for ns, n := range decide.Tokened(b.Deltas) {
		if ns != "" && m.tokensHeld(ns)+n > m.limits.TokensMax {
			return true
		}
	}
	return false
}

// keysFull reports whether a namespace has no room for a new key. Expired keys
// may take up room, if the store says so.
func (m *model) keysFull(ns string, said bool) bool {
	live, counted := m.keys(ns)
	return ns != "" && (live >= m.limits.KeysMax || (said && counted >= m.limits.KeysMax))
}

func (m *model) settled(d store.Delta, got store.Result) error {
	id := modelTokenID{d.Cell, d.Guard.Token}
	state, t, loose := m.state(id)
	if loose && got.Outcome != store.Expired {
		state = store.TokenUnknown
	}
	switch state {
	case store.TokenApplied, store.TokenRefused:
		t.result.Replayed = true
		return equal(got, t.result)
	case store.TokenSettled:
		return equal(got, store.Result{Outcome: store.Settled, Replayed: true})
	case store.TokenExpired:
		return equal(got, refusal(store.Expired)...)
	default:
		if m.tokensFull(d.Cell.Namespace) {
			return equal(got, refusal(store.Full)...)
		}
		m.tokens[id] = modelToken{settled: true, atMS: m.nowMS}
		return equal(got, store.Result{Outcome: store.Settled})
	}
}

// changed takes the result of a delta that may change its cell.
func (m *model) changed(d store.Delta, got store.Result) error {
	var refused []store.Outcome
	id := modelTokenID{d.Cell, d.Guard.Token}
	if id.name != "" {
		state, t, loose := m.state(id)
		if loose && got.Outcome != store.Expired {
			state = store.TokenUnknown
		}
		switch state {
		case store.TokenApplied, store.TokenRefused:
			if t.digest != d.Guard.Digest {
				return equal(got, refusal(store.Mismatch)...)
			}
			t.result.Replayed = true
			return equal(got, t.result)
		case store.TokenSettled:
			got.Replayed = false // either is fine
			return equal(got, refusal(store.Settled)...)
		case store.TokenExpired:
			return equal(got, refusal(store.Expired)...)
		case store.TokenUnknown:
			if m.tokensFull(d.Cell.Namespace) {
				refused = append(refused, store.Full)
			}
		}
	}
	is := m.value(d.Cell)
	full := m.keysFull(d.Cell.Namespace, got.Outcome == store.Full)
	var want store.Result
	if d.IsObject() {
		is, want = m.put(&d, full)
	} else {
		want = decide.Cell(&is, &d, m.nowMS, full)
	}
	if want.Outcome == store.Split && m.layers && got.Outcome == store.NotCount {
		want.Outcome = store.NotCount
	}
	if !d.Want { // Nobody asked for more.
		got = store.Result{Outcome: got.Outcome, Replayed: got.Replayed, Forgotten: got.Forgotten, Version: got.Version}
	}
	if id.name != "" && len(refused) == 0 && want.Outcome == got.Outcome && (want.Outcome == store.Bounded || want.Outcome == store.Unmet && d.IsObject()) {
		return m.keep(id, d, got, want)
	}
	switch {
	case len(refused) == 0 && want.Outcome == store.Applied:
		return m.take(d, got, is, want)
	case want.Outcome == store.Applied:
		return equal(got, refusal(refused...)...)
	default:
		return equal(got, append(refusal(refused...), want)...)
	}
}

// keep takes the refusal of a delta by its bound, or of bytes by a condition, which the token remembers if there is
// room for that.
func (m *model) keep(id modelTokenID, d store.Delta, got, want store.Result) error {
	if !got.Forgotten {
		m.tokens[id] = modelToken{digest: d.Guard.Digest, atMS: m.nowMS, result: kept(got)}
		return equal(got, want)
	}
	held := int64(0)
	for other, t := range m.tokens {
		if other.cell.Namespace == id.cell.Namespace && !t.settled && t.result.Outcome != store.Applied {
			held++
		}
	}
	if held < m.limits.RefusalsMax() {
		return fmt.Errorf("a refusal is forgotten, though only %d are remembered", held)
	}
	want.Forgotten = true
	return equal(got, want)
}

// take makes an accepted change.
func (m *model) take(d store.Delta, got store.Result, is store.Value, want store.Result) error {
	c := m.cells[d.Cell]
	if c == nil {
		c = &modelCell{}
		m.cells[d.Cell] = c
	}
	if still := d.Op == store.OpMerge && is.Exists && is.Version != 0; is.Exists && d.Op != store.OpGet && !still {
		if got.Version <= c.highest {
			return fmt.Errorf("version %d after %d", got.Version, c.highest)
		}
		is.Version, want.Version = got.Version, got.Version
	}
	if err := equal(got, want); err != nil || d.Op == store.OpGet {
		return err
	}
	had := m.bytes[d.Cell]
	if d.Op == store.OpMerge {
		had = m.merge(&d).next
	} else if d.IsObject() {
		had = string(d.Event.Bytes)
	}
	c.Value, c.highest = is, max(c.highest, is.Version)
	if delete(m.bytes, d.Cell); is.Layout == store.LayoutObject {
		m.bytes[d.Cell] = had
	}
	if d.Guard.Token != "" {
		m.tokens[modelTokenID{d.Cell, d.Guard.Token}] = modelToken{digest: d.Guard.Digest, atMS: m.nowMS, result: kept(got)}
	}
	return nil
}

// value returns what a cell reads as.
func (m *model) value(c store.Cell) store.Value {
	v := m.cells[c]
	if v == nil || v.DeadlineMS != 0 && v.DeadlineMS <= m.nowMS {
		return store.Value{}
	}
	return v.Value
}

// scan returns what a range lists.
func (m *model) scan(r store.Range, n int) []store.Entry {
	var found []store.Entry
	for c := range m.cells {
		v := m.value(c)
		if v.Exists && c.Namespace == r.Namespace && strings.HasPrefix(c.Key, r.Prefix) && c.Key > r.After {
			found = append(found, store.Entry{Key: c.Key, Value: v})
		}
	}
	slices.SortFunc(found, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return found[:min(n, len(found))]
}

// looked takes the fate of a token, or returns what is wrong with it.
func (m *model) looked(c store.Cell, token string, got store.Fate) error {
	state, t, loose := m.state(modelTokenID{c, token})
	switch {
	case got.State == state:
	case loose && got.State == store.TokenUnknown:
	default:
		return fmt.Errorf("token %q is %v, want %v", token, got.State, state)
	}
	if state != store.TokenApplied && state != store.TokenSettled && state != store.TokenRefused {
		return nil
	}
	if got.AtMS != t.atMS {
		return fmt.Errorf("token %q was decided at %d, want %d", token, got.AtMS, t.atMS)
	}
	got.Result.Replayed = t.result.Replayed
	if got.Result != t.result {
		return fmt.Errorf("token %q has result %+v, want %+v", token, got.Result, t.result)
	}
	return nil
}
