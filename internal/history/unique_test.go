package history_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A visit is one that the model knows of.
type visit struct {
	at      int64
	country string
	user    string
}

// TestUniques compares the users of counters, of all time and in ranges, and those that two of
// them have in common, with the visits. Shards count them, and windows of several widths.
func TestUniques(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		d := definition.Definition{
			Pattern: "k*", Windows: []definition.Window{window("1h", "", 4*day), window("1d", "", 40*day)},
			Dimensions: []definition.Dimension{{By: []string{"country"}}}, Unique: definition.Unique{Of: definition.Who},
		}
		w.define(d)
		visits := map[string][]visit{}
		for range rapid.IntRange(0, 60).Draw(t, "visits") {
			key := rapid.SampledFrom([]string{"k1", "k2"}).Draw(t, "key")
			v := visit{
				at: w.now - rapid.Int64Range(0, 72).Draw(t, "hours")*hour, country: rapid.SampledFrom([]string{"", "DE", "FR"}).Draw(t, "country"),
				user: fmt.Sprint(rapid.IntRange(0, 15).Draw(t, "user")),
			}
			plan, err := w.views(key).Plan(v.at, w.now, []string{v.country})
			if err != nil {
				t.Fatal(err)
			}
			w.apply(key, rapid.IntRange(0, shardsMax).Draw(t, "shard"), store.Delta{Op: store.OpAdd, N: 1, Event: &store.Event{
				Plan: plan.Event.Plan, Bytes: sketch.AppendUniqueRequest(nil, w.views(key).Unique(), []uint64{sketch.Hash(v.user)}),
			}})
			visits[key] = append(visits[key], v)
			w.now += rapid.Int64Range(0, hour).Draw(t, "pass")
		}
		o := call.UniqueOptions{By: "country", With: "k2"}
		from, to := int64(0), w.now+3*day
		if rapid.Bool().Draw(t, "range") {
			from = (w.now - rapid.Int64Range(0, 80).Draw(t, "ago")*hour) / hour * hour
			to = from + rapid.Int64Range(1, 90).Draw(t, "long")*hour
			o.From, o.To = at(from), at(to)
		}
		u, err := w.reader().Uniques(w.ctx(), "k1", o)
		if err != nil {
			t.Fatal(err)
		}
		if !u.Aligned {
			t.Fatalf("windows of an hour do not fit hours: %+v", u)
		}
		users := func(key string, is func(visit) bool) map[string]bool {
			all := map[string]bool{}
			for _, v := range visits[key] {
				if v.at >= from && v.at < to && is(v) {
					all[v.user] = true
				}
			}
			return all
		}
		f := func(name string, e call.UniqueEstimate, want int) {
			if !e.Exact || e.Count != int64(want) {
				t.Fatalf("%s: %+v, want %d users", name, e, want)
			}
		}
		everybody := func(visit) bool { return true }
		a, b := users("k1", everybody), users("k2", everybody)
		f("all", u.UniqueEstimate, len(a))
		values := 0
		for _, country := range []string{"", "DE", "FR"} {
			if n := len(users("k1", func(v visit) bool { return v.country == country })); n > 0 {
				values++
				found := false
				for _, v := range u.Values {
					if v.Value == country {
						found = true
						f(country, v.UniqueEstimate, n)
					}
				}
				if !found {
					t.Fatalf("no users of %q: %+v", country, u)
				}
			}
		}
		if len(u.Values) != values {
			t.Fatalf("%+v, want %d values", u, values)
		}
		both := 0
		for user := range a {
			if b[user] {
				both++
			}
		}
		f("only", u.Overlap.Only, len(a)-both)
		f("others", u.Overlap.Others, len(b)-both)
		f("both", u.Overlap.Both, both)
	})
}

// Users go with the windows that they were in, and stay in those of all time.
func TestUniquesGo(t *testing.T) {
	w := newWorld(t)
	w.define(definition.Definition{Pattern: "k*", Windows: []definition.Window{window("1h", "", 2*day)}, Unique: definition.Unique{Of: definition.Who, Error: 20_000}})
	plan, err := w.views("k").Plan(w.now, w.now, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.apply("k", 0, store.Delta{Op: store.OpAdd, N: 1, Event: &store.Event{
		Plan: plan.Event.Plan, Bytes: sketch.AppendUniqueRequest(nil, w.views("k").Unique(), []uint64{sketch.Hash("eve")}),
	}})
	f := func(want int64, o call.UniqueOptions) {
		t.Helper()
		u, err := w.reader().Uniques(w.ctx(), "k", o)
		if err != nil || u.Count != want {
			t.Errorf("%+v, %v; want %d users", u, err, want)
		}
	}
	ever := call.UniqueOptions{From: at(w.now - day)}
	f(1, ever)
	w.now += 20 * day
	b := store.Batch{Partition: store.PartitionOf(store.Cell{Namespace: "ns", Key: "k"}, partitions), Floors: w.views("k").Floors("ns", w.now)}
	var r [1]store.Reply
	if err := w.store.Apply(w.ctx(), []store.Batch{b}, r[:]); err != nil || r[0].Err != nil {
		t.Fatal(err, r[0].Err)
	}
	f(0, ever)
	f(1, call.UniqueOptions{})
}
