package redisstore_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// faults runs what may happen to a cluster under load.
func faults(t *testing.T, replicas int, check func(l *load), during func(c *redisproc.Cluster) error) {
	t.Helper()
	c, url := clusterURL(t)
	if err := c.Flush(t.Context()); err != nil { // Other tests leave keys that no command line can name.
		t.Fatal(err)
	}
	k := kit{t, open(t, url, redisstore.Options{Prefix: prefix(), Partitions: 12, Replicas: replicas})}
	l := newLoad(k, 3)
	l.round()
	if err := during(c); err != nil {
		t.Fatal(err) // Who insists might never be answered now.
	}
	l.round()
	l.stop()
	if err := c.AwaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(l)
}

func TestClusterFailover(t *testing.T) {
	faults(t, 0, func(l *load) {
		// A failover by hand hands everything over.
		l.exact()
	}, func(c *redisproc.Cluster) error {
		for slot := 100; slot < 16384; slot += 16384 / 3 {
			_, replica, err := c.Owner(t.Context(), slot)
			if err != nil {
				return err
			}
			if err := c.Failover(t.Context(), replica); err != nil {
				return err
			}
		}
		return nil
	})
}

// kill kills the master of a slot, waits until its replica has taken over and
// starts it again.
func kill(t *testing.T, c *redisproc.Cluster, slot int) error {
	master, replica, err := c.Owner(t.Context(), slot)
	if err != nil {
		return err
	}
	if err := master.Kill(); err != nil {
		return err
	}
	if err := replica.AwaitMaster(t.Context()); err != nil {
		return err
	}
	return master.Restart(t.Context())
}

func TestClusterMasterKilled(t *testing.T) {
	faults(t, 0, func(l *load) {
		// The replica may have missed the last of it. That is said.
		missing := l.honest()
		if (l.losses() > 0) != (l.meter("quipu_redis_lost_total") > 0) || (missing > 0 && l.losses() == 0) {
			t.Errorf("%d are missing: %d rows were told, %v metered", missing, l.losses(), l.meter("quipu_redis_lost_total"))
		}
		t.Logf("%d of the acknowledged are missing, and %d writers were told", missing, l.losses())
	}, func(c *redisproc.Cluster) error { return kill(t, c, 100) })
}

func TestClusterMasterKilledWithReplicas(t *testing.T) {
	faults(t, 1, func(l *load) {
		// What was acknowledged was on the replica that took over.
		l.exact()
		if l.meter("quipu_redis_waits_total") == 0 {
			t.Error("nothing waited for a replica")
		}
	}, func(c *redisproc.Cluster) error { return kill(t, c, 100) })
}

func TestClusterSlotsMoved(t *testing.T) {
	faults(t, 0, func(l *load) {
		l.exact()
		if l.meter("quipu_redis_resends_total") == 0 {
			t.Error("slots were moved, and nothing was sent again")
		}
	}, func(c *redisproc.Cluster) error {
		// Every partition moves to another master.
		for _, slot := range redisstore.Slots(12) {
			from, _, err := c.Owner(t.Context(), slot)
			to := from
			for i := 1; to == from && err == nil; i++ {
				to, _, err = c.Owner(t.Context(), (slot+i*16384/3)%16384)
			}
			if err != nil {
				return err
			}
			if err := c.Move(t.Context(), slot, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// Partitions are in the slots that were chosen for them.
func TestClusterSlots(t *testing.T) {
	c, url := clusterURL(t)
	if err := c.AwaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := redisstore.Options{Prefix: prefix(), Partitions: 9, Replicas: 1}
	k := kit{t, open(t, url, o)}
	for p, slot := range redisstore.Slots(o.Partitions) {
		if r := k.reply(store.Batch{Partition: p, Writer: 1, Seq: 1}); r.Durability != store.Synced {
			t.Fatalf("acknowledged as %v", r.Durability)
		}
		master, _, err := c.Owner(t.Context(), slot)
		if err != nil {
			t.Fatal(err)
		}
		// Its servers keep no log, so it is the replica that is waited for.
		if stats := command(t, master, "info", "commandstats"); !strings.Contains(stats, "cmdstat_wait:") || strings.Contains(stats, "cmdstat_waitaof:") {
			t.Fatalf("waited by %q", stats)
		}
		keys := command(t, master, "cluster", "getkeysinslot", strconv.Itoa(slot), "1000")
		if !strings.Contains(keys, o.Prefix+":{") {
			t.Fatalf("slot %d of partition %d has %q", slot, p, keys)
		}
	}
}
