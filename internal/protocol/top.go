package protocol

import (
	"time"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
)

// EncodeTop returns a top list as it is sent.
func EncodeTop(t *call.Top) *pb.TopReply {
	out := &pb.TopReply{
		By: t.By, Exact: t.Exact, Rest: t.Rest, Total: t.Total, Aligned: t.Aligned, Complete: t.Complete,
		CompleteFromMs: EncodeTime(t.CompleteFrom), FromMs: EncodeTime(t.From), ToMs: EncodeTime(t.To), BeforeMs: EncodeTime(t.Before),
		AsOfNs: t.AsOf.UnixNano(), Items: make([]*pb.TopReply_Item, len(t.Items)),
	}
	for i, x := range t.Items {
		out.Items[i] = &pb.TopReply_Item{Item: x.Item, Lower: x.Lower, Upper: x.Upper, Rise: x.Rise, RiseLower: x.RiseLower, RiseUpper: x.RiseUpper}
	}
	return out
}

// DecodeTop returns the top list that was sent, as the answer to a question about one.
func DecodeTop(t *pb.TopReply, name string, o call.TopOptions) call.Top {
	out := call.Top{
		Name: name, Key: o.Key, By: t.By, Exact: t.Exact, Rest: t.Rest, Total: t.Total, Trend: o.Trend, Aligned: t.Aligned, Complete: t.Complete,
		CompleteFrom: DecodeTime(t.CompleteFromMs), From: DecodeTime(t.FromMs), To: DecodeTime(t.ToMs), Before: DecodeTime(t.BeforeMs),
		AsOf: time.Unix(0, t.AsOfNs),
	}
	for _, x := range t.Items {
		out.Items = append(out.Items, call.TopItem{
			Item: x.GetItem(), Count: x.GetUpper(), Lower: x.GetLower(), Upper: x.GetUpper(),
			Rise: x.GetRise(), RiseLower: x.GetRiseLower(), RiseUpper: x.GetRiseUpper(),
		})
	}
	return out
}
