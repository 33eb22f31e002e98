package rpc

import (
	"context"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// limits serves the limits of a door's DB.
type limits struct {
	pb.UnimplementedLimitsServer
	door *Door
}

// Allow asks limits.
func (l *limits) Allow(ctx context.Context, r *pb.AllowRequest) (*pb.Decision, error) {
	o := quipu.AllowOptions{Burn: r.Burn, DryRun: r.DryRun, Token: r.Token}
	var err error
	if o.Limits, err = protocol.DecodeLimits(r.Limits); err == nil {
		o.Away, err = protocol.DecodeAway(r.Away, r.AwayServers)
	}
	if err != nil {
		return nil, store.Errorf(store.KindInvalid, "%w", err)
	}
	cost := int64(1)
	if r.Cost != nil {
		cost = *r.Cost
	}
	d, err := l.door.in(r.Namespace).Allow(ctx, r.Name, r.Who, cost, o)
	if err != nil {
		return nil, err
	}
	return protocol.EncodeDecision(&d), nil
}

// ResetLimit forgets what a client has used.
func (l *limits) ResetLimit(ctx context.Context, r *pb.ResetLimitRequest) (*pb.ResetLimitReply, error) {
	if err := l.door.in(r.Namespace).ResetLimit(ctx, r.Name, r.Who); err != nil {
		return nil, err
	}
	return &pb.ResetLimitReply{}, nil
}
