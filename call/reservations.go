package call

import (
	"fmt"
	"time"

	"github.com/quipudb/quipu/store"
)

// All is the amount that makes a commit take everything that is reserved.
const All int64 = -1

// The limits of a list of reservations.
const (
	ReservationsMax     = 1000 // in a page
	reservationsDefault = 100
)

// A Reservation is an amount that is taken out of a counter for a limited time.
// It ends once: it is committed, released, or given back when it expires.
type Reservation struct {
	ID             string // by which it is committed, released, extended and looked at
	Namespace, Key string // of the counter
	Amount         int64
	Who            string // whom it is for, if that was said

	State     HoldState
	Committed int64     // how much of it was taken for good, once it is committed
	ExpiresAt time.Time // when it expires, or has, by the clock of the store; zero if that is not known any more

	// Stock is what the counter has, if HasStock is set: the call asked for it by WantValue,
	// or looks at a reservation.
	Stock
	HasStock bool

	// Replayed says that the call was a repeat: it changed nothing, and this is the
	// result of the first. ExpiresAt and State are the present ones.
	Replayed bool

	// Durability is the durability that the write has. A call that changes nothing has
	// none.
	Durability store.Durability
}

// Stock says how much of a counter is reserved and how much is available.
type Stock struct {
	Value     int64 // what there is: what is available, and what is reserved
	Reserved  int64 // the sum of all open reservations
	Available int64 // the counter's own value, as any read of it tells
	Open      int64 // how many reservations are open

	// Exact says that the fields are of the same moment. If the counter keeps changing
	// during the read, they are of slightly different moments and need not add up.
	Exact bool
}

// HoldState is the state of a reservation.
type HoldState uint8

// The states. They are sent: append only.
const (
	HoldOpen      HoldState = iota + 1 // its amount is reserved
	HoldCommitted                      // it was committed, with an amount from 0 on
	HoldReleased                       // it was released
	HoldExpired                        // it has expired, or has ended so long ago that nobody remembers how
)

var holdWords = []string{"", "open", "committed", "released", "expired"}

// String returns the word for s.
func (s HoldState) String() string { return holdWords[min(int(s), len(holdWords)-1)] }

// MarshalText returns the word for s.
func (s HoldState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReservationOptions select open reservations of a counter. The zero value is
// the first page of all.
type ReservationOptions struct {
	Who    string // only those for whom; "" is all
	Limit  int    // in a page, up to ReservationsMax; the default is 100
	Cursor string // Next of the page before
}

// Check returns the options with the default limit filled in, or an error.
func (o ReservationOptions) Check() (ReservationOptions, error) {
	if o.Limit < 0 || o.Limit > ReservationsMax {
		return o, store.Errorf(store.KindInvalid, "limit of %d reservations: want 1 to %d", o.Limit, ReservationsMax)
	}
	if o.Limit == 0 {
		o.Limit = reservationsDefault
	}
	return o, nil
}

// A ReservationPage is a page of the open reservations of a counter, and its
// stock. With ReservationOptions.Who, a page may be short or empty and still
// have a Next.
type ReservationPage struct {
	Key string
	Stock
	Reservations []Reservation
	Next         string // the Cursor of the next page; empty if there is none
}

// NotEnough returns the error of a reservation that a floor refused.
func NotEnough(e *BoundError) error {
	text := fmt.Sprintf("%d asked for, and %d available", -e.Asked, e.Value)
	if e.Limit != 0 {
		text += fmt.Sprintf(", which must not go below %d", e.Limit)
	}
	if e.Forgotten {
		text += Forgotten
	}
	return &store.Error{Kind: store.KindBound, Detail: text, Err: e}
}

// ReserveTermsOf returns what the options of a Reserve ask for, or an error if one has no
// meaning for it.
func ReserveTermsOf(opts []WriteOption) (WriteTerms, error) {
	for _, o := range opts {
		switch o.kind {
		case writeToken, writeWho, writeFloor, writeWant:
		default:
			return WriteTerms{}, store.Errorf(store.KindInvalid, "option %s has no meaning for Reserve", o.kind)
		}
	}
	return WriteTermsOf(opts, true)
}

// WantsValue reports whether the options of Commit, Release or Extend ask for
// the stock. It returns an error if there are other options.
func WantsValue(call string, opts []WriteOption) (want bool, err error) {
	for _, o := range opts {
		if o.kind != writeWant {
			return false, store.Errorf(store.KindInvalid, "option %s has no meaning for %s", o.kind, call)
		}
		want = true
	}
	return want, nil
}

// EndedError returns the error of a call for a reservation that has ended in
// another way.
func EndedError(state HoldState, committed int64) error {
	how := "it has expired, or ended so long ago that nobody remembers how"
	switch state {
	case HoldCommitted:
		how = fmt.Sprintf("it was committed, with %d", committed)
	case HoldReleased:
		how = "it was released"
	default:
	}
	return store.Errorf(store.KindEnded, "the reservation has ended: %s", how)
}
