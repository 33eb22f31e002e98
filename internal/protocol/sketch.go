package protocol

import (
	"math"
	"time"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
)

func int32of(n int) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, n))) }

// EncodeShape returns the shape of a sketch as it is sent.
func EncodeShape(s *call.Shape) *pb.SketchShape {
	return &pb.SketchShape{
		Kind: string(s.Kind), Capacity: s.Capacity, Error: s.Error, Growth: int32of(s.Growth), Fixed: s.Fixed,
		Epsilon: s.Epsilon, Confidence: s.Confidence, Width: int64(s.Width), Depth: int64(s.Depth), Conservative: s.Conservative, K: int32of(s.K),
	}
}

// DecodeShape returns the shape that was sent.
func DecodeShape(s *pb.SketchShape) call.Shape {
	return call.Shape{
		Kind: call.SketchKind(s.GetKind()), Capacity: s.GetCapacity(), Error: s.GetError(), Growth: int(s.GetGrowth()), Fixed: s.GetFixed(),
		Epsilon: s.GetEpsilon(), Confidence: s.GetConfidence(), Width: int(s.GetWidth()), Depth: int(s.GetDepth()), Conservative: s.GetConservative(), K: int(s.GetK()),
	}
}

// EncodeSketchItems returns what a sketch knows of items as it is sent.
func EncodeSketchItems(items []call.SketchItem) []*pb.SketchItem {
	out := make([]*pb.SketchItem, len(items))
	for i := range items {
		s := &items[i]
		out[i] = &pb.SketchItem{Item: s.Item, Added: s.Added, Found: s.Found, Listed: s.Listed, Lower: s.Lower, Upper: s.Upper, Expelled: s.Expelled}
	}
	return out
}

// DecodeSketchItems returns what was sent of items.
func DecodeSketchItems(items []*pb.SketchItem) []call.SketchItem {
	if items == nil {
		return nil
	}
	out := make([]call.SketchItem, len(items))
	for i, s := range items {
		out[i] = call.SketchItem{
			Item: s.GetItem(), Added: s.GetAdded(), Found: s.GetFound(), Listed: s.GetListed(), Count: s.GetUpper(), Lower: s.GetLower(), Upper: s.GetUpper(),
			Expelled: s.GetExpelled(),
		}
	}
	return out
}

// EncodeSketch returns what is known of a sketch as it is sent.
func EncodeSketch(s *call.Sketch) *pb.SketchReply {
	return &pb.SketchReply{
		Shape: EncodeShape(&s.Shape), Total: s.Total, Bytes: s.Bytes, Exact: s.Exact, Error: s.Error, Capacity: s.Capacity, Full: s.Full,
		Epsilon: s.Epsilon, Confidence: s.Confidence, Items: EncodeSketchItems(s.Items), Rest: s.Rest, Uniques: EncodeEstimate(s.Uniques),
		ExpiresAtMs: EncodeTime(s.ExpiresAt), AsOfNs: s.AsOf.UnixNano(),
	}
}

// DecodeSketch returns what was sent of a sketch.
func DecodeSketch(s *pb.SketchReply, key string) call.Sketch {
	return call.Sketch{
		Key: key, Shape: DecodeShape(s.Shape), Total: s.Total, Bytes: s.Bytes, Exact: s.Exact, Error: s.Error, Capacity: s.Capacity, Full: s.Full,
		Epsilon: s.Epsilon, Confidence: s.Confidence, Items: DecodeSketchItems(s.Items), Rest: s.Rest, Uniques: DecodeEstimate(s.Uniques),
		ExpiresAt: DecodeTime(s.ExpiresAtMs), AsOf: time.Unix(0, s.AsOfNs),
	}
}
