package faults

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
)

// TestPostgres breaks what is between two nodes and PostgreSQL, a node, and
// PostgreSQL.
func TestPostgres(t *testing.T) {
	rng := replay(t)
	s, addr := startPostgres(t)
	var nodes [2]*node
	for i := range nodes {
		way := newProxy(t, addr)
		nodes[i] = newNode(t, strconv.Itoa(i), "postgres://"+pgtest.User+"@"+way.Listen+"/postgres?sslmode=disable", []*proxy{way})
	}
	w := newWorld(t, "PostgreSQL", rng, nodes)
	w.suffers(t, append(wayFaults(false), nodeKilled(), fault{name: "PostgreSQL killed", run: func(ctx context.Context, w *world) error {
		if err := s.Kill(ctx); err != nil {
			return err
		}
		return errors.Join(w.outage(ctx, 0, 1), s.Restart(ctx))
	}}), "resets", "PostgreSQL killed")
	t.Run("same token", w.sameToken)
	t.Run("answer lost", w.answerLost)
	t.Run("linearizable", w.linearizable)
}

// startPostgres starts a server that syncs, and returns where it listens.
func startPostgres(t *testing.T) (*pgtest.Server, string) {
	t.Helper()
	s := pgtest.For(t)
	return s, relay(t, filepath.Join(s.Dir(), ".s.PGSQL.5432"))
}

// synced are the settings of a Redis that syncs before it answers.
var synced = []string{"--appendonly", "yes", "--appendfsync", "always"}

// TestRedis breaks what is between two nodes and a single Redis, a node, and the
// Redis.
func TestRedis(t *testing.T) {
	rng := replay(t)
	s := redisproc.For(t, synced...)
	var nodes [2]*node
	for i := range nodes {
		way := newProxy(t, s.Addr)
		nodes[i] = newNode(t, strconv.Itoa(i), "redis://"+way.Listen, []*proxy{way})
	}
	w := newWorld(t, "Redis, appendfsync always", rng, nodes)
	w.suffers(t, append(wayFaults(false), nodeKilled(),
		fault{name: "Redis killed", run: func(ctx context.Context, w *world) error {
			if err := s.Kill(); err != nil {
				return err
			}
			return errors.Join(w.outage(ctx, 0, 1), s.Restart(ctx))
		}},
		fault{name: "Redis frozen", run: func(ctx context.Context, w *world) error {
			// What was sent before arrives when it thaws, after it was sent again.
			if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
				return err
			}
			err := w.outage(ctx, 0, 1)
			return errors.Join(err, syscall.Kill(s.PID(), syscall.SIGCONT))
		}}), "node killed")
	t.Run("same token", w.sameToken)
	t.Run("answer lost", w.answerLost)
}

// TestCluster breaks a Redis Cluster under two nodes. A master that is gone may
// take with it what its replica did not have yet.
func TestCluster(t *testing.T) {
	cluster(t, "Redis Cluster, asynchronous replication", true)
}

// TestClusterReplicas does the same, with nodes that acknowledge what a replica
// has.
func TestClusterReplicas(t *testing.T) {
	cluster(t, "Redis Cluster, --redis-replicas 1", false, "--redis-replicas", "1")
}

func cluster(t *testing.T, name string, loses bool, args ...string) {
	rng := replay(t)
	c, url, ways := startCluster(t)
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = newNode(t, strconv.Itoa(i), url, ways, args...)
	}
	w := newWorld(t, name, rng, nodes)
	faults := append(wayFaults(true), nodeKilled(), c.failover(), c.slotMoved())
	for _, f := range []fault{c.masterKilled(), c.masterKilledAhead(), c.masterFrozen()} {
		f.loses = loses
		faults = append(faults, f)
	}
	for i, f := range faults {
		faults[i].run = func(ctx context.Context, w *world) error {
			if err := c.AwaitHealthy(ctx); err != nil {
				return err
			}
			return f.run(ctx, w)
		}
	}
	w.suffers(t, faults, "master killed, replica behind")
	t.Run("same token", w.sameToken)
}
