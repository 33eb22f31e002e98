package call

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// A Book is the definitions of a namespace, as its store has them.
type Book struct {
	ID      int64     // rises whenever they change; 0 if there never were any
	InForce time.Time // since when all events are counted by them; zero if that is still to come

	Definitions []definition.Definition // in order: the first that names a key holds for it
	Views       []View                  // of all definitions, in their order
}

// A View is one of the answers that a definition keeps up to date, such as its
// windows of an hour.
type View struct {
	Pattern string // of the definition
	Name    string // such as "windows of 1h", "dimension country", "ledger of all"

	// Since is the time from which on the view is complete. Earlier events are in the
	// total, but not in the view. It is zero while the definitions are not yet in
	// force.
	Since time.Time

	Keep definition.Keep // how long what is counted is kept; 0 is for ever
}

// DefineOptions are conditions for Define. The zero value has none.
type DefineOptions struct {
	DryRun bool  // only say what would change
	IfID   int64 // only if the book has this id, and ErrChanged otherwise; 0 is any
	IfNone bool  // only if there never were any definitions; otherwise nothing changes
}

// A Change says what Define changed, or would change.
type Change struct {
	ID      int64    // of the book that has them, or with DryRun would have
	Changes []string // what begins, begins anew, ends, or is kept for another time; empty if nothing changed
}

// A Correction has the reason and the actor of a correction, for the ledger of
// the counter.
type Correction struct {
	Reason string
	Actor  string // may be empty
}

// ReasonBytesMax is the maximum length of a reason.
const ReasonBytesMax = 1 << 10

// Check returns an error if the correction is not valid.
func (c Correction) Check() error {
	if strings.TrimSpace(c.Reason) == "" {
		return store.Errorf(store.KindInvalid, "a correction needs a reason")
	}
	return c.CheckTexts()
}

// CheckTexts is Check for a write that needs no reason.
func (c Correction) CheckTexts() error {
	switch {
	case len(c.Reason) > ReasonBytesMax:
		return store.Errorf(store.KindTooLarge, "reason of %d bytes: at most %d", len(c.Reason), ReasonBytesMax)
	case !utf8.ValidString(c.Reason):
		return store.Errorf(store.KindInvalid, "reason is not UTF-8")
	}
	return CheckWho(c.Actor)
}
