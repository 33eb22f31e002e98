package rest

import (
	"net/http"
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/ratelimit"
)

// An ask is the body of a question to a limit.
type ask struct {
	who     string
	cost    int64
	options quipu.AllowOptions
}

// allow asks limits.
func allow(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	a, err := decodeAsk(raw)
	if err != nil {
		return err
	}
	if a.options.Token, err = c.token(); err != nil {
		return err
	}
	refused := http.StatusOK
	switch c.query.Get("status") {
	case "429":
		refused = http.StatusTooManyRequests
	case "", "200":
	default:
		return invalid("status", "want 200 or 429, the status of a refusal, not "+strconv.Quote(c.query.Get("status")))
	}
	d, err := c.db.Allow(c.ctx, c.args.name, a.who, a.cost, a.options)
	if err != nil {
		return err
	}
	if d.Replayed {
		c.w.Header()["Idempotent-Replayed"] = replayedTrue
	}
	if d.Allowed {
		refused = http.StatusOK
	}
	return c.decision(&d, refused)
}

// client tells what a client of a limit has left.
func client(c *call) error {
	d, err := c.db.Allow(c.ctx, c.args.name, c.args.who, 0, quipu.AllowOptions{})
	if err != nil {
		return err
	}
	return c.decision(&d, http.StatusOK)
}

// resetClient forgets what a client of a limit has used.
func resetClient(c *call) error {
	if err := c.db.ResetLimit(c.ctx, c.args.name, c.args.who); err != nil {
		return err
	}
	return c.json(struct {
		Name string `json:"name"`
		Who  string `json:"who"`
	}{c.args.name, c.args.who})
}

// decision replies a decision, with the fields of draft-ietf-httpapi-ratelimit-headers-10.
func (c *call) decision(d *quipu.Decision, status int) error {
	header := c.w.Header()
	header["Cache-Control"] = cacheNever
	ratelimit.SetHeader(header, d)
	b := append(c.out[:0], `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"policy":`...)
	b = appendString(b, d.Policy)
	b = append(b, `,"limit":`...)
	b = strconv.AppendInt(b, d.Limit, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	b = append(b, `,"retry_after_ms":`...)
	retry := d.RetryAfter.Milliseconds()
	if d.RetryAfter < 0 {
		retry = -1
	}
	b = strconv.AppendInt(b, retry, 10)
	b = append(b, `,"reset_after_ms":`...)
	b = strconv.AppendInt(b, d.ResetAfter.Milliseconds(), 10)
	b = append(b, `,"source":`...)
	b = appendString(b, d.Source)
	if d.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	c.out = append(b, "}\n"...)
	header["Content-Type"] = typeJSON
	c.send(status)
	return nil
}

var askFields = []string{"who", "cost", "limits", "away", "burn", "dry_run"}

// decodeAsk decodes the body of a question. Without a cost it is for 1.
func decodeAsk(body []byte) (a ask, err error) {
	a.cost = 1
	d := decoder{b: body}
	if d.empty() {
		return a, nil
	}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch d.member("body", &seen, askFields...) {
		case 0:
			a.who = d.text("who")
		case 1:
			a.cost = d.integer("cost")
		case 2:
			a.options.Limits = d.limits()
		case 3:
			a.options.Away = d.away()
		case 4:
			a.options.Burn = d.truth("burn")
		case 5:
			a.options.DryRun = d.truth("dry_run")
		}
	}
	return a, d.end()
}

func (d *decoder) limits() (limits []definition.Limit) {
	d.begin('[', "limits")
	for n := 0; d.more(']', n, "limits"); n++ {
		if n == definition.LimitsMax {
			d.fail(d.i, "limits", "want at most "+strconv.Itoa(definition.LimitsMax)+" of them,")
			return limits
		}
		limits = append(limits, d.limit())
	}
	return limits
}

// worded reads a string that something else can read.
func (d *decoder) worded(field string, to interface{ UnmarshalText([]byte) error }) {
	d.space()
	at := d.i
	if text := d.raw(field); d.err == nil {
		if err := to.UnmarshalText(text); err != nil {
			d.fail(at, field, err.Error())
		}
	}
}

func (d *decoder) limit() (l definition.Limit) {
	d.begin('{', "limits")
	var seen uint
	for n := 0; d.more('}', n, "limits"); n++ {
		switch d.member("limits", &seen, "name", "algorithm", "rate", "per", "burst", "zone") {
		case 0:
			l.Name = d.text("name")
		case 1:
			d.worded("algorithm", &l.Algorithm)
		case 2:
			l.Rate = d.integer("rate")
		case 3:
			d.worded("per", &l.Per)
		case 4:
			l.Burst = d.integer("burst")
		case 5:
			if l.Zone = d.text("zone"); l.Zone == "UTC" {
				l.Zone = ""
			}
		}
	}
	return l
}

func (d *decoder) away() (a definition.Away) {
	d.space()
	if d.i < len(d.b) && d.b[d.i] == '"' {
		d.worded("away", &a.Then)
		return a
	}
	d.begin('{', "away")
	var seen uint
	for n := 0; d.more('}', n, "away"); n++ {
		switch d.member("away", &seen, "then", "servers") {
		case 0:
			d.worded("then", &a.Then)
		case 1:
			a.Servers = int(d.integer("servers"))
		}
	}
	return a
}
