package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/definition"
)

// define gives the keys that begin with v windows, a dimension and a ledger.
func define(t testing.TB, db *quipu.DB, windows ...string) {
	t.Helper()
	d := definition.Definition{
		Pattern: "v*", Dimensions: []definition.Dimension{{By: []string{"country"}, Limit: 5}}, Ledger: definition.Ledger{Record: definition.Adjustments},
	}
	for _, every := range windows {
		w, err := definition.ParseWidth(every)
		if err != nil {
			t.Fatal(err)
		}
		d.Windows = append(d.Windows, definition.Window{Every: w, Keep: definition.KeepMax / 10})
	}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Adds with a time and dimensions are counted in their windows and values, once, however
// they are combined.
func TestWriterFacts(t *testing.T) {
	for _, o := range []client.WriterOptions{{}, {Mode: client.Flush, Every: time.Hour}} {
		db := memory(quipu.Limits{}, 3)
		define(t, db, "1h", "1d")
		w := serve(t, db).writer(o)
		first := time.Date(2025, 10, 1, 8, 0, 0, 0, time.UTC)
		add := func(key string, n int64, opts ...call.WriteOption) {
			t.Helper()
			if err := w.Add(t.Context(), key, n, opts...); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			at := first.Add(time.Duration(i) * time.Minute)
			add("v1", 1, call.At(at), call.Dim("country", []string{"DE", "PE"}[i%2]))
			add("v1", 2, call.At(at), call.Who("u"))
			add("plain", 1)
		}
		closeWriter(t, w)
		holds(t, db, "v1", 300)
		holds(t, db, "plain", 100)
	}
}

// The definitions decide how many cells an add changes, and so how many adds a batch has
// room for. A Writer finds out, and nothing is lost or counted twice over it.
func TestWriterLearnsHowLargeBatchesAre(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	define(t, db, "1m", "1h", "1d")
	w := serve(t, db).writer(client.WriterOptions{Mode: client.Flush, Every: time.Hour, Keys: 1 << 20})
	const keys = 6000
	for round := range int64(2) {
		for i := range keys {
			if err := w.Add(t.Context(), fmt.Sprint("v", i), 1+round); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	st := w.Stats()
	if st.Refused != 0 || st.Deltas != 2*keys {
		t.Errorf("stats %+v", st)
	}
	for _, i := range []int{0, 1, keys / 2, keys - 1} {
		holds(t, db, fmt.Sprint("v", i), 3)
	}
	sum, err := db.Sum(t.Context(), "v", "")
	if err != nil || sum.Value != 3*keys {
		t.Errorf("sum %+v, %v", sum, err)
	}
}
