package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

// Two servers over a Redis Cluster take reactions to one counter: its users are with all
// masters, and verify finds that they are counted.
func TestSeatsOverACluster(t *testing.T) {
	c, err := redisproc.StartMasters(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	open := func() *quipu.DB {
		db, err := openStore(t.Context(), "redis://"+c.Nodes[0].Addr, storeOptions{Conns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	servers := []*quipu.DB{open(), open()}
	post := definition.Definition{Pattern: "post:*", Choices: []string{"like", "dislike"}, Shards: 16}
	if _, err := servers[0].Define(t.Context(), []definition.Definition{post}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	const each = 100
	var wg sync.WaitGroup
	for n, db := range servers {
		for from := range 4 {
			wg.Go(func() {
				for i := from; i < each; i += 4 {
					if _, err := db.React(t.Context(), "post:1", fmt.Sprintf("user-%d-%d", n, i), post.Choices[i%2]); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	sum := 0
	for _, node := range c.Nodes {
		fields, err := node.Fields(t.Context(), "*p:05*")
		if err != nil {
			t.Fatal(err)
		}
		users := 0
		for field := range fields {
			if strings.Contains(field, "user-") {
				users++
			}
		}
		if sum += users; users < each*2/8 {
			t.Errorf("the master at %s has %d users of %d", node.Addr, users, each*2)
		}
	}
	if sum != each*2 {
		t.Errorf("%d users are stored", sum)
	}
	for _, db := range servers {
		r, err := db.Reactions(t.Context(), "post:1")
		count, readErr := db.Read(t.Context(), "post:1", quipu.Exact())
		if err != nil || readErr != nil || r.Users != each*2 || r.Counts[0].Users != each || count.Value != each*2 || !count.Exact || count.Shards != post.Shards {
			t.Fatalf("%+v, %v; %+v, %v", r, err, count, readErr)
		}
	}
	if _, err := servers[0].Reset(t.Context(), "post:1"); err != nil {
		t.Fatal(err)
	}
	if r, err := servers[1].React(t.Context(), "post:1", "user-0-0", "like"); err != nil || !r.Changed || r.Before != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	audit, err := servers[1].Verify(t.Context())
	if err != nil || len(audit.Drift) > 0 {
		t.Fatalf("%+v, %v", audit, err)
	}
}
