package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzReaction compares the decoders of reactions with encoding/json, where they take a
// body at all.
func FuzzReaction(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"choice":"like"}`, `{"choice":"\u006cike"}`, `{"choice":1}`, `{"choice":"a","choice":"b"}`, `{"Choice":"a"}`, `{"choice":"a"}x`,
		`{"user":"ana","keys":["a","b"]}`, `{"keys":[],"user":""}`, `{"user":"ana"}`, `{"user":"ana","keys":[1]}`, `{"user":"ana","keys":["a",]}`, "[", "{\"choice\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if choice, err := decodeChoice(body); err == nil {
			var want struct{ Choice string }
			if json.Unmarshal(body, &want) != nil || choice != want.Choice {
				t.Fatalf("body %q: %q, want %+v", body, choice, want)
			}
		}
		if user, keys, err := decodeChosen(body); err == nil {
			var want struct {
				User string
				Keys []string
			}
			if json.Unmarshal(body, &want) != nil || user != want.User || len(keys) != len(want.Keys) || len(keys) > 0 && !reflect.DeepEqual(keys, want.Keys) {
				t.Fatalf("body %q: %q of %q, want %+v", body, keys, user, want)
			}
			if bytes.Count(body, []byte(`"`)) < 6 {
				t.Fatalf("body %q is taken", body)
			}
		}
	})
}
