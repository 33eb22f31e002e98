package resp

import (
	"context"
	"strconv"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/duration"
)

// Reservations are Q.RESERVE and what follows it. An id is no key, so what names one has no
// key to be sent by.

func reservationCommands() []*command {
	commands := []*command{
		{name: "Q.RESERVE", arity: -4, flags: flagGrow | writes, keys: oneKey.used("RW access update"), slow: qReserve, since: "1.0.0", about: "Takes an amount out of a counter for a time."},
		{name: "Q.COMMIT", arity: -2, flags: writes, slow: qCommit, since: "1.0.0", about: "Takes what is reserved for good, or a part of it."},
		{name: "Q.RELEASE", arity: 2, flags: writes, slow: qRelease, since: "1.0.0", about: "Gives back what is reserved."},
		{name: "Q.EXTEND", arity: 3, flags: writes, slow: qExtend, since: "1.0.0", about: "Has a reservation expire later."},
		{name: "Q.RESERVATION", arity: 2, flags: reads, slow: qReservation, since: "1.0.0", about: "Returns what has become of a reservation."},
		{name: "Q.RESERVATIONS", arity: -2, flags: flagRead, keys: oneKey.used("RO access"), slow: qReservations, since: "1.0.0", about: "Returns the open reservations of a counter."},
	}
	return grouped("counter", commands)
}

// lifetimeOf reads how long something lasts: seconds, or a duration such as 30s or 15m.
func lifetimeOf(arg []byte) (time.Duration, error) {
	if n, err := strconv.ParseInt(string(arg), 10, 64); err == nil {
		if n < 1 || n > int64((1<<63-1)/time.Second) {
			return 0, wireError("ERR invalid expire time")
		}
		return time.Duration(n) * time.Second, nil
	}
	d, err := duration.Parse(string(arg))
	if err != nil {
		return 0, wireError("ERR ttl: want seconds, or a duration such as 30s or 15m")
	}
	return d, nil
}

func qReserve(ctx context.Context, s *session, args [][]byte) error {
	amount, err := integer(args[2])
	if err != nil {
		return err
	}
	ttl, err := lifetimeOf(args[3])
	if err != nil {
		return err
	}
	opts := []quipu.WriteOption{quipu.WantValue()}
	var id, who, floor bool
	for i := 4; i < len(args); i++ {
		a, last := args[i], i+1 == len(args)
		switch {
		case is(a, "ID") && !last && !id:
			i++
			id, opts = true, append(opts, quipu.Token(string(args[i])))
		case is(a, "WHO") && !last && !who:
			i++
			who, opts = true, append(opts, quipu.Who(string(args[i])))
		case is(a, "FLOOR") && !last && !floor:
			i++
			n, err := integer(args[i])
			if err != nil {
				return err
			}
			floor, opts = true, append(opts, quipu.Floor(n))
		default:
			return errSyntax
		}
	}
	return s.reserved(ctx, func(ctx context.Context) (quipu.Reservation, error) {
		return s.db.Reserve(ctx, string(args[1]), amount, ttl, opts...)
	})
}

func qCommit(ctx context.Context, s *session, args [][]byte) error {
	amount := quipu.All
	switch len(args) {
	case 2:
	case 3:
		var err error
		if amount, err = integer(args[2]); err != nil {
			return err
		}
		if amount < 0 {
			return wireError("ERR amount: want 0 or more")
		}
	default:
		return errSyntax
	}
	return s.reserved(ctx, func(ctx context.Context) (quipu.Reservation, error) {
		return s.db.Commit(ctx, string(args[1]), amount, quipu.WantValue())
	})
}

func qRelease(ctx context.Context, s *session, args [][]byte) error {
	return s.reserved(ctx, func(ctx context.Context) (quipu.Reservation, error) {
		return s.db.Release(ctx, string(args[1]), quipu.WantValue())
	})
}

func qExtend(ctx context.Context, s *session, args [][]byte) error {
	ttl, err := lifetimeOf(args[2])
	if err != nil {
		return err
	}
	return s.reserved(ctx, func(ctx context.Context) (quipu.Reservation, error) {
		return s.db.Extend(ctx, string(args[1]), ttl, quipu.WantValue())
	})
}

func qReservation(ctx context.Context, s *session, args [][]byte) error {
	return s.reserved(ctx, func(ctx context.Context) (quipu.Reservation, error) {
		return s.db.Reservation(ctx, string(args[1]))
	})
}

// reserved replies what became of a reservation, as a map: itself, and what its counter has.
func (s *session) reserved(ctx context.Context, do func(context.Context) (quipu.Reservation, error)) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	r, err := do(ctx)
	if err != nil {
		return err
	}
	s.fields(11)
	s.reservation(&r)
	s.stock(&r.Stock)
	return nil
}

// reservation replies the first six fields of a reservation.
func (s *session) reservation(r *quipu.Reservation) {
	s.text("id")
	s.text(r.ID)
	s.text("amount")
	s.integer(r.Amount)
	s.text("who")
	s.text(r.Who)
	s.text("state")
	s.text(r.State.String())
	s.text("committed")
	s.known64(r.Committed, r.State == quipu.HoldCommitted)
	s.text("expires_at")
	s.known64(r.ExpiresAt.UnixMilli(), !r.ExpiresAt.IsZero())
}

// stock replies the five fields of what a counter has.
func (s *session) stock(of *quipu.Stock) {
	s.text("value")
	s.integer(of.Value)
	s.text("reserved")
	s.integer(of.Reserved)
	s.text("available")
	s.integer(of.Available)
	s.text("open")
	s.integer(of.Open)
	s.text("exact")
	s.boolean(of.Exact)
}

// qReservations replies a map: what the counter has, the reservations, and the cursor of the
// next page.
func qReservations(ctx context.Context, s *session, args [][]byte) error {
	var o quipu.ReservationOptions
	for i := 2; i < len(args); i++ {
		a, last := args[i], i+1 == len(args)
		switch {
		case is(a, "WHO") && !last && o.Who == "":
			i++
			o.Who = string(args[i])
		case is(a, "CURSOR") && !last && o.Cursor == "":
			i++
			o.Cursor = string(args[i])
		case is(a, "COUNT") && !last && o.Limit == 0:
			i++
			n, err := integer(args[i])
			if err != nil {
				return err
			}
			if n < 1 || n > quipu.ReservationsMax {
				return errSyntax
			}
			o.Limit = int(n)
		default:
			return errSyntax
		}
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	p, err := s.db.Reservations(ctx, string(args[1]), o)
	if err != nil {
		return err
	}
	s.fields(7)
	s.stock(&p.Stock)
	s.text("reservations")
	s.array(len(p.Reservations))
	for i := range p.Reservations {
		s.fields(6)
		s.reservation(&p.Reservations[i])
	}
	s.text("next")
	s.text(p.Next)
	return nil
}
