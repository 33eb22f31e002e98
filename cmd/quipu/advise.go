package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/advise"
	"github.com/quipudb/quipu/internal/duration"
)

type adviseCmd struct {
	Writes    *rate          `name:"writes-per-second" help:"Writes a second to the hottest counter." placeholder:"N"`
	Reads     *rate          `name:"reads-per-second" help:"Reads a second from the same counter." placeholder:"N"`
	Accuracy  string         `help:"Accuracy that readers need: exact; bounded (may be old, but includes every write acknowledged before its age); or approximate (a crash may lose some writes)." placeholder:"WORD"`
	Freshness *time.Duration `help:"How old a read may be." placeholder:"TIME"`
	Bounded   bool           `help:"The counter must never cross a floor or a ceiling."`
	Unique    bool           `help:"The counter counts distinct things, each once."`
	Regions   int            `help:"Number of regions that write." default:"1"`
	Nodes     int            `help:"Number of servers." default:"1"`
	Store     string         `help:"Where counts are kept: embedded, postgres, redis, or the URL of a store." placeholder:"STORE"`
	Pattern   word           `help:"Key pattern of the policy." default:"*"`

	Addr   address       `help:"Watch a running server and advise on its hottest counters." placeholder:"ADDR" env:"-"`
	For    time.Duration `help:"How long to watch it." default:"10s"`
	APIKey string        `name:"api-key" help:"API key for the server. Of a comma-separated list, the first is used." placeholder:"KEY"`
	JSON   bool          `name:"json" help:"Print the advice as JSON."`
}

// Help is shown by --help.
func (*adviseCmd) Help() string {
	return `The command prints a policy as YAML for a configuration file. Comments give the reasons, the expected cost, and the
alternatives that were rejected. On a terminal it asks for what is missing. The figures were measured on one machine
with 2 cores (bench/results): take them as proportions, and measure your own with quipu bench.

With --addr it watches a running server. For each of the hottest counters it says which policy applies, what should
change and why. It assumes that readers need what the policy promises, unless you give --accuracy. It counts all reads
of the server as reads of each counter, because a server does not count reads by counter.

Examples:

  quipu advise
  quipu advise --writes-per-second 20000 --reads-per-second 50000 --accuracy bounded --freshness 1s --store postgres
  quipu advise --writes-per-second 500 --reads-per-second 500 --accuracy exact --bounded
  quipu advise --addr http://127.0.0.1:8080
  quipu advise --addr http://127.0.0.1:8080 --accuracy bounded --freshness 1s`
}

// Run advises.
func (c *adviseCmd) Run(ctx context.Context, out *output, command *kong.Context) error {
	needs, err := c.needs()
	if err != nil {
		return err
	}
	if c.Addr != "" {
		return c.advise(ctx, out, command, needs)
	}
	if terminal(os.Stdin) && out.live && c.missing(&needs) != nil {
		q := questions{in: bufio.NewScanner(os.Stdin), out: out.stderr}
		c.ask(&q, func(name string) bool { return given(command, name) }, &needs)
		if q.err != nil {
			return q.err
		}
	}
	if err := c.missing(&needs); err != nil {
		return err
	}
	advice, err := advise.For(needs)
	if err != nil {
		return usage("%w", err)
	}
	if !c.JSON {
		return out.print("%s", strings.TrimSuffix(advice.YAML(), "\n"))
	}
	raw, err := json.Marshal(struct {
		Policy policyJSON `json:"policy"`
		*advise.Advice
	}{policyJSON{Policy: advice.Policy}, advice})
	return printRaw(out, raw, err)
}

// A rate is how often something happens in a second.
type rate float64

// Decode takes a number from 0.
func (r *rate) Decode(ctx *kong.DecodeContext) error {
	s, err := popText(ctx)
	if err != nil {
		return err
	}
	v, err := parseRate(s)
	*r = rate(v)
	return err
}

// parseRate takes a number such as 20000, 20,000, 20k or 1.5M.
func parseRate(text string) (float64, error) {
	digits, unit := strings.ReplaceAll(text, ",", ""), 1.0
	if d, ok := strings.CutSuffix(digits, "k"); ok {
		digits, unit = d, 1e3
	} else if d, ok := strings.CutSuffix(digits, "M"); ok {
		digits, unit = d, 1e6
	}
	v, err := strconv.ParseFloat(digits, 64)
	if v *= unit; err != nil || !(v >= 0 && v <= advise.RateMax) {
		return unknown, fmt.Errorf("%q: want a number from 0 to %s, such as 500, 20k or 1.5M", text, advise.Number(advise.RateMax))
	}
	return v, nil
}

// unknown is a rate that nobody has told yet.
const unknown = -1

// needs returns what the flags say.
func (c *adviseCmd) needs() (advise.Needs, error) {
	n := advise.Needs{
		Pattern: string(c.Pattern), Writes: unknown, Reads: unknown, Accuracy: advise.Accuracy(c.Accuracy), Freshness: unknown,
		Bounded: c.Bounded, Unique: c.Unique, Regions: c.Regions, Nodes: c.Nodes, Store: advise.Engine(c.Store),
	}
	if err := checkPattern(n.Pattern); err != nil {
		return n, usage("--pattern: %w", err)
	}
	if strings.Contains(c.Store, ":") {
		scheme, err := storeScheme(c.Store)
		if err != nil {
			return n, usage("--store: %w", err)
		}
		n.Store = advise.Engine(scheme)
	}
	switch n.Accuracy {
	case "", advise.Exact, advise.Bounded, advise.Approximate:
	default:
		return n, usage("--accuracy %q: want %s, %s or %s", c.Accuracy, advise.Exact, advise.Bounded, advise.Approximate)
	}
	if c.Writes != nil {
		n.Writes = float64(*c.Writes)
	}
	if c.Reads != nil {
		n.Reads = float64(*c.Reads)
	}
	if c.Freshness != nil {
		if n.Freshness = *c.Freshness; n.Freshness < 0 {
			return n, usage("--freshness %s: want a duration such as 5s", n.Freshness)
		}
	}
	return n, nil
}

// checkPattern returns why no policy can have a pattern.
func checkPattern(pattern string) error {
	return quipu.Options{Policies: []quipu.Policy{{Pattern: pattern}}}.Validate()
}

// missing returns an error if something is not known that must be.
func (c *adviseCmd) missing(n *advise.Needs) error {
	var flags []string
	need := func(missing bool, flag string) {
		if missing {
			flags = append(flags, flag)
		}
	}
	if n.Bounded && n.Accuracy == "" {
		n.Accuracy = advise.Exact
	}
	if (n.Accuracy == advise.Exact || n.Bounded) && n.Freshness == unknown {
		n.Freshness = 0
	}
	need(n.Writes == unknown, "--writes-per-second")
	need(n.Reads == unknown, "--reads-per-second")
	need(n.Accuracy == "", "--accuracy")
	need(n.Freshness == unknown && n.Accuracy != "", "--freshness")
	if flags != nil {
		return usage("give %s", strings.Join(flags, ", "))
	}
	return nil
}

// questions are asked on a terminal.
type questions struct {
	in  *bufio.Scanner
	out io.Writer
	err error // the first
}

// ask asks until take takes the answer; no answer is the one in brackets.
func (q *questions) ask(text, usual string, take func(answer string) error) {
	for q.err == nil {
		_, _ = fmt.Fprintf(q.out, "%s [%s] ", text, usual)
		if !q.in.Scan() {
			_, _ = fmt.Fprintln(q.out)
			if q.err = q.in.Err(); q.err == nil {
				q.err = usage("the input ended: give the remaining answers as flags")
			}
			return
		}
		answer := strings.TrimSpace(q.in.Text())
		if answer == "" {
			answer = usual
		}
		err := take(answer)
		if err == nil {
			return
		}
		_, _ = fmt.Fprintln(q.out, err)
	}
}

func (q *questions) rate(text, usual string, to *float64) {
	q.ask(text, usual, func(answer string) (err error) {
		*to, err = parseRate(answer)
		return err
	})
}

func (q *questions) yes(text string, to *bool) {
	q.ask(text, "no", func(answer string) error {
		switch strings.ToLower(answer) {
		case "y", "yes":
			*to = true
		case "n", "no":
		default:
			return errors.New("want yes or no")
		}
		return nil
	})
}

// askWhere asks for the keys, the servers and the store: all have defaults, and
// none may be right.
func (*adviseCmd) askWhere(q *questions, given func(flag string) bool, n *advise.Needs) {
	if !given("pattern") {
		q.ask("Which keys is it for: a key, or a prefix followed by *?", n.Pattern, func(answer string) error {
			n.Pattern = answer
			return checkPattern(answer)
		})
	}
	if !given("nodes") && n.Store != advise.Embedded {
		q.ask("How many servers?", strconv.Itoa(n.Nodes), func(answer string) (err error) {
			if n.Nodes, err = strconv.Atoi(answer); err != nil || n.Nodes < 1 {
				return fmt.Errorf("%q: want a number from 1", answer)
			}
			return nil
		})
	}
	if n.Store != "" {
		return
	}
	stores, usual := "embedded, postgres or redis", advise.Embedded
	if n.Nodes > 1 {
		stores, usual = "postgres or redis, which servers can share", advise.Postgres
	}
	q.ask("Which store: "+stores+"?", string(usual), func(answer string) error {
		switch n.Store = advise.Engine(answer); n.Store {
		case advise.Postgres, advise.Redis:
			return nil
		case advise.Embedded:
			if n.Nodes == 1 {
				return nil
			}
		}
		return fmt.Errorf("%q: want %s", answer, stores)
	})
}

// ask asks for what is not known. A flag that is given is not asked for.
func (c *adviseCmd) ask(q *questions, given func(flag string) bool, n *advise.Needs) {
	c.askWhere(q, given, n)
	if n.Writes == unknown {
		q.rate("Writes a second to the hottest counter?", "100", &n.Writes)
	}
	if n.Reads == unknown {
		q.rate("Reads a second of it?", "1000", &n.Reads)
	}
	if !given("bounded") && !given("unique") && n.Accuracy == "" {
		q.yes("Must it never cross a floor or a ceiling, such as stock?", &n.Bounded)
		if !n.Bounded {
			q.yes("Does it count different things, each once, such as visitors?", &n.Unique)
		}
	}
	if n.Accuracy == "" && !n.Bounded {
		q.ask("What does a reader need: exact, bounded (may be old), approximate (may lack some after a crash)?", "exact", func(answer string) error {
			switch a := advise.Accuracy(answer); a {
			case advise.Exact, advise.Bounded, advise.Approximate:
				n.Accuracy = a
				return nil
			}
			return fmt.Errorf("%q: want exact, bounded or approximate", answer)
		})
	}
	if n.Freshness == unknown && !n.Bounded && n.Accuracy != advise.Exact {
		q.ask("How old may a read be?", "1s", func(answer string) (err error) {
			if n.Freshness, err = duration.Parse(answer); err != nil || n.Freshness < 0 {
				n.Freshness = unknown
				return fmt.Errorf("%q: want a duration such as 5s", answer)
			}
			return nil
		})
	}
}

// A sample is the metrics of a server, by name and labels as they are written.
type sample map[string]float64

func (c *adviseCmd) sample(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r := remote{Addr: c.Addr, APIKey: c.APIKey}
	raw, err := r.once(ctx, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return nil, err
	}
	s := sample{}
	for line := range bytes.Lines(raw) {
		line = bytes.TrimSpace(line)
		at := bytes.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(string(line[at+1:]), 64); err == nil {
			s[string(line[:at])] = v
		}
	}
	if _, ok := s["quipu_writes_refused_total"]; !ok {
		return nil, fmt.Errorf("%s has no metrics of quipu", c.Addr)
	}
	return s, nil
}

// store returns which store has such metrics.
func (s sample) store() advise.Engine {
	if _, ok := s["quipu_postgres_connections"]; ok {
		return advise.Postgres
	}
	if _, ok := s["quipu_redis_calls_total"]; ok {
		return advise.Redis
	}
	return advise.Embedded
}

// rates are what a server does in a second, for all counters.
type rates struct{ reads, resp float64 }

// httpReads are the requests that read counters.
var httpReads = regexp.MustCompile(`^quipu_http_requests_total\{.*(method="GET".*route="[^"]*/counters|route="[^"]*/read")`)

// since returns the rates from an earlier sample to this one.
func (s sample) since(before sample, took time.Duration) (r rates) {
	for name, v := range s {
		rate := (v - before[name]) / took.Seconds()
		switch {
		case name == "quipu_store_reads_total", s.store() != advise.Embedded && httpReads.MatchString(name):
			r.reads += rate
		case name == "quipu_resp_commands_total":
			r.resp += rate
		}
	}
	return r
}
