package rollup_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/rollup"
)

// A board is what servers tell each other, and when the sum was begun that is the
// total on it. Its version is another after each change.
type board struct {
	number  int64
	version int
	summed  time.Time
}

// A member is a server with a clock of its own, somewhere in what it does.
type member struct {
	rollup.Duty
	skew   time.Duration
	began  time.Time // of a look under way
	saw    *board    // what it read
	claim  board     // what it made of it, if it has claimed
	summed time.Time // when it began to sum
}

// TestDuty has servers look, claim, sum and publish in any order, and stop in
// between for ever: no total is taken to be younger than it is.
func TestDuty(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	known, versions := 0, 0
	for range 200 {
		var b, old board
		members := make([]member, 2+rng.IntN(3))
		for i := range members {
			members[i].skew = time.Duration(rng.IntN(1000)) * time.Hour
		}
		now := time.Unix(1_000_000, 0)
		for range 1000 {
			now = now.Add(time.Duration(1 + rng.IntN(5)))
			m := &members[rng.IntN(len(members))]
			switch n := rng.IntN(40); {
			case n == 0:
				*m = member{skew: m.skew} // It is another one now.
			case n == 1:
				old = b
			case n == 2 && old.number > 0:
				b, old = old, board{} // A replica takes over that lacks the latest.
			case n < 12:
				if m.saw == nil {
					m.began = now
				}
				if m.saw = nil; !m.began.IsZero() {
					saw := b
					m.saw = &saw
				}
			case n < 24:
				if m.saw == nil {
					continue
				}
				look, ok := m.Look(rollup.Moment{Time: m.began.Add(m.skew)}, m.saw.number)
				if asOf := look.Time.Add(-m.skew); ok {
					known++
					if m.saw.summed.Before(asOf) {
						t.Fatalf("a total that was summed at %v is taken to be of %v", m.saw.summed.UnixNano(), asOf.UnixNano())
					}
				}
				if m.claim.number == 0 && rng.IntN(3) == 0 && b.version == m.saw.version {
					b.number += m.Claim()
					versions++
					b.version = versions
					m.claim = b
				}
				m.saw, m.began = nil, time.Time{}
			case n < 32:
				if m.claim.number != 0 && m.summed.IsZero() {
					m.summed = now
				}
			default:
				if m.summed.IsZero() {
					continue
				}
				if b.version == m.claim.version {
					versions++
					b = board{m.claim.number + 1, versions, m.summed}
				}
				m.claim, m.summed = board{}, time.Time{}
			}
		}
	}
	if known < 1000 {
		t.Errorf("a total was taken only %d times", known)
	}
}

// TestPatience spreads the duties for many counters over servers: each has its
// share, and what one leaves goes to all others.
func TestPatience(t *testing.T) {
	const servers, counters = 5, 5000
	first := func(key string, without int) (best int) {
		best = -1
		least := time.Duration(0)
		for s := range servers {
			p := rollup.Patience(uint64(s)*0x9e3779b97f4a7c15, "default", key, time.Second)
			if p < 750*time.Millisecond || p >= time.Second {
				t.Fatalf("patience of %v", p)
			}
			if s != without && (best < 0 || p < least) {
				best, least = s, p
			}
		}
		return best
	}
	has, inherits := make([]int, servers), make([]int, servers)
	for i := range counters {
		key := fmt.Sprint("counter", i)
		owner := first(key, -1)
		has[owner]++
		heir := first(key, 0)
		if owner == 0 {
			inherits[heir]++
		} else if heir != owner {
			t.Fatalf("%s moves from %d to %d, though %d lives", key, owner, heir, owner)
		}
	}
	for s := range servers {
		if has[s] < counters/servers*8/10 || has[s] > counters/servers*12/10 {
			t.Errorf("server %d has %d of %d", s, has[s], counters)
		}
		if share := has[0] / (servers - 1); s > 0 && (inherits[s] < share*7/10 || inherits[s] > share*13/10) {
			t.Errorf("server %d inherits %d of %d", s, inherits[s], has[0])
		}
	}
}
