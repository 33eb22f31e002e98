package port_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Lifetimes of few counters are exact, and those of many judged by a sample.
func TestLifetimes(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	t.Cleanup(func() { _ = db.Close() })
	f := func(low, high port.Lifetimes) {
		t.Helper()
		l, err := db.Port().Lifetimes(t.Context())
		if err != nil || l.Sampled < low.Sampled || l.Sampled > high.Sampled || l.Expiring < low.Expiring || l.Expiring > high.Expiring || l.Mean < low.Mean || l.Mean > high.Mean {
			t.Errorf("%+v, %v, want between %+v and %+v", l, err, low, high)
		}
	}
	set := func(key string, in time.Duration) {
		t.Helper()
		d := store.Delta{Cell: store.Cell{Key: key}, Op: store.OpSet, N: 1}
		if in > 0 {
			d.Expiry, d.DeadlineMS = store.ExpirySet, time.Now().Add(in).UnixMilli()
		}
		if err := db.Port().Apply(t.Context(), []store.Delta{d}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
	}
	f(port.Lifetimes{}, port.Lifetimes{})
	set("for ever", 0)
	f(port.Lifetimes{Sampled: 1}, port.Lifetimes{Sampled: 1})
	set("an hour", time.Hour)
	set("three hours", 3*time.Hour)
	f(port.Lifetimes{Sampled: 3, Expiring: 2, Mean: time.Hour}, port.Lifetimes{Sampled: 3, Expiring: 2, Mean: 2 * time.Hour})
	for i := range 2500 {
		set(fmt.Sprint(i), time.Duration(i%2)*time.Hour)
	}
	f(port.Lifetimes{Sampled: 1, Expiring: 1, Mean: time.Hour / 2}, port.Lifetimes{Sampled: 1000, Expiring: 510, Mean: 3 * time.Hour})
}
