package quipu

import (
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// Package call has the options and answers of calls, so that a client can import them
// without the engine.
type (
	// A WriteOption changes what one write means. Give each at most once, in any
	// order, but a Dim for each dimension. An option that has no meaning for a call is refused with ErrInvalid.
	WriteOption = call.WriteOption

	// A ReadOption says what a reader needs of the answer. Give them in any order:
	// the answer meets all of them.
	ReadOption = call.ReadOption

	// An Event is one Add among many.
	Event = call.Event

	// A Dimension is a value that an event has in one of the dimensions of its counter.
	Dimension = call.Dimension

	// A Correction says why a counter is corrected, and by whom.
	Correction = call.Correction

	// A Book is the definitions of a namespace.
	Book = call.Book

	// A View is one answer that a definition has kept up to date.
	View = call.View

	// DefineOptions say when definitions are to be taken.
	DefineOptions = call.DefineOptions

	// A Change is what became of definitions that were proposed.
	Change = call.Change

	// A Receipt says what became of one write.
	Receipt = call.Receipt

	// AllowOptions say more of a call of Allow. The zero value says nothing.
	AllowOptions = call.AllowOptions

	// A Decision says whether a client may use what it asked for.
	Decision = call.Decision

	// A Count is the answer to a read, and says what it is.
	Count = call.Count

	// ListOptions say which page of a list is wanted. The zero value is the first.
	ListOptions = call.ListOptions

	// A Sum is what the counters whose keys start with a prefix add up to.
	Sum = call.Sum

	// A Page is a part of a list.
	Page = call.Page

	// RangeOptions say which range of time is wanted, and in which steps.
	RangeOptions = call.RangeOptions

	// A Series is what was counted in a range of time.
	Series = call.Series

	// A Point is what was counted in one step of a range.
	Point = call.Point

	// ByOptions say over which time a dimension is wanted.
	ByOptions = call.ByOptions

	// UniqueOptions say of which time, and by which dimension, users are wanted.
	UniqueOptions = call.UniqueOptions
	// Uniques is how many different users a counter had.
	Uniques = call.Uniques
	// A UniqueEstimate is how many different users there were.
	UniqueEstimate = call.UniqueEstimate

	// A Breakdown is what was counted for each value of a dimension.
	Breakdown = call.Breakdown

	// A DimensionValue is what was counted for one value.
	DimensionValue = call.DimensionValue

	// LedgerOptions say which lines of a ledger are wanted.
	LedgerOptions = call.LedgerOptions

	// A LedgerPage is a part of a ledger.
	LedgerPage = call.LedgerPage

	// A Line is one change of a counter, written down.
	Line = call.Line

	// An Erasure says what was done to take someone's name out of ledgers.
	Erasure = call.Erasure

	// A Recounted says what Recount has found, and what it has done about it.
	Recounted = call.Recounted

	// A Reaction says what became of what a user chose.
	Reaction = call.Reaction

	// A ChoiceCount is how many users have a choice.
	ChoiceCount = call.ChoiceCount

	// Reactions are how many users have each choice of a counter.
	Reactions = call.Reactions

	// MembersOptions say which users of a counter are wanted.
	MembersOptions = call.MembersOptions

	// A MembersPage is a part of the users of a counter.
	MembersPage = call.MembersPage

	// A Member is a user who has a choice.
	Member = call.Member

	// A Fate is what is known of a token.
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

// The durability words, weakest first.
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

// Who says who did what is counted; "" says nothing. It has a meaning for Add
// only.
func Who(who string) WriteOption { return call.Who(who) }

// At says when the counted event happened; the zero time says nothing. It picks the
// windows that count the event, up to a day ahead of the store's time; a total counts all
// events, whenever they happened. It has a meaning for Add only.
func At(t time.Time) WriteOption { return call.At(t) }

// Dim says which value the counted event has in a dimension, such as the country it came
// from. The definition of the counter declares the dimensions; another one is refused with
// ErrInvalid. Give it once for each dimension. It has a meaning for Add only.
func Dim(name, value string) WriteOption { return call.Dim(name, value) }

// Because says why a counter is set, reset or deleted, and by whom, for the line in its
// ledger. Either may be empty. A counter without a ledger has no line, and keeps neither. It
// has a meaning for Set, Reset and Delete only.
func Because(c Correction) WriteOption { return call.Because(c) }

// WantValue asks for the value before and after the write.
func WantValue() WriteOption { return call.WantValue() }

// IfVersion applies the write only if the counter is at this version, and
// refuses it with ErrChanged otherwise. Version 0 is a counter that does not
// exist.
func IfVersion(version uint64) WriteOption { return call.IfVersion(version) }

// Floor refuses an Add that would take the counter below n, with a *BoundError. A
// counter that is below it already can be added to, but not taken from. It has a
// meaning for Add only.
func Floor(n int64) WriteOption { return call.Floor(n) }

// Ceiling refuses an Add that would take the counter above n, with a *BoundError.
// A counter that is above it already can be taken from, but not added to. It has a
// meaning for Add only.
func Ceiling(n int64) WriteOption { return call.Ceiling(n) }

// Saturate makes an Add that a floor or a ceiling would refuse go as far as that,
// whether it is the call's own or that of the counter's definition; with neither, as
// far as int64 goes. The receipt says how much was applied. It has a meaning for
// Add only.
func Saturate() WriteOption { return call.Saturate() }

// TTL makes the counter not exist any more so long after the Add, by the clock of
// the store, to the millisecond. Each Add with a TTL sets it anew; one without
// leaves it as it is. It has a meaning for Add only.
func TTL(d time.Duration) WriteOption { return call.TTL(d) }

// Exact asks for the value that counts every write acknowledged before the
// read began.
func Exact() ReadOption { return call.Exact() }

// Session asks for a value that counts the write whose Receipt had this
// session, and all that the writer had seen by then. If the store has lost that
// write the read returns ErrSessionLost: drop the session, and read again without
// it.
func Session(session string) ReadOption { return call.Session(session) }

// MaxStaleness asks for a value that counts every write acknowledged d before
// the read began.
func MaxStaleness(d time.Duration) ReadOption { return call.MaxStaleness(d) }

// AsOf asks for the total that the counter had at a time, by the times of its events. It
// needs windows, and is exact only as far as these, and the ledger of what was set, can
// prove it. A counter whose windows do not begin at that time is told as of the next time
// at which they do: see Count.AsOf. It goes with no other option, and with Read alone.
func AsOf(t time.Time) ReadOption { return call.AsOf(t) }

// MaxError asks for a value that is proved to be at most n away from the exact
// one.
func MaxError(n int64) ReadOption { return call.MaxError(n) }
