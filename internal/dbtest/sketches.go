package dbtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// A Sketcher is a DB that has sketches.
type Sketcher interface {
	MakeSketch(ctx context.Context, key string, shape call.Shape, opts ...quipu.WriteOption) (made bool, err error)
	AddItems(ctx context.Context, key string, items []call.Item, opts ...quipu.WriteOption) (call.Addition, error)
	AskItems(ctx context.Context, key string, items ...string) (call.Asked, error)
	Sketch(ctx context.Context, key string, k int) (call.Sketch, error)
	MergeSketches(ctx context.Context, key string, from []call.SketchSource, opts ...quipu.WriteOption) (replayed bool, err error)
	AddUniques(ctx context.Context, key string, users ...string) (changed bool, err error)
}

// A sketcher is a kit for such a DB.
type sketcher struct {
	*kit
	Sketcher
}

// sketching checks a law on a new DB, if the door has sketches.
func (s *suite) sketching(name string, check func(k sketcher)) {
	if s.door.Untold {
		return
	}
	s.law(name, func(k *kit) {
		d, ok := k.db.(Sketcher)
		if !ok {
			k.Fatalf("%T has no sketches", k.db)
		}
		check(sketcher{k, d})
	})
}

func (k sketcher) makes(key string, shape call.Shape, opts ...quipu.WriteOption) {
	k.Helper()
	made, err := k.MakeSketch(k.ctx, key, shape, opts...)
	k.succeeds(err)
	if !made {
		k.Fatalf("%q was not made", key)
	}
}

// itemsOf returns items, each once.
func itemsOf(names ...string) []call.Item {
	items := make([]call.Item, len(names))
	for i, name := range names {
		items[i].Item = name
	}
	return items
}

// adds adds items, and returns what became of them.
func (k sketcher) adds(key string, items []call.Item, opts ...quipu.WriteOption) call.Addition {
	k.Helper()
	a, err := k.AddItems(k.ctx, key, items, opts...)
	k.succeeds(err)
	if a.Key != key || len(a.Items) != len(items) || a.Durability == 0 {
		k.Fatalf("%+v of %d items", a, len(items))
	}
	for i := range items {
		if a.Items[i].Item != items[i].Item {
			k.Fatalf("item %d is %+v, want %q", i, a.Items[i], items[i].Item)
		}
	}
	return a
}

// asks returns what a sketch knows of items.
func (k sketcher) asks(key string, items ...string) call.Asked {
	k.Helper()
	a, err := k.AskItems(k.ctx, key, items...)
	k.succeeds(err)
	if a.Key != key || len(a.Items) != len(items) || a.AsOf.IsZero() {
		k.Fatalf("%+v of %d items", a, len(items))
	}
	return a
}

func (k sketcher) tells(key string) call.Sketch {
	k.Helper()
	is, err := k.Sketch(k.ctx, key, 0)
	k.succeeds(err)
	if is.Key != key || is.AsOf.IsZero() || is.Bytes <= 0 {
		k.Fatalf("%+v", is)
	}
	return is
}

// refused checks the kind of an error, and that it says something.
func (k sketcher) refused(err, want error, says ...string) {
	k.Helper()
	k.fails(err, want)
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			k.Fatalf("the error %q does not say %q", err, word)
		}
	}
}

// near makes n sketches of a shape under keys that one step can change.
func (k sketcher) near(n int, shape call.Shape) (keys []string) {
	k.Helper()
	k.makes("near:0", shape)
	for i := 1; len(keys) < n-1; i++ {
		key := fmt.Sprint("near:", i)
		k.makes(key, shape)
		_, err := k.MergeSketches(k.ctx, "near:0", []call.SketchSource{{Key: key}})
		k.delete(key)
		if err == nil {
			keys = append(keys, key)
		} else if !errors.Is(err, quipu.ErrUnsupported) {
			k.Fatalf("%v", err)
		}
	}
	k.delete("near:0")
	keys = append([]string{"near:0"}, keys...)
	for _, key := range keys {
		k.makes(key, shape)
	}
	return keys
}

func filterOf(capacity int64) call.Shape {
	return call.Shape{Kind: call.SketchFilter, Capacity: capacity}
}

func countsOf(epsilon, confidence float64) call.Shape {
	return call.Shape{Kind: call.SketchFrequencies, Epsilon: epsilon, Confidence: confidence}
}

func topOf(k int) call.Shape { return call.Shape{Kind: call.SketchTop, K: k} }

// sketches are the laws of sketches that keys hold.
func sketches(s *suite) {
	s.sketching("a sketch is made once, and is what it was made for", func(k sketcher) {
		f := func(key string, shape, want call.Shape) {
			k.Helper()
			k.makes(key, shape)
			if is := k.tells(key); is.Shape != want || is.Total != 0 || !is.ExpiresAt.IsZero() {
				k.Fatalf("%q is %+v, want the shape %+v", key, is, want)
			}
			for _, again := range []call.Shape{shape, want} {
				made, err := k.MakeSketch(k.ctx, key, again)
				k.succeeds(err)
				if made {
					k.Fatalf("%q was made again", key)
				}
			}
		}
		f("filter", filterOf(1000), call.Shape{Kind: call.SketchFilter, Capacity: 1000, Error: 1.0 / 128, Growth: 2})
		f("fixed", call.Shape{Kind: call.SketchFilter, Capacity: 10, Error: 0.25, Fixed: true}, call.Shape{Kind: call.SketchFilter, Capacity: 10, Error: 0.25, Fixed: true})
		f("large filter", call.Shape{Kind: call.SketchFilter, Capacity: 300_000, Growth: 4}, call.Shape{Kind: call.SketchFilter, Capacity: 300_000, Error: 1.0 / 128, Growth: 4})
		f("counts", call.Shape{Kind: call.SketchFrequencies}, call.Shape{Kind: call.SketchFrequencies, Width: 2000, Depth: 7})
		f("wide", call.Shape{Kind: call.SketchFrequencies, Width: 100_001, Depth: 3, Conservative: true}, call.Shape{Kind: call.SketchFrequencies, Width: 100_001, Depth: 3, Conservative: true})
		f("top", topOf(10), topOf(10))
		if _, err := k.AddUniques(k.ctx, "uniques", "ann", "bob"); err != nil {
			k.Fatalf("%v", err)
		}
		if is := k.tells("uniques"); is.Shape != (call.Shape{Kind: call.SketchUniques}) || is.Total != 2 || !is.Exact || is.Uniques.Count != 2 {
			k.Fatalf("%+v", is)
		}
	})
	s.sketching("a key that holds something else is no such sketch, and the error says what it holds", func(k sketcher) {
		k.add("count", 5)
		k.makes("filter", filterOf(1000))
		k.makes("counts", countsOf(0.01, 0.99))
		k.makes("top", topOf(3))
		if _, err := k.AddUniques(k.ctx, "uniques", "ann"); err != nil {
			k.Fatalf("%v", err)
		}
		holds := map[string]string{"count": "a count", "filter": "a filter (capacity 1000, ", "counts": "frequencies (width 200, depth 7)", "top": "a top list (k 3)", "uniques": "uniques"}
		shapes := map[string]call.Shape{"filter": filterOf(999), "counts": countsOf(0.01, 0.9), "top": topOf(4)}
		for key, what := range holds {
			for _, shape := range shapes {
				_, err := k.MakeSketch(k.ctx, key, shape)
				k.refused(err, quipu.ErrNotSketch, what)
			}
		}
		_, err := k.AddItems(k.ctx, "count", itemsOf("a"))
		k.refused(err, quipu.ErrNotSketch, "a count")
		_, err = k.AskItems(k.ctx, "count", "a")
		k.refused(err, quipu.ErrNotSketch, "a count")
		_, err = k.Sketch(k.ctx, "count", 0)
		k.refused(err, quipu.ErrNotSketch, "a count")
		_, err = k.AddItems(k.ctx, "uniques", itemsOf("a"))
		k.refused(err, quipu.ErrNotSketch, "uniques")
		_, err = k.AskItems(k.ctx, "uniques", "a")
		k.refused(err, quipu.ErrNotSketch, "uniques")
		_, err = k.db.Add(k.ctx, "filter", 1)
		k.fails(err, quipu.ErrNotCount)
		_, err = k.AddUniques(k.ctx, "filter", "ann")
		k.fails(err, quipu.ErrInvalid)
		k.holds("count", 5)
	})
	s.sketching("a key that is absent is made first", func(k sketcher) {
		_, err := k.AddItems(k.ctx, "a", itemsOf("x"))
		k.refused(err, quipu.ErrAbsent, "make the sketch first")
		_, err = k.AddItems(k.ctx, "a", itemsOf("x"), quipu.Token("t"))
		k.fails(err, quipu.ErrAbsent)
		_, err = k.AskItems(k.ctx, "a", "x")
		k.fails(err, quipu.ErrAbsent)
		_, err = k.Sketch(k.ctx, "a", 0)
		k.fails(err, quipu.ErrAbsent)
		_, err = k.MergeSketches(k.ctx, "a", []call.SketchSource{{Key: "a"}})
		k.fails(err, quipu.ErrAbsent)
		k.absent("a")
		k.makes("a", topOf(2))
		if a := k.adds("a", itemsOf("x"), quipu.Token("t")); a.Replayed { // what was refused did not use it up
			k.Fatalf("%+v", a)
		}
		k.delete("a")
		_, err = k.AskItems(k.ctx, "a", "x")
		k.fails(err, quipu.ErrAbsent)
		k.makes("a", filterOf(10))
	})
	s.sketching("what no sketch can be is refused", func(k sketcher) {
		f := func(shape call.Shape, want error) {
			k.Helper()
			_, err := k.MakeSketch(k.ctx, "a", shape)
			k.fails(err, want)
		}
		f(call.Shape{}, quipu.ErrInvalid)
		f(call.Shape{Kind: "bloom"}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchUniques}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter}, quipu.ErrInvalid)
		f(filterOf(-1), quipu.ErrInvalid)
		f(filterOf(math.MaxInt64), quipu.ErrTooLarge)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Error: 1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Error: -0.1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Error: 1e-30}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Growth: 256}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Growth: -1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, Growth: 2, Fixed: true}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFilter, Capacity: 10, K: 2}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Width: 10}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Depth: 10}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Width: 10, Depth: 65}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Width: 10, Depth: 2, Confidence: 0.1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Width: math.MaxInt32, Depth: 64}, quipu.ErrTooLarge)
		f(call.Shape{Kind: call.SketchFrequencies, Epsilon: 1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Epsilon: 1e-12}, quipu.ErrTooLarge)
		f(call.Shape{Kind: call.SketchFrequencies, Confidence: -1}, quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchFrequencies, Capacity: 5}, quipu.ErrInvalid)
		f(topOf(0), quipu.ErrInvalid)
		f(topOf(1001), quipu.ErrInvalid)
		f(call.Shape{Kind: call.SketchTop, K: 5, Conservative: true}, quipu.ErrInvalid)
		k.absent("a")
		_, err := k.MakeSketch(k.ctx, "a", topOf(3), quipu.Token("t"))
		k.fails(err, quipu.ErrInvalid)
		_, err = k.MakeSketch(k.ctx, "a", topOf(3), quipu.TTL(-time.Second))
		k.fails(err, quipu.ErrInvalid)
		_, err = k.MakeSketch(k.ctx, "", topOf(3))
		k.fails(err, quipu.ErrInvalid)
		k.absent("a")
	})
	s.sketching("what no sketch can take is refused, and changes nothing", func(k sketcher) {
		k.makes("filter", filterOf(10))
		k.makes("counts", countsOf(0.01, 0.99))
		k.makes("conservative", call.Shape{Kind: call.SketchFrequencies, Width: 100, Depth: 3, Conservative: true})
		k.makes("top", topOf(3))
		all := []string{"filter", "counts", "conservative", "top"}
		f := func(key string, want error, items ...call.Item) {
			k.Helper()
			_, err := k.AddItems(k.ctx, key, items)
			k.fails(err, want)
		}
		one := call.Item{Item: "one"}
		for _, key := range all {
			f(key, quipu.ErrInvalid)
			f(key, quipu.ErrInvalid, one, call.Item{})
			f(key, quipu.ErrInvalid, one, call.Item{Item: "bad \xff"})
			f(key, quipu.ErrTooLarge, one, call.Item{Item: strings.Repeat("x", call.ItemBytesMax+1)})
			f(key, quipu.ErrTooLarge, itemsOf(make([]string, call.ItemsMax+1)...)...)
			f(key, quipu.ErrInvalid, one, call.Item{Item: "x", N: math.MinInt64})
			_, err := k.AddItems(k.ctx, key, itemsOf("one"), quipu.Floor(3))
			k.fails(err, quipu.ErrInvalid)
			_, err = k.AskItems(k.ctx, key)
			k.fails(err, quipu.ErrInvalid)
			_, err = k.AskItems(k.ctx, key, "")
			k.fails(err, quipu.ErrInvalid)
			_, err = k.AskItems(k.ctx, key, make([]string, call.ItemsMax+1)...)
			k.fails(err, quipu.ErrTooLarge)
		}
		f("filter", quipu.ErrInvalid, one, call.Item{Item: "two", N: 2})
		f("filter", quipu.ErrInvalid, one, call.Item{Item: "two", N: -1})
		f("top", quipu.ErrInvalid, one, call.Item{Item: "two", N: -1})
		f("top", quipu.ErrTooLarge, one, call.Item{Item: strings.Repeat("x", call.TopItemBytesMax+1)})
		f("conservative", quipu.ErrInvalid, one, call.Item{Item: "two", N: -1})
		f("counts", quipu.ErrBound, one, call.Item{Item: "one", N: -2})
		_, err := k.Sketch(k.ctx, "top", 4)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.Sketch(k.ctx, "top", -1)
		k.fails(err, quipu.ErrInvalid)
		for _, key := range all {
			if is := k.tells(key); is.Total != 0 {
				k.Fatalf("%+v", is)
			}
		}
		k.adds("filter", itemsOf(strings.Repeat("x", call.ItemBytesMax), "é"))
		k.adds("top", itemsOf(strings.Repeat("x", call.TopItemBytesMax)))
	})
	s.sketching("a filter finds what was added, and little else", func(k sketcher) {
		f := func(shape call.Shape, n int) {
			k.Helper()
			key := fmt.Sprint("filter of ", shape.Capacity)
			k.makes(key, shape)
			added := int64(0)
			for from := 0; from < n; from += 5000 {
				var items []call.Item
				for i := from; i < min(from+5000, n); i++ {
					items = append(items, call.Item{Item: fmt.Sprint("in ", i)})
				}
				for i, item := range k.adds(key, append(items, items[0])).Items {
					if item.Added {
						added++
					}
					if i == len(items) && item.Added {
						k.Fatalf("item %d was new twice in a call", i)
					}
				}
			}
			if added < int64(float64(n)*0.97) || added > int64(n) {
				k.Fatalf("%d of %d were new", added, n)
			}
			wrong, asked := 0, 0
			for from := 0; from < n; from += 5000 {
				var names []string
				for i := from; i < min(from+5000, n); i++ {
					names = append(names, fmt.Sprint("in ", i), fmt.Sprint("out ", i))
				}
				a := k.asks(key, names...)
				if a.Kind != call.SketchFilter || a.Exact || a.Error <= 0 || a.Error > 0.01 {
					k.Fatalf("%+v", call.Asked{Kind: a.Kind, Exact: a.Exact, Error: a.Error})
				}
				for i, item := range a.Items {
					switch {
					case i%2 == 0 && !item.Found:
						k.Fatalf("%q is not found", item.Item)
					case i%2 == 1:
						if asked++; item.Found {
							wrong++
						}
					}
				}
			}
			if float64(wrong) > 0.01*float64(asked)+4*math.Sqrt(0.01*float64(asked)) {
				k.Fatalf("%d of %d others are found", wrong, asked)
			}
			is := k.tells(key)
			if is.Total != added || !is.Exact || is.Full || is.Error <= 0 || is.Error > 0.01 || is.Capacity < int64(n) {
				k.Fatalf("%+v, of which %d were added", is, added)
			}
		}
		f(filterOf(1000), 2000)
		f(filterOf(100_000), 10_000) // in pieces
	})
	s.sketching("a full filter refuses what is new as a whole", func(k sketcher) {
		k.makes("a", call.Shape{Kind: call.SketchFilter, Capacity: 20, Fixed: true})
		n := 0
		for {
			_, err := k.AddItems(k.ctx, "a", itemsOf(fmt.Sprint(n)), quipu.Token(fmt.Sprint("t", n)))
			if err != nil {
				k.refused(err, quipu.ErrFull, "nothing was added")
				break
			}
			n++
		}
		was := k.tells("a")
		if n < 20 || n > 60 || !was.Full || was.Total > int64(n) {
			k.Fatalf("%d fit into %+v", n, was)
		}
		_, err := k.AddItems(k.ctx, "a", itemsOf("0", "another", "1"))
		k.fails(err, quipu.ErrFull)
		is := k.tells("a")
		if is.AsOf = was.AsOf; fmt.Sprint(is) != fmt.Sprint(was) {
			k.Fatalf("%+v, and before %+v", is, was)
		}
		if a := k.adds("a", itemsOf("0", "1")); a.Items[0].Added || a.Items[1].Added {
			k.Fatalf("%+v", a)
		}
		if a := k.adds("a", itemsOf("3"), quipu.Token("t3")); !a.Replayed { // it was there when it was not full
			k.Fatalf("%+v", a)
		}
	})
	s.sketching("frequencies are never too low, and rarely too high", func(k sketcher) {
		f := func(key string, shape call.Shape, negative bool) {
			k.Helper()
			k.makes(key, shape)
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 0))
			exact, total := map[string]int64{}, int64(0)
			for range 20 {
				var items []call.Item
				for range 200 {
					item := call.Item{Item: fmt.Sprint(rnd.IntN(1 + rnd.IntN(800))), N: rnd.Int64N(9)}
					if negative && rnd.IntN(4) == 0 {
						item.N = -rnd.Int64N(exact[item.Item] + 1)
					}
					items = append(items, item)
					n := item.N
					if n == 0 {
						n = 1
					}
					exact[item.Item] += n
					total += n
				}
				a := k.adds(key, items)
				if last := a.Items[len(items)-1]; last.Upper < exact[last.Item] || last.Count != last.Upper || a.Confidence < 0.8 || a.Kind != call.SketchFrequencies {
					k.Fatalf("%+v of %d (seed %d)", last, exact[last.Item], seed)
				}
			}
			var names []string
			for name := range exact {
				names = append(names, name)
			}
			a, is := k.asks(key, append(names, "never")...), k.tells(key)
			if is.Total != total || !is.Exact || is.Confidence != a.Confidence || a.Exact {
				k.Fatalf("%+v, of %d (seed %d)", is, total, seed)
			}
			low := 0
			for _, item := range a.Items {
				n := exact[item.Item]
				if item.Upper < n || item.Count != item.Upper || item.Lower > item.Upper {
					k.Fatalf("%+v, and it is %d (seed %d)", item, n, seed)
				}
				if item.Lower > n {
					low++
				}
			}
			if float64(low) > (1-a.Confidence)*float64(len(names))+4*math.Sqrt(float64(len(names))) {
				k.Fatalf("%d lower bounds of %d are wrong (seed %d)", low, len(names), seed)
			}
		}
		f("plain", countsOf(0.01, 0.99), true)
		f("conservative", call.Shape{Kind: call.SketchFrequencies, Width: 500, Depth: 4, Conservative: true}, false)
		f("large", call.Shape{Kind: call.SketchFrequencies, Width: 20_000, Depth: 5}, true)
		f("large and conservative", call.Shape{Kind: call.SketchFrequencies, Width: 20_000, Depth: 5, Conservative: true}, false)
	})
	s.sketching("a top list has bounds that hold", func(k sketcher) {
		k.makes("a", topOf(10))
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		exact, total := map[string]int64{}, int64(0)
		add := func(different int) {
			var items []call.Item
			for range 300 {
				item := call.Item{Item: fmt.Sprint(rnd.IntN(1 + rnd.IntN(different))), N: 1 + rnd.Int64N(3)}
				exact[item.Item] += item.N
				total += item.N
				items = append(items, item)
			}
			for _, item := range k.adds("a", items).Items {
				if item.Lower > exact[item.Item] || item.Count != item.Upper || item.Expelled != "" && item.Expelled == item.Item {
					k.Fatalf("%+v, and it is %d (seed %d)", item, exact[item.Item], seed)
				}
			}
		}
		check := func(isExact bool) {
			k.Helper()
			is := k.tells("a")
			if is.Total != total || is.Exact != isExact || len(is.Items) != 10 || is.Shape != topOf(10) {
				k.Fatalf("%+v, want %d (seed %d)", is, total, seed)
			}
			listed := map[string]bool{}
			for i, item := range is.Items {
				n := exact[item.Item]
				if item.Lower > n || item.Upper < n || item.Count != item.Upper || isExact && item.Lower != n || i > 0 && item.Upper > is.Items[i-1].Upper || !item.Listed {
					k.Fatalf("item %d is %+v, and is %d (seed %d)", i, item, n, seed)
				}
				listed[item.Item] = true
			}
			for item, n := range exact {
				if !listed[item] && n > is.Rest {
					k.Fatalf("%q came %d times, and the rest at most %d (seed %d)", item, n, is.Rest, seed)
				}
			}
			a := k.asks("a", is.Items[0].Item, "never", is.Items[9].Item)
			if !a.Items[0].Listed || a.Items[1].Listed || !a.Items[2].Listed || a.Exact != isExact || a.Items[0].Upper != is.Items[0].Upper || a.Kind != call.SketchTop {
				k.Fatalf("%+v", a)
			}
			three, err := k.Sketch(k.ctx, "a", 3)
			k.succeeds(err)
			if len(three.Items) != 3 || three.Rest < is.Items[3].Upper || three.Items[2] != is.Items[2] {
				k.Fatalf("%+v", three)
			}
		}
		add(30)
		check(true)
		for range 5 {
			add(5000)
		}
		check(false)
		k.makes("b", topOf(1))
		k.adds("b", []call.Item{{Item: "x", N: 3}})
		if a := k.adds("b", []call.Item{{Item: "y", N: 2}, {Item: "y", N: 2}}); a.Items[0].Expelled != "" || a.Items[1].Expelled != "x" || !a.Items[1].Listed {
			k.Fatalf("%+v", a)
		}
	})
	s.sketching("a repeat under a token adds nothing", func(k sketcher) {
		shapes := map[string]call.Shape{
			"filter": filterOf(100), "large filter": filterOf(100_000), "counts": countsOf(0.01, 0.99), "top": topOf(3),
			"large counts": {Kind: call.SketchFrequencies, Width: 20_000, Depth: 5}, "conservative": {Kind: call.SketchFrequencies, Width: 20_000, Depth: 5, Conservative: true},
		}
		for key, shape := range shapes {
			k.makes(key, shape)
			var many []call.Item
			for i := range 40 {
				many = append(many, call.Item{Item: fmt.Sprint(i)})
			}
			again := func(token string, items []call.Item) call.Addition {
				k.Helper()
				a := k.adds(key, items, quipu.Token(token))
				if !a.Replayed {
					k.Fatalf("%q: %+v", key, a)
				}
				return a
			}
			if a := k.adds(key, many, quipu.Token("t")); a.Replayed {
				k.Fatalf("%+v", a)
			}
			was := k.tells(key)
			again("t", many)
			if f := k.lookup(key, "t"); f.State != quipu.TokenApplied {
				k.Fatalf("%+v", f)
			}
			k.adds(key, itemsOf("1", "other"))
			k.adds(key, itemsOf("1"), quipu.Token("no news")) // of a filter it changes nothing
			again("no news", itemsOf("1"))
			now := k.tells(key)
			if a := again("t", many); a.Kind != shape.Kind || a.Items[1].Added || a.Items[1].Expelled != "" || shape.Kind == call.SketchFrequencies && a.Items[1].Count < 3 {
				k.Fatalf("%q: %+v", key, a.Items[1])
			}
			last := k.tells(key)
			if last.Total != now.Total || now.Total <= was.Total {
				k.Fatalf("%q: %d, then %d, then %d", key, was.Total, now.Total, last.Total)
			}
			other := append([]call.Item{}, many...)
			other[7].N = 2
			if shape.Kind == call.SketchFilter {
				other[7].Item = "seven"
			}
			_, err := k.AddItems(k.ctx, key, other, quipu.Token("t"))
			k.fails(err, quipu.ErrToken)
			_, err = k.AddItems(k.ctx, key, many[:39], quipu.Token("t"))
			k.fails(err, quipu.ErrToken)
			_, err = k.AddItems(k.ctx, key, many, quipu.Token("t"), quipu.TTL(time.Hour))
			k.fails(err, quipu.ErrToken)
			_, err = k.AddItems(k.ctx, key, itemsOf("1", "fresh"), quipu.Token("no news"))
			k.fails(err, quipu.ErrToken)
			one := append([]call.Item{}, many...)
			one[3].N = 1 // which is what 0 means
			again("t", one)
			if is := k.tells(key); is.Total != now.Total {
				k.Fatalf("%q: %d, then %d", key, now.Total, is.Total)
			}
			k.settle(key, "late")
			_, err = k.AddItems(k.ctx, key, many, quipu.Token("late"))
			k.fails(err, quipu.ErrSettled)
			_, err = k.AddItems(k.ctx, key, many, quipu.Token(uuid(time.Now().Add(-48*time.Hour))))
			k.fails(err, quipu.ErrExpired)
			k.delete(key)
			if a := again("t", many); len(a.Items) != len(many) {
				k.Fatalf("%+v", a)
			}
			k.absent(key)
		}
	})
	s.sketching("a token that many use at once counts once", func(k sketcher) {
		for key, shape := range map[string]call.Shape{"counts": countsOf(0.01, 0.99), "large": {Kind: call.SketchFrequencies, Width: 50_000, Depth: 10, Conservative: true}} {
			k.makes(key, shape)
			var items []call.Item
			for i := range 200 { // of more pieces than riders fit
				items = append(items, call.Item{Item: fmt.Sprint(i), N: 3})
			}
			if shape.Conservative {
				items = items[:20]
			}
			var first atomic.Int64
			k.parallel(8, func(int) error {
				for token := range 5 {
					a, err := k.AddItems(k.ctx, key, items, quipu.Token(fmt.Sprint("t", token)))
					if err != nil {
						return err
					}
					if !a.Replayed {
						first.Add(1)
					}
				}
				return nil
			})
			if is := k.tells(key); first.Load() != 5 || is.Total != 5*3*int64(len(items)) {
				k.Fatalf("%d were first, %+v", first.Load(), is)
			}
		}
	})
	s.sketching("what many add at once is all there", func(k sketcher) {
		k.makes("counts", countsOf(0.01, 0.99))
		k.makes("large", call.Shape{Kind: call.SketchFrequencies, Width: 20_000, Depth: 5})
		k.makes("top", topOf(5))
		k.makes("filter", filterOf(100_000))
		var sum atomic.Int64
		k.parallel(6, func(i int) error {
			for j := range 8 {
				items := []call.Item{{Item: "all", N: 2}, {Item: fmt.Sprint(i)}, {Item: fmt.Sprint("j", j), N: 5}}
				for _, key := range []string{"counts", "large", "top"} {
					if _, err := k.AddItems(k.ctx, key, items); err != nil {
						return err
					}
				}
				sum.Add(8)
				if _, err := k.AddItems(k.ctx, "filter", itemsOf("all", fmt.Sprint(i, j))); err != nil {
					return err
				}
			}
			return nil
		})
		for _, key := range []string{"counts", "large", "top"} {
			if is := k.tells(key); is.Total != sum.Load() {
				k.Fatalf("%q has %d of %d", key, is.Total, sum.Load())
			}
		}
		if is := k.tells("filter"); is.Total < 45 || is.Total > 49 {
			k.Fatalf("%+v", is)
		}
		if top := k.tells("top"); top.Items[0].Item != "all" || top.Items[0].Lower != 96 || !top.Exact {
			k.Fatalf("%+v", top)
		}
	})
	s.sketching("sketches of one shape merge", func(k sketcher) {
		fs := k.near(3, filterOf(10_000))
		k.adds(fs[0], itemsOf("zero"))
		k.adds(fs[1], itemsOf("a", "b"))
		k.adds(fs[2], itemsOf("b", "c"))
		merge := func(to string, from ...call.SketchSource) {
			k.Helper()
			replayed, err := k.MergeSketches(k.ctx, to, from)
			k.succeeds(err)
			if replayed {
				k.Fatalf("a merge without a token is a repeat")
			}
		}
		merge(fs[0], call.SketchSource{Key: fs[1]}, call.SketchSource{Key: fs[2]})
		for i, item := range k.asks(fs[0], "a", "b", "c", "zero", "d").Items {
			if item.Found != (i < 3) {
				k.Fatalf("%+v", item)
			}
		}
		if is := k.tells(fs[0]); is.Total != 3 || is.Shape.Capacity != 10_000 {
			k.Fatalf("%+v", is)
		}
		for _, fk := range fs {
			k.delete(fk)
		}
		for _, shape := range []call.Shape{countsOf(0.01, 0.99), {Kind: call.SketchFrequencies, Width: 20_000, Depth: 3}} {
			cs, token := k.near(3, shape), fmt.Sprint("merge ", shape.Width)
			k.adds(cs[0], []call.Item{{Item: "a", N: 100}})
			k.adds(cs[1], []call.Item{{Item: "a", N: 3}, {Item: "b"}})
			k.adds(cs[2], []call.Item{{Item: "a", N: 5}})
			merge(cs[0], call.SketchSource{Key: cs[1], Weight: 10}, call.SketchSource{Key: cs[2]})
			if a, is := k.asks(cs[0], "a", "b", "c"), k.tells(cs[0]); a.Items[0].Count != 35 || a.Items[1].Count != 10 || a.Items[2].Count != 0 || is.Total != 45 {
				k.Fatalf("%+v %+v", a, is)
			}
			for i := range 3 { // with itself, once
				replayed, err := k.MergeSketches(k.ctx, cs[0], []call.SketchSource{{Key: cs[0]}, {Key: cs[2]}}, quipu.Token(token))
				k.succeeds(err)
				if replayed != (i > 0) {
					k.Fatalf("merge %d: replayed %t", i, replayed)
				}
			}
			_, err := k.MergeSketches(k.ctx, cs[0], []call.SketchSource{{Key: cs[0]}, {Key: cs[2], Weight: 2}}, quipu.Token(token))
			k.fails(err, quipu.ErrToken)
			_, err = k.AddItems(k.ctx, cs[0], itemsOf("a"), quipu.Token(token))
			k.fails(err, quipu.ErrToken)
			if is := k.tells(cs[0]); is.Total != 50 {
				k.Fatalf("%+v", is)
			}
			k.delete(cs[0]) // and made anew
			merge(cs[0], call.SketchSource{Key: cs[1]})
			if is := k.tells(cs[0]); is.Total != 4 || is.Shape.Kind != call.SketchFrequencies {
				k.Fatalf("%+v", is)
			}
			for _, key := range cs {
				k.delete(key)
			}
		}
		ts := k.near(2, topOf(5))
		k.adds(ts[0], []call.Item{{Item: "a", N: 3}, {Item: "b", N: 2}})
		k.adds(ts[1], []call.Item{{Item: "b", N: 9}})
		merge(ts[0], call.SketchSource{Key: ts[0]}, call.SketchSource{Key: ts[1]})
		if is := k.tells(ts[0]); is.Total != 14 || !is.Exact || is.Items[0].Item != "b" || is.Items[0].Lower != 11 {
			k.Fatalf("%+v", is)
		}
		_, err := k.MergeSketches(k.ctx, ts[0], []call.SketchSource{{Key: ts[1], Weight: 2}})
		k.fails(err, quipu.ErrInvalid)
		for _, key := range ts {
			k.delete(key)
			if _, err := k.AddUniques(k.ctx, key, "eve", key); err != nil {
				k.Fatalf("%v", err)
			}
		}
		merge(ts[0], call.SketchSource{Key: ts[0]}, call.SketchSource{Key: ts[1]})
		if is := k.tells(ts[0]); is.Total != 3 || !is.Exact {
			k.Fatalf("%+v", is)
		}
		k.delete(ts[0])
		k.delete(ts[1])
		k.makes("f", filterOf(100))
		cs := k.near(2, countsOf(0.01, 0.99))
		k.delete(cs[1])
		k.makes(cs[1], countsOf(0.02, 0.99))
		for i := range cs {
			_, err = k.MergeSketches(k.ctx, cs[i], []call.SketchSource{{Key: cs[1-i]}})
			k.refused(err, quipu.ErrNotSketch, "width 200", "width 100")
		}
		_, err = k.MergeSketches(k.ctx, "f", nil)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.MergeSketches(k.ctx, "f", make([]call.SketchSource, call.MergeMax+1))
		k.fails(err, quipu.ErrTooLarge)
		_, err = k.MergeSketches(k.ctx, "f", []call.SketchSource{{Key: "f", Weight: -1}})
		k.fails(err, quipu.ErrInvalid)
		k.makes("huge", call.Shape{Kind: call.SketchFrequencies, Width: 1_000_000, Depth: 5})
		var many []call.Item
		for i := range 2000 {
			many = append(many, call.Item{Item: fmt.Sprint(i)})
		}
		k.adds("huge", many[:20])
		merge("huge", call.SketchSource{Key: "huge"}, call.SketchSource{Key: "huge"})
		k.adds("huge", many)
		_, err = k.MergeSketches(k.ctx, "huge", []call.SketchSource{{Key: "huge"}, {Key: "huge"}})
		k.refused(err, quipu.ErrTooLarge, "too large")
		if is := k.tells("huge"); is.Total != 2040 {
			k.Fatalf("%+v", is)
		}
	})
	s.sketching("a sketch with a lifetime ends", func(k sketcher) {
		k.makes("a", topOf(3), quipu.TTL(time.Hour))
		is := k.tells("a")
		if d := time.Until(is.ExpiresAt); d < 50*time.Minute || d > 70*time.Minute {
			k.Fatalf("%+v", is)
		}
		made, err := k.MakeSketch(k.ctx, "a", topOf(3), quipu.TTL(time.Millisecond)) // it holds one, and keeps its end
		k.succeeds(err)
		k.adds("a", itemsOf("x"))
		if again := k.tells("a"); made || !again.ExpiresAt.Equal(is.ExpiresAt) {
			k.Fatalf("%t %+v", made, again)
		}
		k.adds("a", itemsOf("x"), quipu.TTL(time.Millisecond))
		k.poll(func() bool { return !k.read("a", quipu.Exact()).Exists })
		_, err = k.AddItems(k.ctx, "a", itemsOf("x"))
		k.fails(err, quipu.ErrAbsent)
		k.makes("large", filterOf(100_000), quipu.TTL(time.Hour))
		k.adds("large", itemsOf("x"), quipu.TTL(2*time.Hour))
		if d := time.Until(k.tells("large").ExpiresAt); d < 110*time.Minute {
			k.Fatalf("%v", d)
		}
	})
	s.sketching("a key with a definition holds no sketch", func(k sketcher) {
		k.define(definition.Definition{Pattern: "visits*", Windows: []definition.Window{every("1h", 24*time.Hour)}})
		_, err := k.MakeSketch(k.ctx, "visits", topOf(3))
		k.refused(err, quipu.ErrInvalid, "definition")
		_, err = k.AddItems(k.ctx, "visits", itemsOf("x"))
		k.fails(err, quipu.ErrInvalid)
		_, err = k.MergeSketches(k.ctx, "visits", []call.SketchSource{{Key: "visits"}})
		k.fails(err, quipu.ErrInvalid)
		k.absent("visits")
	})
	s.sketching("after Close every call on a sketch says so", func(k sketcher) {
		k.makes("a", topOf(3))
		k.succeeds(k.db.Close())
		_, err := k.MakeSketch(k.ctx, "a", topOf(3))
		k.fails(err, quipu.ErrClosed)
		_, err = k.AddItems(k.ctx, "a", itemsOf("x"), quipu.Token("t"))
		k.fails(err, quipu.ErrClosed)
		_, err = k.AskItems(k.ctx, "a", "x")
		k.fails(err, quipu.ErrClosed)
		_, err = k.Sketch(k.ctx, "a", 0)
		k.fails(err, quipu.ErrClosed)
		_, err = k.MergeSketches(k.ctx, "a", []call.SketchSource{{Key: "a"}})
		k.fails(err, quipu.ErrClosed)
	})
	s.sketching("what is more than one step changes nothing", func(k sketcher) {
		k.makes("a", call.Shape{Kind: call.SketchFrequencies, Width: 1_000_000, Depth: 5, Conservative: true})
		var items []call.Item
		for i := range 4000 {
			items = append(items, call.Item{Item: fmt.Sprint(i), N: 1 << 40})
		}
		_, err := k.AddItems(k.ctx, "a", items, quipu.Token("t"))
		k.refused(err, quipu.ErrTooLarge, "fewer")
		if is := k.tells("a"); is.Total != 0 {
			k.Fatalf("%+v", is)
		}
		if a := k.adds("a", items[:10], quipu.Token("t")); a.Replayed || a.Items[0].Count != 1<<40 {
			k.Fatalf("%+v", a)
		}
	})
}
