package call

import (
	"time"

	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/store"
)

// A Receipt says what became of one write.
type Receipt struct {
	Namespace, Key string // of the counter

	// Applied is the amount added. For Set, Reset and Delete it is, with
	// HasValue, the change of the value, held at the limits of int64.
	Applied int64

	// Value and Before are the counter after and before the write, if HasValue
	// is set: the write asked for them with WantValue, and if it is a repeat, so
	// did the first.
	Value, Before int64
	HasValue      bool

	// Replayed says that this write was a repeat: it changed nothing, and this
	// is the result of the first.
	Replayed bool

	// Late says that some windows do without the event, because they do not keep its
	// time any more, or that by its definition it was counted as if it had happened
	// later. The total has it. A repeat does not say so.
	Late bool

	// Duplicate says that by its definition the counter counts each user once in a
	// window, and had counted this one: nothing was added.
	Duplicate bool

	// DuplicateError is which part of the users who were not counted yet is told to be Duplicate
	// all the same, if the definition counts approximately. It is 0 if that is not so.
	DuplicateError float64

	// Version is the counter's version after the write, for IfVersion; 0 after
	// a Delete, and of a Duplicate.
	Version uint64

	// Durability is what the acknowledgement means.
	Durability store.Durability

	// Err says why an event was refused. Only AddBatch sets it.
	Err error
}

// Session returns the position of the write, for a reader that must see it. It
// is opaque: hand it to the ReadOption of the same name, in this process or
// another.
func (r Receipt) Session() string {
	return session.Position{Version: r.Version, Counter: session.Counter(r.Namespace, r.Key)}.String()
}

// A Fate is what is known of a token.
type Fate struct {
	State store.TokenState

	// Receipt is what the write returned, if State is store.TokenApplied.
	Receipt Receipt

	// Reacted says that the write was a reaction: it chose Choice, and Before was chosen
	// before. Either is empty if there was none. Receipt has no values then.
	Reacted        bool
	Choice, Before string

	// At is when the token was decided; zero if unknown.
	At time.Time
}

// A Count is the answer to a read, and says what it is.
type Count struct {
	Key   string
	Value int64

	// Lower and Upper bound the exact value at AsOf, or at a moment between that and
	// the read if it was changed meanwhile, if Bounded is set; otherwise nothing is
	// proved. Of a counter that is split over several partitions of a store, they
	// bound a value that lies between what it was when its shards began to be read
	// and what it was when all were: it counts every write acknowledged before, and
	// of those made meanwhile some, perhaps a later one without an earlier one, so
	// the counter need not have had it at any moment.
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

// A Sum is what the counters whose keys start with a prefix add up to.
type Sum struct {
	Value int64
	Keys  int64 // how many counters that is

	// Complete says that all were read; otherwise Next is the cursor to go on from.
	Complete bool
	Next     string

	Exact bool      // it is complete, and counts every write acknowledged before the call
	AsOf  time.Time // it counts every write acknowledged before, to the counters it has
}

// ListOptions say which page of a list is wanted. The zero value is the first.
type ListOptions struct {
	Limit  int    // counters in a page, up to PageMax; the default is 100
	Cursor string // Next of the page before
}

// A Page is a part of a list.
type Page struct {
	Counts []Count
	Next   string // the Cursor of the next page; empty if there is none
}
