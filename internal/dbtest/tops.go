package dbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// A Topper is a DB that tells what came most often.
type Topper interface {
	Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error)
}

// A topper is a kit for such a DB.
type topper struct {
	*kit
	Topper
}

// listing checks a law on a new DB, if the door tells of top lists.
func (s *suite) listing(name string, check func(k topper)) {
	if s.door.Untold {
		return
	}
	s.law(name, func(k *kit) {
		t, ok := k.db.(Topper)
		if !ok {
			k.Fatalf("%T does not tell of top lists", k.db)
		}
		check(topper{k, t})
	})
}

// lists checks what a list says, exactly: item 3, other 2.
func (k topper) lists(name, want string, o call.TopOptions) call.Top {
	k.Helper()
	t, err := k.Top(k.ctx, name, o)
	k.succeeds(err)
	var got []string
	for _, x := range t.Items {
		n := x.Count
		if x.Lower != x.Upper || x.Count != x.Upper || o.Trend && x.RiseLower != x.RiseUpper {
			k.Fatalf("list %s has %+v", name, x)
		}
		if o.Trend {
			n = x.Rise
		}
		got = append(got, fmt.Sprintf("%s %d", x.Item, n))
	}
	if text := strings.Join(got, ", "); text != want || !t.Exact || t.Name != name || t.Key != o.Key || t.AsOf.IsZero() {
		k.Fatalf("list %s is %+v, want %s", name, t, want)
	}
	return t
}

// ranked are counters that are listed by key, and each by the color of its events.
func ranked(windows ...definition.Window) definition.Definition {
	return definition.Definition{
		Pattern: "post:*", Windows: windows,
		Tops: []definition.Top{{Name: "trending", By: definition.ByKey}, {Name: "colors", By: "color", K: 10}},
	}
}

// tops are the laws of top lists.
func tops(s *suite) {
	const day = 24 * time.Hour
	hourly := []definition.Window{every("1h", 30*day), every("1d", 400*day)}
	s.listing("what is added is listed", func(k topper) {
		k.define(ranked(hourly...))
		for i, color := range []string{"red", "blue", "red", "", "green", "red"} {
			var opts []quipu.WriteOption
			if color != "" {
				opts = append(opts, quipu.Dim("color", color))
			}
			k.add(fmt.Sprint("post:", i%4), int64(i+1), opts...)
		}
		k.lists("trending", "post:1 8, post:0 6, post:3 4, post:2 3", call.TopOptions{})
		t := k.lists("trending", "post:1 8, post:0 6", call.TopOptions{K: 2})
		if t.By != "key" || t.Total != 21 || t.Rest != 4 || !t.Complete || !t.Aligned || t.CompleteFrom.IsZero() || !t.From.IsZero() {
			k.Fatalf("%+v", t)
		}
		t = k.lists("colors", "red 6, blue 2", call.TopOptions{Key: "post:1"})
		if t.By != "color" || t.Rest != 0 || t.Total != 8 {
			k.Fatalf("%+v", t)
		}
		k.lists("colors", "", call.TopOptions{Key: "post:3"}) // its event had none
		k.lists("colors", "", call.TopOptions{Key: "post:9"})
		k.lists("trending", "post:1 8", call.TopOptions{K: 1, From: time.Now().Add(-time.Hour)})
		k.holds("post:1", 8)
	})
	s.listing("a range is the union of its windows, and a trend compares two", func(k topper) {
		k.define(ranked(hourly...))
		hour := time.Now().Truncate(time.Hour)
		at := func(back int, key string, n int64) {
			k.add(key, n, quipu.At(hour.Add(-time.Duration(back)*time.Hour+time.Minute)), quipu.Dim("color", "red"))
		}
		at(1, "post:a", 5)
		at(1, "post:b", 3)
		at(2, "post:a", 1)
		at(2, "post:b", 9)
		at(2, "post:c", 2)
		at(30, "post:a", 7)
		f := func(from, to int, want string) {
			k.Helper()
			t := k.lists("trending", want, call.TopOptions{From: hour.Add(-time.Duration(from) * time.Hour), To: hour.Add(-time.Duration(to) * time.Hour)})
			if !t.Aligned || !t.From.Equal(hour.Add(-time.Duration(from)*time.Hour)) || !t.To.Equal(hour.Add(-time.Duration(to)*time.Hour)) {
				k.Fatalf("%+v", t)
			}
		}
		f(1, 0, "post:a 5, post:b 3")
		f(2, 0, "post:b 12, post:a 6, post:c 2")
		f(40, 0, "post:a 13, post:b 12, post:c 2")
		f(2, 1, "post:b 9, post:c 2, post:a 1")
		f(5, 3, "")
		t := k.lists("trending", "post:a 4, post:c -2, post:b -6", call.TopOptions{Trend: true, From: hour.Add(-time.Hour), To: hour})
		if !t.Trend || t.Total != 8 || !t.Before.Equal(hour.Add(-2*time.Hour)) || !t.From.Equal(hour.Add(-time.Hour)) || !t.To.Equal(hour) {
			k.Fatalf("%+v", t)
		}
		k.lists("trending", "post:a 4", call.TopOptions{Trend: true, K: 1}) // the hours that ended last
		k.lists("colors", "red 4", call.TopOptions{Trend: true, Key: "post:a"})
	})
	s.listing("a repeat, a refusal and what is taken away change no list", func(k topper) {
		d := ranked(hourly...)
		d.Floor = new(int64(0))
		k.define(d)
		for range 3 {
			k.add("post:a", 4, quipu.Token("t"), quipu.Dim("color", "red"))
		}
		_, err := k.db.Add(k.ctx, "post:b", -5)
		k.fails(err, quipu.ErrBound)
		_, err = k.db.Add(k.ctx, "post:b", 5, quipu.Ceiling(3))
		k.fails(err, quipu.ErrBound)
		k.add("post:a", -3, quipu.Dim("color", "red"))
		k.delete("post:a")
		k.lists("trending", "post:a 4", call.TopOptions{})
		k.lists("trending", "post:a 4", call.TopOptions{From: time.Now().Add(-time.Hour)})
		k.lists("colors", "red 4", call.TopOptions{Key: "post:a"})
		_, err = k.db.Add(k.ctx, "post:b", 5, quipu.Ceiling(3), quipu.Saturate())
		k.fails(err, quipu.ErrInvalid)
		k.absent("post:b")
	})
	s.listing("what no list can have is refused", func(k topper) {
		k.define(ranked(), definition.Definition{Pattern: "plain", Windows: hourly})
		k.add("plain", 1)
		f := func(name string, o call.TopOptions) {
			k.Helper()
			_, err := k.Top(k.ctx, name, o)
			k.fails(err, quipu.ErrInvalid)
		}
		f("none", call.TopOptions{})
		f("colors", call.TopOptions{})
		f("colors", call.TopOptions{Key: "plain"})
		f("trending", call.TopOptions{Key: "post:a"})
		f("colors", call.TopOptions{Key: "unnamed"})
		f("trending", call.TopOptions{K: -1})
		f("trending", call.TopOptions{K: 101})
		f("colors", call.TopOptions{Key: "post:a", K: 11})
		f("trending", call.TopOptions{From: time.Now().Add(-time.Hour)}) // it has no windows
		f("trending", call.TopOptions{Trend: true})
		_, err := k.db.Add(k.ctx, "post:a", 1, quipu.Dim("shape", "round"))
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Add(k.ctx, "post:"+strings.Repeat("a", 300), 1)
		k.fails(err, quipu.ErrTooLarge)
		k.lists("trending", "", call.TopOptions{})
	})
	s.listing("events that come at once are all listed", func(k topper) {
		k.define(ranked(hourly...), visited())
		const callers, each = 8, 40
		var wg sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			wg.Go(func() {
				for j := range each {
					n := i*each + j
					_, err := k.db.Add(k.ctx, fmt.Sprint("post:", n%10), 1, quipu.Dim("color", []string{"red", "blue"}[n%2]), quipu.Token(fmt.Sprint("t", n)))
					_, again := k.db.Add(k.ctx, fmt.Sprint("post:", n%10), 1, quipu.Dim("color", []string{"red", "blue"}[n%2]), quipu.Token(fmt.Sprint("t", n)))
					_, blind := k.db.Add(k.ctx, "post:hot", 1)
					errs[i] = errors.Join(errs[i], err, again, blind)
				}
			})
		}
		wg.Wait()
		k.succeeds(errors.Join(errs...))
		t, err := k.Top(k.ctx, "trending", call.TopOptions{From: time.Now().Add(-2 * time.Hour)})
		k.succeeds(err)
		want := map[string]int64{"post:hot": callers * each}
		for i := range 10 {
			want[fmt.Sprint("post:", i)] = callers * each / 10
		}
		for _, x := range t.Items {
			if x.Lower != want[x.Item] || x.Upper != want[x.Item] {
				k.Fatalf("%+v, want %d", x, want[x.Item])
			}
		}
		if len(t.Items) != len(want) || t.Items[0].Item != "post:hot" || t.Total != 2*callers*each {
			k.Fatalf("%+v", t)
		}
		k.lists("colors", "red 32", call.TopOptions{Key: "post:2"})
	})
	s.listing("a list is exact while it is small, and then its bounds hold", func(k topper) {
		k.define(definition.Definition{Pattern: "terms", Tops: []definition.Top{{Name: "terms", By: "term", K: 5}}})
		counts := map[string]int64{}
		var events []quipu.Event
		for i := range 400 { // more than are counted by name
			term := fmt.Sprint("rare ", i)
			if i%4 == 0 {
				term = fmt.Sprint("often ", i%5)
			}
			counts[term]++
			events = append(events, quipu.Event{Key: "terms", Delta: 1, Dims: []quipu.Dimension{{Name: "term", Value: term}}})
		}
		for _, r := range k.addBatch(events...) {
			k.succeeds(r.Err)
		}
		t, err := k.Top(k.ctx, "terms", call.TopOptions{Key: "terms"})
		k.succeeds(err)
		if t.Exact || t.Total != 400 || len(t.Items) != 5 {
			k.Fatalf("%+v", t)
		}
		for _, x := range t.Items {
			if n := counts[x.Item]; !strings.HasPrefix(x.Item, "often") || x.Lower > n || x.Upper < n || x.Count != x.Upper {
				k.Fatalf("%+v, came %d times", x, n)
			}
		}
		if !slices.IsSortedFunc(t.Items, func(a, b call.TopItem) int { return int(b.Count - a.Count) }) {
			k.Fatalf("%+v", t.Items)
		}
	})
}
