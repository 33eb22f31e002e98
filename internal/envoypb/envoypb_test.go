package envoypb_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quipudb/quipu/internal/envoypb"
)

// The generated code is that of the protocol as it is.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	source, err := os.ReadFile("rls.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("// rls.proto sha256:%x\n", sha256.Sum256(source))
	for _, name := range []string{"rls.pb.go", "rls_grpc.pb.go"} {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(code), want) {
			t.Errorf("%s is of another rls.proto: run make generate", name)
		}
	}
}

// The names and the bytes are Envoy's: written down by hand from its protocol.
func TestWire(t *testing.T) {
	if name := envoypb.RateLimitService_ShouldRateLimit_FullMethodName; name != "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" {
		t.Error(name)
	}
	const request = "0a0465646765" + // 1: domain "edge"
		"12100a0c0a0470617468120" + "42f61626312" + "00" // 2: a descriptor with an entry "path", "/abc", and an empty limit
	raw, err := hex.DecodeString(request)
	if err != nil {
		t.Fatal(err)
	}
	var r envoypb.RateLimitRequest
	if err := proto.Unmarshal(append(raw, 0x18, 3), &r); err != nil { // 3: hits_addend
		t.Fatal(err)
	}
	d := r.Descriptors[0]
	if r.Domain != "edge" || d.Entries[0].Key != "path" || d.Entries[0].Value != "/abc" || d.Limit == nil || r.HitsAddend != 3 {
		t.Errorf("%v", &r)
	}
	reply, err := proto.Marshal(&envoypb.RateLimitResponse{OverallCode: envoypb.RateLimitResponse_CODE_OVER_LIMIT, Statuses: []*envoypb.RateLimitResponse_DescriptorStatus{{
		Code: envoypb.RateLimitResponse_CODE_OK, LimitRemaining: 7,
		CurrentLimit: &envoypb.RateLimitResponse_RateLimit{Name: "n", RequestsPerUnit: 5, Unit: envoypb.Unit_UNIT_HOUR},
	}}})
	if got, want := hex.EncodeToString(reply), "0802120d080112070805100"+"31a016e1807"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
