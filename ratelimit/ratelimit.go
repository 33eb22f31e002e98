// Package ratelimit puts limits before the handlers of net/http: a middleware asks a Quipu
// whether a client may call, by a library in this process or over the wire, and answers
// those who may not with 429 and what they need to know to come back.
//
// Package grpclimit beside it does the same for gRPC.
package ratelimit

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

// An Allower decides. A *quipu.DB is one, and so is a *client.DB.
type Allower interface {
	Allow(ctx context.Context, name, who string, cost int64, o call.AllowOptions) (call.Decision, error)
}

// Options say what is asked for a request.
type Options struct {
	// Name is the limit that is asked. It needs a definition, or Limits in Call.
	Name string

	// Who returns the client of a request. Without it that is the address that the connection
	// comes from, without the port: behind a proxy say who it is instead.
	Who func(*http.Request) string

	// Cost returns what a request costs. Without it that is 1. A request that costs 0 is let
	// through.
	Cost func(*http.Request) int64

	// Call is said with each question.
	Call call.AllowOptions

	// Refused answers a request that is not allowed, in place of a problem of RFC 9457. The
	// header has been set.
	Refused func(w http.ResponseWriter, r *http.Request, d call.Decision)

	// Failed answers a request that nobody could decide on, in place of 503. To let such
	// requests through, have it call the handler, or have the definition of the limit
	// say what becomes of them while the store is away.
	Failed func(w http.ResponseWriter, r *http.Request, err error)
}

// Handler returns a middleware that lets requests through that are allowed.
func Handler(a Allower, o Options) func(http.Handler) http.Handler {
	if o.Who == nil {
		o.Who = Peer
	}
	if o.Refused == nil {
		o.Refused = refused
	}
	if o.Failed == nil {
		o.Failed = failed
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

// Peer returns the address that a request's connection comes from, without the port.
func Peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// SetHeader says in a header what was decided, as draft-ietf-httpapi-ratelimit-headers-10 has
// it: RateLimit-Policy has all limits, and RateLimit the one that is nearest to its end. If
// the call was refused and may be allowed later, Retry-After says when, in seconds.
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

func failed(w http.ResponseWriter, _ *http.Request, _ error) {
	w.Header().Set("Retry-After", "1")
	problem(w, http.StatusServiceUnavailable, "unavailable", "the limits can't be asked now: try again")
}
