package rpc

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	pb "github.com/quipudb/quipu/quipupb"
)

// Adjust corrects a counter.
func (d *Door) Adjust(ctx context.Context, r *pb.AdjustRequest) (*pb.Receipt, error) {
	opts := factOptions(writeOptions(r.Options), r.AtMs, r.Who, r.Dims)
	return receiptOf(d.in(r.Namespace).Adjust(ctx, r.Key, r.Delta, correction(r.Correction), opts...))
}

// Undo takes back a write.
func (d *Door) Undo(ctx context.Context, r *pb.UndoRequest) (*pb.Receipt, error) {
	return receiptOf(d.in(r.Namespace).Undo(ctx, r.Key, r.Token, correction(r.Correction)))
}

// Recount repairs what the views of a counter do not add up to.
func (d *Door) Recount(ctx context.Context, r *pb.RecountRequest) (*pb.RecountReply, error) {
	n, err := d.in(r.Namespace).Recount(ctx, r.Key, correction(r.Correction))
	if err != nil {
		return nil, err
	}
	return &pb.RecountReply{Before: n.Before, After: n.After, Repaired: n.Repaired, Left: n.Left}, nil
}

func correction(c *pb.Correction) quipu.Correction {
	return quipu.Correction{Reason: c.GetReason(), Actor: c.GetActor()}
}

// factOptions adds to options what an event says besides its delta.
func factOptions(opts []quipu.WriteOption, atMS *int64, who *string, dims map[string]string) []quipu.WriteOption {
	if atMS != nil {
		opts = append(opts, quipu.At(time.UnixMilli(*atMS)))
	}
	if who != nil {
		opts = append(opts, quipu.Who(*who))
	}
	for name, value := range dims {
		opts = append(opts, quipu.Dim(name, value))
	}
	return opts
}
