package redisstore

import (
	"cmp"
	"math"
	"strconv"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A tray is what a batch names of a drawer.
type tray struct {
	drawer
	parts  []*held
	record decide.Record // of what is changed in an epoch
}

// A held is a part that a batch names.
type held struct {
	field  string
	text   string        // as loaded, "" if it was not there
	was    store.Content // as loaded
	is     store.Content
	loaded bool
	looked bool // the decision depends on what it is
	put    bool // it was changed
}

var _ decide.PartState = (*state)(nil)

// part names a part.
func (st *state) part(c store.Cell, p store.Part) *held {
	id := store.PartCell{Cell: c, Part: p}
	h := st.held[id]
	if h == nil {
		d, field := drawerOf(c, p)
		t := st.trays[d]
		if t == nil {
			t = &tray{drawer: d}
			st.trays[d] = t
			st.drawers = append(st.drawers, t)
		}
		h = &held{field: field}
		t.parts = append(t.parts, h)
		st.held[id] = h
	}
	return h
}

// Part returns a part as it is now. The place of a rider may depend on what its lead
// meets: then its part was not loaded, and the batch has to be decided again.
func (st *state) Part(c store.Cell, p store.Part) store.Content {
	h := st.part(c, p)
	if !h.loaded {
		st.missed = append(st.missed, store.PartCell{Cell: c, Part: p})
	}
	return h.is
}

// PutPart makes a part v.
func (st *state) PutPart(c store.Cell, p store.Part, v store.Content) {
	h := st.part(c, p)
	if p.Kind()&store.PartRetained != 0 {
		d, _ := drawerOf(c, p)
		st.trays[d].record.Merge(decide.PartChange(c, p, uint64(v.N)-uint64(h.is.N)))
	}
	h.is, h.put = v, true
}

// MergePart is PutPart: a part is written as a whole.
func (st *state) MergePart(c store.Cell, p store.Part, v store.Content, _ []byte) {
	st.PutPart(c, p, v)
}

// Version returns the version of a step that leaves its counter absent.
func (st *state) Version() uint64 {
	st.version++
	return st.version
}

// Partition returns which partition a cell is of: that of the batch.
func (st *state) Partition(store.Cell) int { return st.home.number }

var partBook = store.PartFields{Kind: store.PartBook}.Part()

// parts names the parts of an event, as far as its places are known.
func (st *state) parts(d *store.Delta) {
	e := d.Event
	if e.NotBefore > 0 {
		st.turns = append(st.turns, (e.NotBefore-1)/1000+1)
	}
	if e.NotAfter > 0 {
		st.turns = append(st.turns, e.NotAfter/1000+1)
	}
	if e.Part != "" {
		st.part(d.Cell, e.Part).looked = true
		st.floorOf(d.Cell, e.Part)
	}
	for i := range e.Len() {
		r := e.Rider(i)
		if r.When.Kind == store.MetBook {
			st.part(d.Cell, partBook).looked = true
		}
		if r.Part == "" {
			continue
		}
		st.floorOf(d.Cell, r.Part)
		if r.Place == store.PlaceFixed {
			h := st.part(r.Part.Owner(d.Cell, st.home.number), r.Part)
			h.looked = h.looked || !blind(r) && r.Op != store.OpGet || r.Is != store.Met{}
		}
	}
}

// blind reports whether a rider is an add that no condition is on.
func blind(r *store.Rider) bool { return r.Op == store.OpAdd && r.Is == store.Met{} && r.Bound == nil }

// A fence is a field of the head that a batch is judged by, and may raise: the book of a
// namespace, or the floor of a view.
type fence struct {
	field string
	was   int64 // as loaded
	book  string
	shelf decide.Shelf // none if it is of a book
}

// book names the book of a namespace.
func (st *state) book(namespace string) {
	if _, known := st.books[namespace]; !known {
		st.books[namespace] = 0
		st.fences = append(st.fences, &fence{field: bookField(namespace), book: namespace})
	}
}

// floorOf names the floor of a part.
func (st *state) floorOf(c store.Cell, p store.Part) {
	if shelf, _, ok := decide.ShelfOf(c, p); ok {
		st.shelf(shelf)
	}
}

func (st *state) shelf(s decide.Shelf) {
	if _, known := st.floors[s]; !known {
		st.floors[s] = 0
		st.fences = append(st.fences, &fence{field: floorField(s), shelf: s})
	}
}

// set takes a fence as it was loaded.
func (st *state) set(f *fence, n int64) {
	if f.was = n; f.shelf.Kind == 0 {
		st.books[f.book] = n
	} else {
		st.floors[f.shelf] = store.Epoch(n)
	}
}

// raised returns what a fence is to be, "" if it stays.
func (st *state) raised(f *fence) string {
	is := st.books[f.book]
	if f.shelf.Kind != 0 {
		is = int64(st.floors[f.shelf])
	}
	if is == f.was {
		return ""
	}
	return strconv.FormatInt(is, 10)
}

// besides names what a batch is judged by besides its cells and tokens: books, floors
// and parts.
func (st *state) besides(b *store.Batch) {
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Op != store.OpRetire {
			st.book(store.SpaceOf(d.Cell))
		}
		if d.Event != nil {
			st.parts(d)
		}
	}
	for _, book := range b.Books {
		st.book(book.Namespace)
	}
	for _, f := range b.Floors {
		st.shelf(decide.Shelf{Namespace: f.Namespace, Kind: f.Kind, View: f.View})
	}
}

// loadedParts takes what load.lua has of fences and drawers.
func (st *state) loadedParts(p *parser) error {
	if p.err != nil {
		return p.err
	}
	fences := p.list()
	if p.err == nil && len(fences) != len(st.fences) {
		return store.Errorf(store.KindCorrupt, "reply of another length")
	}
	d := decoder{}
	for i, text := range fences {
		st.set(st.fences[i], d.int(cmp.Or(text, "0")))
	}
	for _, t := range st.drawers {
		texts := p.list()
		if p.err == nil && len(texts) != len(t.parts) {
			return store.Errorf(store.KindCorrupt, "reply of another length")
		}
		for i, text := range texts {
			h := t.parts[i]
			is, err := parseContent(t.kind(), text)
			if err != nil {
				return err
			}
			h.text, h.was, h.is, h.loaded = text, is, is, true
		}
	}
	return cmp.Or(p.err, d.err)
}

// appendFences appends what commit.lua takes of fences.
func (st *state) appendFences(args []string) []string {
	for _, f := range st.fences {
		args = append(args, f.field)
	}
	for _, f := range st.fences {
		args = append(args, strconv.FormatInt(f.was, 10))
	}
	for _, f := range st.fences {
		args = append(args, st.raised(f))
	}
	return args
}

// looks finds out on which cells decisions depend, once everything is loaded. A part may
// lead without anyone looking at its counter's value: then the counter is touched, and
// two of them do not make each other's commit fail.
func (st *state) looks(b *store.Batch) {
	for i := range b.If {
		st.cell(b.If[i].Cell).looked = true
	}
	for i := range b.Deltas {
		if d := &b.Deltas[i]; d.Op != store.OpRetire && !st.light(d) {
			st.cell(d.Cell).looked = true
		}
	}
}

// light reports whether a delta does not look at the value of its cell.
func (st *state) light(d *store.Delta) bool {
	e := d.Event
	if e == nil || e.Part == "" || d.IsObject() {
		return false
	}
	for i := range e.Len() {
		r := e.Rider(i)
		taken := r.When.Kind != store.MetBook || st.part(d.Cell, partBook).was.N < r.When.N
		if r.Place == store.PlaceVersion || r.Amount == store.AmountWas && taken || r.Part == "" && !blind(r) {
			return false // a stamp tells the value, too
		}
	}
	return true
}

// near is how far from 0 a number may be, before and after, that is changed by an add:
// whatever others add meanwhile, the script can tell whether it stays within int64.
const near = math.MaxInt64 / 4

func small(ns ...int64) bool {
	for _, n := range ns {
		if n > near || n < -near {
			return false
		}
	}
	return true
}

// changes reports whether a tray has anything to write.
func (t *tray) changes() bool {
	for _, h := range t.parts {
		if h.put {
			return true
		}
	}
	return false
}

// appendArgs appends what commit.lua takes of a drawer.
func (t *tray) appendArgs(args []string) []string {
	var checks, puts, adds, gone []*held
	for _, h := range t.parts {
		added := h.put && h.loaded && !h.looked && h.is.Exists && small(h.was.N, h.is.N)
		if h.loaded && (h.looked || h.put && !added) {
			checks = append(checks, h)
		}
		switch {
		case added:
			adds = append(adds, h)
		case h.put && h.is.Exists:
			puts = append(puts, h)
		case h.put && h.was.Exists:
			gone = append(gone, h)
		}
	}
	_, _, retained := t.shelf()
	args = appendHalves(append(args, t.name(), flag(retained)), t.record)
	args = append(args, strconv.Itoa(len(checks)), strconv.Itoa(len(puts)), strconv.Itoa(len(adds)), strconv.Itoa(len(gone)))
	args = appendColumns(args, checks, func(h *held) string { return h.text })
	args = appendColumns(args, puts, func(h *held) string { return contentText(t.kind(), h.is) })
	args = appendColumns(args, adds, func(h *held) string { return strconv.FormatInt(h.is.N-h.was.N, 10) })
	for _, h := range gone {
		args = append(args, h.field)
	}
	return args
}

// appendColumns appends the names of parts, then something of each.
func appendColumns(args []string, parts []*held, of func(*held) string) []string {
	for _, h := range parts {
		args = append(args, h.field)
	}
	for _, h := range parts {
		args = append(args, of(h))
	}
	return args
}
