package main

import (
	"strings"
	"testing"
)

// A parser that is not what the edits were made for is refused, and not changed by
// halves.
func TestPatch(t *testing.T) {
	f := func(text, want string, edits ...edit) {
		t.Helper()
		got, err := patch(text, edits)
		if err != nil {
			got = ""
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	f("a b a", "c b c", edit{"a", "c", 2})
	f("a b a", "d b d", edit{"a", "c", 2}, edit{"c", "d", 2})
	f("a b a", "", edit{"a", "c", 1})
	f("a b a", "", edit{"x", "c", 1})
	f("unchanged", "unchanged")
	for _, name := range names {
		if strings.Count(lookups(), `MethodByName("`+name+`")`) != 2 {
			t.Errorf("%s is not looked up", name)
		}
	}
}
