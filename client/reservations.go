package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Reserve takes an amount out of a counter for a limited time: see
// quipu.DB.Reserve.
func (db *DB) Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...call.WriteOption) (call.Reservation, error) {
	t, err := call.ReserveTermsOf(opts)
	if err == nil {
		err = checkText("key", key, "token", t.Token, "who", t.Who)
	}
	if err != nil {
		return call.Reservation{}, err
	}
	r := &pb.ReserveRequest{Namespace: db.namespace, Key: key, Amount: amount, TtlNs: int64(ttl), WantValue: t.WantValue}
	if t.HasToken {
		r.Token = &t.Token
	}
	if t.HasWho {
		r.Who = &t.Who
	}
	if t.HasFloor {
		r.Floor = &t.Floor
	}
	out, err := db.reservation(ctx, manner{write: true, repeatable: t.HasToken}, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reservation, error) {
		return db.reserve.Reserve(ctx, r, o...)
	})
	if e, ok := errors.AsType[*call.BoundError](err); ok {
		err = call.NotEnough(e)
	}
	return out, err
}

// Commit takes a part of a reservation for good: see quipu.DB.Commit.
func (db *DB) Commit(ctx context.Context, id string, amount int64, opts ...call.WriteOption) (call.Reservation, error) {
	want, err := call.WantsValue("Commit", opts)
	if err == nil {
		err = checkText("id", id)
	}
	if err != nil {
		return call.Reservation{}, err
	}
	r := &pb.CommitRequest{Namespace: db.namespace, Id: id, WantValue: want}
	if amount != call.All {
		r.Amount = &amount
	}
	return db.reservation(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reservation, error) {
		return db.reserve.Commit(ctx, r, o...)
	})
}

// Release gives back all that is reserved: see quipu.DB.Release.
func (db *DB) Release(ctx context.Context, id string, opts ...call.WriteOption) (call.Reservation, error) {
	want, err := call.WantsValue("Release", opts)
	if err == nil {
		err = checkText("id", id)
	}
	if err != nil {
		return call.Reservation{}, err
	}
	r := &pb.ReleaseRequest{Namespace: db.namespace, Id: id, WantValue: want}
	return db.reservation(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reservation, error) {
		return db.reserve.Release(ctx, r, o...)
	})
}

// Extend makes a reservation expire later: see quipu.DB.Extend.
func (db *DB) Extend(ctx context.Context, id string, ttl time.Duration, opts ...call.WriteOption) (call.Reservation, error) {
	want, err := call.WantsValue("Extend", opts)
	if err == nil {
		err = checkText("id", id)
	}
	if err != nil {
		return call.Reservation{}, err
	}
	r := &pb.ExtendRequest{Namespace: db.namespace, Id: id, TtlNs: int64(ttl), WantValue: want}
	return db.reservation(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reservation, error) {
		return db.reserve.Extend(ctx, r, o...)
	})
}

// Reservation returns the state of a reservation: see quipu.DB.Reservation.
func (db *DB) Reservation(ctx context.Context, id string) (call.Reservation, error) {
	if err := checkText("id", id); err != nil {
		return call.Reservation{}, err
	}
	r := &pb.ReservationRequest{Namespace: db.namespace, Id: id}
	return db.reservation(ctx, manner{repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reservation, error) {
		return db.reserve.Reservation(ctx, r, o...)
	})
}

// Reservations returns open reservations of a counter: see quipu.DB.Reservations.
func (db *DB) Reservations(ctx context.Context, key string, o call.ReservationOptions) (call.ReservationPage, error) {
	if err := checkText("key", key, "who", o.Who, "cursor", o.Cursor); err != nil {
		return call.ReservationPage{}, err
	}
	r := &pb.ReservationsRequest{Namespace: db.namespace, Key: key, Who: o.Who, Limit: int32of(o.Limit), Cursor: o.Cursor}
	reply, err := ask(ctx, db, r, db.reserve.Reservations)
	if err != nil {
		return call.ReservationPage{}, err
	}
	p := call.ReservationPage{Key: key, Stock: decodeStock(reply.Stock), Next: reply.Next, Reservations: make([]call.Reservation, len(reply.Reservations))}
	for i, r := range reply.Reservations {
		p.Reservations[i] = db.decodeReservation(r)
	}
	return p, nil
}

// reservation makes a call that answers with one.
func (db *DB) reservation(ctx context.Context, c manner, send func(context.Context, ...grpc.CallOption) (*pb.Reservation, error)) (call.Reservation, error) {
	var reply *pb.Reservation
	err := db.do(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = send(ctx, o...)
		return err
	})
	if err != nil {
		return call.Reservation{}, err
	}
	return db.decodeReservation(reply), nil
}

func (db *DB) decodeReservation(r *pb.Reservation) call.Reservation {
	out := call.Reservation{
		ID: r.Id, Namespace: db.namespace, Key: r.Key, Amount: r.Amount, Who: r.Who, State: call.HoldState(r.State), Committed: r.Committed,
		HasStock: r.Stock != nil, Stock: decodeStock(r.Stock), Replayed: r.Replayed, Durability: store.Durability(r.Durability),
	}
	if r.ExpiresAtUs != 0 {
		out.ExpiresAt = time.UnixMicro(r.ExpiresAtUs)
	}
	return out
}

func decodeStock(s *pb.Stock) call.Stock {
	return call.Stock{Value: s.GetValue(), Reserved: s.GetReserved(), Available: s.GetAvailable(), Open: s.GetOpen(), Exact: s.GetExact()}
}
