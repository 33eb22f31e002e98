package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
)

// TestPiecesOnEachStore has keys with large sketches deleted, replaced and expire, on every store, by two servers if
// the store is one that they share. Both remove what is left, at the same time; the sketches that keys hold stay.
func TestPiecesOnEachStore(t *testing.T) {
	urls := map[string]string{
		"embedded": "embedded:" + filepath.Join(t.TempDir(), "data"),
		"memory":   "memory:",
		"postgres": startPostgres(t).URL(),
		"redis":    "redis://" + redisproc.For(t).Addr,
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			servers := []*quipu.DB{openPieces(t, url)}
			if scheme, _ := storeScheme(url); shared(scheme) {
				servers = append(servers, openPieces(t, url))
			}
			first, last := servers[0], servers[len(servers)-1]
			keys := []string{"live", "anew", "deleted", "expired", "text", "count", "lock"}
			for _, key := range keys {
				large(t, first, key, 300)
			}
			live := countPieces(t, first)["live"]
			for _, key := range []string{"deleted", "anew", "count"} {
				execute(t, last, "DEL", key)
			}
			execute(t, last, "PEXPIRE", "expired", "1")
			execute(t, last, "SET", "text", "hello", "EX", "1000")
			execute(t, last, "SET", "count", "5")
			execute(t, last, "SET", "lock", "6", "EX", "1000")
			large(t, last, "anew", 2)
			for execute(t, last, "EXISTS", "expired").N != 0 {
				if t.Context().Err() != nil {
					t.Fatal("the key does not expire")
				}
			}
			if all := countPieces(t, first); len(all) != len(keys) || live < 2 {
				t.Fatalf("there are pieces of %v", all)
			}
			removed := make(chan error)
			for _, db := range servers {
				go func() { removed <- walkPieces(t, db) }()
			}
			for range servers {
				if err := <-removed; err != nil {
					t.Error(err)
				}
			}
			if all := countPieces(t, last); len(all) != 2 || all["live"] != live || all["anew"] > 2 {
				t.Errorf("there are pieces of %v in the end", all)
			}
			for key, items := range map[string]int{"live": 300, "anew": 2} {
				for i := range items {
					if r := execute(t, first, "BF.EXISTS", key, fmt.Sprint("item", i)); r.N != 1 {
						t.Fatalf("%s has lost item %d: %+v", key, i, r)
					}
				}
			}
			for key, want := range map[string]string{"text": "hello", "count": "5", "lock": "6"} {
				if r := execute(t, last, "GET", key); r.Text != want {
					t.Errorf("%s is %+v", key, r)
				}
			}
			if ttl := execute(t, last, "TTL", "lock").N; ttl < 1 {
				t.Errorf("the lock has a lifetime of %d", ttl)
			}
			if a, err := first.Verify(t.Context()); err != nil || len(a.Drift) > 0 {
				t.Errorf("verify: %v, %v", a.Drift, err)
			}
		})
	}
}

// openPieces opens a server whose worker removes pieces when it is told to.
func openPieces(t testing.TB, url string) *quipu.DB {
	t.Helper()
	db, err := openStore(t.Context(), url, storeOptions{Name: "pieces", Conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	db.Port().Keeping().Close()
	return db
}

// walkPieces has a server go through all pieces once.
func walkPieces(t testing.TB, db *quipu.DB) error {
	for {
		if done, err := db.Port().Keeping().Pieces(t.Context()); done || err != nil {
			return err
		}
	}
}

// execute executes a command.
func execute(t testing.TB, db *quipu.DB, args ...string) (r keyspace.Reply) {
	t.Helper()
	var bytes [][]byte
	for _, a := range args {
		bytes = append(bytes, []byte(a))
	}
	for deadline := time.Now().Add(time.Minute); ; {
		err := db.Port().Text(t.Context(), nil, nil, func(s *keyspace.Space) error {
			r = s.Do(bytes)
			return nil
		})
		if err == nil {
			return r
		}
		if store.KindOf(err) != store.KindUnavailable || time.Now().After(deadline) {
			t.Fatalf("%q: %v", args, err)
		}
	}
}

// large makes a key a filter in pieces with some items.
func large(t testing.TB, db *quipu.DB, key string, items int) {
	t.Helper()
	execute(t, db, "BF.RESERVE", key, "0.001", "400000")
	execute(t, db, append([]string{"BF.MADD", key}, strings.Fields(itemsTo(items))...)...)
}

func itemsTo(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, "item", i, " ")
	}
	return b.String()
}

// countPieces returns how many pieces each key has left in the store.
func countPieces(t testing.TB, db *quipu.DB) map[string]int {
	t.Helper()
	found, err := db.Port().Store().ScanParts(t.Context(), store.RowsUnder("default", store.PartFields{Kind: store.PartSketch}, ""), store.ScanMax)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for i := range found {
		n[found[i].Cell.Key]++
	}
	return n
}

// BenchmarkPieces goes through all pieces: of a store that has none, and of one with a sketch of 1,000 pieces and
// 48 MiB that is in use.
func BenchmarkPieces(b *testing.B) {
	urls := map[string]string{
		"embedded": "embedded:" + filepath.Join(b.TempDir(), "data"),
		"postgres": pgtest.For(b, "fsync=off").URL(),
		"redis":    "redis://" + redisproc.For(b).Addr,
	}
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		db := openPieces(b, urls[name])
		for i := range 10_000 {
			if _, err := db.Add(b.Context(), fmt.Sprint("counter", i), 1); err != nil {
				b.Fatal(err)
			}
		}
		walk := func(b *testing.B) {
			for b.Loop() {
				if err := walkPieces(b, db); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(name+"/none", walk)
		execute(b, db, "BF.RESERVE", "large", "0.001", "30000000")
		for i := range 100 {
			command := []string{"BF.MADD", "large"}
			for j := range 100 {
				command = append(command, fmt.Sprint("item", i*100+j))
			}
			execute(b, db, command...)
		}
		b.Run(fmt.Sprint(name, "/", countPieces(b, db)["large"], " in use"), walk)
	}
}
