package server

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// The limit of failures: so many at once from one address, and one more each time so much has
// passed. It slows down whoever guesses keys that people thought up, and keeps the verifying
// of made-up tokens cheap.
const (
	failuresMax   = 60
	failuresEvery = time.Second
	addressesMax  = 10_000 // that are remembered
)

// A TooManyError is returned for a caller whose address has shown too many wrong credentials.
type TooManyError struct{ After time.Duration }

// Error says when to try again.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many wrong credentials from this address: try again in %s", e.After.Round(time.Second))
}

// failures counts wrong credentials by address. Those of IPv6 count by /64, which is what one
// caller has.
type failures struct {
	mu sync.Mutex               // guards by
	by map[netip.Prefix]*bucket // the zero prefix is of all for whom there was no room
}

// A bucket is how many failures an address has, up to a time.
type bucket struct {
	n  float64
	at time.Time
}

// now returns how many failures there are left of those that there were.
func (b *bucket) now(at time.Time) float64 {
	return max(b.n-at.Sub(b.at).Seconds()/failuresEvery.Seconds(), 0)
}

func prefixOf(addr string) netip.Prefix {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := ap.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// blocked reports whether an address has failed too often, and for how long yet.
func (f *failures) blocked(addr string, now time.Time) (wait time.Duration, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.of(prefixOf(addr))
	if b == nil {
		return 0, false
	}
	if over := b.now(now) - (failuresMax - 1); over > 0 {
		return max(time.Duration(over*float64(failuresEvery)), time.Second), true
	}
	return 0, false
}

// of returns the bucket of an address: the one of all others if there is no room for its own.
func (f *failures) of(p netip.Prefix) *bucket {
	if b := f.by[p]; b != nil || len(f.by) < addressesMax {
		return b
	}
	return f.by[netip.Prefix{}]
}

// note counts a failure.
func (f *failures) note(addr string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[netip.Prefix]*bucket{}
	}
	p := prefixOf(addr)
	b := f.by[p]
	if b == nil && len(f.by) >= addressesMax {
		for other, old := range f.by {
			if old.now(now) == 0 {
				delete(f.by, other)
			}
		}
		if len(f.by) >= addressesMax {
			p = netip.Prefix{}
			b = f.by[p]
		}
	}
	if b == nil {
		b = &bucket{}
		f.by[p] = b
	}
	b.n, b.at = b.now(now)+1, now
}
