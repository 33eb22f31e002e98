package history

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/store"
)

// Counters are walked over in the order of their rows.
func TestRowLess(t *testing.T) {
	key := rapid.StringMatching(`[ab]{1,4}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		row := func(key string) []byte {
			_, row := store.AppendRow(nil, store.Cell{Namespace: "ns", Key: key}, store.PartFields{Kind: store.PartBook}.Part())
			return row
		}
		if got, want := rowLess(a, b), bytes.Compare(row(a), row(b)) < 0; got != want {
			t.Fatalf("%q before %q: %v, want %v", a, b, got, want)
		}
	})
}
