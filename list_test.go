package quipu_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// leisurely is a store that takes a second for a page.
type leisurely struct{ store.Store }

func (l leisurely) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	select {
	case <-time.After(time.Second):
		return l.Store.Scan(ctx, r, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A sum stops before the deadline, and says where to go on.
func TestSumInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := quipu.New(leisurely{memstore.New(memstore.Options{})}, quipu.Options{})
		defer func() { _ = db.Close() }()
		const keys = 10*quipu.SumPage + 1
		events := make([]quipu.Event, keys)
		for i := range events {
			events[i] = quipu.Event{Key: fmt.Sprint("k", i), Delta: 2}
		}
		if _, err := db.AddBatch(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		var sum, calls int64
		for cursor := ""; ; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			s, err := db.Sum(ctx, "k", cursor)
			cancel()
			if err != nil || s.Exact || s.Complete != (s.Next == "") {
				t.Fatalf("call %d: %+v, %v", calls, s, err)
			}
			sum += s.Value
			if cursor = s.Next; s.Complete {
				break
			}
			if s.Keys != 3*quipu.SumPage {
				t.Fatalf("call %d: %+v", calls, s)
			}
		}
		if sum != 2*keys || calls != 3 {
			t.Errorf("%d calls and a sum of %d", calls+1, sum)
		}
		if s, err := db.Sum(t.Context(), "k", ""); err != nil || s.Value != 2*keys || !s.Exact { // without a deadline, at once
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// What programs log and send has words, not numbers.
func TestWords(t *testing.T) {
	f := func(v any, want ...string) {
		t.Helper()
		raw, err := json.Marshal(v)
		for _, w := range want {
			if err != nil || !strings.Contains(string(raw), w) {
				t.Errorf("no %s in %s, %v", w, raw, err)
			}
		}
	}
	f(quipu.Receipt{Durability: quipu.Written}, `"Durability":"written"`)
	f(quipu.Fate{State: quipu.TokenSettled}, `"State":"settled"`, `"Durability":"synced"`)
	f(quipu.Policy{Durability: quipu.Memory, Timing: quipu.Hybrid, Spread: quipu.SpreadWho}, `"Durability":"memory"`, `"Timing":"hybrid"`, `"Spread":"who"`)
	var r quipu.Receipt
	if err := json.Unmarshal([]byte(`{"Durability":"memory"}`), &r); err != nil || r.Durability != quipu.Memory {
		t.Errorf("%+v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(`{"Durability":"strong"}`), &r); err == nil {
		t.Error("an unknown durability is taken")
	}
}
