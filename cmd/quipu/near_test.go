package main

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"http", "resp", "max-shards", "max-staleness"}
	for word, want := range map[string]string{
		"htp": "http", "htttp": "http", "hhtp": "http", "max_shards": "max-shards", "maxshard": "max-shards", "max-stalenes": "max-staleness",
		"": "", "h": "", "port": "", "rest": "resp", "shards": "", "colour": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	f := func(a, b string, want int) {
		t.Helper()
		if got, back := distance(a, b), distance(b, a); got != want || back != want {
			t.Errorf("%q, %q: %d and %d, want %d", a, b, got, back, want)
		}
	}
	f("", "", 0)
	f("", "abc", 3)
	f("abc", "abc", 0)
	f("abc", "axc", 1)
	f("abc", "ac", 1)
	f("kitten", "sitting", 3)
}
