package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// sameToken sends a write by both nodes at once, under one token, again and
// again: one of the two counts, and both get the same answer.
func (w *world) sameToken(t *testing.T) {
	ctx := t.Context()
	key, sum := "same", int64(0)
	for range 100 * max(1, *rounds) {
		token, delta := w.newToken(), 1+w.rng.Int64N(9)
		var replies [2]reply
		var errs [2]error
		var ready, done sync.WaitGroup
		ready.Add(len(w.doors))
		for i, d := range w.doors {
			done.Go(func() {
				ready.Done()
				ready.Wait()
				replies[i], errs[i] = d.add(ctx, key, delta, token)
			})
		}
		done.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		sum += delta
		for _, r := range replies {
			if r.outcome != counted || r.value != sum {
				t.Fatalf("%d was added under one token by both nodes, to make %d: they say %+v", delta, sum, replies)
			}
		}
		if replies[0].replayed == replies[1].replayed {
			t.Fatalf("one of two is the repeat: %+v", replies)
		}
	}
	if n, err := w.agreed(ctx, key); err != nil || n != sum {
		t.Fatalf("%d, %v after %d was added", n, err, sum)
	}
}

// answerLost kills a node when the store has what it was told to write, and the
// node does not know yet. Who asks the other node is told the first result.
func (w *world) answerLost(t *testing.T) {
	ctx := t.Context()
	key, sum := "unanswered", int64(0)
	for lost, tries := 0, 0; lost < max(1, *rounds); tries++ {
		if tries > 10**rounds+10 {
			t.Fatal("no answer is lost: all nodes are killed too late")
		}
		n, d := w.nodes[0], w.doors[0]
		sum += w.mustAdd(t, d, key) // so that there is a connection
		// The answer comes long after the store has committed.
		if err := n.ways[0].spoil(back, "latency", `"latency":300`); err != nil {
			t.Fatal(err)
		}
		token := w.newToken()
		answered := make(chan reply, 1)
		go func() {
			r, err := d.add(ctx, key, 7, token)
			if err != nil {
				w.problem(err)
			}
			answered <- r
		}()
		if err := w.applied(ctx, w.doors[1], key, token); err != nil {
			t.Fatal(err)
		}
		n.kill()
		if r := <-answered; r.outcome == doubtful {
			lost++
		}
		sum += 7
		r, err := w.doors[1].add(ctx, key, 7, token)
		if err != nil || r != (reply{counted, sum, true}) {
			t.Fatalf("the repeat of what made %d: %+v, %v", sum, r, err)
		}
		if err := errors.Join(w.heal(ctx), n.start(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := w.agreed(ctx, key); err != nil || v != sum {
		t.Fatalf("%d, %v after %d was added", v, err, sum)
	}
	w.fail(t)
}

// mustAdd adds one, and returns it.
func (w *world) mustAdd(t *testing.T, d *rest, key string) int64 {
	t.Helper()
	if r, err := d.add(t.Context(), key, 1, w.newToken()); err != nil || r.outcome != counted {
		t.Fatalf("add: %+v, %v", r, err)
	}
	return 1
}

// applied waits until a write is known to have been applied.
func (w *world) applied(ctx context.Context, d *rest, key, token string) (err error) {
	var got struct {
		State string `json:"state"`
	}
	e := await(ctx, fmt.Sprintf("token %s is applied", token), func() bool {
		err = d.get(ctx, http.MethodGet, "/api/v1/tokens/"+token+"?key="+key, &got)
		return err != nil || got.State == "applied"
	})
	return errors.Join(err, e)
}
