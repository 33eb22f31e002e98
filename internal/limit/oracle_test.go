package limit_test

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/limit"
)

var (
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random arrivals")
	arrivals = flag.Int("arrivals", 2_000_000, "how many random arrivals are judged")
)

const second = 1_000_000 // µs

// An oracle remembers everything that was admitted, and judges by that alone.
type oracle struct {
	at   []int64
	cost []int64
}

// sum returns what was admitted from one moment on up to before another.
func (o *oracle) sum(from, to int64) (n int64) {
	for i, at := range o.at {
		if at >= from && at < to {
			n += o.cost[i]
		}
	}
	return n
}

// admits reports whether a rule admits a cost at a time, which is not before any other.
func (o *oracle) admits(r *limit.Rule, cost, at int64) bool {
	switch r.Algorithm {
	case limit.Bucket:
		// In no stretch of time that ends now may more be admitted than the burst, and
		// what the rate brings in that time.
		if cost > r.Burst {
			return false
		}
		sum := cost
		for i, then := range slices.Backward(o.at) {
			sum += o.cost[i]
			left := new(big.Int).Mul(big.NewInt(sum-r.Burst), big.NewInt(r.PerUS))
			if left.Cmp(new(big.Int).Mul(big.NewInt(r.Rate), big.NewInt(at-then))) > 0 {
				return false
			}
		}
		return true
	case limit.Window:
		start := at / r.PerUS * r.PerUS
		return o.sum(start, start+r.PerUS)+cost <= r.Rate
	case limit.Sliding:
		start := at / r.PerUS * r.PerUS
		was := new(big.Rat).SetFrac(big.NewInt(start+r.PerUS-at), big.NewInt(r.PerUS))
		was.Mul(was, new(big.Rat).SetInt64(o.sum(start-r.PerUS, start)))
		was.Add(was, new(big.Rat).SetInt64(o.sum(start, start+r.PerUS)+cost))
		return was.Cmp(new(big.Rat).SetInt64(r.Rate)) <= 0
	default:
		for i := range r.NEdges - 1 {
			if r.Edges[i] <= at && at < r.Edges[i+1] {
				return o.sum(r.Edges[i], r.Edges[i+1])+cost <= r.Rate
			}
		}
		return false
	}
}

func randomRule(r *rand.Rand, tag uint32, now int64) limit.Rule {
	x := limit.Rule{Tag: tag, Algorithm: limit.Algorithm(1 + r.IntN(4)), Rate: 1 + r.Int64N(20)}
	if r.IntN(20) == 0 {
		x.Rate = 1 + r.Int64N(limit.AmountMax)
	}
	x.PerUS = []int64{1, 7, 1000, second, 3 * second, 60 * second, limit.PerUSMax, 1 + r.Int64N(10*second)}[r.IntN(8)]
	switch x.Algorithm {
	case limit.Bucket:
		x.Burst = 1 + r.Int64N(20)
	case limit.Calendar:
		x.NEdges = 2 + r.IntN(limit.EdgesMax-1)
		at := now - x.PerUS/2
		for i := range x.NEdges {
			x.Edges[i] = at
			at += 1 + r.Int64N(2*x.PerUS)
		}
		x.PerUS = 0
	default:
	}
	return x
}

// step returns how long it is until the next arrival: mostly about as long as the rules
// take, and sometimes no time at all.
func step(r *rand.Rand, x *limit.Rule) int64 {
	per := x.PerUS
	if x.Algorithm == limit.Calendar {
		per = x.Edges[1] - x.Edges[0]
	}
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return r.Int64N(3 * per)
	case 2:
		return per - 1 + r.Int64N(3)
	default:
		return r.Int64N(2*per/min(x.Rate, per) + 1)
	}
}

// Every decision is what one is who remembers everything: no more is admitted, and no
// less; what is refused is admitted after the time that was told, and not before.
func TestOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 0))
	for n := 0; n < *arrivals && !t.Failed(); {
		n += checkHistory(t, r)
	}
	if t.Failed() {
		t.Logf("replay: go test ./internal/limit -run TestOracle -seed %d", *seed)
	}
}

func checkHistory(t *testing.T, r *rand.Rand) int {
	now := int64(1_700_000_000_000_000) + r.Int64N(1000*second)
	var req limit.Request
	req.NRules = 1 + r.IntN(3)
	for i := range req.NRules {
		req.Rules[i] = randomRule(r, uint32(i), now)
	}
	req.Burn = r.IntN(8) == 0
	var all [limit.RulesMax]oracle
	state, rounds := "", 10+r.IntN(60)
	for range rounds {
		now += step(r, &req.Rules[r.IntN(req.NRules)])
		req.Cost = []int64{0, 1, 1, 1, 1, 2, 3, 1 + r.Int64N(25)}[r.IntN(8)]
		want, inside := true, true
		for i := range req.NRules {
			x := &req.Rules[i]
			want = all[i].admits(x, req.Cost, now) && want
			inside = inside && (x.Algorithm != limit.Calendar || x.Edges[0] <= now && now < x.Edges[x.NEdges-1])
		}
		next, changed, reply := limit.Decide(nil, state, req.Append(nil), now)
		if reply.Allowed != want || reply.Unknown || reply.Behind || reply.Outside == inside {
			t.Errorf("at %d: got %+v, want allowed %v; request %+v", now, reply, want, req)
			return rounds
		}
		if changed != (want || req.Burn && inside) {
			t.Errorf("at %d: changed %v after %+v", now, changed, reply)
		}
		if changed {
			state = string(next)
		}
		checkReply(t, &req, state, reply, now, inside)
		for i := range req.NRules {
			used := req.Cost
			if !want {
				if used = 0; req.Burn && inside {
					used = burnt(&all[i], &req.Rules[i], req.Cost, now)
				}
			}
			if used > 0 {
				all[i].at, all[i].cost = append(all[i].at, now), append(all[i].cost, used)
			}
		}
	}
	return rounds
}

// burnt returns the most that a limit still admits, up to a cost.
func burnt(o *oracle, x *limit.Rule, cost, now int64) int64 {
	for cost > 0 && !o.admits(x, cost, now) {
		cost--
	}
	return cost
}

// checkReply checks what a reply says of later: when the cost is had, and when all is as
// if there had been nothing.
func checkReply(t *testing.T, req *limit.Request, state string, reply limit.Reply, now int64, inside bool) {
	t.Helper()
	if got := limit.Unpack(reply.Pack()); got != reply {
		t.Errorf("packed %+v, and unpacked %+v", reply, got)
	}
	if reply.Allowed != (reply.RetryMS == 0) && inside {
		t.Errorf("retry in %d ms after %+v", reply.RetryMS, reply)
	}
	if reply.Allowed || !inside || req.NRules > 1 || reply.RetryMS >= limit.Never-1 {
		return
	}
	same := *req
	same.Burn = false
	again := func(ms int64) limit.Reply {
		_, _, r := limit.Decide(nil, state, same.Append(nil), now+ms*1000)
		return r
	}
	if r := again(reply.RetryMS); !r.Allowed && !r.Outside {
		t.Errorf("refused at %d for %d ms, and refused then for %d ms: %+v", now, reply.RetryMS, r.RetryMS, req)
	}
	if r := again(reply.RetryMS - 1); r.Allowed && reply.RetryMS > 1 {
		t.Errorf("refused at %d for %d ms, and allowed 1 ms earlier: %+v", now, reply.RetryMS, req)
	}
}

// A state that has ended is as good as none, and one that has not is not.
func TestEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	for range 20_000 {
		now := int64(1_700_000_000_000_000) + r.Int64N(1000*second)
		var req limit.Request
		req.NRules, req.Cost = 1, 1
		req.Rules[0] = randomRule(r, 7, now)
		state := ""
		for range 1 + r.IntN(10) {
			if next, changed, _ := limit.Decide(nil, state, req.Append(nil), now); changed {
				state = string(next)
			}
			now += step(r, &req.Rules[0])
		}
		if state == "" {
			continue
		}
		end, ok := limit.Ends(state)
		if !ok {
			t.Fatalf("seed %d: %q does not say when it ends", *seed, state)
		}
		for _, at := range []int64{end, end + 1, end + r.Int64N(1000*second)} {
			a, _, had := limit.Decide(nil, state, req.Append(nil), max(at, now))
			b, _, none := limit.Decide(nil, "", req.Append(nil), max(at, now))
			if had != none || string(a) != string(b) {
				t.Fatalf("seed %d: at %d, after the end at %d of %+v: %+v, without the state %+v", *seed, at, end, req, had, none)
			}
		}
		if end-1 > now && req.Rules[0].Algorithm != limit.Sliding { // what is left of a sliding window may be less than 1
			_, _, had := limit.Decide(nil, state, req.Append(nil), end-1)
			_, _, none := limit.Decide(nil, "", req.Append(nil), end-1)
			if had == none && !had.Outside {
				t.Fatalf("seed %d: before the end at %d of %+v nothing is used", *seed, end, req)
			}
		}
	}
}
