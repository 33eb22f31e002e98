package resp_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// flushes counts by whom its syncs would be made.
type flushes struct {
	*memstore.Store
	here, away atomic.Int64
}

func (f *flushes) Flush(here bool) {
	if here {
		f.here.Add(1)
	} else {
		f.away.Add(1)
	}
}

// The loop syncs by itself, however deep the pipelines are: to wake another for it,
// and to be woken, would cost more than is gained.
func TestFlushesHere(t *testing.T) {
	s := &flushes{Store: memstore.New(memstore.Options{})}
	c := dial(t, openOver(t, quipu.New(s, quipu.Options{}), resp.Options{}).addr)
	for _, depth := range []int{1, 16, 1000} {
		c.send(strings.Repeat(array("INCR", "a"), depth))
		for range depth {
			c.reply()
		}
	}
	if here, away := s.here.Load(), s.away.Load(); here < 3 || away != 0 {
		t.Errorf("%d syncs by the loop, %d by others", here, away)
	}
}
