package store_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

func TestTokenTime(t *testing.T) {
	f := func(token string, want int64, ok bool) {
		t.Helper()
		if ms, got := store.TokenTime(token); ms != want || got != ok {
			t.Errorf("%q carries %d, %v; want %d, %v", token, ms, got, want, ok)
		}
	}
	f("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742000, true) // the example of RFC 9562
	f("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000, true)
	f("00000000-0000-7000-8000-000000000000", 0, true)
	f("ffffffff-ffff-7fff-bfff-ffffffffffff", 1<<48-1, true)
	f("017f22e2-79b0-7cc3-a8c4-dc0c0c07398f", 1645557742000, true)
	f("017f22e2-79b0-7cc3-B8c4-dc0c0c07398f", 1645557742000, true)

	f("", 0, false)
	f("t", 0, false)
	f("017f22e2-79b0-4cc3-98c4-dc0c0c07398f", 0, false)    // another version
	f("017f22e2-79b0-7cc3-78c4-dc0c0c07398f", 0, false)    // another variant
	f("017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", 0, false)    // another variant
	f("017f22e2-79b0-7cc3-98c4-dc0c0c07398", 0, false)     // too short
	f("017f22e2-79b0-7cc3-98c4-dc0c0c07398f0", 0, false)   // too long
	f("017f22e2079b0-7cc3-98c4-dc0c0c07398f", 0, false)    // no dash
	f("017f22e2-79b0-7cc3098c4-dc0c0c07398f", 0, false)    // no dash
	f("017g22e2-79b0-7cc3-98c4-dc0c0c07398f", 0, false)    // no digit in the time
	f("017f22e2-79b0-7cc3-98c4-dc0c0c07398z", 0, false)    // no digit at the end
	f("017f22e2-79b0-7cc3-98c4-dc0c0c07398\xff", 0, false) // no text
	f("{17f22e2-79b0-7cc3-98c4-dc0c0c07398}", 0, false)
}

func TestTokenStale(t *testing.T) {
	const token, made = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", int64(1645557742000)
	f := func(token string, nowMS int64, want bool) {
		t.Helper()
		if got := store.TokenStale(token, nowMS, time.Hour); got != want {
			t.Errorf("%q at %d is stale: %v, want %v", token, nowMS, got, want)
		}
	}
	f(token, made, false)
	f(token, made+3_600_000, false) // exactly as old as the window
	f(token, made+3_600_001, true)
	f(token, made-3_599_999, false) // from a clock that is ahead
	f(token, made-3_600_000, true)  // by a window: it would outlive its memory
	f("t", 1<<62, false)            // carries no time
}

func TestTokenKeptMS(t *testing.T) {
	if got := store.TokenKeptMS(90 * time.Second); got != 180_000 {
		t.Errorf("kept for %d ms, want two windows", got)
	}
}

func FuzzTokenTime(f *testing.F) {
	f.Add("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
	f.Add("t")
	f.Fuzz(func(t *testing.T, token string) {
		ms, ok := store.TokenTime(token)
		if ms < 0 || ms >= 1<<48 || (!ok && ms != 0) {
			t.Errorf("%q carries %d, %v", token, ms, ok)
		}
	})
}
