package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
)

// kept is a policy under which a read that asks for nothing is seconds old.
const kept = `{pattern: "*", shards: 4, timing: rollup, interval: 1h}`

// TestSessionPostgres has sessions go from node to node over PostgreSQL, while
// nodes are killed.
func TestSessionPostgres(t *testing.T) {
	rng := replay(t)
	_, addr := startPostgres(t)
	sessions(t, "PostgreSQL", rng, "postgres://"+pgtest.User+"@"+addr+"/postgres?sslmode=disable")
}

// TestSessionRedis does the same over Redis.
func TestSessionRedis(t *testing.T) {
	rng := replay(t)
	sessions(t, "Redis", rng, "redis://"+redisproc.For(t, synced...).Addr)
}

// sessions has callers add by any node and read by any other, with the session of
// their last write. What one of them reads counts all that it has written and all
// that it has seen.
func sessions(t *testing.T, store string, rng *rand.Rand, url string) {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, store: store, rng: rng}
	for i := range w.nodes {
		w.nodes[i] = newNode(t, strconv.Itoa(i), url, nil, "--config", policyFile(t, kept))
		w.doors[i] = newREST(w.nodes[i])
		t.Cleanup(w.doors[i].CloseIdleConnections)
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i := range 6 {
		mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
		done.Go(func() {
			if err := w.session(ctx, mine, fmt.Sprint("session:", i%2), stop); err != nil {
				w.problem(fmt.Errorf("caller %d: %w", i, err))
			}
		})
	}
	var err error
	for range 4 * max(1, *rounds) {
		pause(time.Duration(rng.IntN(500))*time.Millisecond, ctx.Done())
		err = errors.Join(err, nodeKilled().run(ctx, w))
	}
	close(stop)
	done.Wait()
	w.fail(t, err)
}

// session is what one caller does until stop is closed.
func (w *world) session(ctx context.Context, rng *rand.Rand, key string, stop <-chan struct{}) error {
	written, seen, reads := int64(0), int64(0), 0
	for {
		select {
		case <-stop:
			if reads == 0 {
				return errors.New("nothing was read")
			}
			return nil
		default:
		}
		delta, header := 1+rng.Int64N(9), []string{"Idempotency-Key", w.newToken()}
		if rng.IntN(4) > 0 {
			header = append(header, "Prefer", "return=minimal")
		}
		got, err := w.insistOn(ctx, rng, http.MethodPost, "/api/v1/counters/"+key+"/increment", fmt.Sprintf(`{"delta":%d}`, delta), header...)
		if err != nil {
			return err
		}
		session := got.Session
		written += delta
		seen = max(seen, got.Value)
		for range 1 + rng.IntN(3) {
			got, err := w.insistOn(ctx, rng, http.MethodGet, "/api/v1/counters/"+key+"?read=session&session="+session, "")
			if err != nil {
				return err
			}
			if got.Value < written || got.Value < seen {
				return fmt.Errorf("%s reads %d in a session that has written %d and seen %d", key, got.Value, written, seen)
			}
			seen = got.Value
			reads++
		}
	}
}

// A said is what a write or a read says.
type said struct {
	Value   int64  `json:"value"`
	Session string `json:"session"`
	Kind    string `json:"kind"`
}

// insistOn makes a call at any node, until one of them serves it.
func (w *world) insistOn(ctx context.Context, rng *rand.Rand, method, path, body string, header ...string) (got said, err error) {
	e := await(ctx, method+" "+path, func() bool {
		var a answer
		a, err = w.doors[rng.IntN(2)].call(ctx, method, path, body, header...)
		switch {
		case errors.Is(err, errDown), err == nil && (a.status == http.StatusServiceUnavailable || a.status == http.StatusGatewayTimeout):
			err = nil
			return false
		case err == nil && a.status != http.StatusOK:
			err = fmt.Errorf("status %d: %s", a.status, a.body)
		case err == nil:
			err = json.Unmarshal(a.body, &got)
		}
		return true
	})
	return got, errors.Join(err, e)
}
