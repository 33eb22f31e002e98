package redisstore

import (
	"context"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/store"
)

// How often the servers' settings are looked at, and how long each server may take
// to tell them.
const (
	settingsEvery    = 10 * time.Second
	settingsPatience = time.Second
)

// settings is what matters of how the servers are set up.
type settings struct {
	keeps  store.Durability // what an answer of the weakest of them survives; 0 if it did not tell
	logs   bool             // all of them sync soon, and tell when they have
	evicts string           // the policy of one that may drop keys
}

// hear takes what a server tells of itself.
func (set *settings) hear(got map[string]string) {
	keeps := durabilityOf(got)
	set.keeps = min(set.keeps, keeps)
	set.logs = set.logs && keeps > store.Memory && (got["appendfsync"] == "always" || got["appendfsync"] == "everysec") && got["waitaof"] == "yes"
	if policy := got["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		set.evicts = policy
	}
}

// add takes what another server tells.
func (set *settings) add(other settings) {
	set.keeps, set.logs = min(set.keeps, other.keeps), set.logs && other.logs
	if other.evicts != "" {
		set.evicts = other.evicts
	}
}

// durabilityOf returns what an answer of a server survives. Without a log it is in
// the server's memory alone: snapshots are of some minutes ago. With one, the server
// hands it to the operating system before it answers, and may sync it too.
func durabilityOf(got map[string]string) store.Durability {
	switch {
	case got["appendonly"] != "yes":
		return store.Memory
	case got["appendfsync"] != "always":
		return store.Written
	}
	return store.Synced
}

// servers are the settings of the servers, as each told them last.
type servers struct {
	mu    sync.Mutex // guards the fields below
	told  map[string]settings
	heard map[string]bool // those that answered on a new connection since they were asked
}

// configOf returns the settings that a server tells, and whether it knows WAITAOF.
func configOf(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	all := make(map[string]string)
	for _, name := range []string{"appendonly", "appendfsync", "maxmemory-policy"} { // one by one: before 7.0 there is no other way
		got, err := node.Do(ctx, node.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
			return nil, err
		}
		maps.Copy(all, got)
	}
	known, err := node.Do(ctx, node.B().CommandInfo().CommandName("waitaof").Build()).ToArray()
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		return nil, err
	}
	if len(known) == 1 && !known[0].IsNil() {
		all["waitaof"] = "yes"
	}
	if all["maxmemory-policy"] == "" {
		if all["maxmemory-policy"], err = infoOf(ctx, node, "memory", "maxmemory_policy"); err != nil {
			return nil, err
		}
	}
	if all["appendonly"] == "" {
		enabled, err := infoOf(ctx, node, "persistence", "aof_enabled")
		if err != nil {
			return nil, err
		}
		if enabled == "1" {
			all["appendonly"] = "yes"
		}
	}
	return all, nil
}

// infoOf returns a field of INFO, which servers tell whose CONFIG is not for
// everyone. It is "" if they tell neither.
func infoOf(ctx context.Context, node rueidis.Client, section, field string) (string, error) {
	info, err := node.Do(ctx, node.B().Info().Section(section).Build()).ToString()
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		return "", err
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// A verdict is what the servers' settings were found to mean, and how many new
// connections had been answered before they were asked.
type verdict struct {
	doubts uint64
	keeps  store.Durability // 0 if not all told
	logs   bool
}

// durability is what an acknowledgement means that was just given to a batch that
// asked for one. A server that answers on a new connection may be another one, or
// set up anew: it is asked first. A server that does not answer has acknowledged
// nothing, so nobody waits for it.
func (s *Store) durability(ctx context.Context, asked store.Durability) store.Durability {
	if s.waits(asked) != noWait {
		return store.Synced
	}
	v := s.verdict.Load()
	if v.doubts != s.doubts.Load() {
		v = s.doubted(ctx)
	}
	return max(v.keeps, store.Memory)
}

// waits returns what a batch that asks for a durability waits for.
func (s *Store) waits(asked store.Durability) wait {
	if s.options.Replicas > 0 && (asked == store.Synced || asked == store.DurabilityDefault) {
		return forLogs
	}
	return noWait
}

// shown returns what a read waits for, so that what it shows is not taken back by
// a failover. Logs that are synced every second would take it as long.
func (s *Store) shown() wait {
	if s.options.Replicas > 0 {
		return forReplicas
	}
	return noWait
}

// doubted asks the servers that answered on a new connection, unless somebody else
// just did. If one does not tell, no more is claimed until it does.
func (s *Store) doubted(ctx context.Context) *verdict {
	s.asking.Lock()
	defer s.asking.Unlock()
	for range 5 { // asking may take new connections, of a few to a server, and each is another doubt
		doubts := s.doubts.Load()
		if v := s.verdict.Load(); v.doubts == doubts {
			return v
		}
		s.servers.mu.Lock()
		heard := s.servers.heard
		s.servers.heard = nil
		s.servers.mu.Unlock()
		nodes := s.client.Nodes()
		maps.DeleteFunc(nodes, func(addr string, _ rueidis.Client) bool { return !heard[addr] })
		told, _ := ask(ctx, nodes, settingsPatience)
		for addr := range nodes {
			if _, ok := told[addr]; !ok {
				told[addr] = settings{}
			}
		}
		s.weigh(doubts, told)
	}
	return &verdict{}
}

// check asks all servers for their settings, replicas too: they take over. One that
// does not answer counts as it was. What a server does not tell counts as not
// kept, and as not evicting.
func (s *Store) check(ctx context.Context, patience time.Duration) (settings, error) {
	doubts := s.doubts.Load()
	told, err := ask(ctx, s.client.Nodes(), patience)
	if len(told) == 0 {
		if ctx.Err() != nil {
			return settings{}, ctx.Err()
		}
		return settings{}, store.Errorf(store.KindUnavailable, "redis: no server answers: %w", err)
	}
	return s.weigh(doubts, told), nil
}

// ask asks servers for their settings side by side, and returns those of the ones
// that answer in time, and why another did not.
func ask(ctx context.Context, nodes map[string]rueidis.Client, patience time.Duration) (told map[string]settings, missed error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type reply struct {
		addr   string
		config map[string]string
		err    error
	}
	replies := make(chan reply, len(nodes)) // with room, since nobody waits for the late ones
	for addr, node := range nodes {
		go func() {
			config, err := configOf(ctx, node)
			replies <- reply{addr, config, err}
		}()
	}
	told = make(map[string]settings, len(nodes))
	for range nodes {
		select {
		case r := <-replies:
			if r.err != nil {
				missed = r.err
				continue
			}
			set := settings{keeps: store.Synced, logs: true}
			set.hear(r.config)
			told[r.addr] = set
		case <-ctx.Done(): // The client may still be connecting, which has a time limit of its own.
			return told, ctx.Err()
		}
	}
	return told, missed
}

// weigh takes what servers told of themselves, when there had been so many doubts,
// and returns what the servers that there are promise together.
func (s *Store) weigh(doubts uint64, told map[string]settings) settings {
	nodes := s.client.Nodes()
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	if s.servers.told == nil {
		s.servers.told = make(map[string]settings)
	}
	maps.Copy(s.servers.told, told)
	maps.DeleteFunc(s.servers.told, func(addr string, _ settings) bool { return nodes[addr] == nil })
	all, evicting := settings{keeps: store.Synced, logs: true}, 0
	for _, set := range s.servers.told {
		all.add(set)
		if set.evicts != "" {
			evicting++
		}
	}
	s.say(all.keeps)
	s.verdict.Store(&verdict{doubts, all.keeps, all.logs})
	if was := s.meters.evicting.Swap(uint64(evicting)); was == 0 && evicting > 0 && !s.options.AcceptEviction {
		s.options.Logger.Error("a Redis server may drop counters when its memory is full: set its maxmemory-policy to noeviction",
			"maxmemory-policy", all.evicts, "servers", evicting)
	}
	return all
}

// say logs what the servers' settings mean for replies if that is little, at the
// start and whenever it changes. It says nothing while a server does not tell.
func (s *Store) say(keeps store.Durability) {
	if keeps == 0 || s.options.Replicas > 0 {
		return
	}
	switch was := store.Durability(s.said.Swap(uint32(keeps))); {
	case was == keeps:
	case keeps == store.Memory:
		s.options.Logger.Warn("Redis keeps no log, so a restart loses acknowledged counts and replies state the durability memory; for synced, set appendonly yes and appendfsync always")
	case was != 0:
		s.options.Logger.Warn("the settings of Redis changed, and with them the durability that replies state", "was", was.String(), "is", keeps.String())
	}
}

// heard takes notice of the first bytes on a new connection to a server.
func (s *Store) heard(addr string) {
	s.servers.mu.Lock()
	if s.servers.heard == nil {
		s.servers.heard = make(map[string]bool)
	}
	s.servers.heard[addr] = true
	s.servers.mu.Unlock()
	s.doubts.Add(1)
}

// A newConn is a connection to a server that is listened to for its first bytes.
type newConn struct {
	net.Conn
	heard func() // nil after them
}

// Read reads from the connection. One goroutine at a time does.
func (c *newConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heard != nil {
		c.heard()
		c.heard = nil
	}
	return n, err
}

// watch looks at the servers' settings every so often, and when it is told to.
func (s *Store) watch(ctx context.Context) {
	t := time.NewTicker(settingsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.recheck:
		}
		_, _ = s.check(ctx, settingsPatience) // there is a next time
		s.findRoutes(ctx)
	}
}
