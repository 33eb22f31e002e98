package dbtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
)

// awkwardKeys are keys that are easily confused, or easily mangled on a wire.
var awkwardKeys = []string{
	"a", "a/", "a/b", "a//b", "ab", "a b", "a+b", "a%2Fb", "a?b=c&d", "a#b", "a\x00", "a\x00b", "a\n", `a"b\`,
	"A", "z", "~", "..", ".", "é", "日本", "\U0001f9f6", "\U0010ffff", "*", "_", "a*", "{a}b", "counters", "a:exact",
}

// lists are the laws of walking the keys.
func lists(s *suite) {
	s.law("keys come in byte order, once, with their counts", func(k *kit) {
		keys := k.plant()
		for _, limit := range []int{1, 2, 7, len(keys) - 1, len(keys), len(keys) + 1, quipu.PageMax, 0} {
			k.listed(k.walk("", limit), keys)
		}
	})

	s.law("a prefix selects the keys that start with it", func(k *kit) {
		keys := k.plant()
		for _, prefix := range []string{"a", "a/", "a/b", "a\x00", "é", "%", "_", "*", "\U0010ffff", "nothing"} {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			k.listed(k.walk(prefix, 2), want)
		}
	})

	s.law("a deleted counter is not listed", func(k *kit) {
		k.add("a", 1)
		k.add("b", 1)
		k.add("c", 1)
		k.delete("b")
		k.listed(k.walk("", 2), []string{"a", "c"})
	})

	s.law("a page has a hundred counters unless asked", func(k *kit) {
		var events []quipu.Event
		for i := range 120 {
			events = append(events, quipu.Event{Key: fmt.Sprintf("k%03d", i), Delta: int64(i)})
		}
		k.addBatch(events...)
		p := k.page("", quipu.ListOptions{})
		if len(p.Counts) != 100 || p.Next == "" {
			k.Fatalf("first page has %d counts, next %q", len(p.Counts), p.Next)
		}
		p = k.page("", quipu.ListOptions{Cursor: p.Next})
		if len(p.Counts) != 20 || p.Next != "" {
			k.Fatalf("second page has %d counts, next %q", len(p.Counts), p.Next)
		}
	})

	s.law("keys that stay are listed once whatever happens to others", func(k *kit) {
		for i := range 10 {
			k.add(fmt.Sprintf("stay%d", i), 1)
			k.add(fmt.Sprintf("go%d", i), 1)
		}
		var stay []string
		cursor := ""
		for i := 0; ; i++ {
			p := k.page("", quipu.ListOptions{Limit: 3, Cursor: cursor})
			for _, c := range p.Counts {
				if strings.HasPrefix(c.Key, "stay") {
					stay = append(stay, c.Key)
				}
			}
			if p.Next == "" {
				break
			}
			cursor = p.Next
			k.delete(p.Counts[len(p.Counts)-1].Key) // the cursor's own key too
			k.add(p.Counts[len(p.Counts)-1].Key, 1)
			k.delete(fmt.Sprintf("go%d", i%10))
			k.add(fmt.Sprintf("new%d", i), 1)
		}
		if len(stay) != 10 || !slices.IsSorted(stay) {
			k.Fatalf("the keys that stayed were listed as %q", stay)
		}
	})

	s.law("a bad page is refused", func(k *kit) {
		k.plant()
		f := func(prefix string, o quipu.ListOptions, want error) {
			k.Helper()
			_, err := k.db.List(k.ctx, prefix, o)
			k.fails(err, want)
		}
		f("", quipu.ListOptions{Limit: -1}, quipu.ErrInvalid)
		f("", quipu.ListOptions{Cursor: "!"}, quipu.ErrInvalid)
		f(strings.Repeat("a", 513), quipu.ListOptions{}, quipu.ErrTooLarge)
		f("\xff", quipu.ListOptions{}, quipu.ErrInvalid)
		next := k.page("a", quipu.ListOptions{Limit: 1}).Next
		for _, prefix := range []string{"b", "", "a/", "aa"} { // also one that starts with it, or that it starts with
			f(prefix, quipu.ListOptions{Cursor: next}, quipu.ErrInvalid)
			_, err := k.db.Sum(k.ctx, prefix, next)
			k.fails(err, quipu.ErrInvalid)
		}
		for _, bad := range []string{"nonsense", "AAAA", "AAAAAAAA", next[1:], next + "AAAA", next[:len(next)-2], "\xff"} {
			f("a", quipu.ListOptions{Cursor: bad}, quipu.ErrInvalid)
			f("", quipu.ListOptions{Cursor: bad}, quipu.ErrInvalid)
		}
		other := k.with(k.tb, "other")
		_, err := other.db.List(k.ctx, "a", quipu.ListOptions{Cursor: next})
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Sum(k.ctx, strings.Repeat("a", 513), "")
		k.fails(err, quipu.ErrTooLarge)
	})

	s.law("a page over the limit is too large", func(k *kit) {
		_, err := k.db.List(k.ctx, "", quipu.ListOptions{Limit: quipu.PageMax + 1})
		k.fails(err, quipu.ErrTooLarge)
	})

	s.law("a sum is of all that start with a prefix", func(k *kit) {
		f := func(prefix string, keys, sum int64) {
			k.Helper()
			start := time.Now()
			s, err := k.db.Sum(k.ctx, prefix, "")
			if err != nil || s.Keys != keys || s.Value != sum || !s.Complete || !s.Exact || s.Next != "" ||
				s.AsOf.After(time.Now()) || s.AsOf.Before(start.Add(-time.Second)) {
				k.Fatalf("the sum of %q is %+v, %v; want %d of %d counters", prefix, s, err, sum, keys)
			}
		}
		f("", 0, 0)
		var events []quipu.Event
		for i := range int64(2500) {
			events = append(events, quipu.Event{Key: fmt.Sprintf("k%d", i), Delta: i}, quipu.Event{Key: fmt.Sprintf("other%d", i%7), Delta: -1})
		}
		k.addBatch(events...)
		f("k", 2500, 2499*2500/2)
		f("other", 7, -2500)
		f("k2499", 1, 2499)
		f("nothing", 0, 0)
		// The whole may fit where a part does not.
		k.set("big1", math.MaxInt64)
		k.set("big2", 1)
		_, err := k.db.Sum(k.ctx, "big", "")
		k.fails(err, quipu.ErrOverflow)
		k.set("big3", -1)
		f("big", 3, math.MaxInt64)
		for i := range 3 {
			k.set(fmt.Sprint("low", i), math.MinInt64)
		}
		_, err = k.db.Sum(k.ctx, "low", "")
		k.fails(err, quipu.ErrOverflow)
	})

	s.law("a sum can be taken up where a list has left", func(k *kit) {
		for i := range int64(10) {
			k.set(fmt.Sprint("k", i), i)
		}
		next := k.page("k", quipu.ListOptions{Limit: 4}).Next
		if s, err := k.db.Sum(k.ctx, "k", next); err != nil || s.Value != 4+5+6+7+8+9 || s.Keys != 6 || !s.Complete || s.Exact {
			k.Fatalf("the rest of a sum is %+v, %v", s, err)
		}
	})
}

// plant makes a counter of each awkward key and returns the keys in order.
func (k *kit) plant() []string {
	k.Helper()
	for i, key := range awkwardKeys {
		k.set(key, int64(i))
		k.holds(key, int64(i))
	}
	return slices.Sorted(slices.Values(awkwardKeys))
}

// walk lists all counters with a prefix, in pages of at most limit.
func (k *kit) walk(prefix string, limit int) []quipu.Count {
	k.Helper()
	var all []quipu.Count
	for o := (quipu.ListOptions{Limit: limit}); ; {
		p := k.page(prefix, o)
		if limit > 0 && len(p.Counts) > limit {
			k.Fatalf("a page of %d has %d counts", limit, len(p.Counts))
		}
		if len(all) > 0 && len(p.Counts) > 0 && p.Counts[0].Key <= all[len(all)-1].Key {
			k.Fatalf("the page after %q begins at %q", all[len(all)-1].Key, p.Counts[0].Key)
		}
		all = append(all, p.Counts...)
		if o.Cursor = p.Next; p.Next == "" {
			return all
		}
	}
}

// listed checks that counts are those of keys, as Read returns them.
func (k *kit) listed(counts []quipu.Count, keys []string) {
	k.Helper()
	var got []string
	for _, c := range counts {
		got = append(got, c.Key)
	}
	if !slices.Equal(got, keys) {
		k.Fatalf("listed %q, want %q", got, keys)
	}
	for _, c := range counts {
		start := time.Now()
		read := k.read(c.Key, quipu.Exact())
		k.sound(read, start)
		read.AsOf = c.AsOf
		if c != read {
			k.Fatalf("listed as %+v, read as %+v", c, read)
		}
	}
}
