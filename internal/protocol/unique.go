package protocol

import (
	"time"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
)

// EncodeEstimate returns an estimate as it is sent.
func EncodeEstimate(e call.UniqueEstimate) *pb.UniqueEstimate {
	return &pb.UniqueEstimate{Count: e.Count, Lower: e.Lower, Upper: e.Upper, StandardError: e.StandardError, Exact: e.Exact}
}

// DecodeEstimate returns the estimate that was sent.
func DecodeEstimate(e *pb.UniqueEstimate) call.UniqueEstimate {
	return call.UniqueEstimate{Count: e.GetCount(), Lower: e.GetLower(), Upper: e.GetUpper(), StandardError: e.GetStandardError(), Exact: e.GetExact()}
}

// EncodeUniques returns the users of a counter as they are sent.
func EncodeUniques(u *call.Uniques) *pb.UniquesReply {
	out := &pb.UniquesReply{
		Users: EncodeEstimate(u.UniqueEstimate), Other: EncodeEstimate(u.Other), Aligned: u.Aligned, Complete: u.Complete,
		CompleteFromMs: EncodeTime(u.CompleteFrom), FromMs: EncodeTime(u.From), ToMs: EncodeTime(u.To), AsOfNs: u.AsOf.UnixNano(),
		Values: make([]*pb.UniquesReply_Value, len(u.Values)),
	}
	for i, v := range u.Values {
		values := v.Values
		if values == nil {
			values = []string{v.Value}
		}
		out.Values[i] = &pb.UniquesReply_Value{Values: values, Users: EncodeEstimate(v.UniqueEstimate)}
	}
	if o := u.Overlap; o != nil {
		out.Overlap = &pb.UniquesReply_Overlap{Only: EncodeEstimate(o.Only), Others: EncodeEstimate(o.Others), Both: EncodeEstimate(o.Both)}
	}
	return out
}

// DecodeUniques returns the users that were sent, as the answer to a question about a
// counter.
func DecodeUniques(u *pb.UniquesReply, key string, o call.UniqueOptions) call.Uniques {
	out := call.Uniques{
		Key: key, By: o.By, UniqueEstimate: DecodeEstimate(u.Users), Other: DecodeEstimate(u.Other), Aligned: u.Aligned, Complete: u.Complete,
		CompleteFrom: DecodeTime(u.CompleteFromMs), From: DecodeTime(u.FromMs), To: DecodeTime(u.ToMs), AsOf: time.Unix(0, u.AsOfNs),
	}
	for _, v := range u.Values {
		one := call.UniqueValue{Values: v.Values, UniqueEstimate: DecodeEstimate(v.Users)}
		if len(v.Values) == 1 {
			one.Value, one.Values = v.Values[0], nil
		}
		out.Values = append(out.Values, one)
	}
	if v := u.Overlap; v != nil {
		out.Overlap = &call.UniqueOverlap{With: o.With, Only: DecodeEstimate(v.Only), Others: DecodeEstimate(v.Others), Both: DecodeEstimate(v.Both)}
	}
	return out
}
