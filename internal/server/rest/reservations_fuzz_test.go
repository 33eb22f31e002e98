package rest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quipudb/quipu"
)

// FuzzReservation compares the decoders of reservations with encoding/json, where they take a
// body at all.
func FuzzReservation(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"ttl":"30s"}`, `{"amount":5,"ttl":"1h","who":"eve","floor":-3}`, `{"amount":1.5,"ttl":"1s"}`, `{"amount":-1}`, `{"amount":0}`,
		`{"ttl":30}`, `{"ttl":"0s"}`, `{"ttl":"30s","ttl":"1s"}`, `{"TTL":"30s"}`, `{"ttl":"30s"}x`, "[", "{\"ttl\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	type body struct {
		Amount *int64
		TTL    string `json:"ttl"`
		Who    string
		Floor  *int64
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want body
		as := json.Unmarshal(raw, &want)
		if got, err := decodeReserve(raw); err == nil {
			amount := int64(1)
			if want.Amount != nil {
				amount = *want.Amount
			}
			if as != nil || got.amount != amount || got.ttl < time.Millisecond || got.who != want.Who || (got.floor == nil) != (want.Floor == nil) {
				t.Fatalf("body %q: %+v, want %+v", raw, got, want)
			}
		}
		if amount, err := decodeCommit(raw); err == nil && len(raw) > 0 && want.Amount != nil && amount != *want.Amount {
			t.Fatalf("body %q: %d, want %+v", raw, amount, want)
		} else if err == nil && amount < 0 && amount != quipu.All {
			t.Fatalf("body %q: %d", raw, amount)
		}
		if ttl, err := decodeExtend(raw); err == nil && (as != nil || want.TTL == "" || ttl < time.Millisecond) {
			t.Fatalf("body %q: %s, want %+v", raw, ttl, want)
		}
	})
}
