package keyspace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/collection"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// The calls on sketches for the doors that do not speak Redis's protocol. The commands use the same functions.

// The defaults of shapes.
const (
	epsilonDefault    = 0.001
	confidenceDefault = 0.99
)

// kindOf returns what doors call a kind of sketch.
func kindOf(k sketch.Kind) call.SketchKind {
	switch k {
	case sketch.KindFilter:
		return call.SketchFilter
	case sketch.KindFrequency:
		return call.SketchFrequencies
	case sketch.KindTop:
		return call.SketchTop
	default:
		return call.SketchUniques
	}
}

// A wanted is a sketch that is to be made.
type wanted struct {
	head
	k int // of a top list
}

// wantedOf returns what a shape asks for.
func wantedOf(shape *call.Shape) (w wanted, err error) {
	rest := *shape
	rest.Kind = ""
	switch shape.Kind {
	case call.SketchFilter:
		rest.Capacity, rest.Error, rest.Growth, rest.Fixed = 0, 0, 0, false
		w.head, err = wantedFilter(shape)
	case call.SketchFrequencies:
		rest.Epsilon, rest.Confidence, rest.Width, rest.Depth, rest.Conservative = 0, 0, 0, 0, false
		w.head, err = wantedCounts(shape)
	case call.SketchTop:
		rest.K = 0
		if w.head, w.k = (head{kind: sketch.KindTop, pieces: 1}), shape.K; w.k < 1 || w.k > sketch.TopMax {
			err = store.Errorf(store.KindInvalid, "k is %d: want 1 to %d", w.k, sketch.TopMax)
		}
	case call.SketchUniques:
		return w, store.Errorf(store.KindInvalid, "a sketch of uniques has no shape: add users to an absent key to make one")
	case "":
		return w, store.Errorf(store.KindInvalid, "the kind of the sketch is missing: want %s, %s or %s", call.SketchFilter, call.SketchFrequencies, call.SketchTop)
	default:
		return w, store.Errorf(store.KindInvalid, "unknown kind of sketch %q: want %s, %s or %s", string(shape.Kind), call.SketchFilter, call.SketchFrequencies, call.SketchTop)
	}
	if err == nil && rest != (call.Shape{}) {
		err = store.Errorf(store.KindInvalid, "a shape of kind %s can't have the fields of other kinds", shape.Kind)
	}
	return w, err
}

func wantedFilter(s *call.Shape) (h head, err error) {
	rate, growth := s.Error, s.Growth
	if rate == 0 {
		rate = filterRate
	}
	switch {
	case s.Capacity < 1:
		return h, store.Errorf(store.KindInvalid, "capacity is %d: want 1 or more", s.Capacity)
	case !(rate > 0 && rate < 1):
		return h, store.Errorf(store.KindInvalid, "error is %v: want more than 0 and less than 1", rate)
	case rate < math.Pow(0.5, sketch.FilterStrengthMax):
		return h, store.Errorf(store.KindInvalid, "error is %v: want 2^-%d or more", rate, sketch.FilterStrengthMax)
	case s.Fixed && growth != 0:
		return h, store.Errorf(store.KindInvalid, "a fixed filter does not grow: leave out growth or fixed")
	case growth < 0 || growth > sketch.FilterExpansionMax:
		return h, store.Errorf(store.KindInvalid, "growth is %d: want 1 to %d", growth, sketch.FilterExpansionMax)
	case !s.Fixed && growth == 0:
		growth = filterExpansion
	}
	h.kind = sketch.KindFilter
	if h.filter, err = sketch.FilterShapeFor(s.Capacity, rate, growth); err == nil {
		h.pieces, h.piece, err = h.filter.Chunks()
	}
	if err != nil {
		return h, store.Errorf(store.KindTooLarge, "a filter of %d items with an error of %v would take more than %d MiB", s.Capacity, rate, sketch.ChunksMax*sketch.StateBytesMax>>20)
	}
	return h, nil
}

func wantedCounts(s *call.Shape) (h head, err error) {
	h.kind = sketch.KindFrequency
	if s.Width != 0 || s.Depth != 0 {
		switch {
		case s.Epsilon != 0 || s.Confidence != 0:
			return h, store.Errorf(store.KindInvalid, "give either epsilon and confidence, or width and depth")
		case s.Width < 1 || s.Depth < 1:
			return h, store.Errorf(store.KindInvalid, "width is %d and depth is %d: want 1 or more for both", s.Width, s.Depth)
		case s.Depth > sketch.FrequencyDepthMax:
			return h, store.Errorf(store.KindInvalid, "depth is %d: at most %d", s.Depth, sketch.FrequencyDepthMax)
		}
		h.counts = sketch.FrequencyShape{Width: s.Width, Depth: s.Depth}
	} else {
		epsilon, confidence := s.Epsilon, s.Confidence
		if epsilon == 0 {
			epsilon = epsilonDefault
		}
		if confidence == 0 {
			confidence = confidenceDefault
		}
		if !(epsilon > 0 && epsilon < 1 && confidence > 0 && confidence < 1) {
			return h, store.Errorf(store.KindInvalid, "epsilon is %v and confidence is %v: want more than 0 and less than 1 for both", epsilon, confidence)
		}
		h.counts, err = sketch.FrequencyShapeFor(epsilon, 1-confidence)
	}
	h.counts.Conservative = s.Conservative
	if err == nil {
		h.pieces, h.part, err = h.counts.Chunks()
	}
	if err != nil {
		return h, store.Errorf(store.KindTooLarge, "the frequencies would take more than %d MiB: choose fewer counters", sketch.ChunksMax*sketch.StateBytesMax>>20)
	}
	return h, nil
}

// shape returns what MakeSketch would make such a sketch of; that of a top list needs its bytes.
func (h *head) shape(held string) call.Shape {
	s := call.Shape{Kind: kindOf(h.kind)}
	switch h.kind {
	case sketch.KindFilter:
		s.Capacity, s.Error = int64(h.filter.Capacity), h.filter.Rate()
		s.Growth, s.Fixed = h.filter.Expansion, h.filter.Expansion == 0
	case sketch.KindFrequency:
		s.Width, s.Depth, s.Conservative = h.counts.Width, h.counts.Depth, h.counts.Conservative
	case sketch.KindTop:
		if t, err := sketch.ParseTop(held); err == nil {
			s.K = t.K()
		}
	default:
	}
	return s
}

// described says in words what a shape is.
func described(s call.Shape) string {
	switch s.Kind {
	case call.SketchFilter:
		grows := fmt.Sprintf("growth %d", s.Growth)
		if s.Fixed {
			grows = "fixed"
		}
		return fmt.Sprintf("a filter (capacity %d, error %.3g, %s)", s.Capacity, s.Error, grows)
	case call.SketchFrequencies:
		how := ""
		if s.Conservative {
			how = ", conservative"
		}
		return fmt.Sprintf("frequencies (width %d, depth %d%s)", s.Width, s.Depth, how)
	case call.SketchTop:
		return fmt.Sprintf("a top list (k %d)", s.K)
	default:
		return "uniques"
	}
}

// what says in words what a key holds.
func (v Value) what() string {
	switch {
	case v.IsText:
		return "text"
	case v.Held == "":
		return "a count"
	}
	switch collection.Kind(v.Held[0]) {
	case collection.KindHash:
		return "a hash"
	case collection.KindSorted:
		return "a sorted set"
	}
	h, _ := headOf(v.Held)
	return described(h.shape(v.Held))
}

// sketch returns the sketch that a key holds, whichever it is.
func (s *Space) sketch(key string) (b body, err error) {
	b = body{s: s, e: s.at([]byte(key))}
	is := false
	switch {
	case s.fault != nil:
		return b, s.fault
	case !b.e.is.Exists:
		return b, store.Errorf(store.KindAbsent, "%q does not exist: make the sketch first", key)
	case b.e.is.Held != "":
		b.head, is = headOf(b.e.is.Held)
	}
	if !is {
		return b, store.Errorf(store.KindNotSketch, "%q holds %s, which is not a sketch", key, b.e.is.what())
	}
	return b, nil
}

// MakeSketch makes an absent key a sketch. It reports false if the key holds such a sketch already.
func (s *Space) MakeSketch(key string, shape call.Shape) (made bool, err error) {
	w, err := wantedOf(&shape)
	if err != nil {
		return false, err
	}
	b := body{s: s, e: s.at([]byte(key))}
	if s.fault != nil {
		return false, s.fault
	}
	if b.e.is.Exists {
		has, ok := headOf(b.e.is.Held)
		same := ok && has.kind == w.kind && has.filter == w.filter && has.counts == w.counts
		if same && w.kind == sketch.KindTop {
			same = has.shape(b.e.is.Held).K == w.k
		}
		if !same {
			return false, store.Errorf(store.KindNotSketch, "%q already holds %s", key, b.e.is.what())
		}
		return false, nil
	}
	return true, b.create(&w)
}

// create makes an absent key a sketch.
func (b *body) create(w *wanted) error {
	switch w.kind {
	case sketch.KindFilter:
		b.makeFilter(w.head)
	case sketch.KindFrequency:
		if wrong := b.makeCounts(w.counts); wrong != "" {
			return store.Errorf(store.KindTooLarge, "%s", strings.TrimPrefix(wrong, "CMS: "))
		}
	case sketch.KindTop:
		b.head = w.head
		return b.e.makeTop(w.k)
	default:
		b.head = w.head
		b.e.become(nil, string(UniquesAsk[string](nil)))
	}
	return nil
}

// Lives gives a key that exists so long to live from now on.
func (s *Space) Lives(key string, d time.Duration) {
	if e := s.at([]byte(key)); e.is.Exists && d > 0 {
		s.until(e, end{lives: max(d.Milliseconds(), 1)})
	}
}

// Holds returns the bytes of a key that holds some.
func (s *Space) Holds(key string) string { return s.at([]byte(key)).is.Held }

// AddItems adds items to the sketch that a key holds: all of them, or none.
func (s *Space) AddItems(key string, items []call.Item) (a call.Addition, err error) {
	b, err := s.sketch(key)
	if err != nil {
		return a, err
	}
	a = call.Addition{Key: key, Kind: kindOf(b.kind), Items: make([]call.SketchItem, len(items))}
	for i := range items {
		if a.Items[i].Item = items[i].Item; items[i].N == math.MinInt64 {
			return a, store.Errorf(store.KindInvalid, "item %d has an amount of %d, which is out of range", i, items[i].N)
		}
	}
	switch b.kind {
	case sketch.KindFilter:
		err = b.addToFilter(items, a.Items)
	case sketch.KindFrequency:
		a.Confidence = confidenceOf(b.counts)
		err = b.addToCounts(items, a.Items)
	case sketch.KindTop:
		err = b.addToTop(items, a.Items)
	default:
		err = store.Errorf(store.KindNotSketch, "%q holds uniques: add users to it instead", key)
	}
	if err == nil {
		err = s.fault
	}
	if errors.Is(err, errStep) {
		err = store.Errorf(store.KindTooLarge, "%s", errStep)
	}
	return a, err
}

// Recount tells of items that were added before as the sketch has them now, if it still is there.
func (s *Space) Recount(key string, items []call.Item) (a call.Addition, err error) {
	names := make([]string, len(items))
	for i := range items {
		names[i] = items[i].Item
	}
	now, err := s.AskItems(key, names)
	if k := store.KindOf(err); k == store.KindAbsent || k == store.KindNotSketch {
		now, err = call.Asked{Items: make([]call.SketchItem, len(items))}, nil
		for i := range names {
			now.Items[i].Item = names[i]
		}
	}
	return call.Addition{Key: key, Kind: now.Kind, Items: now.Items, Confidence: now.Confidence}, err
}

// amount returns how often an item is counted.
func amount(item *call.Item) int64 {
	if item.N == 0 {
		return 1
	}
	return item.N
}

func (b *body) addToFilter(items []call.Item, told []call.SketchItem) error {
	hashes := make([]uint64, len(items))
	for i := range items {
		if n := amount(&items[i]); n != 1 {
			return store.Errorf(store.KindInvalid, "item %d has an amount of %d: a filter only takes 1", i, n)
		}
		hashes[i] = sketch.Hash(items[i].Item)
	}
	fresh, room, err := b.fillTogether(hashes)
	if err != nil {
		return err
	}
	if !room {
		why := "can't grow further"
		if b.filter.Expansion == 0 {
			why = "does not grow"
		}
		return store.Errorf(store.KindFull, "the filter is full and %s, so nothing was added: make a larger filter", why)
	}
	for i, is := range fresh {
		told[i].Added, told[i].Found = is, true
	}
	return nil
}

// confidenceOf returns with which probability the lower bounds of frequencies are right.
func confidenceOf(s sketch.FrequencyShape) float64 { return 1 - math.Pow(0.5, float64(s.Depth)) }

func (b *body) addToCounts(items []call.Item, told []call.SketchItem) error {
	adds := make([]sketch.HashAmount, len(items))
	for i := range items {
		n := amount(&items[i])
		if n < 0 && b.counts.Conservative {
			return store.Errorf(store.KindInvalid, "item %d has an amount of %d: nothing can be taken away from conservative frequencies", i, n)
		}
		adds[i] = sketch.HashAmount{Hash: sketch.Hash(items[i].Item), N: n}
	}
	counts, err := b.count(adds)
	if e, ok := errors.AsType[*refusedTakeError](err); ok {
		if e.count >= -adds[e.at].N { // It is not for want of it.
			return store.Errorf(store.KindBound, "item %d: the frequencies have reached the largest number, so nothing can be taken away; nothing was counted", e.at)
		}
		return store.Errorf(store.KindBound, "item %d: %d can't be taken away, because its estimate is %d; nothing was counted", e.at, -adds[e.at].N, e.count)
	}
	if err != nil {
		return err
	}
	tellCounts(told, counts)
	return nil
}

func tellCounts(told []call.SketchItem, counts []sketch.Count) {
	for i, c := range counts {
		told[i].Count, told[i].Lower, told[i].Upper = c.Upper, c.Lower, c.Upper
	}
}

func (b *body) addToTop(items []call.Item, told []call.SketchItem) error {
	adds := make([]sketch.Amount, len(items))
	for i := range items {
		n := amount(&items[i])
		switch {
		case n < 0:
			return store.Errorf(store.KindInvalid, "item %d has an amount of %d: nothing can be taken away from a top list", i, n)
		case len(items[i].Item) > sketch.TopItemBytesMax:
			return store.Errorf(store.KindTooLarge, "item %d has %d bytes: at most %d in a top list", i, len(items[i].Item), sketch.TopItemBytesMax)
		}
		adds[i] = sketch.Amount{Item: items[i].Item, N: n}
	}
	t, err := sketch.ParseTop(b.e.is.Held)
	if err != nil {
		return store.Errorf(store.KindCorrupt, "%q: %w", b.e.key, err)
	}
	b.e.raise(t, adds, func(i int, expelled string, out bool) {
		tellTop(&told[i], t)
		if out {
			told[i].Expelled = shownItem(expelled)
		}
	})
	return nil
}

// tellTop tells what a list knows of an item.
func tellTop(told *call.SketchItem, t *sketch.Top) {
	told.Lower, told.Upper = t.Bounds(told.Item)
	told.Count, told.Listed = told.Upper, t.Has(told.Item)
}

// shownItem returns an item as doors can tell it, whatever bytes a Redis client has chosen for it.
func shownItem(item string) string { return strings.ToValidUTF8(item, "\uFFFD") }

// AskItems returns what the sketch that a key holds knows of items.
func (s *Space) AskItems(key string, items []string) (a call.Asked, err error) {
	b, err := s.sketch(key)
	if err != nil {
		return a, err
	}
	a = call.Asked{Key: key, Kind: kindOf(b.kind), Items: make([]call.SketchItem, len(items))}
	for i, item := range items {
		a.Items[i].Item = item
	}
	switch b.kind {
	case sketch.KindFilter:
		a.Error, err = b.askFilter(items, a.Items)
	case sketch.KindFrequency:
		a.Confidence = confidenceOf(b.counts)
		tellCounts(a.Items, b.counted(hashed(items)))
	case sketch.KindTop:
		t, bad := sketch.ParseTop(b.e.is.Held)
		if bad != nil {
			return a, store.Errorf(store.KindCorrupt, "%q: %w", key, bad)
		}
		a.Exact = t.Rest() == 0
		for i := range a.Items {
			tellTop(&a.Items[i], t)
		}
	default:
		err = store.Errorf(store.KindNotSketch, "%q holds uniques, which tell nothing about single items", key)
	}
	if err == nil {
		err = s.fault
	}
	return a, err
}

// askFilter tells which items a filter has, and the largest error of the pieces that were asked.
func (b *body) askFilter(items []string, told []call.SketchItem) (rate float64, err error) {
	found, err := b.found(hashed(items), func(state string) error {
		f, err := sketch.ParseFilter(state)
		if err == nil {
			rate = max(rate, f.Info().Error)
		}
		return err
	})
	for i, is := range found {
		told[i].Found = is
	}
	return rate, err
}

// Sketch tells of the sketch that a key holds; of a top list the first k, or if that is 0 as many as it is asked for.
func (s *Space) Sketch(key string, k int) (is call.Sketch, err error) {
	b, err := s.sketch(key)
	if err != nil {
		return is, err
	}
	is = call.Sketch{Key: key, Shape: b.shape(b.e.is.Held), Bytes: int64(len(b.e.is.Held))}
	if ms := b.e.is.DeadlineMS; ms != 0 {
		is.ExpiresAt = time.UnixMilli(ms)
	}
	switch b.kind {
	case sketch.KindFilter:
		info := b.filterInfo()
		is.Total, is.Exact, is.Error, is.Capacity, is.Full = info.Items, info.Exact, info.Error, info.Capacity, info.Full
		is.Bytes += b.inPieces(info.Bytes)
	case sketch.KindFrequency:
		total, bytes := b.total()
		is.Total, is.Bytes = total, is.Bytes+b.inPieces(bytes)
		is.Exact = is.Total < math.MaxInt64
		is.Epsilon, is.Confidence = 2/float64(b.counts.Width), confidenceOf(b.counts)
	case sketch.KindTop:
		err = b.tellList(&is, k)
	default:
		err = b.tellUniques(&is)
	}
	if err == nil {
		err = s.fault
	}
	return is, err
}

// inPieces returns how many bytes a sketch takes besides those of its key.
func (b *body) inPieces(bytes int64) int64 {
	if b.pieces == 1 {
		return 0
	}
	return bytes
}

func (b *body) tellList(is *call.Sketch, k int) error {
	t, err := sketch.ParseTop(b.e.is.Held)
	switch {
	case err != nil:
		return store.Errorf(store.KindCorrupt, "%q: %w", b.e.key, err)
	case k < 0:
		return store.Errorf(store.KindInvalid, "k is %d: want 1 or more", k)
	case k == 0:
		k = t.K()
	case k > t.K():
		return store.Errorf(store.KindInvalid, "k is %d: the list was made for a k of %d", k, t.K())
	}
	is.Total, is.Rest, is.Exact = t.Total(), t.Rest(), t.Rest() == 0 && t.Total() < math.MaxInt64
	list := t.List(t.Len())
	is.Items = []call.SketchItem{}
	for i, one := range list {
		if i >= k {
			is.Rest = max(is.Rest, one.Upper)
			break
		}
		is.Items = append(is.Items, call.SketchItem{Item: shownItem(one.Item), Listed: true, Count: one.Upper, Lower: one.Lower, Upper: one.Upper})
	}
	return nil
}

func (b *body) tellUniques(is *call.Sketch) error {
	u, err := sketch.ParseUnique(b.e.is.Held)
	if err != nil {
		return store.Errorf(store.KindCorrupt, "%q: %w", b.e.key, err)
	}
	e := u.Estimate()
	whole := func(v float64) int64 { return int64(math.Round(v)) }
	is.Uniques = call.UniqueEstimate{Count: whole(e.Value), Lower: whole(e.Lower), Upper: whole(e.Upper), StandardError: e.Error, Exact: e.Exact}
	is.Total, is.Exact = is.Uniques.Count, e.Exact
	return nil
}

// MergeSketches makes a key what the sketches of others are together. If it is absent it is made.
func (s *Space) MergeSketches(key string, from []call.SketchSource) error {
	bodies, weights := make([]body, len(from)), make([]int64, len(from))
	for i, f := range from {
		var err error
		if bodies[i], err = s.sketch(f.Key); err != nil {
			return err
		}
		if weights[i] = max(f.Weight, 1); weights[i] != 1 && bodies[i].kind != sketch.KindFrequency {
			return store.Errorf(store.KindInvalid, "%q holds %s: only frequencies take a weight", f.Key, bodies[i].e.is.what())
		}
	}
	first := bodies[0].shape(bodies[0].e.is.Held)
	like := func(b *body) error {
		if b.shape(b.e.is.Held) != first {
			return store.Errorf(store.KindNotSketch, "%q holds %s, but %q holds %s: merged sketches must have the same kind and shape",
				bodies[0].e.key, described(first), b.e.key, b.e.is.what())
		}
		return nil
	}
	for i := range bodies {
		if err := like(&bodies[i]); err != nil {
			return err
		}
	}
	to, err := s.sketch(key)
	switch {
	case store.KindOf(err) == store.KindAbsent:
		if err := to.create(&wanted{bodies[0].head, first.K}); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := like(&to); err != nil {
			return err
		}
	}
	err = to.mergeFrom(bodies, weights, first.K)
	if errors.Is(err, errStep) {
		return store.Errorf(store.KindTooLarge, "the merged sketch is too large: it would take more than %d MiB", stepBytesMax>>20)
	}
	if err != nil {
		return store.Errorf(store.KindCorrupt, "%q: %w", key, err)
	}
	return s.fault
}

// mergeFrom makes a sketch what others of its shape are together.
func (b *body) mergeFrom(from []body, weights []int64, k int) error {
	switch b.kind {
	case sketch.KindFrequency:
		return b.mergeCounts(from, weights)
	case sketch.KindFilter:
		return b.merge(from, func(i int) (string, error) { return b.unionOf(i, from) })
	case sketch.KindTop:
		sum, err := sketch.NewTop(k)
		for i := range from {
			var one *sketch.Top
			if err == nil {
				one, err = sketch.ParseTop(from[i].e.is.Held)
			}
			if err == nil {
				err = sum.Merge(one)
			}
		}
		if err == nil {
			b.become(0, becomingAll(b, string(sum.Append(nil))))
		}
		return err
	default:
		all, err := sketch.ParseUnique(from[0].e.is.Held)
		for _, f := range from[1:] {
			if err == nil {
				err = all.MergeState(f.e.is.Held)
			}
		}
		if err == nil {
			b.become(0, becomingAll(b, string(all.Append(nil))))
		}
		return err
	}
}

// becomingAll is a whole sketch that is written anew.
func becomingAll(b *body, next string) becoming {
	return becoming{next: next, same: next == b.state(0)}
}

// unionOf returns the same piece of some filters, together; "" if nothing has come to it.
func (b *body) unionOf(i int, from []body) (string, error) {
	all, err := sketch.NewFilter(b.piece)
	for n := range from {
		if err != nil || from[n].state(i) == "" {
			continue
		}
		var one *sketch.Filter
		if one, err = sketch.ParseFilter(from[n].state(i)); err == nil {
			err = all.Merge(one)
		}
	}
	if err != nil || b.s.fault != nil || b.state(i) == "" && all.Info().Items == 0 {
		return "", err
	}
	return string(all.Append(nil)), nil
}

// AppendDigest appends what stands for items in the digest of a call.
func AppendDigest(dst []byte, items []call.Item) []byte {
	for i := range items {
		dst = strconv.AppendInt(append(strconv.AppendInt(dst, int64(len(items[i].Item)), 10), ' '), amount(&items[i]), 10)
		dst = append(append(dst, ' '), items[i].Item...)
	}
	return dst
}

// KeysOfSources returns the keys of sketches that are merged into another, with that, each once.
func KeysOfSources(to string, from []call.SketchSource) []string {
	keys := []string{to}
	for _, f := range from {
		keys = append(keys, f.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
