package dbtest

import (
	"errors"
	"math"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
)

// tokens are the laws of writing once.
func tokens(s *suite) {
	s.law("a repeat counts once and returns the first result", func(k *kit) {
		k.add("a", 100)
		writes := []func() quipu.Receipt{
			func() quipu.Receipt { return k.add("a", 5, quipu.Token("plain")) },
			func() quipu.Receipt { return k.add("a", 5, quipu.Token("value"), quipu.WantValue()) },
			func() quipu.Receipt { return k.add("a", 0, quipu.Token("zero"), quipu.WantValue()) },
			func() quipu.Receipt {
				return k.add("a", 1, quipu.Token("event"), quipu.Who("me"))
			},
		}
		want := int64(111)
		if !k.door.AddsOnce {
			want = 3
			writes = append(writes,
				func() quipu.Receipt { return k.set("a", 9, quipu.Token("set"), quipu.WantValue()) },
				func() quipu.Receipt { return k.reset("a", quipu.Token("reset"), quipu.WantValue()) },
				func() quipu.Receipt { return k.delete("a", quipu.Token("delete"), quipu.WantValue()) },
				func() quipu.Receipt { return k.add("a", 3, quipu.Token("again"), quipu.IfVersion(0)) })
		}
		firsts := make([]quipu.Receipt, len(writes))
		for i, write := range writes {
			firsts[i] = write()
			if firsts[i].Replayed {
				k.Fatalf("write %d was the first, yet its receipt is %+v", i, firsts[i])
			}
		}
		was := k.read("a")
		for range 2 {
			for i, write := range writes {
				k.repeats(write(), firsts[i])
			}
		}
		if now := k.read("a"); now.Value != want || now.Version != was.Version {
			k.Fatalf("repeats changed the counter from %+v to %+v", was, now)
		}
		k.moved(firsts[1], 105, 110)
		if !k.door.AddsOnce {
			k.moved(firsts[4], 111, 9)
			k.moved(firsts[6], 0, 0)
		}
	})

	s.law("the same token with another payload is refused and changes nothing", func(k *kit) {
		was := k.add("a", 5, quipu.Token("t"), quipu.Who("me"), quipu.Floor(0))
		f := func(write func() (quipu.Receipt, error)) {
			k.Helper()
			_, err := write()
			k.fails(err, quipu.ErrToken)
			if now := k.read("a"); now.Value != 5 || now.Version != was.Version {
				k.Fatalf("a refused write changed the counter to %+v", now)
			}
		}
		add := func(n int64, opts ...quipu.WriteOption) func() (quipu.Receipt, error) {
			return func() (quipu.Receipt, error) {
				return k.db.Add(k.ctx, "a", n, append(opts, quipu.Token("t"))...)
			}
		}
		zero, me := quipu.Floor(0), quipu.Who("me")
		f(add(6, zero, me))
		f(add(-5, zero, me))
		f(add(5))
		f(add(5, zero))
		f(add(5, me))
		f(add(5, zero, quipu.Who("he")))
		f(add(5, quipu.Floor(1), me))
		f(add(5, quipu.Ceiling(0), me))
		f(add(5, zero, quipu.Ceiling(9), me))
		f(add(5, zero, quipu.Saturate(), me))
		f(add(5, zero, quipu.TTL(time.Hour), me))
		f(add(5, zero, me, quipu.IfVersion(was.Version)))
		f(add(5, zero, me, quipu.IfVersion(0)))
		f(func() (quipu.Receipt, error) { return k.db.Set(k.ctx, "a", 5, quipu.Token("t")) })
		f(func() (quipu.Receipt, error) { return k.db.Reset(k.ctx, "a", quipu.Token("t")) })
		f(func() (quipu.Receipt, error) { return k.db.Delete(k.ctx, "a", quipu.Token("t")) })
		f(func() (quipu.Receipt, error) {
			rs := k.addBatch(quipu.Event{Key: "a", Delta: 5, Token: "t", Floor: new(int64(0))})
			return rs[0], rs[0].Err
		})
		k.repeats(k.add("a", 5, quipu.Token("t"), zero, me), was)

		k.add("a", 5, quipu.Token("versioned"), quipu.IfVersion(was.Version))
		_, err := k.db.Add(k.ctx, "a", 5, quipu.Token("versioned"), quipu.IfVersion(was.Version+1))
		k.fails(err, quipu.ErrToken)
		k.holds("a", 10)
	})

	s.law("the order of options and the way of sending are no part of the payload", func(k *kit) {
		first := k.add("a", 2, quipu.Token("t"), quipu.WantValue(), quipu.Who("me"), quipu.Ceiling(9), quipu.TTL(time.Hour))
		k.repeats(k.add("a", 2, quipu.TTL(time.Hour), quipu.Ceiling(9), quipu.Who("me"), quipu.WantValue(), quipu.Token("t")), first)
		event := quipu.Event{Key: "a", Delta: 2, Token: "t", Who: "me", WantValue: true, Ceiling: new(int64(9)), TTL: time.Hour}
		k.repeats(k.addBatch(event)[0], first)

		event = quipu.Event{Key: "a", Delta: 3, Token: "batch first"}
		first = k.addBatch(event)[0]
		k.repeats(k.add("a", 3, quipu.Token("batch first"), call.At(time.Time{}), quipu.Who("")), first)
		k.holds("a", 5)
	})

	s.law("what a caller wants to be told is no part of the payload", func(k *kit) {
		f := func(want bool, token string, opts ...quipu.WriteOption) {
			k.Helper()
			opts = append(opts, quipu.Token(token))
			events := []quipu.Event{{Key: "a", Delta: 2, Token: token, WantValue: len(opts) > 1}}
			for _, r := range []quipu.Receipt{k.add("a", 2, opts...), k.addBatch(events...)[0]} {
				if r.Err != nil || !k.replayed(r) || r.Applied != 2 || r.HasValue != want || want && (r.Before != 5 || r.Value != 7) {
					k.Fatalf("token %s: %+v", token, r)
				}
			}
		}
		k.add("a", 5)
		k.add("a", 2, quipu.Token("valued"), quipu.WantValue())
		k.add("a", 2, quipu.Token("blind"))
		f(true, "valued", quipu.WantValue())
		f(false, "valued")
		f(false, "blind", quipu.WantValue()) // the first result has none
		f(false, "blind")
		k.holds("a", 9)
	})

	s.law("a token names a write to one counter", func(k *kit) {
		k.add("a", 1, quipu.Token("t"))
		if r := k.add("b", 2, quipu.Token("t")); r.Replayed {
			k.Fatalf("the token of another counter is replayed: %+v", r)
		}
		other := k.with(k.tb, "other")
		if r := other.add("a", 3, quipu.Token("t")); r.Replayed {
			k.Fatalf("the token of another namespace is replayed: %+v", r)
		}
		k.holds("a", 1)
		k.holds("b", 2)
		other.holds("a", 3)
	})

	s.law("set, reset and delete forget no token", func(k *kit) {
		first := k.add("a", 1, quipu.Token("t"), quipu.WantValue())
		again := func(want int64) {
			k.Helper()
			k.repeats(k.add("a", 1, quipu.Token("t"), quipu.WantValue()), first)
			k.holds("a", want)
		}
		k.set("a", 5)
		again(5)
		k.reset("a")
		again(0)
		k.delete("a")
		k.repeats(k.add("a", 1, quipu.Token("t"), quipu.WantValue()), first)
		k.absent("a")
		k.add("a", 8)
		again(8)
	})

	s.law("a refused write does not use up its token", func(k *kit) {
		k.set("a", math.MaxInt64)
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Token("t"))
		k.fails(err, quipu.ErrOverflow)
		if f := k.lookup("a", "t"); f.State != quipu.TokenUnknown {
			k.Fatalf("the token of a refused write is %v", f.State)
		}
		k.reset("a")
		if r := k.add("a", 1, quipu.Token("t")); r.Replayed {
			k.Fatalf("receipt %+v, want a first one", r)
		}
		k.holds("a", 1)
	})

	s.law("a token that was made before the window is refused", func(k *kit) {
		old := uuid(time.Now().Add(-48 * time.Hour))
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Token(old))
		k.fails(err, quipu.ErrExpired)
		k.absent("a")
		first := k.add("a", 1, quipu.Token(uuid(time.Now())))
		if first.Replayed {
			k.Fatalf("receipt %+v, want a first one", first)
		}
	})

	short := quipu.Options{Limits: quipu.Limits{TokenWindow: 100 * time.Millisecond}}
	s.lawOf("a token ends by refusal, never by counting again", short, func(k *kit) {
		token := ""
		k.poll(func() bool { // until one arrives inside its window
			token = uuid(time.Now())
			_, err := k.db.Add(k.ctx, "a", 1, quipu.Token(token))
			if err != nil {
				k.fails(err, quipu.ErrExpired)
			}
			return err == nil
		})
		k.poll(func() bool {
			r, err := k.db.Add(k.ctx, "a", 1, quipu.Token(token))
			if err == nil && !k.replayed(r) {
				k.Fatalf("counted again: %+v", r)
			}
			if err != nil {
				k.fails(err, quipu.ErrExpired)
			}
			return err != nil
		})
		k.holds("a", 1)
		if f := k.lookup("a", token); f.State != quipu.TokenExpired {
			k.Fatalf("the token is %v, want it expired", f.State)
		}
		if f := k.settle("a", token); f.State != quipu.TokenExpired {
			k.Fatalf("the token is %v, want it expired", f.State)
		}
	})
}

// settles are the laws of a definite answer.
func settles(s *suite) {
	s.law("lookup reports and changes nothing", func(k *kit) {
		if f := k.lookup("a", "t"); f != (quipu.Fate{}) {
			k.Fatalf("fate %+v of a token nobody used", f)
		}
		k.absent("a")
		start := time.Now()
		first := k.add("a", 4, quipu.Token("t"), quipu.WantValue())
		for range 2 {
			f := k.lookup("a", "t")
			k.applied(f, first)
			if age := f.At.Sub(start).Abs(); age > time.Minute {
				k.Fatalf("decided at %v, which is %v away from now", f.At, age)
			}
		}
		k.holds("a", 4)
	})

	s.law("settle before the write refuses it for good", func(k *kit) {
		for range 2 {
			if f := k.settle("a", "t"); f.State != quipu.TokenSettled {
				k.Fatalf("fate %+v, want it settled", f)
			}
		}
		k.absent("a")
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Token("t"))
		k.fails(err, quipu.ErrSettled)
		k.fails(k.addBatch(quipu.Event{Key: "a", Delta: 1, Token: "t"})[0].Err, quipu.ErrSettled)
		if !k.door.AddsOnce {
			_, err := k.db.Set(k.ctx, "a", 1, quipu.Token("t"))
			k.fails(err, quipu.ErrSettled)
		}
		k.absent("a")
		if f := k.lookup("a", "t"); f.State != quipu.TokenSettled {
			k.Fatalf("fate %+v, want it settled", f)
		}
	})

	s.law("settle after the write returns its result and undoes nothing", func(k *kit) {
		k.set("a", 10)
		first := k.add("a", 4, quipu.Token("t"), quipu.WantValue())
		k.applied(k.settle("a", "t"), first)
		k.applied(k.settle("a", "t"), first)
		k.repeats(k.add("a", 4, quipu.Token("t"), quipu.WantValue()), first)
		k.holds("a", 14)
		plain := k.add("a", 1, quipu.Token("plain"))
		if f := k.settle("a", "plain"); f.State != quipu.TokenApplied || f.Receipt.Version != plain.Version || f.Receipt.HasValue {
			k.Fatalf("fate %+v of a write that did not ask for its value: %+v", f, plain)
		}
	})

	s.law("settle decides one token of one counter", func(k *kit) {
		k.settle("a", "t")
		k.add("a", 1, quipu.Token("u"))
		k.add("b", 2, quipu.Token("t"))
		k.holds("a", 1)
		k.holds("b", 2)
	})

	s.law("an expired token settles as expired", func(k *kit) {
		old := uuid(time.Now().Add(-48 * time.Hour))
		if f := k.lookup("a", old); f.State != quipu.TokenExpired {
			k.Fatalf("lookup says %v, want expired", f.State)
		}
		if f := k.settle("a", old); f.State != quipu.TokenExpired {
			k.Fatalf("settle says %v, want expired", f.State)
		}
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Token(old))
		k.fails(err, quipu.ErrExpired)
	})

	s.law("a write and a settle that race agree", func(k *kit) {
		const races = 40
		applied := int64(0)
		for i := range races {
			token := uuid(time.Now())
			var writeErr error
			var fate quipu.Fate
			k.parallel(2, func(side int) (err error) {
				if side == i%2 {
					_, writeErr = k.db.Add(k.ctx, "a", 1, quipu.Token(token))
					return nil
				}
				fate, err = k.db.Settle(k.ctx, "a", token)
				return err
			})
			switch {
			case fate.State == quipu.TokenApplied && writeErr == nil:
				applied++
			case fate.State == quipu.TokenSettled && errors.Is(writeErr, quipu.ErrSettled):
			default:
				k.Fatalf("settle says %v, the write says %v", fate.State, writeErr)
			}
		}
		k.add("a", 0)
		k.holds("a", applied)
	})
}

// applied checks that a fate is that of a write which wanted its value.
func (k *kit) applied(f quipu.Fate, first quipu.Receipt) {
	k.Helper()
	r := f.Receipt
	if f.State != quipu.TokenApplied || r.Key != first.Key || r.Applied != first.Applied || r.Version != first.Version {
		k.Fatalf("fate %+v, want the one of %+v", f, first)
	}
	k.moved(r, first.Before, first.Value)
}
