// Package definition says what a counter is: what is counted for each event besides the
// total, by windows of time, by dimensions, and line by line in a ledger; between which
// values it must stay; what users may choose, and what counts once for each of them; and
// what clients may use.
//
// A definition differs from a policy. A policy changes what counting costs, and each server
// has its own. A definition changes what the numbers mean, so it is kept in the store, and
// all servers count by the same one.
package definition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// The limits of definitions.
const (
	RidersMax    = 64          // cells that an event may change besides the total
	WindowsMax   = 100_000_000 // cells of one counter, if every value had every window
	ValuesMax    = 100_000     // values of a dimension, for each counter
	KeepMax      = 100 * year
	NamesMax     = 4   // names of a dimension
	NameBytesMax = 64  // of a name of a dimension
	CellBytesMax = 255 // of all values of a dimension together

	valuesDefault = 1_000
)

// A Definition says what is counted for the keys that it names. Of the definitions of a
// namespace, the first that names a key holds for it.
type Definition struct {
	// Pattern is a key, or a prefix followed by '*'.
	Pattern string `json:"pattern"`

	// Windows are lengths of time by which events are counted.
	Windows []Window `json:"windows,omitempty"`

	// Dimensions are what events are counted by, such as the country they came from.
	Dimensions []Dimension `json:"dimensions,omitempty"`

	// Ledger says which changes are written down.
	Ledger Ledger `json:"ledger,omitzero"`

	// Late says what becomes of events that are too old.
	Late Late `json:"late,omitzero"`

	// Floor and Ceiling are where a counter must stay; nil is nowhere. A write that would
	// take it beyond one is refused. A counter that is beyond one already, since it was
	// before the definition, can come back step by step. One cell decides every write, so
	// such a counter is never split. One that does not exist is 0, and can be deleted
	// whatever its bounds are.
	Floor   *int64 `json:"floor,omitempty"`
	Ceiling *int64 `json:"ceiling,omitempty"`

	// Choices are what a user may choose one of: the counter is changed by reactions
	// alone, and is the number of users that have a choice. What a later definition
	// adds comes after those that were there.
	Choices []string `json:"choices,omitempty"`

	// Shards is over how many cells the users of each counter with choices are laid, and
	// with them its writes; 0 is one cell. A counter keeps the number that it had when its
	// first user reacted.
	Shards int `json:"shards,omitempty"`

	// Once has each user counted at most once in each window of time.
	Once Once `json:"once,omitzero"`

	// Unique has the number of different users counted too.
	Unique Unique `json:"unique,omitzero"`

	// Tops are lists of what came most often.
	Tops []Top `json:"top,omitempty"`

	// Limits are what clients may use of the limits whose names have the pattern. A limit is
	// no counter, and counters of the same name are not changed by it.
	Limits []Limit `json:"limits,omitempty"`

	// Away says what becomes of a call that asks a limit while the store can't be reached.
	Away Away `json:"away,omitzero"`

	// Clients is of how many clients each limit remembers what they used: a further one is
	// refused. The default is 1,000,000.
	Clients int64 `json:"clients,omitempty"`

	// Reservations are the limits of what may be reserved of a counter at once; nil is the
	// defaults.
	Reservations *Reservations `json:"reservations,omitempty"`
}

// A Window has events counted by stretches of time of one width.
type Window struct {
	// Every is how long a window is.
	Every Width `json:"every"`

	// Zone is the name of the time zone in which days, weeks, months and years begin.
	// The default is UTC. Windows of a fixed length have none.
	Zone string `json:"zone,omitempty"`

	// Keep is how long a window is kept after its end.
	Keep Keep `json:"keep"`
}

// A Width is how long windows are: fixed, such as 1m, or 1d, 1w, 1mo, 3mo or 1y as the
// calendar has them.
type Width = calendar.Width

// ParseWidth returns the width that s names.
func ParseWidth(s string) (Width, error) { return calendar.ParseWidth(s) }

// A Dimension has events counted by the values that they bring.
type Dimension struct {
	// By are the names of the values. Several are counted together, each combination by
	// itself.
	By []string `json:"by"`

	// Windows are the widths of those windows that the dimension has too; nil means all
	// that the definition has. Values are always counted for all time.
	Windows []Width `json:"windows,omitzero"`

	// Limit is how many values are told apart, for each counter. All further ones are
	// counted as one, other. The default is 1,000.
	Limit int `json:"limit,omitempty"`
}

// Name returns the names of d, with a comma between them.
func (d Dimension) Name() string { return strings.Join(d.By, ",") }

// Values returns how many values are told apart.
func (d Dimension) Values() int {
	if d.Limit == 0 {
		return valuesDefault
	}
	return d.Limit
}

// Has reports whether d is counted by windows of a width.
func (d Dimension) Has(w Width) bool { return d.Windows == nil || slices.Contains(d.Windows, w) }

// A Ledger says which changes are written down, each with its time and its reason.
type Ledger struct {
	Record Record `json:"record"`
	Keep   Keep   `json:"keep,omitempty"` // how long; 0 is for ever
}

// A Record is which changes are written down.
type Record uint8

// The records.
const (
	Off         Record = iota
	Adjustments        // corrections, and values that were set
	All                // every event as well
)

var recordWords = []string{"off", "adjustments", "all"}

// String returns the word for r.
func (r Record) String() string { return recordWords[min(int(r), len(recordWords)-1)] }

// MarshalText returns the word for r.
func (r Record) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText takes a word.
func (r *Record) UnmarshalText(text []byte) error {
	i := slices.Index(recordWords, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want off, adjustments or all", text)
	}
	*r = Record(i)
	return nil
}

// Late says what becomes of an event that happened too long ago. The zero value counts it in
// the total, and in those windows that still keep its time.
type Late struct {
	Then Then `json:"then"`

	// After is how old an event may be. The default is the longest time that a window is
	// kept for.
	After Keep `json:"after,omitempty"`
}

// Then is what becomes of an event that is too old.
type Then uint8

// Its possible fates.
const (
	Count  Then = iota // windows that do not keep its time any more do without it
	Refuse             // it is refused
	Clamp              // it is counted as if it had happened as long ago as an event may have
)

var thenWords = []string{"count", "refuse", "clamp"}

// String returns the word for t.
func (t Then) String() string { return thenWords[min(int(t), len(thenWords)-1)] }

// MarshalText returns the word for t.
func (t Then) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText takes a word.
func (t *Then) UnmarshalText(text []byte) error {
	i := slices.Index(thenWords, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want count, refuse or clamp", text)
	}
	*t = Then(i)
	return nil
}

// LateAfter returns how old an event may be before it is late; 0 is any age.
func (d Definition) LateAfter() Keep {
	if d.Late.Then == Count || d.Late.After != 0 {
		return d.Late.After
	}
	longest := Keep(0)
	for _, w := range d.Windows {
		longest = max(longest, w.Keep)
	}
	return longest
}

// Cells returns how many cells an event may change besides the total: one for each view.
func (d Definition) Cells() int {
	n := len(d.Windows)
	for _, by := range d.Dimensions {
		n++
		for _, w := range d.Windows {
			if by.Has(w.Every) {
				n++
			}
		}
	}
	if d.Ledger.Record != Off {
		n++
	}
	if len(d.Choices) > 0 {
		n++
	}
	if d.Once != (Once{}) {
		n++
	}
	return n
}

// windows returns how many cells one counter may have in its windows.
func (d Definition) windows() int64 {
	sum := int64(0)
	for _, w := range d.Windows {
		n := int64(time.Duration(w.Keep)/w.Every.Shortest()) + 2 // the one that is cut at each end
		values := int64(1)
		for _, by := range d.Dimensions {
			if by.Has(w.Every) {
				values += int64(by.Values()) + 2 // other, and none
			}
		}
		sum += n * values
	}
	if d.Unique.Of != "" { // each has a sketch beside it
		sum *= 2
	}
	for _, w := range d.Windows {
		sum += int64(len(d.Tops)) * (int64(time.Duration(w.Keep)/w.Every.Shortest()) + 2)
	}
	return sum
}

// Check returns an error if d names no keys, or can't be kept. Whether its zones exist is
// for those who have zones.
func (d Definition) Check() error {
	if err := policy.CheckPattern(d.Pattern); err != nil {
		return err
	}
	if err := d.checkParts(); err != nil {
		return store.Errorf(store.KindInvalid, "pattern %q: %w", d.Pattern, err)
	}
	// A view costs an event its own cell, and the one that holds what it began with. One
	// more says by which definitions the counter was last written, and a correction has a
	// line in the ledger, and the mark that it was undone. A reaction has the generation
	// of members twice, two counts of them and the total, instead of the mark.
	n := 2*d.Cells() + d.Sketches() + 3
	if len(d.Choices) > 0 {
		n += 4
	}
	if n > RidersMax {
		sketches := ""
		if k := d.Sketches(); k > 0 {
			sketches = fmt.Sprintf(", one for each of %d sketches", k)
		}
		return store.Errorf(store.KindTooLarge, "pattern %q: an event may change %d cells, two for each of %d views%s: at most %d: have fewer windows or dimensions, or fewer windows for each dimension",
			d.Pattern, n, d.Cells(), sketches, RidersMax)
	}
	if n := d.windows(); n > WindowsMax {
		return store.Errorf(store.KindTooLarge, "pattern %q: a counter could have %d cells in its windows: at most %d: keep them shorter, or limit the values of its dimensions",
			d.Pattern, n, WindowsMax)
	}
	return nil
}

func (d Definition) checkParts() error {
	for i, w := range d.Windows {
		if err := w.check(); err != nil {
			return fmt.Errorf("windows of %s: %w", w.Every, err)
		}
		if slices.ContainsFunc(d.Windows[:i], func(v Window) bool { return v.Every == w.Every && v.Zone == w.Zone }) {
			return fmt.Errorf("windows of %s are given twice", w.Every)
		}
	}
	for i, by := range d.Dimensions {
		if err := by.check(d.Windows); err != nil {
			return fmt.Errorf("dimension %q: %w", by.Name(), err)
		}
		if slices.ContainsFunc(d.Dimensions[:i], func(v Dimension) bool { return sameNames(v.By, by.By) }) {
			return fmt.Errorf("dimension %q is given twice", by.Name())
		}
	}
	switch {
	case d.Ledger.Record > All:
		return fmt.Errorf("unknown record %d of a ledger", d.Ledger.Record)
	case d.Ledger.Record == Off && d.Ledger.Keep != 0:
		return fmt.Errorf("a ledger has keep but no record: want record to be adjustments or all, or leave out keep")
	case d.Ledger.Keep != 0:
		if err := d.Ledger.Keep.check(); err != nil {
			return err
		}
	}
	if d.Floor != nil && d.Ceiling != nil && *d.Floor > *d.Ceiling {
		return fmt.Errorf("a floor of %d is above the ceiling of %d", *d.Floor, *d.Ceiling)
	}
	if err := d.checkReactions(); err != nil {
		return err
	}
	if err := d.checkUnique(); err != nil {
		return err
	}
	if err := d.checkTops(); err != nil {
		return err
	}
	if err := d.checkLimits(); err != nil {
		return err
	}
	if err := d.checkReservations(); err != nil {
		return fmt.Errorf("reservations: %w", err)
	}
	return d.checkLate()
}

func (d Definition) checkLate() error {
	switch l := d.Late; {
	case l.Then > Clamp:
		return fmt.Errorf("late: unknown word %d", l.Then)
	case l.Then == Count && l.After != 0:
		return fmt.Errorf("late: count takes events of any age: leave out after, or have refuse or clamp")
	case l.Then != Count && d.Cells() == 0: // a sketch of all time has no time either
		return fmt.Errorf("late: without windows, dimensions or a ledger events have no time: leave it out")
	case d.LateAfter() == 0 && l.Then != Count:
		return fmt.Errorf("late: without windows no event is too old: want {after: 30d, then: %s}", l.Then)
	case l.After != 0 && l.After.check() != nil:
		return fmt.Errorf("late: after %s: want whole seconds, from 1s to %s", l.After, KeepMax)
	}
	return nil
}

func (w Window) check() error {
	switch {
	case w.Every == Width{}:
		return fmt.Errorf("want every")
	case w.Zone != "" && w.Every.Fixed():
		return fmt.Errorf("hours, minutes and seconds are the same in all zones: leave out zone, or have 1d, 1w, 1mo, 3mo or 1y")
	case w.Zone == "UTC":
		return fmt.Errorf("leave out zone for UTC")
	case time.Duration(w.Keep) < w.Every.Shortest():
		return fmt.Errorf("keep of %s is less than one window", w.Keep)
	}
	return w.Keep.check()
}

func (d Dimension) check(windows []Window) error {
	if len(d.By) == 0 || len(d.By) > NamesMax {
		return fmt.Errorf("%d names: want 1 to %d", len(d.By), NamesMax)
	}
	for i, name := range d.By {
		if !nameOK(name) {
			return fmt.Errorf("name %q: want a letter, and then at most %d letters, digits, '_', '-' or '.'", name, NameBytesMax-1)
		}
		if slices.Contains(d.By[:i], name) {
			return fmt.Errorf("%s is named twice", name)
		}
	}
	if d.Limit < 0 || d.Limit > ValuesMax {
		return fmt.Errorf("limit of %d values: want 1 to %d", d.Limit, ValuesMax)
	}
	for i, w := range d.Windows {
		if !slices.ContainsFunc(windows, func(v Window) bool { return v.Every == w }) {
			return fmt.Errorf("windows of %s: the definition has none of that width", w)
		}
		if slices.Contains(d.Windows[:i], w) {
			return fmt.Errorf("windows of %s are given twice", w)
		}
	}
	return nil
}

// nameOK reports whether s may be the name of a value: it is written in addresses of
// pages, and with commas.
func nameOK(s string) bool {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	odd := func(r rune) bool { return !letter(r) && (r < '0' || r > '9') && !strings.ContainsRune("_-.", r) }
	return s != "" && letter(rune(s[0])) && len(s) <= NameBytesMax && !strings.ContainsFunc(s, odd)
}

// sameNames reports whether a and b are the same names in whichever order.
func sameNames(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}
