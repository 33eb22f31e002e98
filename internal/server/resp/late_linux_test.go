package resp_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// late is a store whose adds are durable when a test says so, and that leaves those
// to one counter.
type late struct {
	*memstore.Store
	held chan func(error)
}

func (*late) Start([]store.Batch, []store.Reply, func(error)) bool { return false }

func (s *late) StartAdds(a *store.Adds, done func(error)) bool {
	for i := range a.Each {
		add := &a.Each[i]
		cell := store.Cell{Namespace: a.Namespace, Key: string(a.KeyOf(add))}
		if add.Left = cell.Key == "cold"; add.Left {
			continue
		}
		b := []store.Batch{{Deltas: []store.Delta{{Cell: cell, Op: store.OpAdd, N: add.N * int64(add.Times), Want: true}}}}
		replies := make([]store.Reply, 1)
		if s.Apply(context.Background(), b, replies) != nil {
			return false
		}
		add.Before, add.Taken = replies[0].Results[0].Before, add.Times
	}
	s.held <- done
	return true
}

// What the store has taken is told when it is durable, and not before, though other
// commands of the cycle took another way, and were sooner.
func TestLaneIsNotOvertaken(t *testing.T) {
	s := &late{memstore.New(memstore.Options{}), make(chan func(error), 1)}
	d := openOver(t, quipu.New(s, quipu.Options{}), resp.Options{})
	c, other := dial(t, d.addr), dial(t, d.addr)
	c.send(array("INCR", "hot") + array("DECR", "cold"))
	done := <-s.held
	var durable atomic.Bool
	told := make(chan string)
	go func() {
		first := c.reply()
		if !durable.Load() {
			first = "too early: " + first
		}
		told <- first + c.reply()
	}()
	for other.line("GET cold") != bulk("-1") { // until it is applied
		runtime.Gosched()
	}
	for range 100 { // turns of the loop
		other.expect("PING", pong)
	}
	durable.Store(true)
	done(nil)
	if got := <-told; got != ":1\r\n:-1\r\n" {
		t.Errorf("replies %q", got)
	}
}
