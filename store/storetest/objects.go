package storetest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

// put makes a key hold bytes.
func put(c store.Cell, bytes string) store.Delta {
	return store.Delta{Cell: c, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: []byte(bytes)}}
}

// count makes a key a count, whatever it holds.
func count(c store.Cell, n int64) store.Delta {
	return store.Delta{Cell: c, Op: store.OpSet, N: n, Event: &store.Event{Part: store.Object}}
}

// object checks that a key holds bytes, and returns its cell.
func (k *kit) object(c store.Cell, bytes string) store.Value {
	k.Helper()
	return k.objectUntil(c, bytes, 0)
}

func (k *kit) objectUntil(c store.Cell, bytes string, ms int64) store.Value {
	k.Helper()
	v := k.read(c)
	if v != (store.Value{Version: v.Version, Exists: true, DeadlineMS: ms, Layout: store.LayoutObject}) || v.Version == 0 {
		k.Fatalf("%q reads %+v, want an object until %d", c.Key, v, ms)
	}
	if got := k.part(c, store.Object); got != content(bytes) {
		k.Fatalf("%q holds %q, want %q", c.Key, got.Bytes, bytes)
	}
	return v
}

func content(bytes string) store.Content {
	return store.PartObject.Content([]byte(bytes))
}

// notForObjects are deltas that an object refuses as Split.
func notForObjects(c store.Cell, version uint64) map[string]store.Delta {
	plan, _ := store.NewPlan(applied(partWindow))
	planned := add(c, 1)
	planned.Event = &store.Event{Plan: plan}
	return map[string]store.Delta{
		"add": add(c, 1), "add of 0": add(c, 0), "taken away": add(c, -1), "large": add(c, 1<<62), "largest": add(c, math.MaxInt64),
		"want": want(add(c, 1)), "set": set(c, 1), "set with a value": want(set(c, 0)), "match": match(add(c, 1), version),
		"exists": only(add(c, 1), store.ExistsMust), "bound": within(add(c, 1), store.Bound{High: 99}),
		"inward": within(add(c, 1), store.Bound{High: 99, Inward: true}), "until": until(add(c, 1), 1<<50), "set until": until(set(c, 1), 1<<50),
		"token": {Cell: c, Op: store.OpAdd, N: 1, Guard: store.Guard{Token: "t", Digest: 1}}, "token and value": once(add(c, 1), "t"),
		"riders": with(add(c, 1), applied(partWindow)), "plan": planned, "put rider": with(add(c, 1), store.Rider{Part: partEntries, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte("x")}),
		"led": led(add(c, 1), partMember), "led delete": led(del(c), partHold), "event that deletes": with(del(c), applied(partOutside)),
		"limit": ask(c, "eve", bucket(1, 2, time.Second, 3)),
	}
}

// notCount is how what is not meant for an object is refused: what stands between callers and
// layouts says what a Split means.
func (k *kit) notCount() (store.Outcome, store.Kind) {
	if k.store.Traits().Layouts {
		return store.Split, store.KindSplit
	}
	return store.NotCount, store.KindNotCount
}

// unfit checks that an object refuses what is not meant for it, by whatever way it comes, and
// that nothing changes. Look is called before each, so that a store has forgotten what it knows of the key.
func (k *kit) unfit(c, other store.Cell, look func()) {
	k.Helper()
	outcome, kind := k.notCount()
	was := k.read(c)
	bytes, n := k.part(c, store.Object).Bytes, k.read(other).N
	for name, d := range notForObjects(c, was.Version) {
		look()
		k.outcome(k.one(d), outcome)
		look()
		r := k.apply(apartly(k.batch(add(other, 1), d, add(other, 1))))[0]
		if n += 2; r.Err != nil || r.Results[0].Outcome != store.Applied || r.Results[2].Outcome != store.Applied {
			k.Fatalf("%s: reply %+v, want the neighbours applied", name, r)
		}
		k.outcome(r.Results[1], outcome)
		look()
		k.refused(k.batch(add(other, 1), d), kind)
		look()
		if s := k.started(k.batch(d)); s != nil {
			k.outcome(s[0].Results[0], store.Split)
		}
		if now := k.read(c); now != was {
			k.Fatalf("%s: a refused write changed %+v to %+v", name, was, now)
		}
		k.state(c, "t", store.TokenUnknown)
	}
	w := k.enlist()
	b := k.numbered(w, 0, 1, add(other, 1), add(c, 1))
	if r := k.refused(b, kind); r.Mark != 0 {
		k.Fatalf("a refused batch moved the mark to %d", r.Mark)
	}
	look()
	k.outcome(k.reply(apartly(b)).Results[1], outcome)
	look()
	if r := k.apply(k.numbered(w, 1, 2, add(c, 1)))[0]; r.Err == nil || store.KindOf(r.Err) != kind {
		k.Fatalf("reply %+v to an add of a writer", r)
	}
	if k.store.Traits().Layouts {
		k.outcome(k.one(laid(add(c, 1), 0)), store.Unmet)
		k.outcome(k.one(laid(add(c, 1), 7)), store.Unmet)
		k.outcome(k.one(layout(c, 0, 7)), store.Unmet)
		k.outcome(k.one(layout(c, 7, 8)), store.Unmet)
	}
	k.holds(other, n+1)
	k.partAbsent(c, partWindow)
	k.partAbsent(c, partMember)
	k.objectUntil(c, bytes, was.DeadlineMS)
}

// objects are the laws of keys that hold bytes.
func objects(s *suite) {
	s.law("bytes replace whatever a key holds", func(k *kit) {
		c := cell("a")
		k.told(k.one(want(put(c, "one"))), store.Result{Outcome: store.Applied, After: store.PartObject.Number([]byte("one"))})
		was := k.object(c, "one")
		r := k.one(want(put(c, "")))
		k.told(r, store.Result{Outcome: store.Applied, Before: store.PartObject.Number([]byte("one")), After: store.PartObject.Number(nil), Existed: true})
		if r.Version <= was.Version || k.object(c, "").Version != r.Version {
			k.Fatalf("version %d after %d", r.Version, was.Version)
		}
		for _, n := range []int64{0, 7, -1, math.MaxInt64, math.MinInt64} {
			k.one(del(c))
			k.one(set(c, n))
			k.told(k.one(want(put(c, "two"))), store.Result{Outcome: store.Applied, After: store.PartObject.Number([]byte("two")), Existed: true})
			k.object(c, "two")
		}
		same := k.one(put(c, "two")) // a change all the same
		if same.Version != k.object(c, "two").Version {
			k.Fatalf("version %d, want %d", k.read(c).Version, same.Version)
		}
		largest := strings.Repeat("\xff", store.PartBytesMax)
		k.one(put(c, largest))
		k.object(c, largest)
		k.audited()
	})

	s.law("bytes that go are gone", func(k *kit) {
		cs := k.together(2)
		c := cs[0]
		k.one(put(c, "one"))
		was := k.read(c)
		k.told(k.one(get(c)), store.Result{Outcome: store.Applied, Existed: true})
		k.outcome(k.one(match(del(c), was.Version+1)), store.Changed)
		k.object(c, "one")
		k.told(k.one(want(match(del(c), was.Version))), store.Result{Outcome: store.Applied, Existed: true})
		k.absent(c)
		k.partAbsent(c, store.Object)
		r := k.one(want(add(c, 5))) // a new count
		k.applied(r, 0, 5)
		if r.Version <= was.Version {
			k.Fatalf("version %d after %d", r.Version, was.Version)
		}
		k.audited()
		refused, _ := k.notCount()
		rs := k.do(put(c, "x"), del(c), put(c, "y"), add(c, 0), del(c), set(c, 3), put(cs[1], "z"), put(cs[1], "zz"), put(c, "w"))
		for i, o := range []store.Outcome{
			store.Applied, store.Applied, store.Applied, refused, store.Applied, store.Applied, store.Applied, store.Applied, store.Applied,
		} {
			k.outcome(rs[i], o)
		}
		k.object(c, "w")
		k.object(cs[1], "zz")
		k.do(del(c), del(cs[1]), put(c, "v"), del(c))
		k.absent(c)
		k.partAbsent(c, store.Object)
		k.partAbsent(cs[1], store.Object)
		k.audited()
	})

	s.lawAt("a count replaces whatever a key holds", store.Limits{}, func(k *kit, cl *clock) {
		c, ms := cell("a"), cl.ms()+1000
		bytes := store.PartObject.Number([]byte("x"))
		k.told(k.one(want(count(c, 5))), store.Result{Outcome: store.Applied, After: 5})
		k.holds(c, 5)
		k.one(put(c, "x"))
		was := k.object(c, "x")
		k.outcome(k.one(only(count(c, 6), store.ExistsNot)), store.Unmet)
		k.outcome(k.one(match(count(c, 6), was.Version+1)), store.Changed)
		k.object(c, "x")
		r := k.one(want(until(match(count(c, -6), was.Version), ms)))
		k.told(r, store.Result{Outcome: store.Applied, Before: bytes, After: -6, Existed: true, DeadlineMS: ms})
		k.holdsUntil(c, -6, ms)
		k.partAbsent(c, store.Object)
		if r.Version <= was.Version || k.read(c).Version != r.Version {
			k.Fatalf("version %d after %d, read sees %d", r.Version, was.Version, k.read(c).Version)
		}
		k.one(add(c, 1))
		k.holdsUntil(c, -5, ms)
		k.one(put(c, "x"))
		k.one(count(c, math.MaxInt64))
		k.holdsUntil(c, math.MaxInt64, ms) // it keeps the deadline
		k.one(expiring(count(c, 3), store.ExpiryClear, 0))
		k.holdsUntil(c, 3, 0)
		k.audited()
		for _, again := range []func(testing.TB) store.Store{k.inst.Reopen, k.inst.Crash} {
			if again == nil {
				continue
			}
			k.one(until(put(c, "x"), ms))
			k.one(count(c, 7))
			k.replace(again(k.t))
			k.holdsUntil(c, 7, ms)
			k.partAbsent(c, store.Object)
			k.audited()
			k.one(put(c, "x"))
			k.replace(again(k.t))
			k.one(expiring(count(c, 8), store.ExpiryClear, 0))
			k.replace(again(k.t))
			k.holdsUntil(c, 8, 0)
			k.partAbsent(c, store.Object)
			k.audited()
		}
		k.one(until(put(c, "x"), ms))
		cl.move(time.Second)
		k.told(k.one(want(count(c, 9))), store.Result{Outcome: store.Applied, After: 9}) // over what is nothing
		k.holdsUntil(c, 9, 0)
		k.partAbsent(c, store.Object)
		k.outcome(k.one(until(count(c, 10), 1)), store.Applied)
		k.absent(c)
		k.audited()
	})

	s.law("bytes are put on the conditions of any write", func(k *kit) {
		c := cell("a")
		k.told(k.one(want(only(put(c, "one"), store.ExistsMust))), store.Result{Outcome: store.Unmet})
		k.outcome(k.one(match(put(c, "one"), 9)), store.Changed)
		k.absent(c)
		k.outcome(k.one(match(put(c, "one"), 0)), store.Applied)
		k.told(k.one(want(only(put(c, "two"), store.ExistsNot))),
			store.Result{Outcome: store.Unmet, Before: store.PartObject.Number([]byte("one")), After: store.PartObject.Number([]byte("one")), Existed: true})
		was := k.object(c, "one")
		k.outcome(k.one(match(put(c, "two"), was.Version-1)), store.Changed)
		k.outcome(k.one(match(only(put(c, "two"), store.ExistsMust), was.Version)), store.Applied)
		was = k.object(c, "two")
		is := put(c, "three")
		is.Event.Is = store.Met{Kind: store.MetEqual, N: store.PartObject.Number([]byte("one"))}
		k.outcome(k.one(is), store.Unmet)
		is.Event.Is.N = store.PartObject.Number([]byte("two"))
		k.outcome(k.one(is), store.Applied)
		k.refused(given(k.batch(put(c, "four")), c, was.Version), store.KindChanged)
		was = k.object(c, "three")
		k.reply(given(k.batch(put(c, "four")), c, was.Version))
		first := k.one(once(put(c, "five"), "t"))
		k.outcome(first, store.Applied)
		k.one(put(c, "six"))
		k.repeats(k.one(once(put(c, "five"), "t")), first)
		k.object(c, "six")
		late := put(c, "seven")
		late.Event.NotAfter = 1
		k.outcome(k.one(late), store.Untimely)
		k.object(c, "six")
		k.audited()
	})

	s.lawAt("bytes may have a deadline", store.Limits{}, func(k *kit, cl *clock) {
		c, ms := cell("lock"), cl.ms()+1000
		lock := func(by string) store.Delta {
			return lasting(only(want(put(c, by)), store.ExistsNot), 1000)
		}
		k.told(k.one(lock("eve")), store.Result{Outcome: store.Applied, After: store.PartObject.Number([]byte("eve")), DeadlineMS: ms})
		k.objectUntil(c, "eve", ms)
		r := k.one(lock("bob"))
		if k.outcome(r, store.Unmet); !r.Existed || r.DeadlineMS != ms {
			k.Fatalf("result %+v of a key that is locked until %d", r, ms)
		}
		cl.move(time.Second)
		k.absent(c)
		k.outcome(k.one(lock("bob")), store.Applied)
		k.objectUntil(c, "bob", ms+1000)
		k.one(put(c, "bob again"))
		k.objectUntil(c, "bob again", ms+1000)
		k.one(expiring(put(c, "for ever"), store.ExpiryClear, 0))
		k.object(c, "for ever")
		k.one(expiring(put(c, "still"), store.ExpiryClear, 0))
		k.one(expiring(put(c, "on"), store.ExpirySet|store.ExpiryIfSome, ms+5000))
		k.object(c, "on")
		k.told(k.one(want(expire(c, store.ExpirySet, ms+5000))), store.Result{Outcome: store.Applied, Existed: true, DeadlineMS: ms + 5000})
		k.objectUntil(c, "on", ms+5000)
		k.outcome(k.one(expire(c, store.ExpirySet|store.ExpiryIfNone, ms+6000)), store.Unmet)
		k.outcome(k.one(expire(c, store.ExpirySet, math.MaxInt64)), store.Applied)
		k.objectUntil(c, "on", store.ObjectDeadlineMax)
		k.one(until(put(c, "late"), math.MaxInt64))
		k.objectUntil(c, "late", store.ObjectDeadlineMax)
		k.outcome(k.one(expire(c, store.ExpiryClear, 0)), store.Applied)
		k.object(c, "late")
		k.outcome(k.one(expire(c, store.ExpiryClear, 0)), store.Unmet)
		k.outcome(k.one(expire(c, store.ExpirySet, 1)), store.Applied)
		k.absent(c)
		k.partAbsent(c, store.Object)
		k.told(k.one(want(until(put(c, "over"), cl.ms()))), store.Result{Outcome: store.Applied, After: store.PartObject.Number([]byte("over"))})
		k.absent(c)
		k.partAbsent(c, store.Object)
		k.one(until(set(c, 3), cl.ms()+1000)) // a count's deadline is the key's
		k.one(put(c, "counted"))
		k.objectUntil(c, "counted", cl.ms()+1000)
		k.outcome(k.one(until(put(c, "over"), cl.ms()-1)), store.Applied)
		k.absent(c)
		k.partAbsent(c, store.Object)
		k.audited()
	})

	s.lawAt("bytes of a key that has expired are nothing", store.Limits{}, func(k *kit, cl *clock) {
		for name, next := range map[string]func(c store.Cell){
			"count": func(c store.Cell) { k.applied(k.one(want(add(c, 5))), 0, 5) },
			"event": func(c store.Cell) { k.event(with(add(c, 5), applied(partWindow)), store.Applied, 0) },
			"blind": func(c store.Cell) { k.one(add(c, 5)) },
			"token": func(c store.Cell) { k.one(once(add(c, 5), "t")) },
			"set":   func(c store.Cell) { k.one(set(c, 5)) },
			"bytes": func(c store.Cell) {
				k.told(k.one(want(put(c, "new"))), store.Result{Outcome: store.Applied, After: store.PartObject.Number([]byte("new"))})
			},
			"met": func(c store.Cell) {
				d := put(c, "new")
				d.Event.Is = store.Met{Kind: store.MetEqual, N: 0}
				k.outcome(k.one(d), store.Applied)
			},
			"delete": func(c store.Cell) { k.one(del(c)) },
			"get":    func(c store.Cell) { k.told(k.one(get(c)), store.Result{Outcome: store.Applied}) },
			"expire": func(c store.Cell) { k.outcome(k.one(expire(c, store.ExpiryClear, 0)), store.Unmet) },
		} {
			c := cell(name)
			k.one(until(put(c, "old"), cl.ms()+10))
			k.objectUntil(c, "old", cl.ms()+10)
			cl.move(10 * time.Millisecond)
			k.absent(c)
			k.audited()
			next(c)
			switch v := k.read(c); {
			case v.Layout == store.LayoutObject:
				k.object(c, "new")
			case v.Exists:
				k.holds(c, 5)
				k.partAbsent(c, store.Object)
			default:
				k.partAbsent(c, store.Object)
			}
			k.audited()
		}
	})

	s.law("an object refuses what is not meant for it", func(k *kit) {
		cs := k.together(2)
		k.one(put(cs[0], "bytes"))
		k.unfit(cs[0], cs[1], func() {})
		k.one(expire(cs[0], store.ExpirySet, 1<<46))
		k.unfit(cs[0], cs[1], func() {})
		k.audited()
	})

	s.law("what an object refuses is not made when it has gone", func(k *kit) {
		cs := k.together(2)
		c := cs[0]
		outcome, _ := k.notCount()
		for name, end := range map[string]store.Delta{
			"deleted": del(c), "expired": expire(c, store.ExpirySet, 1), "replaced": count(c, 0),
		} {
			k.one(put(c, "x"))
			rs := k.reply(apartly(k.batch(want(add(c, 5)), add(c, 7), set(c, 9), end, get(c)))).Results
			for i := range 3 {
				k.outcome(rs[i], outcome)
			}
			k.outcome(rs[3], store.Applied)
			if v := k.read(c); v.N != 0 || rs[4].Before != 0 || v.Exists != rs[4].Existed {
				k.Fatalf("%s: %+v, and it was told %+v", name, v, rs[4])
			}
		}
		k.audited()
	})

	s.law("a counter that is split takes no bytes", func(k *kit) {
		if !k.store.Traits().Layouts {
			return
		}
		c := cell("a")
		k.one(layout(c, 0, 7))
		k.one(add(c, 3))
		k.outcome(k.one(put(c, "x")), store.Split)
		k.laidOut(c, 3, 7)
		k.partAbsent(c, store.Object)
		k.one(layout(c, 7, 0))
		k.outcome(k.one(put(c, "x")), store.Applied)
		k.object(c, "x")
		k.outcome(k.one(layout(c, 0, 7)), store.Unmet)
		k.audited()
	})

	s.law("an object is a key", func(k *kit) {
		k.one(put(cell("b"), "x"))
		k.one(add(cell("a"), 1))
		k.one(put(cell("c"), "y"))
		es := k.scan(store.Range{Namespace: namespace}, 9)
		if len(es) != 3 || es[1].Key != "b" || es[1].Value != k.read(cell("b")) {
			k.Fatalf("scan lists %+v", es)
		}
		if z, ok := k.store.(store.Sizer); ok {
			if n, err := z.Size(k.ctx, namespace); n != 3 || err != nil {
				k.Fatalf("size %d, %v", n, err)
			}
		}
	})
	s.lawAt("an object needs room for a key", store.Limits{KeysMax: 2}, func(k *kit, cl *clock) {
		cs := k.together(4)
		k.one(until(put(cs[0], "x"), cl.ms()+10))
		k.one(add(cs[1], 1))
		k.outcome(k.one(put(cs[2], "y")), store.Full)
		k.outcome(k.one(until(put(cs[2], "y"), 1)), store.Full)
		k.absent(cs[2])
		k.outcome(k.one(put(cs[1], "z")), store.Applied)
		cl.move(10 * time.Millisecond)
		k.outcome(k.one(put(cs[2], "y")), store.Applied)
		k.outcome(k.one(put(cs[3], "y")), store.Full)
		k.one(del(cs[1]))
		k.outcome(k.one(put(cs[3], "y")), store.Applied)
		k.audited()
	})

	s.law("bad bytes are refused", func(k *kit) {
		c := cell("a")
		f := func(kind store.Kind, change func(d *store.Delta)) {
			k.Helper()
			d := put(c, "x")
			change(&d)
			k.refused(k.batch(d), kind)
			k.absent(c)
			k.partAbsent(c, store.Object)
		}
		f(store.KindTooLarge, func(d *store.Delta) { d.Event.Bytes = make([]byte, store.PartBytesMax+1) })
		f(store.KindInvalid, func(d *store.Delta) { d.Event.Part = partOf(store.PartObject, 1, "") })
		f(store.KindInvalid, func(d *store.Delta) { d.Event.Part += "x" })
		f(store.KindInvalid, func(d *store.Delta) { d.Event.Riders = []store.Rider{applied(partWindow)} })
		f(store.KindInvalid, func(d *store.Delta) { d.Guard.Bound = &store.Bound{} })
		f(store.KindInvalid, func(d *store.Delta) { d.Expiry, d.DeadlineMS = store.ExpirySet, -1 })
		f(store.KindInvalid, func(d *store.Delta) { d.Op, d.Event.Bytes = store.OpDelete, nil })
		f(store.KindInvalid, func(d *store.Delta) { d.Op, d.Event.Bytes = store.OpAdd, nil })
		f(store.KindInvalid, func(d *store.Delta) { d.Op, d.Event.Bytes = store.OpGet, nil })
		f(store.KindInvalid, func(d *store.Delta) {
			*d = with(add(c, 1), store.Rider{Part: store.Object, Op: store.OpPut, Bytes: []byte("x")})
		})
		f(store.KindInvalid, func(d *store.Delta) { *d = with(add(c, 1), store.Rider{Part: store.Object, Op: store.OpGet}) })
		f(store.KindInvalid, func(d *store.Delta) { *d = led(store.Delta{Cell: c, Op: store.OpMax, N: 1}, store.Object) })
		if !k.store.Traits().Layouts {
			return
		}
		f(store.KindInvalid, func(d *store.Delta) { d.Guard.Laid = true })
		for _, word := range []int64{store.LayoutObject, 5<<16 | store.LayoutObject, 1<<62 | store.LayoutObject} {
			k.refused(k.batch(layout(c, 0, word)), store.KindInvalid)
			k.refused(k.batch(laid(add(c, 1), word)), store.KindInvalid)
		}
		k.absent(c)
	})

	s.law("one of many puts on a condition wins", func(k *kit) {
		const callers = 8
		c := cell("lock")
		won := make([]bool, callers)
		k.parallel(callers, func(i int) error {
			r, err := k.try(k.batch(only(put(c, string(rune('a'+i))), store.ExistsNot)))
			won[i] = err == nil && r.Results[0].Outcome == store.Applied
			return err
		})
		var winners []string
		for i, w := range won {
			if w {
				winners = append(winners, string(rune('a'+i)))
			}
		}
		if len(winners) != 1 {
			k.Fatalf("%q have the lock", winners)
		}
		k.object(c, winners[0])
	})
	objectsKept(s)
	heldSketches(s)
}

// again returns how a store is opened again, if it can be.
func (s *suite) again() map[string]func(k *kit) {
	again := map[string]func(k *kit){}
	if s.probe().Reopen != nil {
		again["reopened"] = func(k *kit) { k.replace(k.inst.Reopen(k.t)) }
	}
	if s.probe().Crash != nil {
		again["crashed"] = func(k *kit) { k.replace(k.inst.Crash(k.t)) }
	}
	return again
}

// objectsKept are the laws of objects after a store was opened again, when nobody has looked at
// them yet, and of other stores beside.
func objectsKept(s *suite) {
	for name, open := range s.again() {
		s.law("an object is kept by a store that is "+name, func(k *kit) {
			cs := k.together(4)
			k.one(put(cs[0], "bytes"))
			k.one(lasting(put(cs[2], "more"), 1<<40))
			k.one(put(cs[3], "gone"))
			k.one(del(cs[3]))
			k.one(add(cs[1], 1))
			at := k.read(cs[2])
			open(k)
			k.object(cs[0], "bytes")
			k.objectUntil(cs[2], "more", at.DeadlineMS)
			k.absent(cs[3])
			k.partAbsent(cs[3], store.Object)
			open(k)
			k.unfit(cs[0], cs[1], func() {})
			open(k)
			n := 0
			k.unfit(cs[2], cs[1], func() {
				if n++; n%7 == 0 {
					open(k)
				}
			})
			open(k)
			k.one(del(cs[0]))
			k.partAbsent(cs[0], store.Object)
			k.one(put(cs[0], "new"))
			open(k)
			k.object(cs[0], "new")
			k.audited()
			open(k)
			k.one(put(cs[0], "newer"))
			k.object(cs[0], "newer")
			k.audited()
		})
		s.lawAt("an object that ends is gone from a store that is "+name, store.Limits{}, func(k *kit, cl *clock) {
			c := cell("a")
			for _, next := range []func() store.Delta{
				func() store.Delta { return add(c, 5) },
				func() store.Delta { return put(c, "new") },
				func() store.Delta { return del(c) },
			} {
				k.one(until(put(c, "old"), cl.ms()+10))
				open(k)
				cl.move(10 * time.Millisecond)
				k.absent(c)
				k.outcome(k.one(next()), store.Applied)
				open(k)
				if k.read(c).Layout != store.LayoutObject {
					k.partAbsent(c, store.Object)
				}
				k.audited()
				k.one(del(c))
			}
			k.one(until(put(c, "old"), cl.ms()+10))
			cl.move(10 * time.Millisecond)
			open(k)
			k.absent(c)
			k.audited()
		})
	}
	if s.probe().Beside == nil {
		return
	}
	s.law("an object is seen by the stores beside", func(k *kit) {
		cs := k.together(2)
		k.one(add(cs[0], 5))
		other, err := k.inst.Beside(k.t, store.Limits{})
		if err != nil {
			k.Fatalf("Beside: %v", err)
		}
		defer func() { _ = other.Close() }()
		beside := newKit(k.t, k.tb, &Instance{Store: other})
		beside.holds(cs[0], 5)
		beside.one(put(cs[0], "bytes"))
		k.unfit(cs[0], cs[1], func() {})
		k.one(put(cs[0], "others"))
		beside.object(cs[0], "others")
		beside.one(del(cs[0]))
		k.one(add(cs[0], 1))
		beside.holds(cs[0], 1)
		k.audited()
	})
}
