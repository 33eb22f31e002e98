package redisstore

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/store"
)

// How often the servers' settings are looked at, besides after any sign that the
// servers are not the same, and how long a batch waits for that.
const (
	settingsEvery    = 10 * time.Second
	settingsPatience = time.Second
)

// settings is what matters of how the servers are set up.
type settings struct {
	syncs  bool   // all of them sync before they answer
	logs   bool   // all of them sync soon, and tell when they have
	evicts string // the policy of one that may drop keys
}

// hear takes what a server tells of itself.
func (set *settings) hear(got map[string]string) {
	keeps := got["appendonly"] == "yes"
	set.syncs = set.syncs && keeps && got["appendfsync"] == "always"
	set.logs = set.logs && keeps && (got["appendfsync"] == "always" || got["appendfsync"] == "everysec") && got["waitaof"] == "yes"
	if policy := got["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		set.evicts = policy
	}
}

// settings asks every server that can be reached, replicas too: they take over.
// What a server does not tell counts as not syncing, and as not evicting.
func (s *Store) settings(ctx context.Context) (settings, error) {
	set := settings{syncs: true, logs: true}
	var unreached error
	answered := false
	for _, node := range s.client.Nodes() {
		got, err := configOf(ctx, node)
		if err != nil {
			unreached = err
			continue
		}
		answered = true
		set.hear(got)
	}
	if !answered {
		if ctx.Err() != nil {
			return set, ctx.Err()
		}
		return set, store.Errorf(store.KindUnavailable, "redis: no server answers: %w", unreached)
	}
	return set, nil
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
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
			return nil, err
		}
		for line := range strings.Lines(info) {
			if policy, ok := strings.CutPrefix(line, "maxmemory_policy:"); ok {
				all["maxmemory-policy"] = strings.TrimSpace(policy)
			}
		}
	}
	return all, nil
}

// A verdict is what the servers' settings were found to mean, and how often the
// servers may have become others before that.
type verdict struct {
	doubts      uint64
	syncs, logs bool
}

// durability is what an acknowledgement means that was just given to a batch that
// asked for one. If the servers may have become others, they are asked first.
func (s *Store) durability(ctx context.Context, asked store.Durability) store.Durability {
	if s.waits(asked) != noWait {
		return store.Synced
	}
	v := s.verdict.Load()
	if v.doubts != s.doubts.Load() {
		v = s.doubted(ctx)
	}
	if v.syncs {
		return store.Synced
	}
	return store.Written
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

// doubted asks the servers, unless somebody else just did. If they do not answer,
// no more is claimed until the next look.
func (s *Store) doubted(ctx context.Context) *verdict {
	s.asking.Lock()
	defer s.asking.Unlock()
	if v := s.verdict.Load(); v.doubts == s.doubts.Load() {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	for range 5 { // to ask may take new connections, of a few to a server, and each is another doubt
		_, err := s.check(ctx)
		if v := s.verdict.Load(); err != nil || v.doubts == s.doubts.Load() {
			return v
		}
	}
	return &verdict{}
}

// check asks the servers for their settings. What they say holds for the doubts
// there were before they were asked.
func (s *Store) check(ctx context.Context) (settings, error) {
	doubts := s.doubts.Load()
	set, err := s.settings(ctx)
	s.verdict.Store(&verdict{doubts, err == nil && set.syncs, err == nil && set.logs})
	return set, err
}

// watch looks at the servers' settings every so often.
func (s *Store) watch(ctx context.Context) {
	t := time.NewTicker(settingsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_, _ = s.check(ctx)
		}
	}
}
