package rpc

import (
	"context"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
)

// Top returns a top list.
func (d *Door) Top(ctx context.Context, r *pb.TopRequest) (*pb.TopReply, error) {
	taken, err := d.budget.Take(ctx, definition.TopMax*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	t, err := d.in(r.Namespace).Top(ctx, r.Name, call.TopOptions{
		Key: r.Key, K: int(r.K), From: protocol.DecodeTime(r.FromMs), To: protocol.DecodeTime(r.ToMs), Trend: r.Trend,
	})
	if err != nil {
		return nil, err
	}
	return protocol.EncodeTop(&t), nil
}
