package rpc

import (
	"context"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Range returns what was counted in a stretch of time.
func (d *Door) Range(ctx context.Context, r *pb.RangeRequest) (*pb.Series, error) {
	o := quipu.RangeOptions{From: protocol.DecodeTime(r.FromMs), To: protocol.DecodeTime(r.ToMs), Zone: r.Zone, Prefix: r.Prefix}
	if r.Step != "" {
		var err error
		if o.Step, err = definition.ParseWidth(r.Step); err != nil {
			return nil, store.Errorf(store.KindInvalid, "step: %w", err)
		}
	}
	taken, err := d.budget.Take(ctx, call.PointsDefault*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	s, err := d.in(r.Namespace).Range(ctx, r.Key, o)
	if err != nil {
		return nil, err
	}
	reply := &pb.Series{
		Step: s.Step.String(), Zone: s.Zone, Sum: s.Sum, Exact: s.Exact, Complete: s.Complete,
		CompleteFromMs: protocol.EncodeTime(s.CompleteFrom), AsOfNs: s.AsOf.UnixNano(), Points: make([]*pb.Point, len(s.Points)),
	}
	for i, p := range s.Points {
		reply.Points[i] = &pb.Point{FromMs: p.From.UnixMilli(), ToMs: p.To.UnixMilli(), Value: p.Value, Exact: p.Exact, Complete: p.Complete}
	}
	return reply, nil
}

// By returns what was counted for each value of a dimension.
func (d *Door) By(ctx context.Context, r *pb.ByRequest) (*pb.Breakdown, error) {
	taken, err := d.budget.Take(ctx, call.PointsDefault*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	b, err := d.in(r.Namespace).By(ctx, r.Key, r.Dimension, quipu.ByOptions{From: protocol.DecodeTime(r.FromMs), To: protocol.DecodeTime(r.ToMs), Top: int(r.Top)})
	if err != nil {
		return nil, err
	}
	reply := &pb.Breakdown{
		Other: b.Other, Sum: b.Sum, Outside: b.Outside, Exact: b.Exact, Complete: b.Complete,
		CompleteFromMs: protocol.EncodeTime(b.CompleteFrom), FromMs: protocol.EncodeTime(b.From), ToMs: protocol.EncodeTime(b.To), AsOfNs: b.AsOf.UnixNano(),
		Values: make([]*pb.Breakdown_Value, len(b.Values)),
	}
	for i, v := range b.Values {
		values := v.Values
		if values == nil {
			values = []string{v.Value}
		}
		reply.Values[i] = &pb.Breakdown_Value{Values: values, Count: v.Count}
	}
	return reply, nil
}

// Ledger returns a page of a counter's ledger.
func (d *Door) Ledger(ctx context.Context, r *pb.LedgerRequest) (*pb.LedgerReply, error) {
	taken, err := d.budget.Take(ctx, int64(min(max(r.Limit, 0), call.LedgerMax))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer d.budget.Give(taken)
	p, err := d.in(r.Namespace).Ledger(ctx, r.Key, quipu.LedgerOptions{
		Limit: int(r.Limit), Cursor: r.Cursor, Actor: r.Actor, Token: r.Token, From: protocol.DecodeTime(r.FromMs), To: protocol.DecodeTime(r.ToMs),
	})
	if err != nil {
		return nil, err
	}
	reply := &pb.LedgerReply{Next: p.Next, CompleteFromMs: protocol.EncodeTime(p.CompleteFrom), Lines: make([]*pb.Line, len(p.Lines))}
	for i := range p.Lines {
		reply.Lines[i] = encodeLine(&p.Lines[i])
	}
	return reply, nil
}

func encodeLine(l *quipu.Line) *pb.Line {
	out := &pb.Line{
		Position: l.Position, Kind: l.Kind, AtMs: l.At.UnixMilli(), RecordedMs: l.Recorded.UnixMilli(),
		Token: l.Token, Actor: l.Actor, Reason: l.Reason, Source: l.Source, Erased: l.Erased, Undoes: l.Undoes, Undone: l.Undone,
		Dims: protocol.EncodeDims(l.Dims),
	}
	if l.DeltaKnown {
		out.Delta = &l.Delta
	}
	if l.ValueKnown {
		out.Value = &l.Value
	}
	return out
}

// Erase removes a name from the ledgers and the reactions of a namespace.
func (d *Door) Erase(ctx context.Context, r *pb.EraseRequest) (*pb.EraseReply, error) {
	e, err := d.in(r.Namespace).Erase(ctx, r.Who, r.Cursor)
	if err != nil {
		return nil, err
	}
	return &pb.EraseReply{Counters: e.Counters, Lines: e.Lines, Looked: e.Looked, Reactions: e.Reactions, Windows: e.Windows, Complete: e.Complete, Next: e.Next}, nil
}
