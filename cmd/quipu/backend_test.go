package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/dbtest"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store/redisstore"
)

// TestLaws runs the laws of the product over the stores that servers share.
func TestLaws(t *testing.T) {
	var names atomic.Int64
	fresh := func(o quipu.Options) storeOptions {
		return storeOptions{Options: o, Name: fmt.Sprintf("laws%d", names.Add(1)), Conns: 8}
	}
	f := func(name string, open func(ctx context.Context, o storeOptions) (*quipu.DB, error)) {
		t.Run(name, func(t *testing.T) {
			dbtest.Run(t, dbtest.InProcess(func(t testing.TB, o quipu.Options) *quipu.DB {
				db, err := open(t.Context(), fresh(o))
				if err != nil {
					t.Fatal(err)
				}
				return db
			}))
		})
	}
	pg := startPostgres(t)
	f("postgres", func(ctx context.Context, o storeOptions) (*quipu.DB, error) { return openStore(ctx, pg.URL(), o) })

	redis := redisproc.For(t)
	f("redis", func(ctx context.Context, o storeOptions) (*quipu.DB, error) {
		url := "redis://" + redis.Addr
		if o.Limits.KeysMax == 0 && o.Limits.TokensMax == 0 {
			return openStore(ctx, url, o)
		}
		// Quotas are exact in a store of one partition only.
		s, err := redisstore.Open(ctx, url, redisstore.Options{Limits: o.Limits, Prefix: o.Name, Partitions: 1})
		if err != nil {
			return nil, err
		}
		return quipu.New(s, o.Options), nil
	})
}

func TestStoreScheme(t *testing.T) {
	f := func(url, want string) {
		t.Helper()
		got, err := storeScheme(url)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s is a store of scheme %q, %v; want %q", url, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "postgres://") {
			t.Errorf("%s: the error does not say what to give: %v", url, err)
		}
	}
	f("embedded:", schemeEmbedded)
	f("embedded:./dir", schemeEmbedded)
	f("memory:", schemeMemory)
	f("postgres://u@h/d", schemePostgres)
	f("postgresql://u@h/d", schemePostgres)
	f("redis://h:1,i:2", schemeRedis)
	f("rediss://h:1", schemeRedis)
	f("", "")
	f("memory", "")
	f("mysql://h", "")
	f("/var/lib/quipu", "")
}
