package dbtest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// width returns a length of time as it is written.
func (k *kit) width(s string) definition.Width {
	k.Helper()
	w, err := definition.ParseWidth(s)
	if err != nil {
		k.Fatalf("%v", err)
	}
	return w
}

// limited has a pattern of the namespace be limited.
func (k *kit) limited(pattern string, limits ...definition.Limit) {
	k.Helper()
	d := definition.Definition{Pattern: pattern, Limits: limits}
	if _, err := k.db.Define(k.ctx, []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		k.Fatalf("Define %s: %v", d, err)
	}
}

func (k *kit) ask(name, who string, cost int64, o quipu.AllowOptions) quipu.Decision {
	k.Helper()
	d, err := k.db.Allow(k.ctx, name, who, cost, o)
	if err != nil {
		k.Fatalf("Allow(%q, %q, %d): %v", name, who, cost, err)
	}
	if d.Source != call.SourceStore {
		k.Fatalf("Allow(%q, %q, %d) was decided by %q", name, who, cost, d.Source)
	}
	return d
}

// allowed asks, and checks that it is allowed and what is left.
func (k *kit) allowed(name, who string, cost, left int64) {
	k.Helper()
	if d := k.ask(name, who, cost, quipu.AllowOptions{}); !d.Allowed || d.Remaining != left || d.RetryAfter != 0 {
		k.Fatalf("Allow(%q, %q, %d): %+v, want %d left", name, who, cost, d, left)
	}
}

// denied asks for eve, and checks that it is refused and what is left.
func (k *kit) denied(name string, cost, left int64) quipu.Decision {
	k.Helper()
	d := k.ask(name, "eve", cost, quipu.AllowOptions{})
	if d.Allowed || d.Remaining != left || d.RetryAfter == 0 {
		k.Fatalf("Allow(%q, eve, %d): %+v, want it refused with %d left", name, cost, d, left)
	}
	return d
}

// allows are the laws of rate limits and quotas. What comes back takes longer than a law.
func allows(s *suite) {
	bucket := func(k *kit) definition.Limit { return definition.Limit{Rate: 1, Per: k.width("24h"), Burst: 3} }

	s.law("a limit allows what it says, to each client", func(k *kit) {
		k.limited("api:*", bucket(k))
		for left := int64(2); left >= 0; left-- {
			k.allowed("api:a", "eve", 1, left)
		}
		d := k.denied("api:a", 1, 0)
		if d.Policy != "24h" || d.Limit != 3 || d.RetryAfter <= 23*time.Hour || d.RetryAfter > 24*time.Hour || d.ResetAfter <= 2*24*time.Hour {
			k.Fatalf("refused: %+v", d)
		}
		k.allowed("api:a", "bob", 1, 2)
		k.allowed("api:b", "eve", 1, 2)
		k.allowed("api:a", "", 3, 0)
		other := k.with(k.tb, "other")
		other.limited("api:*", bucket(k))
		other.allowed("api:a", "eve", 2, 1)
	})

	s.law("a cost is used whole or not at all", func(k *kit) {
		k.limited("api", bucket(k))
		k.allowed("api", "eve", 2, 1)
		k.denied("api", 2, 1)
		k.allowed("api", "eve", 1, 0)
		if d := k.denied("api", 4, 0); d.RetryAfter != call.Never {
			k.Fatalf("4 of 3 are allowed after %s", d.RetryAfter)
		}
	})

	s.law("to ask what is left uses nothing", func(k *kit) {
		k.limited("api", bucket(k))
		k.allowed("api", "eve", 0, 3)
		k.allowed("api", "eve", 1, 2)
		for range 3 {
			k.allowed("api", "eve", 0, 2)
			if d := k.ask("api", "eve", 2, quipu.AllowOptions{DryRun: true}); !d.Allowed || d.Remaining != 0 {
				k.Fatalf("a dry run: %+v", d)
			}
			if d := k.ask("api", "eve", 3, quipu.AllowOptions{DryRun: true}); d.Allowed || d.Remaining != 2 {
				k.Fatalf("a dry run: %+v", d)
			}
		}
	})

	s.law("several limits are decided together", func(k *kit) {
		k.limited("api", bucket(k), definition.Limit{Name: "month", Algorithm: definition.Calendar, Rate: 4, Per: k.width("1mo"), Zone: "Europe/Berlin"})
		k.allowed("api", "eve", 3, 0)
		if d := k.denied("api", 1, 0); d.Policy == "month" {
			k.Fatalf("refused by %q: %+v", d.Policy, d)
		}
		if err := k.db.ResetLimit(k.ctx, "api", "eve"); err != nil {
			k.Fatalf("ResetLimit: %v", err)
		}
		k.allowed("api", "eve", 2, 1)
		if d := k.denied("api", 5, 1); d.RetryAfter != call.Never {
			k.Fatalf("5 of 3 and of 4: %+v", d)
		}
		k.allowed("api", "eve", 1, 0)
	})

	s.law("a refused call uses nothing unless it is to burn", func(k *kit) {
		k.limited("api", bucket(k))
		k.allowed("api", "eve", 1, 2)
		k.denied("api", 3, 2)
		if d := k.ask("api", "eve", 3, quipu.AllowOptions{Burn: true}); d.Allowed || d.Remaining != 0 {
			k.Fatalf("burnt: %+v", d)
		}
		k.denied("api", 1, 0)
	})

	s.law("windows are limits too", func(k *kit) {
		k.limited("*", definition.Limit{Algorithm: definition.FixedWindow, Rate: 3, Per: k.width("8784h")})
		k.allowed("w", "eve", 2, 1)
		k.denied("w", 2, 1)
		k.limited("*", definition.Limit{Algorithm: definition.SlidingWindow, Rate: 3, Per: k.width("8784h")})
		k.allowed("s", "eve", 2, 1)
		k.denied("s", 2, 1)
	})

	s.law("a changed limit keeps what was used", func(k *kit) {
		k.limited("api", definition.Limit{Name: "calls", Rate: 1, Per: k.width("24h"), Burst: 3})
		k.allowed("api", "eve", 3, 0)
		k.limited("api", definition.Limit{Name: "calls", Rate: 1, Per: k.width("24h"), Burst: 5})
		k.allowed("api", "eve", 1, 1)
		k.limited("api", definition.Limit{Name: "calls", Rate: 1, Per: k.width("24h"), Burst: 2})
		k.denied("api", 1, 0)
	})

	s.law("a client that is reset has used nothing", func(k *kit) {
		k.limited("api", bucket(k))
		k.allowed("api", "eve", 3, 0)
		k.allowed("api", "bob", 1, 2)
		for range 2 {
			if err := k.db.ResetLimit(k.ctx, "api", "eve"); err != nil {
				k.Fatalf("ResetLimit: %v", err)
			}
		}
		k.allowed("api", "eve", 1, 2)
		k.allowed("api", "bob", 1, 1)
	})

	s.law("a call that is repeated under its token has the first answer", func(k *kit) {
		k.limited("api", bucket(k))
		first := k.ask("api", "eve", 2, quipu.AllowOptions{Token: "t"})
		again := k.ask("api", "eve", 2, quipu.AllowOptions{Token: "t"})
		if !first.Allowed || first.Remaining != 1 || !again.Allowed || again.Remaining != 1 || !again.Replayed {
			k.Fatalf("first %+v, again %+v", first, again)
		}
		_, err := k.db.Allow(k.ctx, "api", "eve", 1, quipu.AllowOptions{Token: "t"})
		k.fails(err, quipu.ErrToken)
		if d := k.ask("api", "eve", 2, quipu.AllowOptions{Token: "u"}); d.Allowed {
			k.Fatalf("%+v", d)
		}
		if err := k.db.ResetLimit(k.ctx, "api", "eve"); err != nil {
			k.Fatalf("ResetLimit: %v", err)
		}
		if d := k.ask("api", "eve", 2, quipu.AllowOptions{Token: "u"}); !d.Allowed { // a refusal is not remembered
			k.Fatalf("%+v", d)
		}
	})

	s.law("a limit is no counter", func(k *kit) {
		k.limited("api", bucket(k))
		k.allowed("api", "eve", 1, 2)
		k.absent("api")
		k.add("api", 7)
		k.allowed("api", "eve", 1, 1)
		k.holds("api", 7)
		k.delete("api")
		k.allowed("api", "eve", 1, 0)
	})

	s.law("no more is allowed to many at once", func(k *kit) {
		k.limited("api", definition.Limit{Rate: 1, Per: k.width("24h"), Burst: 50})
		var allowed atomic.Int64
		k.parallel(8, func(int) error {
			for range 20 {
				d, err := k.db.Allow(k.ctx, "api", "eve", 1, quipu.AllowOptions{})
				if err != nil {
					return err
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
			return nil
		})
		if n := allowed.Load(); n != 50 {
			k.Fatalf("%d were allowed, of 160, want 50", n)
		}
	})

	s.law("a name without limits, and what no limit can be asked, is refused", func(k *kit) {
		k.limited("api:*", bucket(k))
		f := func(want error, name, who string, cost int64) {
			k.Helper()
			_, err := k.db.Allow(k.ctx, name, who, cost, quipu.AllowOptions{})
			k.fails(err, want)
		}
		f(quipu.ErrInvalid, "web", "eve", 1)
		f(quipu.ErrInvalid, "", "eve", 1)
		f(quipu.ErrTooLarge, strings.Repeat("n", 513), "eve", 1)
		f(quipu.ErrTooLarge, "api:a", strings.Repeat("w", 256), 1)
		f(quipu.ErrInvalid, "api:a", "eve", -1)
		f(quipu.ErrInvalid, "api:a", "eve", 1_000_000_000_001)
		k.allowed("api:a", strings.Repeat("w", 255), 1, 2)
		k.fails(k.db.ResetLimit(k.ctx, "", "eve"), quipu.ErrInvalid)
	})

	s.law("a call may bring its own limits", func(k *kit) {
		own := quipu.AllowOptions{Limits: []definition.Limit{
			{Name: "calls", Rate: 1, Per: k.width("24h"), Burst: 2},
			{Name: "month", Algorithm: definition.Calendar, Rate: 9, Per: k.width("1mo"), Zone: "Europe/Berlin"},
		}}
		for left := int64(1); left >= 0; left-- {
			if d := k.ask("api", "eve", 1, own); !d.Allowed || d.Remaining != left || d.Policy != "calls" || fmt.Sprint(d.Limits) != fmt.Sprint(own.Limits) {
				k.Fatalf("%+v", d)
			}
		}
		if d := k.ask("api", "eve", 1, own); d.Allowed {
			k.Fatalf("%+v", d)
		}
		f := func(o quipu.AllowOptions) {
			k.Helper()
			_, err := k.db.Allow(k.ctx, "api", "eve", 1, o)
			k.fails(err, quipu.ErrInvalid)
		}
		f(quipu.AllowOptions{Limits: []definition.Limit{{Rate: 0, Per: k.width("1s")}}})
		f(quipu.AllowOptions{Limits: []definition.Limit{{Rate: 1, Per: k.width("1mo")}}})
		f(quipu.AllowOptions{Limits: []definition.Limit{{Rate: 1, Per: k.width("1s")}, {Rate: 2, Per: k.width("1s")}}})
		f(quipu.AllowOptions{Limits: []definition.Limit{{Rate: 1, Per: k.width("1mo"), Algorithm: definition.Calendar, Zone: "Europe/Atlantis"}}})
		f(quipu.AllowOptions{Limits: own.Limits, Away: definition.Away{Then: definition.Share}})
		f(quipu.AllowOptions{Away: definition.Away{Then: definition.FailOpen}})
		f(quipu.AllowOptions{Limits: own.Limits, DryRun: true, Token: "t"})
	})
}
