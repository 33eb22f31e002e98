package rest

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// quotedText is a string of RFC 9651, but for the bytes that it may have.
var quotedText = regexp.MustCompile(`(?s)^"((?:[^"\\]|\\["\\])*)"$`)

// FuzzToken reads any Idempotency-Key, and expects the token that a regular
// expression finds, or a refusal that names the header.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "t", `"t"`, `""`, `"`, `"\`, `"\\"`, `"\""`, `"\a"`, `"a"b`, `"a" `, ` "a"`, `a"b`, `a\b`, "\x00", "\xff", `"` + "\xff" + `"`, "é"} {
		f.Add(seed)
	}
	read := func(t *testing.T, values ...string) (string, bool) {
		t.Helper()
		c := &call{r: &http.Request{Header: http.Header{"Idempotency-Key": values}}}
		token, err := c.token()
		if p, ok := errors.AsType[*problem](err); err != nil && (!ok || p.field != "Idempotency-Key" || p.status != http.StatusBadRequest) {
			t.Fatalf("%q: %+v", values, err)
		}
		if (err == nil) != (token != "") {
			t.Fatalf("%q is the token %q, %v", values, token, err)
		}
		return token, err == nil
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	plain := strings.NewReplacer(`\\`, `\`, `\"`, `"`)
	f.Fuzz(func(t *testing.T, value string) {
		want := value
		if strings.HasPrefix(value, `"`) {
			want = ""
			if m := quotedText.FindStringSubmatch(value); m != nil {
				want = plain.Replace(m[1])
			}
		}
		if got, ok := read(t, value); got != want || ok != (want != "") {
			t.Errorf("%q is the token %q, want %q", value, got, want)
		}
		if got, _ := read(t, `"`+escape.Replace(value)+`"`); got != value {
			t.Errorf("%q in quotes is the token %q", value, got)
		}
		if _, ok := read(t, value, value); ok {
			t.Errorf("%q was taken twice", value)
		}
	})
}
