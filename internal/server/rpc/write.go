package rpc

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
)

// Add adds to a counter.
func (d *Door) Add(ctx context.Context, r *pb.AddRequest) (*pb.Receipt, error) {
	opts := factOptions(writeOptions(r.Options), r.AtMs, r.Who, r.Dims)
	if r.Floor != nil {
		opts = append(opts, quipu.Floor(*r.Floor))
	}
	if r.Ceiling != nil {
		opts = append(opts, quipu.Ceiling(*r.Ceiling))
	}
	if r.Saturate {
		opts = append(opts, quipu.Saturate())
	}
	if r.TtlNs != nil {
		opts = append(opts, quipu.TTL(time.Duration(*r.TtlNs)))
	}
	return receiptOf(d.in(r.Namespace).Add(ctx, r.Key, r.Delta, opts...))
}

// Set assigns to a counter.
func (d *Door) Set(ctx context.Context, r *pb.SetRequest) (*pb.Receipt, error) {
	return receiptOf(d.in(r.Namespace).Set(ctx, r.Key, r.Value, assignOptions(r.Options, r.Correction)...))
}

// Reset sets a counter to zero.
func (d *Door) Reset(ctx context.Context, r *pb.ResetRequest) (*pb.Receipt, error) {
	return receiptOf(d.in(r.Namespace).Reset(ctx, r.Key, assignOptions(r.Options, r.Correction)...))
}

// Delete makes a counter not exist.
func (d *Door) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.Receipt, error) {
	return receiptOf(d.in(r.Namespace).Delete(ctx, r.Key, assignOptions(r.Options, r.Correction)...))
}

// AddBatch adds many events, each by itself.
func (d *Door) AddBatch(ctx context.Context, r *pb.AddBatchRequest) (*pb.AddBatchReply, error) {
	events := make([]quipu.Event, len(r.Events))
	for i, e := range r.Events {
		events[i] = quipu.Event{
			Key: e.Key, Delta: e.Delta, Token: e.Token, Who: e.Who, WantValue: e.WantValue,
			Floor: e.Floor, Ceiling: e.Ceiling, Saturate: e.Saturate, TTL: time.Duration(e.GetTtlNs()),
			At: protocol.DecodeTime(e.AtMs), Dims: protocol.DecodeDims(e.Dims),
		}
	}
	receipts, err := d.in(r.Namespace).AddBatch(ctx, events)
	if err != nil {
		return nil, err
	}
	reply := &pb.AddBatchReply{Receipts: make([]*pb.Receipt, len(receipts))}
	for i := range receipts {
		if err := receipts[i].Err; err != nil {
			reply.Receipts[i] = &pb.Receipt{Error: d.tell(ctx, pb.Quipu_AddBatch_FullMethodName, err)}
		} else {
			reply.Receipts[i] = encodeReceipt(&receipts[i])
		}
	}
	return reply, nil
}

func writeOptions(o *pb.WriteOptions) []quipu.WriteOption {
	if o == nil {
		return nil
	}
	opts := make([]quipu.WriteOption, 0, 5) // with At and Who of an Add
	if o.Token != nil {
		opts = append(opts, quipu.Token(*o.Token))
	}
	if o.WantValue {
		opts = append(opts, quipu.WantValue())
	}
	if o.IfVersion != nil {
		opts = append(opts, quipu.IfVersion(*o.IfVersion))
	}
	return opts
}

// assignOptions are the options of what is no add.
func assignOptions(o *pb.WriteOptions, c *pb.Correction) []quipu.WriteOption {
	opts := writeOptions(o)
	if c != nil {
		opts = append(opts, quipu.Because(correction(c)))
	}
	return opts
}

func receiptOf(r quipu.Receipt, err error) (*pb.Receipt, error) {
	if err != nil {
		return nil, err
	}
	return encodeReceipt(&r), nil
}

func encodeReceipt(r *quipu.Receipt) *pb.Receipt {
	return &pb.Receipt{
		Applied: r.Applied, Value: r.Value, Before: r.Before, HasValue: r.HasValue,
		Replayed: r.Replayed, Version: r.Version, Durability: pb.Durability(r.Durability), Session: r.Session(),
		Late: r.Late, Duplicate: r.Duplicate, DuplicateError: r.DuplicateError,
	}
}
