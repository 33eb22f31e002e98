package resp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// once is a store that can't be reached after a sum has overflowed.
type once struct {
	store.Store
	gone bool
}

func (s *once) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if s.gone {
		s.gone = false
		return store.ErrUnavailable
	}
	err := s.Store.Apply(ctx, batches, replies)
	for i := range replies {
		for j := range replies[i].Results {
			s.gone = s.gone || replies[i].Results[j].Outcome == store.Overflow
		}
	}
	return err
}

// Additions that overflowed as a sum are made one by one. If that fails, those who
// came with them and have counted are not told that nothing changed.
func TestRedoFails(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openOver(t, quipu.New(&once{Store: memstore.New(memstore.Options{})}, quipu.Options{}), o)
		c := dial(t, d.addr)
		c.expect("SET a 9223372036854775800", ok)
		c.send(array("INCR", "b") + strings.Repeat(array("INCR", "a"), 10))
		told := c.reply()
		for range 10 {
			c.reply()
		}
		if got := c.line("GET b"); got == bulk("1") && strings.HasPrefix(told, "-UNAVAILABLE") {
			t.Errorf("told %q, and it counted", told)
		} else if strings.HasPrefix(told, ":") && got != bulk("1") {
			t.Errorf("told %q, and it did not count: %q", told, got)
		}
	})
}
