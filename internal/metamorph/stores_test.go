package metamorph

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/pgstore"
	"github.com/quipudb/quipu/store/redisstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A backing is a store that outlives those who use it.
type backing struct {
	name string

	// use returns the store for another user, who closes it.
	use func(ctx context.Context) (store.Store, error)

	// crash, if not nil, makes all users lose the store at once: what was
	// acknowledged is there for those who come after.
	crash func() error
}

// borrow returns a store that its user does not close, and that is not known to be
// used by nobody else. It reads each partition at a moment of its own, as one that is
// several servers does.
func borrow(s store.Store) store.Store {
	h := new(storetest.Hooks)
	h.On(storetest.OnClose, storetest.Ignore)
	h.On(storetest.OnRead, storetest.Apart)
	return storetest.Wrap(storetest.Far(s), h)
}

// inMemory is the reference store.
func inMemory(partitions int) *backing {
	s := memstore.New(memstore.Options{Partitions: partitions})
	return &backing{
		name: fmt.Sprintf("memory of %d", partitions),
		use:  func(context.Context) (store.Store, error) { return borrow(s), nil },
	}
}

// disk is a file system in memory of which a test can take what a power cut would
// leave. Links and crashes take turns: MemFS would wait for itself.
type disk struct {
	*vfs.MemFS
	linking sync.Mutex
}

// Link makes a hard link.
func (d *disk) Link(oldname, newname string) error {
	d.linking.Lock()
	defer d.linking.Unlock()
	return d.MemFS.Link(oldname, newname)
}

func (d *disk) cut(rng *rand.Rand) *disk {
	d.linking.Lock()
	defer d.linking.Unlock()
	return &disk{MemFS: d.MemFS.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})}
}

// embedded is the engine, on a disk that loses power.
func embedded(t *testing.T, rng *rand.Rand) *backing {
	t.Helper()
	fs := &disk{MemFS: vfs.NewCrashableMem()}
	var now *engine.Engine
	open := func() (err error) {
		now, err = engine.Open("/data", engine.Options{FS: fs})
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := now.Close(); err != nil {
			t.Error(err)
		}
	})
	return &backing{
		name: "embedded",
		use:  func(context.Context) (store.Store, error) { return borrow(now), nil },
		crash: func() error {
			left := now
			fs = fs.cut(rng)
			_ = left.Close() // on the disk as it was, which nobody looks at again
			return open()
		},
	}
}

// over is a store that nodes share.
func over(name string, open func(ctx context.Context) (store.Store, error)) *backing {
	return &backing{name: name, use: func(ctx context.Context) (store.Store, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return node.New(ctx, s, node.Options{}), nil
	}}
}

var names atomic.Int64

// newName returns one that no other store or namespace has.
func newName() string { return fmt.Sprintf("m%d", names.Add(1)) }

// The servers are started by the first test that needs them, and stopped by
// TestMain.
var (
	stops    []func() error
	postgres = sync.OnceValues(func() (*pgtest.Server, error) {
		// It may not be able to read what is in a test's directory.
		dir, err := os.MkdirTemp("", "metamorph")
		if err != nil {
			return nil, err
		}
		s, err := pgtest.Start(context.Background(), dir, "fsync=off", "max_connections=200")
		stops = append(stops, func() error { return os.RemoveAll(dir) })
		if err == nil {
			stops = append(stops, s.Stop)
		}
		return s, err
	})
	redis = sync.OnceValues(func() (*redisproc.Server, error) {
		dir, err := os.MkdirTemp("", "metamorph")
		if err != nil {
			return nil, err
		}
		s, err := redisproc.Start(context.Background(), dir)
		stops = append(stops, func() error { return os.RemoveAll(dir) })
		if err == nil {
			stops = append(stops, s.Stop)
		}
		return s, err
	})
	cluster = sync.OnceValues(func() (*redisproc.Cluster, error) {
		dir, err := os.MkdirTemp("", "metamorph")
		if err != nil {
			return nil, err
		}
		c, err := redisproc.StartCluster(context.Background(), dir)
		stops = append(stops, func() error { return os.RemoveAll(dir) })
		if err == nil {
			stops = append(stops, c.Stop)
		}
		return c, err
	})
)

// stop ends the servers that were started, the last one first.
func stop() (err error) {
	for _, f := range slices.Backward(stops) {
		err = errors.Join(err, f())
	}
	return err
}

func overPostgres(t *testing.T) *backing {
	t.Helper()
	s, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	schema := newName()
	return over("PostgreSQL", func(ctx context.Context) (store.Store, error) {
		return pgstore.Open(ctx, s.URL(), pgstore.Options{Schema: schema, MaxConns: 8})
	})
}

func overRedis(t *testing.T) *backing {
	t.Helper()
	s, err := redis()
	if err != nil {
		t.Fatal(err)
	}
	prefix := newName()
	return over("Redis", func(ctx context.Context) (store.Store, error) {
		return redisstore.Open(ctx, "redis://"+s.Addr, redisstore.Options{Prefix: prefix})
	})
}

func overCluster(t *testing.T) *backing {
	t.Helper()
	c, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	prefix := newName()
	return over("Redis Cluster", func(ctx context.Context) (store.Store, error) {
		return redisstore.Open(ctx, "redis://"+strings.Join(addrs, ","), redisstore.Options{Prefix: prefix})
	})
}
