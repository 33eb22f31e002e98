// Package book has books. A book is the definitions of a namespace, with a
// rising number: the views of its keys, their ids, the times since when they
// are complete, their time zones, and floors and ceilings. A book never
// changes. Next makes the next book, and decides which views continue and which
// begin anew.
//
// All servers count by the same book, so its bytes have everything that
// counting depends on, including the tables of time zones.
package book

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/calendar"
)

// The limits of a book.
const (
	BytesMax    = 256 << 10
	PatternsMax = 1_000 // with those that it once had
	ViewsMax    = 65_535
)

// A Book is the definitions of a namespace. The zero Book has none; it is the first.
type Book struct {
	Format  int       `json:"format"`
	ID      uint64    `json:"id"`      // rises
	Views   int       `json:"views"`   // ids of views given so far; none is given twice
	Entries []Entry   `json:"entries"` // in order: the first that names a key holds for it
	Former  []string  `json:"former"`  // patterns that it once had, and has no more
	Retired []Retired `json:"retired"` // views that are not counted any more, but may have cells
	Forces  []Force   `json:"forces"`  // of the earlier books that brought a view

	Chosen []Chosen `json:"chosen,omitempty"` // what reactions may have chosen by earlier definitions

	// Holds says that there may be reservations, also of counters without a definition: whoever
	// deletes a counter has to ask whether it has some.
	Holds bool `json:"holds,omitempty"`

	Zones map[string]*calendar.Zone `json:"zones"` // by name
}

// An Entry is a definition and its views.
type Entry struct {
	Definition definition.Definition `json:"definition"`
	Views      []View                `json:"views"` // one for each of Slots
}

// A View is one answer that is kept up to date for the keys of an entry.
type View struct {
	ID    uint16          `json:"id"`    // 1 or more
	Book  uint64          `json:"book"`  // that brought it
	Epoch definition.Keep `json:"epoch"` // the time of keeping by which its epochs were chosen; 0 is for ever
}

// A Retired view is one that no entry has any more.
type Retired struct {
	ID   uint16          `json:"id"`
	Keep definition.Keep `json:"keep"` // 0 is for ever
	At   int64           `json:"at"`   // when it was retired, in Unix milliseconds

	// Of a ledger, which is still read: the keys that it is of, and the time of keeping by
	// which its epochs were chosen. The pattern of others is empty.
	Pattern string          `json:"pattern,omitempty"`
	Epoch   definition.Keep `json:"epoch,omitempty"`
}

// Ledgers returns the retired ledgers that may have lines of a key, the last one first.
func (b *Book) Ledgers(key string) (all []Retired) {
	for _, r := range slices.Backward(b.Retired) {
		if r.Pattern != "" && names(r.Pattern, key) && len(all) < LedgersMax {
			all = append(all, r)
		}
	}
	return all
}

// LedgersMax is how many retired ledgers of a key are read.
const LedgersMax = 16

// A Force says when a book came into force: from then on all partitions counted by it.
type Force struct {
	Book uint64 `json:"book"`
	At   int64  `json:"at"` // Unix milliseconds
}

// A Slot is what a view of a definition shows.
type Slot struct {
	Window    *definition.Window    // nil: all time
	Dimension *definition.Dimension // nil: all events
	Ledger    bool                  // the ledger; the others are nil
	Choices   bool                  // reactions; the others are nil
	Once      *definition.Once      // users who were counted; the others are nil
	Unique    bool                  // how many different users there were, of the window and the dimension
	Top       *definition.Top       // the most frequent, of the window
}

// Slots returns what the views of a definition show, in their order: its windows, each
// dimension for all time and then by its windows, the ledger, reactions, users who were
// counted once, and how many different users there were: in all, and of each of the views
// that come first; then each top list for all time and by the windows.
func Slots(d *definition.Definition) []Slot {
	var slots []Slot
	for i := range d.Windows {
		slots = append(slots, Slot{Window: &d.Windows[i]})
	}
	for i := range d.Dimensions {
		by := &d.Dimensions[i]
		slots = append(slots, Slot{Dimension: by})
		for j := range d.Windows {
			if by.Has(d.Windows[j].Every) {
				slots = append(slots, Slot{Dimension: by, Window: &d.Windows[j]})
			}
		}
	}
	if d.Ledger.Record != definition.Off {
		slots = append(slots, Slot{Ledger: true})
	}
	if len(d.Choices) > 0 {
		slots = append(slots, Slot{Choices: true})
	}
	if d.Once != (definition.Once{}) {
		slots = append(slots, Slot{Once: &d.Once})
	}
	if d.Unique.Of != "" {
		counts := slots
		slots = append(slots, Slot{Unique: true})
		for _, s := range counts {
			if s.Window != nil || s.Dimension != nil {
				s.Unique = true
				slots = append(slots, s)
			}
		}
	}
	for i := range d.Tops {
		slots = append(slots, Slot{Top: &d.Tops[i]})
		for j := range d.Windows {
			slots = append(slots, Slot{Top: &d.Tops[i], Window: &d.Windows[j]})
		}
	}
	return slots
}

// uniques is what the names of views begin with that have them.
const uniques = "uniques"

// Keep returns how long the cells of a slot are kept; 0 is for ever.
func (s Slot) Keep(d *definition.Definition) definition.Keep {
	switch {
	case s.Ledger:
		return d.Ledger.Keep
	case s.Once != nil:
		return s.Once.Kept()
	case s.Window != nil:
		return s.Window.Keep
	default:
		return 0
	}
}

// Name says what a slot shows, for people. Views with one name, of one entry, show the same.
func (s Slot) Name(d *definition.Definition) string {
	if s.Ledger {
		return "ledger of " + d.Ledger.Record.String()
	}
	if s.Choices {
		return reactions
	}
	if s.Once != nil {
		name := "users once in " + s.Once.Every.String()
		if s.Once.Zone != "" {
			name += " in " + s.Once.Zone
		}
		if s.Once.Approximate != 0 { // A filter of another shape begins anew.
			name += fmt.Sprintf(" but for %s, %d at a time", s.Once.Approximate, s.Once.Remembers())
		}
		return name
	}
	var parts []string
	if s.Unique {
		parts = append(parts, uniques)
		if s.Window != nil || s.Dimension != nil {
			parts = append(parts, "by")
		}
	}
	if t := s.Top; t != nil { // Lists of another k can't be merged with it.
		parts = append(parts, fmt.Sprintf("top list %s of %d by %s", t.Name, t.Items(), t.By))
		if s.Window != nil {
			parts = append(parts, "in")
		}
	}
	if s.Dimension != nil {
		parts = append(parts, "dimension "+s.Dimension.Name())
	}
	if w := s.Window; w != nil {
		parts = append(parts, "windows of "+w.Every.String())
		if w.Zone != "" {
			parts = append(parts, "in "+w.Zone)
		}
	}
	return strings.Join(parts, " ")
}

// Of returns the entry that holds for a key, or nil.
func (b *Book) Of(key string) *Entry {
	if i := b.Index(key); i >= 0 {
		return &b.Entries[i]
	}
	return nil
}

// Index returns the index of the entry that holds for a key, -1 if none does.
func (b *Book) Index(key string) int {
	for i := range b.Entries {
		if names(b.Entries[i].Definition.Pattern, key) {
			return i
		}
	}
	return -1
}

// Under returns the entries that hold for keys that start with a prefix.
func (b *Book) Under(prefix string) []*Entry {
	var under []*Entry
	for i := range b.Entries {
		pattern := b.Entries[i].Definition.Pattern
		if overlap(pattern, prefix+"*") {
			under = append(under, &b.Entries[i])
		}
		if covers(pattern, prefix+"*") {
			break // no key is left for those that follow
		}
	}
	return under
}

// Had reports whether a pattern names a key, or once did. Such a counter may have views.
func (b *Book) Had(key string) bool {
	if b.Of(key) != nil {
		return true
	}
	for _, pattern := range b.Former {
		if names(pattern, key) {
			return true
		}
	}
	return false
}

// Since returns from when on a view is complete, if the book itself is in force since a
// time. It is false if that is not known: before, the view is not counted everywhere.
func (b *Book) Since(v View, inForce int64) (at int64, ok bool) {
	if v.Book == b.ID {
		return inForce, inForce != 0
	}
	for _, f := range b.Forces {
		if f.Book == v.Book {
			return f.At, true
		}
	}
	return 0, false
}

// Grid returns the windows of w, by the clocks of the book.
func (b *Book) Grid(w *definition.Window) calendar.Grid {
	return calendar.Grid{Width: w.Every, Zone: b.Zones[w.Zone]}
}

// names reports whether a pattern names a key.
func names(pattern, key string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return key == prefix || open && strings.HasPrefix(key, prefix)
}

// overlap reports whether a key is named by both patterns.
func overlap(a, b string) bool {
	return names(a, strings.TrimSuffix(b, "*")) || names(b, strings.TrimSuffix(a, "*"))
}

// covers reports whether a names all keys that b names.
func covers(a, b string) bool {
	return a == b || strings.HasSuffix(a, "*") && names(a, strings.TrimSuffix(b, "*"))
}
