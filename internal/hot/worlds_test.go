package hot_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
)

var seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")

// A shop is a store as servers feel it, with a number of shards: its rate, which
// part of a call's time is waiting, and how long one takes.
type shop map[int]struct {
	rate, waiting float64
	took          time.Duration
}

// best returns the rate with the number of shards that is the best.
func (s shop) best() (most float64) {
	for _, at := range s {
		most = max(most, at.rate)
	}
	return most
}

// serve has four servers write to one counter for ten seconds, and returns how many
// writes a second it took, and how many shards it had in the end. Each server looks
// ten times a second, and what it counts in a tenth of a second is right to some
// percent. While a layout changes, writes go on at the rate of one cell, and other
// servers learn of it a look later.
func (s shop) serve(rng *rand.Rand, noise float64) (rate float64, shards int) {
	const servers, looks = 4, 100
	var judges [servers]hot.Judge
	rules, limits := hot.Rules{Waiting: 0.25, Least: 100, Calls: 10_000}, hot.Limits{Max: hot.ShardsMax, CoolDown: time.Minute}
	shards = 1
	now, total := start, 0.0
	for range looks {
		at := s[shards]
		now = now.Add(100 * time.Millisecond)
		total += at.rate / 10
		want := shards
		for i := range judges {
			seen := at.rate / servers * (1 + noise*(2*rng.Float64()-1))
			took := time.Duration(float64(at.took) * (1 + noise*(2*rng.Float64()-1)))
			k := hot.Look{Shards: shards, Rate: seen, Calls: min(seen, 2/at.took.Seconds()), Waiting: at.waiting, Took: took, At: now}
			if n := judges[i].Grow(rules, limits, k); n != shards {
				want = n
			}
		}
		if want != shards {
			shards = want
			total -= max(0, s[shards].rate-s[1].rate) / 20
		}
	}
	return total / (looks / 10), shards
}

// Whatever a store is like, a counter that nobody lays out by hand does nearly as
// well as with the best number: never worse than one cell by more than a twentieth.
func TestWorlds(t *testing.T) {
	const ms = time.Millisecond
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	f := func(name string, s shop, of, least float64) {
		t.Run(name, func(t *testing.T) {
			t.Logf("replay: go test ./internal/hot -run '^%s$' -args -seed=%d", t.Name(), from)
			rng := rand.New(rand.NewPCG(from, 0))
			sum := 0.0
			const runs = 50
			for range runs {
				rate, _ := s.serve(rng, 0.15)
				sum += rate / of
				if rate < (least-0.05)*of {
					t.Errorf("a run has %.2f", rate/of)
				}
			}
			if mean := sum / runs; mean < least {
				t.Errorf("%.2f, want %.2f", mean, least)
			}
		})
	}
	// Commits are short: servers that wait combine more, and the processor is what is
	// short. Calls take less time with more shards, and carry less.
	local := shop{
		1: {160_000, 0.6, 4 * ms}, 2: {145_000, 0.5, 3 * ms}, 4: {115_000, 0.4, 2 * ms}, 8: {95_000, 0.3, 2 * ms},
		16: {87_000, 0.25, 2 * ms}, 32: {87_000, 0.2, 2 * ms}, 64: {85_000, 0.2, 2 * ms},
	}
	f("a local disk", local, local[1].rate, 0.95)
	// A commit takes 3 ms, and four servers take turns.
	far := shop{
		1: {60_000, 0.75, 12 * ms}, 2: {100_000, 0.6, 8 * ms}, 4: {140_000, 0.45, 6 * ms}, 8: {170_000, 0.3, 5 * ms},
		16: {180_000, 0.2, 4 * ms}, 32: {180_000, 0.1, 4 * ms}, 64: {170_000, 0.1, 4 * ms},
	}
	f("commits of 3 ms", far, far.best(), 0.9)
	// Nobody waits, and writes are combined: one master takes them all.
	cluster := shop{1: {200_000, 0, ms}, 2: {150_000, 0, ms}, 4: {120_000, 0, ms}}
	f("a Redis Cluster", cluster, cluster[1].rate, 1)
	// Shards make no difference.
	same := shop{}
	for n := 1; n <= hot.ShardsMax; n *= 2 {
		same[n] = shop{1: {100_000, 0.5, 5 * ms}}[1]
	}
	f("no difference", same, same[1].rate, 0.95)
}
