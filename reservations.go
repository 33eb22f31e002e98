package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/port"
)

type (
	// A Reservation is an amount that was taken out of a counter for a time.
	Reservation = call.Reservation

	// A ReservationPage is a part of the open reservations of a counter, and what it has.
	ReservationPage = call.ReservationPage

	// ReservationOptions say which reservations of a counter are wanted. The zero value is
	// the first page of all.
	ReservationOptions = call.ReservationOptions

	// Stock is what there is of a counter that has reservations.
	Stock = call.Stock

	// HoldState is what has become of a reservation.
	HoldState = call.HoldState
)

// The states of a reservation.
const (
	HoldOpen      = call.HoldOpen      // its amount is reserved
	HoldCommitted = call.HoldCommitted // it was committed
	HoldReleased  = call.HoldReleased  // it was released
	HoldExpired   = call.HoldExpired   // it has expired, or has ended so long ago that nobody remembers how
)

// All is the amount of a Commit that takes all that is reserved.
const All = call.All

// Reserve takes an amount out of a counter for a time: until it is committed or released,
// and if it is neither, until it expires and is given back by itself. The counter's own value
// is what is available, and does not go below the Floor of the call, or that of the counter's
// policy, or 0: then the error is a *BoundError. A repeat under the same Token returns the
// same reservation, as it is by then. Options are Token, Who, Floor and WantValue.
func (db *DB) Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...WriteOption) (Reservation, error) {
	t, err := call.ReserveTermsOf(opts)
	if err == nil {
		err = checkTerms(&t)
	}
	if err != nil {
		return Reservation{}, err
	}
	r := port.Reserve{Key: key, Who: t.Who, Amount: amount, TTL: ttl, Token: t.Token, Want: t.WantValue}
	if t.HasFloor {
		r.Floor = &t.Floor
	}
	return db.port.Reserve(ctx, r)
}

// Commit takes amount of a reservation for good, from 0 up to what is reserved, or All, and
// makes the rest available again. If it was committed before with the same amount, it returns
// that; ErrEnded is returned if it has ended in another way. The option is WantValue.
func (db *DB) Commit(ctx context.Context, id string, amount int64, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Commit", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Commit(ctx, id, amount, want)
}

// Release makes all that is reserved available again. If it was released before it returns
// that; ErrEnded is returned if it has ended in another way. The option is WantValue.
func (db *DB) Release(ctx context.Context, id string, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Release", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Release(ctx, id, want)
}

// Extend has a reservation expire ttl after now, by the clock of the store, unless it expires
// later anyway. It returns ErrEnded if it has ended. The option is WantValue.
func (db *DB) Extend(ctx context.Context, id string, ttl time.Duration, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Extend", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Extend(ctx, id, ttl, want)
}

// Reservation returns what has become of a reservation, and what its counter has.
func (db *DB) Reservation(ctx context.Context, id string) (Reservation, error) {
	return db.port.Reservation(ctx, id)
}

// Reservations returns open reservations of a counter, in the order of their amounts, and
// what the counter has.
func (db *DB) Reservations(ctx context.Context, key string, o ReservationOptions) (ReservationPage, error) {
	return db.port.Reservations(ctx, key, o)
}
