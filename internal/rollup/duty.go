package rollup

import (
	"hash/fnv"
	"time"
)

// Several servers over one store keep the totals of the same counters, and one
// sum of all shards will do for all of them. So each counter has a number in the
// store. Whoever wants to sum raises it to an odd one, which is his claim, sums,
// and with the total raises it to the even one above. All others see the number
// and take the total. A claim is for liveness only: if whoever made it is late,
// another one is made, and of two totals the store takes that of the last claim.

// Shares are the parts of an interval in which a counter's number is looked at,
// so that a total comes to the others soon after it was made, and they know
// well enough when that was.
const Shares = 5

// A Moment is when something happened here: the time, and a number that rises with
// every event.
type Moment struct {
	Time time.Time
	Tick uint64
}

// A Duty is what one server knows of the number of a counter. The zero value
// knows nothing.
type Duty struct {
	number int64
	looked Moment // when the last look began
	seen   Moment // and the one that saw this claim first
	asOf   Moment // and the last one that did not see it; zero if there was none
}

// claim returns the claim to which a number belongs.
func claim(number int64) int64 {
	if number%2 == 0 {
		return number - 1
	}
	return number
}

// Look takes the number that was read by a look that began at some moment. It
// returns as of when the total is that was read with it, and false if there is
// none or that is not known. No clock but this server's has a part in that: a
// claim that a look did not see was made after the look began, and the sum was
// taken after the claim.
func (d *Duty) Look(began Moment, number int64) (asOf Moment, ok bool) {
	switch {
	case number < d.number: // The store has lost some: what it has now may be of any age.
		d.asOf, d.seen = Moment{}, began
	case d.looked.Time.IsZero():
		d.seen = began
	case claim(number) != claim(d.number):
		d.asOf, d.seen = d.looked, began
	}
	d.number, d.looked = number, began
	return d.asOf, number > 0 && number%2 == 0 && !d.asOf.Time.IsZero()
}

// Looked returns when the last look began.
func (d *Duty) Looked() time.Time { return d.looked.Time }

// Due reports whether this server is to make a claim: nobody else has made one for
// as long as it waits.
func (d *Duty) Due(now time.Time, patience time.Duration) bool {
	return now.Sub(d.seen.Time) >= patience
}

// Claim returns by how much the number is raised for a claim: to the next odd one.
func (d *Duty) Claim() int64 {
	if d.number%2 == 0 {
		return 1
	}
	return 2
}

// Patience returns how long a server waits after a claim to a counter before it
// makes one itself, if its total is to be made anew every so often. It is between
// three quarters of that and all of it, another for each server and counter. So one
// server has the duty for a counter as long as it lives and serves it; the duties
// of all counters are spread over the servers; and if one is gone, each of its
// duties falls to whoever is next there, and not all to one.
func Patience(server uint64, namespace, key string, every time.Duration) time.Duration {
	h := fnv.New64a()
	var id [8]byte
	for i := range id {
		id[i] = byte(server >> (8 * i))
	}
	_, _ = h.Write(id[:])
	_, _ = h.Write([]byte(namespace))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	const scale = 1 << 16
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return every*3/4 + every/4*time.Duration(x>>48)/scale
}
