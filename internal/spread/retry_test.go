package spread_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// retrying says of each batch that it was decided again, so many times.
type retrying struct {
	*shared
	retries int
}

func (s *retrying) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	err := s.shared.Apply(ctx, batches, replies)
	for i := range replies {
		replies[i].Retries = s.retries
	}
	return err
}

// It shows how many writes to a counter had to be made again, by the store or
// because its layout had changed.
func TestRetries(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		busy := &retrying{shared: under}
		a, b := server(t, busy, lazy), server(t, under, lazy)
		c, other := cell("a"), cell("b")
		rates := func() (of, ofOther spread.Counter) {
			t.Helper()
			for _, k := range a.Hottest(2) {
				switch k.Cell {
				case c:
					of = k
				case other:
					ofOther = k
				}
			}
			if of.Rate < 1 || ofOther.Rate < 1 {
				t.Fatalf("not known: %+v, %+v", of, ofOther)
			}
			return of, ofOther
		}
		f := func(retries int) {
			t.Helper()
			busy.retries = retries
			for range 2000 { // what was before is forgotten
				mustDo(t, a, add(c, 1))
				mustDo(t, a, add(other, 1))
			}
			of, ofOther := rates()
			for _, k := range []spread.Counter{of, ofOther} {
				if math.Abs(k.Retries-float64(retries)*k.Rate) > 0.01 {
					t.Errorf("%+v, want %d retries of each write", k, retries)
				}
			}
		}
		f(2)
		split(t, a, c, 4)
		f(3)
		f(0)
		mustDo(t, b, want(add(c, 1))) // folds it
		for i := 0; rerouted(a) == 0; i++ {
			if i == 1000 {
				t.Fatal("no shard is closed")
			}
			mustDo(t, a, add(c, 1))
		}
		if of, ofOther := rates(); of.Retries < 1 || ofOther.Retries > 0.01 {
			t.Errorf("an add found its shard closed: %+v, and another counter %+v", of, ofOther)
		}
	})
}

// When a store is gone every counter has the same error: it is said once a look, in
// words that are the same each time.
func TestSaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newShared(1)
		var log bytes.Buffer
		s := spread.New(under, spread.Options{
			Policy: func(store.Cell) spread.Policy { return lazy }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for i := range 5 {
			c := cell(fmt.Sprint("k", i))
			mustDo(t, s, add(c, 1))
			split(t, s, c, 4)
		}
		under.cannotRead(func(store.Cell) bool { return true })
		<-time.After(5 * time.Second)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) < 2 {
			t.Fatalf("it said %q", lines)
		}
		for _, line := range lines {
			if _, said, _ := strings.Cut(line, "msg="); said != `"maintenance of hot counters failed" error="`+store.ErrUnavailable.Error()+`" more=4` {
				t.Errorf("it said %q", line)
			}
		}
	})
}
