package storetest

import (
	"math"

	"github.com/quipudb/quipu/store"
)

// values are the laws of one cell: what adds, sets and deletes make of it, and
// how its version moves.
func values(s *suite) {
	s.law("an absent cell reads as the zero Value", func(k *kit) {
		k.absent(cell("never"))
	})

	s.law("adds of any sign sum up", func(k *kit) {
		c, sum := cell("a"), int64(0)
		for _, n := range []int64{1, 41, -2, 0, 1 << 40, -(1 << 41), 7, math.MaxInt32, -1} {
			r := k.one(want(add(c, n)))
			k.applied(r, sum, sum+n)
			sum += n
			k.holds(c, sum)
		}
	})

	s.law("an add of zero makes the cell exist", func(k *kit) {
		k.applied(k.one(want(add(cell("zero"), 0))), 0, 0)
		k.holds(cell("zero"), 0)
	})

	s.law("a sum may reach both ends of int64", func(k *kit) {
		up, down := cell("up"), cell("down")
		k.outcome(k.one(add(up, math.MaxInt64-1)), store.Applied)
		k.applied(k.one(want(add(up, 1))), math.MaxInt64-1, math.MaxInt64)
		k.outcome(k.one(add(down, math.MinInt64)), store.Applied)
		k.applied(k.one(want(add(down, 0))), math.MinInt64, math.MinInt64)
		k.applied(k.one(want(add(down, math.MaxInt64))), math.MinInt64, -1)
		k.applied(k.one(want(add(up, math.MinInt64))), math.MaxInt64, -1)
	})

	s.law("overflow is refused alone and changes nothing", overflow)

	s.law("set makes the value, whatever it was", func(k *kit) {
		c := cell("s")
		k.applied(k.one(want(set(c, 5))), 0, 5)
		k.applied(k.one(want(set(c, math.MinInt64))), 5, math.MinInt64)
		k.applied(k.one(want(set(c, math.MaxInt64))), math.MinInt64, math.MaxInt64)
		k.applied(k.one(want(set(c, 0))), math.MaxInt64, 0)
		k.holds(c, 0)
	})

	s.law("delete makes the cell absent", func(k *kit) {
		c := cell("d")
		k.outcome(k.one(set(c, 9)), store.Applied)
		r := k.one(want(del(c)))
		k.applied(r, 9, 0)
		if r.Version != 0 {
			k.Fatalf("version %d after a delete, want 0", r.Version)
		}
		k.absent(c)
		k.applied(k.one(want(add(c, 2))), 0, 2)
		k.holds(c, 2)
	})

	s.law("delete of an absent cell is applied", func(k *kit) {
		r := k.one(want(del(cell("none"))))
		if r != (store.Result{Outcome: store.Applied}) {
			k.Fatalf("result %+v, want only Applied", r)
		}
		k.absent(cell("none"))
	})

	s.law("versions rise with every change over the life of a cell", versions)
	s.law("a result carries the version that a read sees", func(k *kit) {
		c := cell("v")
		for _, d := range []store.Delta{add(c, 1), want(add(c, 0)), set(c, 1), once(add(c, 3), "t")} {
			r := k.one(d)
			k.outcome(r, store.Applied)
			if v := k.read(c); v.Version != r.Version {
				k.Fatalf("read sees version %d, the result said %d", v.Version, r.Version)
			}
		}
	})

	s.law("match applies only at the version asked for", matches)

	s.law("cells are their namespace and their key", func(k *kit) {
		cells := []store.Cell{
			{Namespace: "a", Key: "bc"},
			{Namespace: "ab", Key: "c"},
			{Namespace: "a", Key: "b\x00c"},
			{Namespace: "a\x00b", Key: "c"},
			{Namespace: "a", Key: "BC"},
			{Namespace: "a", Key: "bc "},
			{Namespace: "a", Key: "b/c"},
			{Namespace: "a/b", Key: "c"},
			{Namespace: "a", Key: "é"},       // composed
			{Namespace: "a", Key: "e\u0301"}, // the same to the eye
			{Namespace: "a", Key: "\U0010ffff"},
			{Namespace: "a", Key: "%_*?[]{}:'\"\\"},
		}
		for i, c := range cells {
			k.outcome(k.one(add(c, int64(i+1))), store.Applied)
		}
		for i, c := range cells {
			k.holds(c, int64(i+1))
		}
	})

	s.law("one read takes cells of all partitions, repeated and absent ones too", func(k *kit) {
		cells := k.apart()
		for i, c := range cells {
			k.outcome(k.one(set(c, int64(i+10))), store.Applied)
		}
		cells = append(cells, cell("absent"), cells[0])
		vs := k.readAll(cells...)
		for i, v := range vs[:k.parts] {
			if v.N != int64(i+10) || !v.Exists {
				k.Fatalf("cell %d reads %+v, want %d", i, v, i+10)
			}
		}
		if vs[k.parts] != (store.Value{}) {
			k.Fatalf("absent cell reads %+v", vs[k.parts])
		}
		if vs[k.parts+1] != vs[0] {
			k.Fatalf("the same cell reads %+v and %+v in one call", vs[0], vs[k.parts+1])
		}
	})
}

func overflow(k *kit) {
	cs := k.together(3)
	c, before, behind := cs[0], cs[1], cs[2]
	f := func(at, n int64) {
		k.Helper()
		k.outcome(k.one(set(c, at)), store.Applied)
		was := k.read(c)
		d := want(add(c, n))
		d.Guard = store.Guard{Token: "refused", Digest: 1}
		rs := k.do(add(before, 1), add(c, n), d, add(behind, 1))
		k.outcome(rs[0], store.Applied)
		for _, r := range rs[1:3] {
			k.outcome(r, store.Overflow)
			if r.Version != 0 || r.Replayed {
				k.Fatalf("refused with %+v", r)
			}
		}
		k.outcome(rs[3], store.Applied)
		if now := k.read(c); now != was {
			k.Fatalf("%d + %d was refused, yet the cell went from %+v to %+v", at, n, was, now)
		}
		k.state(c, "refused", store.TokenUnknown)
	}
	f(math.MaxInt64, 1)
	f(1, math.MaxInt64)
	f(math.MaxInt64, math.MaxInt64)
	f(math.MaxInt64-5, 6)
	f(math.MinInt64, -1)
	f(-1, math.MinInt64)
	f(math.MinInt64, math.MinInt64)
	f(math.MinInt64+5, -6)
	k.holds(before, 8)
	k.holds(behind, 8)
}

func versions(k *kit) {
	c, last := cell("v"), uint64(0)
	rises := func(r store.Result) {
		k.Helper()
		k.outcome(r, store.Applied)
		if r.Version <= last {
			k.Fatalf("version %d after %d", r.Version, last)
		}
		last = r.Version
	}
	for range 3 {
		rises(k.one(add(c, 1)))
		rises(k.one(add(c, 0)))
		rises(k.one(set(c, 7)))
		rises(k.one(set(c, 7)))
		k.outcome(k.one(del(c)), store.Applied)
		k.outcome(k.one(del(c)), store.Applied)
	}
	for _, r := range k.do(add(c, 1), want(add(c, 1)), set(c, 2), add(c, -2)) {
		rises(r)
	}
	if v := k.read(c); v.Version != last {
		k.Fatalf("read sees version %d, the last change made %d", v.Version, last)
	}
	if v := k.read(c); v.Version != last {
		k.Fatalf("reading moved the version from %d to %d", last, v.Version)
	}
}

func matches(k *kit) {
	c := cell("m")
	k.outcome(k.one(match(add(c, 1), 1)), store.Changed)
	k.absent(c)
	r := k.one(match(add(c, 1), 0))
	k.outcome(r, store.Applied)
	k.outcome(k.one(match(add(c, 1), 0)), store.Changed)
	k.outcome(k.one(match(set(c, 9), r.Version+1)), store.Changed)
	k.outcome(k.one(match(del(c), r.Version-1)), store.Changed)
	k.holds(c, 1)

	second := k.one(match(set(c, 9), r.Version))
	k.outcome(second, store.Applied)
	k.outcome(k.one(match(set(c, 10), r.Version)), store.Changed)
	k.holds(c, 9)

	rs := k.do(match(del(c), second.Version), match(add(c, 4), 0), match(add(c, 4), 0))
	k.outcome(rs[0], store.Applied)
	k.outcome(rs[1], store.Applied)
	k.outcome(rs[2], store.Changed)
	k.holds(c, 4)

	k.outcome(k.one(match(add(c, 1), second.Version)), store.Changed)
	k.outcome(k.one(match(del(cell("none")), 0)), store.Applied)
	k.outcome(k.one(match(del(cell("none")), 3)), store.Changed)
}
