package quipu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// ahead returns a store whose clock is ahead of the server's.
func ahead(by time.Duration) *skewed {
	s := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(by) }})
	return &skewed{Store: s, Clock: s}
}

// skewed is a store far away that tells its time, and can be cut off.
type skewed struct {
	store.Store
	store.Clock
	cut atomic.Bool
}

func (s *skewed) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if s.cut.Load() {
		return store.ErrUnavailable
	}
	return s.Store.Read(ctx, cells, values)
}

// A refusal names the clock that a token and the store disagree about.
func TestTokenFromAnotherTime(t *testing.T) {
	f := func(skew, age time.Duration, want ...string) {
		t.Helper()
		db := quipu.New(ahead(skew), quipu.Options{})
		made := time.Now().Add(-age)
		token := fmt.Sprintf("%08x-%04x-7000-8000-000000000000", made.UnixMilli()>>16, made.UnixMilli()&0xffff)
		_, err := db.Add(t.Context(), "a", 1, quipu.Token(token))
		if len(want) == 0 {
			if err != nil {
				t.Errorf("a token %v old, by a store %v ahead: %v", age, skew, err)
			}
			return
		}
		if !errors.Is(err, quipu.ErrExpired) {
			t.Errorf("a token %v old, by a store %v ahead: %v", age, skew, err)
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("a token %v old, by a store %v ahead: %v, want %q", age, skew, err, w)
			}
		}
	}
	clock := func(skew time.Duration) string { return time.Now().Add(skew).UTC().Format("2006-01-02T") }
	f(0, 0)
	f(0, 23*time.Hour)
	f(0, 25*time.Hour, "the token is older than the window")
	f(0, -23*time.Hour)
	f(0, -25*time.Hour, "in the future", "the clock that is wrong")
	f(20*time.Hour, 0)
	f(100*time.Hour, 0, "older than the window, 24h, by the store's clock", clock(100*time.Hour))
	f(-100*time.Hour, 0, "in the future", "by the store's clock", clock(-100*time.Hour))
	f(-100*time.Hour, 90*time.Hour)
	f(100*time.Hour, -100*time.Hour) // the caller's clock is off as far
	f(100*time.Hour, 200*time.Hour, "the token is older than the window")
}

// How long a counter has, and when a value that is remembered is over, is by the
// store's clock.
func TestDeadlinesByTheStoresClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 100 * time.Hour, -100 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ahead(skew)
				db := quipu.New(s, quipu.Options{Recall: 10, Policies: []quipu.Policy{{Pattern: "*", Stale: time.Hour}}})
				defer func() {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				}()
				d := []store.Delta{{
					Cell: store.Cell{Key: "a"}, Op: store.OpSet, N: 5, Want: true,
					Expiry: store.ExpirySet | store.ExpiryAfter, DeadlineMS: 600_000,
				}}
				r := make([]store.Result, 1)
				if err := db.Port().Apply(t.Context(), d, r); err != nil {
					t.Fatal(err)
				}
				f := func(left, want int64) {
					t.Helper()
					if got := db.Port().Left("a", r[0].DeadlineMS); got != left {
						t.Errorf("%d ms are left, want %d", got, left)
					}
					if c, err := db.Read(t.Context(), "a"); err != nil || c.Value != want {
						t.Errorf("%+v, %v, want %d", c, err, want)
					}
				}
				f(600_000, 5)
				<-time.After(time.Minute)
				f(540_000, 5)
				s.cut.Store(true)
				f(540_000, 5)
				<-time.After(9*time.Minute - time.Millisecond)
				f(1, 5)
				<-time.After(time.Millisecond)
				f(0, 0)
				s.cut.Store(false)
				f(0, 0)
			})
		})
	}
}
