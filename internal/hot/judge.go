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

const (
	// patience is how many looks in a row must find the same before a counter is
	// split: one may be chance.
	patience = 2

	// trial is how long shards have to show that they help, and gain by how much:
	// more writes, or writes that take less time.
	trial = 1500 * time.Millisecond
	gain  = 1.1

	// restFirst is for how long a counter is not split again whose shards did not
	// help, twice as long each time up to restLongest, unless it gets twice as hot.
	restFirst   = 30 * time.Second
	restLongest = 10 * time.Minute
)

// A Judge decides when one counter is split or folded. The zero value knows
// nothing yet.
//
// Waiting is a reason to split, but no proof that it helps: who waits for a cell
// combines more writes meanwhile, and where the processor is what is short, that is
// the better way. So shards are given on trial. All servers judge by what they see
// themselves, and one that sees no gain is enough to take them back.
type Judge struct {
	signs int       // looks in a row that found it too hot
	quiet time.Time // since when it is cold, all servers together

	shards int       // that it had at the last look
	pace   pace      // with these
	before pace      // and with fewer, if they are on trial
	since  time.Time // since when they are; zero if they are not
	rest   time.Duration
	until  time.Time // when it is no longer resting
	tired  float64   // the rate at which that began
}

// A pace is how many writes a second there are, and how long a call with some
// takes: means over some looks.
type pace struct {
	rate float64
	took time.Duration
}

func (p *pace) add(rate float64, took time.Duration) {
	const share = 4
	if p.rate == 0 {
		p.rate = rate
	}
	p.rate += (rate - p.rate) / share
	if p.took == 0 {
		p.took = took
	}
	if took > 0 {
		p.took += (took - p.took) / share
	}
}

// helps reports whether p is better than what was before.
func (p *pace) helps(before pace) bool {
	return p.rate >= gain*before.rate || p.took > 0 && float64(before.took) >= gain*float64(p.took)
}

// A Look is what one look at a counter has found: how many shards it has, what this
// server writes to it, which part of that was waiting, and how long a call took on
// average, if that is known.
type Look struct {
	Shards  int
	Rate    float64
	Waiting float64
	Took    time.Duration
	At      time.Time
}

// Shards returns how many shards the counter had at the last look.
func (j *Judge) Shards() int { return j.shards }

// Grow returns how many shards a counter should have: more than it has, as many, or
// 1 if they are of no use.
func (j *Judge) Grow(r Rules, l Limits, k Look) int {
	least := min(l.Shards, l.Max)
	if j.see(k, least); k.Shards < least {
		return least
	}
	if !j.since.IsZero() {
		switch {
		case j.pace.helps(j.before):
			j.since = time.Time{}
		case k.At.Sub(j.since) < trial:
			return k.Shards
		default:
			j.tire(k)
			return 1
		}
	}
	hot := k.Rate >= r.Least && (r.Waiting > 0 && k.Waiting >= r.Waiting || r.Rate > 0 && k.Rate >= r.Rate*float64(k.Shards))
	if !hot || k.Shards >= l.Max || k.At.Before(j.until) && k.Rate < 2*j.tired {
		j.signs = 0
		return k.Shards
	}
	if j.signs++; j.signs < patience {
		return k.Shards
	}
	j.signs = 0
	return min(2*k.Shards, l.Max)
}

// see takes a look into account. Shards that whoever has added are on trial, if the
// policy does not ask for them.
func (j *Judge) see(k Look, least int) {
	switch {
	case k.Shards > j.shards && j.shards > 0 && k.Shards > max(1, least):
		j.before, j.pace, j.since = j.pace, pace{}, k.At
	case k.Shards < j.shards && !j.since.IsZero():
		j.tire(k) // Another server saw no gain.
	case k.Shards != j.shards:
		j.pace, j.since = pace{}, time.Time{}
	}
	j.shards = k.Shards
	j.pace.add(k.Rate, k.Took)
}

// tire has a counter rest.
func (j *Judge) tire(k Look) {
	j.rest = min(max(2*j.rest, restFirst), restLongest)
	j.until, j.tired = k.At.Add(j.rest), k.Rate
	j.pace, j.since = pace{}, time.Time{}
}

// Fold reports whether a split counter should be folded, whose shards take so many
// writes a second of all servers together.
func (j *Judge) Fold(r Rules, l Limits, shards int, writes float64, now time.Time) bool {
	switch {
	case l.Max < 2:
		return true // the policy has changed
	case shards <= min(l.Shards, l.Max), writes >= r.Least/4:
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
	Time                 // a server goes from each to the next, one a second
)

// How long a server stays with one shard, so that what it combines is one add: at
// random, and by time.
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
		// Servers begin apart and stay so: were they all at one shard, the others
		// would be of no use.
		return int((server + uint64(now.UnixNano())/uint64(rotate)) % uint64(shards))
	default:
		n = server ^ uint64(now.UnixNano())/uint64(stay)
	}
	// The finaliser of splitmix64: neighbours come to be far apart.
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return int((n ^ n>>31) % uint64(shards))
}
