package quipu

import "github.com/quipudb/quipu/store"

// An Error is an error with a Kind.
type Error = store.Error

// Kind sorts errors by what a caller can do about them.
type Kind = store.Kind

// The errors a DB returns, one for each kind. A returned error carries more
// detail and matches one of these by errors.Is.
var (
	// ErrInvalid is returned when the request is wrong; sending it again won't
	// help.
	ErrInvalid = store.ErrInvalid
	// ErrTooLarge is returned when a key, token or batch is over its limit.
	ErrTooLarge = store.ErrTooLarge
	// ErrOverflow is returned when the result does not fit into an int64.
	ErrOverflow = store.ErrOverflow
	// ErrToken is returned when the token was used before for another write.
	ErrToken = store.ErrToken
	// ErrExpired is returned when the token is older than the window.
	ErrExpired = store.ErrExpired
	// ErrSettled is returned when the token was settled before its write
	// arrived.
	ErrSettled = store.ErrSettled
	// ErrChanged is returned when the counter does not have the version that IfVersion
	// gave.
	ErrChanged = store.ErrChanged
	// ErrBound is returned, by a *BoundError, when a floor or a ceiling refused the
	// write.
	ErrBound = store.ErrBound
	// ErrFull is returned when the namespace is at its limit of keys, tokens, user
	// reactions or open reservations.
	ErrFull = store.ErrFull
	// ErrUnavailable is returned when the store can't serve now. Nothing changed, and
	// the same call may succeed later.
	ErrUnavailable = store.ErrUnavailable
	// ErrUnknown is returned when the outcome of a write is unknown: send it
	// again with the same token, or settle the token.
	ErrUnknown = store.ErrUnknown
	// ErrReadOnly is returned by the writes of a DB that is read-only.
	ErrReadOnly = store.ErrReadOnly
	// ErrEnded is returned when a reservation has ended: it was committed or released, or it
	// has expired.
	ErrEnded = store.ErrEnded

	// ErrNotCount is returned when the key holds text, a sketch, a hash or a sorted
	// set, which the Redis protocol writes. Nothing changed.
	ErrNotCount = store.ErrNotCount
	// ErrNotSketch is returned by calls on sketches when the key holds something else, or a sketch of
	// another kind or shape. Nothing was changed.
	ErrNotSketch = store.ErrNotSketch
	// ErrAbsent is returned by calls on sketches when the key does not exist, and the call does not make it.
	ErrAbsent = store.ErrAbsent
	// ErrClosed is returned after Close.
	ErrClosed = store.ErrClosed
	// ErrCorrupt is returned when stored bytes are not what was written.
	ErrCorrupt = store.ErrCorrupt
	// ErrUnsupported is returned when the store has no way to do this.
	ErrUnsupported = store.ErrUnsupported
	// ErrLost is returned when acknowledged data is missing.
	ErrLost = store.ErrLost
	// ErrSessionLost is returned by a read when the store has lost a write that the
	// session has seen: drop the session, and read again without it.
	ErrSessionLost = store.ErrSessionLost
)
