package client

import (
	"context"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
)

// Top returns a top list: see quipu.DB.Top.
func (db *DB) Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error) {
	if err := checkText("name", name, "key", o.Key); err != nil {
		return call.Top{}, err
	}
	if err := o.Check(); err != nil {
		return call.Top{}, err
	}
	r := &pb.TopRequest{
		Namespace: db.namespace, Name: name, Key: o.Key, K: int32of(o.K), FromMs: protocol.EncodeTime(o.From), ToMs: protocol.EncodeTime(o.To), Trend: o.Trend,
	}
	reply, err := ask(ctx, db, r, db.rpc.Top)
	if err != nil {
		return call.Top{}, err
	}
	return protocol.DecodeTop(reply, name, o), nil
}
