package resp_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/storetest"
)

// The loop syncs by itself, however deep the pipelines are: to wake another for it,
// and to be woken, would cost more than is gained.
func TestFlushesHere(t *testing.T) {
	h := new(storetest.Hooks)
	var here, away atomic.Int64
	h.On(storetest.OnFlush, func(c *storetest.Call) error {
		if c.Here {
			here.Add(1)
		} else {
			away.Add(1)
		}
		return c.Pass()
	})
	c := dial(t, hookedDoor(t, h, resp.Options{}).addr)
	for _, depth := range []int{1, 16, 1000} {
		c.send(strings.Repeat(array("INCR", "a"), depth))
		for range depth {
			c.reply()
		}
	}
	if here.Load() < 3 || away.Load() != 0 {
		t.Errorf("%d syncs by the loop, %d by others", here.Load(), away.Load())
	}
}
