package faults

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// A redisCluster is three masters and their replicas, to each of which a way of
// its own leads.
type redisCluster struct{ *redisproc.Cluster }

// startCluster starts one, and returns its URL by way of the ways too.
func startCluster(t *testing.T) (c redisCluster, url string, ways []*proxy) {
	t.Helper()
	started, err := redisproc.StartCluster(t.Context(), t.TempDir(), synced...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	c = redisCluster{started}
	var addrs []string
	for _, s := range c.Nodes {
		way := newProxy(t, s.Addr)
		ways, addrs = append(ways, way), append(addrs, way.Listen)
		s.Addr = way.Listen // so the cluster knows it from now on
		if err := announce(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.known(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
	return c, "redis://" + strings.Join(addrs, ","), ways
}

// announce makes a server tell everybody the port of the way to it.
func announce(ctx context.Context, s *redisproc.Server) error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err == nil {
		_, err = s.Command(ctx, "config", "set", "cluster-announce-port", port)
	}
	return err
}

// known waits until all servers know each other by some addresses.
func (c redisCluster) known(ctx context.Context, addrs []string) error {
	return await(ctx, "the servers know the ways to each other", func() bool {
		for _, s := range c.Nodes {
			out, err := s.Command(ctx, "cluster", "nodes")
			if err != nil {
				return false
			}
			for _, addr := range addrs {
				if !strings.Contains(out, addr) {
					return false
				}
			}
		}
		return true
	})
}

// restart starts a server again that was killed.
func restart(ctx context.Context, s *redisproc.Server) error {
	if err := s.Restart(ctx); err != nil {
		return err
	}
	return announce(ctx, s)
}

const slots = 16384

// some returns any master and its replica.
func (c redisCluster) some(ctx context.Context, w *world) (master, replica *redisproc.Server, err error) {
	master, replica, err = c.Owner(ctx, w.rng.IntN(slots))
	if err == nil && replica == nil {
		err = errors.New("a master has no replica")
	}
	return master, replica, err
}

// masterKilled kills a master. Its replica takes over.
func (c redisCluster) masterKilled() fault {
	return fault{name: "master killed", run: func(ctx context.Context, w *world) error {
		master, replica, err := c.some(ctx, w)
		if err != nil {
			return err
		}
		if err := master.Kill(); err != nil {
			return err
		}
		if err := replica.AwaitMaster(ctx); err != nil {
			return err
		}
		w.hold(ctx)
		return restart(ctx, master)
	}}
}

// masterKilledAhead kills a master that has what its replica never gets to see.
func (c redisCluster) masterKilledAhead() fault {
	return fault{name: "master killed, replica behind", run: func(ctx context.Context, w *world) error {
		master, replica, err := c.some(ctx, w)
		if err != nil {
			return err
		}
		if err := syscall.Kill(replica.PID(), syscall.SIGSTOP); err != nil {
			return err
		}
		_, err = master.Command(ctx, "client", "kill", "type", "replica")
		pause(300*time.Millisecond, ctx.Done())
		err = errors.Join(err, master.Kill(), syscall.Kill(replica.PID(), syscall.SIGCONT))
		if err != nil {
			return err
		}
		return errors.Join(replica.AwaitMaster(ctx), restart(ctx, master))
	}}
}

// masterFrozen freezes a master until its replica has taken over. When it thaws,
// it believes for a moment that it is still the master.
func (c redisCluster) masterFrozen() fault {
	return fault{name: "master frozen", run: func(ctx context.Context, w *world) error {
		master, replica, err := c.some(ctx, w)
		if err != nil {
			return err
		}
		if err := syscall.Kill(master.PID(), syscall.SIGSTOP); err != nil {
			return err
		}
		err = replica.AwaitMaster(ctx)
		w.hold(ctx)
		return errors.Join(err, syscall.Kill(master.PID(), syscall.SIGCONT))
	}}
}

// failover has a replica take over in peace.
func (c redisCluster) failover() fault {
	return fault{name: "CLUSTER FAILOVER", run: func(ctx context.Context, w *world) error {
		_, replica, err := c.some(ctx, w)
		if err != nil {
			return err
		}
		return c.Failover(ctx, replica)
	}}
}

// slotMoved moves a slot with keys in it to another master.
func (c redisCluster) slotMoved() fault {
	return fault{name: "slot moved", run: func(ctx context.Context, w *world) error {
		from, _, err := c.some(ctx, w)
		if err != nil {
			return err
		}
		key, err := from.Command(ctx, "randomkey")
		if err != nil {
			return err
		}
		number, err := from.Command(ctx, "cluster", "keyslot", key)
		if err != nil {
			return err
		}
		slot, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		to := from
		for to == from {
			if to, _, err = c.some(ctx, w); err != nil {
				return err
			}
		}
		return c.Move(ctx, slot, to)
	}}
}
