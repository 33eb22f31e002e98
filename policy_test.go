package quipu_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store/memstore"
)

func TestPolicyContradictions(t *testing.T) {
	f := func(want string, p quipu.Policy) {
		t.Helper()
		p.Pattern = "k*"
		err := quipu.Options{Policies: []quipu.Policy{p}}.Validate()
		if want == "" && err != nil || want != "" && (!errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", p, err, want)
		}
	}
	f("", quipu.Policy{})
	f("", quipu.Policy{Shards: 64})
	f("", quipu.Policy{Shards: 1, MaxShards: 1, Single: true})
	f("", quipu.Policy{Timing: quipu.Hybrid, Interval: quipu.IntervalMin})
	f("", quipu.Policy{Timing: quipu.Rollup, Interval: quipu.IntervalMax})
	f("want 1 to 64", quipu.Policy{Shards: 65})
	f("want 1 to 64", quipu.Policy{Shards: -1})
	f("want 1 to 64", quipu.Policy{MaxShards: 65})
	f("want 1 to 64", quipu.Policy{MaxShards: -1})
	f("", quipu.Policy{Shards: 4, MaxShards: 4})
	f("5 shards are more than the 4 of max-shards", quipu.Policy{Shards: 5, MaxShards: 4})
	f("never split", quipu.Policy{Single: true, Shards: 2})
	f("never split", quipu.Policy{Single: true, MaxShards: 2})
	f("unknown spread 3", quipu.Policy{Spread: 3})
	f("unknown timing 3", quipu.Policy{Timing: 3})
	f("unknown durability", quipu.Policy{Durability: 4})
	f("cool-down of -1s", quipu.Policy{CoolDown: -time.Second})
	f("stale values of -1s", quipu.Policy{Stale: -time.Second})
	f("needs timing rollup or hybrid", quipu.Policy{Interval: time.Second})
	f("want 10ms to 1h", quipu.Policy{Timing: quipu.Rollup, Interval: time.Millisecond})
	f("want 10ms to 1h", quipu.Policy{Timing: quipu.Rollup, Interval: 2 * time.Hour})
	f("want 10ms to 1h", quipu.Policy{Timing: quipu.Rollup, Interval: -time.Second})

	many := make([]quipu.Policy, quipu.PoliciesMax+1)
	for i := range many {
		many[i].Pattern = fmt.Sprint(i)
	}
	if err := (quipu.Options{Policies: many}).Validate(); !errors.Is(err, quipu.ErrTooLarge) {
		t.Errorf("%d policies: %v", len(many), err)
	}
	if err := (quipu.Options{Policies: many[1:]}).Validate(); err != nil {
		t.Errorf("%d policies: %v", len(many)-1, err)
	}
}

func TestParsePolicy(t *testing.T) {
	f := func(want quipu.Policy, settings ...string) {
		t.Helper()
		if got, err := quipu.ParsePolicy(pairs(settings)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", settings, got, err, want)
		}
	}
	f(quipu.Policy{Pattern: "k"}, "pattern", "k")
	f(quipu.Policy{
		Namespace: "n", Pattern: "k*", Durability: quipu.Written, Shards: 4, MaxShards: 8, Spread: quipu.SpreadWho,
		CoolDown: time.Minute, Timing: quipu.Hybrid, Interval: 2 * time.Second, Stale: time.Hour, Partial: true,
	}, "namespace", "n", "pattern", "k*", "durability", "written", "shards", "4", "max-shards", "8", "spread", "who",
		"cool-down", "1m", "timing", "hybrid", "interval", "2s", "stale", "1h", "partial", "true", "single", "false")
	f(quipu.Policy{Pattern: "k", Single: true, Spread: quipu.SpreadTime}, "pattern", "k", "single", "true", "spread", "time")

	// A preset gives what the rest leaves open.
	f(quipu.Policy{Pattern: "k", Timing: quipu.Hybrid, Stale: 10 * time.Minute}, "pattern", "k", "preset", "likes")
	f(quipu.Policy{Pattern: "k", Timing: quipu.Hybrid, Stale: time.Minute, Interval: time.Minute},
		"pattern", "k", "preset", "likes", "stale", "1m", "interval", "1m")
	f(quipu.Policy{Pattern: "k", Durability: quipu.Written, Stale: time.Hour}, "pattern", "k", "preset", "views", "timing", "fan-in")
	// What is a default in truth may be written.
	f(quipu.Policy{Pattern: "k", CoolDown: 10 * time.Second}, "pattern", "k", "stale", "0s", "timing", "fan-in", "interval", "0s", "cool-down", "10s")
	f(quipu.Policy{Pattern: "k", Durability: quipu.Synced, Single: true}, "pattern", "k", "preset", "quota", "durability", "synced")

	bad := func(name, text string, settings ...string) {
		t.Helper()
		_, err := quipu.ParsePolicy(pairs(settings))
		var at string
		if e, ok := errors.AsType[*quipu.SettingError](err); ok {
			at = e.Name
		}
		if at != name || !errors.Is(err, quipu.ErrInvalid) || !strings.Contains(err.Error(), text) {
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
	bad("", "never split", "pattern", "k", "ceiling", "5", "max-shards", "2")
	bad("floor", "want an integer between -9223372036854775808", "floor", "none")
	bad("", "a floor of 2 is above the ceiling of 1", "pattern", "k", "floor", "2", "ceiling", "1")
	f(quipu.Policy{Pattern: "k", Stale: 7 * 24 * time.Hour}, "pattern", "k", "stale", "7d")
	f(quipu.Policy{Pattern: "k", Floor: quipu.BoundAt(math.MinInt64), Ceiling: quipu.BoundAt(math.MaxInt64)},
		"pattern", "k", "floor", "-9223372036854775808", "ceiling", "9223372036854775807")
}

func pairs(settings []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		m[settings[i]] = settings[i+1]
	}
	return m
}

func TestPolicyString(t *testing.T) {
	if got, want := (quipu.Policy{Namespace: "n", Pattern: "a b*", Durability: quipu.Memory, Stale: 90 * time.Minute}).String(),
		`{namespace: "n", pattern: "a b*", durability: memory, stale: 1h30m}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	all := quipu.Policy{Pattern: "k", Timing: quipu.Hybrid, Partial: true}.Effective()
	if got, want := all.String(), `{pattern: "k", durability: synced, shards: 1, max-shards: 64, cool-down: 10s, timing: hybrid, interval: 1s, partial: true}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// With its defaults, a policy is as valid as without.
func TestEffective(t *testing.T) {
	f := func(p, want quipu.Policy) {
		t.Helper()
		if got := p.Effective(); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
	f(quipu.Policy{}, quipu.Policy{Durability: quipu.Synced, Shards: 1, MaxShards: 64, CoolDown: 10 * time.Second})
	f(quipu.Policy{Single: true}, quipu.Policy{Durability: quipu.Synced, Shards: 1, MaxShards: 1, Single: true, CoolDown: 10 * time.Second})
	f(quipu.Policy{Timing: quipu.Rollup, Shards: 3, CoolDown: 1, Stale: 2}, quipu.Policy{
		Durability: quipu.Synced, Shards: 3, MaxShards: 64, CoolDown: 1, Timing: quipu.Rollup, Interval: time.Second, Stale: 2,
	})
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "n")) * rapid.SampledFrom([]time.Duration{0, 1, 1e6, 1e9}).Draw(t, "unit")
	})
	rapid.Check(t, func(t *rapid.T) {
		p := quipu.Policy{
			Pattern:    "k*",
			Durability: rapid.SampledFrom([]quipu.Durability{0, quipu.Memory, quipu.Written, quipu.Synced}).Draw(t, "durability"),
			Shards:     rapid.IntRange(0, 65).Draw(t, "shards"),
			MaxShards:  rapid.IntRange(0, 65).Draw(t, "max"),
			Single:     rapid.Bool().Draw(t, "single"),
			Spread:     quipu.Spread(rapid.IntRange(0, 2).Draw(t, "spread")),
			CoolDown:   duration.Draw(t, "cool"),
			Timing:     quipu.Timing(rapid.IntRange(0, 2).Draw(t, "timing")),
			Interval:   duration.Draw(t, "interval"),
			Stale:      duration.Draw(t, "stale"),
			Partial:    rapid.Bool().Draw(t, "partial"),
		}
		valid := func(p quipu.Policy) bool { return quipu.Options{Policies: []quipu.Policy{p}}.Validate() == nil }
		if e := p.Effective(); e.Effective() != e || valid(p) != valid(e) {
			t.Errorf("%s is valid: %t; with its defaults, %s: %t", p, valid(p), e, valid(e))
		}
	})
}

func TestPresets(t *testing.T) {
	want := []string{"likes", "views", "stock", "quota", "visitors", "metrics", "best-effort", "eventual", "accurate"}
	var names []string
	for _, p := range quipu.Presets() {
		names = append(names, p.Name)
		if got, ok := quipu.Preset(p.Name); !ok || got != p.Policy {
			t.Errorf("preset %s is %s, %t", p.Name, got, ok)
		}
		if p.Policy.Namespace != "" || p.Policy.Pattern != "" || !strings.HasSuffix(p.Promise, ".") {
			t.Errorf("preset %s: %+v", p.Name, p)
		}
		if _, err := quipu.ParsePolicy(map[string]string{"preset": p.Name, "pattern": "k"}); err != nil {
			t.Errorf("preset %s: %v", p.Name, err)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("presets %q, want %q", names, want)
	}
	if p, ok := quipu.Preset("nothing"); ok || p != (quipu.Policy{}) {
		t.Errorf("preset nothing: %s, %t", p, ok)
	}
}

func TestPolicyOf(t *testing.T) {
	policies := []quipu.Policy{
		{Namespace: "ads", Pattern: "view:*", Durability: quipu.Memory},
		{Pattern: "view:home", Durability: quipu.Written},
		{Pattern: "view:*", Timing: quipu.Rollup},
		{Namespace: "shop", Pattern: "*", Single: true},
	}
	db := quipu.New(newStub(), quipu.Options{Policies: policies})
	f := func(namespace, key string, want int) {
		t.Helper()
		p, i := db.In(namespace).PolicyOf(key)
		effective := quipu.Policy{Pattern: "*"}.Effective()
		if want >= 0 {
			effective = policies[want].Effective()
		}
		if i != want || p != effective {
			t.Errorf("%s/%s has %s, %d; want %s, %d", namespace, key, p, i, effective, want)
		}
		first := slices.IndexFunc(policies, func(p quipu.Policy) bool { return p.Names(namespace, key) })
		if first != want {
			t.Errorf("%s/%s is named by %d, want %d", namespace, key, first, want)
		}
	}
	f("default", "view:home", 1)
	f("default", "view:home2", 2)
	f("default", "view:", 2)
	f("default", "view", -1)
	f("default", "view:*", 2)
	f("ads", "view:home", 0)
	f("ads", "other", -1)
	f("shop", "view:home", 1)
	f("shop", "other", 3)
	f("shop", "", 3)
}

// Policies are replaced for all views at once, those made before too.
func TestSetPolicies(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{})
	other := db.In("other")
	f := func(view *quipu.DB, want quipu.Durability) {
		t.Helper()
		*sent = nil
		ctx := t.Context()
		if _, err := view.Add(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := view.AddBatch(ctx, []quipu.Event{{Key: "k", Delta: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, b := range *sent {
			if b.Durability != want {
				t.Errorf("a batch is %s, want %s", b.Durability, want)
			}
		}
	}
	set := func(policies ...quipu.Policy) {
		t.Helper()
		given := slices.Clone(policies)
		if err := db.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		clear(policies) // they are the caller's
		got := db.Policies()
		if !slices.Equal(got, given) {
			t.Errorf("policies are %v, want %v", got, given)
		}
		clear(got)
		if got := db.Policies(); !slices.Equal(got, given) {
			t.Errorf("policies are %v, want %v", got, given)
		}
	}
	f(db, quipu.Synced)
	set(quipu.Policy{Pattern: "k", Durability: quipu.Memory})
	f(db, quipu.Memory)
	f(other, quipu.Memory)
	set(quipu.Policy{Namespace: "other", Pattern: "*", Durability: quipu.Written}, quipu.Policy{Pattern: "k", Durability: quipu.Memory})
	f(db, quipu.Memory)
	f(other, quipu.Written)
	if err := other.SetPolicies([]quipu.Policy{{Pattern: "a"}, {Pattern: "a*b"}}); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("an invalid policy: %v", err)
	}
	f(other, quipu.Written)
	set()
	f(db, quipu.Synced)
	f(other, quipu.Synced)

	broken := quipu.New(newStub(), quipu.Options{Memory: -1})
	if err := broken.SetPolicies(nil); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("with invalid options: %v", err)
	}
}

// Nothing is lost while policies are replaced, and every call goes by those of
// one moment.
func TestSetPoliciesConcurrently(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	sets := [][]quipu.Policy{
		nil,
		{{Pattern: "a", Durability: quipu.Written}, {Pattern: "b", Durability: quipu.Memory}},
		{{Pattern: "*", Durability: quipu.Synced}},
	}
	const rounds = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			if err := db.SetPolicies(sets[i%len(sets)]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for range rounds {
				rs, err := db.AddBatch(t.Context(), []quipu.Event{{Key: "a", Delta: 1}, {Key: "b", Delta: 1}})
				if err != nil || rs[0].Err != nil || rs[1].Err != nil {
					t.Error(err, rs)
				}
				if p, i := db.PolicyOf("a"); p.Durability < quipu.Written || i > 0 {
					t.Errorf("a has %s, %d", p, i)
				}
			}
		})
	}
	wg.Wait()
	for _, key := range []string{"a", "b"} {
		if c, err := db.Read(t.Context(), key); err != nil || c.Value != 4*rounds {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
	}
}
