package protocol

import (
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	pb "github.com/quipudb/quipu/quipupb"
)

// EncodeLimits returns limits as they are sent.
func EncodeLimits(limits []definition.Limit) []*pb.Limit {
	var out []*pb.Limit
	for i := range limits {
		l := &limits[i]
		one := &pb.Limit{Name: l.Name, Rate: l.Rate, Per: l.Per.String(), Burst: l.Burst, Zone: l.Zone}
		if l.Algorithm != definition.Bucket {
			one.Algorithm = l.Algorithm.String()
		}
		out = append(out, one)
	}
	return out
}

// DecodeLimits returns the limits that were sent. They may be none that are valid.
func DecodeLimits(limits []*pb.Limit) (out []definition.Limit, err error) {
	for _, l := range limits {
		one := definition.Limit{Name: l.Name, Rate: l.Rate, Burst: l.Burst, Zone: l.Zone}
		if l.Algorithm != "" {
			if err := one.Algorithm.UnmarshalText([]byte(l.Algorithm)); err != nil {
				return nil, err
			}
		}
		if one.Per, err = definition.ParseWidth(l.Per); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// EncodeAway returns what becomes of calls while the store is away as it is sent.
func EncodeAway(a definition.Away) (then string, servers int32) {
	if a.Then == definition.Fail {
		return "", int32(a.Servers)
	}
	return a.Then.String(), int32(a.Servers)
}

// DecodeAway returns what EncodeAway was given.
func DecodeAway(then string, servers int32) (a definition.Away, err error) {
	a.Servers = int(servers)
	if then != "" {
		err = a.Then.UnmarshalText([]byte(then))
	}
	return a, err
}

// EncodeDecision returns a decision as it is sent.
func EncodeDecision(d *call.Decision) *pb.Decision {
	out := &pb.Decision{
		Allowed: d.Allowed, Policy: d.Policy, Limit: d.Limit, Remaining: d.Remaining, RetryAfterMs: d.RetryAfter.Milliseconds(),
		ResetAfterMs: d.ResetAfter.Milliseconds(), Limits: EncodeLimits(d.Limits), Source: d.Source, Replayed: d.Replayed,
	}
	if d.RetryAfter < 0 {
		out.RetryAfterMs = -1
	}
	return out
}

// DecodeDecision returns the decision that was sent.
func DecodeDecision(d *pb.Decision) (out call.Decision, err error) {
	out = call.Decision{
		Allowed: d.Allowed, Policy: d.Policy, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: time.Duration(d.RetryAfterMs) * time.Millisecond,
		ResetAfter: time.Duration(d.ResetAfterMs) * time.Millisecond, Source: d.Source, Replayed: d.Replayed,
	}
	if d.RetryAfterMs < 0 {
		out.RetryAfter = call.Never
	}
	out.Limits, err = DecodeLimits(d.Limits)
	return out, err
}
