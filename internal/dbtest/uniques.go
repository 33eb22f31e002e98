package dbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// A Uniquer is a DB that tells how many different users there were.
type Uniquer interface {
	Uniques(ctx context.Context, key string, o quipu.UniqueOptions) (quipu.Uniques, error)
	AddUniques(ctx context.Context, key string, users ...string) (changed bool, err error)
}

// A uniquer is a kit for such a DB.
type uniquer struct {
	*kit
	Uniquer
}

// telling checks a law on a new DB, if the door tells how many users there were.
func (s *suite) telling(name string, check func(k uniquer)) {
	if s.door.Untold {
		return
	}
	s.law(name, func(k *kit) {
		u, ok := k.db.(Uniquer)
		if !ok {
			k.Fatalf("%T does not tell how many users there were", k.db)
		}
		check(uniquer{k, u})
	})
}

// users checks how many there were, exactly.
func (k uniquer) users(key string, want int64, o quipu.UniqueOptions) quipu.Uniques {
	k.Helper()
	u, err := k.Uniques(k.ctx, key, o)
	k.succeeds(err)
	if e := (quipu.UniqueEstimate{Count: want, Lower: want, Upper: want, Exact: true}); u.Key != key || u.UniqueEstimate != e || u.AsOf.IsZero() {
		k.Fatalf("%q had %+v, want %d users", key, u, want)
	}
	return u
}

// visited are counters of visits by people.
func visited(windows ...definition.Window) definition.Definition {
	return definition.Definition{
		Pattern: "visits*", Windows: windows, Dimensions: []definition.Dimension{{By: []string{"country"}}}, Unique: definition.Unique{Of: definition.Who},
	}
}

func every(width string, keep time.Duration) definition.Window {
	w, err := definition.ParseWidth(width)
	if err != nil {
		panic(err)
	}
	return definition.Window{Every: w, Keep: definition.Keep(keep)}
}

// uniques are the laws of different users.
func uniques(s *suite) {
	const day = 24 * time.Hour
	hourly := []definition.Window{every("1h", 30*day), every("1d", 400*day)}
	s.telling("each user is one", func(k uniquer) {
		k.define(visited(hourly...))
		for i, who := range []string{"eve", "bob", "eve", "", "ann", "eve"} {
			opts := []quipu.WriteOption{quipu.Dim("country", []string{"DE", "FR"}[i%2])}
			if who != "" {
				opts = append(opts, quipu.Who(who))
			}
			k.add("visits", 2, opts...)
		}
		k.holds("visits", 12)
		if u := k.users("visits", 3, quipu.UniqueOptions{}); !u.Aligned || !u.Complete || u.CompleteFrom.IsZero() || !u.From.IsZero() || u.Values != nil {
			k.Fatalf("%+v", u)
		}
		u := k.users("visits", 3, quipu.UniqueOptions{By: "country"})
		// Eve came from both: 0 and 2 are of DE, 5 is of FR, as bob is.
		two := quipu.UniqueEstimate{Count: 2, Lower: 2, Upper: 2, Exact: true}
		if want := []call.UniqueValue{{Value: "DE", UniqueEstimate: two}, {Value: "FR", UniqueEstimate: two}}; !sameValues(u.Values, want) || u.By != "country" || u.Other != (quipu.UniqueEstimate{Exact: true}) {
			k.Fatalf("%+v, want %+v", u, want)
		}
		if u = k.users("visits", 3, quipu.UniqueOptions{By: "country", Top: 1}); len(u.Values) != 1 || u.Other != two {
			k.Fatalf("%+v", u)
		}
	})
	s.telling("users of a range are the union of its windows", func(k uniquer) {
		k.define(visited(hourly...))
		now := time.Now()
		for _, back := range []time.Duration{0, 2 * time.Hour, 26 * time.Hour, 50 * time.Hour} {
			k.add("visits", 1, quipu.Who("eve"), quipu.At(now.Add(-back)))
			k.add("visits", 1, quipu.Who(fmt.Sprint("user ", back)), quipu.At(now.Add(-back)))
		}
		k.users("visits", 5, quipu.UniqueOptions{})
		hour := now.Truncate(time.Hour)
		f := func(from, to time.Duration, want int64) {
			k.Helper()
			u := k.users("visits", want, quipu.UniqueOptions{From: hour.Add(-from), To: hour.Add(-to)})
			if !u.Aligned || !u.From.Equal(hour.Add(-from)) || !u.To.Equal(hour.Add(-to)) {
				k.Fatalf("%+v", u)
			}
		}
		f(0, -time.Hour, 2)
		f(2*time.Hour, -time.Hour, 3)
		f(2*time.Hour, time.Hour, 2)
		f(26*time.Hour, -time.Hour, 4)
		f(60*time.Hour, -time.Hour, 5)
		f(time.Hour, 0, 0)
		u := k.users("visits", 2, quipu.UniqueOptions{From: hour, By: "country"})
		if want := (quipu.UniqueEstimate{Count: 2, Lower: 2, Upper: 2, Exact: true}); !sameValues(u.Values, []call.UniqueValue{{UniqueEstimate: want}}) {
			k.Fatalf("%+v", u)
		}
	})
	s.telling("a repeat, a correction and an undo add nobody", func(k uniquer) {
		k.define(visited(hourly...))
		k.add("visits", 1, quipu.Who("eve"), quipu.Token("t"))
		k.add("visits", 1, quipu.Who("eve"), quipu.Token("t"))
		k.add("visits", -1, quipu.Who("bob"))
		k.add("visits", 0, quipu.Who("ann"))
		k.users("visits", 1, quipu.UniqueOptions{})
		k.delete("visits")
		k.users("visits", 1, quipu.UniqueOptions{}) // visits have happened
	})
	s.telling("users may be added alone", func(k uniquer) {
		k.define(visited(hourly...))
		f := func(want bool, users ...string) {
			k.Helper()
			changed, err := k.AddUniques(k.ctx, "visits", users...)
			k.succeeds(err)
			if changed != want {
				k.Fatalf("AddUniques(%q): %t", users, changed)
			}
		}
		f(true, "eve", "bob", "eve")
		f(false, "bob")
		k.add("visits", 1, quipu.Who("ann"))
		f(false, "ann", "eve")
		f(true, "joe", "eve")
		k.holds("visits", 1)
		k.users("visits", 4, quipu.UniqueOptions{})
		k.users("visits", 4, quipu.UniqueOptions{From: time.Now().Add(-time.Hour)})
		many := make([]string, 3000)
		for i := range many {
			many[i] = fmt.Sprint("user ", i)
		}
		f(true, many...)
		f(false, many[:100]...)
		u, err := k.Uniques(k.ctx, "visits", quipu.UniqueOptions{})
		k.succeeds(err)
		if u.Exact || u.Count < 2850 || u.Count > 3150 || u.Lower >= u.Count || u.Upper <= u.Count || u.StandardError < 10 || u.StandardError > 40 {
			k.Fatalf("3,004 users are %+v", u)
		}
	})
	s.telling("two counters have users in common", func(k uniquer) {
		k.define(visited(hourly...))
		for i := range 30 {
			k.add([]string{"visits:a", "visits:b"}[i%2], 1, quipu.Who(fmt.Sprint(i/3)))
		}
		for _, o := range []quipu.UniqueOptions{{}, {From: time.Now().Add(-time.Hour)}} {
			o.With = "visits:b"
			u := k.users("visits:a", 10, o)
			n := func(e quipu.UniqueEstimate) int64 { return e.Count }
			if v := u.Overlap; v == nil || v.With != "visits:b" || n(v.Only) != 0 || n(v.Others) != 0 || n(v.Both) != 10 || !v.Both.Exact {
				k.Fatalf("%+v, %+v", u, u.Overlap)
			}
		}
		k.add("visits:b", 1, quipu.Who("eve"))
		if v := k.users("visits:a", 10, quipu.UniqueOptions{With: "visits:b"}).Overlap; v.Others.Count != 1 {
			k.Fatalf("%+v", v)
		}
	})
	s.telling("what no definition counts is refused", func(k uniquer) {
		k.define(visited(), definition.Definition{Pattern: "plain", Windows: hourly})
		k.add("plain", 1, quipu.Who("eve"))
		k.add("count", 1)
		for _, key := range []string{"plain", "none", "count"} {
			_, err := k.Uniques(k.ctx, key, quipu.UniqueOptions{})
			k.fails(err, quipu.ErrInvalid)
			if key != "none" {
				_, err = k.AddUniques(k.ctx, key, "eve")
				k.fails(err, quipu.ErrInvalid)
			}
		}
		k.absent("none")
		k.holds("count", 1)
		_, err := k.Uniques(k.ctx, "visits", quipu.UniqueOptions{From: time.Now().Add(-time.Hour)}) // it has no windows
		k.fails(err, quipu.ErrInvalid)
		_, err = k.Uniques(k.ctx, "visits", quipu.UniqueOptions{By: "color"})
		k.fails(err, quipu.ErrInvalid)
		_, err = k.AddUniques(k.ctx, "visits")
		k.fails(err, quipu.ErrInvalid)
		_, err = k.AddUniques(k.ctx, "visits", "")
		k.fails(err, quipu.ErrInvalid)
		_, err = k.AddUniques(k.ctx, "visits", make([]string, quipu.UniquesMax+1)...)
		k.fails(err, quipu.ErrTooLarge)
		k.users("visits", 0, quipu.UniqueOptions{})
	})
	s.telling("a key without a definition holds a sketch", func(k uniquer) {
		f := func(key string, want bool, items ...string) {
			k.Helper()
			changed, err := k.AddUniques(k.ctx, key, items...)
			k.succeeds(err)
			if changed != want {
				k.Fatalf("AddUniques(%q, %q): %t", key, items, changed)
			}
		}
		f("a", true, "eve", "bob", "eve")
		f("a", false, "bob")
		f("b", true, "bob", "ann")
		u := k.users("a", 2, quipu.UniqueOptions{With: "b"})
		if v := u.Overlap; v == nil || v.Only.Count != 1 || v.Others.Count != 1 || v.Both.Count != 1 || !u.Exact || !u.Complete || !u.Aligned {
			k.Fatalf("%+v, %+v", u, v)
		}
		for _, o := range []quipu.UniqueOptions{{From: time.Now().Add(-time.Hour)}, {By: "country"}} {
			_, err := k.Uniques(k.ctx, "a", o)
			k.fails(err, quipu.ErrInvalid)
		}
		_, err := k.db.Add(k.ctx, "a", 1)
		k.fails(err, quipu.ErrNotCount)
		k.define(visited())
		f("a", true, "joe")
		k.users("a", 3, quipu.UniqueOptions{})
		k.delete("a")
		f("a", true, "eve")
		k.users("a", 1, quipu.UniqueOptions{})
	})
	s.telling("users who come at once are all there", func(k uniquer) {
		k.define(visited(hourly...))
		const callers, each = 8, 40
		var wg sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			wg.Go(func() {
				for j := range each {
					_, err := k.db.Add(k.ctx, "visits", 1, quipu.Who(fmt.Sprint((i*each/2+j)%200)))
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		k.succeeds(errors.Join(errs...))
		k.holds("visits", callers*each)
		k.users("visits", 180, quipu.UniqueOptions{})
		k.users("visits", 180, quipu.UniqueOptions{From: time.Now().Add(-2 * time.Hour)})
	})
}

// sameValues compares the users of values.
func sameValues(a, b []call.UniqueValue) bool {
	return slices.EqualFunc(a, b, func(x, y call.UniqueValue) bool {
		return x.Value == y.Value && slices.Equal(x.Values, y.Values) && x.UniqueEstimate == y.UniqueEstimate
	})
}
