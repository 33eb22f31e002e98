package store

import (
	"fmt"
	"testing"
	"unicode/utf8"
)

// The fast check against the standard library's, on every length and with bad
// bytes at every place.
func TestValidUTF8(t *testing.T) {
	f := func(s string) {
		t.Helper()
		if got, want := validUTF8(s), utf8.ValidString(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	for n := range 40 {
		b := fmt.Appendf(nil, "%0*d", n, 0)[:n]
		f(string(b))
		for i := range b {
			for _, bad := range []string{"\xff", "\x80", "é", "\xc3"} {
				f(string(b[:i]) + bad + string(b[i:]))
				f(string(b[:i]) + bad + string(b[i+1:]))
			}
		}
	}
}

func BenchmarkCheckCell(b *testing.B) {
	c := Cell{Namespace: "default", Key: "counter:video:00000042"}
	for b.Loop() {
		if err := CheckCell(c); err != nil {
			b.Fatal(err)
		}
	}
}
