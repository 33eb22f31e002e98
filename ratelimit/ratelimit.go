// Package ratelimit limits the requests to handlers of net/http. Its middleware
// asks Quipu whether a client may call, in this process or over the network. It
// answers refused requests with status 429 and says when the client may come
// back.
//
// Package grpclimit does the same for gRPC.
package ratelimit

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// An Allower decides. A *quipu.DB is one, and so is a *client.DB.
type Allower interface {
	Allow(ctx context.Context, name, who string, cost int64, o call.AllowOptions) (call.Decision, error)
}

// Options configure Handler.
type Options struct {
	// Name is the limit to check. It needs a definition, or Limits in Call.
	Name string

	// Who returns the client of a request. The default is the address of the
	// connection, without the port. Behind a proxy, return the client's own address
	// instead.
	Who func(*http.Request) string

	// Cost returns the cost of a request. The default is 1. A request that costs 0 is
	// passed on.
	Cost func(*http.Request) int64

	// Call has the options of each call of Allow.
	Call call.AllowOptions

	// Refused answers a refused request. The default answer is a problem of RFC 9457.
	// The header is already set.
	Refused func(w http.ResponseWriter, r *http.Request, d call.Decision)

	// Failed answers a request for which no decision could be made. The default answer
	// is 503, and the error is logged. To let such requests through, call the handler here, or let the
	// definition of the limit decide what happens while the store can't be reached.
	Failed func(w http.ResponseWriter, r *http.Request, err error)

	// Logger receives, at most once a minute, the error of a request for which no
	// decision could be made, unless there is a function Failed that is told all of
	// them. The default is slog.Default().
	Logger *slog.Logger
}

// logEvery is the least time between two errors that are logged.
const logEvery = time.Minute

// Handler returns a middleware that passes only allowed requests on.
func Handler(a Allower, o Options) func(http.Handler) http.Handler {
	if o.Who == nil {
		o.Who = Peer
	}
	if o.Refused == nil {
		o.Refused = refused
	}
	if o.Failed == nil {
		o.Failed = logged(o.Logger, o.Name)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := int64(1)
			if o.Cost != nil {
				cost = o.Cost(r)
			}
			if cost == 0 {
				next.ServeHTTP(w, r)
				return
			}
			d, err := a.Allow(r.Context(), o.Name, o.Who(r), cost, o.Call)
			if err != nil {
				o.Failed(w, r, err)
				return
			}
			SetHeader(w.Header(), &d)
			if !d.Allowed {
				o.Refused(w, r, d)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Peer returns the address of a request's connection, without the port.
func Peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// SetHeader writes a decision into a header, by
// draft-ietf-httpapi-ratelimit-headers-10. RateLimit-Policy has all limits, and
// RateLimit has the one that is closest to refusing. If the call was refused
// and may be allowed later, Retry-After has the number of seconds to wait.
func SetHeader(h http.Header, d *call.Decision) {
	var policy strings.Builder
	for i := range d.Limits {
		l := &d.Limits[i]
		if i > 0 {
			policy.WriteString(", ")
		}
		policy.WriteString(strconv.Quote(l.Called()))
		policy.WriteString(";q=")
		policy.WriteString(strconv.FormatInt(l.Rate, 10))
		if l.Algorithm != definition.Calendar { // whose windows differ in length
			policy.WriteString(";w=")
			policy.WriteString(strconv.FormatInt(int64(l.Per.Shortest()/time.Second), 10))
		}
	}
	if policy.Len() > 0 {
		h.Set("RateLimit-Policy", policy.String())
	}
	if d.Source == call.SourceStore || d.Source == call.SourceShare {
		h.Set("RateLimit", strconv.Quote(d.Policy)+";r="+strconv.FormatInt(d.Remaining, 10)+";t="+seconds(d.ResetAfter))
	}
	if !d.Allowed && d.RetryAfter > 0 {
		h.Set("Retry-After", seconds(d.RetryAfter))
	}
}

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// problem answers with a problem of RFC 9457.
func problem(w http.ResponseWriter, status int, kind, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // a client that is gone can't be told
		"type": "urn:quipu:problem:" + kind, "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

func refused(w http.ResponseWriter, _ *http.Request, d call.Decision) {
	detail := "the limit " + strconv.Quote(d.Policy) + " of " + strconv.FormatInt(d.Limit, 10) + " is used up"
	if d.Limit == 0 {
		detail = "the limit can't be asked, and nothing is allowed meanwhile"
	}
	problem(w, http.StatusTooManyRequests, "limited", detail)
}

// logged returns a function that answers as failed does, and logs why.
func logged(logger *slog.Logger, name string) func(http.ResponseWriter, *http.Request, error) {
	var next atomic.Int64 // Unix nanoseconds of when an error may be logged again
	return func(w http.ResponseWriter, r *http.Request, err error) {
		now, due := time.Now().UnixNano(), next.Load()
		// A client that has left is no fault of the limit.
		if r.Context().Err() == nil && now >= due && next.CompareAndSwap(due, now+int64(logEvery)) {
			to := logger
			if to == nil {
				to = slog.Default()
			}
			to.ErrorContext(r.Context(), "requests are answered with 503, because their limit can't be asked", "limit", name, "error", err)
		}
		failed(w)
	}
}

func failed(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	problem(w, http.StatusServiceUnavailable, "unavailable", "the limits can't be asked now: try again")
}
