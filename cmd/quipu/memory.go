package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/quipudb/quipu/internal/memory"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/datagram"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/internal/server/rpc"
)

const (
	// processBytes is what a server takes that holds nothing and serves nobody, and
	// what its upkeep, its metrics and its log take beside that.
	processBytes = 48 << 20
	// memoryUnknown is taken for the memory of a machine that does not tell.
	memoryUnknown = 2 << 30
	// offHeapShare is which part of --memory the embedded store keeps where Go's
	// collector does not see it.
	offHeapShare = 3

	storeBytesMax      = 256 << 20
	requestBytesMax    = 64 << 20
	requestBytesMin    = 1 << 20
	connectionsMaxAuto = 10_000
	connectionsMinAuto = 16
)

// A memoryPlan says what each part of a server may hold. The parts that nobody
// chose are as large as they may be by default, or smaller if the total is.
type memoryPlan struct {
	total    int64
	of       string // where the total comes from
	store    int64
	requests int64 // of one budget
	budgets  int64 // how many there are: one of REST and RPC, one of RESP
	conns    int   // of each door
	perConns int64 // what one connection of each door takes together
	statsd   int64 // for lines of StatsD, if its door is open
}

// planMemory shares out the memory of a server.
func (c *serveCmd) planMemory(limit memory.Limit) (memoryPlan, error) {
	p := memoryPlan{total: int64(c.MemoryTotal), of: "--memory-total"}
	if p.total == 0 {
		if limit.Bytes == 0 {
			limit = memory.Limit{Bytes: memoryUnknown, By: "machine, which does not say how much it has: assumed"}
		}
		p.total = limit.Bytes / 4 * 3
		p.of = fmt.Sprintf("three quarters of the %s's %s", limit.By, formatSize(limit.Bytes))
	}
	if scheme, err := storeScheme(c.Store); err == nil && scheme == schemeEmbedded {
		if p.store = int64(c.Memory); p.store == 0 {
			p.store = min(max(p.total/4, memoryMin), storeBytesMax)
		}
	}
	if c.HTTP != doorOff || c.RPC != doorOff {
		p.budgets++
	}
	if c.RESP != doorOff {
		p.budgets++
	}
	if c.takesStatsD() {
		p.statsd = datagram.MemoryMax
	}
	if p.requests = int64(c.RequestMemory); p.requests == 0 {
		p.requests = min(max(p.total/16, requestBytesMin), requestBytesMax)
	}
	for _, d := range []struct {
		addr  string
		bytes int64
	}{{c.HTTP, rest.ConnBytesMax}, {c.RESP, resp.ConnBytesMax}, {c.RPC, rpc.ConnBytesMax}} {
		if d.addr != doorOff {
			p.perConns += d.bytes
		}
	}
	if c.MaxConnections != nil {
		p.conns = *c.MaxConnections
	} else {
		fit := (p.total - processBytes - p.store - p.statsd - p.budgets*p.requests) / max(p.perConns, 1)
		p.conns = int(min(max(fit, connectionsMinAuto), connectionsMaxAuto))
	}
	if p.sum() > p.total {
		return p, fmt.Errorf("the parts of the server may take %s, and the total is %s (%s): %s; lower --memory, --request-memory or --max-connections, or raise --memory-total",
			formatSize(p.sum()), formatSize(p.total), p.of, p)
	}
	return p, nil
}

func (p memoryPlan) connections() int64 { return int64(p.conns) * p.perConns }

func (p memoryPlan) sum() int64 {
	return processBytes + p.store + p.statsd + p.budgets*p.requests + p.connections()
}

// String lists the parts.
func (p memoryPlan) String() string {
	var b strings.Builder
	if p.store > 0 {
		fmt.Fprintf(&b, "--memory %s, ", formatSize(p.store))
	}
	fmt.Fprintf(&b, "--request-memory %s", formatSize(p.requests))
	if p.budgets > 1 {
		fmt.Fprintf(&b, " times %d", p.budgets)
	}
	if p.statsd > 0 {
		fmt.Fprintf(&b, ", --statsd %s", formatSize(p.statsd))
	}
	fmt.Fprintf(&b, ", --max-connections %d times %s, %s for the process itself",
		p.conns, formatSize(p.perConns), formatSize(processBytes))
	return b.String()
}

// parts returns the plan for the metrics.
func (p memoryPlan) parts() []server.MemoryPart {
	return []server.MemoryPart{
		{Name: "total", Bytes: p.total},
		{Name: "process", Bytes: processBytes},
		{Name: "store", Bytes: p.store},
		{Name: "requests", Bytes: p.budgets * p.requests},
		{Name: "connections", Bytes: p.connections()},
		{Name: "statsd", Bytes: p.statsd},
	}
}

// enforce has Go's collector keep to the plan, unless the environment says what
// it is to keep to.
func (p memoryPlan) enforce() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(p.total - p.store/offHeapShare)
	}
}
