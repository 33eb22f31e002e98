package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

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
	// stallMax is how long the taker of a backup may take nothing.
	stallMax = 30 * time.Second
	// pieceBytes is how much of a backup goes into one message.
	pieceBytes = 64 << 10
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

// GetBatch reads many counters. Clients ask for none to find out whether they
// are let in.
func (d *Door) GetBatch(ctx context.Context, r *pb.GetBatchRequest) (*pb.GetBatchReply, error) {
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

// Sum returns what counters add up to.
func (d *Door) Sum(ctx context.Context, r *pb.SumRequest) (*pb.SumReply, error) {
	taken, err := d.budget.Take(ctx, quipu.SumPage*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	s, err := d.in(r.Namespace).Sum(ctx, r.Prefix, r.Cursor)
	if err != nil {
		return nil, err
	}
	return &pb.SumReply{Value: s.Value, Keys: s.Keys, Complete: s.Complete, Next: s.Next, Exact: s.Exact, AsOfNs: s.AsOf.UnixNano()}, nil
}

// Lookup reports what is known of a token.
func (d *Door) Lookup(ctx context.Context, r *pb.TokenRequest) (*pb.Fate, error) {
	return fateOf(d.in(r.Namespace).Lookup(ctx, r.Key, r.Token))
}

// Settle decides a token for good.
func (d *Door) Settle(ctx context.Context, r *pb.TokenRequest) (*pb.Fate, error) {
	return fateOf(d.in(r.Namespace).Settle(ctx, r.Key, r.Token))
}

// alone takes the one place for long work.
func (d *Door) alone() error {
	select {
	case d.long <- struct{}{}:
		return nil
	default:
		return store.Errorf(store.KindUnavailable, "a backup or verify is already running")
	}
}

func (d *Door) leave() { <-d.long }

// Backup sends a copy of everything, and gives up on a taker that stalls.
func (d *Door) Backup(_ *pb.BackupRequest, s grpc.ServerStreamingServer[pb.BackupReply]) error {
	if err := d.alone(); err != nil {
		return err
	}
	sent := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() { // the end of this call, not of the backup, is what unblocks a Send
		defer d.leave()
		done <- d.db.Backup(s.Context(), pieces{s, sent})
	}()
	stalled := time.NewTimer(stallMax)
	defer stalled.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-sent:
			stalled.Reset(stallMax)
		case <-stalled.C:
			return store.Errorf(store.KindUnavailable, "the client stopped reading the backup")
		}
	}
}

// pieces writes a backup to a stream, and tells of each piece that went out.
type pieces struct {
	stream grpc.ServerStreamingServer[pb.BackupReply]
	sent   chan<- struct{}
}

// Write sends p in pieces.
func (p pieces) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, pieceBytes) {
		if err := p.stream.Send(&pb.BackupReply{Data: piece}); err != nil {
			return n, err
		}
		n += len(piece)
		select {
		case p.sent <- struct{}{}:
		default:
		}
	}
	return n, nil
}

// Verify checks the store.
func (d *Door) Verify(ctx context.Context, _ *pb.VerifyRequest) (*pb.VerifyReply, error) {
	if err := d.alone(); err != nil {
		return nil, err
	}
	defer d.leave()
	ctx, cancel := context.WithTimeout(ctx, verifyMax)
	defer cancel()
	a, err := d.db.Verify(ctx)
	if err != nil {
		return nil, err
	}
	reply := &pb.VerifyReply{Cells: a.Cells, Tokens: a.Tokens, Deltas: a.Deltas, Unproved: a.Unproved}
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
	if o.AtMs != nil {
		opts = append(opts, quipu.AsOf(time.UnixMilli(*o.AtMs)))
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
	if !c.ExpiresAt.IsZero() {
		out.ExpiresAtMs = c.ExpiresAt.UnixMilli()
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
	out := &pb.Fate{State: pb.Fate_State(f.State), Reacted: f.Reacted, Choice: f.Choice, Before: f.Before}
	if !f.At.IsZero() {
		out.AtMs = f.At.UnixMilli()
	}
	if f.State == quipu.TokenApplied {
		out.Receipt = encodeReceipt(&f.Receipt)
	}
	return out, nil
}
