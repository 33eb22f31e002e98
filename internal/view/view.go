// Package view stands between definitions and cells: which parts of a counter an event
// changes, and which parts answer a question about a range of time. It reads nothing and
// keeps no time: the book, the event and the store's time are handed to it.
//
// Times are Unix milliseconds.
package view

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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
	dimensions []definition.Dimension
	views      []ready
	record     definition.Record
}

// A ready is a view made ready.
type ready struct {
	book.View
	grid      calendar.Grid
	keep      int64 // after the end of a window, or for a line; 0 is for ever
	dimension int   // in dimensions, or NoDimension
	ledger    bool
}

// NoDimension is in the place of a dimension where all events are meant.
const NoDimension = -1

// New returns the views of an entry of a book.
func New(b *book.Book, e *book.Entry) *Views {
	v := &Views{dimensions: e.Definition.Dimensions, record: e.Definition.Ledger.Record}
	for i, s := range book.Slots(&e.Definition) {
		r := ready{View: e.Views[i], dimension: NoDimension, ledger: s.Ledger}
		if s.Dimension != nil {
			r.dimension = slices.IndexFunc(v.dimensions, func(d definition.Dimension) bool { return d.Name() == s.Dimension.Name() })
		}
		switch {
		case s.Ledger:
			r.keep = time.Duration(e.Definition.Ledger.Keep).Milliseconds()
		case s.Window != nil:
			r.grid, r.keep = b.Grid(s.Window), time.Duration(s.Window.Keep).Milliseconds()
		}
		v.views = append(v.views, r)
	}
	return v
}

// windowed reports whether r has windows.
func (r *ready) windowed() bool { return r.grid.Width != calendar.Width{} }

// sums reports whether the cells of r, and what is outside of it, add up to the total.
func (v *Views) sums(r *ready) bool { return !r.ledger || v.record == definition.All }

// Dimension returns which dimension has a name, as in Dimension.Name.
func (v *Views) Dimension(name string) (i int, err error) {
	i = slices.IndexFunc(v.dimensions, func(d definition.Dimension) bool { return d.Name() == name })
	if i < 0 {
		return i, store.Errorf(store.KindInvalid, "unknown dimension %q: %s", name, v.declared())
	}
	return i, nil
}

// declared says which dimensions there are.
func (v *Views) declared() string {
	if len(v.dimensions) == 0 {
		return "the counter has none"
	}
	var all []string
	for _, d := range v.dimensions {
		all = append(all, d.Name())
	}
	return "want " + strings.Join(all, ", ")
}

// Names returns what the parts of an event are called in each dimension, before it is
// known whether they are admitted. Values that the event has not are empty.
func (v *Views) Names(dims map[string]string) ([]string, error) {
	for name, value := range dims {
		if !slices.ContainsFunc(v.dimensions, func(d definition.Dimension) bool { return slices.Contains(d.By, name) }) {
			return nil, store.Errorf(store.KindInvalid, "unknown dimension %q: %s", name, v.declared())
		}
		if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, store.Errorf(store.KindInvalid, "dimension %q: a value is UTF-8 without control characters", name)
		}
	}
	var names []string
	for _, d := range v.dimensions {
		values, some := make([]string, len(d.By)), false
		for i, name := range d.By {
			values[i] = dims[name]
			some = some || values[i] != ""
		}
		name := ""
		if some {
			name = strings.Join(values, separator)
		}
		if len(name) > definition.CellBytesMax {
			return nil, store.Errorf(store.KindTooLarge, "dimension %q: values of %d bytes: at most %d", d.Name(), len(name), definition.CellBytesMax)
		}
		names = append(names, name)
	}
	return names, nil
}

// Values takes the name of a part apart, into values in the order of Dimension.By.
func Values(name string) []string { return strings.Split(name, separator) }

// An Admission is what must be there before a value of a dimension is counted by itself.
type Admission struct {
	Value Part // 1 if it is admitted
	Count Part // how many are
	Limit int64
}

// Admission returns that of a name of dimension i. An empty name, and Other, need none.
func (v *Views) Admission(i int, name string) (a Admission, needed bool) {
	for _, r := range v.views {
		if r.dimension == i && !r.windowed() {
			return Admission{
				Value: Part{Kind: Admitted, View: r.ID, Name: name},
				Count: Part{Kind: Admitted, View: r.ID},
				Limit: int64(v.dimensions[i].Values()),
			}, name != "" && name != Other
		}
	}
	return Admission{}, false
}

// A Base is a part that holds what a view lacks of the total.
type Base struct {
	Part Part
	Book uint64 // that brought the view
}

// Bases returns those of all views. An assignment adds its jump to each. The first event
// of a counter that was last written under a lower book adds what the total was.
func (v *Views) Bases() []Base {
	var bases []Base
	for i := range v.views {
		if r := &v.views[i]; v.sums(r) {
			bases = append(bases, Base{Part{Kind: Outside, View: r.ID}, r.Book})
		}
	}
	return bases
}

// Line returns where the lines of the ledger go that are written at a time, if the event
// has one: every event, or only adjustments. The position is the version of the step.
func (v *Views) Line(now int64, adjustment bool) (Part, bool) {
	for _, r := range v.views {
		if r.ledger && (adjustment || v.record == definition.All) {
			return Part{Kind: Entries, View: r.ID, Epoch: Epoch(now, r.Epoch)}, true
		}
	}
	return Part{}, false
}

// A Floor is the lowest epoch of a view that is not dropped.
type Floor struct {
	Kind  Kind
	View  uint16
	Epoch uint32
}

// Floors returns those at a time. They are one epoch behind what is kept, so that events
// that were planned a while ago do not meet them.
func (v *Views) Floors(now int64) []Floor {
	var floors []Floor
	for _, r := range v.views {
		if r.keep == 0 {
			continue
		}
		_, length := epochOf(r.Epoch)
		from := now - r.keep - length
		if r.windowed() {
			from -= r.grid.Longest()
		}
		floors = append(floors, Floor{r.kind(), r.ID, Epoch(from, r.Epoch)})
	}
	return floors
}

// kind returns that of the cells of r.
func (r *ready) kind() Kind {
	switch {
	case r.ledger:
		return Entries
	case !r.windowed():
		return Value
	case r.dimension == NoDimension:
		return Window
	default:
		return WindowValue
	}
}
