package advise_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/advise"
)

// The table has what the benchmarks recorded: when they are run again, it
// changes with them.
func TestFigures(t *testing.T) {
	for _, f := range advise.Figures() {
		raw, err := os.ReadFile(filepath.Join("..", "..", "bench", "results", f.Result+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var result struct {
			Series []struct {
				Side, Metric string
				Values       []float64
			}
		}
		if err := json.Unmarshal(raw, &result); err != nil {
			t.Fatalf("%s: %v", f.Result, err)
		}
		found := false
		for _, s := range result.Series {
			if s.Side != f.Side || s.Metric != f.Metric {
				continue
			}
			found = true
			slices.Sort(s.Values)
			median := s.Values[len(s.Values)/2]
			if len(s.Values)%2 == 0 || advise.Number(median) != advise.Number(f.Value) {
				t.Errorf("%s, %s, %s: the table has %s, and the file %s", f.Result, f.Side, f.Metric, advise.Number(f.Value), advise.Number(median))
			}
		}
		if !found {
			t.Errorf("%s has no %s of %s", f.Result, f.Metric, f.Side)
		}
		if _, err := os.Stat(filepath.Join("..", "..", "bench", "results", f.Result+".md")); err != nil {
			t.Error(err)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2.2411: "2.24", 0.66329: "0.663", 79.60576: "79.6", 99.99: "100", 100: "100", 999.6: "1,000", 1234567: "1,234,567", -12345: "-12,345",
	} {
		if got := advise.Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for v, want := range map[float64]string{0: "0 reads", 0.5: "0.5 reads", 1: "1 read", 2: "2 reads", 1e6: "1,000,000 reads"} {
		if got := advise.Count(v, "read"); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestFor(t *testing.T) {
	f := func(want quipu.Policy, n advise.Needs, texts ...string) {
		t.Helper()
		n.Pattern, n.Nodes, n.Regions = "k*", max(n.Nodes, 1), max(n.Regions, 1)
		want.Pattern = "k*"
		a, err := advise.For(n)
		if err != nil {
			t.Fatal(err)
		}
		if a.Policy != want {
			t.Errorf("%+v: %s, want %s", n, a.Policy, want)
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(a.YAML(), "#", "")), " ")
		for _, s := range texts {
			if !strings.Contains(text, s) {
				t.Errorf("%+v: no %q in\n%s", n, s, a.YAML())
			}
		}
	}
	const (
		s = time.Second
		m = time.Minute
	)
	// An embedded store needs nothing, whatever the rates; it alone reads from memory.
	f(quipu.Policy{}, advise.Needs{Writes: 100, Reads: 100, Accuracy: advise.Exact},
		"embedded: for one server, it needs nothing else", "shards: one log takes all writes", "78.4 bytes a counter (bench/results/memory-per-counter.md)", "; 1 will do", "weaker durability: a crash would lose")
	f(quipu.Policy{}, advise.Needs{Writes: 1e5, Reads: 1e6, Accuracy: advise.Bounded, Freshness: 5 * s}, "a total beside it saves nothing", "50 over REST at 22,083 (bench/results/rest.md) calls a second each, measured of increments; 1 over RESP",
		"505,541 (bench/results/peers.md) writes, or 1,289,075 (bench/results/peers.md) reads; 1 will do over RESP, not over REST")
	f(quipu.Policy{Durability: quipu.Written}, advise.Needs{Writes: 1e5, Reads: 1e6, Accuracy: advise.Approximate, Freshness: 5 * s}, "1,028,813 (bench/results/peers.md) writes a second against 505,541")
	f(quipu.Policy{}, advise.Needs{Writes: 1e7, Accuracy: advise.Exact}, "; 1 won't do: combine writes in the client (docs/client.md), or share a store among servers", "are more than one embedded server took", "docs/client.md: 2,115,475")

	// One cell until it is too hot; then as many as the ceiling asks for.
	pg := advise.Needs{Store: advise.Postgres, Nodes: 2, Accuracy: advise.Exact}
	needs := func(change func(n *advise.Needs)) advise.Needs { n := pg; change(&n); return n }
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Writes, n.Reads = 449_310, 0 }),
		"are within the 449,310 (bench/results/postgres-hot.md) that one cell took", "gives 4,494 rows; 100 rows took 13,324",
		"from 1,011 a second", "to 449,310 if no two come together", "store calls for reads: 0 a second", "bytes in the store: not measured",
		"21 over REST at 22,083 (bench/results/rest.md) calls a second each, measured of increments with an embedded store; 2 over RESP in pipelines of 16 at half of the 449,310 (bench/results/postgres-hot.md) writes that two took, or 1,289,075 (bench/results/peers.md) reads; 2 will do over RESP, not over REST")
	f(quipu.Policy{Shards: 2}, needs(func(n *advise.Needs) { n.Writes = 449_311 }), "2 cells: home and 1 shard ", "ask for no value: Prefer: return=minimal, or Q.ADD with NOVALUE Considered", "3 over RESP in pipelines of 16", "; 2 won't do: combine writes in the client")
	f(quipu.Policy{Shards: 64}, needs(func(n *advise.Needs) { n.Writes = 1e9 }), "are more than 64 cells", "64 cells: home and 63 shards")
	f(quipu.Policy{}, advise.Needs{Nodes: 3, Writes: 10, Accuracy: advise.Exact}, "store postgres, servers: 3", "3 servers share a store")

	// A bound is decided by one cell.
	f(quipu.Policy{Single: true}, needs(func(n *advise.Needs) { n.Bounded, n.Writes = true, 1e6 }), "would oversell", "definitions:", "keep several counters")

	// Totals, where reads may be old and are more than refreshes.
	f(quipu.Policy{Timing: quipu.Hybrid, Interval: s, Stale: 2 * s}, needs(func(n *advise.Needs) {
		n.Accuracy, n.Freshness, n.Reads = advise.Bounded, 2*s, 1000
	}), "for 2 calls of the store", "fan-in: every read would ask the store: 1,000 calls", "store calls for reads: 2 a second", "rollup: a caller would not see its own write")
	f(quipu.Policy{Stale: 2 * s}, needs(func(n *advise.Needs) { n.Accuracy, n.Freshness, n.Reads = advise.Bounded, 2*s, 2 }), "would take 2 calls of the store a second, for 2 reads")
	f(quipu.Policy{Stale: s / 100}, needs(func(n *advise.Needs) { n.Accuracy, n.Freshness, n.Reads = advise.Bounded, s/100, 1e6 }), "reads that may be 10ms old ask the store")
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Accuracy, n.Reads = advise.Bounded, 1e6 }), "a total that is kept is older than the last write")
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Freshness, n.Reads = s, 1e6 }), "to let reads be 1s old, ask for bounded")
	f(quipu.Policy{Durability: quipu.Memory, Timing: quipu.Rollup, Interval: time.Hour, Stale: 24 * time.Hour, Partial: true}, needs(func(n *advise.Needs) {
		n.Accuracy, n.Freshness, n.Reads = advise.Approximate, 24*time.Hour, 1e6
	}), "synchronous_commit = off", "not complete", "the longest that there is; reads may be 24h0m0s old", "or 1,332,445 (bench/results/hot-read.md) reads; 2 will do over RESP")
	f(quipu.Policy{Timing: quipu.Rollup, Interval: time.Hour, Stale: 2 * time.Hour, Durability: quipu.Memory, Partial: true}, needs(func(n *advise.Needs) {
		n.Accuracy, n.Freshness, n.Reads = advise.Approximate, 2*time.Hour, 1e6
	}), "half of the 2h0m0s")
	f(quipu.Policy{Timing: quipu.Rollup, Interval: 30 * s, Stale: m, Partial: true}, needs(func(n *advise.Needs) {
		n.Store, n.Accuracy, n.Freshness, n.Reads, n.Writes = advise.Redis, advise.Approximate, m, 1e6, 1000
	}), "appendfsync everysec", "gives 1 key to sum", "a plain INCR of one took 349,640", "0.671 (bench/results/redis-hot.md)")

	// No old count goes to readers who can't use it, also in an outage.
	f(quipu.Policy{Stale: time.Microsecond, Partial: true}, needs(func(n *advise.Needs) {
		n.Store, n.Accuracy, n.Freshness, n.Reads = advise.Redis, advise.Approximate, time.Microsecond, 1e6
	}), "let reads be older (--freshness)")

	// Reads are judged by what was measured, as writes are.
	f(quipu.Policy{}, advise.Needs{Writes: 1, Reads: 1.5e6, Accuracy: advise.Exact}, "servers: 68 over REST", "; 2 over RESP",
		"; 1 won't do: read in pipelines of 256, which took 5,457,799 (bench/results/peers.md), or share a store among servers and let reads be old (--accuracy bounded)")
	f(quipu.Policy{}, advise.Needs{Reads: 1e7, Accuracy: advise.Bounded, Freshness: s}, "; 8 over RESP", "; 1 won't do: share a store among servers Besides")
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Reads = 1.5e6 }), "68 over REST",
		"1,500,000 reads a second are calls of the store, more than the 13,324 (bench/results/postgres-hot.md) that PostgreSQL took of updates of one row; its reads were not measured: let reads be old",
		"reads if they came from memory: they ask the store", "; 2 will do over RESP, not over REST")
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Store, n.Nodes, n.Reads = advise.Redis, 1, 1.5e6 }),
		"more than the 957,787 (bench/results/peers.md) that one Redis took of plain GETs", "; 1 won't do: let reads be old (--accuracy bounded), or add servers")
	f(quipu.Policy{Single: true}, needs(func(n *advise.Needs) { n.Reads, n.Bounded = 1e7, true }), "its reads were not measured: keep several counters", "; 2 won't do: add servers")

	// One is not many.
	f(quipu.Policy{Stale: s}, needs(func(n *advise.Needs) {
		n.Accuracy, n.Freshness, n.Writes, n.Reads, n.Nodes = advise.Bounded, s, 1, 1, 1
	}),
		"with 1 write and 1 read a second", "1 write a second is within", "gives 1 row;", "2 calls of the store a second, for 1 read")

	// What is not built is said.
	f(quipu.Policy{}, advise.Needs{Unique: true, Accuracy: advise.Exact}, "this counts visits; give it a definition with unique: who")
	f(quipu.Policy{}, needs(func(n *advise.Needs) { n.Regions = 3 }), "Not built yet: - replication between regions", "regions: 3")

	bad := func(text string, n advise.Needs) {
		t.Helper()
		n.Nodes, n.Regions = max(n.Nodes, 1), max(n.Regions, 1)
		if _, err := advise.For(n); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", n, err, text)
		}
	}
	bad("want numbers from 0", advise.Needs{Writes: -1, Accuracy: advise.Exact})
	bad("want numbers from 0 to 1,000,000,000,000", advise.Needs{Writes: 1e30, Accuracy: advise.Exact})
	bad("want numbers from 0", advise.Needs{Reads: math.Inf(1), Accuracy: advise.Exact})
	bad("want numbers from 0", advise.Needs{Reads: math.NaN(), Accuracy: advise.Exact})
	bad("want exact, bounded or approximate", advise.Needs{Accuracy: "good"})
	bad("freshness -1s", advise.Needs{Accuracy: advise.Exact, Freshness: -s})
	bad("want embedded, postgres or redis", advise.Needs{Accuracy: advise.Exact, Store: "mysql"})
	bad("an embedded store has one server", advise.Needs{Accuracy: advise.Exact, Store: advise.Embedded, Nodes: 2})
	bad("choose one of them", advise.Needs{Accuracy: advise.Exact, Bounded: true, Unique: true})
	bad("is exact", advise.Needs{Accuracy: advise.Bounded, Bounded: true})
	if _, err := advise.For(advise.Needs{Accuracy: advise.Exact}); err == nil {
		t.Error("no servers are enough")
	}
}

// Whatever is needed, the policy is valid, every setting has its reason, and no
// line is too long.
func TestForAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]float64{0, 0.1, 1, 100, 20_000, 1e6, 1e9, advise.RateMax})
		n := advise.Needs{
			Pattern: "k*", Writes: rate.Draw(t, "writes"), Reads: rate.Draw(t, "reads"),
			Accuracy:  rapid.SampledFrom([]advise.Accuracy{advise.Exact, advise.Bounded, advise.Approximate}).Draw(t, "accuracy"),
			Freshness: time.Duration(rapid.SampledFrom([]int64{0, 1, 1e6, 3e7, 1e9, 1e13, math.MaxInt64}).Draw(t, "freshness")),
			Bounded:   rapid.Bool().Draw(t, "bounded"), Unique: rapid.Bool().Draw(t, "unique"),
			Regions: rapid.IntRange(1, 3).Draw(t, "regions"), Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"),
			Store: rapid.SampledFrom([]advise.Engine{"", advise.Embedded, advise.Postgres, advise.Redis}).Draw(t, "store"),
		}
		a, err := advise.For(n)
		if err != nil {
			return // a contradiction
		}
		if err := (quipu.Options{Policies: []quipu.Policy{a.Policy}}).Validate(); err != nil {
			t.Fatal(err)
		}
		given := 0
		for _, s := range a.Policy.Settings() {
			if !s.Given {
				continue
			}
			given++
			if a.Reasons[s.Name] == "" && s.Name != "pattern" {
				t.Errorf("%s has no reason", s.Name)
			}
		}
		if given == 1 && a.Reasons["pattern"] == "" {
			t.Error("the defaults have no reason")
		}
		for line := range strings.Lines(a.YAML()) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 100 && len(strings.Fields(line)) > 3 {
				t.Errorf("a line is too long: %s", line)
			}
		}
		if n.Unique != strings.Contains(a.YAML(), "unique: who") {
			t.Error("unique counts are not said to need a definition")
		}
	})
}
