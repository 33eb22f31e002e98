package rpc

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

const (
	// entryBytes is what a counter of a batch or a list takes, decoded and in the
	// reply.
	entryBytes = 512
	// verifyMax is how long a verify may take.
	verifyMax = 30 * time.Minute
)

// Get reads a counter.
func (d *Door) Get(ctx context.Context, r *pb.GetRequest) (*pb.Count, error) {
	c, err := d.in(r.Namespace).Read(ctx, r.Key, readOptions(r.Options)...)
	if err != nil {
		return nil, err
	}
	c.Key = "" // the caller knows
	return encodeCount(&c), nil
}

// GetBatch reads many counters.
func (d *Door) GetBatch(ctx context.Context, r *pb.GetBatchRequest) (*pb.GetBatchReply, error) {
	taken, err := d.budget.Take(ctx, int64(len(r.Keys))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	counts, err := d.in(r.Namespace).ReadBatch(ctx, r.Keys, readOptions(r.Options)...)
	if err != nil {
		return nil, err
	}
	for i := range counts {
		counts[i].Key = ""
	}
	return &pb.GetBatchReply{Counts: encodeCounts(counts)}, nil
}

// List returns a page of counters.
func (d *Door) List(ctx context.Context, r *pb.ListRequest) (*pb.ListReply, error) {
	taken, err := d.budget.Take(ctx, int64(max(r.Limit, 0))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	p, err := d.in(r.Namespace).List(ctx, r.Prefix, quipu.ListOptions{Limit: int(r.Limit), Cursor: r.Cursor})
	if err != nil {
		return nil, err
	}
	return &pb.ListReply{Counts: encodeCounts(p.Counts), Next: p.Next}, nil
}

// Lookup reports what is known of a token.
func (d *Door) Lookup(ctx context.Context, r *pb.TokenRequest) (*pb.Fate, error) {
	return fateOf(d.in(r.Namespace).Lookup(ctx, r.Key, r.Token))
}

// Settle decides a token for good.
func (d *Door) Settle(ctx context.Context, r *pb.TokenRequest) (*pb.Fate, error) {
	return fateOf(d.in(r.Namespace).Settle(ctx, r.Key, r.Token))
}

// Verify checks the store, one call at a time.
func (d *Door) Verify(ctx context.Context, _ *pb.VerifyRequest) (*pb.VerifyReply, error) {
	select {
	case d.long <- struct{}{}:
		defer func() { <-d.long }()
	default:
		return nil, store.Errorf(store.KindUnavailable, "a verify is already running")
	}
	ctx, cancel := context.WithTimeout(ctx, verifyMax)
	defer cancel()
	a, err := d.db.Verify(ctx)
	if err != nil {
		return nil, err
	}
	reply := &pb.VerifyReply{Cells: a.Cells, Tokens: a.Tokens, Deltas: a.Deltas}
	for _, drift := range a.Drift {
		reply.Drift = append(reply.Drift, &pb.VerifyReply_Drift{What: drift.What, Have: drift.Have, Want: drift.Want})
	}
	return reply, nil
}

func readOptions(o *pb.ReadOptions) []quipu.ReadOption {
	if o == nil {
		return nil
	}
	var opts []quipu.ReadOption
	if o.Exact {
		opts = append(opts, quipu.Exact())
	}
	for _, s := range o.Sessions {
		opts = append(opts, quipu.Session(s))
	}
	if o.MaxStalenessNs != nil {
		opts = append(opts, quipu.MaxStaleness(time.Duration(*o.MaxStalenessNs)))
	}
	if o.MaxError != nil {
		opts = append(opts, quipu.MaxError(*o.MaxError))
	}
	return opts
}

func encodeCounts(counts []quipu.Count) []*pb.Count {
	out := make([]*pb.Count, len(counts))
	for i := range counts {
		out[i] = encodeCount(&counts[i])
	}
	return out
}

func encodeCount(c *quipu.Count) *pb.Count {
	out := &pb.Count{
		Key: c.Key, Value: c.Value, Exact: c.Exact, Complete: c.Complete, Exists: c.Exists,
		AsOfNs: c.AsOf.UnixNano(), StalenessNs: int64(c.Staleness),
		Source: c.Source, Shards: uint32(c.Shards), Version: c.Version,
	}
	if c.Bounded {
		out.Lower, out.Upper = &c.Lower, &c.Upper
	}
	return out
}

func fateOf(f quipu.Fate, err error) (*pb.Fate, error) {
	if err != nil {
		return nil, err
	}
	out := &pb.Fate{State: pb.Fate_State(f.State)}
	if !f.At.IsZero() {
		out.AtMs = f.At.UnixMilli()
	}
	if f.State == quipu.TokenApplied {
		out.Receipt = encodeReceipt(&f.Receipt)
	}
	return out, nil
}
