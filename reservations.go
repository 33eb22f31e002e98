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

	// ReservationOptions select open reservations of a counter. The zero value is the
	// first page of all.
	ReservationOptions = call.ReservationOptions

	// Stock says how much of a counter is reserved and how much is available.
	Stock = call.Stock

	// HoldState is the state of a reservation.
	HoldState = call.HoldState
)

// The states of a reservation.
const (
	HoldOpen      = call.HoldOpen      // its amount is reserved
	HoldCommitted = call.HoldCommitted // it was committed
	HoldReleased  = call.HoldReleased  // it was released
	HoldExpired   = call.HoldExpired   // it has expired, or has ended so long ago that nobody remembers how
)

// All is the amount that makes Commit take everything that is reserved.
const All = call.All

// Reserve takes an amount out of a counter for a limited time. Commit takes it
// for good and Release gives it back. If neither happens within ttl, the
// reservation expires and the amount is given back. The value of the counter is
// what is available. It does not go below the Floor of the call, or of the
// counter's definition, or 0: then the error is a *BoundError. A repeat with
// the same Token returns the same reservation in its present state. The options
// are Token, Who, Floor and WantValue.
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

// Commit takes amount of a reservation for good and gives back the rest. The
// amount is from 0 to what is reserved, or All. If the reservation was
// committed before with the same amount, Commit returns that. If it ended in
// another way, it returns ErrEnded. The only option is WantValue.
func (db *DB) Commit(ctx context.Context, id string, amount int64, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Commit", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Commit(ctx, id, amount, want)
}

// Release gives back all that is reserved. If the reservation was released
// before, Release returns that. If it ended in another way, it returns
// ErrEnded. The only option is WantValue.
func (db *DB) Release(ctx context.Context, id string, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Release", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Release(ctx, id, want)
}

// Extend makes a reservation expire ttl from now, by the clock of the store,
// unless it expires later anyway. If the reservation has ended, it returns
// ErrEnded. The only option is WantValue.
func (db *DB) Extend(ctx context.Context, id string, ttl time.Duration, opts ...WriteOption) (Reservation, error) {
	want, err := call.WantsValue("Extend", opts)
	if err != nil {
		return Reservation{}, err
	}
	return db.port.Extend(ctx, id, ttl, want)
}

// Reservation returns the state of a reservation and the stock of its counter.
func (db *DB) Reservation(ctx context.Context, id string) (Reservation, error) {
	return db.port.Reservation(ctx, id)
}

// Reservations returns the open reservations of a counter, in the order of
// their amounts, and its stock.
func (db *DB) Reservations(ctx context.Context, key string, o ReservationOptions) (ReservationPage, error) {
	return db.port.Reservations(ctx, key, o)
}
