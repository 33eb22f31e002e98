package rpc

import (
	"context"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/envoypb"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// envoyDescriptorsMax is how many descriptors a request may have.
const envoyDescriptorsMax = 100

// envoy is the rate limit service that Envoy asks. A descriptor asks the limit that is called
// DOMAIN:KEY,KEY for the client VALUE,VALUE, by its entries in their order. One that has no
// definition is not limited. What stands before a slash in the domain is the namespace.
type envoy struct {
	envoypb.UnimplementedRateLimitServiceServer
	door *Door
}

// ShouldRateLimit asks a limit for each descriptor. All of them must allow the request.
func (e *envoy) ShouldRateLimit(ctx context.Context, r *envoypb.RateLimitRequest) (*envoypb.RateLimitResponse, error) {
	switch {
	case r.Domain == "":
		return nil, store.Errorf(store.KindInvalid, "the domain is empty")
	case len(r.Descriptors) == 0:
		return nil, store.Errorf(store.KindInvalid, "there is no descriptor")
	case len(r.Descriptors) > envoyDescriptorsMax:
		return nil, store.Errorf(store.KindTooLarge, "%d descriptors: at most %d", len(r.Descriptors), envoyDescriptorsMax)
	}
	namespace, domain, some := strings.Cut(r.Domain, "/")
	if !some {
		namespace, domain = "", r.Domain
	} else if namespace == "" || domain == "" {
		return nil, store.Errorf(store.KindInvalid, "domain %.80q: want NAMESPACE/DOMAIN, or a domain without a slash", r.Domain)
	}
	p := e.door.in(namespace).Port()
	if err := p.Err(); err != nil {
		return nil, err
	}
	reply := &envoypb.RateLimitResponse{OverallCode: envoypb.RateLimitResponse_CODE_OK}
	var asks []port.Ask
	var of []*envoypb.RateLimitResponse_DescriptorStatus // each ask
	for _, d := range r.Descriptors {
		status := &envoypb.RateLimitResponse_DescriptorStatus{Code: envoypb.RateLimitResponse_CODE_OK}
		reply.Statuses = append(reply.Statuses, status)
		ask, limited, err := e.ask(ctx, p, r, domain, d)
		if err != nil {
			return nil, err
		}
		if limited {
			asks, of = append(asks, ask), append(of, status)
		}
	}
	answers := make([]port.Answer, len(asks))
	if err := p.Allow(ctx, asks, answers); err != nil {
		return nil, err
	}
	for i := range answers {
		if err := answers[i].Err; err != nil {
			return nil, err
		}
		if fill(of[i], &answers[i]); !answers[i].Allowed {
			reply.OverallCode = envoypb.RateLimitResponse_CODE_OVER_LIMIT
		}
	}
	return reply, nil
}

// ask returns what a descriptor asks, and false if it is not limited.
func (e *envoy) ask(ctx context.Context, p *port.Port, r *envoypb.RateLimitRequest, domain string, d *envoypb.RateLimitDescriptor) (ask port.Ask, limited bool, err error) {
	if len(d.Entries) == 0 {
		return ask, false, store.Errorf(store.KindInvalid, "a descriptor has no entry")
	}
	ask.Name, ask.Who = nameOf(domain, d)
	ask.Cost = max(int64(r.HitsAddend), 1)
	if d.HitsAddend != nil {
		ask.Cost = int64(min(d.HitsAddend.Value, math.MaxInt64))
	}
	if err := port.CheckAsk(ask.Name, ask.Who, ask.Cost); err != nil {
		return ask, false, err
	}
	if d.Limit == nil {
		ask.By, err = p.FindLimiter(ctx, ask.Name)
		return ask, ask.By != nil, err
	}
	limits := []definition.Limit{{Name: "override", Algorithm: definition.FixedWindow, Rate: int64(d.Limit.RequestsPerUnit)}}
	if limits[0].Per = widthOf(d.Limit.Unit); !limits[0].Per.Fixed() {
		limits[0].Algorithm = definition.Calendar
	}
	if err := definition.CheckLimits(limits); err != nil {
		return ask, false, store.Errorf(store.KindInvalid, "the limit of a descriptor: %w", err)
	}
	ask.By, err = p.NewLimiter(limits, definition.Away{})
	return ask, true, err
}

// nameOf returns the limit and the client of a descriptor. A comma in what they are made of
// can't be taken for one between.
func nameOf(domain string, d *envoypb.RateLimitDescriptor) (name, who string) {
	plain := strings.NewReplacer("%", "%25", ",", "%2C")
	keys, values := make([]string, len(d.Entries)), make([]string, len(d.Entries))
	for i, e := range d.Entries {
		keys[i], values[i] = plain.Replace(e.Key), plain.Replace(e.Value)
	}
	return domain + ":" + strings.Join(keys, ","), strings.Join(values, ",")
}

// units are the lengths of time that Envoy has words for.
var units = map[envoypb.Unit]string{
	envoypb.Unit_UNIT_SECOND: "1s", envoypb.Unit_UNIT_MINUTE: "1m", envoypb.Unit_UNIT_HOUR: "1h", envoypb.Unit_UNIT_DAY: "24h",
	envoypb.Unit_UNIT_WEEK: "168h", envoypb.Unit_UNIT_MONTH: "1mo", envoypb.Unit_UNIT_YEAR: "1y",
}

// widthOf returns a unit as a width, and the zero Width if it is none.
func widthOf(u envoypb.Unit) definition.Width {
	w, err := definition.ParseWidth(units[u])
	if err != nil {
		return definition.Width{}
	}
	return w
}

// unitOf returns the word for a width, if there is one.
func unitOf(w definition.Width) envoypb.Unit {
	for u, text := range units {
		if same, err := definition.ParseWidth(text); err == nil && (same == w || u <= envoypb.Unit_UNIT_DAY && same.Shortest() == w.Shortest()) {
			return u
		}
	}
	return envoypb.Unit_UNIT_UNKNOWN
}

// fill fills in what became of a descriptor.
func fill(status *envoypb.RateLimitResponse_DescriptorStatus, a *port.Answer) {
	if !a.Allowed {
		status.Code = envoypb.RateLimitResponse_CODE_OVER_LIMIT
	}
	d := a.Decision()
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Called() == d.Policy {
			status.CurrentLimit = &envoypb.RateLimitResponse_RateLimit{
				Name: d.Policy, RequestsPerUnit: uint32(min(l.Rate, math.MaxUint32)), Unit: unitOf(l.Per),
			}
		}
	}
	status.LimitRemaining = uint32(min(d.Remaining, math.MaxUint32))
	status.DurationUntilReset = durationpb.New(d.ResetAfter.Truncate(time.Millisecond))
}
