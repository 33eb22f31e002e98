package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A deed is an operation on one counter.
type deed struct {
	kind string // add, set or read
	n    int64  // what is added or set
}

// register is what one counter must look like to all callers together: every
// operation happens at one moment between its call and its answer.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		value, d, got := state.(int64), input.(deed), output.(int64)
		switch d.kind {
		case "add":
			value += d.n
		case "set":
			value = d.n
		}
		return got == value, value
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %v", input, output) },
}

// A history is what callers did and were told.
type history struct {
	w     *world
	key   string
	start time.Time

	mu   sync.Mutex // guards done
	done []porcupine.Operation
}

// record does something, and takes it into the history.
func (h *history) record(caller int, d deed, do func() (int64, error)) error {
	call := time.Since(h.start)
	n, err := do()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, porcupine.Operation{
		ClientId: caller, Input: d, Call: int64(call), Output: n, Return: int64(time.Since(h.start)),
	})
	return nil
}

// do does something by a node, and by the other one if that does not know what
// became of it, under the same token, until somebody does.
func (h *history) do(ctx context.Context, node int, d deed) (n int64, err error) {
	path, token := "/api/v1/counters/"+h.key, h.w.newToken()
	e := await(ctx, fmt.Sprintf("%+v", d), func() bool {
		door := h.w.doors[node]
		node = 1 - node
		var a answer
		switch d.kind {
		case "add":
			a, err = door.call(ctx, http.MethodPost, path+"/increment", fmt.Sprintf(`{"delta":%d}`, d.n), "Idempotency-Key", token)
		case "set":
			a, err = door.call(ctx, http.MethodPut, path, fmt.Sprintf(`{"value":%d}`, d.n), "Idempotency-Key", token)
		case "read":
			a, err = door.call(ctx, http.MethodGet, path+"/exact", "")
		}
		if err != nil || a.status == http.StatusServiceUnavailable || a.status == http.StatusGatewayTimeout {
			return err != nil
		}
		var got count
		if err = json.Unmarshal(a.body, &got); err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.status, a.body)
		}
		n = got.Value
		return true
	})
	return n, errors.Join(err, e)
}

// linearizable has callers of both nodes add to one counter, set it and read it
// exactly, while connections to the store break. There must be one order of all
// that which explains every answer.
func (w *world) linearizable(t *testing.T) {
	ctx := t.Context()
	const callers, deeds = 6, 60
	h := &history{w: w, key: "linear", start: time.Now()}
	var done sync.WaitGroup
	for i := range callers {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		done.Go(func() {
			for range deeds * max(1, *rounds) {
				d := deed{kind: "add", n: 1 + rng.Int64N(9)}
				switch rng.IntN(10) {
				case 0:
					d = deed{kind: "set", n: rng.Int64N(1000)}
				case 1, 2, 3:
					d = deed{kind: "read"}
				}
				if err := h.record(i, d, func() (int64, error) { return h.do(ctx, rng.IntN(2), d) }); err != nil {
					w.problem(err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		done.Wait()
		close(over)
	}()
	for busy := true; busy; {
		if err := w.reset(ctx); err != nil {
			w.problem(err)
		}
		select {
		case <-over:
			busy = false
		default:
		}
	}
	w.fail(t)
	h.judge(t, porcupine.Ok)
	t.Run("stale", func(t *testing.T) { w.stale(t, h) })
}

// judge wants the history to be found legal, or not.
func (h *history) judge(t *testing.T, want porcupine.CheckResult) {
	t.Helper()
	if got := porcupine.CheckOperationsTimeout(register, h.done, patience); got != want {
		t.Errorf("%d operations: %s, want %s", len(h.done), got, want)
	}
}

// stale adds to a legal history a read by a node that can't reach its store and
// says what it read last, as though it had been exact. That must be found out.
func (w *world) stale(t *testing.T, h *history) {
	ctx := t.Context()
	err := h.record(0, deed{kind: "read"}, func() (int64, error) { return w.doors[0].read(ctx, h.key) })
	if err != nil {
		t.Fatal(err)
	}
	h.judge(t, porcupine.Ok)
	w.nodes[0].ways[0].Stop()
	add := deed{kind: "add", n: 5}
	err = errors.Join(
		h.record(1, add, func() (int64, error) { return h.do(ctx, 1, add) }),
		h.record(0, deed{kind: "read"}, func() (int64, error) {
			var c count
			err := w.doors[0].get(ctx, http.MethodGet, "/api/v1/counters/"+h.key+"?max_staleness=1h", &c)
			if err == nil && c.Exact {
				err = errors.New("a read without a store says that it is exact")
			}
			return c.Value, err
		}),
		w.heal(ctx),
		w.says(ctx, 0, true),
	)
	if err != nil {
		t.Fatal(err)
	}
	h.judge(t, porcupine.Illegal)
}
