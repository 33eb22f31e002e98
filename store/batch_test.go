package store_test

import (
	"errors"
	"testing"

	"github.com/quipudb/quipu/store"
)

// Operations and outcomes are stored: their numbers must never change.
func TestStoredNumbersAreFixed(t *testing.T) {
	for i, op := range []store.Op{
		store.OpAdd, store.OpSet, store.OpDelete, store.OpSettle, store.OpRetire, store.OpExpire, store.OpGet,
		store.OpLayout, store.OpMax, store.OpPut, store.OpMerge,
	} {
		if int(op) != i+1 {
			t.Errorf("operation %d, want %d", op, i+1)
		}
	}
	for i, o := range []store.Outcome{
		store.Applied, store.Settled, store.Overflow, store.Mismatch, store.Expired, store.Changed, store.Full,
		store.Unmet, store.Bounded, store.Split, store.Unavailable, store.Unknown, store.Untimely, store.Outdated, store.Late, store.Barred,
	} {
		if int(o) != i+1 {
			t.Errorf("outcome %d, want %d", o, i+1)
		}
	}
	for i, x := range []store.Expiry{
		store.ExpiryClear, store.ExpirySet, store.ExpiryIfNone, store.ExpiryIfSome, store.ExpiryIfLater, store.ExpiryIfSooner,
		store.ExpiryAfter,
	} {
		if int(x) != 1<<i || store.ExpiryKeep != 0 {
			t.Errorf("expiry %d, want %d", x, 1<<i)
		}
	}
	for i, e := range []store.Existence{store.ExistsAny, store.ExistsMust, store.ExistsNot} {
		if int(e) != i {
			t.Errorf("existence %d, want %d", e, i)
		}
	}
	for i, d := range []store.Durability{store.DurabilityDefault, store.Memory, store.Written, store.Synced} {
		if int(d) != i {
			t.Errorf("durability %d, want %d", d, i)
		}
	}
}

func TestOutcomeErr(t *testing.T) {
	if err := store.Applied.Err(); err != nil {
		t.Errorf("Applied is an error: %v", err)
	}
	f := func(o store.Outcome, want error) {
		t.Helper()
		if err := o.Err(); !errors.Is(err, want) {
			t.Errorf("outcome %d is %v, want %v", o, err, want)
		}
	}
	f(store.Settled, store.ErrSettled)
	f(store.Unavailable, store.ErrUnavailable)
	f(store.Unknown, store.ErrUnknown)
	f(store.Overflow, store.ErrOverflow)
	f(store.Mismatch, store.ErrToken)
	f(store.Expired, store.ErrExpired)
	f(store.Changed, store.ErrChanged)
	f(store.Full, store.ErrFull)
	f(store.Unmet, store.ErrUnmet)
	f(store.Bounded, store.ErrBound)
	f(store.Split, store.ErrSplit)
	f(0, store.ErrCorrupt)
	f(store.Untimely, store.ErrUntimely)
	f(store.Outdated, store.ErrOutdated)
	f(store.Late, store.ErrLate)
	f(store.Barred, store.ErrInvalid)
	f(store.NotCount, store.ErrNotCount)
	f(store.NotCount+1, store.ErrCorrupt)
}

func TestTokenStateString(t *testing.T) {
	f := func(s store.TokenState, want string) {
		t.Helper()
		if got := s.String(); got != want {
			t.Errorf("state %d is %q, want %q", s, got, want)
		}
	}
	f(store.TokenUnknown, "unknown")
	f(store.TokenApplied, "applied")
	f(store.TokenSettled, "settled")
	f(store.TokenExpired, "expired")
	f(store.TokenRefused, "refused")
}

func TestDurabilityWords(t *testing.T) {
	f := func(word string, want store.Durability, back string) {
		t.Helper()
		d, err := store.ParseDurability(word)
		if err != nil || d != want {
			t.Errorf("%q is %d, %v; want %d", word, d, err, want)
		}
		if got := d.String(); got != back {
			t.Errorf("%q comes back as %q, want %q", word, got, back)
		}
	}
	f("memory", store.Memory, "memory")
	f("written", store.Written, "written")
	f("synced", store.Synced, "synced")
	f("", store.Synced, "synced")
	if got := store.DurabilityDefault.String(); got != "synced" {
		t.Errorf("the default is %q, want synced", got)
	}
	for _, word := range []string{"Synced", "fsync", " synced", "default"} {
		if _, err := store.ParseDurability(word); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v, want an invalid word", word, err)
		}
	}
}
