package storetest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/store"
)

// Random checks random histories: one call at a time against a plain model, some
// of anything and some of what fast paths take, and many callers at once for what
// must hold of any history. A failure is
// shrunk, and printed with the flags that replay it (of a concurrent history,
// what the callers do; not how they meet). -rapid.checks and -rapid.steps make
// the search longer.
func Random(t *testing.T, open Opener) {
	t.Run("sequential", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) { sequential(t, r, open) })
	})
	t.Run("plain", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) { plain(t, r, open) })
	})
	t.Run("events", func(t *testing.T) { randomly(t, open) })
	t.Run("concurrent", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) { concurrent(t, r, open) })
	})
}

// randomly checks random histories of events.
func randomly(t *testing.T, open Opener) {
	rapid.Check(t, func(r *rapid.T) { randomEvents(t, r, open) })
	rapid.Check(t, func(r *rapid.T) { equations(t, r, open) })
	rapid.Check(t, func(r *rapid.T) { holds(t, r, open) })
}

// sequential runs one random history and checks every answer.
func sequential(t *testing.T, r *rapid.T, open Opener) {
	m := newMachine(t, r, open)
	defer m.close()
	m.run(t, r, map[string]func(*rapid.T){
		"apply":      m.doApply,
		"adds":       m.doAdds,
		"call":       m.doCall,
		"again":      m.doAgain,
		"invalid":    m.doInvalid,
		"enlist":     m.doEnlist,
		"read":       m.doRead,
		"size":       m.doSize,
		"namespaces": m.doNamespaces,
		"scan":       m.doScan,
		"lookup":     m.doLookup,
		"time":       m.doTime,
		"clock back": m.doClockBack,
		"audit":      func(*rapid.T) { m.audited() },
	})
}

func newMachine(t *testing.T, r *rapid.T, open Opener) *machine {
	m := &machine{clock: newClock(), tight: rapid.Bool().Draw(r, "tight limits")}
	limits := store.Limits{TokenWindow: window}
	if m.tight {
		limits.KeysMax, limits.TokensMax, limits.WritersMax = 3, 4, 2
	}
	m.kit = newKit(t, r, open(t, Config{Limits: limits, Now: m.clock.now}))
	m.model = newModel(m.store.Traits())
	m.ops = []store.Op{store.OpAdd, store.OpAdd, store.OpAdd, store.OpSet, store.OpDelete, store.OpSettle, store.OpExpire, store.OpGet, store.OpPut, store.OpMerge}
	if m.store.Traits().Layouts {
		m.ops = append(m.ops, store.OpLayout)
	}
	return m
}

// run takes some of the actions, and what else can be done to the store, and looks
// at everything in the end.
func (m *machine) run(t *testing.T, r *rapid.T, actions map[string]func(*rapid.T)) {
	if m.inst.Reopen != nil {
		actions["reopen"] = func(*rapid.T) { m.replace(m.inst.Reopen(t)) }
	}
	if m.inst.Crash != nil {
		actions["crash"] = func(*rapid.T) { m.replace(m.inst.Crash(t)) }
	}
	r.Repeat(actions)
	m.readEverything()
	m.audited()
}

// A machine is a store and its model, driven by random actions.
type machine struct {
	*kit
	clock   *clock
	tight   bool // small limits
	model   *model
	writers []store.Writer
	frozen  []store.Batch // numbered batches that were sent
	ops     []store.Op    // that deltas have, the likelier ones more than once
}

// tick brings the model's time up to date.
func (m *machine) tick() {
	m.model.nowMS = max(m.model.nowMS, m.clock.now().UnixMilli())
}

// send applies batches in one call and shows the replies to the model.
func (m *machine) send(bs ...store.Batch) {
	m.Helper()
	m.tick()
	replies := m.started(bs...)
	if replies == nil {
		replies = m.apply(bs...)
	}
	for i, r := range replies {
		if err := m.model.replied(bs[i], r); err != nil {
			m.Fatalf("batch %d, %+v: %v", i, bs[i], err)
		}
		if bs[i].Writer != 0 {
			m.frozen = append(m.frozen, bs[i])
		}
	}
}

// The small world in which histories meet.

func someSpaces() []string { return []string{"m", "n"} }

func someKeys() []string { return []string{"a", "b", "a\x00", "c", "ab"} }

func someTokens() []string { return []string{"s", "t", "u", "v"} }

func someNumbers() []int64 {
	return []int64{
		1, -1, 0, 2, -3, 1000, 1 << 62,
		math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1,
	}
}

func (m *machine) drawCell(r *rapid.T) store.Cell {
	return store.Cell{
		Namespace: rapid.SampledFrom(someSpaces()).Draw(r, "namespace"),
		Key:       rapid.SampledFrom(someKeys()).Draw(r, "key"),
	}
}

// drawToken returns a token; some carry a time near the end of the window.
func (m *machine) drawToken(r *rapid.T) string {
	if rapid.IntRange(0, 3).Draw(r, "timed") > 0 {
		return rapid.SampledFrom(someTokens()).Draw(r, "token")
	}
	age := rapid.SampledFrom([]time.Duration{0, window, window + time.Millisecond, -window}).Draw(r, "age")
	return uuid7(newClock().now().Add(-age), rapid.IntRange(0, 1).Draw(r, "n"))
}

func (m *machine) drawDelta(r *rapid.T, c store.Cell) store.Delta {
	d := store.Delta{
		Cell: c,
		Op:   rapid.SampledFrom(m.ops).Draw(r, "op"),
		N:    rapid.SampledFrom(someNumbers()).Draw(r, "n"),
		Want: rapid.Bool().Draw(r, "want"),
	}
	if d.Op != store.OpAdd && d.Op != store.OpSet {
		d.N = 0
	}
	if d.Op == store.OpLayout {
		d = layout(c, m.drawLayout(r, c), rapid.SampledFrom([]int64{0, 1, math.MaxInt64}).Draw(r, "layout"))
		if rapid.IntRange(0, 3).Draw(r, "bounded") == 0 {
			d = within(d, drawBound(r))
			d.Guard.Bound.Saturate = false
		}
		return d
	}
	if d.Op == store.OpPut {
		d.Event = &store.Event{Part: store.Object, Bytes: []byte(rapid.SampledFrom([]string{"", "x", "yz"}).Draw(r, "bytes"))}
	}
	if d.Op == store.OpMerge {
		d.Event = &store.Event{Part: store.Object, Bytes: drawItems(r)}
	}
	if d.Op == store.OpSet && rapid.IntRange(0, 2).Draw(r, "anew") == 0 {
		d.Event = &store.Event{Part: store.Object}
	}
	if d.Op == store.OpExpire || ((d.Op == store.OpAdd || d.Op == store.OpSet || d.Op == store.OpPut || d.Op == store.OpMerge) && rapid.IntRange(0, 2).Draw(r, "expiring") == 0) {
		m.drawExpiry(r, &d)
	}
	if (d.Op == store.OpAdd || d.Op == store.OpSet) && d.Event == nil && rapid.IntRange(0, 3).Draw(r, "bounded") == 0 {
		d = within(d, drawBound(r))
		d.Guard.Bound.Saturate = d.Guard.Bound.Saturate && d.Op == store.OpAdd
	}
	if d.Op == store.OpSettle || (d.Op != store.OpGet && rapid.Bool().Draw(r, "once")) {
		d.Guard.Token = m.drawToken(r)
		d.Guard.Digest = rapid.SampledFrom([]uint64{7, 7, 7, 1 << 63}).Draw(r, "digest")
		// The digest must tell payloads apart: a caller's duty.
		d.Guard.Digest += uint64(d.Op)<<32 + uint64(d.N)
		if d.Event != nil {
			d.Guard.Digest += uint64(store.PartObject.Number(d.Event.Bytes))
		}
		d.Want = true
	}
	if d.Op != store.OpSettle && rapid.IntRange(0, 4).Draw(r, "match") == 0 {
		d.Guard.Match, d.Guard.Version = true, m.drawVersion(r, c)
	}
	if d.Op != store.OpSettle && rapid.IntRange(0, 4).Draw(r, "existence") == 0 {
		d.Guard.Exists = rapid.SampledFrom([]store.Existence{store.ExistsMust, store.ExistsNot}).Draw(r, "exists")
	}
	if m.store.Traits().Layouts && d.Op != store.OpSettle && d.Event == nil && d.Expiry == store.ExpiryKeep && rapid.IntRange(0, 4).Draw(r, "laid") == 0 {
		d = laid(d, m.drawLayout(r, c))
	}
	return d
}

// drawLayout returns the layout of a cell, or another.
func (m *machine) drawLayout(r *rapid.T, c store.Cell) int64 {
	if is := m.model.value(c).Layout; rapid.IntRange(0, 2).Draw(r, "as laid") > 0 && is != store.LayoutObject {
		return is
	}
	return rapid.SampledFrom([]int64{0, 1}).Draw(r, "was laid")
}

// drawVersion returns the version of a cell, or another.
func (m *machine) drawVersion(r *rapid.T, c store.Cell) uint64 {
	now := m.model.value(c).Version
	if rapid.Bool().Draw(r, "at") {
		return now
	}
	return now/2 + uint64(rapid.IntRange(0, 1).Draw(r, "version"))
}

// drawExpiry makes a delta change the deadline, mostly to one that comes soon.
func (m *machine) drawExpiry(r *rapid.T, d *store.Delta) {
	if rapid.IntRange(0, 4).Draw(r, "clear") == 0 {
		d.Expiry = store.ExpiryClear
		return
	}
	d.Expiry = store.ExpirySet
	if rapid.Bool().Draw(r, "if") {
		d.Expiry |= store.Expiry(rapid.IntRange(0, 15).Draw(r, "conditions")) << 2
	}
	if rapid.Bool().Draw(r, "after") {
		d.Expiry |= store.ExpiryAfter
		d.DeadlineMS = rapid.SampledFrom([]int64{
			1, time.Minute.Milliseconds(), window.Milliseconds(), math.MaxInt64,
		}).Draw(r, "lifetime")
		return
	}
	d.DeadlineMS = m.clock.ms() + rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Minute, time.Minute + time.Millisecond, window, 3 * window, -time.Millisecond, 0,
	}).Draw(r, "until").Milliseconds()
}

func drawBound(r *rapid.T) store.Bound {
	b := store.Bound{
		Low:      rapid.SampledFrom(someNumbers()).Draw(r, "low"),
		High:     rapid.SampledFrom(someNumbers()).Draw(r, "high"),
		Saturate: rapid.Bool().Draw(r, "saturate"),
		Inward:   rapid.Bool().Draw(r, "inward"),
	}
	if b.Low > b.High && b.Saturate && !b.Inward {
		b.Low, b.High = b.High, b.Low
	}
	return b
}

// drawBatch returns a batch of deltas to cells of one partition, with a mark
// that mostly fits.
func (m *machine) drawBatch(r *rapid.T) store.Batch {
	first := m.drawCell(r)
	b := store.Batch{Partition: m.home(first), Apart: rapid.Bool().Draw(r, "apart")}
	for range rapid.IntRange(0, 4).Draw(r, "deltas") {
		c := m.drawCell(r)
		if m.home(c) != b.Partition {
			c = first
		}
		b.Deltas = append(b.Deltas, m.drawDelta(r, c))
	}
	if rapid.IntRange(0, 5).Draw(r, "given") == 0 {
		b = given(b, first, m.drawVersion(r, first))
	}
	if !m.drawNumber(r, &b) {
		return b
	}
	if old := rapid.SampledFrom(m.writers).Draw(r, "retired"); old < b.Writer && rapid.IntRange(0, 5).Draw(r, "retire") == 0 {
		b.Deltas = append(b.Deltas, store.Delta{Op: store.OpRetire, N: int64(old)})
	}
	return b
}

// drawNumber makes a batch one of a writer, or not, with a mark that mostly fits.
func (m *machine) drawNumber(r *rapid.T, b *store.Batch) bool {
	if len(m.writers) == 0 || rapid.Bool().Draw(r, "unnumbered") {
		return false
	}
	b.Writer = rapid.SampledFrom(m.writers).Draw(r, "writer")
	b.Prev = m.model.parts[b.Partition].marks[b.Writer].batch.Seq
	if rapid.IntRange(0, 4).Draw(r, "gap") == 0 {
		b.Prev = rapid.Uint64Range(0, b.Prev+2).Draw(r, "prev")
	}
	b.Seq = b.Prev + rapid.Uint64Range(1, 3).Draw(r, "covers")
	return true
}

func (m *machine) doApply(r *rapid.T) { m.send(m.drawBatch(r)) }

// doCall applies several batches in one call. Those of different partitions
// have no order, so they must not meet at a limit.
func (m *machine) doCall(r *rapid.T) {
	if m.tight && m.parts > 1 {
		r.Skip("limits are near")
	}
	var bs []store.Batch
	sent := make(map[[2]uint64]bool)
	for range rapid.IntRange(2, 3).Draw(r, "batches") {
		b := m.drawBatch(r)
		at := [2]uint64{uint64(b.Partition), uint64(b.Writer)}
		if b.Writer == 0 || !sent[at] {
			bs = append(bs, b)
		}
		sent[at] = true
	}
	m.send(bs...)
}

// doAgain sends a numbered batch again, unchanged.
func (m *machine) doAgain(r *rapid.T) {
	if len(m.frozen) == 0 {
		r.Skip("nothing was sent")
	}
	newest := len(m.frozen) - 1
	m.send(m.frozen[newest-rapid.IntRange(0, min(3, newest)).Draw(r, "back")])
}

// doInvalid sends a batch with one thing wrong with it: nothing may change.
func (m *machine) doInvalid(r *rapid.T) {
	b := m.drawBatch(r)
	switch rapid.IntRange(0, 5).Draw(r, "wrong") {
	case 0:
		b.Partition = m.parts
	case 1:
		b.Deltas = append(b.Deltas, add(store.Cell{Namespace: "m"}, 1))
	case 2:
		b.Durability = store.Synced + 1
	case 3:
		b.Deltas = append(b.Deltas, store.Delta{Op: store.OpRetire})
	case 4:
		b.If = append(b.If, store.Condition{})
	case 5:
		b.Deltas = append(b.Deltas, expire(store.Cell{Namespace: "m", Key: "a"}, store.ExpiryKeep, 0))
	}
	m.tick()
	m.refused(b, store.KindInvalid)
}

func (m *machine) doEnlist(*rapid.T) {
	w := m.enlist()
	if n := len(m.writers); n > 0 && w <= m.writers[n-1] {
		m.Fatalf("writer %d after %d", w, m.writers[n-1])
	}
	m.writers = append(m.writers, w)
}

func (m *machine) doRead(r *rapid.T) {
	cs := make([]store.Cell, rapid.IntRange(1, 4).Draw(r, "cells"))
	for i := range cs {
		cs[i] = m.drawCell(r)
	}
	m.readSame(cs...)
}

func (m *machine) readSame(cs ...store.Cell) {
	m.Helper()
	m.tick()
	for _, vs := range [][]store.Value{m.peeked(cs...), m.readAll(cs...)} {
		for i, v := range vs {
			if want := m.model.value(cs[i]); v != want {
				m.Fatalf("%v reads %+v, want %+v", cs[i], v, want)
			}
			if v.Layout != store.LayoutObject {
				continue
			}
			if got, want := m.part(cs[i], store.Object), content(m.model.bytes[cs[i]]); got != want {
				m.Fatalf("%v holds %+v, want %+v", cs[i], got, want)
			}
		}
	}
}

func (m *machine) doSize(r *rapid.T) {
	s, ok := m.store.(store.Sizer)
	if !ok {
		return
	}
	ns := rapid.SampledFrom(someSpaces()).Draw(r, "namespace")
	m.tick()
	n, err := s.Size(m.ctx, ns)
	if err != nil {
		m.Fatalf("Size: %v", err)
	}
	if live, counted := m.model.keys(ns); n < live || n > counted {
		m.Fatalf("size of %q is %d: it has %d keys, and with those that have expired %d", ns, n, live, counted)
	}
}

func (m *machine) doNamespaces(*rapid.T) {
	s, ok := m.store.(store.Namespacer)
	if !ok {
		return
	}
	m.tick()
	got, err := s.Namespaces(m.ctx, "", store.ScanMax)
	if err != nil {
		m.Fatalf("Namespaces: %v", err)
	}
	for _, ns := range someSpaces() {
		live, counted := m.model.keys(ns)
		if has := slices.Contains(got, ns); has && counted == 0 || !has && live > 0 {
			m.Fatalf("the namespaces are %q: %q has %d keys, and with those that have expired %d", got, ns, live, counted)
		}
	}
}

func (m *machine) readEverything() {
	m.Helper()
	for _, ns := range someSpaces() {
		for _, key := range someKeys() {
			m.readSame(store.Cell{Namespace: ns, Key: key})
		}
		m.scanSame(store.Range{Namespace: ns}, store.ScanMax)
	}
}

func (m *machine) doScan(r *rapid.T) {
	m.scanSame(store.Range{
		Namespace: rapid.SampledFrom(someSpaces()).Draw(r, "namespace"),
		Prefix:    rapid.SampledFrom([]string{"", "a", "a\x00", "b", "z"}).Draw(r, "prefix"),
		After:     rapid.SampledFrom([]string{"", "a", "aa", "b", "z"}).Draw(r, "after"),
	}, rapid.SampledFrom([]int{1, 2, 3, store.ScanMax}).Draw(r, "limit"))
}

func (m *machine) scanSame(r store.Range, n int) {
	m.Helper()
	m.tick()
	if got, want := m.scan(r, n), m.model.scan(r, n); !slices.Equal(got, want) {
		m.Fatalf("scan of %+v lists %+v, want %+v", r, got, want)
	}
}

func (m *machine) doLookup(r *rapid.T) {
	c, token := m.drawCell(r), m.drawToken(r)
	m.tick()
	if err := m.model.looked(c, token, m.lookup(c, token)); err != nil {
		m.Fatalf("lookup in %v: %v", c, err)
	}
}

func (m *machine) doTime(r *rapid.T) {
	m.clock.move(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Minute, window / 2, window - time.Millisecond, window, 2 * window,
	}).Draw(r, "forward"))
}

// doClockBack lets every partition see the present, then turns the clock back.
func (m *machine) doClockBack(r *rapid.T) {
	touched := make(map[int]bool)
	for i := 0; len(touched) < m.parts; i++ {
		if c := (store.Cell{Key: fmt.Sprintf("touch%d", i)}); !touched[m.home(c)] {
			touched[m.home(c)] = true
			m.send(m.batch(add(c, 1)))
		}
	}
	m.clock.move(-rapid.SampledFrom([]time.Duration{time.Millisecond, window, 100 * window}).Draw(r, "back"))
}
