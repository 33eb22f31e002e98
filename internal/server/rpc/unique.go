package rpc

import (
	"context"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
)

// Uniques returns how many different users a counter had.
func (d *Door) Uniques(ctx context.Context, r *pb.UniquesRequest) (*pb.UniquesReply, error) {
	taken, err := d.budget.Take(ctx, call.PointsDefault*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	u, err := d.in(r.Namespace).Uniques(ctx, r.Key, quipu.UniqueOptions{
		From: protocol.DecodeTime(r.FromMs), To: protocol.DecodeTime(r.ToMs), By: r.By, Top: int(r.Top), With: r.With,
	})
	if err != nil {
		return nil, err
	}
	return protocol.EncodeUniques(&u), nil
}

// AddUniques takes users into those of a counter.
func (d *Door) AddUniques(ctx context.Context, r *pb.AddUniquesRequest) (*pb.AddUniquesReply, error) {
	changed, err := d.in(r.Namespace).AddUniques(ctx, r.Key, r.Users...)
	if err != nil {
		return nil, err
	}
	return &pb.AddUniquesReply{Changed: changed}, nil
}
