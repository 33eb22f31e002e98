// Package definition has definitions, which say what is counted for a key
// besides its total: windows of time, dimensions, unique users, top lists and a
// ledger. They also set floors and ceilings, reactions, and rate limits.
//
// A definition differs from a policy. A policy changes what counting costs, and
// each server has its own. A definition changes what the numbers mean, so the
// store keeps it, and all servers use the same one.
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

// A Definition says what is counted for the keys that its pattern names. The
// first definition of a namespace that matches a key applies to it.
type Definition struct {
	// Pattern is a key, or a prefix followed by '*'.
	Pattern string `json:"pattern"`

	// Windows count events by time.
	Windows []Window `json:"windows,omitempty"`

	// Dimensions count events by their values, such as the country they came from.
	Dimensions []Dimension `json:"dimensions,omitempty"`

	// Ledger says which changes are recorded.
	Ledger Ledger `json:"ledger,omitzero"`

	// Late says how events are counted that are too old.
	Late Late `json:"late,omitzero"`

	// Floor and Ceiling bound a counter; nil is no bound. A write that would cross one
	// is refused. If the counter is already outside, because it was so before the
	// definition, it can come back step by step. One cell decides every write, so such
	// a counter is never split. A counter that does not exist is 0, and a counter can
	// be deleted whatever its bounds are.
	Floor   *int64 `json:"floor,omitempty"`
	Ceiling *int64 `json:"ceiling,omitempty"`

	// Choices are the reactions that users may have, one for each user. The counter is
	// the number of users with a reaction, and only reactions change it. A later
	// definition can only add choices at the end.
	Choices []string `json:"choices,omitempty"`

	// Shards is the number of cells over which the users of a counter with choices are
	// spread, and with them its writes; 0 means one. A counter keeps the number that
	// it had at its first reaction.
	Shards int `json:"shards,omitempty"`

	// Once counts each user at most once in each window of time.
	Once Once `json:"once,omitzero"`

	// Unique also counts the number of distinct users.
	Unique Unique `json:"unique,omitzero"`

	// Tops are lists of the most frequent items.
	Tops []Top `json:"top,omitempty"`

	// Limits are the rate limits of the names that match the pattern. A limit is not a
	// counter, and does not change a counter of the same name.
	Limits []Limit `json:"limits,omitempty"`

	// Away says how limits decide while the store can't be reached.
	Away Away `json:"away,omitzero"`

	// Clients is the number of clients whose usage each limit remembers. Further
	// clients are refused. The default is 1,000,000.
	Clients int64 `json:"clients,omitempty"`

	// Reservations limits what may be reserved of a counter; nil means the defaults.
	Reservations *Reservations `json:"reservations,omitempty"`
}

// A Window counts events by stretches of time of one length.
type Window struct {
	// Every is the length of a window.
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

// A Dimension counts events by one of their values, or by several together.
type Dimension struct {
	// By are the names of the values. Several names count each combination of their
	// values.
	By []string `json:"by"`

	// Windows are the widths of the definition's windows that also count this
	// dimension; nil means all of them. Values are always counted for all time too.
	Windows []Width `json:"windows,omitzero"`

	// Limit is the number of values that each counter tells apart. All further values
	// are counted together as "other". The default is 1,000.
	Limit int `json:"limit,omitempty"`
}

// Name returns the names of d, with a comma between them.
func (d Dimension) Name() string { return strings.Join(d.By, ",") }

// Values returns the number of values that are told apart.
func (d Dimension) Values() int {
	if d.Limit == 0 {
		return valuesDefault
	}
	return d.Limit
}

// Has reports whether windows of a width count d.
func (d Dimension) Has(w Width) bool { return d.Windows == nil || slices.Contains(d.Windows, w) }

// A Ledger says which changes are recorded, each with its time and its reason.
type Ledger struct {
	Record Record `json:"record"`
	Keep   Keep   `json:"keep,omitempty"` // how long; 0 is for ever
}

// A Record says which changes a ledger records.
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

// Late says how an event is counted that happened too long ago. The zero value
// counts it in the total, and in the windows that still keep its time.
type Late struct {
	Then Then `json:"then"`

	// After is the age at which an event is late. The default is the longest time for
	// which a window is kept.
	After Keep `json:"after,omitempty"`
}

// Then is how an event is counted that is too old.
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

// LateAfter returns the age at which an event is late; 0 means never.
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

// Cells returns the number of cells that an event may change besides the total:
// one for each view.
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

// Check returns an error if d is not valid. It does not check that the time
// zones exist.
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
		return store.Errorf(store.KindTooLarge, "pattern %q: an event may change %d cells, two for each of %d views%s: at most %d: use fewer windows or dimensions, or fewer windows for each dimension",
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
		return fmt.Errorf("a ledger has keep but no record: set record to adjustments or all, or leave out keep")
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
		return fmt.Errorf("late: count takes events of any age: leave out after, or use refuse or clamp")
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
		return fmt.Errorf("hours, minutes and seconds are the same in all zones: leave out zone, or use 1d, 1w, 1mo, 3mo or 1y")
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
