package quipu

import (
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// Package call has the options and answers of calls, so that a client can import them
// without the engine.
type (
	// A WriteOption changes one write. Give each at most once and in any order; only
	// Dim may repeat, once for each dimension. An option that does not fit the call is
	// refused with ErrInvalid.
	WriteOption = call.WriteOption

	// A ReadOption says what the reader needs. The answer meets all options, in any
	// order.
	ReadOption = call.ReadOption

	// An Event is one Add among many.
	Event = call.Event

	// A Dimension is a value that an event has in one of the dimensions of its counter.
	Dimension = call.Dimension

	// A Correction has the reason and the actor of a correction, for the ledger of the
	// counter.
	Correction = call.Correction

	// A Book is the definitions of a namespace.
	Book = call.Book

	// A View is one of the answers that a definition keeps up to date, such as its
	// windows of an hour.
	View = call.View

	// DefineOptions are conditions for Define.
	DefineOptions = call.DefineOptions

	// A Change says what Define changed, or would change.
	Change = call.Change

	// A Receipt is the result of one write.
	Receipt = call.Receipt

	// AllowOptions change a call of Allow. The zero value changes nothing.
	AllowOptions = call.AllowOptions

	// A Decision says whether a client may use what it asked for.
	Decision = call.Decision

	// A Count is the answer to a read: a value that says how exact and how old it is.
	Count = call.Count

	// ListOptions select a page of a list. The zero value is the first page.
	ListOptions = call.ListOptions

	// A Sum is the sum of the counters whose keys start with a prefix.
	Sum = call.Sum

	// A Page is a part of a list.
	Page = call.Page

	// RangeOptions select a range of time and its steps.
	RangeOptions = call.RangeOptions

	// A Series is a counter over time.
	Series = call.Series

	// A Point is what was counted in one step of a Series.
	Point = call.Point

	// ByOptions select the range of time of a Breakdown.
	ByOptions = call.ByOptions

	// UniqueOptions select the users to count.
	UniqueOptions = call.UniqueOptions
	// Uniques is the number of distinct users of a counter.
	Uniques = call.Uniques
	// A UniqueEstimate is a number of distinct users, with bounds.
	UniqueEstimate = call.UniqueEstimate

	// A Breakdown has the count of each value of a dimension.
	Breakdown = call.Breakdown

	// A DimensionValue is the count of one value of a dimension.
	DimensionValue = call.DimensionValue

	// LedgerOptions select entries of a ledger.
	LedgerOptions = call.LedgerOptions

	// A LedgerPage is a part of a ledger.
	LedgerPage = call.LedgerPage

	// A Line is one entry of a ledger: a recorded change of a counter.
	Line = call.Line

	// An Erasure says how much Erase has removed.
	Erasure = call.Erasure

	// A Recounted says which differences Recount found and repaired.
	Recounted = call.Recounted

	// A Reaction is the result of React or Unreact.
	Reaction = call.Reaction

	// A ChoiceCount is the number of users with one choice.
	ChoiceCount = call.ChoiceCount

	// Reactions has the number of users with each choice of a counter.
	Reactions = call.Reactions

	// MembersOptions select users of a counter.
	MembersOptions = call.MembersOptions

	// A MembersPage is a part of the users of a counter.
	MembersPage = call.MembersPage

	// A Member is a user who has a choice.
	Member = call.Member

	// A Fate says what is known of a token.
	Fate = call.Fate

	// A BoundError is the error of a write that a floor or a ceiling refused. It
	// matches ErrBound.
	BoundError = call.BoundError

	// TokenState is the state of a token.
	TokenState = store.TokenState

	// Limits bound what a store keeps.
	Limits = store.Limits

	// Durability says what an acknowledgement survives.
	Durability = store.Durability
)

// The limits of one call.
const (
	EventsMax       = call.EventsMax       // events in an AddBatch
	KeysMax         = call.KeysMax         // keys in a ReadBatch
	UniquesMax      = call.UniquesMax      // users in an AddUniques
	PageMax         = call.PageMax         // counters in a page of List
	SumPage         = call.SumPage         // counters that Sum reads at a time
	LedgerMax       = call.LedgerMax       // lines in a page of Ledger
	ReservationsMax = call.ReservationsMax // reservations in a page of Reservations
	MembersMax      = call.MembersMax      // users in a page of Members
	DimsMax         = call.DimsMax         // dimensions that an event may have a value in
)

// The durabilities, the weakest first.
const (
	Memory  = store.Memory  // acknowledged at once: a crash of the process may lose it
	Written = store.Written // survives the death of the process, not power loss
	Synced  = store.Synced  // survives power loss
)

// The states of a token.
const (
	TokenUnknown = store.TokenUnknown // not applied, not settled; its write may still arrive
	TokenApplied = store.TokenApplied // its write was applied
	TokenSettled = store.TokenSettled // it was settled first: its write never will be applied
	TokenRefused = store.TokenRefused // its write was refused by a bound or a condition, and so is a repeat
	TokenExpired = store.TokenExpired // it is older than the window, or made as far ahead: refused, whatever it was
)

// Token names this write among all writes to the counter, so that a repeat
// counts once and returns the first result.
func Token(token string) WriteOption { return call.Token(token) }

// Who names the user who caused the event. An empty name means no option. Who
// is an option of Add only.
func Who(who string) WriteOption { return call.Who(who) }

// At gives the time of the counted event. It selects the windows that count the
// event, up to a day ahead of the store's time. A total counts all events,
// whatever their time. The zero time means no option. At is an option of Add
// only.
func At(t time.Time) WriteOption { return call.At(t) }

// Dim gives the value of a dimension for the counted event, such as the country
// it came from. Give it once for each dimension. The definition of the counter
// declares the dimensions, and any other is refused with ErrInvalid. Dim is an
// option of Add only.
func Dim(name, value string) WriteOption { return call.Dim(name, value) }

// Because gives the reason for a change and its actor, for the ledger of the
// counter. Either may be empty. A counter without a ledger keeps neither.
// Because is an option of Set, Reset and Delete only.
func Because(c Correction) WriteOption { return call.Because(c) }

// WantValue asks for the value before and after the write.
func WantValue() WriteOption { return call.WantValue() }

// IfVersion applies the write only if the counter has this version. Otherwise
// it is refused with ErrChanged. Version 0 means that the counter does not
// exist.
func IfVersion(version uint64) WriteOption { return call.IfVersion(version) }

// Floor refuses an Add that would take the counter below n, with a *BoundError.
// If the counter is below n already, it can be raised but not lowered. Floor is
// an option of Add only.
func Floor(n int64) WriteOption { return call.Floor(n) }

// Ceiling refuses an Add that would take the counter above n, with a
// *BoundError. If the counter is above n already, it can be lowered but not
// raised. Ceiling is an option of Add only.
func Ceiling(n int64) WriteOption { return call.Ceiling(n) }

// Saturate makes an Add that a floor or a ceiling would refuse add as much as
// possible instead. That holds for the bounds of the call and of the counter's
// definition, and for the range of int64. The receipt says how much was
// applied. Saturate is an option of Add only.
func Saturate() WriteOption { return call.Saturate() }

// TTL deletes the counter this long after the Add, by the clock of the store,
// to the millisecond. Each Add with a TTL sets the deadline anew, and an Add
// without one keeps it. TTL is an option of Add only.
func TTL(d time.Duration) WriteOption { return call.TTL(d) }

// Exact asks for a value that includes every write acknowledged before the read
// began.
func Exact() ReadOption { return call.Exact() }

// Session asks for a value that includes the write whose Receipt had this
// session, and all that its writer had seen by then. If the store has lost that
// write, the read returns ErrSessionLost: drop the session, and read again
// without it.
func Session(session string) ReadOption { return call.Session(session) }

// MaxStaleness asks for a value that includes every write acknowledged more
// than d before the read began.
func MaxStaleness(d time.Duration) ReadOption { return call.MaxStaleness(d) }

// AsOf asks for the total that the counter had at a time, by the times of its
// events. The counter needs windows. The answer is exact as far as the windows
// and the ledger can prove it. If no window begins at that time, the answer is
// for the next time at which one does: see Count.AsOf. AsOf can't be combined
// with other options, and only Read accepts it.
func AsOf(t time.Time) ReadOption { return call.AsOf(t) }

// MaxError asks for a value that is proved to differ from the exact one by at
// most n.
func MaxError(n int64) ReadOption { return call.MaxError(n) }
