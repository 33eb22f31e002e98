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
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/pgtest"
)

// TestSale sells a stock to many buyers at once, through three servers whose connections are
// cut and which are killed. Exactly the stock is sold, nothing is stranded, and what a token
// is known to have done is what its buyer was told.
func TestSale(t *testing.T) {
	sells := func(name string, nodes func(t *testing.T) []*node) {
		t.Run(name, func(t *testing.T) {
			s := &sale{t: t, rng: replay(t), nodes: nodes(t), units: 2_000}
			if *rounds > 0 {
				s.units = 10_000
			}
			s.run()
		})
	}
	sells("postgres", func(t *testing.T) (nodes []*node) {
		_, addr := startPostgres(t)
		for i := range 3 {
			way := newProxy(t, addr)
			nodes = append(nodes, newNode(t, strconv.Itoa(i), "postgres://"+pgtest.User+"@"+way.Listen+"/postgres?sslmode=disable", []*proxy{way}))
		}
		return nodes
	})
	sells("cluster", func(t *testing.T) (nodes []*node) {
		_, url, ways := startCluster(t)
		for i := range 3 {
			nodes = append(nodes, newNode(t, strconv.Itoa(i), url, ways))
		}
		return nodes
	})
}

const (
	buyers   = 200
	item     = "item"
	holdFor  = 3 * time.Second
	itemPath = "/api/v1/counters/" + item
)

// A sale is what is sold, by which servers, and what its buyers were told.
type sale struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	doors []*rest
	units int64

	sold, released, abandoned, expired, soldOut, retries, twice atomic.Int64

	mu       sync.Mutex // guards the fields below
	told     []deal     // some of what buyers were told
	problems []error
}

// A deal is what a buyer was told of a token.
type deal struct {
	token    string
	reserved bool
}

func (s *sale) problem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 10 {
		s.problems = append(s.problems, err)
	}
}

func (s *sale) run() {
	t := s.t
	for _, n := range s.nodes {
		r := newREST(n)
		r.Transport.(*http.Transport).MaxIdleConnsPerHost = buyers
		s.doors = append(s.doors, r)
		t.Cleanup(r.CloseIdleConnections)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	if a, err := s.doors[0].call(ctx, http.MethodPut, itemPath, fmt.Sprintf(`{"value":%d}`, s.units)); err != nil || a.status != 200 {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	began := time.Now()
	stop := make(chan struct{})
	var chaos, all sync.WaitGroup
	chaos.Go(func() { s.disturb(ctx, stop, rand.New(rand.NewPCG(s.rng.Uint64(), 0))) })
	for i := range buyers {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), uint64(i)))
		all.Go(func() { s.buy(ctx, i, rng) })
	}
	all.Wait()
	close(stop)
	chaos.Wait()
	took := time.Since(began)
	if err := ctx.Err(); err != nil {
		s.problem(fmt.Errorf("%d of %d are sold: %w", s.sold.Load(), s.units, err))
	}
	if n := s.sold.Load(); n != s.units {
		s.problem(fmt.Errorf("%d are sold of %d", n, s.units))
	}
	s.judge(ctx)
	t.Logf("%d sold in %.1f s; %d released, %d abandoned, %d expired before their commit, %d sold out for the moment, %d sent again, %d sent twice at once",
		s.sold.Load(), took.Seconds(), s.released.Load(), s.abandoned.Load(), s.expired.Load(), s.soldOut.Load(), s.retries.Load(), s.twice.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.problems...); err != nil {
		t.Fatal(err)
	}
}

// disturb cuts the ways to the store and kills servers, one at a time.
func (s *sale) disturb(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) {
	for {
		pause(time.Duration(200+rng.IntN(600))*time.Millisecond, stop)
		select {
		case <-stop:
			return
		default:
		}
		n := s.nodes[rng.IntN(len(s.nodes))]
		if rng.IntN(2) == 0 {
			n.kill()
			pause(time.Duration(rng.IntN(300))*time.Millisecond, stop)
			if err := n.start(ctx); err != nil {
				s.problem(err)
				return
			}
			continue
		}
		way := n.ways[rng.IntN(len(n.ways))]
		way.Stop() // which cuts what is under way
		pause(time.Duration(rng.IntN(300))*time.Millisecond, stop)
		if err := way.heal(ctx); err != nil {
			s.problem(err)
			return
		}
	}
}

// An offer is what a server says of a reservation.
type offer struct {
	ID, State, Kind, Detail string
	Replayed, Forgotten     bool
}

// insist makes a call until there is a definite answer, each time at any of the servers.
func (s *sale) insist(ctx context.Context, rng *rand.Rand, method, path, body string, header ...string) (status int, got offer) {
	for try := 0; ctx.Err() == nil; try++ {
		if try > 0 {
			s.retries.Add(1)
			pause(time.Duration(rng.IntN(50))*time.Millisecond, ctx.Done())
		}
		a, err := s.doors[rng.IntN(len(s.doors))].call(ctx, method, path, body, header...)
		switch {
		case errors.Is(err, errDown) || ctx.Err() != nil:
			continue
		case err != nil:
			s.problem(err)
			return 0, got
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			s.problem(fmt.Errorf("%s %s: %d %s", method, path, a.status, a.body))
			return 0, got
		}
		if a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout {
			return a.status, got
		}
	}
	return 0, got
}

// buy reserves and commits, one after the other, until all is sold.
func (s *sale) buy(ctx context.Context, buyer int, rng *rand.Rand) {
	for i := 0; s.sold.Load() < s.units && ctx.Err() == nil; i++ {
		token := fmt.Sprintf("buyer-%d-%d", buyer, i)
		status, got := s.reserve(ctx, rng, token)
		switch {
		case status == 0:
			return
		case status == http.StatusConflict && got.Kind == "bound":
			s.soldOut.Add(1)
			if !got.Forgotten { // A partition remembers a tenth of its tokens as refused, and says so beyond that.
				s.tell(rng, deal{token, false})
			}
			pause(time.Duration(20+rng.IntN(100))*time.Millisecond, ctx.Done())
			continue
		case status != http.StatusOK || got.ID == "":
			s.problem(fmt.Errorf("reserve under %s: %d %+v", token, status, got))
			return
		}
		s.tell(rng, deal{token, true})
		s.end(ctx, rng, got.ID)
	}
}

func (s *sale) tell(rng *rand.Rand, d deal) {
	if rng.IntN(10) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, d)
}

// reserve reserves one, and sometimes sends the same twice at once: both must get one answer.
func (s *sale) reserve(ctx context.Context, rng *rand.Rand, token string) (int, offer) {
	ask := func(rng *rand.Rand) (int, offer) {
		return s.insist(ctx, rng, http.MethodPost, itemPath+"/reserve", fmt.Sprintf(`{"ttl":%q}`, holdFor), "Idempotency-Key", token, "Prefer", "return=minimal")
	}
	if rng.IntN(5) > 0 {
		return ask(rng)
	}
	s.twice.Add(1)
	other := rand.New(rand.NewPCG(rng.Uint64(), 0))
	var status [2]int
	var got [2]offer
	var both sync.WaitGroup
	both.Go(func() { status[1], got[1] = ask(other) })
	status[0], got[0] = ask(rng)
	both.Wait()
	if status[0] != 0 && status[1] != 0 && (status[0] != status[1] || got[0].ID != got[1].ID) {
		s.problem(fmt.Errorf("two answers under %s: %d %+v, %d %+v", token, status[0], got[0], status[1], got[1]))
	}
	return status[0], got[0]
}

// end commits a reservation, mostly; or releases it, or leaves it alone.
func (s *sale) end(ctx context.Context, rng *rand.Rand, id string) {
	verb := "commit"
	switch n := rng.IntN(20); {
	case n == 0:
		s.abandoned.Add(1)
		return
	case n < 3:
		verb = "release"
	case n == 3 && rng.IntN(3) == 0: // The commit and the end of the time race.
		pause(holdFor-100*time.Millisecond+time.Duration(rng.IntN(200))*time.Millisecond, ctx.Done())
	}
	step := func() (int, offer) {
		return s.insist(ctx, rng, http.MethodPost, "/api/v1/reservations/"+id+"/"+verb, "", "Prefer", "return=minimal")
	}
	status, got := step()
	switch {
	case status == 0:
		return
	case status == http.StatusGone:
		s.expired.Add(1)
		return
	case status != http.StatusOK:
		s.problem(fmt.Errorf("%s: %d %+v", verb, status, got))
		return
	case verb == "release":
		s.released.Add(1)
	default:
		s.sold.Add(1)
	}
	if rng.IntN(4) > 0 {
		return
	}
	if again, now := step(); again != 0 && (again != http.StatusOK || !now.Replayed || now.State != got.State) {
		s.problem(fmt.Errorf("%s again: %d %+v, first %+v", verb, again, now, got))
	}
}

// judge checks that nothing is left, that all adds up, and that tokens say what buyers were
// told.
func (s *sale) judge(ctx context.Context) {
	rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
	for _, n := range s.nodes {
		for _, way := range n.ways {
			if err := way.heal(ctx); err != nil {
				s.problem(err)
			}
		}
	}
	var left struct{ Value, Reserved, Available, Open int64 }
	if err := await(ctx, "what was abandoned is given back", func() bool {
		a, err := s.doors[rng.IntN(len(s.doors))].call(ctx, http.MethodGet, "/api/v1/reservations?key="+item, "")
		return err == nil && a.status == 200 && json.Unmarshal(a.body, &left) == nil && left.Open == 0
	}); err != nil {
		s.problem(err)
	}
	if left.Value != 0 || left.Reserved != 0 || left.Available != 0 {
		s.problem(fmt.Errorf("in the end there are %+v", left))
	}
	for _, d := range s.told {
		status, got := s.insist(ctx, rng, http.MethodGet, "/api/v1/tokens/"+d.token+"?key="+item, "")
		if want := map[bool]string{true: "applied", false: "refused"}[d.reserved]; status != http.StatusOK || got.State != want {
			s.problem(fmt.Errorf("token %s: %d %+v, and its buyer was told %s", d.token, status, got, want))
		}
	}
	a, err := s.doors[0].call(ctx, http.MethodPost, "/api/v1/verify", "")
	var audit struct{ Drift []any }
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &audit) != nil || len(audit.Drift) > 0 {
		s.problem(fmt.Errorf("verify: %d %s, %w", a.status, a.body, err))
	}
}
