package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/server"
)

// The same warning is passed on once in ten seconds, and then says how often it
// was held back. Another one, and what is no warning, is not touched.
func TestDamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		logger := slog.New(server.Damp(slog.NewTextHandler(&text, nil))).With("door", "http")
		lines := func(want int) string {
			t.Helper()
			got := text.String()
			text.Reset()
			if n := strings.Count(got, "\n"); n != want {
				t.Fatalf("%d lines, want %d:\n%s", n, want, got)
			}
			return got
		}
		fail := func(free int) {
			logger.Error("call failed", "request_id", free, "error", fmt.Errorf("disk full: %d MiB free", free))
		}
		for i := range 100 {
			fail(i)
		}
		lines(1)
		logger.Error("call failed", "error", errors.New("something else"))
		lines(1)
		for range 3 {
			logger.Info("request")
		}
		lines(3)
		<-time.After(10 * time.Second)
		fail(7)
		if got := lines(1); !strings.Contains(got, "suppressed=99") || !strings.Contains(got, "7 MiB") {
			t.Error(got)
		}
		<-time.After(10 * time.Second)
		fail(8)
		if got := lines(1); strings.Contains(got, "suppressed") {
			t.Error(got)
		}

		// More different lines than it remembers are passed on, and forgotten.
		for range 2 {
			for i := range 1000 {
				logger.Warn(strings.Repeat("x", i))
			}
		}
		lines(2000 - 255) // those of the first round that it remembers, besides the one above
		<-time.After(10 * time.Second)
		logger.Warn(strings.Repeat("x", 999))
		logger.Warn(strings.Repeat("x", 999))
		lines(1)
	})
}
