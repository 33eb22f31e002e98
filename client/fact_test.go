package client

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// What is said of an add is in the name of its entry, and comes out of it again.
func TestEntries(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_999)
	f := func(key string, opts []call.WriteOption, who string, dims map[string]string) string {
		t.Helper()
		entry, err := entryOf(key, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := keyOf(entry); got != key {
			t.Errorf("%q: key %q", entry, got)
		}
		_, code, _ := strings.Cut(entry, factMark)
		fact := decodeFact(code)
		if fact.AtMs != 1_700_000_000_000 || fact.Who != who || !maps.Equal(fact.Dims, dims) {
			t.Errorf("%q: %v", entry, fact)
		}
		return entry
	}
	a := f("k", []call.WriteOption{call.At(at), call.Dim("b", "\xc3\xa9"), call.Dim("a", "")}, "", map[string]string{"a": "", "b": "é"})
	b := f("k", []call.WriteOption{call.Dim("a", ""), call.Dim("b", "é"), call.At(at.Add(-500 * time.Millisecond))}, "", map[string]string{"a": "", "b": "é"})
	if a != b {
		t.Errorf("%q and %q are not one entry", a, b)
	}
	others := map[string]bool{a: true}
	others[f("k", []call.WriteOption{call.At(at), call.Who("u")}, "u", nil)] = true
	others[f("k", []call.WriteOption{call.At(at), call.Who("")}, "", nil)] = true
	others[f("k", []call.WriteOption{call.At(at), call.Dim("a", "b\x01c")}, "", map[string]string{"a": "b\x01c"})] = true
	others[f("k", []call.WriteOption{call.At(at), call.Dim("ab", "c")}, "", map[string]string{"ab": "c"})] = true
	if len(others) != 5 {
		t.Errorf("%d entries, want 5: %v", len(others), others)
	}

	now := time.Now().Unix()
	entry, err := entryOf("k", []call.WriteOption{call.Who("u")})
	if err != nil {
		t.Fatal(err)
	}
	if _, code, _ := strings.Cut(entry, factMark); decodeFact(code).AtMs/1000 < now {
		t.Errorf("an add without a time happened at %d", decodeFact(code).AtMs)
	}

	bad := func(want error, key string, opts ...call.WriteOption) {
		t.Helper()
		if entry, err := entryOf(key, opts); !errors.Is(err, want) {
			t.Errorf("entry %q: %v", entry, err)
		}
	}
	bad(store.ErrInvalid, "k", call.Token("t"))
	bad(store.ErrInvalid, "k", call.WantValue())
	bad(store.ErrInvalid, "k", call.TTL(time.Hour))
	bad(store.ErrInvalid, "k", call.Dim("a", "b"), call.Dim("a", "c"))
	bad(store.ErrInvalid, "k", call.Dim("a", "\xff"))
	bad(store.ErrInvalid, "k\xffx", call.Who("u"))
	bad(store.ErrTooLarge, "k", call.Who(strings.Repeat("u", 256)))
}
