package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// definitions and policies are those of the demo.
const (
	definitions = `{"definitions":[
{"pattern":"views:*","windows":[{"every":"1m","keep":"1d"},{"every":"1h","keep":"90d"}],"dimensions":["country","device"],"unique":"who","ledger":"adjustments","top":[{"name":"pages","by":"key"},{"name":"referrers","by":"referrer","k":50}]},
{"pattern":"post:*","choices":["like","love","laugh","angry"]},
{"pattern":"stock:*","floor":0,"reservations":{"per_who":3,"max_ttl":"10m"},"ledger":"adjustments"},
{"pattern":"api:*","limits":[{"name":"burst","algorithm":"bucket","rate":5,"per":"1s","burst":20},{"name":"day","algorithm":"calendar","rate":20000,"per":"1d"}]}
]}`
	policies = `{"policies":[{"pattern":"post:*","preset":"likes"},{"pattern":"viral:*","preset":"views"}]}`
)

// A weight is one of several things, some of which are likelier.
type weight struct {
	name string
	part float64
}

var (
	countries = [...]weight{{"US", 31}, {"DE", 17}, {"IN", 14}, {"BR", 9}, {"GB", 8}, {"FR", 7}, {"JP", 6}, {"PE", 4}, {"NG", 3}, {"AU", 1}}
	devices   = [...]weight{{"phone", 61}, {"desktop", 33}, {"tablet", 6}}
	sites     = [...]weight{{PageKey, 52}, {"views:pricing", 19}, {"views:docs", 17}, {"views:blog/launch", 12}}
	referrers = [...]weight{{"search", 41}, {"news.example", 22}, {"(direct)", 18}, {"forum.example", 9}, {"mail", 6}, {"blog.example", 4}}
	choices   = [...]weight{{"like", 64}, {"love", 21}, {"laugh", 10}, {"angry", 5}}
	posts     = [...]weight{{PostKey, 60}, {"post:41", 20}, {"post:40", 12}, {"post:39", 8}}
)

// pick returns one of them.
func pick(r *rand.Rand, of []weight) string {
	all := 0.0
	for _, w := range of {
		all += w.part
	}
	at := r.Float64() * all
	for _, w := range of {
		if at -= w.part; at < 0 {
			return w.name
		}
	}
	return of[0].name
}

const visitors = 20000

// visitor returns a visitor: some come again and again.
func visitor(r *rand.Rand) string {
	return "u" + strconv.Itoa(int(math.Pow(r.Float64(), 2.2)*visitors))
}

// tide makes a load rise and fall, as those of people do: about 1 on average.
func tide(since time.Duration) float64 {
	t := since.Seconds()
	return 1 + 0.25*math.Sin(t/17) + 0.15*math.Sin(t/5.3) + 0.1*math.Sin(t/1.7)
}

// An event is an operation of a batch.
type event struct {
	Key   string            `json:"key,omitempty"`
	Delta int               `json:"delta,omitempty"`
	Who   string            `json:"who,omitempty"`
	At    string            `json:"at,omitempty"`
	Dims  map[string]string `json:"dims,omitempty"`
}

const (
	batchMax = 500

	viewsPart = 0.56 // of all calls
)

// past counts what was looked at in the day before.
func (l *Load) past(ctx context.Context, now time.Time) error {
	var batch []event
	send := func() error {
		body, err := json.Marshal(map[string]any{"ops": batch})
		if err != nil {
			return err
		}
		batch = batch[:0]
		return l.call(ctx, http.MethodPost, "/batch", string(body))
	}
	for minute := 23 * 60; minute > 0; {
		step := 1 // Each minute of the last hours, for those who look at minutes.
		if minute > 7*60 {
			step = 10
		}
		at := now.Add(-time.Duration(minute) * time.Minute)
		// Fewer people look at night, and the launch was some hours ago.
		day := 0.75 + 0.4*math.Sin(2*math.Pi*(float64(at.Hour())-9)/24)
		launch := 1.5 * math.Exp(-math.Pow(float64(minute-170)/45, 2))
		for _, site := range sites {
			views := l.Rate * 60 * float64(step) * viewsPart * site.part / 100 * (day + launch)
			for range 2 {
				batch = append(batch, event{
					Key: site.name, Delta: 1 + int(views/2*(0.8+0.4*l.rng.Float64())), Who: visitor(l.rng), At: at.UTC().Format(time.RFC3339),
					Dims: map[string]string{"country": pick(l.rng, countries[:]), "device": pick(l.rng, devices[:])},
				})
			}
		}
		minute -= step
		if len(batch) >= batchMax {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// next returns what is to be done next.
func (l *Load) next(since time.Duration) job {
	switch n := l.rng.IntN(1000); {
	case n < 1000*viewsPart:
		return l.view()
	case n < 760:
		return l.react()
	case n < 880:
		return l.search()
	case n < 985:
		return l.look()
	case n < 997:
		return l.sale.next(l, since)
	default:
		return l.correct()
	}
}

// view counts a view. Some callers time out, and send it again under its token.
func (l *Load) view() job {
	body, _ := json.Marshal(event{Who: visitor(l.rng), Dims: map[string]string{
		"country": pick(l.rng, countries[:]), "device": pick(l.rng, devices[:]), "referrer": pick(l.rng, referrers[:]),
	}})
	key, again := url.PathEscape(pick(l.rng, sites[:])), l.rng.IntN(25) == 0
	token := "view-" + strconv.FormatUint(l.rng.Uint64(), 36)
	return func(ctx context.Context) error {
		header := []string{"Prefer", "return=minimal"}
		if again {
			header = append(header, "Idempotency-Key", token)
			if err := l.call(ctx, http.MethodPost, "/counters/"+key+"/increment", string(body), header...); err != nil {
				return err
			}
		}
		return l.call(ctx, http.MethodPost, "/counters/"+key+"/increment", string(body), header...)
	}
}

// react chooses a reaction, or takes it back.
func (l *Load) react() job {
	path := fmt.Sprintf("/reactions/%s/%s", url.PathEscape(pick(l.rng, posts[:])), visitor(l.rng))
	if l.rng.IntN(20) == 0 {
		return func(ctx context.Context) error {
			return l.call(ctx, http.MethodDelete, path, "", "Prefer", "return=minimal")
		}
	}
	body := fmt.Sprintf(`{"choice":%q}`, pick(l.rng, choices[:]))
	return func(ctx context.Context) error {
		return l.call(ctx, http.MethodPut, path, body, "Prefer", "return=minimal")
	}
}

// search asks a limit for one of the clients of an API, of which one asks too often.
func (l *Load) search() job {
	who := "client-" + strconv.Itoa(1+int(math.Pow(l.rng.Float64(), 3)*6))
	body := fmt.Sprintf(`{"who":%q}`, who)
	return func(ctx context.Context) error {
		return l.call(ctx, http.MethodPost, "/limits/"+url.PathEscape(LimitKey)+"/allow", body)
	}
}

// look reads a counter.
func (l *Load) look() job {
	key := pick(l.rng, sites[:])
	if l.rng.IntN(3) == 0 {
		key = ViralKey
	}
	return func(ctx context.Context) error {
		return l.call(ctx, http.MethodGet, "/counters/"+url.PathEscape(key), "")
	}
}

// correct takes back what bots have counted.
func (l *Load) correct() job {
	n := -1 - l.rng.IntN(5)
	body := fmt.Sprintf(`{"delta":%d,"reason":"views of a bot","actor":"fraud-filter","dims":{"country":%q,"device":"desktop"}}`, n, pick(l.rng, countries[:]))
	return func(ctx context.Context) error {
		return l.call(ctx, http.MethodPost, "/counters/"+url.PathEscape(PageKey)+"/adjust", body)
	}
}
