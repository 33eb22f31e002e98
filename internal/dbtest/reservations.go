package dbtest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// A reserver is a kit for a DB that can reserve.
type reserver struct {
	*kit
	Reserver
}

// reserving checks a law on a new DB, if the door can reserve.
func (s *suite) reserving(name string, check func(k reserver)) {
	if s.door.Unreserved {
		return
	}
	s.law(name, func(k *kit) {
		r, ok := k.db.(Reserver)
		if !ok {
			k.Fatalf("%T can't reserve", k.db)
		}
		check(reserver{k, r})
	})
}

func (k reserver) reserve(key string, amount int64, ttl time.Duration, opts ...quipu.WriteOption) quipu.Reservation {
	k.Helper()
	r, err := k.Reserve(k.ctx, key, amount, ttl, opts...)
	k.succeeds(err)
	if r.Key != key || r.Amount != amount || r.ID == "" {
		k.Fatalf("reserved %d of %q, and got %+v", amount, key, r)
	}
	return r
}

func (k reserver) stock(key string, value, reserved, open int64) {
	k.Helper()
	p, err := k.Reservations(k.ctx, key, quipu.ReservationOptions{})
	k.succeeds(err)
	if want := (quipu.Stock{Value: value, Reserved: reserved, Available: value - reserved, Open: open, Exact: true}); p.Stock != want {
		k.Fatalf("%q has %+v, want %+v", key, p.Stock, want)
	}
	k.holds(key, value-reserved)
}

// state checks what has become of a reservation.
func (k reserver) state(id string, want quipu.HoldState) quipu.Reservation {
	k.Helper()
	r, err := k.Reservation(k.ctx, id)
	k.succeeds(err)
	if r.State != want || r.ID != id || !r.HasStock {
		k.Fatalf("%+v, want it %s", r, want)
	}
	return r
}

// reservations are the laws of amounts that are taken out for a time.
func reservations(s *suite) {
	const long = time.Hour
	s.reserving("what is reserved is not available", func(k reserver) {
		k.set("a", 10)
		r := k.reserve("a", 3, long, quipu.WantValue(), quipu.Who("eve"))
		if left := time.Until(r.ExpiresAt); r.State != quipu.HoldOpen || r.Who != "eve" || left < long-time.Minute || left > long+time.Minute {
			k.Fatalf("%+v", r)
		}
		if want := (quipu.Stock{Value: 10, Reserved: 3, Available: 7, Open: 1, Exact: true}); !r.HasStock || r.Stock != want {
			k.Fatalf("%+v, want %+v", r, want)
		}
		if r := k.reserve("a", 7, long); r.HasStock {
			k.Fatalf("nobody asked what there is: %+v", r)
		}
		k.stock("a", 10, 10, 2)
		k.state(r.ID, quipu.HoldOpen)
		k.set("a", 5)
		k.stock("a", 15, 10, 2)
	})
	s.reserving("nothing is reserved that is not there", func(k reserver) {
		k.set("a", 3)
		f := func(key string, n, value, floor int64, text string, opts ...quipu.WriteOption) {
			k.Helper()
			_, err := k.Reserve(k.ctx, key, n, long, opts...)
			k.bounded(err, quipu.BoundError{Value: value, Asked: -n, Limit: floor})
			if !strings.Contains(err.Error(), text) {
				k.Fatalf("%v, want %q", err, text)
			}
		}
		f("a", 4, 3, 0, "4 asked for, and 3 available")
		f("none", 1, 0, 0, "1 asked for, and 0 available")
		f("a", 2, 3, 2, "must not go below 2", quipu.Floor(2))
		k.stock("a", 3, 0, 0)
		k.absent("none")
		k.reserve("a", 5, long, quipu.Floor(-2))
		k.stock("a", 3, 5, 1)
	})
	s.reserving("up to 2^53 is reserved at once", func(k reserver) {
		const most = 1 << 53
		k.set("a", 4*most)
		first := k.reserve("a", most, long).ID
		k.reserve("a", most, long)
		k.stock("a", 4*most, 2*most, 2)
		_, err := k.Commit(k.ctx, first, most-1)
		k.succeeds(err)
		k.stock("a", 3*most+1, most, 1)
		for _, n := range []int64{0, -1, most + 1} {
			_, err := k.Reserve(k.ctx, "a", n, long)
			k.fails(err, quipu.ErrInvalid)
		}
	})
	s.reserving("a commit takes a part for good, once", func(k reserver) {
		k.set("a", 10)
		id := k.reserve("a", 4, long).ID
		r, err := k.Commit(k.ctx, id, 3, quipu.WantValue())
		k.succeeds(err)
		if r.State != quipu.HoldCommitted || r.Committed != 3 || r.Replayed || r.Stock != (quipu.Stock{Value: 7, Available: 7, Exact: true}) {
			k.Fatalf("%+v", r)
		}
		again, err := k.Commit(k.ctx, id, 3)
		k.succeeds(err)
		if again.State != quipu.HoldCommitted || again.Committed != 3 || !again.Replayed && !k.door.Unreplayed {
			k.Fatalf("again: %+v", again)
		}
		for _, n := range []int64{2, 4, quipu.All, 0} {
			_, err = k.Commit(k.ctx, id, n)
			k.ended(err, "committed, with 3")
		}
		_, err = k.Release(k.ctx, id)
		k.ended(err, "committed, with 3")
		_, err = k.Extend(k.ctx, id, long)
		k.ended(err, "committed, with 3")
		if r := k.state(id, quipu.HoldCommitted); r.Committed != 3 {
			k.Fatalf("%+v", r)
		}
		k.stock("a", 7, 0, 0)
		all := k.reserve("a", 2, long).ID
		_, err = k.Commit(k.ctx, all, quipu.All)
		k.succeeds(err)
		k.stock("a", 5, 0, 0)
		nothing := k.reserve("a", 2, long).ID
		_, err = k.Commit(k.ctx, nothing, 0)
		k.succeeds(err)
		_, err = k.Release(k.ctx, nothing)
		k.ended(err, "committed, with 0")
		k.stock("a", 5, 0, 0)
	})
	s.reserving("a release gives all back, once", func(k reserver) {
		k.set("a", 10)
		id := k.reserve("a", 4, long).ID
		r, err := k.Release(k.ctx, id, quipu.WantValue())
		k.succeeds(err)
		if r.State != quipu.HoldReleased || r.Stock != (quipu.Stock{Value: 10, Available: 10, Exact: true}) {
			k.Fatalf("%+v", r)
		}
		again, err := k.Release(k.ctx, id)
		k.succeeds(err)
		if again.State != quipu.HoldReleased || !again.Replayed && !k.door.Unreplayed {
			k.Fatalf("%+v", again)
		}
		_, err = k.Commit(k.ctx, id, quipu.All)
		k.ended(err, "released")
		k.state(id, quipu.HoldReleased)
		k.stock("a", 10, 0, 0)
	})
	s.reserving("a repeat under a token reserves once", func(k reserver) {
		k.set("a", 10)
		opts := []quipu.WriteOption{quipu.Token("t"), quipu.Who("eve"), quipu.WantValue()}
		first := k.reserve("a", 4, long, opts...)
		again := k.reserve("a", 4, long, opts...)
		if again.ID != first.ID || !again.ExpiresAt.Equal(first.ExpiresAt) || again.State != quipu.HoldOpen || !again.Replayed && !k.door.Unreplayed || again.Stock != first.Stock {
			k.Fatalf("%+v, first %+v", again, first)
		}
		longer, err := k.Extend(k.ctx, first.ID, 3*long)
		k.succeeds(err)
		if again = k.reserve("a", 4, long, opts...); !again.ExpiresAt.Equal(longer.ExpiresAt) {
			k.Fatalf("%+v, extended %+v", again, longer)
		}
		for _, other := range []func() error{
			func() error { _, err := k.Reserve(k.ctx, "a", 3, long, opts...); return err },
			func() error { _, err := k.Reserve(k.ctx, "a", 4, 2*long, opts...); return err },
			func() error { _, err := k.Reserve(k.ctx, "a", 4, long, quipu.Token("t")); return err },
			func() error { _, err := k.db.Add(k.ctx, "a", -4, quipu.Token("t")); return err },
		} {
			k.fails(other(), quipu.ErrToken)
		}
		_, err = k.Commit(k.ctx, first.ID, quipu.All)
		k.succeeds(err)
		if again = k.reserve("a", 4, long, opts...); again.State != quipu.HoldCommitted || again.Committed != 4 {
			k.Fatalf("%+v", again)
		}
		k.stock("a", 6, 0, 0)
		if other := k.reserve("a", 4, long, quipu.Token("u")); other.ID == first.ID {
			k.Fatalf("two reservations have one id")
		}
	})
	s.reserving("what expires is given back by itself, once", func(k reserver) {
		k.set("a", 10)
		short := k.reserve("a", 4, 50*time.Millisecond)
		kept := k.reserve("a", 3, long, quipu.Who("eve"))
		k.poll(func() bool { return k.read("a", quipu.Exact()).Value == 7 })
		k.stock("a", 10, 3, 1)
		_, err := k.Commit(k.ctx, short.ID, quipu.All)
		k.ended(err, "expired")
		_, err = k.Release(k.ctx, short.ID)
		k.ended(err, "expired")
		_, err = k.Extend(k.ctx, short.ID, long)
		k.ended(err, "expired")
		k.state(short.ID, quipu.HoldExpired)
		k.state(kept.ID, quipu.HoldOpen)
		for range 3 { // One that is extended does not expire when it would have.
			r := k.reserve("a", 1, 100*time.Millisecond)
			_, err = k.Extend(k.ctx, r.ID, long)
			if errors.Is(err, quipu.ErrEnded) { // The machine was too slow.
				continue
			}
			k.succeeds(err)
			last := k.reserve("a", 1, 100*time.Millisecond)
			k.poll(func() bool { return k.stateOf(last.ID) == quipu.HoldExpired })
			k.state(r.ID, quipu.HoldOpen)
			break
		}
	})
	s.reserving("an extension never shortens", func(k reserver) {
		k.set("a", 10)
		r := k.reserve("a", 4, long)
		same, err := k.Extend(k.ctx, r.ID, time.Minute, quipu.WantValue())
		k.succeeds(err)
		if !same.ExpiresAt.Equal(r.ExpiresAt) || same.Reserved != 4 {
			k.Fatalf("%+v, was %+v", same, r)
		}
		later, err := k.Extend(k.ctx, r.ID, 2*long)
		k.succeeds(err)
		if d := later.ExpiresAt.Sub(r.ExpiresAt); d < long-time.Minute || d > long+time.Minute {
			k.Fatalf("%+v, was %+v", later, r)
		}
	})
	s.reserving("reservations are listed", func(k reserver) {
		k.set("a", 100)
		want := map[string]int64{}
		for i := range 7 {
			who := "eve"
			if i%2 == 0 {
				who = "bob"
			}
			want[k.reserve("a", int64(i+1), long, quipu.Who(who)).ID] = int64(i + 1)
		}
		k.set("ab", 5)
		k.reserve("ab", 5, long)
		list := func(o quipu.ReservationOptions) (all []quipu.Reservation) {
			k.Helper()
			for {
				p, err := k.Reservations(k.ctx, "a", o)
				k.succeeds(err)
				if p.Stock != (quipu.Stock{Value: 100, Reserved: 28, Available: 72, Open: 7, Exact: true}) {
					k.Fatalf("%+v", p)
				}
				for _, r := range p.Reservations {
					if want[r.ID] != r.Amount || r.State != quipu.HoldOpen || r.Key != "a" || r.ExpiresAt.IsZero() {
						k.Fatalf("%+v", r)
					}
				}
				if all = append(all, p.Reservations...); p.Next == "" {
					return all
				}
				o.Cursor = p.Next
			}
		}
		for limit := range 9 {
			if all := list(quipu.ReservationOptions{Limit: limit}); len(all) != 7 {
				k.Fatalf("pages of %d: %+v", limit, all)
			}
			if all := list(quipu.ReservationOptions{Limit: limit, Who: "bob"}); len(all) != 4 || all[0].Who != "bob" {
				k.Fatalf("pages of %d: %+v", limit, all)
			}
		}
		_, err := k.Reservations(k.ctx, "a", quipu.ReservationOptions{Cursor: "x"})
		k.fails(err, quipu.ErrInvalid)
		_, err = k.Reservations(k.ctx, "a", quipu.ReservationOptions{Limit: 1001})
		k.fails(err, quipu.ErrInvalid)
	})
	s.reserving("what is no reservation is refused", func(k reserver) {
		k.set("a", 10)
		f := func(want error, call func() error) {
			k.Helper()
			k.fails(call(), want)
		}
		reserve := func(key string, n int64, ttl time.Duration, opts ...quipu.WriteOption) func() error {
			return func() error { _, err := k.Reserve(k.ctx, key, n, ttl, opts...); return err }
		}
		f(quipu.ErrInvalid, reserve("a", 0, long))
		f(quipu.ErrInvalid, reserve("a", -1, long))
		f(quipu.ErrInvalid, reserve("a", 1, 0))
		f(quipu.ErrInvalid, reserve("a", 1, -long))
		f(quipu.ErrInvalid, reserve("a", 1, 10_000*long))
		f(quipu.ErrInvalid, reserve("", 1, long))
		f(quipu.ErrInvalid, reserve("a", 1, long, quipu.Token("")))
		f(quipu.ErrTooLarge, reserve("a", 1, long, quipu.Who(strings.Repeat("w", 201))))
		id := k.reserve("a", 2, long).ID
		for _, bad := range []string{"", "x", id + "A", id[:len(id)-1], strings.Repeat("A", 5000)} {
			_, err := k.Reservation(k.ctx, bad)
			if !errors.Is(err, quipu.ErrInvalid) && !errors.Is(err, quipu.ErrTooLarge) {
				k.Fatalf("%q: %v", bad, err)
			}
		}
		f(quipu.ErrInvalid, func() error { _, err := k.Commit(k.ctx, id, 3); return err })
		f(quipu.ErrInvalid, func() error { _, err := k.Commit(k.ctx, id, -2); return err })
		f(quipu.ErrInvalid, func() error { _, err := k.Extend(k.ctx, id, 0); return err })
		f(quipu.ErrInvalid, func() error { _, err := k.in("other").(Reserver).Release(k.ctx, id); return err })
		k.stock("a", 10, 2, 1)
	})
	s.reserving("a counter is not deleted while reservations are open", func(k reserver) {
		k.set("a", 10)
		id := k.reserve("a", 4, long).ID
		_, err := k.db.Delete(k.ctx, "a")
		k.fails(err, store.ErrUnmet)
		if !strings.Contains(err.Error(), "reservations") {
			k.Fatalf("%v", err)
		}
		_, err = k.db.Reset(k.ctx, "a")
		k.fails(err, store.ErrUnmet)
		if _, err = k.db.Add(k.ctx, "a", 1, quipu.TTL(long)); !k.door.Unbounded && !errors.Is(err, store.ErrUnmet) {
			k.Fatalf("a lifetime: %v", err)
		}
		k.stock("a", 10, 4, 1)
		_, err = k.Release(k.ctx, id)
		k.succeeds(err)
		k.reset("a")
		k.delete("a")
		k.absent("a")
		k.set("b", 1)
		k.delete("b")
		if !k.door.Unbounded {
			k.add("mortal", 1, quipu.TTL(long))
			_, err = k.Reserve(k.ctx, "mortal", 1, long)
			k.fails(err, store.ErrUnmet)
			k.delete("mortal")
			k.absent("mortal")
		}
	})
	s.reserving("definitions bind reservations", func(k reserver) {
		k.define(
			definition.Definition{Pattern: "over:*", Floor: new(int64(-5))},
			definition.Definition{Pattern: "full:*", Ceiling: new(int64(100))},
			definition.Definition{Pattern: "few:*", Reservations: &definition.Reservations{
				Max: 4, Total: 12, PerWho: 2, Who: 7, MaxTTL: definition.Keep(2 * long),
			}},
		)
		k.reserve("over:1", 5, long)
		_, err := k.Reserve(k.ctx, "over:1", 1, long)
		k.bounded(err, quipu.BoundError{Value: -5, Asked: -1, Limit: -5})
		k.set("full:1", 5)
		_, err = k.Reserve(k.ctx, "full:1", 1, long)
		k.fails(err, quipu.ErrInvalid)
		f := func(text string, n int64, who string) {
			k.Helper()
			_, err := k.Reserve(k.ctx, "few:1", n, long, quipu.Who(who))
			k.fails(err, quipu.ErrBound)
			if !strings.Contains(err.Error(), text) {
				k.Fatalf("%v, want %q", err, text)
			}
		}
		k.set("few:1", 100)
		k.reserve("few:1", 3, long, quipu.Who("eve"))
		f(`at most 7 are reserved at once for "eve"`, 5, "eve")
		last := k.reserve("few:1", 4, long, quipu.Who("eve"))
		f(`at most 2 are open at once for "eve"`, 1, "eve")
		f("at most 12 are reserved at once", 6, "")
		k.reserve("few:1", 1, long)
		k.reserve("few:1", 1, long)
		f("at most 4 are open at once", 1, "bob")
		_, err = k.Reserve(k.ctx, "few:2", 1, 3*long)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.Extend(k.ctx, last.ID, 3*long)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.Release(k.ctx, last.ID)
		k.succeeds(err)
		k.reserve("few:1", 1, long, quipu.Who("eve"))
		k.stock("few:1", 100, 6, 4)
	})
	s.reserving("many reserve at once, and nothing is sold twice", func(k reserver) {
		const stock, each = 60, 20
		k.set("a", stock)
		var sold atomic.Int64
		k.parallel(8, func(w int) error {
			for i := range each {
				token := fmt.Sprint(w, "-", i)
				r, err := k.Reserve(k.ctx, "a", 1, long, quipu.Token(token))
				if errors.Is(err, quipu.ErrBound) {
					continue
				}
				if err != nil {
					return err
				}
				if again, err := k.Reserve(k.ctx, "a", 1, long, quipu.Token(token)); err != nil || again.ID != r.ID {
					return fmt.Errorf("a repeat: %+v, %w", again, err)
				}
				if i%3 == 0 {
					if _, err := k.Release(k.ctx, r.ID); err != nil {
						return err
					}
					continue
				}
				if _, err := k.Commit(k.ctx, r.ID, quipu.All); err != nil {
					return err
				}
				sold.Add(1)
			}
			return nil
		})
		k.stock("a", stock-sold.Load(), 0, 0)
	})
}

// stateOf returns what has become of a reservation.
func (k reserver) stateOf(id string) quipu.HoldState {
	k.Helper()
	r, err := k.Reservation(k.ctx, id)
	k.succeeds(err)
	return r.State
}

// ended checks that a reservation has ended, and how.
func (k reserver) ended(err error, how string) {
	k.Helper()
	k.fails(err, quipu.ErrEnded)
	if !strings.Contains(err.Error(), how) {
		k.Fatalf("%v, want %q", err, how)
	}
}
