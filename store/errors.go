package store

import (
	"errors"
	"fmt"
	"strconv"
)

// Kind sorts errors by what a caller can do about them. Every wire has a code
// for each. Kinds are wire values: append only.
type Kind uint8

// The kinds.
const (
	KindOther       Kind = iota
	KindInvalid          // the request is wrong and changed nothing; sending it again won't help
	KindTooLarge         // a key, token, batch or reply is over its limit
	KindOverflow         // the result does not fit into an int64
	KindToken            // the token was used for another payload
	KindExpired          // the token is older than the window
	KindSettled          // the token was settled before its write arrived
	KindChanged          // the cell is not at the version asked for
	KindFull             // the namespace is at its limit of keys or tokens
	KindMark             // the batch does not follow the writer's mark
	KindRetired          // the writer was retired
	KindUnavailable      // can't serve now and changed nothing; try again later
	KindUnknown          // the outcome is unknown: send the same again, or settle the token
	KindClosed           // the store is closed
	KindCorrupt          // stored bytes are not what was written
	KindUnsupported      // this store can't do that
	KindLost             // acknowledged data is missing
	KindUnmet            // a condition on the cell's existence, layout or deadline was not met
	KindBound            // the cell would leave its bound
	KindReadOnly         // writes are not taken here
	KindSplit            // the cell is a part of a counter, which must be put together first
	KindSessionLost      // the store has lost what a session has seen: drop the session
	KindUntimely         // too early or too late by the store's time
	KindOutdated         // the definitions have changed since the write was made: read them, and make it anew
	KindLate             // for a part that is not kept any more: make it anew
	KindEnded            // the reservation has ended: it was committed or released, or it has expired
	KindNotCount         // the key holds bytes, and no count
	KindNotSketch        // the key holds no sketch, or one of another kind or shape
	KindAbsent           // the key does not exist, and the call needs it
)

var kindWords = [...]string{
	"internal", "invalid", "too_large", "overflow", "token", "expired", "settled", "changed", "full", "mark", "retired",
	"unavailable", "unknown", "closed", "corrupt", "unsupported", "lost", "unmet", "bound", "read_only", "split", "session_lost",
	"untimely", "outdated", "late", "ended", "not_a_count", "not_a_sketch", "absent",
}

// String returns the word for a kind that every wire has.
func (k Kind) String() string {
	if int(k) < len(kindWords) {
		return kindWords[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// The errors, one for each kind. A returned error carries more detail and
// matches its kind's value by errors.Is.
var (
	ErrInvalid     = &Error{Kind: KindInvalid, Detail: "invalid"}
	ErrTooLarge    = &Error{Kind: KindTooLarge, Detail: "too large"}
	ErrOverflow    = &Error{Kind: KindOverflow, Detail: "the result does not fit into an int64"}
	ErrToken       = &Error{Kind: KindToken, Detail: "the token was used for another payload"}
	ErrExpired     = &Error{Kind: KindExpired, Detail: "the token is older than the window"}
	ErrSettled     = &Error{Kind: KindSettled, Detail: "the token was settled before its write arrived"}
	ErrChanged     = &Error{Kind: KindChanged, Detail: "the counter changed: it is not at the version asked for"}
	ErrFull        = &Error{Kind: KindFull, Detail: "the namespace is at its limit of keys or tokens, or there are too many namespaces"}
	ErrMark        = &Error{Kind: KindMark, Detail: "the batch does not follow the writer's mark"}
	ErrRetired     = &Error{Kind: KindRetired, Detail: "the writer was retired"}
	ErrUnavailable = &Error{Kind: KindUnavailable, Detail: "unavailable"}
	ErrUnknown     = &Error{Kind: KindUnknown, Detail: "the outcome is unknown"}
	ErrClosed      = &Error{Kind: KindClosed, Detail: "closed"}
	ErrCorrupt     = &Error{Kind: KindCorrupt, Detail: "corrupt"}
	ErrUnsupported = &Error{Kind: KindUnsupported, Detail: "unsupported"}
	ErrLost        = &Error{Kind: KindLost, Detail: "acknowledged data is missing"}
	ErrUnmet       = &Error{Kind: KindUnmet, Detail: "a condition on the counter's existence or deadline was not met"}
	ErrBound       = &Error{Kind: KindBound, Detail: "the counter would cross its floor or ceiling"}
	ErrReadOnly    = &Error{Kind: KindReadOnly, Detail: "this server is read-only and refuses writes"}
	ErrSplit       = &Error{Kind: KindSplit, Detail: "the counter is split, and its parts are being merged: try again"}
	ErrSessionLost = &Error{Kind: KindSessionLost, Detail: "the store has lost a write that the session has seen: drop the session, and read again without it"}
	ErrUntimely    = &Error{Kind: KindUntimely, Detail: "too early or too late by the store's time"}
	ErrOutdated    = &Error{Kind: KindOutdated, Detail: "the definitions have changed since the write was made"}
	ErrLate        = &Error{Kind: KindLate, Detail: "it is for a time that is no longer kept"}
	ErrEnded       = &Error{Kind: KindEnded, Detail: "the reservation has ended"}
	ErrNotCount    = &Error{Kind: KindNotCount, Detail: "the key holds text, a sketch, a hash or a sorted set, not a count"}
	ErrNotSketch   = &Error{Kind: KindNotSketch, Detail: "the key holds no sketch, or one of another kind or shape"}
	ErrAbsent      = &Error{Kind: KindAbsent, Detail: "the key does not exist"}
)

// An Error is an error with a kind.
type Error struct {
	Kind   Kind
	Detail string
	Err    error // the cause, or nil
}

// Errorf returns an error of a kind. A %w in the format becomes the cause.
func Errorf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Detail: err.Error(), Err: errors.Unwrap(err)}
}

// Newer returns the error for data in a format that this program does not know
// yet. The data is not damaged.
func Newer(what string, has, knows int) *Error {
	return Errorf(KindUnsupported, "%s was made by a newer Quipu, with format %d, and this one knows formats up to %d: upgrade", what, has, knows)
}

// Error returns the detail.
func (e *Error) Error() string { return "quipu: " + e.Detail }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an error of the same kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// Partly returns the error of a call that failed with err. If other parts of
// the call may have been applied, the outcome is unknown.
func Partly(err error, others bool) error {
	if err == nil || !others || KindOf(err) == KindUnknown {
		return err
	}
	return Errorf(KindUnknown, "only a part of the call may have been applied: %w", err)
}

// Answer distributes the errors of the batches of a call, which may be nil, to
// their replies, so that each batch has its own outcome. If all batches failed
// with the same kind of error, Answer returns the first error as that of the
// call.
func Answer(errs []error, replies []Reply) error {
	alike := true
	for _, err := range errs {
		alike = alike && err != nil && KindOf(err) == KindOf(errs[0])
	}
	if alike && len(errs) > 0 {
		return errs[0]
	}
	for i, err := range errs {
		if err != nil {
			replies[i] = Reply{Err: err, Results: replies[i].Results[:0]}
		}
	}
	return nil
}

// KindOf returns the kind of err, or KindOther.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindOther
}
