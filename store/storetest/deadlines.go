package storetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// deadlines are the laws of cells that end by themselves: what each delta does
// to a deadline, and that from then on there is no cell.
func deadlines(s *suite) {
	forever := store.Limits{}

	s.lawAt("a cell exists until its deadline and not from then on", forever, deadlineIsExact)

	s.lawAt("every change keeps, sets or clears the deadline", forever, func(k *kit, cl *clock) {
		c, ms := cell("a"), cl.ms()+1000
		f := func(d store.Delta, n, deadline int64) {
			k.Helper()
			r := k.one(want(d))
			k.outcome(r, store.Applied)
			if r.After != n || r.DeadlineMS != deadline {
				k.Fatalf("%+v returns %+v, want %d until %d", d, r, n, deadline)
			}
			k.holdsUntil(c, n, deadline)
		}
		f(add(c, 1), 1, 0)
		f(until(add(c, 1), ms), 2, ms)
		f(add(c, 1), 3, ms)
		f(add(c, 0), 3, ms)
		f(set(c, 5), 5, ms)
		f(until(set(c, 6), ms+1), 6, ms+1)
		f(until(add(c, 1), ms), 7, ms)
		f(expiring(add(c, 1), store.ExpiryClear, 0), 8, 0)
		f(expiring(set(c, 2), store.ExpiryClear, 0), 2, 0) // there is none to clear
		f(expire(c, store.ExpirySet, ms), 2, ms)
		f(expire(c, store.ExpirySet, ms), 2, ms)
		f(expiring(set(c, 3), store.ExpiryClear, 0), 3, 0)
		f(expire(c, store.ExpirySet, math.MaxInt64), 3, math.MaxInt64)
		f(expire(c, store.ExpiryClear, 0), 3, 0)
		f(expire(c, store.ExpirySet|store.ExpiryIfSooner, math.MaxInt64), 3, math.MaxInt64) // sooner than never
		f(expire(c, store.ExpiryClear, 0), 3, 0)
		f(until(set(c, 4), ms), 4, ms)
		k.outcome(k.one(del(c)), store.Applied)
		k.absent(c)
		f(add(c, 1), 1, 0) // a deleted cell lost it
		f(until(add(c, 1), ms), 2, ms)
		k.outcome(k.one(del(c)), store.Applied)
		f(until(add(c, 1), ms+5), 1, ms+5)
		cl.move(time.Second)
		f(add(c, 1), 2, ms+5) // no deadline that was replaced comes back
	})

	s.lawAt("every condition on a deadline, by itself and with others", forever, deadlineConditions)

	s.lawAt("a deadline that has passed makes the cell absent", forever, func(k *kit, cl *clock) {
		cs := k.together(2)
		c := cs[0]
		for _, ms := range []int64{1, cl.ms() - 1, cl.ms()} {
			for _, d := range []store.Delta{until(add(c, 4), ms), until(set(c, 4), ms), expire(c, store.ExpirySet, ms)} {
				// The change is made, as its result says, and is over at once.
				version := k.one(set(c, 3)).Version
				r, made := k.one(want(d)), map[store.Op]int64{store.OpAdd: 7, store.OpSet: 4, store.OpExpire: 3}[d.Op]
				if want := (store.Result{Outcome: store.Applied, Before: 3, After: made, Existed: true}); r != want {
					k.Fatalf("%+v returns %+v, want %+v", d, r, want)
				}
				k.absent(c)
				r = k.one(want(add(c, 1)))
				k.told(r, store.Result{Outcome: store.Applied, After: 1})
				if r.Version <= version {
					k.Fatalf("version %d after %d", r.Version, version)
				}
				k.one(del(c))
				if d.Op != store.OpExpire {
					if r, want := k.one(want(d)), (store.Result{Outcome: store.Applied, After: 4}); r != want {
						k.Fatalf("%+v of an absent cell returns %+v, want %+v", d, r, want)
					}
					k.absent(c)
				}
				rs := k.do(set(c, 3), d, get(c), want(add(c, 1)), add(cs[1], 1))
				k.told(rs[2], store.Result{Outcome: store.Applied})
				k.told(rs[3], store.Result{Outcome: store.Applied, After: 1})
				k.outcome(rs[4], store.Applied)
			}
		}
		k.holds(cs[1], 9)

		// A refused write is refused whatever the deadline.
		k.one(set(c, math.MaxInt64))
		k.outcome(k.one(until(add(c, 1), 1)), store.Overflow)
		k.outcome(k.one(within(until(add(c, -1), 1), store.Bound{High: 5})), store.Bounded)
		k.outcome(k.one(match(until(add(c, -1), 1), 0)), store.Changed)
		k.outcome(k.one(expire(c, store.ExpirySet|store.ExpiryIfSome, 1)), store.Unmet)
		k.outcome(k.one(expiring(add(c, -1), store.ExpirySet|store.ExpiryIfSome, 1)), store.Applied)
		k.holdsUntil(c, math.MaxInt64-1, 0)
		k.one(until(set(c, 7), cl.ms()+1))
		k.holdsUntil(c, 7, cl.ms()+1)
	})

	s.lawAt("a change of the deadline is a change of the cell", forever, func(k *kit, cl *clock) {
		c := cell("a")
		was := k.one(set(c, 5)).Version
		for _, d := range []store.Delta{
			expire(c, store.ExpirySet, cl.ms()+9), expire(c, store.ExpirySet, cl.ms()+9), want(expire(c, store.ExpiryClear, 0)),
		} {
			r := k.one(d)
			k.outcome(r, store.Applied)
			if r.Version <= was || k.read(c).Version != r.Version {
				k.Fatalf("version %d after %d, read sees %d", r.Version, was, k.read(c).Version)
			}
			k.outcome(k.one(match(add(c, 1), was)), store.Changed)
			k.outcome(k.one(match(expire(c, store.ExpirySet, cl.ms()+9), was)), store.Changed)
			was = r.Version
		}
		k.outcome(k.one(match(expire(c, store.ExpirySet, cl.ms()+9), was)), store.Applied)
		k.holdsUntil(c, 5, cl.ms()+9)
	})

	s.lawAt("an expire that is refused changes nothing", forever, func(k *kit, cl *clock) {
		c, ms := cell("a"), cl.ms()+1000
		f := func(d store.Delta) {
			k.Helper()
			was := k.read(c)
			k.told(k.one(want(d)), store.Result{
				Outcome: store.Unmet, Before: was.N, After: was.N, Existed: was.Exists, DeadlineMS: was.DeadlineMS,
			})
			k.outcome(k.one(once(d, "t")), store.Unmet)
			k.state(c, "t", store.TokenUnknown)
			if now := k.read(c); now != was {
				k.Fatalf("%+v was refused, and the cell went from %+v to %+v", d, was, now)
			}
		}
		f(expire(c, store.ExpirySet, ms))
		f(expire(c, store.ExpirySet, 1))
		f(expire(c, store.ExpirySet|store.ExpiryIfNone, ms))
		f(expire(c, store.ExpiryClear, 0))
		k.one(set(c, 5))
		f(expire(c, store.ExpiryClear, 0))
		f(expire(c, store.ExpirySet|store.ExpiryIfSome, ms))
		k.one(until(add(c, 0), ms))
		f(expire(c, store.ExpirySet|store.ExpiryIfNone, ms+1))
		f(expire(c, store.ExpirySet|store.ExpiryIfLater, 1))
	})

	s.lawAt("results tell whether the cell existed, and its deadline", forever, func(k *kit, cl *clock) {
		c, ms := cell("a"), cl.ms()+1000
		f := func(d store.Delta, before, after int64, existed bool, deadline int64) {
			k.Helper()
			k.told(k.one(want(d)), store.Result{
				Outcome: store.Applied, Before: before, After: after, Existed: existed, DeadlineMS: deadline,
			})
		}
		f(del(c), 0, 0, false, 0)
		f(get(c), 0, 0, false, 0)
		f(add(c, 0), 0, 0, false, 0)
		f(add(c, 2), 0, 2, true, 0)
		f(expire(c, store.ExpirySet, ms), 2, 2, true, ms)
		f(get(c), 2, 2, true, ms)
		f(set(c, 0), 2, 0, true, ms)
		f(del(c), 0, 0, true, 0)
		f(until(set(c, 1), ms), 0, 1, false, ms)
		f(expire(c, store.ExpiryClear, 0), 1, 1, true, 0)
		f(until(add(c, 1), ms), 1, 2, true, ms)
		cl.move(time.Second)
		f(add(c, 1), 0, 1, false, 0)
	})

	s.lawAt("a clock that goes back revives nothing", forever, func(k *kit, cl *clock) {
		looks := map[string]func(c store.Cell){
			"read": func(c store.Cell) { k.absent(c) },
			"scan": func(c store.Cell) {
				k.listed(k.scan(store.Range{Namespace: namespace, Prefix: c.Key}, 9), nil)
			},
			"get":   func(c store.Cell) { k.told(k.one(get(c)), store.Result{Outcome: store.Applied}) },
			"match": func(c store.Cell) { k.outcome(k.one(match(del(c), 0)), store.Applied) },
			"given": func(c store.Cell) { k.reply(given(k.batch(get(c)), c, 0)) },
		}
		for first, look := range looks {
			c, ms := cell("back "+first), cl.ms()+1000
			k.one(until(add(c, 7), ms))
			cl.move(time.Second)
			look(c) // one caller has seen that it is gone
			cl.move(-time.Second)
			for _, look := range looks {
				look(c)
			}
			k.told(k.one(want(add(c, 1))), store.Result{Outcome: store.Applied, After: 1})
			k.holdsUntil(c, 1, 0)
			// The store's time is where it was: that deadline has passed.
			k.told(k.one(want(expire(c, store.ExpirySet, ms))), store.Result{Outcome: store.Applied, Before: 1, After: 1, Existed: true})
			k.absent(c)
			cl.move(time.Second)
		}
	})

	s.kept("an expiry that a reader was told", func(k *kit, cl *clock, again func()) {
		for name, look := range map[string]func(c store.Cell){
			"read": func(c store.Cell) { k.absent(c) },
			"scan": func(c store.Cell) {
				k.listed(k.scan(store.Range{Namespace: namespace, Prefix: c.Key}, 9), nil)
			},
			"peek": func(c store.Cell) {
				if vs := k.peeked(c); vs == nil || vs[0].Exists {
					k.absent(c)
				}
			},
			"get":      func(c store.Cell) { k.told(k.one(get(c)), store.Result{Outcome: store.Applied}) },
			"write":    func(c store.Cell) { k.applied(k.one(want(add(c, 0))), 0, 0) },
			"together": func(c store.Cell) { k.readAll(cell("never"), c, cell("ever")) },
		} {
			c := cell(name)
			k.one(until(add(c, 7), cl.ms()+1000))
			cl.move(time.Second)
			look(c)
			cl.move(-time.Second)
			again()
			if v := k.read(c); v.N != 0 || v.DeadlineMS != 0 {
				k.Fatalf("%s: a cell that was told to have expired is back: %+v", name, v)
			}
			k.one(del(c))
			cl.move(2 * time.Second)
		}
	})

	s.lawAt("cells expire one by one, each at its last deadline", forever, deadlinesInOrder)

	s.lawAt("a page is filled with cells that exist", forever, func(k *kit, cl *clock) {
		var live []string
		for i := range 60 {
			c := cell(fmt.Sprintf("p%02d", i))
			if i%5 == 3 {
				live = append(live, c.Key)
				k.one(until(set(c, 1), cl.ms()+2))
			} else {
				k.one(until(set(c, 1), cl.ms()+1))
			}
		}
		cl.move(time.Millisecond)
		for _, n := range []int{1, 2, 5, len(live), 60} {
			k.listed(k.page(store.Range{Namespace: namespace, Prefix: "p"}, n), live)
		}
		cl.move(time.Millisecond)
		k.listed(k.scan(store.Range{Namespace: namespace, Prefix: "p"}, 1), nil)
	})

	s.lawAt("a token outlives its cell", store.Limits{TokenWindow: window}, func(k *kit, cl *clock) {
		c := cell("a")
		ms := cl.ms() + 1000
		set, touch := once(until(add(c, 5), ms), "set"), once(expire(c, store.ExpirySet, ms), "touch")
		first, second := k.one(set), k.one(touch)
		k.told(first, store.Result{Outcome: store.Applied, After: 5, DeadlineMS: ms})
		k.told(second, store.Result{Outcome: store.Applied, Before: 5, After: 5, Existed: true, DeadlineMS: ms})
		k.repeats(k.one(set), first)
		k.repeats(k.one(touch), second)
		if f := k.state(c, "touch", store.TokenApplied); f.Op != store.OpExpire || !f.Want || f.Result.Version != second.Version {
			k.Fatalf("lookup returns %+v, the first result was %+v", f, second)
		}
		cl.move(time.Second)
		for range 2 {
			k.repeats(k.one(set), first)
			k.repeats(k.one(touch), second)
			k.repeats(k.one(settle(c, "set")), first)
			k.absent(c)
		}
		k.told(k.one(want(add(c, 1))), store.Result{Outcome: store.Applied, After: 1})
		k.repeats(k.one(set), first)
		k.holdsUntil(c, 1, 0)
		gone := once(until(add(c, 5), cl.ms()), "gone")
		first = k.one(gone)
		k.told(first, store.Result{Outcome: store.Applied, Before: 1, After: 6, Existed: true})
		k.one(add(c, 3))
		k.repeats(k.one(gone), first)
		k.holds(c, 3)
	})

	s.lawAt("cells with one deadline are gone at one moment", forever, func(k *kit, cl *clock) {
		cs := k.together(3)
		for range 30 {
			ms := cl.ms() + 3
			k.do(until(add(cs[0], 1), ms), until(set(cs[1], 1), ms), until(add(cs[2], 1), ms))
			done := make(chan struct{})
			k.parallel(3, func(g int) error {
				if g == 0 {
					defer close(done)
					for range 5 {
						cl.move(time.Millisecond)
						if _, err := k.try(k.batch(get(cs[0]))); err != nil {
							return err
						}
					}
					return nil
				}
				gone := false
				return k.watch(done, cs, func(vs []store.Value) error {
					if vs[0].Exists != vs[1].Exists || vs[0].Exists != vs[2].Exists || (gone && vs[0].Exists) {
						return fmt.Errorf("seen %+v, and all of it gone before: %v", vs, gone)
					}
					gone = !vs[0].Exists
					return nil
				})
			})
			k.absent(cs[1])
		}
	})

	s.lawAt("adds while a cell expires again and again are all in one life or the next", forever, deadlineRaces)
}

// deadlineIsExact looks at a cell in every way a millisecond before its
// deadline, and at the deadline. Each way is the first to look.
func deadlineIsExact(k *kit, cl *clock) {
	alive := func(v store.Value) store.Result {
		return store.Result{Outcome: store.Applied, Before: 7, After: 7, Version: v.Version, Existed: true, DeadlineMS: v.DeadlineMS}
	}
	looks := map[string]func(c store.Cell, v store.Value, exists bool){
		"read": func(c store.Cell, v store.Value, exists bool) {
			if exists {
				k.holdsUntil(c, 7, v.DeadlineMS)
			} else {
				k.absent(c)
			}
		},
		"scan": func(c store.Cell, v store.Value, exists bool) {
			es := k.scan(store.Range{Namespace: namespace, Prefix: c.Key}, 9)
			if exists && !slices.Equal(es, []store.Entry{{Key: c.Key, Value: v}}) || !exists && len(es) != 0 {
				k.Fatalf("scan lists %+v; exists: %v", es, exists)
			}
		},
		"get": func(c store.Cell, v store.Value, exists bool) {
			r, want := k.one(get(c)), store.Result{Outcome: store.Applied}
			if exists {
				want = alive(v)
			}
			if r != want {
				k.Fatalf("get returns %+v, want %+v", r, want)
			}
		},
		"add": func(c store.Cell, v store.Value, exists bool) {
			if !exists {
				r := k.one(want(add(c, 3)))
				k.told(r, store.Result{Outcome: store.Applied, After: 3})
				if r.Version <= v.Version {
					k.Fatalf("version %d after %d", r.Version, v.Version)
				}
			}
		},
		"blind add": func(c store.Cell, _ store.Value, exists bool) {
			if !exists {
				k.outcome(k.one(add(c, 3)), store.Applied)
				k.holdsUntil(c, 3, 0)
			}
		},
		"set": func(c store.Cell, _ store.Value, exists bool) {
			if !exists {
				k.told(k.one(want(set(c, 3))), store.Result{Outcome: store.Applied, After: 3})
			}
		},
		"delete": func(c store.Cell, _ store.Value, exists bool) {
			if !exists {
				k.told(k.one(want(del(c))), store.Result{Outcome: store.Applied})
			}
		},
		"expire": func(c store.Cell, v store.Value, exists bool) {
			if !exists {
				k.told(k.one(want(expire(c, store.ExpirySet, v.DeadlineMS+9))), store.Result{Outcome: store.Unmet})
				k.absent(c)
			}
		},
		"clear": func(c store.Cell, _ store.Value, exists bool) {
			if !exists {
				k.told(k.one(want(expire(c, store.ExpiryClear, 0))), store.Result{Outcome: store.Unmet})
			}
		},
		"if none": func(c store.Cell, v store.Value, exists bool) {
			ms := v.DeadlineMS + 9
			r := k.one(want(expiring(add(c, 0), store.ExpirySet|store.ExpiryIfNone, ms)))
			if exists {
				ms = v.DeadlineMS
			}
			if r.DeadlineMS != ms {
				k.Fatalf("deadline %d, want %d", r.DeadlineMS, ms)
			}
		},
		"version": func(c store.Cell, v store.Value, exists bool) {
			at, not := v.Version, uint64(0)
			if !exists {
				at, not = not, at
			}
			k.outcome(k.one(match(get(c), not)), store.Changed)
			k.outcome(k.one(match(get(c), at)), store.Applied)
		},
		"condition": func(c store.Cell, v store.Value, exists bool) {
			at, not := v.Version, uint64(0)
			if !exists {
				at, not = not, at
			}
			k.refused(given(k.batch(get(c)), c, not), store.KindChanged)
			k.reply(given(k.batch(get(c)), c, at))
		},
		"existence": func(c store.Cell, _ store.Value, exists bool) {
			is, not := store.ExistsMust, store.ExistsNot
			if !exists {
				is, not = not, is
			}
			k.outcome(k.one(only(get(c), not)), store.Unmet)
			k.outcome(k.one(only(get(c), is)), store.Applied)
		},
		"bound": func(c store.Cell, _ store.Value, exists bool) {
			if !exists {
				k.applied(k.one(within(want(add(c, 5)), store.Bound{Low: 5, High: 5})), 0, 5)
			}
		},
		"peek": func(c store.Cell, v store.Value, exists bool) {
			if !exists {
				v = store.Value{}
			}
			if vs := k.peeked(c); vs != nil && vs[0] != v {
				k.Fatalf("peek sees %+v, want %+v", vs[0], v)
			}
		},
	}
	for name, look := range looks {
		c, ms := cell("look "+name), cl.ms()+1000
		k.one(until(set(c, 7), ms))
		v := k.read(c)
		cl.move(time.Second - time.Millisecond)
		look(c, v, true)
		k.holdsUntil(c, 7, ms)
		v = k.read(c)
		cl.move(time.Millisecond)
		look(c, v, false)
		now := k.read(c)
		if now.Version == v.Version || now.N == 7 || now.DeadlineMS == ms {
			k.Fatalf("%s: at its deadline %+v reads %+v", name, v, now)
		}
		cl.move(time.Hour) // the next life has a deadline of its own, or none
		if now.DeadlineMS == 0 && k.read(c) != now {
			k.Fatalf("%s: %+v became %+v", name, now, k.read(c))
		}
	}
}

// deadlineConditions tries all conditions on all deadlines, with all deltas
// that change one.
func deadlineConditions(k *kit, cl *clock) {
	const none, sooner, same, later = 0, 10_000, 20_000, 30_000
	conditions := []struct {
		bit   store.Expiry
		holds func(old int64) bool
	}{
		{store.ExpiryIfNone, func(old int64) bool { return old == none }},
		{store.ExpiryIfSome, func(old int64) bool { return old != none }},
		{store.ExpiryIfLater, func(old int64) bool { return old == sooner }},
		{store.ExpiryIfSooner, func(old int64) bool { return old == later || old == none }},
	}
	now := cl.ms()
	at := func(old int64) int64 {
		if old == none {
			return 0
		}
		return now + old
	}
	try := func(c store.Cell, d store.Delta, exists bool, old int64) {
		k.Helper()
		d.Cell = c
		d.Expiry, d.DeadlineMS = store.ExpirySet, at(same)
		for bits := range 1 << len(conditions) {
			d.Expiry = store.ExpirySet
			holds := true
			for i, condition := range conditions {
				if bits>>i&1 == 1 {
					d.Expiry |= condition.bit
					holds = holds && condition.holds(old)
				}
			}
			ds := []store.Delta{del(c), set(c, 5), expire(c, store.ExpirySet, at(old)), want(d)}
			switch {
			case !exists:
				ds = []store.Delta{del(c), want(d)}
			case old == none:
				ds = []store.Delta{del(c), set(c, 5), want(d)}
			}
			rs := k.do(ds...)
			want := store.Result{Outcome: store.Applied, Existed: exists, DeadlineMS: at(old)}
			if exists {
				want.Before, want.After = 5, 5
			}
			switch {
			case d.Op == store.OpExpire && (!exists || !holds):
				want.Outcome = store.Unmet
			case holds:
				want.DeadlineMS = at(same)
			}
			if want.Outcome == store.Applied && d.Op != store.OpExpire {
				want.After += d.N
				if d.Op == store.OpSet {
					want.After = d.N
				}
			}
			got := rs[len(rs)-1]
			if got.Version, want.Version = 0, 0; got != want {
				k.Fatalf("%+v of a cell that exists: %v, until %d: %+v, want %+v", d, exists, at(old), got, want)
			}
			if v := k.read(c); v.DeadlineMS != want.DeadlineMS || v.N != want.After {
				k.Fatalf("%+v left %+v, want %+v", d, v, want)
			}
		}
	}
	for _, d := range []store.Delta{{Op: store.OpAdd, N: 2}, {Op: store.OpSet, N: 3}, {Op: store.OpExpire}} {
		try(cell("absent"), d, false, none)
		for _, old := range []int64{none, sooner, same, later} {
			try(cell("there"), d, true, old)
		}
	}
}

// deadlinesInOrder gives many cells deadlines, moves and clears some of them,
// and looks at each moment which cells there are.
func deadlinesInOrder(k *kit, cl *clock) {
	const cells, moments = 120, 13
	start := cl.ms()
	last := make(map[string]int64)
	at := func(i int) int64 { return start + 1 + int64((i*i*7+i)%moments) }
	for i := range cells {
		c := cell(fmt.Sprintf("d%03d", i))
		last[c.Key] = at(i)
		k.one(until(set(c, int64(i)), at(i)))
	}
	for i := range cells {
		c := cell(fmt.Sprintf("d%03d", i))
		switch i % 6 {
		case 1: // later or sooner
			last[c.Key] = at(i + 1)
			k.one(expire(c, store.ExpirySet, last[c.Key]))
		case 2:
			last[c.Key] = math.MaxInt64
			k.one(expire(c, store.ExpiryClear, 0))
		case 3:
			delete(last, c.Key)
			k.one(del(c))
		case 4:
			last[c.Key] = at(i + 2)
			k.one(del(c))
			k.one(until(add(c, 1), last[c.Key]))
		case 5:
			last[c.Key] = math.MaxInt64
			k.one(del(c))
			k.one(add(c, 1))
		}
	}
	for range moments + 2 {
		var live []string
		for key, ms := range last {
			if cl.ms() < ms {
				live = append(live, key)
			}
		}
		slices.Sort(live)
		k.listed(k.scan(store.Range{Namespace: namespace, Prefix: "d"}, cells), live)
		k.sized(namespace, int64(len(live)), int64(len(last)))
		k.audited()
		cl.move(time.Millisecond)
	}
}

// deadlineRaces is many limiters on one cell: the first add of each life sets
// its deadline.
func deadlineRaces(k *kit, cl *clock) {
	c := cell("a")
	const callers, calls = 4, 60
	var mu sync.Mutex
	var all []store.Result
	k.parallel(callers, func(g int) error {
		for i := range calls {
			if g == 0 && i%3 == 0 {
				cl.move(time.Millisecond)
			}
			d := expiring(want(add(c, 1)), store.ExpirySet|store.ExpiryIfNone, cl.ms()+2)
			rep, err := k.try(k.batch(d))
			if err != nil {
				return err
			}
			mu.Lock()
			all = append(all, rep.Results[0])
			mu.Unlock()
		}
		return nil
	})
	// One whose deadline had passed when it was decided left nothing, and has
	// no version: it fits anywhere, as the only add of its life.
	all = slices.DeleteFunc(all, func(r store.Result) bool { return r == store.Result{Outcome: store.Applied, After: 1} })
	slices.SortFunc(all, func(a, b store.Result) int { return cmp.Compare(a.Version, b.Version) })
	last := store.Result{}
	for _, r := range all {
		switch {
		case r.Outcome != store.Applied || r.After != r.Before+1 || r.DeadlineMS == 0:
			k.Fatalf("an add returned %+v", r)
		case r.Existed && (r.Before != last.After || r.DeadlineMS != last.DeadlineMS):
			k.Fatalf("%+v after %+v", r, last)
		case !r.Existed && (r.Before != 0 || r.DeadlineMS <= last.DeadlineMS):
			k.Fatalf("a new life with %+v after %+v", r, last)
		}
		last = r
	}
	k.audited()
}
