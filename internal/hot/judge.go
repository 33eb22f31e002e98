package hot

import "time"

// Rules say when a counter is split. The zero value of a field means that it is
// not a reason.
type Rules struct {
	// Waiting splits a counter if this part of its writes' time is waiting for
	// others who change it.
	Waiting float64

	// Rate splits a counter if each of its shards takes more writes a second, from
	// this server.
	Rate float64

	// Least is the rate below which a counter is not hot, whatever it waits for. One
	// that is split is cold below a quarter of it, on all servers together.
	Least float64
}

// Limits are what the policy of a counter allows.
type Limits struct {
	Shards   int // from the start, and always
	Max      int // 1 forbids splitting
	CoolDown time.Duration
}

// patience is how many looks in a row must find the same before a counter is
// split: one may be chance.
const patience = 2

// A Judge decides when one counter is split or folded. The zero value knows
// nothing yet.
type Judge struct {
	signs int       // looks in a row that found it too hot
	quiet time.Time // since when it is cold, all servers together
}

// Grow returns how many shards a counter should have that has some now. Rate is
// what this server writes to it; waiting is which part of that is waiting, if
// known.
func (j *Judge) Grow(r Rules, l Limits, shards int, rate, waiting float64) int {
	if want := min(l.Shards, l.Max); shards < want {
		return want
	}
	hot := rate >= r.Least && (r.Waiting > 0 && waiting >= r.Waiting || r.Rate > 0 && rate >= r.Rate*float64(shards))
	if !hot || shards >= l.Max {
		j.signs = 0
		return shards
	}
	if j.signs++; j.signs < patience {
		return shards
	}
	j.signs = 0
	return min(2*shards, l.Max)
}

// Fold reports whether a split counter should be folded, of which all servers
// together write so much.
func (j *Judge) Fold(r Rules, l Limits, shards int, total float64, now time.Time) bool {
	switch {
	case l.Max < 2:
		return true // the policy has changed
	case shards <= min(l.Shards, l.Max), total >= r.Least/4:
		j.quiet = time.Time{}
		return false
	case j.quiet.IsZero():
		j.quiet = now
	}
	return now.Sub(j.quiet) >= l.CoolDown
}

// A Spread is how writes are spread over shards.
type Spread uint8

// The ways to spread.
const (
	Random Spread = iota // a server stays with one for a moment, and moves on
	Who                  // those of one client stay together
	Time                 // all move on together
)

// How long a server stays with one shard, so that what it combines is one add; and
// all of them.
const (
	stay   = 8 * time.Millisecond
	rotate = time.Second
)

// Pick returns the shard of an add: of the ones there are, by the server's own
// number, what the add brings (0 is nothing), and the time.
func Pick(s Spread, shards int, server uint64, lot uint32, now time.Time) int {
	var n uint64
	switch {
	case s == Who && lot != 0:
		n = uint64(lot)
	case s == Time:
		return int(uint64(now.UnixNano()) / uint64(rotate) % uint64(shards))
	default:
		n = server ^ uint64(now.UnixNano())/uint64(stay)
	}
	// The finaliser of splitmix64: neighbours come to be far apart.
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return int((n ^ n>>31) % uint64(shards))
}
