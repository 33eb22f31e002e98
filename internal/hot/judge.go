package hot

import "time"

// Rules say when a counter is split. The zero value of a field means that it is
// not a reason.
type Rules struct {
	// Waiting splits a counter if this part of its writes' time is waiting for
	// others who change it.
	Waiting float64

	// Calls splits a counter if each of its shards takes more calls of the store a
	// second, from this server. Writes that were combined are one call.
	Calls float64

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
	// split: one may be chance, and shards are judged by what was before.
	patience = 4

	// trial is how long shards have to show that they help, and gain by how much:
	// more writes, or as many writes that take less time. A change of layout costs
	// some writes itself, so they are not judged while they settle. After some looks,
	// loss is as few writes that they are taken back at once, and success as many
	// that they stay.
	trial   = 1500 * time.Millisecond
	settle  = 150 * time.Millisecond
	gain    = 1.1
	even    = 0.98
	loss    = 0.93
	success = 1.25
	looks   = 5

	// firstMost is how many shards a counter gets at first, at most, and apart how many
	// for each server that waits: servers choose by chance, and are to meet seldom.
	firstMost = 16
	apart     = 4

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

	seen   time.Time // when it was looked at last
	shards int       // that it had then
	pace   pace      // with these

	since  time.Time // since when they are on trial; zero if they are not
	fewer  int       // how many there were before,
	before pace      // and the pace with these

	rest  time.Duration
	until time.Time // when it is no longer resting
	tired float64   // the rate at which that began
}

// A pace is how many writes a second there are, and how long a call with some
// takes: means over some looks.
type pace struct {
	rate  float64
	took  time.Duration
	looks int
}

func (p *pace) add(rate float64, took time.Duration) {
	const most = 8
	p.looks++
	part := min(p.looks, most)
	p.rate += (rate - p.rate) / float64(part)
	if p.took == 0 {
		p.took = took
	}
	if took > 0 {
		p.took += (took - p.took) / time.Duration(part)
	}
}

// helps reports whether p is better than what was before. Calls that take less time
// are no gain if there are fewer writes: where the processor is what is short, they
// carry less.
func (p *pace) helps(before pace) bool {
	return p.rate >= gain*before.rate ||
		p.rate >= even*before.rate && p.took > 0 && float64(before.took) >= gain*float64(p.took)
}

// A Look is what one look at a counter has found: how many shards it has, what this
// server has written to it since the look before, by how many calls that the store
// has felt, which part of their time was waiting for others, and how long one took
// on average, if that is known.
type Look struct {
	Shards  int
	Rate    float64
	Calls   float64
	Waiting float64
	Took    time.Duration
	At      time.Time
}

// Shards returns how many shards the counter had at the last look.
func (j *Judge) Shards() int { return j.shards }

// Grow returns how many shards a counter should have: more than it has, as many, or
// as many as it had before those that are of no use.
func (j *Judge) Grow(r Rules, l Limits, k Look) int {
	least := min(l.Shards, l.Max)
	if j.see(k, least); k.Shards < least {
		return least
	}
	if !j.since.IsZero() {
		switch ended := k.At.Sub(j.since) >= trial; {
		case j.pace.looks >= looks && j.pace.rate >= success*j.before.rate, ended && j.pace.helps(j.before):
			j.since = time.Time{}
		case ended, j.pace.looks >= looks && j.pace.rate < loss*j.before.rate:
			j.tire(k)
			j.shards = max(j.fewer, least)
			return j.shards
		default:
			return k.Shards
		}
	}
	waits := r.Waiting > 0 && k.Waiting >= r.Waiting
	calls := r.Calls > 0 && k.Calls >= r.Calls*float64(k.Shards)
	if k.Rate < r.Least || !waits && !calls || k.Shards >= l.Max || k.At.Before(j.until) && k.Rate < 2*j.tired {
		j.signs = 0
		return k.Shards
	}
	if j.signs++; j.signs < patience {
		return k.Shards
	}
	j.signs = 0
	return min(more(k), l.Max)
}

// more returns how many shards to try: first by the waiting, then twice as many each
// time. If three quarters of a call's time are waiting, four servers share a cell.
func more(k Look) int {
	n := 2 * k.Shards
	if k.Shards == 1 && k.Waiting > 0 {
		for n < firstMost && float64(n)*(1-k.Waiting) < apart {
			n *= 2
		}
	}
	return n
}

// see takes a look into account. Shards that whoever has added are on trial, if the
// policy does not ask for them.
func (j *Judge) see(k Look, least int) {
	switch {
	case k.Shards > j.shards && j.shards > 0 && k.Shards > max(1, least):
		j.fewer, j.before, j.pace, j.since = j.shards, j.pace, pace{}, k.At
	case k.Shards < j.shards && k.Shards >= least && k.At.Sub(j.seen) < time.Second:
		j.tire(k) // Another server saw no gain. If this one did, they would take turns.
	case k.Shards != j.shards:
		j.pace, j.since = pace{}, time.Time{}
	}
	j.shards, j.seen = k.Shards, k.At
	if j.since.IsZero() || k.At.Sub(j.since) >= settle {
		j.pace.add(k.Rate, k.Took)
	}
}

// tire has a counter rest.
func (j *Judge) tire(k Look) {
	j.rest = min(max(2*j.rest, restFirst), restLongest)
	j.until, j.tired = k.At.Add(j.rest), max(k.Rate, j.before.rate) // Shards that lost writes made it look less hot.
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
