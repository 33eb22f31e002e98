package redisproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slots of a Redis Cluster.
const slots = 16384

// masters of each Cluster.
const masters = 3

// A Cluster is one of our own on the loopback: three masters, which share the
// slots, and perhaps a replica of each.
type Cluster struct {
	Nodes []*Server // the masters, then their replicas, as they were at the start
}

// StartCluster starts a cluster that keeps its files in dir, and returns when it
// serves. A master that is gone is replaced after about a second. It must be
// stopped.
func StartCluster(ctx context.Context, dir string, settings ...string) (*Cluster, error) {
	return startNodes(ctx, dir, 2*masters, settings)
}

// StartMasters is StartCluster without replicas: nobody replaces a master that is
// gone, and the others go on without it.
func StartMasters(ctx context.Context, dir string, settings ...string) (*Cluster, error) {
	return startNodes(ctx, dir, masters, settings)
}

func startNodes(ctx context.Context, dir string, nodes int, settings []string) (*Cluster, error) {
	c := &Cluster{}
	for i := range nodes {
		if err := c.startNode(ctx, filepath.Join(dir, strconv.Itoa(i)), settings); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	if err := c.join(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) startNode(ctx context.Context, dir string, settings []string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	port, err := freeClusterPort()
	if err != nil {
		return err
	}
	s, err := start(ctx, dir, port, append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}, settings...)...)
	if err == nil {
		c.Nodes = append(c.Nodes, s)
	}
	return err
}

// freeClusterPort returns a port that was free a moment ago, as was the one
// 10,000 above it, on which the nodes of a cluster talk.
func freeClusterPort() (string, error) {
	for {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return "", err
		}
		if n > 55535 {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n+10000)))
		if err == nil {
			return port, l.Close()
		}
	}
}

// join makes a cluster of the nodes.
func (c *Cluster) join(ctx context.Context) error {
	for i, s := range c.Nodes {
		commands := [][]string{{"cluster", "set-config-epoch", strconv.Itoa(i + 1)}}
		if i < masters {
			commands = append(commands, []string{
				"cluster", "addslotsrange", strconv.Itoa(i * slots / masters), strconv.Itoa((i+1)*slots/masters - 1),
			})
		}
		if i > 0 {
			commands = append(commands, []string{"cluster", "meet", "127.0.0.1", c.Nodes[0].Port})
		}
		for _, args := range commands {
			if _, err := s.Command(ctx, args...); err != nil {
				return err
			}
		}
	}
	for _, s := range c.Nodes {
		if err := s.await(ctx, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes)), "cluster", "info"); err != nil {
			return err
		}
	}
	for i, s := range c.Nodes[masters:] {
		id, err := c.Nodes[i].Command(ctx, "cluster", "myid")
		if err != nil {
			return err
		}
		if err := s.await(ctx, id, "cluster", "nodes"); err != nil {
			return err
		}
		if _, err := s.Command(ctx, "cluster", "replicate", id); err != nil {
			return err
		}
	}
	return c.AwaitHealthy(ctx)
}

// AwaitHealthy returns when all nodes serve and agree on who has which slots, and
// every replica follows its master.
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	for _, s := range c.Nodes {
		if err := s.await(ctx, "cluster_state:ok", "cluster", "info"); err != nil {
			return err
		}
		for {
			nodes, err := s.Command(ctx, "cluster", "nodes")
			if err != nil {
				return err
			}
			if !strings.Contains(nodes, "fail") && strings.Count(nodes, "slave") == len(c.Nodes)-masters {
				break
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
		role, err := s.Command(ctx, "role")
		if err != nil {
			return err
		}
		if strings.HasPrefix(role, "slave") {
			if err := s.await(ctx, "master_link_status:up", "info", "replication"); err != nil {
				return err
			}
		}
	}
	for {
		views := make(map[string]bool)
		for _, s := range c.Nodes {
			nodes, err := s.Command(ctx, "cluster", "nodes")
			if err != nil {
				return err
			}
			views[owners(nodes)] = true
		}
		if len(views) == 1 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// owners returns who has which slots, as CLUSTER NODES has it.
func owners(nodes string) string {
	var all []string
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); strings.Contains(f[2], "master") {
			ranges := slices.DeleteFunc(f[8:], func(r string) bool { return strings.HasPrefix(r, "[") }) // slots on their way
			all = append(all, f[0]+" "+strings.Join(ranges, " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// await asks the same until the answer has some text in it.
func (s *Server) await(ctx context.Context, text string, args ...string) error {
	for {
		out, err := s.Command(ctx, args...)
		if err == nil && strings.Contains(out, text) {
			return nil
		}
		if perr := pause(ctx); perr != nil {
			return errors.Join(fmt.Errorf("wait for %q of %s: %s", text, s.Addr, out), err, perr)
		}
	}
}

// pause is between two looks at a server.
func pause(ctx context.Context) error {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Owner returns the master that has a slot, as the first node that answers sees
// it, and a replica of it, nil if there is none.
func (c *Cluster) Owner(ctx context.Context, slot int) (master, replica *Server, err error) {
	for _, s := range c.Nodes {
		out, err := s.Command(ctx, "cluster", "nodes")
		if err != nil {
			continue
		}
		id := ""
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if strings.Contains(f[2], "master") && !strings.Contains(f[2], "fail") && hasSlot(f[8:], slot) {
				id, master = f[0], c.at(f[1])
			}
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); id != "" && f[3] == id && !strings.Contains(f[2], "fail") {
				replica = c.at(f[1])
			}
		}
		if master != nil {
			return master, replica, nil
		}
	}
	return nil, nil, fmt.Errorf("nobody has slot %d", slot)
}

func hasSlot(ranges []string, slot int) bool {
	for _, r := range ranges {
		from, to, more := strings.Cut(r, "-")
		if !more {
			to = from
		}
		low, err := strconv.Atoi(from)
		if err != nil {
			continue // a slot that is on its way
		}
		high, err := strconv.Atoi(to)
		if err == nil && low <= slot && slot <= high {
			return true
		}
	}
	return false
}

// at returns the node of an address as CLUSTER NODES has it.
func (c *Cluster) at(addr string) *Server {
	addr, _, _ = strings.Cut(addr, "@")
	for _, s := range c.Nodes {
		if s.Addr == addr {
			return s
		}
	}
	return nil
}

// Failover makes a replica the master in place of its own, and returns when it
// is.
func (c *Cluster) Failover(ctx context.Context, replica *Server) error {
	if _, err := replica.Command(ctx, "cluster", "failover"); err != nil {
		return err
	}
	return replica.AwaitMaster(ctx)
}

// Flush removes all keys.
func (c *Cluster) Flush(ctx context.Context) error {
	for _, s := range c.Nodes {
		role, err := s.Command(ctx, "role")
		if err == nil && strings.HasPrefix(role, "master") {
			_, err = s.Command(ctx, "flushall")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Move moves a slot, with everything in it, to another master.
func (c *Cluster) Move(ctx context.Context, slot int, to *Server) error {
	from, _, err := c.Owner(ctx, slot)
	if err != nil {
		return err
	}
	ids := make(map[*Server]string)
	for _, s := range []*Server{from, to} {
		if ids[s], err = s.Command(ctx, "cluster", "myid"); err != nil {
			return err
		}
	}
	number := strconv.Itoa(slot)
	if _, err := to.Command(ctx, "cluster", "setslot", number, "importing", ids[from]); err != nil {
		return err
	}
	if _, err := from.Command(ctx, "cluster", "setslot", number, "migrating", ids[to]); err != nil {
		return err
	}
	for {
		keys, err := from.Command(ctx, "cluster", "getkeysinslot", number, "100")
		if err != nil {
			return err
		}
		if keys == "" {
			break
		}
		migrate := append([]string{"migrate", "127.0.0.1", to.Port, "", "0", "5000", "keys"}, strings.Split(keys, "\n")...)
		if _, err := from.Command(ctx, migrate...); err != nil {
			return err
		}
	}
	for _, s := range []*Server{to, from} {
		if _, err := s.Command(ctx, "cluster", "setslot", number, "node", ids[to]); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all nodes, those that were killed too.
func (c *Cluster) Stop() error {
	var errs []error
	for _, s := range c.Nodes {
		if s.cmd.ProcessState == nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}

// AwaitMaster returns when a server is a master.
func (s *Server) AwaitMaster(ctx context.Context) error {
	return s.await(ctx, "role:master", "info", "replication")
}
