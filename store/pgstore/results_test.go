package pgstore

import (
	"bytes"
	"flag"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

func TestResults(t *testing.T) {
	f := func(rs ...store.Result) {
		t.Helper()
		got, err := decodeResults(encodeResults(rs))
		if err != nil || !slices.Equal(got, rs) {
			t.Errorf("%+v became %+v, %v", rs, got, err)
		}
	}
	f()
	f(store.Result{Outcome: store.Applied})
	f(store.Result{Outcome: store.Applied, Before: -1, After: math.MaxInt64, Version: math.MaxUint64, DeadlineMS: math.MaxInt64},
		store.Result{Outcome: store.Bounded, Before: math.MinInt64, Existed: true},
		store.Result{Outcome: store.Settled, Replayed: true, After: 3})
}

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestGoldenResults compares what marks hold with testdata.
func TestGoldenResults(t *testing.T) {
	var pieces []storetest.Piece
	f := func(name string, rs ...store.Result) {
		pieces = append(pieces, storetest.Piece{Name: name, Bytes: encodeResults(rs)})
	}
	f("none")
	f("applied", store.Result{Outcome: store.Applied, Version: 300})
	f("with all", store.Result{Outcome: store.Applied, Before: -1, After: 300, Version: 1 << 40, Existed: true, DeadlineMS: 1_700_000_000_000})
	f("repeated, refused", store.Result{Outcome: store.Settled, Replayed: true}, store.Result{Outcome: store.Split})
	storetest.Golden(t, filepath.Join("testdata", "results.golden"), *rewrite, pieces)
}

func FuzzResults(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeResults([]store.Result{{Outcome: store.Applied, Before: 1, After: 300, Version: 7, DeadlineMS: 1, Existed: true}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := decodeResults(b)
		if err != nil {
			return
		}
		again, err := decodeResults(encodeResults(rs))
		if err != nil || !slices.Equal(again, rs) {
			t.Errorf("%x is %+v, and then %+v, %v", bytes.Clone(b), rs, again, err)
		}
	})
}
