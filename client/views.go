package client

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Range returns a counter over time: see quipu.DB.Range.
func (db *DB) Range(ctx context.Context, key string, o call.RangeOptions) (call.Series, error) {
	if err := checkText("key", key, "zone", o.Zone); err != nil {
		return call.Series{}, err
	}
	r := &pb.RangeRequest{Namespace: db.namespace, Key: key, Prefix: o.Prefix, FromMs: protocol.EncodeTime(o.From), ToMs: protocol.EncodeTime(o.To), Zone: o.Zone}
	if o.Step != (definition.Width{}) {
		r.Step = o.Step.String()
	}
	reply, err := ask(ctx, db, r, db.rpc.Range)
	if err != nil {
		return call.Series{}, err
	}
	s := call.Series{
		Key: key, Zone: reply.Zone, Points: make([]call.Point, len(reply.Points)), Sum: reply.Sum,
		Exact: reply.Exact, Complete: reply.Complete, CompleteFrom: protocol.DecodeTime(reply.CompleteFromMs), AsOf: time.Unix(0, reply.AsOfNs),
	}
	if s.Step, err = definition.ParseWidth(reply.Step); err != nil {
		return call.Series{}, store.Errorf(store.KindOther, "the server answered a range with a step of %q: %w", reply.Step, err)
	}
	for i, p := range reply.Points {
		s.Points[i] = call.Point{From: time.UnixMilli(p.FromMs), To: time.UnixMilli(p.ToMs), Value: p.Value, Exact: p.Exact, Complete: p.Complete}
	}
	return s, nil
}

// By returns the count of each value of a dimension: see quipu.DB.By.
func (db *DB) By(ctx context.Context, key, dimension string, o call.ByOptions) (call.Breakdown, error) {
	if err := checkText("key", key, "dimension", dimension); err != nil {
		return call.Breakdown{}, err
	}
	r := &pb.ByRequest{
		Namespace: db.namespace, Key: key, Dimension: dimension, FromMs: protocol.EncodeTime(o.From), ToMs: protocol.EncodeTime(o.To), Top: int32of(o.Top),
	}
	reply, err := ask(ctx, db, r, db.rpc.By)
	if err != nil {
		return call.Breakdown{}, err
	}
	b := call.Breakdown{
		Key: key, Dimension: dimension, Values: make([]call.DimensionValue, len(reply.Values)), Other: reply.Other, Sum: reply.Sum,
		Outside: reply.Outside, Exact: reply.Exact, Complete: reply.Complete, CompleteFrom: protocol.DecodeTime(reply.CompleteFromMs),
		From: protocol.DecodeTime(reply.FromMs), To: protocol.DecodeTime(reply.ToMs), AsOf: time.Unix(0, reply.AsOfNs),
	}
	for i, v := range reply.Values {
		b.Values[i].Count = v.Count
		if len(v.Values) == 1 {
			b.Values[i].Value = v.Values[0]
		} else {
			b.Values[i].Values = v.Values
		}
	}
	return b, nil
}

// Ledger returns a page of a counter's ledger: see quipu.DB.Ledger.
func (db *DB) Ledger(ctx context.Context, key string, o call.LedgerOptions) (call.LedgerPage, error) {
	if err := checkText("key", key, "cursor", o.Cursor, "actor", o.Actor, "token", o.Token); err != nil {
		return call.LedgerPage{}, err
	}
	r := &pb.LedgerRequest{
		Namespace: db.namespace, Key: key, Limit: int32of(o.Limit), Cursor: o.Cursor, Actor: o.Actor, Token: o.Token,
		FromMs: protocol.EncodeTime(o.From), ToMs: protocol.EncodeTime(o.To),
	}
	reply, err := ask(ctx, db, r, db.rpc.Ledger)
	if err != nil {
		return call.LedgerPage{}, err
	}
	p := call.LedgerPage{Next: reply.Next, CompleteFrom: protocol.DecodeTime(reply.CompleteFromMs), Lines: make([]call.Line, len(reply.Lines))}
	for i, l := range reply.Lines {
		p.Lines[i] = call.Line{
			Position: l.Position, Kind: l.Kind, Delta: l.GetDelta(), DeltaKnown: l.Delta != nil, Value: l.GetValue(), ValueKnown: l.Value != nil,
			At: time.UnixMilli(l.AtMs), Recorded: time.UnixMilli(l.RecordedMs), Token: l.Token, Actor: l.Actor, Reason: l.Reason, Source: l.Source,
			Erased: l.Erased, Undoes: l.Undoes, Undone: l.Undone, Dims: protocol.DecodeDims(l.Dims),
		}
	}
	return p, nil
}

// Erase removes a name from the ledgers and the reactions of the namespace: see quipu.DB.Erase.
func (db *DB) Erase(ctx context.Context, who, cursor string) (call.Erasure, error) {
	if err := checkText("who", who, "cursor", cursor); err != nil {
		return call.Erasure{}, err
	}
	r := &pb.EraseRequest{Namespace: db.namespace, Who: who, Cursor: cursor}
	var reply *pb.EraseReply
	err := db.do(ctx, manner{write: true, repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.Erase(ctx, r, o...)
		return err
	})
	if err != nil {
		return call.Erasure{}, err
	}
	return call.Erasure{
		Counters: reply.Counters, Lines: reply.Lines, Looked: reply.Looked, Reactions: reply.Reactions, Windows: reply.Windows,
		Complete: reply.Complete, Next: reply.Next,
	}, nil
}

// int32of returns n as it is sent. The server refuses values that are cut off.
func int32of(n int) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) }
