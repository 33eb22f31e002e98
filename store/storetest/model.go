package storetest

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/quipudb/quipu/store"
)

// A model is a store written to be obviously right: unbounded integers, maps,
// and one call at a time. It does not predict versions, which are a store's
// own choice, but holds it to what it said: they rise, and a repeat tells the
// same one. It is told each reply, and says what is wrong with it.
type model struct {
	limits store.Limits
	nowMS  int64
	cells  map[store.Cell]*modelCell
	tokens map[modelTokenID]modelToken
	parts  []modelPart
}

type modelCell struct {
	n          *big.Int // nil if absent, unless that is by its deadline
	version    uint64   // 0 if absent
	deadlineMS int64    // 0 is never
	layout     int64
	highest    uint64 // version of the cell's whole life
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
			return wantErr(r, store.KindSplit)
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
		return wantErr(r, store.KindSplit)
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
	return together && slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return m.value(d.Cell).Layout != 0 && needsWhole(d) })
}

// needsWhole reports whether a part of a counter can't decide d.
func needsWhole(d store.Delta) bool {
	if d.Guard.Laid || d.Op == store.OpSettle || d.Op == store.OpRetire {
		return false
	}
	d.Guard.Token, d.Guard.Digest = "", 0
	return d.Op != store.OpAdd || d.Want || d.Expiry != store.ExpiryKeep || d.Guard != (store.Guard{}) ||
		d.N > store.AddMax || d.N < -store.AddMax
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
	default:
		return store.TokenApplied, t, false
	}
}

// tokensFull reports whether a namespace has no room for a new token. What a
// store may have forgotten takes none.
func (m *model) tokensFull(ns string) bool {
	held := int64(0)
	for id, t := range m.tokens {
		if id.cell.Namespace == ns && m.nowMS-t.atMS < store.TokenKeptMS(m.limits.TokenWindow) {
			held++
		}
	}
	return ns != "" && held >= m.limits.TokensMax
}

// keys returns how many keys a namespace has, and how many a store may count
// that has not removed those that have expired.
func (m *model) keys(ns string) (live, counted int64) {
	for c, v := range m.cells {
		if c.Namespace == ns && v.n != nil {
			counted++
			if m.value(c).Exists {
				live++
			}
		}
	}
	return live, counted
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
	case store.TokenApplied:
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
		case store.TokenApplied:
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
	c := m.cells[d.Cell]
	if c == nil {
		c = &modelCell{}
		m.cells[d.Cell] = c
	}
	old := m.value(d.Cell)
	after, ms, why := m.next(d, old, got.Outcome)
	if len(refused) == 0 && why == store.Applied {
		return m.take(c, id, d, got, old, after, ms)
	}
	results := refusal(refused...)
	if why != store.Applied {
		r := store.Result{Outcome: why}
		if d.Want && (why == store.Unmet || why == store.Bounded) {
			r.Before, r.After, r.Existed, r.DeadlineMS = old.N, old.N, old.Exists, old.DeadlineMS
		}
		results = append(results, r)
	}
	if !d.Want {
		got = store.Result{Outcome: got.Outcome, Replayed: got.Replayed, Version: got.Version} // nobody asked for more
	}
	return equal(got, results...)
}

// next returns what d makes of a cell, nil if it leaves it absent, and its
// deadline; or why it does not. The outcome that the store said counts only
// where it had a choice.
func (m *model) next(d store.Delta, old store.Value, said store.Outcome) (*big.Int, int64, store.Outcome) {
	set, ms := newDeadline(d, old, m.nowMS)
	var after *big.Int
	if old.Exists {
		after = big.NewInt(old.N)
	}
	switch {
	case d.Guard.Match && d.Guard.Version != old.Version:
		return nil, 0, store.Changed
	case d.Guard.Laid && d.Guard.Layout != old.Layout, d.Op == store.OpLayout && old.DeadlineMS != 0:
		return nil, 0, store.Unmet
	case old.Layout != 0 && needsWhole(d):
		return nil, 0, store.Split
	case d.Guard.Exists == store.ExistsMust && !old.Exists,
		d.Guard.Exists == store.ExistsNot && old.Exists,
		d.Op == store.OpExpire && (!old.Exists || !set):
		return nil, 0, store.Unmet
	case d.Op == store.OpGet:
		return after, old.DeadlineMS, store.Applied
	case d.Op == store.OpDelete:
		return nil, 0, store.Applied
	case !old.Exists && m.keysFull(d.Cell.Namespace, said == store.Full):
		return nil, 0, store.Full
	case d.Op == store.OpSet:
		if b := d.Guard.Bound; b != nil && (d.N < b.Low || d.N > b.High) {
			return nil, 0, store.Bounded
		}
		after = big.NewInt(d.N)
	case d.Op == store.OpLayout:
		if b := d.Guard.Bound; b != nil && (old.N < b.Low || old.N > b.High) {
			return nil, 0, store.Bounded
		}
		after = big.NewInt(old.N)
	case d.Op == store.OpAdd:
		var why store.Outcome
		if after, why = boundedSum(old.N, d); why != store.Applied {
			return nil, 0, why
		}
	}
	return after, ms, store.Applied
}

// newDeadline returns the deadline of a cell that d changes, and whether d's
// conditions on it hold.
func newDeadline(d store.Delta, old store.Value, nowMS int64) (held bool, ms int64) {
	has := old.DeadlineMS != 0
	if d.Expiry == store.ExpiryKeep {
		return true, old.DeadlineMS
	}
	if d.Expiry == store.ExpiryClear {
		return has, 0
	}
	// None is later than all others.
	is := big.NewInt(old.DeadlineMS)
	if !has {
		is.Lsh(big.NewInt(1), 64)
	}
	until := big.NewInt(d.DeadlineMS)
	if last := big.NewInt(math.MaxInt64); d.Expiry&store.ExpiryAfter != 0 {
		if until.Add(until, big.NewInt(nowMS)); until.Cmp(last) > 0 {
			until = last
		}
	}
	order := until.Cmp(is)
	for condition, holds := range map[store.Expiry]bool{
		store.ExpiryIfNone: !has, store.ExpiryIfSome: has, store.ExpiryIfLater: order > 0, store.ExpiryIfSooner: order < 0,
	} {
		if d.Expiry&condition != 0 && !holds {
			return false, old.DeadlineMS
		}
	}
	return true, until.Int64()
}

// inward returns the limits of a bound that holds against what moves outwards
// only.
func inward(old, n int64, b store.Bound) (low, high *big.Int) {
	low, high = big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	switch {
	case n < 0 && b.Saturate && old < b.Low, n > 0 && b.Saturate && old > b.High:
		return big.NewInt(old), big.NewInt(old)
	case n < 0:
		low = big.NewInt(b.Low)
	case n > 0:
		high = big.NewInt(b.High)
	}
	return low, high
}

// boundedSum returns the sum that an add makes, or why it does not.
func boundedSum(old int64, d store.Delta) (*big.Int, store.Outcome) {
	before := big.NewInt(old)
	after := new(big.Int).Add(before, big.NewInt(d.N))
	if b := d.Guard.Bound; b != nil {
		low, high := big.NewInt(b.Low), big.NewInt(b.High)
		if b.Inward {
			low, high = inward(old, d.N, *b)
		}
		out := after.Cmp(low) < 0 || after.Cmp(high) > 0
		if out && !b.Saturate {
			return nil, store.Bounded
		}
		if after.Cmp(low) < 0 {
			after = low
		}
		if after.Cmp(high) > 0 {
			after = high
		}
		if out && !new(big.Int).Sub(after, before).IsInt64() {
			return nil, store.Overflow
		}
	}
	if !after.IsInt64() {
		return nil, store.Overflow
	}
	return after, store.Applied
}

func valueOf(n *big.Int) int64 {
	if n == nil {
		return 0
	}
	return n.Int64()
}

// take makes an accepted change.
func (m *model) take(c *modelCell, id modelTokenID, d store.Delta, got store.Result, old store.Value, after *big.Int, ms int64) error {
	made := valueOf(after)
	if ms != 0 && ms <= m.nowMS { // it is over already
		after, ms = nil, 0
	}
	want := store.Result{
		Outcome: store.Applied, Version: got.Version,
		Before: old.N, After: made, Existed: old.Exists, DeadlineMS: ms,
	}
	if !d.Want { // nobody asked
		want.Before, want.After, want.Existed, want.DeadlineMS = got.Before, got.After, got.Existed, got.DeadlineMS
	}
	switch {
	case d.Op == store.OpGet:
		want.Version = old.Version
	case after == nil:
		want.Version = 0
	case got.Version <= c.highest:
		return fmt.Errorf("version %d after %d", got.Version, c.highest)
	}
	if err := equal(got, want); err != nil {
		return err
	}
	if d.Op == store.OpGet {
		return nil
	}
	switch {
	case d.Op == store.OpLayout:
		c.layout = d.N
	case after == nil:
		c.layout = 0
	}
	c.n, c.version, c.deadlineMS, c.highest = after, got.Version, ms, max(c.highest, got.Version)
	if id.name != "" {
		m.tokens[id] = modelToken{digest: d.Guard.Digest, atMS: m.nowMS, result: kept(got)}
	}
	return nil
}

// value returns what a cell reads as.
func (m *model) value(c store.Cell) store.Value {
	v := m.cells[c]
	if v == nil || v.n == nil || (v.deadlineMS != 0 && v.deadlineMS <= m.nowMS) {
		return store.Value{}
	}
	return store.Value{N: v.n.Int64(), Version: v.version, Exists: true, DeadlineMS: v.deadlineMS, Layout: v.layout}
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
	if state != store.TokenApplied && state != store.TokenSettled {
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
