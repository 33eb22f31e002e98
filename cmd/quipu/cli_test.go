package main

import (
	"slices"
	"testing"

	"github.com/quipudb/quipu/store"
)

func TestSize(t *testing.T) {
	f := func(text string, want int64) {
		t.Helper()
		var s size
		err := s.UnmarshalText([]byte(text))
		if (err == nil) != (want > 0) || err == nil && int64(s) != want {
			t.Errorf("size %q: %d, %v; want %d", text, s, err, want)
		}
	}
	f("1", 1)
	f("1B", 1)
	f("1KiB", 1024)
	f("256MiB", 256<<20)
	f("256 MiB", 256<<20)
	f("2GB", 2e9)
	f("3TiB", 3<<40)
	for _, bad := range []string{"", "0", "-1", "x", "1X", "1.5GiB", "MiB", "9999999TiB", "1MM", "1 1"} {
		f(bad, 0)
	}
}

func TestEscapeNumbers(t *testing.T) {
	f := func(want []string, args ...string) {
		t.Helper()
		if got := escapeNumbers(args); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	f([]string{"add", "k", "\x00-3"}, "add", "k", "-3")
	f([]string{"add", "k", "--", "-3"}, "add", "k", "--", "-3")
	f([]string{"add", "k", "3", "-h", "-3x", "--id=-3"}, "add", "k", "3", "-h", "-3x", "--id=-3")
	f([]string{"range", "k", "--from", "\x00-1h30m"}, "range", "k", "--from", "-1h30m")
	f([]string{})
}

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := newToken()
		if _, ok := store.TokenTime(token); !ok || seen[token] {
			t.Fatalf("token %q", token)
		}
		seen[token] = true
	}
}

func TestPrintable(t *testing.T) {
	for key, want := range map[string]string{
		"a b/é日": "a b/é日", `a"b\`: `a"b\`, "a\tb": `"a\tb"`, "\x1b[31m": `"\x1b[31m"`, `"a"`: `"\"a\""`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := printable(key); got != want {
			t.Errorf("key %q: %s, want %s", key, got, want)
		}
	}
}

func TestQuoteToken(t *testing.T) {
	for token, want := range map[string]string{"a": "a", `a"b`: `a"b`, `"a\`: `"\"a\\"`, " a": `" a"`, "a ": `"a "`} {
		if got := quoteToken(token); got != want {
			t.Errorf("token %s: %s, want %s", token, got, want)
		}
	}
}
