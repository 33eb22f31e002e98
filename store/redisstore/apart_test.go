package redisstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// A master that hangs delays nothing that other masters acknowledge, not even when
// the settings of those must be asked for again; and it is given up as soon as the
// caller says.
func TestHungMaster(t *testing.T) {
	c, url := clusterURL(t)
	if err := c.AwaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	const partitions = 12
	k := kit{t, open(t, url, redisstore.Options{Prefix: prefix(), Partitions: partitions})}
	var there, hung []store.Delta
	slots := redisstore.Slots(partitions)
	master, _, err := c.Owner(t.Context(), slots[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(there) < 6 || len(hung) < 2; i++ {
		d := add("k"+strconv.Itoa(i), 1)
		k.reply(k.batch(d)) // so that there are connections
		owner, _, err := c.Owner(t.Context(), slots[store.PartitionOf(d.Cell, partitions)])
		if err != nil {
			t.Fatal(err)
		}
		if owner == master {
			hung = append(hung, d)
		} else {
			there = append(there, d)
		}
	}
	if err := syscall.Kill(master.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(syscall.Kill(master.PID(), syscall.SIGCONT), c.AwaitHealthy(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range c.Nodes {
		if s != master {
			command(t, s, "client", "kill", "type", "normal") // as a restart does
		}
	}
	began := time.Now()
	for _, d := range there {
		for range 2 { // the first may meet the connection that was cut
			_, _ = k.try(t.Context(), k.batch(d))
		}
		k.reply(k.batch(d))
	}
	if took := time.Since(began); took > 800*time.Millisecond {
		t.Errorf("%d batches for masters that answer took %v", 3*len(there), took)
	}
	if err := k.Store.(*redisstore.Store).Probe(t.Context(), k.batch(there[0]).Partition); err != nil {
		t.Errorf("a partition that takes writes: %v", err)
	}
}

// A server that begins to evict keys is noticed while it is in use.
func TestEvictionIsNoticed(t *testing.T) {
	s := redisproc.For(t, "--appendonly", "yes") // else that is logged
	var log bytes.Buffer
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})}
	if log.Len() > 0 || k.meter("quipu_redis_evicting_servers") != 0 {
		t.Fatalf("logged %s", &log)
	}
	command(t, s, "config", "set", "maxmemory-policy", "allkeys-lru")
	k.Store.(*redisstore.Store).CheckNow(t.Context())
	if !strings.Contains(log.String(), "noeviction") || k.meter("quipu_redis_evicting_servers") != 1 {
		t.Errorf("logged %s", &log)
	}
	log.Reset()
	k.Store.(*redisstore.Store).CheckNow(t.Context())
	if log.Len() > 0 {
		t.Errorf("logged again: %s", &log)
	}
	command(t, s, "config", "set", "maxmemory-policy", "noeviction")
	k.Store.(*redisstore.Store).CheckNow(t.Context())
	if k.meter("quipu_redis_evicting_servers") != 0 {
		t.Error("it still evicts")
	}
}

// A server that takes no writes says why, whatever else it answers.
func TestProbe(t *testing.T) {
	s := redisproc.For(t)
	st := open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2})
	probe := func(want string) {
		t.Helper()
		err := st.Probe(t.Context(), 1)
		if want == "" && err != nil || want != "" && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	probe("")
	command(t, s, "config", "set", "maxmemory", "1")
	probe("OOM")
	command(t, s, "config", "set", "maxmemory", "0")
	probe("")
	command(t, s, "replicaof", "127.0.0.1", "1")
	probe("READONLY")
	command(t, s, "replicaof", "no", "one")
	probe("")
}
