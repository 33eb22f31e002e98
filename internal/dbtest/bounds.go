package dbtest

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// bounds are the laws of floors and ceilings: those of a call, and those of a
// definition.
func bounds(s *suite) {
	s.law("a call's floor and ceiling hold", func(k *kit) {
		k.set("a", 5)
		k.refused("a", -6, quipu.BoundError{Value: 5, Asked: -6, Limit: 0}, quipu.Floor(0))
		k.refused("a", 5, quipu.BoundError{Value: 5, Asked: 5, Limit: 9, Above: true}, quipu.Ceiling(9))
		k.refused("none", -1, quipu.BoundError{Asked: -1}, quipu.Floor(0), quipu.Ceiling(9))
		k.refused("a", math.MaxInt64, quipu.BoundError{Value: 5, Asked: math.MaxInt64, Limit: math.MaxInt64, Above: true}, quipu.Floor(0))
		k.absent("none")
		k.holds("a", 5)
		k.moved(k.add("a", -5, quipu.Floor(0), quipu.WantValue()), 5, 0)
		if r := k.add("a", 9, quipu.Floor(0), quipu.Ceiling(9)); r.Applied != 9 || r.HasValue {
			k.Fatalf("an add that asks for no value has receipt %+v", r)
		}
		k.holds("a", 9)
	})

	s.law("a counter that is beyond a limit can come back, and go no farther", func(k *kit) {
		k.set("a", -9)
		k.add("a", 2, quipu.Floor(0))
		k.refused("a", -1, quipu.BoundError{Value: -7, Asked: -1}, quipu.Floor(0))
		if r := k.add("a", -1, quipu.Floor(0), quipu.Saturate()); r.Applied != 0 {
			k.Fatalf("saturated below its floor: %+v", r)
		}
		k.holds("a", -7)
		k.set("a", 50)
		k.add("a", -1, quipu.Ceiling(9))
		k.refused("a", 1, quipu.BoundError{Value: 49, Asked: 1, Limit: 9, Above: true}, quipu.Ceiling(9))
	})

	s.law("a saturated add says what it added", func(k *kit) {
		k.set("a", 5)
		token := ""
		f := func(n, applied, after int64, opts ...quipu.WriteOption) {
			k.Helper()
			token = fmt.Sprint("t", len(token)) + token
			opts = append(opts, quipu.Saturate(), quipu.Token(token))
			first := k.add("a", n, opts...)
			if first.Applied != applied || first.HasValue {
				k.Fatalf("an add of %d has receipt %+v, want %d applied", n, first, applied)
			}
			k.repeats(k.add("a", n, opts...), first)
			if fate := k.lookup("a", token); fate.Receipt.Applied != applied {
				k.Fatalf("lookup says %+v, want %d applied", fate, applied)
			}
			k.holds("a", after)
		}
		f(-3, -3, 2, quipu.Floor(0))
		f(-3, -2, 0, quipu.Floor(0))
		f(-3, 0, 0, quipu.Floor(0))
		f(100, 10, 10, quipu.Floor(0), quipu.Ceiling(10))
		f(math.MaxInt64, math.MaxInt64-10, math.MaxInt64)
	})

	s.law("a token remembers a refusal by a bound", func(k *kit) {
		opts := []quipu.WriteOption{quipu.Floor(0), quipu.Token("t"), quipu.WantValue()}
		for range 2 {
			k.refused("a", -1, quipu.BoundError{Asked: -1}, opts...)
			k.add("a", 3)
			if f := k.lookup("a", "t"); f.State != quipu.TokenRefused {
				k.Fatalf("its token is %s", f.State)
			}
		}
		if f, err := k.db.Settle(k.ctx, "a", "t"); err != nil || f.State != quipu.TokenRefused {
			k.Fatalf("settled: %+v, %v", f, err)
		}
		_, err := k.db.Add(k.ctx, "a", -2, opts...)
		k.fails(err, quipu.ErrToken)
		k.moved(k.add("a", -1, quipu.Floor(0), quipu.Token("u"), quipu.WantValue()), 6, 5)
	})

	s.lawOf("a refusal that is not remembered says so", quipu.Options{Limits: quipu.Limits{TokensMax: 10}}, func(k *kit) {
		k.refused("a", -1, quipu.BoundError{Asked: -1}, quipu.Floor(0), quipu.Token("t"))
		k.refused("a", -1, quipu.BoundError{Asked: -1, Forgotten: true}, quipu.Floor(0), quipu.Token("u"))
		if f := k.lookup("a", "u"); f.State != quipu.TokenUnknown {
			k.Fatalf("its token is %s", f.State)
		}
		k.add("a", 1)
		k.refused("a", -1, quipu.BoundError{Asked: -1}, quipu.Floor(0), quipu.Token("t"))
		k.add("a", -1, quipu.Floor(0), quipu.Token("u"))
		k.holds("a", 0)
	})

	s.law("a bound that contradicts itself is refused", func(k *kit) {
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Floor(2), quipu.Ceiling(1))
		k.fails(err, quipu.ErrInvalid)
		rs := k.addBatch(quipu.Event{Key: "a", Delta: 1, Floor: new(int64(2)), Ceiling: new(int64(1))}, quipu.Event{Key: "b", Delta: 1})
		k.fails(rs[0].Err, quipu.ErrInvalid)
		k.succeeds(rs[1].Err)
		k.absent("a")
	})

	s.law("a batch keeps the bounds of each event", func(k *kit) {
		zero := new(int64(0))
		rs := k.addBatch(
			quipu.Event{Key: "a", Delta: 3, Floor: zero},
			quipu.Event{Key: "a", Delta: -4, Floor: zero},
			quipu.Event{Key: "a", Delta: -4, Floor: zero, Saturate: true, Token: "t"},
			quipu.Event{Key: "a", Delta: -4},
			quipu.Event{Key: "a", Delta: 9, Ceiling: new(int64(1)), Saturate: true, WantValue: true},
		)
		k.bounded(rs[1].Err, quipu.BoundError{Value: 3, Asked: -4})
		if rs[2].Applied != -3 || rs[3].Applied != -4 {
			k.Fatalf("receipts %+v", rs)
		}
		k.moved(rs[4], -4, 1)
		again := k.addBatch(quipu.Event{Key: "a", Delta: -4, Floor: zero, Saturate: true, Token: "t"})
		k.repeats(again[0], rs[2])
	})

	stock := []definition.Definition{
		{Pattern: "stock:*", Floor: new(int64(0)), Ceiling: new(int64(100))},
		{Pattern: "least:*", Floor: new(int64(-5))},
	}
	s.law("a definition's floor and ceiling hold for every write", func(k *kit) {
		k.define(stock...)
		k.add("stock:1", 10)
		k.refused("stock:1", -11, quipu.BoundError{Value: 10, Asked: -11})
		k.refused("stock:1", 91, quipu.BoundError{Value: 10, Asked: 91, Limit: 100, Above: true}, quipu.Token("t"))
		k.refused("stock:1", -11, quipu.BoundError{Value: 10, Asked: -11}, quipu.Floor(-50)) // A call can't loosen it,
		k.refused("stock:1", -9, quipu.BoundError{Value: 10, Asked: -9, Limit: 2}, quipu.Floor(2))
		k.refused("stock:1", 1, quipu.BoundError{Value: 10, Asked: 1, Limit: -7, Above: true}, quipu.Ceiling(-7)) // or contradict it for others.
		_, err := k.db.Set(k.ctx, "stock:1", -1)
		k.bounded(err, quipu.BoundError{Value: 10, Asked: -1, Set: true})
		_, err = k.db.Set(k.ctx, "stock:1", 101, quipu.Token("u"))
		k.bounded(err, quipu.BoundError{Value: 10, Asked: 101, Limit: 100, Above: true, Set: true})
		rs := k.addBatch(quipu.Event{Key: "stock:1", Delta: -4}, quipu.Event{Key: "stock:1", Delta: -7}, quipu.Event{Key: "free", Delta: -7})
		k.succeeds(rs[0].Err)
		k.bounded(rs[1].Err, quipu.BoundError{Value: 6, Asked: -7})
		k.succeeds(rs[2].Err)
		k.holds("stock:1", 6)
		if r := k.add("stock:1", -9, quipu.Saturate()); r.Applied != -6 || r.HasValue {
			k.Fatalf("saturated at a definition's floor: %+v", r)
		}
		k.moved(k.add("least:1", -5, quipu.WantValue()), 0, -5)
		k.refused("least:1", -1, quipu.BoundError{Value: -5, Asked: -1, Limit: -5})
		k.reset("stock:1")
		k.set("stock:1", 100)
		k.delete("stock:1")
		k.absent("stock:1")
	})

	s.law("a definition's floor holds from when it is in force, and until it ends", func(k *kit) {
		k.add("stock:1", -7)
		k.define(stock...)
		k.refused("stock:1", -1, quipu.BoundError{Value: -7, Asked: -1})
		k.add("stock:1", 3) // It can come back step by step.
		k.define(definition.Definition{Pattern: "stock:*", Floor: new(int64(-5))})
		k.add("stock:1", -1)
		k.refused("stock:1", -1, quipu.BoundError{Value: -5, Asked: -1, Limit: -5})
		k.define()
		k.add("stock:1", -1)
		k.holds("stock:1", -6)
	})

	s.law("a refusal outlives the definition that it is by", func(k *kit) {
		k.define(stock...)
		token := quipu.Token("t")
		k.refused("stock:1", -1, quipu.BoundError{Asked: -1}, token)
		k.define(definition.Definition{Pattern: "stock:*", Floor: new(int64(-9))})
		_, err := k.db.Add(k.ctx, "stock:1", -1, token)
		k.fails(err, quipu.ErrBound)
		k.define()
		_, err = k.db.Add(k.ctx, "stock:1", -1, token)
		k.fails(err, quipu.ErrBound)
		k.add("stock:1", -1)
		k.define(stock...)
		k.refused("stock:1", -1, quipu.BoundError{Asked: -1}, token) // when it was 0
		k.holds("stock:1", -1)
	})

	s.law("a definition's floor is never crossed by many at once", func(k *kit) {
		const each = 40
		k.define(stock...)
		k.set("stock:1", 100)
		var taken atomic.Int64
		k.parallel(8, func(w int) error {
			for i := range each {
				r, err := k.db.Add(k.ctx, "stock:1", -1, quipu.Token(fmt.Sprint(w, "-", i)))
				switch {
				case errors.Is(err, quipu.ErrBound):
				case err != nil:
					return err
				default:
					taken.Add(-r.Applied)
				}
			}
			return nil
		})
		if taken.Load() != 100 {
			k.Fatalf("%d were taken of 100", taken.Load())
		}
		k.holds("stock:1", 0)
	})
}

// refused checks that an add is refused by a bound.
func (k *kit) refused(key string, n int64, want quipu.BoundError, opts ...quipu.WriteOption) {
	k.Helper()
	_, err := k.db.Add(k.ctx, key, n, opts...)
	k.bounded(err, want)
}

// bounded checks what an error says of a bound.
func (k *kit) bounded(err error, want quipu.BoundError) {
	k.Helper()
	k.fails(err, quipu.ErrBound)
	if e, ok := errors.AsType[*quipu.BoundError](err); !ok || *e != want {
		k.Fatalf("error is %#v, want %+v", err, want)
	}
}

// lifetimes are the laws of counters that end by themselves.
func lifetimes(s *suite) {
	s.law("a counter with a lifetime ends, and says when", func(k *kit) {
		// A store's clock may be another one, so a law can only tell a minute from none.
		about := func(c quipu.Count, ttl time.Duration) {
			k.Helper()
			if left := time.Until(c.ExpiresAt); left > ttl+time.Minute || left < ttl-time.Minute {
				k.Fatalf("%+v ends in %v, want %v", c, left, ttl)
			}
		}
		k.add("a", 1)
		if c := k.read("a"); !c.ExpiresAt.IsZero() {
			k.Fatalf("a counter without a lifetime ends at %v", c.ExpiresAt)
		}
		k.add("a", 1, quipu.TTL(time.Hour))
		was := k.read("a")
		about(was, time.Hour)
		k.add("a", 1)
		if now := k.read("a"); !now.ExpiresAt.Equal(was.ExpiresAt) {
			k.Fatalf("an add without a lifetime moved the end from %v to %v", was.ExpiresAt, now.ExpiresAt)
		}
		k.addBatch(quipu.Event{Key: "a", Delta: 1, TTL: 3 * time.Hour})
		about(k.read("a", quipu.Exact()), 3*time.Hour)
		about(k.page("", quipu.ListOptions{}).Counts[0], 3*time.Hour)
		k.holds("a", 4)

		k.add("short", 7, quipu.TTL(time.Millisecond))
		k.poll(func() bool { return !k.read("short", quipu.Exact()).Exists })
		k.moved(k.add("short", 1, quipu.WantValue()), 0, 1)
		if c := k.read("short"); !c.ExpiresAt.IsZero() {
			k.Fatalf("the counter that came after one that ended ends at %v", c.ExpiresAt)
		}
	})

	s.law("a repeat does not lengthen a lifetime", func(k *kit) {
		opts := []quipu.WriteOption{quipu.TTL(time.Hour), quipu.Token("t"), quipu.Ceiling(1)}
		first := k.add("a", 1, opts...)
		was := k.read("a")
		k.add("b", 1) // The clock may have moved on by then.
		k.repeats(k.add("a", 1, opts...), first)
		if now := k.read("a"); !now.ExpiresAt.Equal(was.ExpiresAt) || now.Value != 1 {
			k.Fatalf("a repeat made %+v of %+v", now, was)
		}
		_, err := k.db.Add(k.ctx, "a", 1, quipu.TTL(2*time.Hour), quipu.Token("t"), quipu.Ceiling(1))
		k.fails(err, quipu.ErrToken)
	})

	s.law("a lifetime is a millisecond or more", func(k *kit) {
		for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond} {
			_, err := k.db.Add(k.ctx, "a", 1, quipu.TTL(ttl))
			k.fails(err, quipu.ErrInvalid)
		}
		k.absent("a")
		k.add("a", 1, quipu.TTL(math.MaxInt64))
		k.holds("a", 1)
	})

	s.law("a refused add leaves the lifetime", func(k *kit) {
		k.add("a", 1, quipu.TTL(time.Hour))
		was := k.read("a")
		k.refused("a", 1, quipu.BoundError{Value: 1, Asked: 1, Limit: 1, Above: true}, quipu.Ceiling(1), quipu.TTL(9*time.Hour))
		if now := k.read("a"); !now.ExpiresAt.Equal(was.ExpiresAt) {
			k.Fatalf("a refused add moved the end from %v to %v", was.ExpiresAt, now.ExpiresAt)
		}
	})
}
