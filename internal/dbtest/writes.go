package dbtest

import (
	"math"
	"time"

	"github.com/quipudb/quipu"
)

// writes are the laws of one counter: what each verb does to it, and what its
// receipt says.
func writes(s *suite) {
	s.law("a counter that was never written is absent and reads as zero", func(k *kit) {
		k.absent("never")
	})

	s.law("adds of any sign sum up", func(k *kit) {
		sum := int64(0)
		for _, n := range []int64{1, 41, -2, 0, 1 << 40, -(1 << 41), math.MaxInt32, -1} {
			r := k.add("a", n, quipu.WantValue())
			k.moved(r, sum, sum+n)
			if r.Applied != n {
				k.Fatalf("applied %d, want %d", r.Applied, n)
			}
			sum += n
			k.holds("a", sum)
		}
	})

	s.law("a plain add has a receipt without value", func(k *kit) {
		r := k.add("a", 7)
		if r.Key != "a" || r.Applied != 7 || r.HasValue || r.Value != 0 || r.Before != 0 || r.Replayed || r.Err != nil {
			k.Fatalf("receipt %+v, want only what is known without the value", r)
		}
		k.holds("a", 7)
	})

	s.law("an add of zero makes the counter exist", func(k *kit) {
		k.moved(k.add("a", 0, quipu.WantValue()), 0, 0)
		k.holds("a", 0)
	})

	s.law("overflow is refused alone and changes nothing", func(k *kit) {
		k.set("high", math.MaxInt64-1)
		k.set("low", math.MinInt64)
		_, err := k.db.Add(k.ctx, "high", 2)
		k.fails(err, quipu.ErrOverflow)
		_, err = k.db.Add(k.ctx, "low", -1, quipu.WantValue())
		k.fails(err, quipu.ErrOverflow)
		k.holds("low", math.MinInt64)
		k.moved(k.add("high", 1, quipu.WantValue()), math.MaxInt64-1, math.MaxInt64)
	})

	s.law("set makes the value and says what changed", func(k *kit) {
		r := k.set("a", 5)
		if r.HasValue || r.Applied != 0 || r.Key != "a" || r.Version == 0 {
			k.Fatalf("receipt of a plain set is %+v", r)
		}
		for _, step := range []struct{ value, applied int64 }{
			{8, 3},
			{8, 0},
			{-8, -16},
			{math.MinInt64, math.MinInt64 + 8},
			{math.MaxInt64, math.MaxInt64}, // the change does not fit, and is held at the limit
			{math.MinInt64, math.MinInt64},
			{0, math.MaxInt64},
		} {
			before := k.read("a").Value
			r := k.set("a", step.value, quipu.WantValue())
			k.moved(r, before, step.value)
			if r.Applied != step.applied {
				k.Fatalf("set of %d to %d applied %d, want %d", before, step.value, r.Applied, step.applied)
			}
			k.holds("a", step.value)
		}
	})

	s.law("reset takes the count and leaves zero", func(k *kit) {
		k.add("a", 12)
		r := k.reset("a", quipu.WantValue())
		k.moved(r, 12, 0)
		if r.Applied != -12 {
			k.Fatalf("applied %d, want -12", r.Applied)
		}
		k.holds("a", 0)
		k.reset("new")
		k.holds("new", 0)
	})

	s.law("delete makes the counter absent", func(k *kit) {
		k.add("a", 12)
		r := k.delete("a", quipu.WantValue())
		k.moved(r, 12, 0)
		if r.Applied != -12 || r.Version != 0 {
			k.Fatalf("receipt %+v, want -12 applied and no version", r)
		}
		k.absent("a")
		k.moved(k.delete("a", quipu.WantValue()), 0, 0)
		k.absent("a")
		k.moved(k.add("a", 3, quipu.WantValue()), 0, 3)
	})

	s.law("options that mean nothing for a call are refused", func(k *kit) {
		now := time.Now()
		for _, o := range []quipu.WriteOption{
			quipu.At(now), quipu.Who("me"), quipu.Floor(0), quipu.Ceiling(9), quipu.Saturate(), quipu.TTL(time.Hour),
		} {
			_, err := k.db.Set(k.ctx, "a", 1, o)
			k.fails(err, quipu.ErrInvalid)
			_, err = k.db.Reset(k.ctx, "a", o)
			k.fails(err, quipu.ErrInvalid)
			_, err = k.db.Delete(k.ctx, "a", o)
			k.fails(err, quipu.ErrInvalid)
		}
		_, err := k.db.Add(k.ctx, "a", 1, quipu.WantValue(), quipu.WantValue())
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Add(k.ctx, "a", 1, quipu.Token("a"), quipu.Token("b"))
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Add(k.ctx, "a", 1, quipu.WriteOption{})
		k.fails(err, quipu.ErrInvalid)
		k.absent("a")
	})

	s.law("a time before 1970 is refused", func(k *kit) {
		if _, err := k.db.Add(k.ctx, "a", 1, quipu.At(time.UnixMilli(-1)), quipu.Token("t")); err == nil {
			k.Fatalf("no error")
		}
		k.absent("a")
		k.add("a", 1, quipu.At(time.Time{}), quipu.Token("t"))
		if r := k.add("a", 1, quipu.Token("t")); !r.Replayed {
			k.Fatalf("no time at all is another payload: %+v", r)
		}
	})
}
