package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
	"github.com/quipudb/quipu/store/storetest"
)

// The servers that tests share, if they need none of their own. Tests have
// prefixes of their own.
var (
	single   *redisproc.Server
	cluster  func() (*redisproc.Cluster, error) // starts it when it is needed
	prefixes atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if flag.Parse(); flag.Lookup("test.fuzz").Value.String() != "" {
		return m.Run() // without a server, which would keep a worker of the fuzzer from ending
	}
	dir, err := os.MkdirTemp("", "redisstore")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if single, err = redisproc.Start(context.Background(), dir); err != nil {
		panic(err)
	}
	defer func() { _ = single.Stop() }()
	var started *redisproc.Cluster
	cluster = sync.OnceValues(func() (*redisproc.Cluster, error) {
		in := filepath.Join(dir, "cluster")
		err := os.Mkdir(in, 0o700)
		if err == nil {
			started, err = redisproc.StartCluster(context.Background(), in)
		}
		return started, err
	})
	defer func() {
		if started != nil {
			_ = started.Stop()
		}
	}()
	return m.Run()
}

func prefix() string { return fmt.Sprint("test", prefixes.Add(1)) }

// clusterURL returns the cluster and its address: two of its nodes know the rest.
func clusterURL(t testing.TB) (*redisproc.Cluster, string) {
	t.Helper()
	c, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	return c, "redis://" + c.Nodes[1].Addr + "," + c.Nodes[5].Addr
}

// opener makes stores on a server, each with a prefix of its own. What the laws
// of quotas say of a namespace holds of a partition here, so a store with limits
// has one.
func opener(url string) storetest.Opener {
	return func(t testing.TB, c storetest.Config) *storetest.Instance {
		o := redisstore.Options{Limits: c.Limits, Now: c.Now, Partitions: 8, Prefix: prefix()}
		limits := c.Limits
		limits.TokenWindow = 0
		if limits != (store.Limits{}) {
			o.Partitions = 1
		}
		inst := &storetest.Instance{Store: open(t, url, o)}
		// The server keeps everything: a store that is killed is one that says no
		// more, and another takes its place. It may still have calls under way.
		inst.Crash = func(t testing.TB) store.Store {
			old := inst.Store
			go func() { _ = old.Close() }()
			return open(t, url, o)
		}
		inst.Reopen = func(t testing.TB) store.Store {
			if err := inst.Store.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, url, o)
		}
		inst.Beside = func(t testing.TB, l store.Limits) (store.Store, error) {
			o := o
			o.Limits = l
			return redisstore.Open(t.Context(), url, o)
		}
		return inst
	}
}

// open opens a store until the end of the test.
func open(t testing.TB, url string, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestLaws(t *testing.T) {
	t.Run("single", func(t *testing.T) { storetest.Run(t, opener("redis://"+single.Addr)) })
	t.Run("cluster", func(t *testing.T) {
		// The same scripts, further away: a part of the random histories will do.
		if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
			if err := f.Value.Set("20"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Value.Set(f.DefValue) }()
		}
		_, url := clusterURL(t)
		storetest.Run(t, opener(url))
	})
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, opener("redis://"+single.Addr)) }
