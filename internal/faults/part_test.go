package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
)

const (
	// liveMax is how long nearly all calls may take that have nothing to do with a
	// master that is gone, and refusedMax how long half of the others may: once the
	// master is known to be gone, nobody waits for it.
	liveMax, refusedMax = 500 * time.Millisecond, 100 * time.Millisecond
	// endMax is how long a node may take to end after SIGTERM.
	endMax = 10 * time.Second
)

// TestPart takes one of three masters away while counters of all of them are written
// to by every door. Calls for counters of the other two neither fail nor wait.
func TestPart(t *testing.T) {
	rng := replay(t)
	c, err := redisproc.StartMasters(t.Context(), t.TempDir(), synced...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	n := newNode(t, "0", "redis://"+strings.Join(addrs, ","), nil)
	for round := range max(1, *rounds) {
		away := 3 * time.Second
		if *rounds > 0 {
			away = 12 * time.Second // longer than anything in the node is waited for
		}
		p := newPart(t, n, c.Nodes[rng.IntN(len(c.Nodes))])
		t.Run("hung "+strconv.Itoa(round), func(t *testing.T) {
			p.lacks(t, away, p.hang, p.resume)
			p.returns(t, c)
		})
		t.Run("killed "+strconv.Itoa(round), func(t *testing.T) {
			p.lacks(t, away, p.master.Kill, func() error { return p.master.Restart(t.Context()) })
			p.returns(t, c)
		})
	}
	t.Run("ended", func(t *testing.T) {
		p := newPart(t, n, c.Nodes[rng.IntN(len(c.Nodes))])
		ends(t, n, p.gone, p.hang, p.resume)
	})
}

// TestPartSpread kills one of the masters over which a hot counter is spread.
// When that is known, the counter still takes adds that ask for nothing back; and when
// the master is back, it has all of them.
func TestPartSpread(t *testing.T) {
	c, err := redisproc.StartMasters(t.Context(), t.TempDir(), synced...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := newNode(t, "0", "redis://"+c.Nodes[0].Addr, nil, "--config", policyFile(t, wantsShards))
	door := newREST(n)
	// Of 64 partitions the first master has those up to 20 or 21, and shards are in the
	// ones after home: so home and some shards are there, and the others next to it.
	key := ""
	for i := 0; store.PartitionOf(store.Cell{Namespace: "default", Key: key}, 64) != 17; i++ {
		key = fmt.Sprint("hot:", i)
	}
	add := func() error {
		a, err := door.call(t.Context(), http.MethodPost, "/api/v1/counters/"+key+"/increment", `{"delta":1}`, "Prefer", "return=minimal")
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.status, a.body)
		}
		return err
	}
	counted, unknown := int64(0), int64(0)
	var got struct {
		Value  int64 `json:"value"`
		Shards int   `json:"shards"`
	}
	read := func() bool {
		return door.get(t.Context(), http.MethodGet, "/api/v1/counters/"+key+"/exact", &got) == nil
	}
	if err := await(t.Context(), "it is split", func() bool {
		if err := add(); err != nil {
			t.Fatal(err)
		}
		counted++
		return read() && got.Shards == 8
	}); err != nil {
		t.Fatal(err)
	}
	p := &part{node: n, master: c.Nodes[1]}
	if err := p.master.Kill(); err != nil {
		t.Fatal(err)
	}
	for killed, began := time.Now(), time.Now(); began.Before(killed.Add(3 * time.Second)); began = time.Now() {
		switch err := add(); {
		case err == nil:
			counted++
		case strings.Contains(err.Error(), `"unknown"`) && began.Before(killed.Add(2*time.Second)):
			unknown++ // it was under way before the master was known to be gone
		default:
			t.Fatal(err)
		}
	}
	if err := p.master.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.returns(t, c)
	if err := await(t.Context(), "it can be read", read); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d counted, %d unknown: %d of %d shards", counted, unknown, got.Value, got.Shards)
	if got.Value < counted || got.Value > counted+unknown {
		t.Errorf("it is %d: %d were counted, %d are unknown", got.Value, counted, unknown)
	}
}

// TestPostgresHung ends a node while its PostgreSQL hangs.
func TestPostgresHung(t *testing.T) {
	s, addr := startPostgres(t)
	n := newNode(t, "0", "postgres://"+pgtest.User+"@"+addr+"/postgres?sslmode=disable", nil)
	ends(t, n, []string{"a", "b", "c", "d"}, s.Suspend, s.Resume)
}

// A part is one master of a store of several, and what a node has there.
type part struct {
	node       *node
	master     *redisproc.Server
	live, gone []string // counters that other masters have, and that this one has
}

func newPart(t *testing.T, n *node, master *redisproc.Server) *part {
	t.Helper()
	p := &part{node: n, master: master}
	c, err := dialRESP(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var keys []string
	var commands [][]string
	for i := range 64 {
		keys = append(keys, fmt.Sprint("part:", i))
		commands = append(commands, []string{"INCR", keys[i]})
	}
	if err := c.run(commands, func(int, reply) {}); err != nil {
		t.Fatal(err)
	}
	has, err := master.Fields(t.Context(), "*v:default")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if has[key] {
			p.gone = append(p.gone, key)
		} else {
			p.live = append(p.live, key)
		}
	}
	if len(p.gone) < 4 || len(p.live) < 8 {
		t.Fatalf("the master has %v, and not %v", p.gone, p.live)
	}
	return p
}

func (p *part) hang() error   { return syscall.Kill(p.master.PID(), syscall.SIGSTOP) }
func (p *part) resume() error { return syscall.Kill(p.master.PID(), syscall.SIGCONT) }

// lacks has callers write by all doors while the master goes, is away for a while, and
// comes back, and judges what they were told.
func (p *part) lacks(t *testing.T, away time.Duration, leave, back func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live, gone := p.node.hammer(ctx, t, p.live), p.node.hammer(ctx, t, p.gone)
	pause(time.Second, nil)
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	var late *callers // who come when it is known
	for end := time.Now().Add(away); time.Now().Before(end); pause(100*time.Millisecond, nil) {
		began := time.Now()
		a, err := newREST(p.node).call(t.Context(), http.MethodGet, "/readyz", "")
		if took := time.Since(began); err != nil || a.status != http.StatusOK || took > time.Second {
			t.Errorf("/readyz: %d %s after %v, %v", a.status, a.body, took, err)
		}
		if late == nil && strings.Contains(string(a.body), "degraded") {
			pause(time.Second, nil)
			late = p.node.hammer(ctx, t, p.gone)
		}
	}
	cancel()
	if late == nil {
		t.Fatal("/readyz says nothing of what is gone")
	}
	for door, calls := range live.wait() {
		if calls.failed != nil {
			t.Errorf("%s: %v", door, calls.failed)
		}
		if p99 := calls.quantile(t, door, 0.99); p99 > liveMax {
			t.Errorf("%s: p99 is %v", door, p99)
		}
	}
	gone.wait()
	for door, calls := range late.wait() {
		if calls.failed == nil {
			t.Errorf("%s: nothing failed", door)
		}
		// The client tries again until its caller has waited long enough.
		if p50 := calls.quantile(t, door+", gone", 0.5); p50 > refusedMax && door != "RPC" {
			t.Errorf("%s: the median of those that are refused is %v", door, p50)
		}
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
}

// returns waits until the node takes writes for all counters again.
func (p *part) returns(t *testing.T, c *redisproc.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := await(ctx, "the node is well", func() bool {
		a, err := newREST(p.node).call(ctx, http.MethodGet, "/readyz", "")
		return err == nil && a.status == http.StatusOK && !strings.Contains(string(a.body), "degraded")
	}); err != nil {
		t.Fatal(err)
	}
}

// ends asks a node to end while its store, or a part of it, hangs and callers wait.
func ends(t *testing.T, n *node, keys []string, hang, resume func() error) {
	t.Helper()
	callers := n.hammer(t.Context(), t, keys)
	pause(300*time.Millisecond, nil)
	if err := hang(); err != nil {
		t.Fatal(err)
	}
	pause(300*time.Millisecond, nil)
	began := time.Now()
	n.process.Terminate()
	select {
	case <-n.process.Exited:
		t.Logf("it ended after %v", time.Since(began))
		if !n.process.Cmd.ProcessState.Success() {
			t.Errorf("it ended by %v", n.process.Cmd.ProcessState)
		}
	case <-time.After(endMax):
		t.Errorf("it has not ended after %v", endMax)
		n.kill()
	}
	callers.wait()
	if err := resume(); err != nil {
		t.Fatal(err)
	}
}

// callers write by all doors.
type callers struct {
	wg    sync.WaitGroup
	mu    sync.Mutex // guards doors
	doors map[string]*calls
}

// calls are what callers of a door were told.
type calls struct {
	took   []time.Duration
	failed error // the first, nil if there was none
}

// quantile returns how long calls took.
func (c *calls) quantile(t *testing.T, name string, q float64) time.Duration {
	t.Helper()
	if len(c.took) == 0 {
		t.Fatalf("%s: no calls", name)
	}
	slices.Sort(c.took)
	at := c.took[int(q*float64(len(c.took)-1))]
	t.Logf("%s: %d calls, quantile %v %v, the longest %v", name, len(c.took), q, at, c.took[len(c.took)-1])
	return at
}

// hammer lets callers of all doors add to counters until the context ends, or the
// node does.
func (n *node) hammer(ctx context.Context, t *testing.T, keys []string) *callers {
	t.Helper()
	db, err := client.Dial(t.Context(), n.rpc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &callers{doors: make(map[string]*calls)}
	door := newREST(n)
	for i := range 2 {
		c.call(ctx, n, "REST", keys, func(key string, nth int) error {
			r, err := door.add(t.Context(), key, 1, fmt.Sprint(t.Name(), time.Now().UnixNano(), i, nth))
			return errors.Join(err, r.failure())
		})
		c.call(ctx, n, "RPC", keys, func(key string, _ int) error {
			ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
			defer cancel()
			_, err := db.Add(ctx, key, 1)
			return err
		})
		conn, err := dialRESP(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.call(ctx, n, "RESP", keys, func(key string, _ int) (failed error) {
			err := conn.run([][]string{{"INCR", key}, {"INCR", key}}, func(_ int, r reply) {
				failed = errors.Join(failed, r.failure())
			})
			return errors.Join(failed, err)
		})
	}
	return c
}

// failure returns what a reply says, if it is not that the write was counted.
func (r reply) failure() error {
	switch r.outcome {
	case counted:
		return nil
	case refused:
		return errors.New("refused")
	case doubtful:
		return errors.New("in doubt")
	case lost:
		return errors.New("lost")
	}
	return fmt.Errorf("outcome %d", r.outcome)
}

// call has a caller of a door make calls.
func (c *callers) call(ctx context.Context, n *node, door string, keys []string, add func(key string, nth int) error) {
	c.wg.Go(func() {
		for i := 0; ctx.Err() == nil && n.alive() == nil; i++ {
			began := time.Now()
			err := add(keys[i%len(keys)], i)
			took := time.Since(began)
			c.mu.Lock()
			told := c.doors[door]
			if told == nil {
				told = &calls{}
				c.doors[door] = told
			}
			told.took = append(told.took, took)
			if told.failed == nil {
				told.failed = err
			}
			c.mu.Unlock()
			if err != nil {
				pause(time.Millisecond, ctx.Done())
			}
		}
	})
}

// wait returns what callers were told by each door, when all have ended.
func (c *callers) wait() map[string]*calls {
	c.wg.Wait()
	return c.doors
}
