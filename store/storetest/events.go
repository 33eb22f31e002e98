package storetest

import (
	"math"
	"slices"

	"github.com/quipudb/quipu/store"
)

// Short names for what events are made of.

func partOf(kind store.PartKind, position int64, name string) store.Part {
	f := store.PartFields{Kind: kind, View: 1, Position: position, Name: name}
	if kind&store.PartRetained != 0 {
		f.Epoch = 7
	}
	return f.Part()
}

var (
	partWindow  = partOf(store.PartWindow, 60_000, "")
	partMember  = partOf(store.PartMember, 0, "eve")
	partHold    = partOf(store.PartHold, 5, "id")
	partHeld    = partOf(store.PartHeld, 0, "")
	partOutside = partOf(store.PartOutside, 0, "")
	partEntries = partOf(store.PartEntries, 0, "")
	partBook    = store.PartFields{Kind: store.PartBook}.Part()
)

// with makes a delta the lead of riders.
func with(d store.Delta, riders ...store.Rider) store.Delta {
	d.Event = &store.Event{Riders: riders}
	return d
}

// led makes a part lead.
func led(d store.Delta, p store.Part, riders ...store.Rider) store.Delta {
	d = with(d, riders...)
	d.Event.Part = p
	return d
}

func plus(p store.Part, n int64) store.Rider { return store.Rider{Part: p, Op: store.OpAdd, N: n} }

func applied(p store.Part) store.Rider {
	return store.Rider{Part: p, Op: store.OpAdd, Amount: store.AmountApplied}
}

func when(r store.Rider, kind store.MetKind, n int64) store.Rider {
	r.When = store.Met{Kind: kind, N: n}
	return r
}

func provided(r store.Rider, kind store.MetKind, n int64) store.Rider {
	r.Is = store.Met{Kind: kind, N: n}
	return r
}

func (k *kit) part(c store.Cell, p store.Part) store.Content {
	k.Helper()
	got := []store.Content{{N: 77, Bytes: "overwritten", Exists: true}}
	if err := k.store.ReadParts(k.ctx, []store.PartCell{{Cell: c, Part: p}}, got); err != nil {
		k.Fatalf("ReadParts: %v", err)
	}
	return got[0]
}

// partHolds checks that a part is a number.
func (k *kit) partHolds(c store.Cell, p store.Part, n int64) {
	k.Helper()
	if got := k.part(c, p); got != (store.Content{N: n, Exists: true}) {
		k.Fatalf("part %x of %q is %+v, want %d", p, c.Key, got, n)
	}
}

func (k *kit) partAbsent(c store.Cell, p store.Part) {
	k.Helper()
	if got := k.part(c, p); got != (store.Content{}) {
		k.Fatalf("part %x of %q is %+v, want none", p, c.Key, got)
	}
}

// event applies one event and checks its outcome, and which rider refused it.
func (k *kit) event(d store.Delta, o store.Outcome, refused uint8) store.Result {
	k.Helper()
	r := k.one(d)
	k.outcome(r, o)
	if r.Refused != refused {
		k.Fatalf("rider %d refused it, want %d", r.Refused, refused)
	}
	return r
}

// entries returns what the ledger of a counter has, oldest first.
func (k *kit) entries(c store.Cell) []store.PartEntry {
	k.Helper()
	f, _ := partEntries.Fields()
	last := f
	f.Position, last.Position = math.MinInt64, math.MaxInt64
	es, err := k.store.ScanParts(k.ctx, store.RowsOf(c, f, last), store.ScanMax)
	if err != nil {
		k.Fatalf("ScanParts: %v", err)
	}
	return es
}

// events are the laws of events and parts.
func events(s *suite) {
	s.law("riders take effect with their lead", func(k *kit) {
		c := cell("a")
		first := k.event(with(want(add(c, 5)), plus(partHeld, 2), applied(partWindow)), store.Applied, 0)
		k.applied(first, 0, 5)
		k.holds(c, 5)
		k.partHolds(c, partHeld, 2)
		k.partHolds(c, partWindow, 5)
		k.event(with(set(c, 2), applied(partWindow), applied(partOutside)), store.Applied, 0)
		k.partHolds(c, partWindow, 2)
		k.partHolds(c, partOutside, -3)
		k.partAbsent(cell("b"), partHeld)
		if es := k.scan(store.Range{Namespace: namespace}, 10); len(es) != 1 {
			k.Fatalf("a list of counters has %+v", es)
		}
	})
	s.law("an add of 0 makes no part exist", func(k *kit) {
		c := cell("a")
		base := when(store.Rider{Part: partOutside, Op: store.OpAdd, Amount: store.AmountWas}, store.MetBook, 3)
		plan, err := store.NewPlan(base, applied(partWindow), store.Rider{Part: partBook, Op: store.OpMax, N: 3})
		if err != nil {
			k.Fatalf("NewPlan: %v", err)
		}
		planned := func(n int64) {
			k.Helper()
			d := add(c, n)
			d.Event = &store.Event{Plan: plan}
			k.event(d, store.Applied, 0)
		}
		planned(0)
		planned(0)
		k.holds(c, 0)
		k.partHolds(c, partBook, 3)
		k.partAbsent(c, partOutside)
		k.partAbsent(c, partWindow)
		planned(1)
		planned(0)
		k.partHolds(c, partWindow, 1)
		planned(-1)
		planned(0)
		k.partHolds(c, partWindow, 0) // it was counted
		k.partAbsent(c, partOutside)
		bounded := plus(partHeld, 0)
		bounded.Bound = &store.Bound{High: 4}
		k.event(with(add(c, 1), bounded, provided(plus(partHold, 0), store.MetEqual, 0)), store.Applied, 0)
		k.partAbsent(c, partHeld)
		k.partAbsent(c, partHold)
		k.event(led(only(add(c, 0), store.ExistsNot), partMember), store.Applied, 0)
		k.partAbsent(c, partMember)
		k.event(led(set(c, 0), partMember), store.Applied, 0)
		k.partHolds(c, partMember, 0)
		k.event(with(del(cell("none")), applied(partOutside)), store.Applied, 0)
		k.partAbsent(cell("none"), partOutside)
		k.audited()
	})
	s.law("a plan comes before the other riders", func(k *kit) {
		c := cell("a")
		plan, err := store.NewPlan(store.Rider{Part: partHeld, Op: store.OpSet, N: 7}, store.Rider{Part: partWindow, Op: store.OpSet, N: 1})
		if err != nil {
			k.Fatalf("NewPlan: %v", err)
		}
		d := with(add(c, 1), plus(partHeld, 1), provided(store.Rider{Part: partHeld, Op: store.OpGet}, store.MetEqual, 9))
		d.Event.Plan = plan
		k.event(d, store.Unmet, 4)
		d.Event.Riders[1].Is.N = 8
		k.event(d, store.Applied, 0)
		k.partHolds(c, partHeld, 8)
	})
	s.law("a refused lead takes no rider", func(k *kit) {
		c := cell("a")
		k.event(with(within(add(c, 5), store.Bound{High: 4}), plus(partHeld, 2)), store.Bounded, 0)
		k.event(with(only(add(c, 5), store.ExistsMust), plus(partHeld, 2)), store.Unmet, 0)
		k.event(with(match(add(c, 5), 9), plus(partHeld, 2)), store.Changed, 0)
		k.event(led(only(set(c, 5), store.ExistsMust), partMember, plus(partHeld, 2)), store.Unmet, 0)
		k.absent(c)
		k.partAbsent(c, partHeld)
		k.partAbsent(c, partMember)
	})
	s.law("a refused rider refuses the event", func(k *kit) {
		c := cell("a")
		bounded := plus(partHeld, 3)
		bounded.Bound = &store.Bound{High: 4}
		k.event(with(add(c, 1), plus(partWindow, 1), bounded), store.Applied, 0)
		r := k.event(with(want(add(c, 1)), plus(partWindow, 1), bounded), store.Bounded, 2)
		k.told(r, store.Result{Outcome: store.Bounded, Refused: 2, Before: 1, After: 1, Existed: true})
		k.event(with(add(c, 1), plus(partWindow, 1), provided(plus(partHold, 1), store.MetNot, 0)), store.Unmet, 2)
		k.event(with(add(c, 1), store.Rider{Part: partOutside, Op: store.OpSet, N: math.MaxInt64}, plus(partOutside, 1)), store.Overflow, 2)
		k.holds(c, 1)
		k.partHolds(c, partWindow, 1)
		k.partHolds(c, partHeld, 3)
		k.partAbsent(c, partOutside)
		v := k.read(c).Version
		k.event(with(add(c, 1)), store.Applied, 0)
		if now := k.read(c).Version; now <= v {
			k.Fatalf("version %d after %d", now, v)
		}
	})
	eventLeads(s)
	eventTokens(s)
	eventEntries(s)
	eventBooks(s)
	eventFloors(s)
}

func eventLeads(s *suite) {
	s.law("a part may lead, and the total ride", func(k *kit) {
		c := cell("a")
		count := func(choice int64) store.Part { return partOf(store.PartMembers, choice, "") }
		choose := func(choice int64) store.Delta {
			before := when(plus(count(0), -1), store.MetNot, 0)
			before.Place = store.PlaceMet
			d := led(want(set(c, choice)), partMember, before, plus(count(choice), 1), when(plus("", 1), store.MetEqual, 0))
			d.Event.Is = store.Met{Kind: store.MetNot, N: choice}
			return d
		}
		k.told(k.event(choose(1), store.Applied, 0), store.Result{Outcome: store.Applied, After: 1})
		k.holds(c, 1)
		k.told(k.event(choose(1), store.Unmet, 0), store.Result{Outcome: store.Unmet, Before: 1, After: 1, Existed: true})
		k.told(k.event(choose(2), store.Applied, 0), store.Result{Outcome: store.Applied, Before: 1, After: 2, Existed: true})
		k.holds(c, 1)
		k.partHolds(c, partMember, 2)
		k.partHolds(c, count(1), 0)
		k.partHolds(c, count(2), 1)
	})
	s.law("an event makes its counter exist, with a version", func(k *kit) {
		c := cell("a")
		r := k.event(led(set(c, 7), partMember), store.Applied, 0)
		v := k.read(c)
		if v.N != 0 || !v.Exists || v.Version != r.Version {
			k.Fatalf("%+v after %+v", v, r)
		}
		if again := k.event(led(set(c, 7), partMember), store.Applied, 0); again.Version <= r.Version || k.read(c).Version != again.Version {
			k.Fatalf("version %d after %d", again.Version, r.Version)
		}
		k.event(led(del(c), partMember), store.Applied, 0)
		k.partAbsent(c, partMember)
		k.holds(c, 0)
		k.event(with(del(c), plus(partHeld, 1)), store.Applied, 0)
		k.absent(c)
		k.partHolds(c, partHeld, 1)
	})
	s.lawWith("an event needs room for its counter", Config{Limits: store.Limits{KeysMax: 1}}, func(k *kit) {
		cs := k.together(2)
		k.event(led(set(cs[0], 7), partMember), store.Applied, 0)
		k.event(led(set(cs[1], 7), partMember), store.Full, 0)
		k.event(with(add(cs[1], 7), plus(partHeld, 1)), store.Full, 0)
		k.event(with(add(cs[0], 7), plus(partHeld, 1)), store.Applied, 0)
		k.partAbsent(cs[1], partMember)
		k.partAbsent(cs[1], partHeld)
	})
	s.law("a counter with a deadline takes no event", func(k *kit) {
		c := cell("a")
		k.one(until(add(c, 1), math.MaxInt64))
		k.event(with(add(c, 1), plus(partHeld, 1)), store.Unmet, 0)
		k.event(led(add(c, 1), partMember), store.Unmet, 0)
		k.partAbsent(c, partHeld)
	})
	s.law("a split counter takes adds with riders, and no more", func(k *kit) {
		c := cell("a")
		if !k.store.Traits().Layouts {
			return // They are its own affair.
		}
		k.one(layout(c, 0, 3))
		k.event(with(add(c, 1), applied(partWindow)), store.Applied, 0)
		k.event(led(add(c, 1), partMember), store.Split, 0)
		k.event(with(add(c, 1), provided(plus(partHeld, 1), store.MetEqual, 0)), store.Split, 0)
		k.event(with(want(add(c, 1)), applied(partWindow)), store.Split, 0)
		k.partHolds(c, partWindow, 1)
	})
	s.law("what a counter was before a book is added once", func(k *kit) {
		c := cell("a")
		k.one(add(c, 40))
		under := func(book int64) store.Delta {
			base := when(store.Rider{Part: partOutside, Op: store.OpAdd, Amount: store.AmountWas}, store.MetBook, 3)
			return with(add(c, 1), base, applied(partWindow), store.Rider{Part: partBook, Op: store.OpMax, N: book})
		}
		for range 3 {
			k.event(under(4), store.Applied, 0)
		}
		k.event(under(2), store.Applied, 0)
		k.partHolds(c, partOutside, 40)
		k.partHolds(c, partWindow, 4)
		k.partHolds(c, partBook, 4)
	})
	clock := newClock()
	s.lawWith("an event in time", Config{Now: clock.now}, func(k *kit) {
		c, now := cell("a"), clock.ms()*1000
		f := func(notBefore, notAfter int64, o store.Outcome) {
			k.Helper()
			d := with(add(c, 1), plus(partHeld, 1))
			d.Event.NotBefore, d.Event.NotAfter = notBefore, notAfter
			k.event(d, o, 0)
		}
		f(now, now, store.Applied)
		f(now+1000, 0, store.Untimely)
		f(0, now-1000, store.Untimely)
		k.partHolds(c, partHeld, 1)
	})
}

func eventTokens(s *suite) {
	s.law("a repeat takes no rider", func(k *kit) {
		c := cell("a")
		d := once(with(add(c, 5), plus(partHeld, 2)), "t")
		first := k.event(d, store.Applied, 0)
		d.Event = &store.Event{Riders: []store.Rider{plus(partHeld, 9)}} // of another book
		k.repeats(k.one(d), first)
		k.repeats(k.one(settle(c, "t")), first)
		k.partHolds(c, partHeld, 2)
		k.holds(c, 5)
		member := once(led(set(c, 1), partMember), "t") // the counter's token, whatever leads
		k.outcome(k.one(member), store.Mismatch)
		k.partAbsent(c, partMember)
		k.one(settle(c, "u"))
		k.outcome(k.one(once(with(add(c, 5), plus(partHeld, 2)), "u")), store.Settled)
		k.partHolds(c, partHeld, 2)
	})
	s.law("a numbered repeat takes no rider", func(k *kit) {
		c, w := cell("a"), k.enlist()
		b := k.numbered(w, 0, 1, with(add(c, 5), plus(partHeld, 2)))
		first := k.reply(b)
		b.Deltas = []store.Delta{with(add(c, 5), plus(partWindow, 2))} // of another book
		again := k.reply(b)
		if !again.Replayed || again.Results[0].Version != first.Results[0].Version {
			k.Fatalf("reply %+v, want %+v again", again, first)
		}
		k.partHolds(c, partHeld, 2)
		k.partAbsent(c, partWindow)
		b.Deltas = []store.Delta{led(add(c, 5), partMember)} // another write
		k.refused(b, store.KindMark)
	})
	s.law("a token remembers a refusal", func(k *kit) {
		c := cell("a")
		d := once(led(only(set(c, 1), store.ExistsNot), partMember), "t")
		k.event(led(set(c, 1), partMember), store.Applied, 0)
		first := k.event(d, store.Unmet, 0)
		k.event(led(del(c), partMember), store.Applied, 0)
		k.repeats(k.one(d), first)
		k.partAbsent(c, partMember)
		if f := k.state(c, "t", store.TokenRefused); f.Result != kept(first) {
			k.Fatalf("fate %+v, want %+v", f, first)
		}
		k.repeats(k.one(settle(c, "t")), first)
		d.Guard.Digest++
		k.outcome(k.one(d), store.Mismatch)
		k.outcome(k.one(once(with(match(add(c, 1), 1)), "u")), store.Changed)
		k.state(c, "u", store.TokenUnknown)
	})
	clock := newClock()
	limits := store.Limits{TokensMax: 10, TokenWindow: window}
	s.lawWith("refusals have room of their own", Config{Limits: limits, Now: clock.now}, func(k *kit) {
		c := cell("a")
		refused := func(token string) store.Delta { return once(led(only(set(c, 1), store.ExistsMust), partMember), token) }
		if r := k.event(refused("t"), store.Unmet, 0); r.Forgotten {
			k.Fatalf("%+v: there is room", r)
		}
		if r := k.event(refused("u"), store.Unmet, 0); !r.Forgotten {
			k.Fatalf("%+v: there is no room", r)
		}
		k.state(c, "u", store.TokenUnknown)
		k.event(once(with(add(c, 1)), "v"), store.Applied, 0)
		clock.move(2 * window)
		if r := k.event(refused("w"), store.Unmet, 0); r.Forgotten {
			k.Fatalf("%+v: the first refusal is over", r)
		}
	})
}

func eventEntries(s *suite) {
	clock := newClock()
	s.lawWith("entries are in the order of the steps", Config{Now: clock.now}, func(k *kit) {
		c := cell("a")
		line := func(text string) store.Rider {
			return store.Rider{Part: partEntries, Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte(text)}
		}
		var versions []uint64
		do := func(d store.Delta) { versions = append(versions, k.event(d, store.Applied, 0).Version) }
		do(with(add(c, 5), line("one")))
		do(led(set(c, 5), partMember, line("two")))
		do(with(del(c), line("three")))
		do(with(add(c, 1), line("four")))
		do(with(within(add(c, 9), store.Bound{High: 7, Saturate: true}), line("five")))
		want := []store.Stamp{{Value: 5, Change: 5}, {Value: 5}, {Change: -5}, {Value: 1, Change: 1}, {Value: 7, Change: 6}}
		es := k.entries(c)
		if len(es) != len(want) {
			k.Fatalf("%d entries: %+v", len(es), es)
		}
		for i, text := range []string{"one", "two", "three", "four", "five"} {
			f, _ := es[i].Part.Fields()
			stamp, rest, ok := store.CutStamp(es[i].Content.Bytes)
			if !ok || rest != text || stamp.MS != clock.ms() || stamp.Known && (stamp.Value != want[i].Value || stamp.Change != want[i].Change) {
				k.Errorf("entry %d is %+v, %q, %t", i, stamp, rest, ok)
			}
			if versions[i] != 0 && f.Position != int64(versions[i]) || es[i].Content.N != f.Kind.Number([]byte(es[i].Content.Bytes)) {
				k.Errorf("entry %d is at %d, its version is %d", i, f.Position, versions[i])
			}
			if text == "five" && !stamp.Known {
				k.Errorf("a bound was judged, and the value is not known")
			}
		}
		// Erasing puts what is left, if the entry is what was read.
		erase := led(store.Delta{Cell: c, Op: store.OpPut}, es[1].Part)
		erase.Event.Bytes, erase.Event.Is = []byte("gone"), store.Met{Kind: store.MetEqual, N: es[0].Content.N}
		k.event(erase, store.Unmet, 0)
		erase.Event.Is.N = es[1].Content.N
		k.event(erase, store.Applied, 0)
		if es = k.entries(c); es[1].Content.Bytes != "gone" {
			k.Errorf("the entry is %+v", es[1])
		}
		back := store.RowsUnder(namespace, store.PartFields{Kind: store.PartEntries, View: 1, Epoch: 7}, "a")
		back.Back = true
		found, err := k.store.ScanParts(k.ctx, back, 3)
		if err != nil || len(found) != 3 || found[0] != es[4] || found[2] != es[2] {
			k.Errorf("backwards: %+v, %v", found, err)
		}
	})
	s.law("what no event can be is refused", func(k *kit) {
		c := cell("a")
		f := func(d store.Delta, kind store.Kind) {
			k.Helper()
			k.refused(k.batch(add(c, 1), d), kind)
		}
		f(with(get(c)), store.KindInvalid)
		f(with(expire(c, store.ExpiryClear, 0)), store.KindInvalid)
		f(with(add(c, 1), plus("x", 1)), store.KindInvalid)
		f(with(add(c, 1), plus("", 1)), store.KindInvalid)
		f(with(add(c, 1), plus(partEntries, 1)), store.KindInvalid)
		f(with(add(c, 1), store.Rider{Part: partHeld, Op: store.OpPut, Bytes: []byte("x")}), store.KindInvalid)
		f(with(add(c, 1), store.Rider{Part: partHeld, Op: store.OpLayout}), store.KindInvalid)
		f(led(match(add(c, 1), 1), partHeld), store.KindInvalid)
		f(led(get(c), partHeld), store.KindInvalid)
		f(with(add(c, 1), slices.Repeat([]store.Rider{plus(partHeld, 1)}, store.EventRidersMax+1)...), store.KindTooLarge)
		f(with(add(c, 1), store.Rider{Part: partEntries, Op: store.OpPut, Bytes: make([]byte, store.PartBytesMax+1)}), store.KindTooLarge)
		f(store.Delta{Cell: c, Op: store.OpMax, N: 1}, store.KindInvalid)
		k.absent(c)
	})
}
