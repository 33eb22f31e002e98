package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/serving"
)

const (
	shopStock = 3_000
	shoppers  = 24
	shopHold  = 2 * time.Second
)

// A shop is a server that is killed and started again, and what its customers were told.
type shop struct {
	t      *testing.T
	rng    *rand.Rand
	binary string
	dir    string
	client atomic.Pointer[client]
	over   atomic.Bool

	sold, released, abandoned, refused, ended, again atomic.Int64

	mu       sync.Mutex // guards the fields below
	tokens   map[string]string
	problems []error
}

// reserved has customers reserve and commit while the server is killed. What was reserved is
// sold, released or given back, and nothing else is missing; the one counter has views, and
// the other has none.
func reserved(t *testing.T, binary string, rng *rand.Rand) {
	s := &shop{t: t, rng: rng, binary: binary, dir: filepath.Join(t.TempDir(), "data"), tokens: map[string]string{}}
	p := s.start()
	ctx := t.Context()
	s.must(ctx, call{method: "PUT", path: "definitions", body: `{"definitions":[{"pattern":"viewed","windows":[{"every":"1m","keep":"2h"}],"ledger":"all"}]}`, header: map[string]string{"If-Match": "*"}})
	for _, key := range shopKeys {
		s.must(ctx, call{method: "PUT", path: "counters/" + key, body: fmt.Sprintf(`{"value":%d}`, shopStock)})
	}
	var all sync.WaitGroup
	for i := range shoppers {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		all.Go(func() { s.shop(ctx, i, rng) })
	}
	p = s.killed(p, rng)
	all.Wait()
	left := s.left(ctx)
	for token, want := range s.tokens {
		var got struct{ State string }
		if s.must(ctx, call{method: "GET", path: "tokens/" + token + "?key=" + shopKeys[0]}, &got); got.State != want {
			s.problem(fmt.Errorf("token %s is %s, and its customer was told %s", token, got.State, want))
		}
	}
	if err := p.Drain(); err != nil {
		t.Fatal(err)
	}
	command(t, binary, "verify", "--data", s.dir)
	t.Logf("%d kills: %d sold, %d released, %d abandoned, %d refused, %d expired before their end, %d sent again",
		*cycles, s.sold.Load(), s.released.Load(), s.abandoned.Load(), s.refused.Load(), s.ended.Load(), s.again.Load())
	if n := int64(len(shopKeys)*shopStock) - s.sold.Load(); left != n {
		s.problem(fmt.Errorf("%d are left, want %d", left, n))
	}
	if s.sold.Load() == 0 || s.released.Load() == 0 {
		s.problem(errors.New("nothing happened"))
	}
	if err := errors.Join(s.problems...); err != nil {
		t.Fatal(err)
	}
}

var shopKeys = []string{"plain", "viewed"}

// start starts the server, and has customers call it.
func (s *shop) start() *serving.Process {
	s.t.Helper()
	p := launch(s.t, s.binary, "--http", "127.0.0.1:0", "--data", s.dir, "--memory", "16MiB")
	addr, err := ready(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	c := newClient(addr)
	s.t.Cleanup(c.close)
	s.client.Store(c)
	return p
}

// killed kills the server and starts it again, over and over, and then has customers end.
func (s *shop) killed(p *serving.Process, rng *rand.Rand) *serving.Process {
	s.t.Helper()
	for range *cycles {
		pause(time.Duration(100+rng.IntN(500))*time.Millisecond, p.Exited)
		if err := p.Died(); err != nil {
			s.t.Fatal(err)
		}
		p.Kill()
		p = s.start()
	}
	s.over.Store(true)
	return p
}

func (s *shop) problem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 10 {
		s.problems = append(s.problems, err)
	}
}

// must makes a call that succeeds.
func (s *shop) must(ctx context.Context, q call, into ...any) {
	s.t.Helper()
	r := s.insist(ctx, q)
	if r.status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", q.method, q.path, r.status, r.body)
	}
	for _, v := range into {
		if err := json.Unmarshal(r.body, v); err != nil {
			s.t.Fatal(err)
		}
	}
}

// insist makes a call until there is a definite answer.
func (s *shop) insist(ctx context.Context, q call) reply {
	for {
		r, err := s.client.Load().do(ctx, q)
		if err == nil && r.status != http.StatusServiceUnavailable && r.status != http.StatusGatewayTimeout {
			return r
		}
		if ctx.Err() != nil {
			return reply{}
		}
		s.again.Add(1)
		pause(10*time.Millisecond, ctx.Done())
	}
}

// shop reserves and commits, releases or forgets, one after the other.
func (s *shop) shop(ctx context.Context, customer int, rng *rand.Rand) {
	for i := 0; !s.over.Load(); i++ {
		token, key := fmt.Sprintf("c%d-%d", customer, i), shopKeys[rng.IntN(len(shopKeys))]
		amount := 1 + rng.IntN(3)
		r := s.insist(ctx, call{
			method: "POST", path: "counters/" + key + "/reserve", body: fmt.Sprintf(`{"amount":%d,"ttl":%q,"who":"c%d"}`, amount, shopHold, customer),
			header: map[string]string{"Idempotency-Key": token},
		})
		var got struct{ ID, State string }
		switch {
		case r.status == http.StatusConflict:
			s.refused.Add(1)
			s.remember(rng, token, key, "refused")
			pause(20*time.Millisecond, ctx.Done())
			continue
		case r.status != http.StatusOK || json.Unmarshal(r.body, &got) != nil || got.ID == "":
			s.problem(fmt.Errorf("reserve: %d %s", r.status, r.body))
			return
		}
		s.remember(rng, token, key, "applied")
		s.end(ctx, rng, got.ID, amount)
	}
}

func (s *shop) remember(rng *rand.Rand, token, key, state string) {
	if key != shopKeys[0] || rng.IntN(10) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = state
}

// end ends a reservation in one of the ways that there are.
func (s *shop) end(ctx context.Context, rng *rand.Rand, id string, amount int) {
	path, taken := "reservations/"+id, 1+rng.IntN(amount)
	q := call{method: "POST", path: path + "/commit", body: fmt.Sprintf(`{"amount":%d}`, taken)}
	switch n := rng.IntN(20); {
	case n == 0:
		s.abandoned.Add(1)
		return
	case n < 4:
		q, taken = call{method: "POST", path: path + "/release"}, 0
	case n < 6:
		r := s.insist(ctx, call{method: "POST", path: path + "/extend", body: `{"ttl":"3s"}`})
		if r.status != http.StatusOK && r.status != http.StatusGone {
			s.problem(fmt.Errorf("extend: %d %s", r.status, r.body))
		}
	}
	switch r := s.insist(ctx, q); {
	case r.status == http.StatusGone:
		s.ended.Add(1)
	case r.status != http.StatusOK:
		s.problem(fmt.Errorf("%s: %d %s", q.path, r.status, r.body))
	case taken == 0:
		s.released.Add(1)
	default:
		s.sold.Add(int64(taken))
	}
}

// left waits until nothing is reserved, and returns what there is.
func (s *shop) left(ctx context.Context) (sum int64) {
	for _, key := range shopKeys {
		for began := time.Now(); ; {
			var got struct{ Value, Reserved, Available, Open int64 }
			s.must(ctx, call{method: "GET", path: "reservations?key=" + key}, &got)
			if got.Open == 0 && got.Reserved == 0 && got.Value == got.Available {
				sum += got.Value
				break
			}
			if time.Since(began) > 3*time.Second+shopHold {
				s.problem(fmt.Errorf("%s still has %+v", key, got))
				return sum
			}
			pause(20*time.Millisecond, ctx.Done())
		}
	}
	return sum
}
