package dbtest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// batches are the laws of AddBatch: it is Add, many times.
func batches(s *suite) {
	s.law("receipts are in the order of the events", func(k *kit) {
		var events []quipu.Event
		for i := range 500 {
			events = append(events, quipu.Event{Key: fmt.Sprintf("k%d", i%37), Delta: int64(i), WantValue: i%3 == 0})
		}
		sums := map[string]int64{}
		for i, r := range k.addBatch(events...) {
			e := events[i]
			before := sums[e.Key]
			sums[e.Key] += e.Delta
			if r.Err != nil || r.Applied != e.Delta || r.Replayed || r.HasValue != e.WantValue {
				k.Fatalf("event %+v has receipt %+v", e, r)
			}
			if e.WantValue {
				k.moved(r, before, sums[e.Key])
			}
		}
		for key, sum := range sums {
			k.holds(key, sum)
		}
	})

	s.law("a bad event is refused alone", func(k *kit) {
		k.set("full", math.MaxInt64)
		k.settle("a", "settled")
		k.add("a", 1, quipu.Token("used"))
		f := func(e quipu.Event, want error) {
			k.Helper()
			rs := k.addBatch(quipu.Event{Key: "good", Delta: 1}, e, quipu.Event{Key: "good", Delta: 1})
			k.fails(rs[1].Err, want)
			if rs[1].Applied != 0 || rs[1].HasValue {
				k.Fatalf("a refused event has receipt %+v", rs[1])
			}
			k.succeeds(rs[0].Err)
			k.succeeds(rs[2].Err)
		}
		f(quipu.Event{Delta: 1}, quipu.ErrInvalid)
		f(quipu.Event{Key: strings.Repeat("k", 513), Delta: 1}, quipu.ErrTooLarge)
		f(quipu.Event{Key: "a", Delta: 1, Token: strings.Repeat("t", 256)}, quipu.ErrTooLarge)
		f(quipu.Event{Key: "a", Delta: 1, Who: strings.Repeat("w", 256)}, quipu.ErrTooLarge)
		f(quipu.Event{Key: "full", Delta: 1, WantValue: true}, quipu.ErrOverflow)
		f(quipu.Event{Key: "a", Delta: 2, Token: "used"}, quipu.ErrToken)
		f(quipu.Event{Key: "a", Delta: 1, Token: "settled"}, quipu.ErrSettled)
		k.holds("good", 14)
		k.holds("a", 1)
		k.holds("full", math.MaxInt64)
		k.fails(k.addBatch(quipu.Event{})[0].Err, quipu.ErrInvalid)
	})

	s.law("an event that is not UTF-8 is refused alone", func(k *kit) {
		good := quipu.Event{Key: "good", Delta: 1}
		for _, bad := range []quipu.Event{{Key: "\xff", Delta: 1}, {Key: "a", Delta: 1, Token: "\xff"}, {Key: "a", Delta: 1, Who: "\xff"}} {
			rs := k.addBatch(good, bad, good)
			k.fails(rs[1].Err, quipu.ErrInvalid)
			k.succeeds(rs[0].Err)
			k.succeeds(rs[2].Err)
		}
		k.holds("good", 6)
		k.absent("a")
		for _, r := range k.addBatch(quipu.Event{}, quipu.Event{Key: "\xff"}) {
			k.fails(r.Err, quipu.ErrInvalid)
		}
	})

	s.law("an event with a bad time is refused alone", func(k *kit) {
		rs := k.addBatch(
			quipu.Event{Key: "a", Delta: 1, At: time.UnixMilli(-1)}, quipu.Event{Key: "a", Delta: 1, TTL: -time.Second}, quipu.Event{Key: "b", Delta: 1})
		if rs[0].Err == nil {
			k.Fatalf("no error")
		}
		k.fails(rs[1].Err, quipu.ErrInvalid)
		k.succeeds(rs[2].Err)
		k.absent("a")
	})

	s.law("a batch with tokens may be sent again", func(k *kit) {
		var events []quipu.Event
		for i := range 60 {
			events = append(events, quipu.Event{
				Key: fmt.Sprintf("k%d", i%7), Delta: int64(i), Token: fmt.Sprint("t", i), WantValue: i%2 == 0,
			})
		}
		half := k.addBatch(events[:30]...)
		firsts := k.addBatch(events...)
		for i, r := range firsts {
			if i < len(half) {
				k.repeats(r, half[i])
			} else if r.Replayed || r.Err != nil {
				k.Fatalf("event %d is new, its receipt %+v", i, r)
			}
		}
		for i, r := range k.addBatch(events...) {
			first := firsts[i]
			first.Replayed = false
			k.repeats(r, first)
		}
		total := int64(0)
		for i := range 7 {
			total += k.read(fmt.Sprintf("k%d", i)).Value
		}
		if total != 59*60/2 {
			k.Fatalf("the total is %d, want %d", total, 59*60/2)
		}
	})

	s.law("two events with one token in one batch are one", func(k *kit) {
		e := quipu.Event{Key: "a", Delta: 5, Token: "t", WantValue: true}
		other := e
		other.Delta = 6
		rs := k.addBatch(e, e, other)
		k.moved(rs[0], 0, 5)
		k.repeats(rs[1], rs[0])
		k.fails(rs[2].Err, quipu.ErrToken)
		k.holds("a", 5)
	})

	s.law("a batch may be larger than what a store takes at once", func(k *kit) {
		events := make([]quipu.Event, 12_000)
		long := strings.Repeat("x", 400)
		for i := range events {
			events[i] = quipu.Event{Key: fmt.Sprint(long, i%10), Delta: 1, WantValue: true}
		}
		seen := map[string]int64{}
		for i, r := range k.addBatch(events...) {
			if r.Err != nil {
				k.Fatalf("event %d: %v", i, r.Err)
			}
			seen[r.Key]++
			k.moved(r, seen[r.Key]-1, seen[r.Key])
		}
		k.holds(fmt.Sprint(long, 3), 1200)
	})

	s.law("an empty batch is no error and one over the limit is", func(k *kit) {
		k.addBatch()
		events := make([]quipu.Event, quipu.EventsMax+1)
		for i := range events {
			events[i] = quipu.Event{Key: "a", Delta: 1}
		}
		_, err := k.db.AddBatch(k.ctx, events)
		k.fails(err, quipu.ErrTooLarge)
		k.absent("a")
	})
}

// one adds a single event by Add, and returns what AddBatch would.
func (k *kit) one(e quipu.Event) quipu.Receipt {
	k.Helper()
	opts := []quipu.WriteOption{call.At(e.At), quipu.Who(e.Who)}
	if e.Floor != nil {
		opts = append(opts, quipu.Floor(*e.Floor))
	}
	if e.Ceiling != nil {
		opts = append(opts, quipu.Ceiling(*e.Ceiling))
	}
	if e.Saturate {
		opts = append(opts, quipu.Saturate())
	}
	if e.Token != "" {
		opts = append(opts, quipu.Token(e.Token))
	}
	if e.WantValue {
		opts = append(opts, quipu.WantValue())
	}
	r, err := k.db.Add(k.ctx, e.Key, e.Delta, opts...)
	r.Key, r.Err = e.Key, err
	return r
}

// sameReceipt reports whether two receipts say the same but for versions, which
// two counters need not share.
func sameReceipt(a, b quipu.Receipt) bool {
	if store.KindOf(a.Err) != store.KindOf(b.Err) || (a.Err == nil) != (b.Err == nil) {
		return false
	}
	a.Err, b.Err = nil, nil
	a.Version, b.Version = min(a.Version, 1), min(b.Version, 1)
	a.Namespace, b.Namespace = "", ""
	return a == b
}
