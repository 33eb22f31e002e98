package advise_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/advise"
)

func TestJudge(t *testing.T) {
	const s = time.Second
	pg := advise.Needs{Store: advise.Postgres, Nodes: 1, Regions: 1}
	f := func(h advise.Hot, n advise.Needs, want quipu.Policy, texts ...string) {
		t.Helper()
		h.Namespace, h.Key, h.Shards = "n", "k", max(h.Shards, 1)
		want.Namespace, want.Pattern = "n", "k"
		v, err := advise.Judge(h, n)
		if err != nil {
			t.Fatal(err)
		}
		if v.Policy != want {
			t.Errorf("%+v: %s, want %s", h, v.Policy, want)
		}
		if err := (quipu.Options{Policies: []quipu.Policy{v.Policy}}).Validate(); err != nil {
			t.Error(err)
		}
		text := fmt.Sprint(v.Changes, v.Notes)
		for _, want := range texts {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: no %q in %s", h, want, text)
			}
		}
		had := h.Policy
		had.Namespace, had.Pattern = "n", "k"
		if (len(v.Changes) == 0) != (v.Policy == had) {
			t.Errorf("%+v: %d changes, and %s", h, len(v.Changes), v.Policy)
		}
		for _, c := range v.Changes {
			if c.Why == "" || c.From == c.To {
				t.Errorf("%+v: change %+v", h, c)
			}
		}
	}
	// What holds is let be.
	f(advise.Hot{Writes: 1e4}, pg, quipu.Policy{})
	f(advise.Hot{Writes: 1e6, Shards: 8}, pg, quipu.Policy{}) // it has them by itself
	single := quipu.Policy{Single: true, Durability: quipu.Memory}
	f(advise.Hot{Writes: 10, Policy: quipu.Policy{Single: true}}, pg, quipu.Policy{Single: true})
	rollup := quipu.Policy{Timing: quipu.Hybrid, Interval: s, Stale: time.Hour, Spread: quipu.SpreadWho, CoolDown: s}
	n := pg
	n.Reads = 1000
	f(advise.Hot{Writes: 10, Policy: rollup}, n, rollup)

	// More, or fewer, shards.
	f(advise.Hot{Writes: 1e6}, pg, quipu.Policy{Shards: 3}, "{shards 1 3 1,000,000 writes a second")
	f(advise.Hot{Writes: 1e6, Policy: quipu.Policy{MaxShards: 2}}, pg, quipu.Policy{MaxShards: 3}, "{max-shards 2 3 ")
	f(advise.Hot{Writes: 10, Shards: 8, Policy: quipu.Policy{Shards: 8, CoolDown: s}}, pg, quipu.Policy{CoolDown: s}, "{shards 8 1 10 writes a second are within")
	n.Nodes = 100
	f(advise.Hot{Writes: 1e4}, n, quipu.Policy{Shards: 3}) // through each server

	// Totals that save nothing, and those that would.
	n = pg
	n.Reads = 0.5
	f(advise.Hot{Policy: quipu.Policy{Timing: quipu.Rollup}}, n, quipu.Policy{Stale: 2 * s}, "{timing rollup fan-in ", "{stale 0s 2s ")
	n.Reads = 0 // here; there may be servers that readers go to
	f(advise.Hot{Policy: quipu.Policy{Timing: quipu.Rollup, Stale: 2 * s}}, n, quipu.Policy{Timing: quipu.Rollup, Stale: 2 * s}, "no reads came to this server")
	n.Reads = 1000
	f(advise.Hot{Writes: 10}, n, quipu.Policy{}, "every read asks the store")
	n.Accuracy, n.Freshness = advise.Bounded, s
	f(advise.Hot{Writes: 10}, n, quipu.Policy{Timing: quipu.Hybrid, Interval: s / 2, Stale: s}, "{timing fan-in hybrid 1,000 reads", "{interval 0s 500ms ")
	f(advise.Hot{Writes: 1e6, Policy: quipu.Policy{Single: true}}, n, quipu.Policy{Single: true, Timing: quipu.Hybrid, Interval: s / 2, Stale: s})

	// What was promised to readers is not taken back.
	f(advise.Hot{Policy: single}, pg, quipu.Policy{Single: true, Durability: quipu.Memory, Partial: true}, "{partial false true ")
	f(advise.Hot{Policy: quipu.Policy{Durability: quipu.Memory}}, advise.Needs{Store: advise.Embedded, Nodes: 1, Regions: 1},
		quipu.Policy{Durability: quipu.Written}, "{durability memory written ")
	n.Accuracy, n.Freshness = advise.Exact, 0
	f(advise.Hot{Policy: quipu.Policy{Durability: quipu.Written}}, n, quipu.Policy{}, "{durability written synced a crash would lose")

	// What no policy can mend is said.
	f(advise.Hot{Writes: 1000, Waiting: 0.3, Asked: 0.9, Decided: 1}, pg, quipu.Policy{}, "for 30 % of their time, because they ask for its value")
	f(advise.Hot{Writes: 1000, Waiting: 0.3, Asked: 0.1, Decided: 0.8}, pg, quipu.Policy{}, "because only its own cell can take them: they have a token")
	f(advise.Hot{Writes: 1000, Waiting: 0.3, Asked: 0.1, Decided: 0.1}, pg, quipu.Policy{}, "and any shard could take most of them")
	f(advise.Hot{Writes: 1000, Waiting: 0.3, Policy: quipu.Policy{Single: true}}, pg, quipu.Policy{Single: true}, "keeps it in one cell")
	f(advise.Hot{Writes: 1000, Waiting: 0.3, Shards: 2, Policy: quipu.Policy{MaxShards: 2}}, pg, quipu.Policy{MaxShards: 2}, "raise max-shards")

	if _, err := advise.Judge(advise.Hot{Key: "k"}, advise.Needs{Store: advise.Embedded, Nodes: 2, Regions: 1}); err == nil {
		t.Error("an embedded store has two servers")
	}
}
