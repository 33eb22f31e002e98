package port

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/limit"
	"github.com/quipudb/quipu/store"
)

const (
	// awayAfter is how long a limit waits for the store, if its definition says what becomes
	// of calls without it.
	awayAfter = 500 * time.Millisecond

	// awayFor is how long nobody asks the store any more that was away.
	awayFor = time.Second

	// sharesMax is of how many clients a server remembers what they used of its share.
	sharesMax = 100_000
)

// isAway reports whether an error says that the store can't be reached. What was sent and not
// answered may have been used nevertheless.
func isAway(err error) bool {
	kind := store.KindOf(err)
	return kind == store.KindUnavailable || kind == store.KindUnknown || errors.Is(err, context.DeadlineExceeded)
}

// awayNow reports whether the store was away a moment ago.
func (s *shared) awayNow() bool { return time.Now().UnixNano() < s.away.Load() }

// decideAway answers an ask without the store, if its definition says how.
func (p *Port) decideAway(ask *Ask, a *Answer) bool {
	switch a.By.Away.Then {
	case definition.FailOpen:
		p.limits.open.Add(1)
		a.Reply, a.Source = limit.Reply{Allowed: true}, call.SourceOpen
	case definition.FailClosed:
		p.limits.closed.Add(1)
		a.Reply, a.Source = limit.Reply{RetryMS: awayFor.Milliseconds()}, call.SourceClosed
	case definition.Share:
		p.limits.shared.Add(1)
		a.Reply, a.Source = p.shares.decide(limitName{p.namespace, ask.Name}, ask, a.By, time.Now()), call.SourceShare
	default:
		return false
	}
	return true
}

// shares are what clients used of a server's share of limits while the store was away.
type shares struct {
	mu    sync.Mutex // guards used
	used  map[client]string
	began time.Time // for a time that does not jump
}

// A client is one of a limit.
type client struct {
	limitName
	who string
}

// decide decides an ask by a share.
func (s *shares) decide(name limitName, ask *Ask, by *Limiter, now time.Time) limit.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used, s.began = make(map[client]string), now
	}
	nowUS := s.began.UnixMicro() + now.Sub(s.began).Microseconds()
	req := by.at(nowUS / 1000)
	req.Cost, req.Burn = ask.Cost, ask.Burn
	for i := range req.NRules {
		if !share(&req.Rules[i], int64(by.Away.Servers)) {
			return limit.Reply{Rule: i, RetryMS: awayFor.Milliseconds()}
		}
	}
	c := client{name, ask.Who}
	was, known := s.used[c]
	if !known && len(s.used) >= sharesMax && !s.forget(nowUS) {
		return limit.Reply{RetryMS: awayFor.Milliseconds()}
	}
	next, changed, reply := limit.Decide(nil, was, req.Append(nil), nowUS)
	if changed {
		s.used[c] = string(next)
	}
	return reply
}

// forget removes what is as good as none, and reports whether there is room.
func (s *shares) forget(nowUS int64) bool {
	for c, state := range s.used {
		if end, ok := limit.Ends(state); !ok || end <= nowUS {
			delete(s.used, c)
		}
	}
	return len(s.used) < sharesMax
}

// share makes a rule the share of one of so many servers, and reports whether that is
// anything. All shares together are never more than the rule.
func share(r *limit.Rule, servers int64) bool {
	r.Burst /= servers
	if r.Algorithm == limit.Bucket {
		if r.PerUS > limit.PerUSMax/servers { // its rate can't be had in a longer time
			r.Rate /= servers
		} else {
			r.PerUS *= servers
		}
		return r.Burst > 0 && r.Rate > 0
	}
	r.Rate /= servers
	return r.Rate > 0
}
