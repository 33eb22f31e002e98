package client

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
)

// Uniques returns the number of distinct users of a counter: see
// quipu.DB.Uniques.
func (db *DB) Uniques(ctx context.Context, key string, o call.UniqueOptions) (call.Uniques, error) {
	if err := checkText("key", key, "dimension", o.By, "with", o.With); err != nil {
		return call.Uniques{}, err
	}
	r := &pb.UniquesRequest{
		Namespace: db.namespace, Key: key, FromMs: protocol.EncodeTime(o.From), ToMs: protocol.EncodeTime(o.To), By: o.By, Top: int32of(o.Top), With: o.With,
	}
	reply, err := ask(ctx, db, r, db.rpc.Uniques)
	if err != nil {
		return call.Uniques{}, err
	}
	return protocol.DecodeUniques(reply, key, o), nil
}

// AddUniques adds users to the set of users of a counter: see
// quipu.DB.AddUniques. The client may send it again, which is harmless. After a
// repeat it may report that no user is new although the first attempt added
// them.
func (db *DB) AddUniques(ctx context.Context, key string, users ...string) (changed bool, err error) {
	if err := checkText("key", key); err != nil {
		return false, err
	}
	if err := call.CheckUniques(users); err != nil {
		return false, err
	}
	var reply *pb.AddUniquesReply
	r := &pb.AddUniquesRequest{Namespace: db.namespace, Key: key, Users: users}
	err = db.do(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.AddUniques(ctx, r, o...)
		return err
	})
	return reply.GetChanged(), err
}
