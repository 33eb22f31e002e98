package hot_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func TestWord(t *testing.T) {
	if w := hot.Word(0); w.Shards() != 1 || w.Folding() || w.Gen() != 0 {
		t.Errorf("the zero word has %d shards", w.Shards())
	}
	seen := map[hot.Word]string{}
	for _, gen := range []int64{1, 2, hot.Generation(1 << 62), hot.Generation(math.MaxUint64)} {
		for shards := 2; shards <= hot.ShardsMax; shards++ {
			w := hot.Home(gen, shards)
			for name, w := range map[string]hot.Word{"home": w, "folding": w.Fold(), "open": hot.Open(gen), "closed": hot.Open(gen).Fold()} {
				name = fmt.Sprint(name, " ", w.Gen(), " ", w.Shards())
				if w <= 0 || w.Gen() != gen || seen[w] != "" && seen[w] != name {
					t.Fatalf("%s of generation %d is %d, as is %q", name, gen, w, seen[w])
				}
				seen[w] = name
			}
			if w.Folding() || !w.Fold().Folding() || w.Shards() != shards || !w.Same(w.Fold()) || w.Same(hot.Home(gen, shards-1)) || w.Same(hot.Home(gen+1, shards)) {
				t.Fatalf("%d: %d shards, folding %v", w, w.Shards(), w.Folding())
			}
		}
	}
	if a, b := hot.Generation(1), hot.Generation(2); a == b {
		t.Errorf("generations %d and %d", a, b)
	}
}

func cell(i int) store.Cell { return store.Cell{Namespace: "n", Key: fmt.Sprint(i)} }

// TestHeat writes to many counters, of which a few are hot.
func TestHeat(t *testing.T) {
	h := hot.NewHeat(64)
	now := start
	for i := range 500_000 { // 100,000 a second, for 5 seconds
		now = now.Add(10 * time.Microsecond)
		c := cell(1000 + i)
		if i%10 < 4 {
			c = cell(i % 10)
		}
		h.Note(hot.Write{Cell: c, Count: 1, Tied: i%10 == 3, Asked: i%10 == 2, Took: 10 * time.Millisecond, Waited: 2 * time.Millisecond, Retries: i % 10}, now)
	}
	for i := range 4 {
		e := h.Get(cell(i))
		if e == nil {
			t.Fatalf("hot counter %d is not known", i)
		}
		if r := e.Rate(now); r < 9_000 || r > 11_500 {
			t.Errorf("rate %.0f of counter %d, want some 10,000", r, i)
		}
		if r, again := e.Rate(now), e.RetryRate(now); math.Abs(again-float64(i)*r) > 1 {
			t.Errorf("%.0f retries of %.0f writes to counter %d", again, r, i)
		}
		if e.Tied() != (i == 3) {
			t.Errorf("counter %d is tied: %v", i, e.Tied())
		}
		if asked := e.AskedShare(); i == 2 && asked < 0.99 || i != 2 && asked > 0 {
			t.Errorf("%v of the writes to counter %d ask for the value", asked, i)
		}
		if p99 := e.P99(now); p99 < 9*time.Millisecond || p99 > 11*time.Millisecond {
			t.Errorf("the slowest writes to counter %d took %v, want some 10ms", i, p99)
		}
		if k := e.Look(now); k.Took != 10*time.Millisecond || k.Waiting != 0.2 || k.Rate < 9_000 || k.Rate > 11_500 || k.Calls != 200 {
			t.Errorf("counter %d was looked at: %+v", i, k)
		}
		if k := e.Look(now.Add(time.Second)); k.Took != 0 || k.Rate != 0 || k.Calls != 0 {
			t.Errorf("counter %d was not written to since: %+v", i, k)
		}
		if r := e.Rate(now.Add(5 * time.Second)); r > 15 {
			t.Errorf("rate %.0f after 5 s of rest", r)
		}
		if r := e.RetryRate(now.Add(5 * time.Second)); r > 45 {
			t.Errorf("%.0f retries after 5 s of rest", r)
		}
	}
	h.Retried(cell(0), 1000, now)
	h.Retried(cell(1000), 1000, now) // is not known
	if r := h.Get(cell(0)).RetryRate(now); r < 1380 || r > 1390 {
		t.Errorf("%.0f retries at once, want some 1,386 a second", r)
	}
	n := 0
	h.Each(func(*hot.Entry) { n++ })
	if n != 64 || h.Get(cell(1000)) != nil {
		t.Errorf("%d counters are known", n)
	}
}

// BenchmarkHeatMemory is what the heat of 10 million counters takes.
func BenchmarkHeatMemory(b *testing.B) {
	for b.Loop() {
		h := hot.NewHeat(512)
		for i := range 10_000_000 {
			h.Note(hot.Write{Cell: cell(i), Count: 1}, start)
		}
	}
}

func TestGrow(t *testing.T) {
	rules := hot.Rules{Waiting: 0.25, Least: 100, Calls: 10_000}
	limits := hot.Limits{Max: 16, CoolDown: time.Second}
	// Each time that it has more shards, a call takes a part of what it took before.
	f := func(what string, l hot.Limits, shards, looks int, rate, waiting, part float64, want int) {
		t.Helper()
		var j hot.Judge
		at, took := start, 10*time.Millisecond
		for range looks {
			n := j.Grow(rules, l, hot.Look{Shards: shards, Rate: rate, Calls: rate, Waiting: waiting, Took: took, At: at})
			if n > shards {
				took = time.Duration(float64(took) * part)
			}
			shards, at = n, at.Add(100*time.Millisecond)
		}
		if shards != want {
			t.Errorf("%s: %d shards, want %d", what, shards, want)
		}
	}
	f("cold", limits, 1, 100, 50, 1, 0.5, 1)
	f("warm, and nobody waits", limits, 1, 100, 5_000, 0.2, 0.5, 1)
	f("waits", limits, 1, 4, 5_000, 0.3, 0.5, 8)
	f("some looks may be chance", limits, 1, 3, 5_000, 0.3, 0.5, 1)
	f("waits and waits", limits, 1, 100, 5_000, 0.3, 0.5, 16)
	f("as many as the calls need", limits, 1, 100, 35_000, 0, 0.5, 4)
	f("it does not help", limits, 1, 100, 5_000, 0.3, 1, 1)
	f("it does not help, and there was no time to see it", limits, 1, 16, 5_000, 0.3, 1, 8)
	f("from the start", hot.Limits{Shards: 8, Max: 64}, 1, 1, 0, 0, 1, 8)
	f("from the start, and for good", hot.Limits{Shards: 8, Max: 8}, 1, 100, 5_000, 0.3, 1, 8)
	f("no more than allowed", hot.Limits{Shards: 8, Max: 4}, 1, 1, 0, 0, 1, 4)
	f("single", hot.Limits{Max: 1}, 1, 100, 1e6, 1, 1, 1)
}

// Shards are given on trial: they are taken back if they do not help, are not tried
// again for a while unless the counter is much hotter, and one server's judgement
// is heard by the others.
func TestTrial(t *testing.T) {
	rules, limits := hot.Rules{Waiting: 0.25, Least: 100}, hot.Limits{Max: 64, CoolDown: time.Second}
	var j, other hot.Judge
	at, shards := start, 1
	look := func(rate float64, took time.Duration) int {
		at = at.Add(100 * time.Millisecond)
		k := hot.Look{Shards: shards, Rate: rate, Waiting: 0.5, Took: took, At: at}
		was := shards
		shards = j.Grow(rules, limits, k)
		other.Grow(rules, limits, hot.Look{Shards: was, Rate: 10, Took: took, At: at})
		return shards
	}
	until := func(want, looks int, rate float64, took time.Duration) {
		t.Helper()
		for range looks {
			if look(rate, took) == want {
				return
			}
		}
		t.Fatalf("%d shards after %d looks, want %d", shards, looks, want)
	}
	stays := func(looks int, rate float64, took time.Duration) {
		t.Helper()
		want := shards
		for range looks {
			if look(rate, took) != want {
				t.Fatalf("%d shards, want %d", shards, want)
			}
		}
	}
	const ms = time.Millisecond
	until(8, 4, 1000, 10*ms)
	stays(14, 1000, 10*ms)
	until(1, 3, 1000, 10*ms)
	stays(290, 1000, 10*ms) // it rests
	until(8, 20, 1000, 10*ms)
	until(1, 20, 1000, 10*ms)
	stays(500, 1000, 10*ms)  // for longer
	until(8, 6, 3000, 10*ms) // It is much hotter.
	until(16, 20, 4000, 10*ms)
	until(32, 30, 4000, 5*ms)
	if n := other.Grow(rules, limits, hot.Look{Shards: 1, Rate: 5000, Waiting: 0.5, At: at.Add(time.Minute)}); n != 1 {
		t.Errorf("%d shards at one look", n)
	}
	// Another server folds what is on trial.
	look(4000, 10*ms)
	shards = 1
	stays(100, 4000, 10*ms)
}

// A load that sits at the threshold does not make a counter flap.
func TestHysteresis(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rules := hot.Rules{Waiting: 0.25, Least: 100, Calls: 10_000}
		limits := hot.Limits{Max: 64, CoolDown: 10 * time.Second}
		var j hot.Judge
		shards, changes, now := 1, 0, start
		for range 600 { // a minute
			now = now.Add(100 * time.Millisecond)
			rate := 100 * (1 + rapid.Float64Range(-0.1, 0.1).Draw(r, "rate"))
			waiting := 0.25 + rapid.Float64Range(-0.05, 0.05).Draw(r, "waiting")
			if n := j.Grow(rules, limits, hot.Look{Shards: shards, Rate: rate, Waiting: waiting, Took: time.Millisecond, At: now}); n != shards {
				shards, changes = n, changes+1
			}
			if shards > 1 && j.Fold(rules, limits, shards, rate, now) {
				shards, changes = 1, changes+1
			}
		}
		if changes > 9 { // it grows, and is folded twice
			r.Fatalf("%d changes in a minute", changes)
		}
	})
}

func TestFold(t *testing.T) {
	rules := hot.Rules{Least: 100}
	limits := hot.Limits{Max: 64, CoolDown: 10 * time.Second}
	var j hot.Judge
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, step := range []struct {
		at, rate float64
		fold     bool
	}{{0, 20, false}, {5, 20, false}, {6, 30, false}, {7, 20, false}, {16, 20, false}, {17, 20, true}} {
		if got := j.Fold(rules, limits, 4, step.rate, at(step.at)); got != step.fold {
			t.Errorf("at %v s with %v/s: fold %v", step.at, step.rate, got)
		}
	}
	if j.Fold(rules, hot.Limits{Shards: 4, Max: 64}, 4, 0, at(99)) {
		t.Error("its policy wants 4 shards")
	}
	if !j.Fold(rules, hot.Limits{Max: 1}, 4, 1e6, at(99)) {
		t.Error("its policy wants none")
	}
}

func TestPick(t *testing.T) {
	const shards = 8
	// A server stays a moment, and comes to all of them.
	seen := map[int]int{}
	for ms := range 8000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		seen[hot.Pick(hot.Random, shards, 7, 0, now)]++
	}
	for i := range shards {
		if seen[i] < 500 {
			t.Errorf("shard %d was taken %d times of 8,000", i, seen[i])
		}
	}
	if hot.Pick(hot.Random, shards, 7, 1, start) != hot.Pick(hot.Random, shards, 7, 2, start) {
		t.Error("two adds at one moment went to different shards")
	}
	// Two servers are seldom in one shard.
	same := 0
	for i := range 8000 {
		now := start.Add(time.Duration(i) * 8 * time.Millisecond)
		if hot.Pick(hot.Random, shards, 7, 0, now) == hot.Pick(hot.Random, shards, 8, 0, now) {
			same++
		}
	}
	if same < 500 || same > 1500 {
		t.Errorf("two servers were in one shard %d times of 8,000", same)
	}
	// Who stays, always and everywhere.
	for who := range uint32(100) {
		a := hot.Pick(hot.Who, shards, 7, who+1, start)
		if b := hot.Pick(hot.Who, shards, 9, who+1, start.Add(time.Hour)); a != b {
			t.Errorf("client %d went to shard %d and to %d", who, a, b)
		}
	}
	// By time, a server stays for a second and comes to all of them, and neighbours
	// are never in one shard.
	seen = map[int]int{}
	for s := range shards {
		now := start.Add(time.Duration(s) * time.Second)
		a := hot.Pick(hot.Time, shards, 7, 5, now)
		if b := hot.Pick(hot.Time, shards, 7, 6, now.Add(time.Second-1)); a != b {
			t.Errorf("shards %d and %d in one second", a, b)
		}
		seen[a]++
		servers := map[int]bool{}
		for server := range uint64(shards) {
			servers[hot.Pick(hot.Time, shards, 1000+server, 5, now)] = true
		}
		if len(servers) != shards {
			t.Errorf("%d servers write to %d of %d shards", shards, len(servers), shards)
		}
	}
	if len(seen) != shards {
		t.Errorf("in %d seconds it came to %d of %d shards", shards, len(seen), shards)
	}
}
