package rest

import (
	"errors"
	"slices"
	"testing"

	"github.com/quipudb/quipu"
)

// FuzzPolicies decodes policies: what is taken is valid and is read again as it
// was, and what is refused says where.
func FuzzPolicies(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"policies":[]}`, `{"policies":[{"pattern":"a"}]}`, `{"policies":[{"pattern":"a*","preset":"views","timing":"fan-in"}]}`,
		`{"policies":[{"pattern":"\u00e9*","namespace":"n","durability":"memory","shards":2,"max_shards":64,"single":false,"spread":"time","cool_down":"1h","timing":"hybrid","interval":"10ms","stale":"1ns","partial":true}]}`,
		`{"policies":[{"pattern":"a","single":true,"shards":2}]}`, `{"policies":[{"pattern":"a","partial":tru}]}`, `{"policies":[{"pattern":"a"},]}`, `{"policies":[{"pattern":"a","stale":"-1s"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodePolicies(body)
		if err != nil {
			if p, ok := errors.AsType[*problem](err); !ok || p.offset > len(body) || p.field == "" || p.status < 400 {
				t.Fatalf("body %q: bad problem %+v", body, err)
			}
			return
		}
		if err := (quipu.Options{Policies: got}).Validate(); err != nil {
			t.Fatalf("body %q: %v", body, err)
		}
		again := []byte(`{"policies":[`)
		for i, p := range got {
			if i > 0 {
				again = append(again, ',')
			}
			again = appendPolicy(again, p, false)
		}
		again = append(again, "]}"...)
		if back, err := decodePolicies(again); err != nil || !slices.Equal(back, got) {
			t.Fatalf("body %q: %v is read again as %v from %s: %v", body, got, back, again, err)
		}
	})
}
