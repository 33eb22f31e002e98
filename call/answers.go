package call

import (
	"time"

	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/store"
)

// A Receipt is the result of one write.
type Receipt struct {
	Namespace, Key string // of the counter

	// Applied is the amount added. For Set, Reset and Delete it is the change of the
	// value, if HasValue is set, limited to the range of int64.
	Applied int64

	// Value and Before are the value after and before the write. They are valid if
	// HasValue is set: the write asked for them with WantValue and, if this is a
	// repeat, so did the first write.
	Value, Before int64
	HasValue      bool

	// Replayed says that this write was a repeat: it changed nothing, and this is the
	// result of the first.
	Replayed bool

	// Late says that the event came late for its windows: some windows no longer keep
	// its time and do not count it, or the definition made it count at a later time.
	// The total counts it. A repeat does not set Late.
	Late bool

	// Duplicate says that nothing was added, because the definition counts each user
	// once in a window and this user was counted before.
	Duplicate bool

	// DuplicateError is the share of new users who are mistaken for a Duplicate, if
	// the definition counts approximately. Otherwise it is 0.
	DuplicateError float64

	// Version is the counter's version after the write, for IfVersion. It is 0 after a
	// Delete and for a Duplicate.
	Version uint64

	// Durability is the durability that the write has.
	Durability store.Durability

	// Err says why an event was refused. Only AddBatch sets it.
	Err error
}

// Session returns the position of the write, for readers that must see it. It
// is opaque: give it to the ReadOption Session, in this process or another.
func (r Receipt) Session() string {
	return session.Position{Version: r.Version, Counter: session.Counter(r.Namespace, r.Key)}.String()
}

// A Fate says what is known of a token.
type Fate struct {
	State store.TokenState

	// Receipt is the result of the write, if State is store.TokenApplied.
	Receipt Receipt

	// Reacted says that the write was a reaction: it replaced the choice Before by
	// Choice. Either is empty if there was none. Receipt has no values then.
	Reacted        bool
	Choice, Before string

	// At is the time when the token was decided; zero if unknown.
	At time.Time
}

// A Count is the answer to a read: a value that says how exact and how old it
// is.
type Count struct {
	Key   string
	Value int64

	// Lower and Upper bound the exact value if Bounded is set; otherwise nothing is
	// proved. They hold at AsOf, or at a moment between AsOf and the read if the
	// counter changed in between. The parts of a split counter are read one after the
	// other. So the bounds of a split counter include every write acknowledged before
	// the read, and some of the writes made during it, perhaps a later one without an
	// earlier one. The counter need not have had such a value at any moment.
	Lower, Upper int64
	Bounded      bool

	Exact    bool // Value counts every write acknowledged before the read began
	Complete bool // every part of the counter was read
	Exists   bool

	ExpiresAt time.Time // from when on it does not exist, by the clock of the store; zero if it has no end

	AsOf      time.Time     // every write acknowledged before it is counted
	Staleness time.Duration // how long before the read AsOf may have been; 0 if exact
	Source    string        // "store"; "rollup" for a total that is kept; "recalled" if the store could not be reached; "replica" if it may be behind
	Shards    int           // how many parts the counter has
	Version   uint64        // changes whenever Value does; 0 if the counter does not exist; for IfVersion, if it is below quipu.VersionMixed
}

// A Sum is the sum of the counters whose keys start with a prefix.
type Sum struct {
	Value int64
	Keys  int64 // how many counters that is

	// Complete says that all counters were read. Otherwise Next is the cursor to
	// continue from.
	Complete bool
	Next     string

	Exact bool      // it is complete, and counts every write acknowledged before the call
	AsOf  time.Time // it counts every write acknowledged before, to the counters it has
}

// ListOptions select a page of a list. The zero value is the first page.
type ListOptions struct {
	Limit  int    // counters in a page, up to PageMax; the default is 100
	Cursor string // Next of the page before
}

// A Page is a part of a list.
type Page struct {
	Counts []Count
	Next   string // the Cursor of the next page; empty if there is none
}
