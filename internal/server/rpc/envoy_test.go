package rpc_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/envoypb"
	"github.com/quipudb/quipu/internal/server/rpc"
	pb "github.com/quipudb/quipu/quipupb"
)

func descriptor(entries ...string) *envoypb.RateLimitDescriptor {
	d := &envoypb.RateLimitDescriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &envoypb.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

// Envoy asks a limit for each descriptor, and goes by all of them.
func TestEnvoy(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	day, err := definition.ParseWidth("24h")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.db.Define(k.ctx, []definition.Definition{
		{Pattern: "edge:remote_address", Limits: []definition.Limit{{Rate: 1, Per: day, Burst: 2}}},
		{Pattern: "edge:path,user", Limits: []definition.Limit{{Rate: 5, Per: day}}},
	}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	rls := envoypb.NewRateLimitServiceClient(k.conn)
	f := func(overall envoypb.RateLimitResponse_Code, hits uint32, descriptors []*envoypb.RateLimitDescriptor, left ...uint32) []*envoypb.RateLimitResponse_DescriptorStatus {
		t.Helper()
		r, err := rls.ShouldRateLimit(k.ctx, &envoypb.RateLimitRequest{Domain: "edge", Descriptors: descriptors, HitsAddend: hits})
		if err != nil {
			t.Fatal(err)
		}
		if r.OverallCode != overall || len(r.Statuses) != len(left) {
			t.Fatalf("%v, want %v", r, overall)
		}
		for i, s := range r.Statuses {
			if s.LimitRemaining != left[i] {
				t.Errorf("status %d: %v, want %d left", i, s, left[i])
			}
		}
		return r.Statuses
	}
	const pass, over = envoypb.RateLimitResponse_CODE_OK, envoypb.RateLimitResponse_CODE_OVER_LIMIT
	address := descriptor("remote_address", "10.0.0.1")
	s := f(pass, 0, []*envoypb.RateLimitDescriptor{address, descriptor("path", "/a", "user", "eve"), descriptor("other", "x")}, 1, 4, 0)
	if l := s[0].CurrentLimit; l.RequestsPerUnit != 1 || l.Unit != envoypb.Unit_UNIT_DAY || l.Name != "24h" || s[0].DurationUntilReset.AsDuration() > 24*time.Hour ||
		s[2].CurrentLimit != nil || s[2].Code != pass {
		t.Errorf("%v", s)
	}
	s = f(over, 2, []*envoypb.RateLimitDescriptor{address, descriptor("path", "/a", "user", "eve")}, 1, 2)
	if s[0].Code != over || s[1].Code != pass {
		t.Errorf("%v", s)
	}
	// Entries can't be taken for others.
	f(pass, 0, []*envoypb.RateLimitDescriptor{descriptor("path", "/a,x", "user", "eve")}, 4)
	f(pass, 0, []*envoypb.RateLimitDescriptor{descriptor("path", "/a", "user", "x,eve")}, 4)
	// A descriptor may bring its limit and its hits.
	own := descriptor("remote_address", "10.0.0.2")
	own.Limit = &envoypb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: envoypb.Unit_UNIT_YEAR}
	own.HitsAddend = wrapperspb.UInt64(2)
	s = f(pass, 0, []*envoypb.RateLimitDescriptor{own}, 1)
	if s[0].CurrentLimit.Unit != envoypb.Unit_UNIT_YEAR {
		t.Errorf("%v", s)
	}
	f(over, 0, []*envoypb.RateLimitDescriptor{own}, 1)

	bad := func(r *envoypb.RateLimitRequest, kind pb.Kind) {
		t.Helper()
		_, err := rls.ShouldRateLimit(k.ctx, r)
		k.fails(err, codes.InvalidArgument, kind)
	}
	bad(&envoypb.RateLimitRequest{Descriptors: []*envoypb.RateLimitDescriptor{address}}, pb.Kind_KIND_INVALID)
	bad(&envoypb.RateLimitRequest{Domain: "edge"}, pb.Kind_KIND_INVALID)
	bad(&envoypb.RateLimitRequest{Domain: "edge", Descriptors: []*envoypb.RateLimitDescriptor{{}}}, pb.Kind_KIND_INVALID)
	bad(&envoypb.RateLimitRequest{Domain: "edge", Descriptors: make([]*envoypb.RateLimitDescriptor, 101)}, pb.Kind_KIND_TOO_LARGE)
	own.Limit.RequestsPerUnit = 0
	bad(&envoypb.RateLimitRequest{Domain: "edge", Descriptors: []*envoypb.RateLimitDescriptor{own}}, pb.Kind_KIND_INVALID)
}

// The domain names the namespace before a slash, and limits of namespaces are apart.
func TestEnvoyNamespace(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	day, err := definition.ParseWidth("24h")
	if err != nil {
		t.Fatal(err)
	}
	for namespace, rate := range map[string]int64{"default": 5, "shop": 3} {
		limits := []definition.Limit{{Rate: rate, Per: day}}
		if _, err := k.db.In(namespace).Define(k.ctx, []definition.Definition{{Pattern: "edge:user", Limits: limits}}, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	rls := envoypb.NewRateLimitServiceClient(k.conn)
	ask := func(domain string) (*envoypb.RateLimitResponse, error) {
		return rls.ShouldRateLimit(k.ctx, &envoypb.RateLimitRequest{Domain: domain, Descriptors: []*envoypb.RateLimitDescriptor{descriptor("user", "eve")}})
	}
	f := func(domain string, limit, left uint32) {
		t.Helper()
		r, err := ask(domain)
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Statuses[0]; s.LimitRemaining != left || s.GetCurrentLimit().GetRequestsPerUnit() != limit {
			t.Errorf("domain %q: %v, want %d of %d", domain, s, left, limit)
		}
	}
	f("edge", 5, 4)
	f("shop/edge", 3, 2)
	f("edge", 5, 3)
	f("default/edge", 5, 2)
	f("none/edge", 0, 0) // It has no definition, so nothing is limited.
	for _, domain := range []string{"/edge", "shop/", "/"} {
		_, err := ask(domain)
		k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	}
	_, err = ask(strings.Repeat("x", 256) + "/edge")
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
}
