package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

// bucket asks for a cost of a token bucket.
func bucket(cost, rate int64, per time.Duration, burst int64) limit.Request {
	r := limit.Request{Cost: cost, NRules: 1}
	r.Rules[0] = limit.Rule{Tag: 1, Algorithm: limit.Bucket, Rate: rate, PerUS: per.Microseconds(), Burst: burst}
	return r
}

// client is the part of what is known of one, and ask has its limiter decide.
func client(name string) store.Part { return partOf(store.PartLimit, 0, name) }

func ask(c store.Cell, name string, r limit.Request, riders ...store.Rider) store.Delta {
	d := want(led(store.Delta{Cell: c, Op: store.OpMerge}, client(name), riders...))
	d.Event.Bytes = r.Append(nil)
	return d
}

// answer applies a merge, and returns what the limiter says.
func (k *kit) answer(d store.Delta, allowed bool) limit.Reply {
	k.Helper()
	r := k.one(d)
	reply := limit.Unpack(r.Before, r.After)
	outcome := store.Applied
	if !allowed && reply.RetryMS != 0 {
		outcome = store.Untimely
	}
	k.outcome(r, outcome)
	if reply.Allowed != allowed || reply.Unknown {
		k.Fatalf("the answer is %+v, want allowed %v", reply, allowed)
	}
	return reply
}

// merges are the laws of OpMerge of limiters. Those of sketches are in sketches.go.
func merges(s *suite) {
	clock := newClock()
	s.lawWith("a limiter goes by the store's time", Config{Now: clock.now}, func(k *kit) {
		c := store.LimitCell(namespace, "api", 0)
		one := bucket(1, 2, time.Second, 2)
		f := func(name string, allowed bool, left, retry, reset int64) {
			k.Helper()
			want := limit.Reply{Allowed: allowed, Remaining: left, RetryMS: retry, ResetMS: reset}
			if got := k.answer(ask(c, name, one), allowed); got != want {
				k.Fatalf("the answer is %+v, want %+v", got, want)
			}
		}
		f("eve", true, 1, 0, 500)
		f("eve", true, 0, 0, 1000)
		f("eve", false, 0, 500, 1000)
		f("bob", true, 1, 0, 500)
		clock.move(499 * time.Millisecond)
		f("eve", false, 0, 1, 501)
		clock.move(time.Millisecond)
		f("eve", true, 0, 0, 1000)
		f("eve", false, 0, 500, 1000)
	})
	s.law("a limiter knows microseconds", func(k *kit) {
		c, fine := cell("a"), false
		for i := range 50 {
			name := fmt.Sprint(i)
			k.answer(ask(c, name, bucket(1, 1, time.Microsecond, 1)), true)
			end, ok := limit.Ends(k.part(c, client(name)).Bytes)
			fine = fine || ok && (end-1)%1000 != 0
		}
		if !fine {
			k.Fatalf("50 decisions were all made at whole milliseconds")
		}
	})
	s.lawWith("what a limiter refuses leaves no trace", Config{Now: clock.now}, func(k *kit) {
		c := cell("a")
		two := bucket(2, 1, time.Hour, 1)
		k.answer(ask(c, "eve", two), false)
		k.absent(c)
		k.partAbsent(c, client("eve"))
		k.answer(ask(c, "eve", bucket(1, 1, time.Hour, 1), plus("", 1)), true)
		before, was := k.part(c, client("eve")), k.read(c)
		k.answer(ask(c, "eve", bucket(1, 1, time.Hour, 1), plus("", 1), plus(partHeld, 1)), false)
		if k.part(c, client("eve")) != before || k.read(c) != was {
			k.Fatalf("%+v, %+v became %+v, %+v", was, before, k.read(c), k.part(c, client("eve")))
		}
		k.partAbsent(c, partHeld)
		// It takes what there is if it is told to, and is an answer all the same.
		burn := bucket(5, 1, time.Hour, 1)
		burn.Burn = true
		clock.move(2 * time.Hour)
		r := k.event(ask(c, "eve", burn), store.Applied, 0)
		if got := limit.Unpack(r.Before, r.After); got.Allowed || got.RetryMS != limit.Never {
			k.Fatalf("the answer is %+v", got)
		}
		k.answer(ask(c, "eve", bucket(1, 1, time.Hour, 1)), false)
	})
	s.lawWith("riders go with what a limiter allows", Config{Now: clock.now}, func(k *kit) {
		c := cell("a")
		clients := plus("", 1)
		clients.When, clients.Bound = store.Met{Kind: store.MetEqual}, &store.Bound{Low: 0, High: 2, Inward: true}
		few := bucket(1, 1, time.Hour, 2)
		for _, name := range []string{"eve", "bob", "eve"} {
			k.answer(ask(c, name, few, clients), true)
		}
		k.holds(c, 2)
		k.event(ask(c, "ann", few, clients), store.Bounded, 1)
		k.partAbsent(c, client("ann"))
		k.event(led(del(c), client("bob"), when(plus("", -1), store.MetNot, 0)), store.Applied, 0)
		k.answer(ask(c, "ann", few, clients), true)
		k.holds(c, 2)
	})
	s.lawWith("a token remembers what a limiter allowed", Config{Now: clock.now}, func(k *kit) {
		c := cell("a")
		d := once(ask(c, "eve", bucket(1, 1, time.Second, 1)), "t")
		first := k.event(d, store.Applied, 0)
		k.repeats(k.one(d), first)
		other := once(ask(c, "eve", bucket(1, 1, time.Second, 1)), "u")
		k.outcome(k.one(other), store.Untimely)
		k.state(c, "u", store.TokenUnknown)
		clock.move(time.Second)
		k.outcome(k.one(other), store.Applied)
		k.repeats(k.one(d), first)
	})
	s.lawWith("a numbered repeat has the first answers", Config{Now: clock.now}, func(k *kit) {
		c, w := cell("a"), k.enlist()
		one := bucket(1, 1, time.Second, 1)
		b := k.numbered(w, 0, 1, ask(c, "eve", one), ask(c, "eve", one), ask(c, "bob", one))
		first := k.reply(b)
		for i, want := range []store.Outcome{store.Applied, store.Untimely, store.Applied} {
			k.outcome(first.Results[i], want)
		}
		clock.move(time.Hour)
		again := k.reply(b)
		for i := range again.Results {
			got, want := again.Results[i], first.Results[i]
			if !again.Replayed || got.Outcome != want.Outcome || got.Before != want.Before || got.After != want.After {
				k.Fatalf("result %d is %+v, want %+v", i, got, want)
			}
		}
		b.Deltas[0] = ask(c, "eve", bucket(2, 1, time.Second, 1))
		k.refused(b, store.KindMark)
	})
	s.law("what no limiter knows is refused", func(k *kit) {
		c := cell("a")
		d := ask(c, "eve", limit.Request{})
		for _, bytes := range [][]byte{nil, {}, {99, 1, 2}, []byte("hello")} {
			d.Event.Bytes = bytes
			r := k.event(d, store.Untimely, 0)
			if !limit.Unpack(r.Before, r.After).Unknown {
				k.Fatalf("%q: %+v", bytes, r)
			}
		}
		k.absent(c)
		bad := led(store.Delta{Cell: c, Op: store.OpMerge}, partEntries)
		k.refused(k.batch(bad), store.KindInvalid)
		k.refused(k.batch(with(add(c, 1), store.Rider{Part: client("eve"), Op: store.OpMerge})), store.KindInvalid)
		k.refused(k.batch(led(add(c, 1), client("eve"))), store.KindInvalid)
	})
	s.lawWith("a limit goes by the book of its namespace", Config{Now: clock.now}, func(k *kit) {
		c := store.LimitCell(namespace, "api", 0)
		b := k.batch(ask(c, "eve", bucket(1, 1, time.Second, 1)))
		b.Books = []store.Book{{Namespace: namespace, ID: 2}}
		k.outcome(k.reply(b).Results[0], store.Applied)
		b.Books[0].ID = 1
		k.refused(b, store.KindOutdated)
	})
	s.lawWith("a limiter survives", Config{Now: clock.now}, func(k *kit) {
		c := store.LimitCell(namespace, "api", 0)
		one := bucket(1, 1, time.Hour, 6)
		left := int64(6)
		for _, again := range []func(testing.TB) store.Store{k.inst.Reopen, k.inst.Crash, k.inst.Reopen} {
			left--
			if got := k.answer(ask(c, "eve", one), true); got.Remaining != left {
				k.Fatalf("%d left, want %d", got.Remaining, left)
			}
			if again != nil {
				k.replace(again(k.t))
			}
		}
	})
}
