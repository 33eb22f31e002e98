package collection_test

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/collection"
)

// The bytes are stored, so they stay what they are.
const (
	goldenHash   = "0601" + "0162" + "03323232" + "00" + "00" + "0161" + "0131"
	goldenSorted = "0701" + "000000000000f0ff" + "017a" + "0000000000000000" + "00" + "000000000000f83f" + "0161" + "000000000000f83f" + "0162"
)

func TestGolden(t *testing.T) {
	var h collection.Hash
	h.Set("b", "1")
	h.Set("gone", "x")
	h.Set("", "")
	h.Set("a", "1")
	h.Set("b", "222")
	if !h.Delete("gone") || h.Delete("gone") || h.Len() != 3 {
		t.Errorf("%d fields", h.Len())
	}
	if got := hex.EncodeToString(h.Append(nil)); got != goldenHash {
		t.Errorf("hash %s, want %s", got, goldenHash)
	}
	var s collection.Sorted
	s.Set("b", 1.5)
	s.Set("z", math.Inf(-1))
	s.Set("a", 7)
	s.Set("", math.Copysign(0, -1))
	s.Set("gone", 3)
	if s.Set("a", 1.5) || !s.Delete("gone") || s.Delete("gone") || s.Len() != 4 {
		t.Errorf("%d members", s.Len())
	}
	if got := hex.EncodeToString(s.Append(nil)); got != goldenSorted {
		t.Errorf("sorted %s, want %s", got, goldenSorted)
	}
	if at, ok := s.Rank("b"); !ok || at != 3 {
		t.Errorf("b is at %d", at)
	}
	for golden, kind := range map[string]collection.Kind{goldenHash: collection.KindHash, goldenSorted: collection.KindSorted} {
		b, _ := hex.DecodeString(golden)
		if got, ok := collection.KindOf(string(b)); !ok || got != kind {
			t.Errorf("%s is of kind %d, %v", golden, got, ok)
		}
	}
}

// Every bad byte is refused: what is cut off, and what says the same in another way.
func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                "",
		"an empty hash":          "0601",
		"an empty set":           "0701",
		"another version":        "0602" + "0161" + "0131",
		"a field twice":          "0601" + "0161" + "0131" + "0161" + "0132",
		"a field without value":  "0601" + "0161",
		"a value cut off":        "0601" + "0161" + "0231",
		"a long length":          "0601" + "816161" + "0131" + "8100",
		"a length of four":       "0601" + "80808001",
		"a score cut off":        "0701" + "000000000000f8",
		"no number":              "0701" + "000000000000f87f" + "0161",
		"minus nothing":          "0701" + "0000000000000080" + "0161",
		"members out of order":   "0701" + "000000000000f83f" + "0162" + "000000000000f83f" + "0161",
		"scores out of order":    "0701" + "000000000000f83f" + "0161" + "0000000000000000" + "0162",
		"a member of two scores": "0701" + "0000000000000000" + "0161" + "000000000000f83f" + "0161",
		"another kind":           "0801" + "0161" + "0131",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if kind, ok := collection.KindOf(string(b)); ok {
			t.Errorf("%s: kind %d", name, kind)
		}
	}
	var h collection.Hash
	h.Set("", strings.Repeat("x", collection.BytesMax))
	if _, err := collection.ParseHash(string(h.Append(nil))); err == nil {
		t.Error("a hash that is too long was read")
	}
}

// FuzzParse reads any bytes: what is read is written as it was.
func FuzzParse(f *testing.F) {
	for _, text := range []string{goldenHash, goldenSorted} {
		b, _ := hex.DecodeString(text)
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, state string) {
		if h, err := collection.ParseHash(state); err == nil && string(h.Append(nil)) != state {
			t.Errorf("%x became %x", state, h.Append(nil))
		}
		if s, err := collection.ParseSorted(state); err == nil && string(s.Append(nil)) != state {
			t.Errorf("%x became %x", state, s.Append(nil))
		}
	})
}

// TestModel changes collections at random beside plain maps.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h, s := &collection.Hash{}, &collection.Sorted{}
	values, scores, order := map[string]string{}, map[string]float64{}, []string(nil)
	for range 3000 {
		name := string(rune('a' + r.IntN(20)))
		score := float64(r.IntN(7)) - 3
		_, had := scores[name]
		if r.IntN(3) == 0 {
			if h.Delete(name) != had || s.Delete(name) != had {
				t.Fatalf("%s was there: %v", name, had)
			}
			delete(values, name)
			delete(scores, name)
			order = slices.DeleteFunc(order, func(n string) bool { return n == name })
		} else {
			value := string(rune('A' + r.IntN(20)))
			if h.Set(name, value) == had || s.Set(name, score) == had {
				t.Fatalf("%s was there: %v", name, had)
			}
			if values[name], scores[name] = value, score; !had {
				order = append(order, name)
			}
		}
		var fields []string
		for name, value := range h.All() {
			if fields = append(fields, name); values[name] != value {
				t.Fatalf("%s is %s, want %s", name, value, values[name])
			}
		}
		if !slices.Equal(fields, order) {
			t.Fatalf("fields %q, want %q", fields, order)
		}
		if s.Len() != len(scores) || !slices.IsSortedFunc(s.All(), func(a, b collection.Member) int {
			if a.Score != b.Score {
				return int(a.Score - b.Score)
			}
			return strings.Compare(a.Name, b.Name)
		}) {
			t.Fatalf("%v of %v", s.All(), scores)
		}
		for rank, m := range s.All() {
			if at, ok := s.Rank(m.Name); !ok || at != rank || scores[m.Name] != m.Score {
				t.Fatalf("%v at %d, want %d", m, at, rank)
			}
		}
		if len(order) == 0 {
			continue
		}
		var err1, err2 error
		h, err1 = collection.ParseHash(string(h.Append(nil)))
		s, err2 = collection.ParseSorted(string(s.Append(nil)))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
	}
}
