package rest

import (
	"encoding/json"
	"reflect"
	"testing"

	api "github.com/quipudb/quipu/call"
)

// FuzzSketch compares the decoders of calls on sketches with encoding/json, where they take a body at all.
func FuzzSketch(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[", `{"kind":"filter","capacity":1000,"error":0.01,"growth":2}`, `{"kind":"filter","capacity":"10","fixed":true,"ttl":"1d"}`,
		`{"kind":"frequencies","epsilon":1e-3,"confidence":5E-2}`, `{"kind":"frequencies","width":2000,"depth":7,"conservative":true}`, `{"kind":"top","k":10}`,
		`{"kind":"top","k":2147483648}`, `{"kind":"filter","error":.1}`, `{"kind":"filter","error":1e999}`, `{"kind":"filter","error":-0}`, `{"kind":"filter","error":"0.1"}`, `{"kind":"x","kind":"y"}`,
		`{"items":["a",{"item":"b","n":3},{"n":-2,"item":"\u00e9"}],"ttl":"1h"}`, `{"items":[{"item":"b","n":0}]}`, `{"items":[{"n":1}]}`, `{"items":[1]}`, `{"items":["a",]}`,
		`{"from":["a",{"key":"b","weight":2}]}`, `{"from":[]}`, `{"from":[{"weight":2}]}`, "{\"items\":[\"\xff\"]}", `{"items":["a"]}x`,
	} {
		f.Add([]byte(seed))
	}
	// pairOf decodes an element as JSON has it: a text, or an object.
	pairOf := func(t *testing.T, raw json.RawMessage, first, second string) (text string, n int64) {
		t.Helper()
		if json.Unmarshal(raw, &text) == nil {
			return text, 0
		}
		var o map[string]json.RawMessage
		if err := json.Unmarshal(raw, &o); err != nil || json.Unmarshal(o[first], &text) != nil {
			t.Fatalf("element %s is taken", raw)
		}
		if v, ok := o[second]; ok {
			var quoted string
			if json.Unmarshal(v, &quoted) == nil {
				v = []byte(quoted)
			}
			if err := json.Unmarshal(v, &n); err != nil || n == 0 {
				t.Fatalf("element %s is taken", raw)
			}
		}
		return text, n
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, _, err := decodeShape(body); err == nil {
			var want map[string]any
			if err := json.Unmarshal(body, &want); err != nil || want["kind"] != string(s.Kind) {
				t.Fatalf("body %q: %+v, want %v", body, s, want)
			}
			for name, got := range map[string]float64{"error": s.Error, "epsilon": s.Epsilon, "confidence": s.Confidence} {
				if n, ok := want[name]; ok && (n != got || got == 0) || !ok && got != 0 {
					t.Fatalf("body %q: %s is %v, want %v", body, name, got, n)
				}
			}
			for name, got := range map[string]int64{"capacity": s.Capacity, "growth": int64(s.Growth), "width": int64(s.Width), "depth": int64(s.Depth), "k": int64(s.K)} {
				if n, ok := want[name].(float64); ok && n != float64(got) {
					t.Fatalf("body %q: %s is %v, want %v", body, name, got, n)
				}
			}
		}
		if items, _, err := decodeSketchItems(body); err == nil {
			var want struct{ Items []json.RawMessage }
			if err := json.Unmarshal(body, &want); err != nil || len(items) != len(want.Items) || len(items) > api.ItemsMax {
				t.Fatalf("body %q: %+v, want %+v", body, items, want)
			}
			for i, raw := range want.Items {
				name, n := pairOf(t, raw, "item", "n")
				if one := (api.Item{Item: name, N: n}); !reflect.DeepEqual(items[i], one) {
					t.Fatalf("body %q: %+v, want %+v", body, items[i], one)
				}
			}
		}
		if from, _, err := decodeSources(body); err == nil {
			var want struct{ From []json.RawMessage }
			if err := json.Unmarshal(body, &want); err != nil || len(from) != len(want.From) || len(from) > api.MergeMax {
				t.Fatalf("body %q: %+v, want %+v", body, from, want)
			}
			for i, raw := range want.From {
				key, n := pairOf(t, raw, "key", "weight")
				if one := (api.SketchSource{Key: key, Weight: n}); from[i] != one {
					t.Fatalf("body %q: %+v, want %+v", body, from[i], one)
				}
			}
		}
	})
}
