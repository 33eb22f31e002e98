package client

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Allow checks the rate limits of a name for a client: see quipu.DB.Allow.
// After an attempt that may have been counted, the client sends it again only
// if it has a token or uses nothing.
func (db *DB) Allow(ctx context.Context, name, who string, cost int64, o call.AllowOptions) (call.Decision, error) {
	if err := checkText("name", name, "who", who, "token", o.Token); err != nil {
		return call.Decision{}, err
	}
	if err := o.Check(); err != nil { // what is not valid may have no words
		return call.Decision{}, err
	}
	r := &pb.AllowRequest{
		Namespace: db.namespace, Name: name, Who: who, Cost: &cost, Limits: protocol.EncodeLimits(o.Limits),
		Burn: o.Burn, DryRun: o.DryRun, Token: o.Token,
	}
	r.Away, r.AwayServers = protocol.EncodeAway(o.Away)
	uses := !o.DryRun && cost != 0
	var reply *pb.Decision
	err := db.do(ctx, manner{write: uses, repeatable: !uses || o.Token != ""}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.limits.Allow(ctx, r, o...)
		return err
	})
	if err != nil {
		return call.Decision{}, err
	}
	d, err := protocol.DecodeDecision(reply)
	if err != nil {
		return call.Decision{}, store.Errorf(store.KindOther, "the server answered with limits that this client can't read: %w", err)
	}
	return d, nil
}

// ResetLimit makes a limit forget what a client has used: see
// quipu.DB.ResetLimit.
func (db *DB) ResetLimit(ctx context.Context, name, who string) error {
	if err := checkText("name", name, "who", who); err != nil {
		return err
	}
	r := &pb.ResetLimitRequest{Namespace: db.namespace, Name: name, Who: who}
	return db.do(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) error {
		_, err := db.limits.ResetLimit(ctx, r, o...)
		return err
	})
}
