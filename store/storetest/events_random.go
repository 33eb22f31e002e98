package storetest

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// randomEvents runs one random history of events, and compares each answer and every
// cell with an oracle that knows nothing of package decide: it copies everything,
// changes the copy step by step, and keeps it or does not.
func randomEvents(t *testing.T, r *rapid.T, open Opener) {
	clock := newClock()
	k := newKit(t, r, open(t, Config{Limits: store.Limits{TokensMax: 1 << 20}, Now: clock.now}))
	defer k.close()
	m := &eventMachine{kit: k, clock: clock, cells: k.together(2), tokens: make(map[modelTokenID]store.Result)}
	m.is = world{own: make(map[store.Cell]*big.Int), parts: make(map[store.PartCell]store.Content), entries: make(map[store.Cell][]string), home: k.home(m.cells[0])}
	r.Repeat(map[string]func(*rapid.T){
		"event": m.doEvent,
		"plain": func(r *rapid.T) {
			c := rapid.SampledFrom(m.cells).Draw(r, "cell")
			m.do(rapid.SampledFrom([]store.Delta{add(c, 1), set(c, 5), del(c)}).Draw(r, "delta"))
		},
		"audit": func(*rapid.T) { k.audited() },
		"pass": func(r *rapid.T) {
			clock.move(time.Duration(rapid.IntRange(1, 900).Draw(r, "ms")) * time.Millisecond)
		},
		"": func(*rapid.T) { m.same() },
	})
}

// A world is all that a store holds.
type world struct {
	own     map[store.Cell]*big.Int // none if absent
	parts   map[store.PartCell]store.Content
	entries map[store.Cell][]string // what stands after the stamps, oldest first
	home    int                     // the partition of all cells
}

type eventMachine struct {
	*kit
	clock  *clock
	cells  []store.Cell
	is     world
	tokens map[modelTokenID]store.Result // the first results
}

// The parts that meet. Bytes are in the last two.
func someParts() []store.Part {
	return []store.Part{
		partMember, partHeld, partOutside, partBook, partWindow,
		partOf(store.PartMembers, 1, ""), partOf(store.PartMembers, 2, ""),
		partOf(store.PartSketch, 0, ""), partOf(store.PartWindowSketch, 3, ""),
	}
}

func drawNumber(r *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 1, 1, 2, -1, 5, math.MaxInt64, math.MinInt64}).Draw(r, "n")
}

func drawMet(r *rapid.T, kinds ...store.MetKind) store.Met {
	m := store.Met{Kind: rapid.SampledFrom(append(kinds, store.MetAny, store.MetAny)).Draw(r, "met")}
	if m.Kind != store.MetAny {
		m.N = rapid.Int64Range(0, 3).Draw(r, "of")
	}
	return m
}

// drawAsk returns what is asked of a limiter, or what none knows.
func drawAsk(r *rapid.T) []byte {
	if rapid.IntRange(0, 9).Draw(r, "known") == 0 {
		return drawBytes(r)
	}
	req := bucket(rapid.Int64Range(0, 4).Draw(r, "cost"), 2, time.Second, 3)
	if req.Rules[0].Algorithm = limit.Algorithm(rapid.IntRange(1, 3).Draw(r, "algorithm")); req.Rules[0].Algorithm != limit.Bucket {
		req.Rules[0].Burst = 0
	}
	req.Burn = rapid.Bool().Draw(r, "burn")
	return req.Append(nil)
}

// drawItems returns what is asked of a sketch, or of several, or what none knows.
func drawItems(r *rapid.T) []byte {
	if rapid.IntRange(0, 3).Draw(r, "several") == 0 {
		return store.AppendAsks(nil, drawRequest(r), nil, drawRequest(r))
	}
	return drawRequest(r)
}

func drawRequest(r *rapid.T) []byte {
	if rapid.IntRange(0, 19).Draw(r, "known") == 0 {
		return drawBytes(r)
	}
	var items []string
	for range rapid.IntRange(0, 4).Draw(r, "items") {
		items = append(items, fmt.Sprint(rapid.IntRange(0, 40).Draw(r, "item")))
	}
	return asking(rapid.IntRange(5, 7).Draw(r, "precision"), items...)
}

func drawBytes(r *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{"", "x", "yz"}).Draw(r, "bytes"))
}

func (m *eventMachine) drawRider(r *rapid.T, own bool) store.Rider {
	x := store.Rider{Part: rapid.SampledFrom(someParts()).Draw(r, "part")}
	all := []store.MetKind{store.MetEqual, store.MetNot}
	x.When = drawMet(r, append(all, store.MetBook)...)
	switch kind := rapid.IntRange(0, 9).Draw(r, "rider"); {
	case kind == 0:
		x.Part, x.Op, x.Place, x.Bytes = partEntries, store.OpPut, store.PlaceVersion, drawBytes(r)
		return x
	case kind == 1:
		x.Part, x.Op, x.Place, x.N = partOf(store.PartMembers, 1, ""), store.OpAdd, store.PlaceMet, drawNumber(r)
		return x
	case kind == 2 && own:
		x.Part = ""
	case kind == 3:
		x.Part, x.Op, x.When = partOf(store.PartWindowShared, 3, rapid.SampledFrom([]string{"0", "7"}).Draw(r, "slot")), store.OpMerge, store.Met{}
		x.N = rapid.Int64Range(0, 2).Draw(r, "request")
		return x
	}
	x.Is = drawMet(r, all...)
	x.Op = rapid.SampledFrom([]store.Op{store.OpAdd, store.OpAdd, store.OpAdd, store.OpSet, store.OpMax, store.OpDelete, store.OpGet}).Draw(r, "op")
	switch {
	case x.Part == "" && (x.Op == store.OpMax || x.Op == store.OpDelete):
		x.Op = store.OpAdd
	case x.Part.Kind().IsSketch() && (x.Op == store.OpAdd || x.Op == store.OpMax):
		if x.Op = store.OpMerge; rapid.IntRange(0, 3).Draw(r, "own") == 0 {
			x.Bytes = drawItems(r)
		}
		return x
	case x.Part.Kind().HasBytes() && x.Op != store.OpDelete && x.Op != store.OpGet:
		x.Op, x.Bytes = store.OpPut, drawBytes(r)
		return x
	}
	if x.Op == store.OpDelete || x.Op == store.OpGet {
		return x
	}
	if x.Amount = store.Amount(rapid.IntRange(0, 2).Draw(r, "amount")); x.Amount == store.AmountN {
		x.N = drawNumber(r)
	}
	if x.Op == store.OpAdd && rapid.IntRange(0, 3).Draw(r, "bounded") == 0 {
		x.Bound = &store.Bound{Low: -2, High: 6, Inward: rapid.Bool().Draw(r, "inward")}
	}
	return x
}

func (m *eventMachine) doEvent(r *rapid.T) {
	d := store.Delta{
		Cell: rapid.SampledFrom(m.cells).Draw(r, "cell"), Want: rapid.Bool().Draw(r, "want"), N: drawNumber(r),
		Op: rapid.SampledFrom([]store.Op{store.OpAdd, store.OpAdd, store.OpSet, store.OpDelete}).Draw(r, "op"),
	}
	e := &store.Event{Is: drawMet(r, store.MetEqual, store.MetNot)}
	if rapid.Bool().Draw(r, "part leads") {
		if e.Part = rapid.SampledFrom(append(someParts(), client("eve"))).Draw(r, "lead"); e.Part.Kind().IsSketch() && d.Op == store.OpAdd {
			d.Op, d.N, e.Bytes = store.OpMerge, 0, drawItems(r)
		} else if e.Part.Kind() == store.PartLimit {
			d.Op, d.N, e.Bytes = store.OpMerge, 0, drawAsk(r)
		} else if e.Part.Kind().HasBytes() {
			d.Op, d.N, e.Bytes = store.OpPut, 0, drawBytes(r)
		} else if d.Op == store.OpAdd && rapid.IntRange(0, 3).Draw(r, "max") == 0 {
			d.Op = store.OpMax
		}
	}
	d.Guard.Exists = rapid.SampledFrom([]store.Existence{store.ExistsAny, store.ExistsAny, store.ExistsMust, store.ExistsNot}).Draw(r, "exists")
	for range rapid.IntRange(0, 4).Draw(r, "riders") {
		e.Riders = append(e.Riders, m.drawRider(r, e.Part != ""))
	}
	shares := slices.ContainsFunc(e.Riders, func(x store.Rider) bool { return x.Op == store.OpMerge && x.Bytes == nil })
	if d.Op != store.OpPut && d.Op != store.OpMerge && shares && rapid.IntRange(0, 3).Draw(r, "asks") > 0 {
		e.Bytes = drawItems(r)
	}
	if n := rapid.IntRange(0, len(e.Riders)).Draw(r, "plan"); n > 0 {
		plan, err := store.NewPlan(e.Riders[:n]...)
		if err != nil {
			m.Fatalf("NewPlan: %v", err)
		}
		e.Plan, e.Riders = plan, e.Riders[n:]
	}
	d.Event = e
	if rapid.IntRange(0, 3).Draw(r, "token") == 0 {
		d.Guard.Token, d.Guard.Digest = rapid.SampledFrom([]string{"t", "u", "v"}).Draw(r, "name"), 7
	}
	m.do(d)
}

// do applies a delta and compares what is told with what the oracle says.
func (m *eventMachine) do(d store.Delta) {
	m.Helper()
	got := m.one(d)
	id := modelTokenID{d.Cell, d.Guard.Token}
	if first, known := m.tokens[id]; known {
		m.repeats(got, first)
		return
	}
	will, want := m.is.after(d, m.clock.ms()*1000)
	version := got.Version
	if got.Version = 0; got != want {
		m.Fatalf("%+v, event %+v: %+v, want %+v", d, d.Event, got, want)
	}
	if (version != 0) != (want.Outcome == store.Applied && will.own[d.Cell] != nil) {
		m.Fatalf("%+v: version %d", d, version)
	}
	got.Version = version
	if want.Outcome == store.Applied {
		m.is = will
	}
	remembers := want.Outcome == store.Applied || want.Outcome == store.Bounded || d.Event != nil && want.Outcome == store.Unmet
	if id.name != "" && remembers {
		m.tokens[id] = got
	}
}

// after returns what becomes of a world by a delta, and what its caller is told.
func (w world) after(d store.Delta, nowUS int64) (world, store.Result) {
	e := d.Event
	if e == nil {
		e = &store.Event{}
	}
	was := w
	w = world{own: maps.Clone(w.own), parts: maps.Clone(w.parts), entries: maps.Clone(w.entries), home: w.home}
	met := was.value(d.Cell, e.Part)
	refused := func(o store.Outcome, rider int) (world, store.Result) {
		r := store.Result{Outcome: o, Refused: uint8(rider)}
		if d.Want && (o == store.Unmet || o == store.Bounded) {
			r.Before, r.After, r.Existed = met.N, met.N, met.Exists
		}
		return was, r
	}
	if !e.Is.Holds(met.N) || d.Guard.Exists == store.ExistsMust && !met.Exists || d.Guard.Exists == store.ExistsNot && met.Exists {
		return refused(store.Unmet, 0)
	}
	var answer store.Result
	op, bytes := d.Op, e.Bytes
	if op == store.OpMerge && e.Part.Kind().IsSketch() {
		_, changed, reply, ok := sketch.Decide(nil, met.Bytes, bytes)
		if !ok {
			return refused(store.Unmet, 0)
		}
		if answer.Before, answer.After = reply[0], reply[1]; !changed {
			op = store.OpGet
		}
	} else if op == store.OpMerge {
		next, changed, reply := limit.Decide(nil, met.Bytes, bytes, nowUS)
		answer.Before, answer.After = reply.Pack()
		if !changed {
			was, r := refused(store.Untimely, 0)
			if d.Want {
				r.Before, r.After, r.Existed = answer.Before, answer.After, met.Exists
			}
			return was, r
		}
		op, bytes = store.OpPut, next
	}
	if o := w.change(d.Cell, e.Part, op, big.NewInt(d.N), bytes, d.Guard.Bound); o != store.Applied {
		return refused(o, 0)
	}
	now := w.value(d.Cell, e.Part)
	var lines []string
	for i := range e.Len() {
		x := e.Rider(i)
		book := was.value(d.Cell, partBook)
		if x.When.Kind == store.MetBook && book.N >= x.When.N ||
			x.When.Kind != store.MetBook && !x.When.Holds(met.N) {
			continue
		}
		n := new(big.Int)
		switch x.Amount {
		case store.AmountN:
			n.SetInt64(x.N)
		case store.AmountApplied:
			n.Sub(big.NewInt(now.N), big.NewInt(met.N))
		case store.AmountWas:
			n.SetInt64(was.value(d.Cell, "").N)
		}
		at := x.Part
		switch f, _ := at.Fields(); x.Place {
		case store.PlaceFixed:
		case store.PlaceVersion:
			lines = append(lines, string(x.Bytes))
			continue
		case store.PlaceMet:
			sum := new(big.Int).Add(big.NewInt(f.Position), big.NewInt(met.N))
			if !sum.IsInt64() {
				return refused(store.Overflow, i+1)
			}
			at = at.At(sum.Int64())
		}
		if !n.IsInt64() {
			return refused(store.Overflow, i+1)
		}
		asked := x.Bytes
		if x.Op == store.OpMerge && asked == nil {
			if asked = askedOf(e.Bytes, int(x.N)); asked == nil {
				continue
			}
		}
		of := d.Cell
		if at != "" {
			of = at.Owner(d.Cell, w.home)
		}
		if !x.Is.Holds(w.value(of, at).N) {
			return refused(store.Unmet, i+1)
		}
		if o := w.change(of, at, x.Op, n, asked, x.Bound); o != store.Applied {
			return refused(o, i+1)
		}
	}
	if w.own[d.Cell] == nil && (e.Part != "" || d.Op != store.OpDelete) {
		w.own[d.Cell] = new(big.Int)
	}
	if len(lines) > 0 {
		// Two entries of one step are at one place: the last is there.
		w.entries[d.Cell] = append(slices.Clone(w.entries[d.Cell]), lines[len(lines)-1])
	}
	r := store.Result{Outcome: store.Applied}
	if d.Want {
		r.Before, r.After, r.Existed = met.N, now.N, met.Exists
		if d.Op == store.OpMerge {
			r.Before, r.After = answer.Before, answer.After
		}
	}
	return w, r
}

// askedOf returns request n of what an event asks, from 1 on; of 0 all of it.
func askedOf(bytes []byte, n int) []byte {
	if n == 0 || bytes == nil {
		return bytes
	}
	var asks [][]byte
	if !store.EachAsk(bytes, func(ask []byte) { asks = append(asks, ask) }) {
		return []byte{}
	}
	if n > len(asks) {
		return nil
	}
	return asks[n-1]
}

func (w world) value(c store.Cell, p store.Part) store.Content {
	if p != "" {
		return w.parts[store.PartCell{Cell: c, Part: p}]
	}
	if n := w.own[c]; n != nil {
		return store.Content{N: n.Int64(), Exists: true}
	}
	return store.Content{}
}

// change makes one change in place, or says why it can't be.
func (w world) change(c store.Cell, p store.Part, op store.Op, n *big.Int, bytes []byte, b *store.Bound) store.Outcome {
	is := w.value(c, p)
	will := store.Content{Exists: true}
	switch op {
	case store.OpGet:
		return store.Applied
	case store.OpDelete:
		will = store.Content{}
	case store.OpPut:
		will = p.Kind().Content(bytes)
	case store.OpMerge:
		next, changed, _, ok := sketch.Decide(nil, is.Bytes, bytes)
		switch {
		case !ok:
			return store.Unmet
		case !changed:
			return store.Applied
		}
		will = p.Kind().Content(next)
	case store.OpMax:
		if will.N = n.Int64(); is.Exists && is.N > will.N {
			will = is
		}
	case store.OpSet:
		will.N = n.Int64()
	case store.OpAdd:
		sum := new(big.Int).Add(big.NewInt(is.N), n)
		if b != nil {
			below := sum.Cmp(big.NewInt(b.Low)) < 0 && (!b.Inward || n.Sign() < 0)
			above := sum.Cmp(big.NewInt(b.High)) > 0 && (!b.Inward || n.Sign() > 0)
			if below || above {
				return store.Bounded
			}
		}
		if !sum.IsInt64() {
			return store.Overflow
		}
		if n.Sign() == 0 && p != "" {
			return store.Applied
		}
		will.N = sum.Int64()
	default:
		return 0
	}
	switch {
	case p != "" && will.Exists:
		w.parts[store.PartCell{Cell: c, Part: p}] = will
	case p != "":
		delete(w.parts, store.PartCell{Cell: c, Part: p})
	case will.Exists:
		w.own[c] = big.NewInt(will.N)
	default:
		delete(w.own, c)
	}
	return store.Applied
}

// same checks that the store holds what the oracle's world does, and nothing else.
func (m *eventMachine) same() {
	m.Helper()
	held := 0
	for _, c := range m.cells {
		want, v := m.is.value(c, ""), m.read(c)
		if v.N != want.N || v.Exists != want.Exists {
			m.Fatalf("%q is %+v, want %+v", c.Key, v, want)
		}
		var lines []string
		for _, e := range m.entries(c) {
			_, rest, _ := store.CutStamp(e.Content.Bytes)
			lines = append(lines, rest)
		}
		if !slices.Equal(lines, m.is.entries[c]) {
			m.Fatalf("the entries of %q are %q, want %q", c.Key, lines, m.is.entries[c])
		}
		held += len(lines)
	}
	for id, want := range m.is.parts {
		if got := m.part(id.Cell, id.Part); got != want {
			m.Fatalf("part %x of %q is %+v, want %+v", id.Part, id.Cell.Key, got, want)
		}
	}
	es, err := m.store.ScanParts(m.ctx, store.Rows{Namespace: namespace}, store.ScanMax)
	if err != nil || len(es) != len(m.is.parts)+held {
		m.Fatalf("%d parts, %v, want %d", len(es), err, len(m.is.parts)+held)
	}
}
