package call

import (
	"time"

	"github.com/quipudb/quipu/definition"
)

// PointsDefault is the maximum number of points of a range without a step.
const PointsDefault = 1000

// RangeOptions select a range of time and its steps. The zero value is all that
// is kept, up to now.
type RangeOptions struct {
	// From and To are the range, which includes From and excludes To. The default of
	// From is the first window that is kept. The default of To is the end of the
	// current step.
	From, To time.Time

	// Step is the length of each point. The default is the shortest width of the
	// counter's windows that makes at most PointsDefault points.
	Step definition.Width

	// Zone is the time zone in which a step of a day or more begins. The default is
	// the zone of the counter's windows.
	Zone string

	// Prefix says that the key is a prefix: the answer is the sum of all counters
	// whose keys start with it and that have windows.
	Prefix bool
}

// A Series is a counter over time.
type Series struct {
	Key    string // or the prefix
	Step   definition.Width
	Zone   string  // in which steps of a day or more begin; empty is UTC
	Points []Point // none if no window begins in the range: it is too short, or ends before all that is kept

	Sum      int64 // over all points
	Exact    bool  // there are points, and all of them are
	Complete bool  // there are points, and all of them are

	// CompleteFrom is the time from which on all events are counted. Earlier windows
	// were removed, or the definition is younger. It is the end of the range if no
	// point is complete.
	CompleteFrom time.Time

	AsOf time.Time // every event acknowledged before is counted
}

// A Point is what was counted in one step of a range.
type Point struct {
	From, To time.Time // of the windows that are counted
	Value    int64
	Exact    bool // From and To are the step: no window is only partly in it
	Complete bool // every event between From and To is counted
}

// Rate returns the average count a second, from From to To, or to asOf if the
// point is not over by then. It is 0 if the point has only just begun.
func (p Point) Rate(asOf time.Time) float64 {
	if asOf.After(p.To) {
		asOf = p.To
	}
	passed := asOf.Sub(p.From).Seconds()
	if passed <= 0 {
		return 0
	}
	return float64(p.Value) / passed
}

// Rate returns the average count a second over all points: see Point.Rate.
func (s *Series) Rate() float64 {
	n := len(s.Points)
	if n == 0 {
		return 0
	}
	return Point{From: s.Points[0].From, To: s.Points[n-1].To, Value: s.Sum}.Rate(s.AsOf)
}

// ByOptions select the range of time of a Breakdown. The zero value is all
// time.
type ByOptions struct {
	// From and To are the range, with the defaults of RangeOptions. If both are zero,
	// the Breakdown covers all time, including events whose windows were removed.
	From, To time.Time

	// Top is the number of values to return, those with the highest counts. The
	// default is all.
	Top int
}

// A Breakdown has the count of each value of a dimension.
type Breakdown struct {
	Key, Dimension string

	Values []DimensionValue // the highest count comes first
	Other  int64            // all that is not in Values: values beyond the dimension's limit, and beyond Top
	Sum    int64            // all of it

	// Outside is, for all time, the part of the counter that no value counts: what was
	// counted before the dimension was defined, what was set, and what was added by
	// SQL. It is 0 for a range.
	Outside int64

	Exact        bool      // From and To are what was asked for: see Point
	Complete     bool      // every event is counted; of all time, Outside is 0
	CompleteFrom time.Time // from when on
	From, To     time.Time // of the windows that are counted, the same if there are none; zero for all time
	AsOf         time.Time // every event acknowledged before is counted
}

// A DimensionValue is the count of one value of a dimension.
type DimensionValue struct {
	Value  string   // empty for events that brought none
	Values []string // for a dimension of several names, in their order; then Value is empty
	Count  int64
}

// LedgerOptions select entries of a ledger. The zero value selects the latest.
type LedgerOptions struct {
	Limit  int    // lines in a page, up to LedgerMax; the default is 100
	Cursor string // Next of the page before, with the same options

	Actor, Token string    // only lines that have them
	From, To     time.Time // only lines that were recorded in between
}

// LedgerMax is the maximum number of entries on a page of a ledger.
const LedgerMax = 1000

// A LedgerPage is a page of a ledger, the latest entry first. If the counter is
// split, entries of one part are in the order in which they were applied, and
// entries of different parts are ordered by time.
type LedgerPage struct {
	Lines []Line
	Next  string // the Cursor of the next page; empty if there is none

	// CompleteFrom is the time from which on the ledger has every change that the
	// definition asks for. It is zero if the definition asks for none. Adjustments are
	// always recorded.
	CompleteFrom time.Time
}

// A Line is one entry of a ledger: a recorded change of a counter.
type Line struct {
	Position string // names the line among those of its counter
	Kind     string // add, adjust, undo, set, reset, delete, react, unreact

	Delta      int64 // by how much the counter was changed, if DeltaKnown
	DeltaKnown bool
	Value      int64 // of the counter, or of its shard, after the change, if ValueKnown
	ValueKnown bool

	At       time.Time // when it happened
	Recorded time.Time // when it was written down, by the clock of the store

	Token, Actor, Reason, Source string

	Erased bool   // the actor was named once, and was erased
	Undoes string // the position of the line that this one takes back
	Undone bool   // it was taken back

	Dims []Dimension
}

// An Erasure says how much one call of Erase has removed.
type Erasure struct {
	Counters  int64 // that had the name
	Lines     int64 // of ledgers, that do not have it any more
	Reactions int64 // that were taken back: the counts do not have them any more
	Windows   int64 // of counters that count each user once, that do not remember the user any more
	Looked    int64 // entries and users that were looked at

	// Complete says that everything was looked at. Otherwise Next is the cursor to
	// continue from.
	Complete bool
	Next     string
}

// A Recounted says which differences Recount found and repaired.
type Recounted struct {
	Key           string
	Before, After int64    // the total
	Repaired      []string // what did not add up and does now, in words; empty if all did
	Left          []string // what differs among views, such as windows of two widths, and stays: it does not add up
}
