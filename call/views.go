package call

import (
	"time"

	"github.com/quipudb/quipu/definition"
)

// PointsDefault is the most points that a range has if no step is asked for.
const PointsDefault = 1000

// RangeOptions say which range of time is wanted, and in which steps. The zero value is
// all that is kept, up to now.
type RangeOptions struct {
	// From and To are the range: the time at From belongs to it, the time at To does not.
	// The default of From is the first window that is kept; that of To is the end of the
	// step that has begun last.
	From, To time.Time

	// Step is how long each point is. The default is the shortest width of the counter's
	// windows that makes at most PointsDefault points.
	Step definition.Width

	// Zone is the time zone in which a step of a day or more begins. The default is the
	// one that the counter's windows have.
	Zone string

	// Prefix says that the key is a prefix: the answer is the sum over all counters whose
	// keys start with it and that have windows.
	Prefix bool
}

// A Series is what was counted in a range of time.
type Series struct {
	Key    string // or the prefix
	Step   definition.Width
	Zone   string  // in which steps of a day or more begin; empty is UTC
	Points []Point // none if no window begins in the range: it is too short, or ends before all that is kept

	Sum      int64 // over all points
	Exact    bool  // there are points, and all of them are
	Complete bool  // there are points, and all of them are

	// CompleteFrom is from when on all events are counted: earlier windows are not kept any
	// more, or the definition came later. It is the end of the range if no point is complete.
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

// Rate returns how much was counted a second: over the time from From to To, or up to asOf if
// the point is not over by then. It is 0 if no time of it has passed.
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

// Rate returns how much was counted a second over all points: see Point.Rate.
func (s *Series) Rate() float64 {
	n := len(s.Points)
	if n == 0 {
		return 0
	}
	return Point{From: s.Points[0].From, To: s.Points[n-1].To, Value: s.Sum}.Rate(s.AsOf)
}

// ByOptions say over which time a dimension is wanted. The zero value is all time.
type ByOptions struct {
	// From and To are the range, with the defaults of RangeOptions. If both are zero, all
	// time is meant, which also has the events that no window keeps any more.
	From, To time.Time

	// Top is how many values are wanted, those with the highest counts. The default is
	// all.
	Top int
}

// A Breakdown is what was counted for each value of a dimension.
type Breakdown struct {
	Key, Dimension string

	Values []DimensionValue // the highest count comes first
	Other  int64            // all that is not in Values: values beyond the dimension's limit, and beyond Top
	Sum    int64            // all of it

	// Outside is, for all time, what the counter has and no value has: what was counted
	// before the dimension was defined, what was set, and what was added by SQL. It is 0 for
	// a range.
	Outside int64

	Exact        bool      // From and To are what was asked for: see Point
	Complete     bool      // every event is counted; of all time, Outside is 0
	CompleteFrom time.Time // from when on
	From, To     time.Time // of the windows that are counted, the same if there are none; zero for all time
	AsOf         time.Time // every event acknowledged before is counted
}

// A DimensionValue is what was counted for one value.
type DimensionValue struct {
	Value  string   // empty for events that brought none
	Values []string // for a dimension of several names, in their order; then Value is empty
	Count  int64
}

// LedgerOptions say which lines of a ledger are wanted. The zero value is the latest.
type LedgerOptions struct {
	Limit  int    // lines in a page, up to LedgerMax; the default is 100
	Cursor string // Next of the page before, with the same options

	Actor, Token string    // only lines that have them
	From, To     time.Time // only lines that were recorded in between
}

// LedgerMax is how many lines a page of a ledger may have.
const LedgerMax = 1000

// A LedgerPage is a part of a ledger, the latest line first. Lines of one shard of a
// counter are in the order in which they were applied, those of different shards by time.
type LedgerPage struct {
	Lines []Line
	Next  string // the Cursor of the next page; empty if there is none

	// CompleteFrom is from when on every change that the counter's definition asks for is
	// there; zero if it asks for none. Adjustments are always recorded.
	CompleteFrom time.Time
}

// A Line is one change of a counter, written down.
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

// An Erasure says what was done to take someone's name out of ledgers and reactions, in one
// call.
type Erasure struct {
	Counters  int64 // that had the name
	Lines     int64 // of ledgers, that do not have it any more
	Reactions int64 // that were taken back: the counts do not have them any more
	Windows   int64 // of counters that count each user once, that do not remember the user any more
	Looked    int64 // entries and users that were looked at

	// Complete says that all was looked at; otherwise Next is the cursor to go on
	// from.
	Complete bool
	Next     string
}

// A Recounted says what Recount has found, and what it has done about it.
type Recounted struct {
	Key           string
	Before, After int64    // the total
	Repaired      []string // what did not add up and does now, in words; empty if all did
	Left          []string // what differs among views, such as windows of two widths, and stays: it does not add up
}
