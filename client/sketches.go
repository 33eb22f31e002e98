package client

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// MakeSketch makes an absent key a sketch: see quipu.DB.MakeSketch. It may be sent again, and then it may say that the key
// held the sketch already though the first attempt has made it.
func (db *DB) MakeSketch(ctx context.Context, key string, shape call.Shape, opts ...call.WriteOption) (made bool, err error) {
	t, err := call.SketchTermsOf(opts, false)
	if err == nil {
		err = checkText("key", key, "kind", string(shape.Kind))
	}
	if err != nil {
		return false, err
	}
	r := &pb.MakeSketchRequest{Namespace: db.namespace, Key: key, Shape: protocol.EncodeShape(&shape), TtlNs: lifetime(t)}
	reply, err := change(ctx, db, true, r, db.sketch.MakeSketch)
	return reply.GetMade(), err
}

// AddItems adds items to the sketch that a key holds: see quipu.DB.AddItems.
func (db *DB) AddItems(ctx context.Context, key string, items []call.Item, opts ...call.WriteOption) (call.Addition, error) {
	t, err := db.sketchTerms(key, opts)
	if err == nil {
		err = call.CheckItems(items)
	}
	if err != nil {
		return call.Addition{}, err
	}
	r := &pb.AddItemsRequest{Namespace: db.namespace, Key: key, Items: make([]*pb.AddItemsRequest_Item, len(items)), Token: tokenOf(t), TtlNs: lifetime(t)}
	for i := range items {
		r.Items[i] = &pb.AddItemsRequest_Item{Item: items[i].Item, N: items[i].N}
	}
	reply, err := change(ctx, db, t.Token != "", r, db.sketch.AddItems)
	if err != nil {
		return call.Addition{}, err
	}
	return call.Addition{
		Key: key, Kind: call.SketchKind(reply.Kind), Items: protocol.DecodeSketchItems(reply.Items), Confidence: reply.Confidence,
		Replayed: reply.Replayed, Durability: store.Durability(reply.Durability),
	}, nil
}

// AskItems returns what the sketch that a key holds knows of items: see quipu.DB.AskItems.
func (db *DB) AskItems(ctx context.Context, key string, items ...string) (call.Asked, error) {
	err := checkText("key", key)
	if err == nil {
		err = call.CheckAsked(items)
	}
	if err != nil {
		return call.Asked{}, err
	}
	reply, err := ask(ctx, db, &pb.AskItemsRequest{Namespace: db.namespace, Key: key, Items: items}, db.sketch.AskItems)
	if err != nil {
		return call.Asked{}, err
	}
	return call.Asked{
		Key: key, Kind: call.SketchKind(reply.Kind), Items: protocol.DecodeSketchItems(reply.Items), Exact: reply.Exact, Error: reply.Error,
		Confidence: reply.Confidence, AsOf: time.Unix(0, reply.AsOfNs),
	}, nil
}

// Sketch returns what a key holds that is a sketch: see quipu.DB.Sketch.
func (db *DB) Sketch(ctx context.Context, key string, k int) (call.Sketch, error) {
	if err := checkText("key", key); err != nil {
		return call.Sketch{}, err
	}
	reply, err := ask(ctx, db, &pb.SketchRequest{Namespace: db.namespace, Key: key, K: int32of(k)}, db.sketch.Sketch)
	if err != nil {
		return call.Sketch{}, err
	}
	return protocol.DecodeSketch(reply, key), nil
}

// MergeSketches makes a key what other sketches are together: see quipu.DB.MergeSketches. Unless the key is one of them, it
// may be sent again without a token.
func (db *DB) MergeSketches(ctx context.Context, key string, from []call.SketchSource, opts ...call.WriteOption) (replayed bool, err error) {
	t, err := db.sketchTerms(key, opts)
	if err == nil {
		err = call.CheckSources(from)
	}
	if err != nil {
		return false, err
	}
	r := &pb.MergeSketchesRequest{Namespace: db.namespace, Key: key, From: make([]*pb.MergeSketchesRequest_Source, len(from)), Token: tokenOf(t), TtlNs: lifetime(t)}
	for i, f := range from {
		r.From[i] = &pb.MergeSketchesRequest_Source{Key: f.Key, Weight: f.Weight}
	}
	itself := slices.ContainsFunc(from, func(f call.SketchSource) bool { return f.Key == key })
	reply, err := change(ctx, db, t.Token != "" || !itself, r, db.sketch.MergeSketches)
	return reply.GetReplayed(), err
}

// change makes a call that changes something.
func change[Request, Reply any](ctx context.Context, db *DB, repeatable bool, r Request,
	send func(context.Context, Request, ...grpc.CallOption) (Reply, error),
) (reply Reply, err error) {
	err = db.do(ctx, manner{write: true, repeatable: repeatable}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = send(ctx, r, o...)
		return err
	})
	return reply, err
}

// sketchTerms returns what the options of a write to a sketch say; it has a token if the client makes them.
func (db *DB) sketchTerms(key string, opts []call.WriteOption) (call.SketchTerms, error) {
	t, err := call.SketchTermsOf(opts, true)
	if err == nil {
		err = checkText("key", key, "token", t.Token)
	}
	if err == nil && t.Token == "" && db.options.Tokens {
		t.Token = newToken()
	}
	return t, err
}

func tokenOf(t call.SketchTerms) *string {
	if t.Token == "" {
		return nil
	}
	return &t.Token
}

func lifetime(t call.SketchTerms) *int64 {
	if t.TTL == 0 {
		return nil
	}
	return new(int64(t.TTL))
}
