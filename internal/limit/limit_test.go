package limit_test

import (
	"encoding/hex"
	"testing"

	"github.com/quipudb/quipu/internal/limit"
)

const start = 1_700_000_000_000_000

func bucket(rate, per, burst int64) limit.Rule {
	return limit.Rule{Tag: 1, Algorithm: limit.Bucket, Rate: rate, PerUS: per, Burst: burst}
}

func window(rate, per int64) limit.Rule {
	return limit.Rule{Tag: 1, Algorithm: limit.Window, Rate: rate, PerUS: per}
}

func sliding(rate, per int64) limit.Rule {
	r := window(rate, per)
	r.Algorithm = limit.Sliding
	return r
}

func month(rate int64, edges ...int64) limit.Rule {
	r := limit.Rule{Tag: 1, Algorithm: limit.Calendar, Rate: rate, NEdges: len(edges)}
	copy(r.Edges[:], edges)
	return r
}

// A client is what is known of one, and asks.
type client struct {
	t     *testing.T
	state string
}

func (c *client) ask(at, cost int64, rules ...limit.Rule) limit.Reply {
	c.t.Helper()
	req := limit.Request{Cost: cost, NRules: len(rules)}
	copy(req.Rules[:], rules)
	if err := req.Check(); err != nil {
		c.t.Fatal(err)
	}
	next, changed, reply := limit.Decide(nil, c.state, req.Append(nil), at)
	if changed {
		c.state = string(next)
	}
	return reply
}

func TestChangedRules(t *testing.T) {
	f := func(at int64, cost int64, before, after limit.Rule, wantLeft int64) {
		t.Helper()
		c := client{t: t}
		if r := c.ask(start, cost, before); !r.Allowed {
			t.Fatalf("refused at first: %+v", r)
		}
		if r := c.ask(start+at, 0, after); r.Remaining != wantLeft {
			t.Errorf("%d left, want %d", r.Remaining, wantLeft)
		}
	}
	const day = 86_400 * second
	// What was used stays used when the limit changes, down or up.
	f(0, 6, bucket(10, second, 10), bucket(10, second, 20), 14)
	f(0, 6, bucket(10, second, 10), bucket(5, second, 5), 0)
	f(second/2, 6, bucket(10, second, 10), bucket(2, second, 10), 5) // the slower rate holds
	f(second/2, 6, bucket(2, second, 10), bucket(10, second, 10), 5)
	f(0, 6, window(10, 60*second), window(20, 60*second), 14)
	f(0, 6, window(10, 60*second), window(3, 60*second), 0)
	f(0, 6, window(10, 60*second), window(1000, day), 994)
	f(120*second, 6, window(10, 60*second), window(1000, day), 994) // of the same day
	f(0, 6, window(1000, day), window(10, 60*second), 4)
	f(0, 6, sliding(10, 60*second), sliding(1000, day), 994)
	// Another algorithm under the same name.
	f(0, 6, bucket(10, second, 10), window(10, 60*second), 4)
	f(0, 6, window(10, 60*second), bucket(10, second, 10), 4)
	f(0, 6, window(10, 60*second), month(100, start-day, start+day), 94)
	f(0, 6, month(100, start-day, start+day), sliding(10, 60*second), 4)
	f(60*second, 6, window(10, 60*second), bucket(10, second, 10), 10)
}

func TestLimitsTogether(t *testing.T) {
	c := client{t: t}
	fast, slow := bucket(10, second, 10), window(12, 86_400*second)
	slow.Tag = 2
	f := func(at, cost int64, want limit.Reply) {
		t.Helper()
		if got := c.ask(start+at, cost, fast, slow); got != want {
			t.Errorf("at %d: got %+v, want %+v", at, got, want)
		}
	}
	untilDay := int64(86_400*second-start%(86_400*second)) / 1000
	f(0, 10, limit.Reply{Allowed: true, Rule: 0, Remaining: 0, ResetMS: 1000})
	f(0, 1, limit.Reply{Rule: 0, Remaining: 0, RetryMS: 100, ResetMS: 1000})
	// A refused call uses nothing of the limit that would have admitted it.
	f(second, 3, limit.Reply{Rule: 1, Remaining: 2, RetryMS: untilDay - 1000, ResetMS: untilDay - 1000})
	f(second, 2, limit.Reply{Allowed: true, Rule: 1, Remaining: 0, ResetMS: untilDay - 1000})
	f(second, 13, limit.Reply{Rule: 0, Remaining: 8, RetryMS: limit.Never, ResetMS: 200})
	// A limit that a request does not name is kept.
	if r := c.ask(start+second, 1, fast); !r.Allowed {
		t.Errorf("refused by a limit that was not asked: %+v", r)
	}
	f(2*second, 1, limit.Reply{Rule: 1, Remaining: 0, RetryMS: untilDay - 2000, ResetMS: untilDay - 2000})
}

// If the time steps back by little it stands still, and if by more everything is refused
// until it has caught up.
func TestTimeStepsBack(t *testing.T) {
	f := func(r limit.Rule, back int64, want bool) {
		t.Helper()
		c := client{t: t}
		c.ask(start, 1, r)
		got := c.ask(start-back, 1, r)
		if got.Allowed != want || got.Behind == want {
			t.Errorf("%d µs back: %+v", back, got)
		}
		if got.Behind && got.RetryMS*1000 < back {
			t.Errorf("%d µs back: retry after %d ms", back, got.RetryMS)
		}
	}
	f(bucket(10, second, 2), 1, true)
	f(bucket(10, second, 2), limit.SkewUS, true)
	f(bucket(10, second, 2), limit.SkewUS+1, false)
	f(bucket(10, second, 2), 3600*second, false)
	f(window(10, second), second, true)
	f(window(10, second), second+1, false)
	f(window(10, 7*second), second+1, true) // it began earlier
	f(month(10, start-second, start+second), 0, true)

	// A bucket that stands still gains nothing.
	c := client{t: t}
	c.ask(start, 2, bucket(1000, second, 2))
	if r := c.ask(start-1000, 1, bucket(1000, second, 2)); r.Allowed {
		t.Error("a millisecond that came twice brought something back")
	}
}

func TestCalendar(t *testing.T) {
	c := client{t: t}
	edges := []int64{start - second, start + second, start + 5*second}
	f := func(at int64, want limit.Reply) {
		t.Helper()
		if got := c.ask(start+at, 1, month(1, edges...)); got != want {
			t.Errorf("at %d: got %+v, want %+v", at, got, want)
		}
	}
	f(-second-1, limit.Reply{Outside: true})
	f(0, limit.Reply{Allowed: true, ResetMS: 1000})
	f(500_000, limit.Reply{RetryMS: 500, ResetMS: 500})
	f(second, limit.Reply{Allowed: true, ResetMS: 4000})
	f(5*second, limit.Reply{Outside: true})
}

func TestCheck(t *testing.T) {
	f := func(ok bool, rules ...limit.Rule) {
		t.Helper()
		req := limit.Request{NRules: len(rules)}
		copy(req.Rules[:], rules)
		if err := req.Check(); (err == nil) != ok {
			t.Errorf("check %+v: %v", rules, err)
		}
		if _, parsed := limit.Parse(req.Append(nil)); parsed != ok {
			t.Errorf("parsed %v: %+v", parsed, rules)
		}
	}
	f(true, bucket(1, 1, 1))
	f(true, bucket(limit.AmountMax, limit.PerUSMax, limit.AmountMax))
	f(false)
	f(false, bucket(0, 1, 1))
	f(false, bucket(limit.AmountMax+1, 1, 1))
	f(false, bucket(1, 0, 1))
	f(false, bucket(1, limit.PerUSMax+1, 1))
	f(false, bucket(1, 1, 0))
	f(false, bucket(1, 1, limit.AmountMax+1))
	f(false, bucket(1, 1, 1), window(1, 1)) // one tag
	f(true, month(1, 0, 1))
	f(false, month(1, 1, 1))
	f(false, month(1, 1))
	f(false, limit.Rule{Algorithm: 5, Rate: 1, PerUS: 1})
}

// The bytes of this format decide alike for ever.
func TestGolden(t *testing.T) {
	f := func(wantRequest, wantState string, wantFirst, wantSecond int64, rules ...limit.Rule) {
		t.Helper()
		req := limit.Request{Cost: 3, Burn: len(rules) > 1, NRules: len(rules)}
		for i := range rules {
			req.Rules[i] = rules[i]
			req.Rules[i].Tag = uint32(i + 300)
		}
		bytes := req.Append(nil)
		if got := hex.EncodeToString(bytes); got != wantRequest {
			t.Errorf("request %s, want %s", got, wantRequest)
		}
		next, _, reply := limit.Decide(nil, "", bytes, start)
		if hex.EncodeToString(next) != wantState {
			t.Errorf("state %x, want %s", next, wantState)
		}
		if first, second := reply.Pack(); first != wantFirst || second != wantSecond {
			t.Errorf("reply %d, %d, want %d, %d: %+v", first, second, wantFirst, wantSecond, reply)
		}
	}
	f("01000301ac02010ac0843d05", "0101ac02018080f9c0c1c4820303000ac0843d", 257, 300, bucket(10, second, 5))
	f("01000301ac02020ac0843d", "0101ac02028080f9c0c1c48203c0843d03", 897, 1000, window(10, second))
	f("01010302ac020302808ece1cad02040903fffff8c0c1c482030204",
		"0102ac020380a6b4b7c1c48203808ece1c0200ad0202fffff8c0c1c482030203", 143552238122434560, -68719376736,
		sliding(2, 60*second), month(9, start-1, start+1, start+5))
}

// Whatever the bytes are, Decide decides, and what it keeps it can read.
func FuzzDecide(f *testing.F) {
	req := limit.Request{Cost: 3, NRules: 3}
	req.Rules = [limit.RulesMax]limit.Rule{bucket(10, second, 5), sliding(9, 3), month(4, start-1, start+1)}
	for i := range req.NRules {
		req.Rules[i].Tag = uint32(i)
	}
	state, _, _ := limit.Decide(nil, "", req.Append(nil), start)
	f.Add(string(state), req.Append(nil), int64(start))
	f.Add("", []byte{1}, int64(0))
	f.Fuzz(func(t *testing.T, state string, request []byte, now int64) {
		next, changed, reply := limit.Decide(nil, state, request, now)
		if got := limit.Unpack(reply.Pack()); got != reply {
			t.Errorf("packed %+v, and unpacked %+v", reply, got)
		}
		parsed, ok := limit.Parse(request)
		if ok && string(parsed.Append(nil)) != string(request) {
			t.Errorf("%x is read as %x", request, parsed.Append(nil))
		}
		if !changed {
			return
		}
		if _, ok := limit.Ends(string(next)); !ok {
			t.Errorf("%x becomes %x, which nobody can read", state, next)
		}
		if _, _, again := limit.Decide(nil, string(next), request, now); again.Unknown {
			t.Errorf("%x becomes %x, which is not known", state, next)
		}
		for i := range parsed.NRules {
			if reply.Allowed && parsed.Cost > parsed.Rules[i].Most() {
				t.Errorf("a cost of %d is within %+v", parsed.Cost, parsed.Rules[i])
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	req := limit.Request{Cost: 1, NRules: 1}
	req.Rules[0] = bucket(1_000_000, second, 100)
	bytes, state, now := req.Append(nil), "", int64(start)
	var room [64]byte
	for b.Loop() {
		now += 10
		next, changed, _ := limit.Decide(room[:0], state, bytes, now)
		if changed {
			state = string(next)
		}
	}
}
