package quipu_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Where an exact read is as cheap as a total, no policy and no allowance makes it
// older: every preset reads exactly over a store in this process.
func TestNearReadsAreExact(t *testing.T) {
	var policies []quipu.Policy
	for _, p := range policy.Presets() {
		p.Policy.Pattern = p.Name + ":*"
		policies = append(policies, p.Policy)
	}
	policies = append(policies, quipu.Policy{Pattern: "split:*", Shards: 4, Timing: quipu.Rollup, Interval: time.Hour})
	embedded, err := quipu.Open(t.TempDir(), quipu.Options{Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*quipu.DB{
		"embedded": embedded,
		"memory":   quipu.New(memstore.New(memstore.Options{}), quipu.Options{Policies: policies}),
	} {
		for _, p := range policies {
			key := p.Pattern[:len(p.Pattern)-1] + "k"
			for n := range int64(100) {
				if _, err := db.Add(t.Context(), key, 1); err != nil {
					t.Fatal(err)
				}
				for _, o := range [][]quipu.ReadOption{nil, {quipu.MaxStaleness(time.Hour)}} {
					c, err := db.Read(t.Context(), key, o...)
					if err != nil || c.Value != n+1 || !c.Exact || c.Staleness != 0 || c.Source != "store" {
						t.Fatalf("%s: %+v, %v after %d", name, c, err, n+1)
					}
				}
				values := make([]store.Value, 1)
				if !db.Peek([]string{key}, values) && p.Shards == 0 || values[0].N != n+1 && p.Shards == 0 {
					t.Fatalf("%s: %q peeks as %+v after %d", name, key, values[0], n+1)
				}
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
