package port

import "time"

// HottestMax is how many counters Hottest returns at most.
const HottestMax = 500

// A HotCounter is one of those that are written to the most, as this DB sees it.
type HotCounter struct {
	Namespace string
	Key       string
	Rate      float64 // writes a second through this DB, those of the last second above all
	Shards    int     // how many cells it is laid out over

	// GrowthRate is by how much a second a counter that is split changes, whoever
	// writes to it; 0 if it is not split.
	GrowthRate float64

	// Waiting is which part of its writes' time was waiting for others who change
	// it, where the store can tell.
	Waiting float64

	// RetryRate is how many of its writes a second had to be made again, because
	// others had changed it or its layout meanwhile, where the store can tell.
	RetryRate float64

	// P99 is how long the slowest write in a hundred took of late, and SlowestShard
	// the same of the shard where that is the longest; 0 if it is not split.
	P99, SlowestShard time.Duration

	// Asked is which part of its writes ask for its value. Decided is which part only
	// its own cell can take, so that no shard helps: those, and writes that have a
	// token or a condition, set it, or take away from it.
	Asked, Decided float64

	// RollupAge is how old the total is that is kept for readers, if HasRollup is
	// set, and RollupEvery how often it is refreshed.
	RollupAge, RollupEvery time.Duration
	HasRollup              bool
}

// Hottest returns up to n of the counters that are written to the most, of all
// namespaces, the hottest first, and after them those that are split. Rates are
// found out by looking at some of the writes, and may be a little off.
func (p *Port) Hottest(n int) []HotCounter {
	if p.spread == nil || n <= 0 {
		return nil
	}
	now := time.Now()
	var found []HotCounter
	for _, c := range p.spread.Hottest(min(n, HottestMax)) {
		h := HotCounter{
			Namespace: c.Cell.Namespace, Key: c.Cell.Key, Rate: c.Rate, Shards: c.Shards, GrowthRate: c.All,
			Waiting: c.Waiting, RetryRate: c.Retries, P99: c.P99, SlowestShard: c.ShardP99, Asked: c.Asked, Decided: c.Tied,
		}
		h.RollupAge, h.RollupEvery, h.HasRollup = p.totals.Age(c.Cell, now)
		found = append(found, h)
	}
	return found
}
