package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/clock"
)

// meters count what the store does.
type meters struct {
	calls, conflicts, resends, waits, unmet, lost, expired, evicting atomic.Uint64
}

// Meters reports what the store did.
func (s *Store) Meters(f func(name, help string, value float64)) {
	m := &s.meters
	for _, x := range []struct {
		name, help string
		n          *atomic.Uint64
	}{
		{"quipu_redis_calls_total", "Scripts called.", &m.calls},
		{"quipu_redis_conflicts_total", "Decisions made again because what they were made on had changed.", &m.conflicts},
		{"quipu_redis_resends_total", "Batches sent again because the server could not serve, or its answer was lost.", &m.resends},
		{"quipu_redis_waits_total", "Calls that waited for replicas.", &m.waits},
		{"quipu_redis_waits_unmet_total", "Calls for which too few replicas answered in time.", &m.unmet},
		{"quipu_redis_lost_total", "Calls refused because what was acknowledged before is missing in the server.", &m.lost},
		{"quipu_redis_expired_total", "Expired cells removed in the background or to make room.", &m.expired},
		{"quipu_redis_evicting_servers", "Servers that may drop counters when their memory is full.", &m.evicting},
	} {
		f(x.name, x.help, float64(x.n.Load()))
	}
	clock.Meters(f, time.Now(), s.clocks...)
}
