package resp

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/store"
)

// A section is a part of what INFO replies.
type section struct {
	name   string
	more   bool // only if it is asked for
	fields func(ctx context.Context, s *session) []string
}

func sections() []section {
	return []section{
		{name: "Server", fields: infoServer},
		{name: "Clients", fields: infoClients},
		{name: "Memory", fields: infoMemory},
		{name: "Persistence", fields: infoPersistence},
		{name: "Stats", fields: infoStats},
		{name: "Replication", fields: lines("role:master", "connected_slaves:0", "master_repl_offset:0")},
		{name: "CPU", fields: infoCPU},
		{name: "Commandstats", more: true, fields: infoCommands},
		{name: "Cluster", fields: lines("cluster_enabled:0")},
		{name: "Keyspace", fields: infoKeyspace},
	}
}

// info replies what monitoring tools read.
func info(ctx context.Context, s *session, args [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	var b strings.Builder
	for _, part := range sections() {
		if !part.wanted(args[1:]) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + part.name + "\r\n")
		for _, f := range part.fields(ctx, s) {
			b.WriteString(f + "\r\n")
		}
	}
	s.verbatim(b.String())
	return nil
}

// wanted reports whether a section is among those that are asked for.
func (p *section) wanted(names [][]byte) bool {
	return !p.more && len(names) == 0 || slices.ContainsFunc(names, func(a []byte) bool {
		return is(a, strings.ToUpper(p.name)) || is(a, "ALL") || is(a, "EVERYTHING") || is(a, "DEFAULT") && !p.more
	})
}

func lines(fields ...string) func(context.Context, *session) []string {
	return func(context.Context, *session) []string { return fields }
}

func infoServer(_ context.Context, s *session) []string {
	now := time.Now()
	uptime := int64(now.Sub(s.d.start) / time.Second)
	return []string{
		"redis_version:" + redisVersion,
		"quipu_version:" + s.d.options.Version,
		"redis_mode:standalone",
		"os:" + runtime.GOOS + " " + runtime.GOARCH,
		"arch_bits:" + strconv.Itoa(strconv.IntSize),
		fmt.Sprintf("process_id:%d", os.Getpid()),
		"run_id:" + s.d.run,
		fmt.Sprintf("server_time_usec:%d", now.UnixMicro()),
		fmt.Sprintf("uptime_in_seconds:%d", uptime),
		fmt.Sprintf("uptime_in_days:%d", uptime/86400),
	}
}

func infoClients(_ context.Context, s *session) []string {
	tracking, _, _, _, _ := s.d.tracker.counts()
	return []string{
		fmt.Sprintf("connected_clients:%d", s.d.connected()),
		fmt.Sprintf("maxclients:%d", s.d.options.ConnectionsMax),
		"blocked_clients:0",
		fmt.Sprintf("tracking_clients:%d", tracking),
	}
}

func infoMemory(_ context.Context, s *session) []string {
	memory := readHeap()
	return []string{
		fmt.Sprintf("used_memory:%d", memory.inUse),
		fmt.Sprintf("used_memory_human:%.2fM", float64(memory.inUse)/(1<<20)),
		fmt.Sprintf("used_memory_rss:%d", memory.resident),
		fmt.Sprintf("mem_clients_normal:%d", s.d.buffered.Load()),
		fmt.Sprintf("maxmemory:%d", s.d.memory.max.Load()),
		"maxmemory_policy:noeviction",
	}
}

// logs reports whether the store keeps a log of its own that is appended to: what
// Redis calls AOF. Other stores are as durable as what is behind them.
func (d *Door) logs() bool {
	t := d.db.Port().Traits()
	return !t.Shared && t.Durability > store.Memory
}

func infoPersistence(_ context.Context, s *session) []string {
	aof := 0
	if s.d.logs() {
		aof = 1
	}
	t := s.d.db.Port().Traits()
	return []string{
		"loading:0",
		fmt.Sprintf("aof_enabled:%d", aof),
		"rdb_changes_since_last_save:0",
		"quipu_store:" + t.Name,
		"quipu_durability:" + t.Durability.String(),
	}
}

func infoStats(_ context.Context, s *session) []string {
	m := &s.d.meters
	_, keys, items, prefixes, _ := s.d.tracker.counts()
	channels, patterns := s.d.hub.counts()
	return []string{
		fmt.Sprintf("total_connections_received:%d", m.connections.Load()),
		fmt.Sprintf("total_commands_processed:%d", m.commands.Load()),
		fmt.Sprintf("evicted_clients:%d", m.evicted.Load()),
		fmt.Sprintf("pubsub_channels:%d", channels),
		fmt.Sprintf("pubsub_patterns:%d", patterns),
		fmt.Sprintf("tracking_total_keys:%d", keys),
		fmt.Sprintf("tracking_total_items:%d", items),
		fmt.Sprintf("tracking_total_prefixes:%d", prefixes),
	}
}

func infoCPU(context.Context, *session) []string {
	system, user := cpuTime()
	return []string{fmt.Sprintf("used_cpu_sys:%.6f", system.Seconds()), fmt.Sprintf("used_cpu_user:%.6f", user.Seconds())}
}

// infoKeyspace tells how many counters the databases of the user have. How many of
// them expire, and when, is reckoned from a sample.
func infoKeyspace(ctx context.Context, s *session) (fields []string) {
	for i, db := range s.databases() {
		if s.checked && s.view.Principal.Prefix(db.Port().Namespace(), "")&access.Read == 0 {
			continue
		}
		n, err := db.Size(ctx)
		if err != nil || n == 0 {
			continue
		}
		expires, ttl := int64(0), int64(0)
		if l, err := db.Port().Lifetimes(ctx); err == nil && l.Sampled > 0 {
			expires, ttl = n*int64(l.Expiring)/int64(l.Sampled), l.Mean.Milliseconds()
		}
		fields = append(fields, fmt.Sprintf("db%d:keys=%d,expires=%d,avg_ttl=%d", i, n, expires, ttl))
	}
	return fields
}
