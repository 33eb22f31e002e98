package resp_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// Additions that overflowed as a sum are made one by one. If that fails, those who
// came with them and have counted are not told that nothing changed.
func TestRedoFails(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		h := new(storetest.Hooks)
		var gone atomic.Bool // after a sum has overflowed, the store can't be reached once
		overflowed := func(r store.Result) bool { return r.Outcome == store.Overflow }
		h.On(storetest.OnWrite, func(c *storetest.Call) error {
			if gone.Swap(false) {
				return store.ErrUnavailable
			}
			err := c.Pass()
			gone.Store(slices.ContainsFunc(c.Replies, func(r store.Reply) bool { return slices.ContainsFunc(r.Results, overflowed) }))
			return err
		})
		d := openOver(t, quipu.New(storetest.Wrap(storetest.Far(memstore.New(memstore.Options{})), h), quipu.Options{}), o)
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
