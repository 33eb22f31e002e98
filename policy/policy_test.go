package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

func TestPolicyContradictions(t *testing.T) {
	f := func(want string, p policy.Policy) {
		t.Helper()
		p.Pattern = "k*"
		err := policy.Check([]policy.Policy{p})
		if want == "" && err != nil || want != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", p, err, want)
		}
	}
	f("", policy.Policy{})
	f("", policy.Policy{Shards: 64})
	f("", policy.Policy{Shards: 1, MaxShards: 1, Single: true})
	f("", policy.Policy{Timing: policy.Hybrid, Interval: policy.IntervalMin})
	f("", policy.Policy{Timing: policy.Rollup, Interval: policy.IntervalMax})
	f("want 1 to 64", policy.Policy{Shards: 65})
	f("want 1 to 64", policy.Policy{Shards: -1})
	f("want 1 to 64", policy.Policy{MaxShards: 65})
	f("want 1 to 64", policy.Policy{MaxShards: -1})
	f("", policy.Policy{Shards: 4, MaxShards: 4})
	f("5 shards are more than the 4 of max-shards", policy.Policy{Shards: 5, MaxShards: 4})
	f("never split", policy.Policy{Single: true, Shards: 2})
	f("never split", policy.Policy{Single: true, MaxShards: 2})
	f("unknown spread 3", policy.Policy{Spread: 3})
	f("unknown timing 3", policy.Policy{Timing: 3})
	f("unknown durability", policy.Policy{Durability: 4})
	f("cool-down of -1s", policy.Policy{CoolDown: -time.Second})
	f("stale values of -1s", policy.Policy{Stale: -time.Second})
	f("needs timing rollup or hybrid", policy.Policy{Interval: time.Second})
	f("want 10ms to 1h", policy.Policy{Timing: policy.Rollup, Interval: time.Millisecond})
	f("want 10ms to 1h", policy.Policy{Timing: policy.Rollup, Interval: 2 * time.Hour})
	f("want 10ms to 1h", policy.Policy{Timing: policy.Rollup, Interval: -time.Second})

	many := make([]policy.Policy, policy.Max+1)
	for i := range many {
		many[i].Pattern = fmt.Sprint(i)
	}
	if err := policy.Check(many); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("%d policies: %v", len(many), err)
	}
	if err := policy.Check(many[1:]); err != nil {
		t.Errorf("%d policies: %v", len(many)-1, err)
	}
}

func TestParsePolicy(t *testing.T) {
	f := func(want policy.Policy, settings ...string) {
		t.Helper()
		if got, err := policy.Parse(pairs(settings)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", settings, got, err, want)
		}
	}
	f(policy.Policy{Pattern: "k"}, "pattern", "k")
	f(policy.Policy{
		Namespace: "n", Pattern: "k*", Durability: store.Written, Shards: 4, MaxShards: 8, Spread: policy.SpreadWho,
		CoolDown: time.Minute, Timing: policy.Hybrid, Interval: 2 * time.Second, Stale: time.Hour, Partial: true,
	}, "namespace", "n", "pattern", "k*", "durability", "written", "shards", "4", "max-shards", "8", "spread", "who",
		"cool-down", "1m", "timing", "hybrid", "interval", "2s", "stale", "1h", "partial", "true", "single", "false")
	f(policy.Policy{Pattern: "k", Single: true, Spread: policy.SpreadTime}, "pattern", "k", "single", "true", "spread", "time")

	// A preset gives what the rest leaves open.
	f(policy.Policy{Pattern: "k", Timing: policy.Hybrid, Stale: 10 * time.Minute}, "pattern", "k", "preset", "likes")
	f(policy.Policy{Pattern: "k", Timing: policy.Hybrid, Stale: time.Minute, Interval: time.Minute},
		"pattern", "k", "preset", "likes", "stale", "1m", "interval", "1m")
	f(policy.Policy{Pattern: "k", Durability: store.Written, Stale: time.Hour}, "pattern", "k", "preset", "views", "timing", "fan-in")
	// What is a default in truth may be written.
	f(policy.Policy{Pattern: "k", CoolDown: 10 * time.Second}, "pattern", "k", "stale", "0s", "timing", "fan-in", "interval", "0s", "cool-down", "10s")
	f(policy.Policy{Pattern: "k", Durability: store.Synced, Single: true}, "pattern", "k", "preset", "quota", "durability", "synced")

	bad := func(name, text string, settings ...string) {
		t.Helper()
		_, err := policy.Parse(pairs(settings))
		var at string
		if e, ok := errors.AsType[*policy.SettingError](err); ok {
			at = e.Name
		}
		if at != name || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v at %q, want %q at %q", settings, err, at, text, name)
		}
	}
	bad("", "pattern is empty")
	bad("", "pattern is empty", "preset", "likes")
	bad("preset", "want accurate, best-effort, eventual, likes,", "preset", "like")
	bad("patern", `unknown setting "patern" of a policy: want preset, namespace,`, "patern", "k")
	bad("durability", `durability: "strong": want synced, written, memory`, "durability", "strong")
	bad("shards", "want a number from 1 to 64", "shards", "0")
	bad("shards", "want a number from 1 to 64", "shards", "65")
	bad("max-shards", "want a number from 1 to 64", "max-shards", "many")
	bad("single", "want true or false", "single", "yes")
	bad("partial", "want true or false", "partial", "")
	bad("spread", "want random, who, time", "spread", "even")
	bad("timing", "want fan-in, rollup, hybrid", "timing", "fanin")
	bad("cool-down", "want a duration such as 30s", "cool-down", "10")
	bad("cool-down", "want more than 0s; leave it out for the default of 10s", "pattern", "k", "cool-down", "0s")
	bad("interval", "want a duration", "interval", "soon")
	bad("interval", "want 10ms to 1h", "pattern", "k", "preset", "likes", "interval", "0s")
	bad("stale", "want a duration", "stale", "")
	bad("", "needs timing", "pattern", "k", "preset", "views", "timing", "fan-in", "interval", "1s")
	bad("", "never split", "pattern", "k", "preset", "stock", "shards", "2")
	bad("floor", `not by a policy: want definitions: [{pattern: "k", floor: 0}]`, "pattern", "k", "floor", "0")
	bad("ceiling", `want definitions: [{pattern: "k", ceiling: 5}]`, "pattern", "k", "ceiling", "5", "preset", "stock")
	f(policy.Policy{Pattern: "k", Stale: 7 * 24 * time.Hour}, "pattern", "k", "stale", "7d")
}

func pairs(settings []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		m[settings[i]] = settings[i+1]
	}
	return m
}

func TestPolicyString(t *testing.T) {
	if got, want := (policy.Policy{Namespace: "n", Pattern: "a b*", Durability: store.Memory, Stale: 90 * time.Minute}).String(),
		`{namespace: "n", pattern: "a b*", durability: memory, stale: 1h30m}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	all := policy.Policy{Pattern: "k", Timing: policy.Hybrid, Partial: true}.Effective()
	if got, want := all.String(), `{pattern: "k", durability: synced, shards: 1, max-shards: 64, cool-down: 10s, timing: hybrid, interval: 1s, partial: true}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// With its defaults, a policy is as valid as without.
func TestEffective(t *testing.T) {
	f := func(p, want policy.Policy) {
		t.Helper()
		if got := p.Effective(); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
	f(policy.Policy{}, policy.Policy{Durability: store.Synced, Shards: 1, MaxShards: 64, CoolDown: 10 * time.Second})
	f(policy.Policy{Single: true}, policy.Policy{Durability: store.Synced, Shards: 1, MaxShards: 1, Single: true, CoolDown: 10 * time.Second})
	f(policy.Policy{Timing: policy.Rollup, Shards: 3, CoolDown: 1, Stale: 2}, policy.Policy{
		Durability: store.Synced, Shards: 3, MaxShards: 64, CoolDown: 1, Timing: policy.Rollup, Interval: time.Second, Stale: 2,
	})
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "n")) * rapid.SampledFrom([]time.Duration{0, 1, 1e6, 1e9}).Draw(t, "unit")
	})
	rapid.Check(t, func(t *rapid.T) {
		p := policy.Policy{
			Pattern:    "k*",
			Durability: rapid.SampledFrom([]store.Durability{0, store.Memory, store.Written, store.Synced}).Draw(t, "durability"),
			Shards:     rapid.IntRange(0, 65).Draw(t, "shards"),
			MaxShards:  rapid.IntRange(0, 65).Draw(t, "max"),
			Single:     rapid.Bool().Draw(t, "single"),
			Spread:     policy.Spread(rapid.IntRange(0, 2).Draw(t, "spread")),
			CoolDown:   duration.Draw(t, "cool"),
			Timing:     policy.Timing(rapid.IntRange(0, 2).Draw(t, "timing")),
			Interval:   duration.Draw(t, "interval"),
			Stale:      duration.Draw(t, "stale"),
			Partial:    rapid.Bool().Draw(t, "partial"),
		}
		valid := func(p policy.Policy) bool { return policy.Check([]policy.Policy{p}) == nil }
		if e := p.Effective(); e.Effective() != e || valid(p) != valid(e) {
			t.Errorf("%s is valid: %t; with its defaults, %s: %t", p, valid(p), e, valid(e))
		}
	})
}

func TestPresets(t *testing.T) {
	want := []string{"likes", "views", "stock", "quota", "visitors", "metrics", "best-effort", "eventual", "accurate"}
	var names []string
	for _, p := range policy.Presets() {
		names = append(names, p.Name)
		if got, ok := policy.Preset(p.Name); !ok || got != p.Policy {
			t.Errorf("preset %s is %s, %t", p.Name, got, ok)
		}
		if p.Policy.Namespace != "" || p.Policy.Pattern != "" || !strings.HasSuffix(p.Promise, ".") {
			t.Errorf("preset %s: %+v", p.Name, p)
		}
		if _, err := policy.Parse(map[string]string{"preset": p.Name, "pattern": "k"}); err != nil {
			t.Errorf("preset %s: %v", p.Name, err)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("presets %q, want %q", names, want)
	}
	if p, ok := policy.Preset("nothing"); ok || p != (policy.Policy{}) {
		t.Errorf("preset nothing: %s, %t", p, ok)
	}
}
