package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/datagram"
	"github.com/quipudb/quipu/store"
)

func (c *serveCmd) takesStatsD() bool { return c.StatsD != "" && c.StatsD != doorOff }

// resolveStatsD returns the address for StatsD. Datagrams carry no key, so that
// other machines need --insecure.
func (c *serveCmd) resolveStatsD() (*net.UDPAddr, error) {
	addr, err := net.ResolveUDPAddr("udp", c.StatsD)
	switch {
	case err != nil:
		return nil, &flagError{"statsd", fmt.Errorf("listen on %q: %w", c.StatsD, err)}
	case !addr.IP.IsLoopback() && !c.Insecure:
		return nil, &flagError{"statsd", fmt.Errorf("listen on %s: other machines can reach this address, and StatsD has no keys: give --insecure if the network is trusted", c.StatsD)}
	case c.ReadOnly:
		return nil, &flagError{"statsd", errors.New("a server with --read-only takes no writes")}
	}
	if err := store.CheckNamespace(c.StatsDNamespace); err != nil {
		return nil, &flagError{"statsd-namespace", err}
	}
	return addr, nil
}

// addStatsD opens the door for datagrams, if it is not off.
func (c *serveCmd) addStatsD(s *server.Server, m means) (closeDoor func(), err error) {
	if !c.takesStatsD() {
		return func() {}, nil
	}
	addr, err := c.resolveStatsD()
	if err != nil {
		return nil, err
	}
	socket, err := datagram.Listen(addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--statsd %s: %w; choose another with --statsd, or --statsd off", c.StatsD, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, fmt.Errorf("--statsd: %w", err)
	}
	d := datagram.New(m.db.In(c.StatsDNamespace), datagram.Options{Logger: m.logger})
	m.metrics.WatchMeter(d)
	s.Add("statsd", socket, d)
	return func() { _ = d.Close() }, nil
}
