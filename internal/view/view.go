// Package view connects definitions and cells: it computes the parts of a
// counter that an event changes, and the parts that answer a question about a
// range of time. It reads nothing and has no clock: the book (the definitions),
// the event and the store's time are passed in.
//
// Times are Unix milliseconds.
package view

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// Other is the name of the parts that count the values of a dimension beyond its limit.
// No value is it: values have no control characters. The name of the parts that count
// events without a value is empty.
const Other = "\x1e"

// separator stands between the values of a dimension of several names.
const separator = "\x1f"

// Views are those of the keys of one entry of a book, made ready. They do not change.
type Views struct {
	// Assign is the event of what sets a counter or deletes it, and Touch of what only
	// has to leave the book: they have no riders but those of their plans.
	Assign, Touch *store.Event

	dimensions []definition.Dimension
	views      []ready
	admits     []uint16       // the view of each dimension that has its values for all time
	finest     *calendar.Grid // of the shortest windows, or nil
	record     definition.Record
	late       definition.Then
	lateAfter  definition.Keep // how old an event may be; 0 is any age
	book       int64

	choices []string // of reactions, in the order of their numbers, from 1 on
	once    *ready   // has the users that were counted, or nil
	filter  filter   // of them, if they are in one

	unique int // the precision of sketches of users; 0 if there are none

	tops []definition.Top
	lane string // the name of parts that many counters share
}

// A ready is a view made ready.
type ready struct {
	book.View
	grid      calendar.Grid
	keep      int64 // after the end of a window, or for a line; 0 is for ever
	dimension int   // in dimensions, or NoDimension
	ledger    bool
	choices   bool // reactions
	once      bool // users who were counted
	filtered  bool // in a filter
	unique    bool // sketches of users
	top       int  // a list in tops, from 1 on; 0 is none
	shared    bool // of many counters
}

// NoDimension is in the place of a dimension where all events are meant.
const NoDimension = -1

// New returns the views of an entry of a book.
func New(b *book.Book, e *book.Entry) *Views {
	v := &Views{
		dimensions: e.Definition.Dimensions, record: e.Definition.Ledger.Record,
		late: e.Definition.Late.Then, lateAfter: e.Definition.LateAfter(), book: int64(b.ID),
		choices: e.Definition.Choices, unique: precision(e.Definition.Unique),
		tops: e.Definition.Tops, lane: laneZero,
	}
	for i, s := range book.Slots(&e.Definition) {
		r := ready{View: e.Views[i], dimension: NoDimension, ledger: s.Ledger, choices: s.Choices, once: s.Once != nil, unique: s.Unique}
		if s.Top != nil {
			r.top, r.shared = 1+slices.IndexFunc(v.tops, func(t definition.Top) bool { return t.Name == s.Top.Name }), s.Top.By == definition.ByKey
		}
		if s.Dimension != nil {
			r.dimension = slices.IndexFunc(v.dimensions, func(d definition.Dimension) bool { return d.Name() == s.Dimension.Name() })
		}
		switch {
		case s.Ledger:
			r.keep = time.Duration(e.Definition.Ledger.Keep).Milliseconds()
		case s.Once != nil:
			w := s.Once.Window()
			if v.filter = filterOf(s.Once); v.filter.chunks > 0 {
				r.filtered = true
			}
			r.grid, r.keep = b.Grid(&w), time.Duration(w.Keep).Milliseconds()
			v.once = &r
		case s.Window != nil:
			r.grid, r.keep = b.Grid(s.Window), time.Duration(s.Window.Keep).Milliseconds()
		}
		if r.windowed() && (v.finest == nil || r.grid.Longest() < v.finest.Longest()) {
			v.finest = &r.grid
		}
		v.views = append(v.views, r)
	}
	for i := range v.dimensions {
		at := slices.IndexFunc(v.views, func(r ready) bool { return r.dimension == i && !r.windowed() && !r.merges() })
		v.admits = append(v.admits, v.views[at].ID)
	}
	v.Assign, v.Touch = planned(v.assigns()), planned(v.bases())
	return v
}

// windowed reports whether r has windows that events are counted in.
func (r *ready) windowed() bool { return !r.once && r.grid.Width != calendar.Width{} }

// sums reports whether the cells of r, and what is outside of it, add up to the total.
func (v *Views) sums(r *ready) bool {
	return !r.once && !r.merges() && (!r.ledger || v.record == definition.All)
}

// counts reports whether every event that counts adds to a cell of r. The others have more
// to say of it than an amount.
func (r *ready) counts() bool { return !r.ledger && !r.choices && !r.once && !r.merges() }

// merges reports whether what an event asks is merged into a cell of r.
func (r *ready) merges() bool { return r.unique || r.top != 0 }

// Dimension returns which dimension has a name, as in Dimension.Name.
func (v *Views) Dimension(name string) (i int, err error) {
	i = slices.IndexFunc(v.dimensions, func(d definition.Dimension) bool { return d.Name() == name })
	if i < 0 {
		var all []string
		for _, d := range v.dimensions {
			all = append(all, d.Name())
		}
		return i, unknown(name, all)
	}
	return i, nil
}

// Declares reports whether events may bring a value of a name.
func (v *Views) Declares(name string) bool {
	return slices.ContainsFunc(v.dimensions, func(d definition.Dimension) bool { return slices.Contains(d.By, name) }) ||
		slices.ContainsFunc(v.tops, func(t definition.Top) bool { return t.By == name && name != definition.ByKey })
}

// single returns the names that events may bring values of.
func (v *Views) single() (names []string) {
	for _, d := range v.dimensions {
		for _, name := range d.By {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, t := range v.tops {
		if t.By != definition.ByKey && !slices.Contains(names, t.By) {
			names = append(names, t.By)
		}
	}
	return names
}

// NoDimensions returns the error of an event that brings a dimension to a counter that has
// no views.
func NoDimensions(name string) error { return unknown(name, nil) }

// unknown returns the error of a dimension that is not one of those declared.
func unknown(name string, declared []string) error {
	want := "the counter has none"
	if len(declared) > 0 {
		want = "want " + strings.Join(declared, " or ")
	}
	return store.Errorf(store.KindInvalid, "unknown dimension %q: %s", name, want)
}

// Names appends what the parts of an event are called in each dimension, before it is
// known whether they are admitted. Values that the event has not are empty.
func (v *Views) Names(names []string, dims []call.Dimension) ([]string, error) {
	for i, dim := range dims {
		if !v.Declares(dim.Name) {
			return nil, unknown(dim.Name, v.single())
		}
		if slices.ContainsFunc(dims[:i], func(d call.Dimension) bool { return d.Name == dim.Name }) {
			return nil, store.Errorf(store.KindInvalid, "dimension %q is given twice", dim.Name)
		}
		if !valueOK(dim.Value) {
			return nil, store.Errorf(store.KindInvalid, "dimension %q: a value is UTF-8 without control characters", dim.Name)
		}
		if len(dim.Value) > definition.CellBytesMax {
			return nil, store.Errorf(store.KindTooLarge, "dimension %q: a value of %d bytes: at most %d", dim.Name, len(dim.Value), definition.CellBytesMax)
		}
	}
	for i := range v.dimensions {
		d := &v.dimensions[i]
		name := valueOf(dims, d.By[0])
		if len(d.By) > 1 {
			name = together(dims, d.By)
		}
		if len(name) > definition.CellBytesMax {
			return nil, store.Errorf(store.KindTooLarge, "dimension %q: values of %d bytes: at most %d", d.Name(), len(name), definition.CellBytesMax)
		}
		names = append(names, name)
	}
	return names, nil
}

// valueOK reports whether s is UTF-8 without control characters.
func valueOK(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}

// valueOf returns the value of a name, or "".
func valueOf(dims []call.Dimension, name string) string {
	for i := range dims {
		if dims[i].Name == name {
			return dims[i].Value
		}
	}
	return ""
}

// together returns what the part of several values is called; empty if there is none.
func together(dims []call.Dimension, names []string) string {
	values, some := make([]string, len(names)), false
	for i, name := range names {
		values[i] = valueOf(dims, name)
		some = some || values[i] != ""
	}
	if !some {
		return ""
	}
	return strings.Join(values, separator)
}

// Values takes the name of a part apart, into values in the order of Dimension.By.
func Values(name string) []string { return strings.Split(name, separator) }

// Admits returns the view of dimension i that has its values for all time. Which of them
// are admitted is kept with it: a name that is neither empty nor Other must be, before
// anything is counted under it.
func (v *Views) Admits(i int) (view uint16) { return v.admits[i] }

// Limit returns how many values of dimension i are told apart.
func (v *Views) Limit(i int) int64 { return int64(v.dimensions[i].Values()) }

// Line returns where the lines of the ledger go that are written at a time, if the event
// has one: every event, or only adjustments. The position is the version of the step.
func (v *Views) Line(now int64, adjustment bool) (store.PartFields, bool) {
	for i := range v.views {
		if r := &v.views[i]; r.ledger && (adjustment || v.record == definition.All) {
			return store.PartFields{Kind: store.PartEntries, View: r.ID, Epoch: r.epoch(now)}, true
		}
	}
	return store.PartFields{}, false
}

// Floors returns those of a namespace at a time. They are one epoch behind what is kept, so
// that events that were planned a while ago do not meet them.
func (v *Views) Floors(namespace string, now int64) []store.Floor {
	var floors []store.Floor
	for i := range v.views {
		r := &v.views[i]
		if r.keep == 0 {
			continue
		}
		begin, end := r.epoch(now).Span()
		from := now - r.keep - (end - begin)
		if r.windowed() || r.once {
			from -= r.grid.Longest()
		}
		floors = append(floors, store.Floor{Namespace: namespace, Kind: r.kind(), View: r.ID, Epoch: r.epoch(from)})
	}
	return floors
}

// kind returns that of the cells of r.
func (r *ready) kind() store.PartKind {
	switch {
	case r.ledger:
		return store.PartEntries
	case r.choices:
		return store.PartMembers
	case r.once && r.filtered:
		return store.PartWindowSketch
	case r.once:
		return store.PartOnce
	case r.shared && r.windowed():
		return store.PartWindowShared
	case r.shared:
		return store.PartShared
	case r.merges() && r.windowed():
		return store.PartWindowSketch
	case r.merges():
		return store.PartSketch
	case !r.windowed():
		return store.PartDim
	case r.dimension == NoDimension:
		return store.PartWindow
	default:
		return store.PartWindowDim
	}
}

// epoch returns that of a cell of r that begins at a time.
func (r *ready) epoch(ms int64) store.Epoch { return store.EpochAt(ms, time.Duration(r.Epoch)) }
