package access

import (
	"fmt"
	"sync"

	"github.com/quipudb/quipu/internal/limit"
)

// A Quota is how much a principal may use of a server each second; 0 is as much as there is.
// A second's worth may be used at once.
type Quota struct {
	Requests    int64 `json:"requests,omitempty"`
	Writes      int64 `json:"writes,omitempty"`
	Bytes       int64 `json:"bytes,omitempty"` // received
	Connections int64 `json:"connections,omitempty"`
}

// Check returns an error if a quota can't be kept.
func (q Quota) Check() error {
	for _, f := range []struct {
		name string
		n    int64
	}{{"requests", q.Requests}, {"writes", q.Writes}, {"bytes", q.Bytes}, {"connections", q.Connections}} {
		if f.n < 0 || f.n > limit.AmountMax {
			return fmt.Errorf("quota of %d %s a second: want 0 to %d, where 0 means no limit", f.n, f.name, limit.AmountMax)
		}
	}
	return nil
}

// A Cost is what a call takes of a quota.
type Cost struct{ Requests, Writes, Bytes, Connections int64 }

// A Spending is what a principal has used of a quota, on one server. It is safe for
// concurrent use.
type Spending struct {
	mu    sync.Mutex // guards the fields below
	used  [4]string  // as package limit has it
	spare []byte
	asked []byte
	due   int64 // when the last refusal would have come, had they come as often as they may
}

// How many calls of a principal are refused in a second without a rest, how many at once,
// and how long a rest may be. To refuse a call costs time that others wait for.
const (
	refusedEveryUS = 1_000
	refusedAtOnce  = 100
	restMaxUS      = 500_000
)

// An ExceededError says which part of a quota a call would exceed.
type ExceededError struct {
	What    string
	Limit   int64 // a second
	RetryMS int64 // -1 if the call alone is more than a second's worth

	// RestUS is for how long a door leaves the connection alone that has sent the call,
	// because its principal sends many more than may be refused. It is 0 for those who
	// are only a little over their quota.
	RestUS int64
}

// Error says so to the caller.
func (e *ExceededError) Error() string {
	if e.RetryMS < 0 {
		return fmt.Sprintf("this call alone is more than the quota of %d %s a second", e.Limit, e.What)
	}
	return fmt.Sprintf("the quota of %d %s a second is used up: try again in %d ms", e.Limit, e.What, e.RetryMS)
}

// Spend takes the cost of a call from a quota, or returns what it would exceed. What was
// taken before that is not given back: it was asked for.
func (s *Spending) Spend(q Quota, c Cost, nowUS int64) *ExceededError {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, part := range [4]struct {
		what      string
		rate, use int64
	}{
		{"connections", q.Connections, c.Connections},
		{"requests", q.Requests, c.Requests},
		{"writes", q.Writes, c.Writes},
		{"bytes", q.Bytes, c.Bytes},
	} {
		if part.rate == 0 || part.use == 0 {
			continue
		}
		r := limit.Request{Cost: min(part.use, limit.AmountMax), NRules: 1}
		r.Rules[0] = limit.Rule{Algorithm: limit.Bucket, Rate: part.rate, PerUS: 1_000_000, Burst: part.rate}
		s.asked = r.Append(s.asked[:0])
		next, changed, reply := limit.Decide(s.spare[:0], s.used[i], s.asked, nowUS)
		s.spare = next
		if changed {
			s.used[i] = string(next)
		}
		if !reply.Allowed {
			e := &ExceededError{What: part.what, Limit: part.rate, RetryMS: reply.RetryMS}
			if reply.RetryMS == limit.Never {
				e.RetryMS = -1
			}
			e.RestUS = s.rest(nowUS)
			return e
		}
	}
	return nil
}

// rest counts a refusal, and returns how long the one who was refused rests. All connections
// of a principal share the count.
func (s *Spending) rest(nowUS int64) int64 {
	const ahead = refusedAtOnce * refusedEveryUS
	s.due = min(max(s.due, nowUS)+refusedEveryUS, nowUS+ahead+restMaxUS)
	return max(s.due-nowUS-ahead, 0)
}
