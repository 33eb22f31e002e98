package quipu_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Counters that are split feed the lanes of all their partitions, and several servers write one store.
// What is told is put together from all of them.
func TestTopsOfShards(t *testing.T) {
	s := memstore.New(memstore.Options{Partitions: 8, Shared: true})
	defer func() { _ = s.Close() }()
	o := quipu.Options{Policies: []quipu.Policy{{Pattern: "hot*", Shards: 4, Timing: quipu.FanIn}}}
	var servers []*quipu.DB
	for range 3 {
		db := quipu.New(shared{s}, o)
		defer func() { _ = db.Close() }()
		servers = append(servers, db)
	}
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	_, err = servers[0].Define(t.Context(), []definition.Definition{{
		Pattern: "hot*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(30 * 24 * time.Hour)}},
		Tops: []definition.Top{{Name: "first", By: definition.ByKey}, {Name: "colors", By: "color"}},
	}}, quipu.DefineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// They are split soon after their first writes.
	warm := [2]int64{}
	for i := range warm {
		home := store.PartCell{Cell: store.Cell{Namespace: "default", Key: fmt.Sprint("hot", i)}, Part: store.PartFields{Kind: store.PartWidth}.Part()}
		for width := make([]store.Content, 1); width[0].N == 0; warm[i]++ {
			if t.Context().Err() != nil || warm[i] > 1_000_000 {
				t.Fatal("a counter is never split")
			}
			if _, err := servers[0].Add(t.Context(), home.Cell.Key, 1); err != nil {
				t.Fatal(err)
			}
			if err := s.ReadParts(t.Context(), []store.PartCell{home}, width); err != nil {
				t.Fatal(err)
			}
		}
	}
	const each = 120
	var wg sync.WaitGroup
	for i, db := range servers {
		wg.Go(func() {
			for j := range each {
				if _, err := db.Add(t.Context(), fmt.Sprint("hot", j%2), int64(1+j%2), quipu.Dim("color", []string{"red", "blue"}[(i+j/2)%2])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen, err := s.ScanParts(t.Context(), store.RowsUnder("default", store.PartFields{Kind: store.PartShared}, ""), store.ScanMax)
	partitions := map[int]bool{}
	for _, p := range seen {
		_, partition, _, _ := store.LaneOf(p.Cell)
		partitions[partition] = true
	}
	if err != nil || len(partitions) < 3 { // two counters have two homes
		t.Errorf("lanes of %d partitions were written, %v", len(partitions), err)
	}
	for _, db := range servers {
		for _, from := range []time.Time{{}, time.Now().Add(-2 * time.Hour)} {
			f := func(name, key string, want ...int64) {
				t.Helper()
				slices.SortFunc(want, func(a, b int64) int { return cmp.Compare(b, a) })
				top, err := db.Top(t.Context(), name, call.TopOptions{Key: key, From: from})
				if err != nil || len(top.Items) != len(want) || !top.Exact {
					t.Fatalf("%+v, %v", top, err)
				}
				for i, x := range top.Items {
					if x.Lower != want[i] || x.Upper != want[i] {
						t.Errorf("%s of %q: %+v, want %d", name, key, top.Items, want)
					}
				}
			}
			f("first", "", 3*each+warm[1], 3*each/2+warm[0])
			f("colors", "hot0", each*3/4, each*3/4)
			f("colors", "hot1", each*3/2, each*3/2)
		}
	}
	if v, err := servers[0].Verify(t.Context()); err != nil || len(v.Drift) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// A shared store is one that its servers do not close.
type shared struct{ *memstore.Store }

func (shared) Close() error { return nil }
