package rpc

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// sketches is the service of sketches that keys hold.
type sketches struct {
	pb.UnimplementedSketchesServer
	door *Door
}

// The memory that calls on whole sketches take: the pieces that are looked at together, and for a merge all that is
// written. That of items is taken with their message.
const (
	sketchBytes = 2 << 20
	mergeBytes  = 8 << 20
)

// taking makes a call when there is memory for it.
func (s *sketches) taking(ctx context.Context, n int64, do func() error) error {
	taken, err := s.door.budget.Take(ctx, n)
	if err != nil {
		return err
	}
	defer s.door.budget.Give(taken)
	return do()
}

// sketchOptions are the options of a write to a sketch.
func sketchOptions(token *string, ttlNS *int64) (opts []quipu.WriteOption) {
	if token != nil {
		opts = append(opts, quipu.Token(*token))
	}
	if ttlNS != nil {
		opts = append(opts, quipu.TTL(time.Duration(*ttlNS)))
	}
	return opts
}

// MakeSketch makes an absent key a sketch.
func (s *sketches) MakeSketch(ctx context.Context, r *pb.MakeSketchRequest) (*pb.MakeSketchReply, error) {
	made, err := s.door.in(r.Namespace).MakeSketch(ctx, r.Key, protocol.DecodeShape(r.Shape), sketchOptions(nil, r.TtlNs)...)
	if err != nil {
		return nil, err
	}
	return &pb.MakeSketchReply{Made: made}, nil
}

// AddItems adds items to a sketch.
func (s *sketches) AddItems(ctx context.Context, r *pb.AddItemsRequest) (*pb.AddItemsReply, error) {
	if len(r.Items) > call.ItemsMax {
		return nil, store.Errorf(store.KindTooLarge, "%d items: at most %d", len(r.Items), call.ItemsMax)
	}
	items := make([]call.Item, len(r.Items))
	for i, item := range r.Items {
		items[i] = call.Item{Item: item.GetItem(), N: item.GetN()}
	}
	a, err := s.door.in(r.Namespace).AddItems(ctx, r.Key, items, sketchOptions(r.Token, r.TtlNs)...)
	if err != nil {
		return nil, err
	}
	return &pb.AddItemsReply{
		Kind: string(a.Kind), Items: protocol.EncodeSketchItems(a.Items), Confidence: a.Confidence, Replayed: a.Replayed, Durability: pb.Durability(a.Durability),
	}, nil
}

// AskItems returns what a sketch knows of items.
func (s *sketches) AskItems(ctx context.Context, r *pb.AskItemsRequest) (*pb.AskItemsReply, error) {
	a, err := s.door.in(r.Namespace).AskItems(ctx, r.Key, r.Items...)
	if err != nil {
		return nil, err
	}
	return &pb.AskItemsReply{
		Kind: string(a.Kind), Items: protocol.EncodeSketchItems(a.Items), Exact: a.Exact, Error: a.Error, Confidence: a.Confidence, AsOfNs: a.AsOf.UnixNano(),
	}, nil
}

// Sketch returns what is known of a sketch.
func (s *sketches) Sketch(ctx context.Context, r *pb.SketchRequest) (reply *pb.SketchReply, err error) {
	return reply, s.taking(ctx, sketchBytes, func() error {
		is, err := s.door.in(r.Namespace).Sketch(ctx, r.Key, int(r.K))
		if err == nil {
			reply = protocol.EncodeSketch(&is)
		}
		return err
	})
}

// MergeSketches makes a key what others are together.
func (s *sketches) MergeSketches(ctx context.Context, r *pb.MergeSketchesRequest) (reply *pb.MergeSketchesReply, err error) {
	if len(r.From) > call.MergeMax {
		return nil, store.Errorf(store.KindTooLarge, "%d sketches to merge: at most %d", len(r.From), call.MergeMax)
	}
	from := make([]call.SketchSource, len(r.From))
	for i, f := range r.From {
		from[i] = call.SketchSource{Key: f.GetKey(), Weight: f.GetWeight()}
	}
	return reply, s.taking(ctx, mergeBytes, func() error {
		replayed, err := s.door.in(r.Namespace).MergeSketches(ctx, r.Key, from, sketchOptions(r.Token, r.TtlNs)...)
		if err == nil {
			reply = &pb.MergeSketchesReply{Replayed: replayed}
		}
		return err
	})
}
