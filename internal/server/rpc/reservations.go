package rpc

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
)

// reservations serves amounts that are taken out of counters for a time.
type reservations struct {
	pb.UnimplementedReservationsServer
	door *Door
}

// Reserve takes an amount out of a counter for a time.
func (s *reservations) Reserve(ctx context.Context, r *pb.ReserveRequest) (*pb.Reservation, error) {
	opts := wanted(r.WantValue)
	if r.Token != nil {
		opts = append(opts, quipu.Token(*r.Token))
	}
	if r.Who != nil {
		opts = append(opts, quipu.Who(*r.Who))
	}
	if r.Floor != nil {
		opts = append(opts, quipu.Floor(*r.Floor))
	}
	return reservationOf(s.door.in(r.Namespace).Reserve(ctx, r.Key, r.Amount, time.Duration(r.TtlNs), opts...))
}

// Commit takes a part of a reservation for good.
func (s *reservations) Commit(ctx context.Context, r *pb.CommitRequest) (*pb.Reservation, error) {
	amount := quipu.All
	if r.Amount != nil {
		if amount = *r.Amount; amount == quipu.All { // It means something here alone.
			amount--
		}
	}
	return reservationOf(s.door.in(r.Namespace).Commit(ctx, r.Id, amount, wanted(r.WantValue)...))
}

// Release gives back all that is reserved.
func (s *reservations) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.Reservation, error) {
	return reservationOf(s.door.in(r.Namespace).Release(ctx, r.Id, wanted(r.WantValue)...))
}

// Extend has a reservation expire later.
func (s *reservations) Extend(ctx context.Context, r *pb.ExtendRequest) (*pb.Reservation, error) {
	return reservationOf(s.door.in(r.Namespace).Extend(ctx, r.Id, time.Duration(r.TtlNs), wanted(r.WantValue)...))
}

// Reservation returns what has become of a reservation.
func (s *reservations) Reservation(ctx context.Context, r *pb.ReservationRequest) (*pb.Reservation, error) {
	return reservationOf(s.door.in(r.Namespace).Reservation(ctx, r.Id))
}

// Reservations returns the open reservations of a counter.
func (s *reservations) Reservations(ctx context.Context, r *pb.ReservationsRequest) (*pb.ReservationsReply, error) {
	taken, err := s.door.budget.Take(ctx, int64(min(max(r.Limit, 0), call.ReservationsMax))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer s.door.budget.Give(taken)
	p, err := s.door.in(r.Namespace).Reservations(ctx, r.Key, quipu.ReservationOptions{Who: r.Who, Limit: int(r.Limit), Cursor: r.Cursor})
	if err != nil {
		return nil, err
	}
	reply := &pb.ReservationsReply{Next: p.Next, Stock: encodeStock(&p.Stock), Reservations: make([]*pb.Reservation, len(p.Reservations))}
	for i := range p.Reservations {
		reply.Reservations[i] = encodeReservation(&p.Reservations[i])
	}
	return reply, nil
}

func wanted(value bool) (opts []quipu.WriteOption) {
	if value {
		opts = append(opts, quipu.WantValue())
	}
	return opts
}

func reservationOf(r quipu.Reservation, err error) (*pb.Reservation, error) {
	if err != nil {
		return nil, err
	}
	return encodeReservation(&r), nil
}

func encodeReservation(r *quipu.Reservation) *pb.Reservation {
	out := &pb.Reservation{
		Id: r.ID, Key: r.Key, Amount: r.Amount, Who: r.Who, State: pb.Reservation_State(r.State), Committed: r.Committed,
		Replayed: r.Replayed, Durability: pb.Durability(r.Durability),
	}
	if !r.ExpiresAt.IsZero() {
		out.ExpiresAtUs = r.ExpiresAt.UnixMicro()
	}
	if r.HasStock {
		out.Stock = encodeStock(&r.Stock)
	}
	return out
}

func encodeStock(s *quipu.Stock) *pb.Stock {
	return &pb.Stock{Value: s.Value, Reserved: s.Reserved, Available: s.Available, Open: s.Open, Exact: s.Exact}
}
