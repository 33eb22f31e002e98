package store_test

import (
	"bytes"
	"testing"

	"github.com/quipudb/quipu/store"
)

// TestAsks takes what an event asks apart as it was put together.
func TestAsks(t *testing.T) {
	f := func(b []byte, n int64, want []byte) {
		t.Helper()
		e := store.Event{Bytes: b}
		got := e.Asks(&store.Rider{Op: store.OpMerge, N: n})
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("request %d of %q is %q, want %q", n, b, got, want)
		}
	}
	asks := store.AppendAsks(nil, []byte("one"), nil, []byte("three"))
	f(asks, 0, asks)
	f(asks, 1, []byte("one"))
	f(asks, 2, nil)
	f(asks, 3, []byte("three"))
	f(asks, 4, nil)
	f(nil, 1, nil)
	f([]byte("one"), 0, []byte("one"))
	for _, bad := range [][]byte{[]byte("one"), {}, asks[:len(asks)-1], {0, 200}, {0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}} {
		f(bad, 1, []byte{}) // which no sketch takes
		if store.EachAsk(bad, func([]byte) {}) {
			t.Errorf("%q is several requests", bad)
		}
	}
}

// FuzzAsks takes any bytes apart.
func FuzzAsks(f *testing.F) {
	f.Add(store.AppendAsks(nil, []byte("one"), nil), int64(2))
	f.Add([]byte{0, 5, 1}, int64(1))
	f.Fuzz(func(t *testing.T, b []byte, n int64) {
		e := store.Event{Bytes: b}
		_ = e.Asks(&store.Rider{Op: store.OpMerge, N: n})
		var asks [][]byte
		if store.EachAsk(b, func(ask []byte) { asks = append(asks, ask) }) {
			var again [][]byte
			if !store.EachAsk(store.AppendAsks(nil, asks...), func(ask []byte) { again = append(again, ask) }) || len(again) != len(asks) {
				t.Errorf("%q becomes %q", asks, again)
			}
		}
	})
}
