package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// A sale is a flash sale: buyers reserve, some of them pay in time, and when all is sold
// more comes.
type sale struct {
	mu       sync.Mutex // guards soldOut
	soldOut  time.Time  // when there was nothing left
	restocks int        // of the generator alone
}

// restockAfter is how long the shelf is empty before more comes.
const restockAfter = 15 * time.Second

// holdFor is how long a buyer may think.
const holdFor = "20s"

// next returns what happens next in the shop.
func (s *sale) next(l *Load, _ time.Duration) job {
	s.mu.Lock()
	more := !s.soldOut.IsZero() && time.Since(s.soldOut) > restockAfter
	if more {
		s.soldOut = time.Time{}
	}
	s.mu.Unlock()
	path := "/counters/" + url.PathEscape(StockKey)
	if more {
		s.restocks++
		body := fmt.Sprintf(`{"delta":250,"reason":"delivery %d","actor":"warehouse"}`, s.restocks)
		return func(ctx context.Context) error { return l.call(ctx, http.MethodPost, path+"/adjust", body) }
	}
	amount, then := 1+l.rng.IntN(3), l.rng.IntN(100)
	body := fmt.Sprintf(`{"amount":%d,"ttl":%q,"who":%q}`, amount, holdFor, visitor(l.rng))
	return func(ctx context.Context) error {
		raw, err := l.ask(ctx, http.MethodPost, path+"/reserve", body)
		if errors.Is(err, errReply) && field(raw, "kind") == "bound" {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.soldOut.IsZero() {
				s.soldOut = time.Now()
			}
			return nil
		}
		if err != nil {
			return err
		}
		id := url.PathEscape(field(raw, "id"))
		switch {
		case then < 55:
			return l.call(ctx, http.MethodPost, "/reservations/"+id+"/commit", "")
		case then < 70:
			return l.call(ctx, http.MethodPost, "/reservations/"+id+"/release", "")
		default:
			return nil // they forget about it, and it comes back by itself
		}
	}
}
