package book_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

const hour = definition.Keep(time.Hour)

func zone(name string) (*calendar.Zone, error) {
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	return calendar.NewZone(location), nil
}

func window(every, place string, keep definition.Keep) definition.Window {
	w, err := definition.ParseWidth(every)
	if err != nil {
		panic(err)
	}
	return definition.Window{Every: w, Zone: place, Keep: keep}
}

func next(t *testing.T, b *book.Book, definitions ...definition.Definition) *book.Book {
	t.Helper()
	n, err := b.Next(book.Proposal{Definitions: definitions, Now: 1_800_000_000_000, InForce: int64(100 * b.ID), Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := book.Parse(n.Bytes()); err != nil || !slices.Equal(again.Bytes(), n.Bytes()) {
		t.Fatalf("%s comes back as %v, %v", n.Bytes(), again, err)
	}
	return n
}

// ids returns the ids of the views of a key.
func ids(b *book.Book, key string) (all []uint16) {
	if e := b.Of(key); e != nil {
		for _, v := range e.Views {
			all = append(all, v.ID)
		}
	}
	return all
}

func TestNext(t *testing.T) {
	f := func(b *book.Book, key string, want ...uint16) {
		t.Helper()
		if got := ids(b, key); !slices.Equal(got, want) {
			t.Errorf("book %d, %s: views %v, want %v", b.ID, key, got, want)
		}
	}
	views := definition.Definition{Pattern: "views:*", Windows: []definition.Window{window("1m", "", 24*hour), window("1d", "Europe/Berlin", 9000*hour)}}
	first := next(t, &book.Book{}, views)
	f(first, "views:1", 1, 2)
	f(first, "view")
	if next(t, first, views) != first {
		t.Error("a book that changes nothing is a new one")
	}

	// What is the same goes on, whatever is added.
	views.Dimensions = []definition.Dimension{{By: []string{"country"}, Windows: []definition.Width{views.Windows[0].Every}}}
	views.Ledger.Record = definition.Adjustments
	second := next(t, first, views)
	f(second, "views:1", 1, 2, 3, 4, 5)
	// Another time of keeping goes on if the epochs still do.
	views.Windows = []definition.Window{window("1m", "", 96*hour), window("1d", "Europe/Berlin", 900*hour)}
	views.Ledger.Record = definition.All
	third := next(t, second, views)
	f(third, "views:1", 1, 6, 3, 4, 7)
	want := []string{
		"views:*: windows of 1m: kept for 4d, not 1d", "views:*: windows of 1d in Europe/Berlin begin anew: earlier counts are not shown any more",
		"views:*: dimension country windows of 1m: kept for 4d, not 1d", "views:*: ledger of all begins now", "views:*: ledger of adjustments ends",
	}
	if got := second.Changes(third); !slices.Equal(got, want) {
		t.Errorf("changes: %q", got)
	}

	// A view is complete since its book is in force.
	for i, want := range []int64{100, 333, 200, 200, 333} {
		if at, ok := third.Since(third.Entries[0].Views[i], 333); !ok || at != want {
			t.Errorf("view %d is complete since %d, want %d", third.Entries[0].Views[i].ID, at, want)
		}
	}
	if _, ok := third.Since(third.Entries[0].Views[1], 0); ok {
		t.Error("a view is complete before its book is in force")
	}

	// A key that comes to a pattern begins anew there.
	hot := definition.Definition{Pattern: "views:hot*", Windows: views.Windows[:1]}
	fourth := next(t, third, hot, views)
	f(fourth, "views:1", 1, 6, 3, 4, 7)
	f(fourth, "views:hot", 8)
	fifth := next(t, fourth, views)
	f(fifth, "views:hot", 9, 10, 11, 12, 13)
	if !slices.Equal(fifth.Former, []string{}) || fifth.Retired[len(fifth.Retired)-1].ID != 7 {
		t.Errorf("former %q, retired %v", fifth.Former, fifth.Retired)
	}
	sixth := next(t, fifth)
	if sixth.Of("views:1") != nil || !sixth.Had("views:1") || sixth.Had("view") {
		t.Error("a pattern is forgotten")
	}
}

// What is proposed may be changed afterwards, and an empty list is none.
func TestApart(t *testing.T) {
	d := definition.Definition{Pattern: "*", Windows: []definition.Window{window("1m", "", hour)}, Dimensions: []definition.Dimension{}}
	b := next(t, &book.Book{}, d)
	if next(t, b, d) != b {
		t.Error("a book that changes nothing is a new one")
	}
	d.Windows[0] = window("1h", "", hour)
	if got := b.Of("").Definition.Windows[0].Every.String(); got != "1m" {
		t.Errorf("the book has windows of %s", got)
	}
}

// What is not about views is a change as well.
func TestOtherChanges(t *testing.T) {
	d := definition.Definition{Pattern: "*", Windows: []definition.Window{window("1m", "", hour)}, Dimensions: []definition.Dimension{{By: []string{"country"}}}}
	first := next(t, &book.Book{}, d)
	d.Late = definition.Late{Then: definition.Clamp, After: hour}
	d.Dimensions = []definition.Dimension{{By: []string{"country"}, Limit: 5}}
	second := next(t, first, d)
	if want := []string{"*: dimension country tells 5 values apart, not 1000", "*: late is {after: 1h, then: clamp}, not count"}; !slices.Equal(first.Changes(second), want) {
		t.Errorf("changes: %q", first.Changes(second))
	}
	if !slices.Equal(ids(first, ""), ids(second, "")) {
		t.Error("views begin anew")
	}
	if next(t, second, d) != second {
		t.Error("a book that changes nothing is a new one")
	}
	if !strings.Contains(string(second.Bytes()), `"late":{"then":"clamp","after":"1h"}`) {
		t.Errorf("%s", second.Bytes())
	}
}

// A view of users begins for all that is counted, and goes on when its error changes.
func TestUniqueChanges(t *testing.T) {
	d := definition.Definition{Pattern: "*", Windows: []definition.Window{window("1m", "", hour)}, Dimensions: []definition.Dimension{{By: []string{"country"}}}}
	first := next(t, &book.Book{}, d)
	d.Unique.Of = definition.Who
	second := next(t, first, d)
	want := []string{"*: uniques begin now", "*: uniques by windows of 1m begin now", "*: uniques by dimension country begin now", "*: uniques by dimension country windows of 1m begin now"}
	if got := first.Changes(second); !slices.Equal(got, want) {
		t.Errorf("changes: %q", got)
	}
	d.Unique.Error = 20_000
	third := next(t, second, d)
	if got := second.Changes(third); !slices.Equal(got, []string{"*: unique is {of: who, error: 2%}, not who"}) || !slices.Equal(ids(second, ""), ids(third, "")) {
		t.Errorf("changes: %q; views %v, %v", got, ids(second, ""), ids(third, ""))
	}
	d.Unique = definition.Unique{}
	if got := third.Changes(next(t, third, d)); len(got) != 4 || !strings.HasSuffix(got[0], "uniques end") {
		t.Errorf("changes: %q", got)
	}
}

// A top list goes on while its k stays, since lists of another one can't be merged with it.
func TestTopChanges(t *testing.T) {
	d := definition.Definition{Pattern: "a*", Windows: []definition.Window{window("1m", "", hour)}, Tops: []definition.Top{{Name: "first", By: definition.ByKey}}}
	first := next(t, &book.Book{}, d)
	d.Tops = append(d.Tops, definition.Top{Name: "terms", By: "term", K: 5})
	second := next(t, first, d)
	if got, want := first.Changes(second), []string{"a*: top list terms of 5 by term begins now", "a*: top list terms of 5 by term in windows of 1m begin now"}; !slices.Equal(got, want) {
		t.Errorf("changes: %q", got)
	}
	if got := ids(second, "a"); !slices.Equal(got, []uint16{1, 2, 3, 4, 5}) {
		t.Errorf("views %v", got)
	}
	d.Tops[0].K = 7
	if got := ids(next(t, second, d), "a"); !slices.Equal(got, []uint16{1, 6, 7, 4, 5}) {
		t.Errorf("views %v", got)
	}
	other := definition.Definition{Pattern: "b*", Tops: []definition.Top{{Name: "first", By: definition.ByKey}}}
	if _, err := second.Next(book.Proposal{Definitions: []definition.Definition{d, other}, InForce: 1, Zone: zone}); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "different names") {
		t.Errorf("two lists of one name: %v", err)
	}
	other.Tops[0].By = "term" // which is of each counter
	next(t, second, d, other)
}

// TestBytes pins the bytes that stores will have.
func TestBytes(t *testing.T) {
	const want = `{"format":1,"id":2,"views":4,"entries":[{"definition":{"pattern":"views:*","windows":[{"every":"1d","zone":"Asia/Kolkata","keep":"2y"}],` +
		`"dimensions":[{"by":["country","platform"],"windows":[],"limit":7}],"ledger":{"record":"all","keep":"90d"}},` +
		`"views":[{"id":2,"book":2,"epoch":"2y"},{"id":3,"book":2,"epoch":"0s"},{"id":4,"book":2,"epoch":"90d"}]}],` +
		`"former":["old"],"retired":[{"id":1,"keep":"1h","at":1800000000000}],"forces":[],"zones":{"Asia/Kolkata":"ALC1Ag"}}`
	first := next(t, &book.Book{}, definition.Definition{Pattern: "old", Windows: []definition.Window{window("1m", "", hour)}})
	b := next(t, first, definition.Definition{
		Pattern: "views:*", Windows: []definition.Window{window("1d", "Asia/Kolkata", 2*366*24*hour)},
		Dimensions: []definition.Dimension{{By: []string{"country", "platform"}, Windows: []definition.Width{}, Limit: 7}},
		Ledger:     definition.Ledger{Record: definition.All, Keep: 90 * 24 * hour},
	})
	if got := string(b.Bytes()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{
		"", "{}", want[:len(want)-1], want + " ", strings.Replace(want, `"id":2,`, `"id":2,"new":1,`, 1), strings.Replace(want, `"id":4,`, `"id":5,`, 1),
		strings.Replace(want, "ALC1Ag", "", 1), strings.Replace(want, `"1d"`, `"24h"`, 1),
	} {
		if _, err := book.Parse([]byte(bad)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := book.Parse([]byte(strings.Replace(want, `"format":1`, `"format":3`, 1))); !errors.Is(err, store.ErrUnsupported) {
		t.Error(err)
	}
}

// TestBounds has a floor and a ceiling in a book.
func TestBounds(t *testing.T) {
	const want = `{"format":1,"id":2,"views":0,"entries":[{"definition":{"pattern":"stock:*","floor":0,"ceiling":9},"views":[]}],` +
		`"former":[],"retired":[],"forces":[],"zones":{}}`
	d := definition.Definition{Pattern: "stock:*"}
	first := next(t, &book.Book{}, d)
	d.Floor, d.Ceiling = new(int64(0)), new(int64(9))
	second := next(t, first, d)
	if got := string(second.Bytes()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d.Floor, d.Ceiling = new(int64(-3)), nil
	third := next(t, second, d)
	fourth := next(t, third)
	f := func(from, to *book.Book, want ...string) {
		t.Helper()
		if got := from.Changes(to); !slices.Equal(got, want) {
			t.Errorf("changes: %q", got)
		}
	}
	f(first, second, "stock:*: floor of 0 begins now", "stock:*: ceiling of 9 begins now")
	f(&book.Book{}, second, "stock:*: floor of 0 begins now", "stock:*: ceiling of 9 begins now")
	f(second, third, "stock:*: floor is -3, not 0", "stock:*: ceiling of 9 ends")
	f(third, fourth, "stock:*: ends")
	if next(t, third, d) != third {
		t.Error("a book that changes nothing is a new one")
	}
}

// TestTurns replaces the clocks of a place where that moves no window.
func TestTurns(t *testing.T) {
	day := definition.Definition{Pattern: "*", Windows: []definition.Window{window("1d", "Europe/Berlin", 9000*hour)}}
	f := func(want, place string, now int64) {
		t.Helper()
		b := next(t, &book.Book{}, day)
		z, _ := zone(place)
		n, err := b.Next(book.Proposal{Definitions: []definition.Definition{day}, Now: now, InForce: 1, Zone: func(string) (*calendar.Zone, error) {
			if z == nil {
				return nil, errors.New("no such zone")
			}
			return z, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		wanted, _ := zone(want)
		if n.Zones["Europe/Berlin"].Agree(wanted) < 1<<62 {
			t.Errorf("the clocks are not those of %s", want)
		}
		if got := ids(n, ""); !slices.Equal(got, []uint16{1}) {
			t.Errorf("views %v", got)
		}
	}
	turn := time.Date(1980, 4, 6, 1, 0, 0, 0, time.UTC).UnixMilli() // Lagos has no summer time
	f("Africa/Lagos", "Africa/Lagos", turn-book.Ahead-1)
	f("Europe/Berlin", "Africa/Lagos", turn-book.Ahead)
	f("Europe/Berlin", "no place", 0)
}

// TestBooks draws books that follow each other, and checks what counting relies on.
func TestBooks(t *testing.T) {
	patterns := []string{"*", "a*", "a", "ab*", "ab", "abc*", "b*"}
	keys := []string{"a", "ab", "abc", "abcd", "b", "bc", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var books []*book.Book
		b, now := &book.Book{}, int64(1_800_000_000_000)
		is := map[uint16]string{} // what an id has shown
		for range rapid.IntRange(1, 8).Draw(t, "books") {
			var definitions []definition.Definition
			for _, pattern := range rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 0, 4, rapid.ID).Draw(t, "patterns") {
				d := definition.Definition{Pattern: pattern}
				for _, keep := range rapid.SliceOfN(rapid.Int64Range(1, 40), 0, 2).Draw(t, "keep") {
					d.Windows = append(d.Windows, window([]string{"1m", "1h"}[len(d.Windows)], "", definition.Keep(keep)*hour))
				}
				if rapid.Bool().Draw(t, "dimension") {
					d.Dimensions = []definition.Dimension{{By: []string{"x"}}}
				}
				definitions = append(definitions, d)
			}
			now += rapid.Int64Range(0, int64(100*time.Hour/time.Millisecond)).Draw(t, "later")
			n, err := b.Next(book.Proposal{Definitions: definitions, Now: now, InForce: now, Zone: zone})
			if errors.Is(err, store.ErrInvalid) { // a pattern after one that has all its keys
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n != b {
				books = append(books, n)
			}
			b = n
		}
		for i, n := range books {
			for _, key := range keys {
				e := n.Of(key)
				if e == nil {
					continue
				}
				for j, s := range book.Slots(&e.Definition) {
					v := e.Views[j]
					text := fmt.Sprint(e.Definition.Pattern, s.Window != nil && s.Window.Every == window("1m", "", 0).Every, s.Window != nil, s.Dimension != nil)
					if is[v.ID] != "" && is[v.ID] != text {
						t.Fatalf("view %d was %s and is %s", v.ID, is[v.ID], text)
					}
					is[v.ID] = text
					// The key had the view in every book since the one that brought it.
					for _, m := range books[v.Book-1 : i+1] {
						if !slices.Contains(ids(m, key), v.ID) {
							t.Fatalf("%s has view %d since book %d in book %d, and not in book %d", key, v.ID, v.Book, n.ID, m.ID)
						}
					}
					if _, ok := n.Since(v, 1); !ok {
						t.Fatalf("nobody knows since when view %d is complete", v.ID)
					}
				}
				for _, m := range books[i:] {
					if !m.Had(key) {
						t.Fatalf("book %d forgets that %s had views", m.ID, key)
					}
				}
			}
		}
	})
}

func TestRefused(t *testing.T) {
	f := func(want string, kind error, b *book.Book, definitions ...definition.Definition) {
		t.Helper()
		_, err := b.Next(book.Proposal{Definitions: definitions, Zone: zone})
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	none := &book.Book{}
	f("book 1 are not in force", store.ErrUnavailable, &book.Book{ID: 1})
	f("pattern is empty", store.ErrInvalid, none, definition.Definition{})
	f("an earlier pattern matches all of its keys", store.ErrInvalid, none, definition.Definition{Pattern: "a*"}, definition.Definition{Pattern: "ab"})
	f(`unknown time zone "No/Where"`, store.ErrInvalid, none, definition.Definition{Pattern: "a", Windows: []definition.Window{window("1d", "No/Where", 90*hour)}})
	f("has used all 65535 ids of views", store.ErrTooLarge, &book.Book{Views: book.ViewsMax}, definition.Definition{Pattern: "a", Ledger: definition.Ledger{Record: definition.All}})
	var many []definition.Definition
	for i := range book.PatternsMax {
		many = append(many, definition.Definition{Pattern: fmt.Sprint("k", i)})
	}
	slices.Reverse(many)
	if _, err := none.Next(book.Proposal{Definitions: many, Zone: zone}); err != nil {
		t.Error(err)
	}
	f("1001 patterns", store.ErrTooLarge, &book.Book{Former: []string{"x"}}, many...)
	for i := range many {
		many[i].Pattern += strings.Repeat("x", 300)
	}
	f("at most 262144", store.ErrTooLarge, none, many...)
}

// FuzzParse checks that bytes are taken only if they are those of a book.
func FuzzParse(f *testing.F) {
	b, err := (&book.Book{}).Next(book.Proposal{Zone: zone, Definitions: []definition.Definition{
		{Pattern: "é<*", Windows: []definition.Window{window("1d", "Europe/Berlin", 9000*hour)}, Dimensions: []definition.Dimension{{By: []string{"a", "b"}, Limit: 7}}},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add((&book.Book{}).Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := book.Parse(raw)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		if !reflect.DeepEqual(b.Bytes(), raw) {
			t.Fatalf("%s becomes %s", raw, b.Bytes())
		}
		b.Of("a")
		b.Had("a")
	})
}
