package rest

import (
	"net/url"
	"strconv"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/instant"
)

// pointsMost is how many points or values a reply has, unless its caller asks for more.
const pointsMost = 1000

// moment returns the moment that a parameter names, and the zero time if it is not given.
func moment(q url.Values, name string, now time.Time) (time.Time, error) {
	if !q.Has(name) {
		return time.Time{}, nil
	}
	t, err := instant.Parse(q.Get(name), now)
	if err != nil {
		return time.Time{}, invalid(name, err.Error()+", not "+strconv.Quote(q.Get(name)))
	}
	return t, nil
}

// span returns the moments from and to. Dates begin in the time zone that is named, if
// there is one.
func (c *call) span() (from, to time.Time, err error) {
	name := c.query.Get("zone")
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return from, to, invalid("zone", "want the name of a time zone, such as Europe/Berlin, not "+strconv.Quote(name))
	}
	now := c.start.In(zone)
	if from, err = moment(c.query, "from", now); err != nil {
		return from, to, err
	}
	to, err = moment(c.query, "to", now)
	return from, to, err
}

// count returns the number that a parameter names, and 0 if it is not given.
func (c *call) count(name string) (int, error) {
	if !c.query.Has(name) {
		return 0, nil
	}
	n, err := strconv.Atoi(c.query.Get(name))
	if err != nil || n < 1 {
		return 0, invalid(name, "want an integer of at least 1, not "+strconv.Quote(c.query.Get(name)))
	}
	return n, nil
}

// truth returns what a parameter says, and false if it is not given.
func (c *call) truth(name string) (bool, error) {
	if !c.query.Has(name) {
		return false, nil
	}
	v, err := strconv.ParseBool(c.query.Get(name))
	if err != nil {
		return false, invalid(name, "want true or false, not "+strconv.Quote(c.query.Get(name)))
	}
	return v, nil
}

// A point is what was counted in one step of a range.
type point struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Value    int64     `json:"value"`
	Rate     *float64  `json:"rate,omitempty"`
	Exact    bool      `json:"exact"`
	Complete bool      `json:"complete"`
}

// A series is what was counted in a range of time, of a key or of a prefix.
type series struct {
	Key          *string    `json:"key,omitempty"`
	Prefix       *string    `json:"prefix,omitempty"`
	Step         string     `json:"step"`
	StepMS       int64      `json:"step_ms"`
	Zone         string     `json:"zone,omitempty"`
	Points       []point    `json:"points"`
	Sum          int64      `json:"sum"`
	Rate         *float64   `json:"rate,omitempty"`
	Exact        bool       `json:"exact"`
	Complete     bool       `json:"complete"`
	CompleteFrom *time.Time `json:"complete_from,omitempty"`
	AsOf         time.Time  `json:"as_of"`
}

func rangeOf(c *call) error { return c.ranged(c.args.key, false) }

func rangeOfPrefix(c *call) error {
	if !c.query.Has("prefix") {
		return invalid("prefix", "name the counters: ?prefix=…")
	}
	return c.ranged(c.query.Get("prefix"), true)
}

func (c *call) ranged(key string, prefix bool) error {
	o := quipu.RangeOptions{Prefix: prefix, Zone: c.query.Get("zone")}
	var err error
	if o.From, o.To, err = c.span(); err != nil {
		return err
	}
	if c.query.Has("step") {
		if o.Step, err = definition.ParseWidth(c.query.Get("step")); err != nil {
			return invalid("step", err.Error())
		}
	}
	rate, err := c.truth("rate")
	if err != nil {
		return err
	}
	if err := c.take(pointsMost * entryBytes); err != nil {
		return err
	}
	s, err := c.db.Range(c.ctx, key, o)
	if err != nil {
		return err
	}
	out := series{
		Key: &key, Step: s.Step.String(), StepMS: s.Step.Shortest().Milliseconds(), Zone: s.Zone, Points: make([]point, len(s.Points)),
		Sum: s.Sum, Exact: s.Exact, Complete: s.Complete, CompleteFrom: given(s.CompleteFrom), AsOf: s.AsOf.UTC(),
	}
	if prefix {
		out.Key, out.Prefix = nil, &key
	}
	for i, p := range s.Points {
		out.Points[i] = point{p.From.UTC(), p.To.UTC(), p.Value, nil, p.Exact, p.Complete}
		if rate {
			out.Points[i].Rate = new(p.Rate(s.AsOf))
		}
	}
	if rate {
		out.Rate = new(s.Rate())
	}
	return c.json(out)
}

// A dimensionValue is what was counted for one value of a dimension.
type dimensionValue struct {
	Value  *string  `json:"value,omitempty"`
	Values []string `json:"values,omitempty"` // of a dimension of several names
	Count  int64    `json:"count"`
}

// A breakdown is what was counted for each value of a dimension.
type breakdown struct {
	Key          string           `json:"key"`
	Dimension    string           `json:"dimension"`
	Values       []dimensionValue `json:"values"`
	Other        int64            `json:"other"`
	Sum          int64            `json:"sum"`
	Outside      int64            `json:"outside"`
	Exact        bool             `json:"exact"`
	Complete     bool             `json:"complete"`
	CompleteFrom *time.Time       `json:"complete_from,omitempty"`
	From         *time.Time       `json:"from,omitempty"`
	To           *time.Time       `json:"to,omitempty"`
	AsOf         time.Time        `json:"as_of"`
}

func by(c *call) error {
	var o quipu.ByOptions
	var err error
	if o.From, o.To, err = c.span(); err != nil {
		return err
	}
	if o.Top, err = c.count("top"); err != nil {
		return err
	}
	if err := c.take(pointsMost * entryBytes); err != nil {
		return err
	}
	b, err := c.db.By(c.ctx, c.args.key, c.args.dimension, o)
	if err != nil {
		return err
	}
	out := breakdown{
		Key: b.Key, Dimension: b.Dimension, Values: make([]dimensionValue, len(b.Values)), Other: b.Other, Sum: b.Sum, Outside: b.Outside,
		Exact: b.Exact, Complete: b.Complete, CompleteFrom: given(b.CompleteFrom), From: given(b.From), To: given(b.To), AsOf: b.AsOf.UTC(),
	}
	for i, v := range b.Values {
		if out.Values[i] = (dimensionValue{Values: v.Values, Count: v.Count}); v.Values == nil {
			out.Values[i].Value = new(v.Value)
		}
	}
	return c.json(out)
}

// A line is one entry of a ledger.
type line struct {
	Position string            `json:"position"`
	Kind     string            `json:"kind"`
	At       time.Time         `json:"at"`
	Recorded time.Time         `json:"recorded"`
	Delta    *int64            `json:"delta,omitempty"`
	Value    *int64            `json:"value,omitempty"`
	Token    string            `json:"token,omitempty"`
	Actor    string            `json:"actor,omitempty"`
	Erased   bool              `json:"erased,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Source   string            `json:"source,omitempty"`
	Undoes   string            `json:"undoes,omitempty"`
	Undone   bool              `json:"undone,omitempty"`
	Dims     map[string]string `json:"dims,omitempty"`
}

func ledger(c *call) error {
	q := c.query
	o := quipu.LedgerOptions{Cursor: q.Get("cursor"), Actor: q.Get("actor"), Token: q.Get("token")}
	var err error
	if o.From, o.To, err = c.span(); err != nil {
		return err
	}
	if o.Limit, err = c.count("limit"); err != nil {
		return err
	}
	if err := c.take(int64(min(o.Limit, quipu.LedgerMax)) * entryBytes); err != nil {
		return err
	}
	p, err := c.db.Ledger(c.ctx, c.args.key, o)
	if err != nil {
		return err
	}
	out := struct {
		Entries      []line     `json:"entries"`
		CompleteFrom *time.Time `json:"complete_from,omitempty"`
		Cursor       string     `json:"cursor,omitempty"`
	}{Entries: make([]line, len(p.Lines)), CompleteFrom: given(p.CompleteFrom), Cursor: p.Next}
	for i := range p.Lines {
		out.Entries[i] = lineOf(&p.Lines[i])
	}
	return c.json(out)
}

func lineOf(l *quipu.Line) line {
	out := line{
		Position: l.Position, Kind: l.Kind, At: l.At.UTC(), Recorded: l.Recorded.UTC(), Token: l.Token, Actor: l.Actor,
		Erased: l.Erased, Reason: l.Reason, Source: l.Source, Undoes: l.Undoes, Undone: l.Undone,
	}
	if l.DeltaKnown {
		out.Delta = &l.Delta
	}
	if l.ValueKnown {
		out.Value = &l.Value
	}
	for _, d := range l.Dims {
		if out.Dims == nil {
			out.Dims = map[string]string{}
		}
		out.Dims[d.Name] = d.Value
	}
	return out
}

// erase removes a name from the ledgers and the reactions of a namespace.
func erase(c *call) error {
	e, err := c.db.Erase(c.ctx, c.args.who, c.query.Get("cursor"))
	if err != nil {
		return err
	}
	return c.json(struct {
		Who       string `json:"who"`
		Counters  int64  `json:"counters"`
		Lines     int64  `json:"lines"`
		Reactions int64  `json:"reactions"`
		Windows   int64  `json:"windows"`
		Looked    int64  `json:"looked"`
		Complete  bool   `json:"complete"`
		Next      string `json:"next,omitempty"`
	}{c.args.who, e.Counters, e.Lines, e.Reactions, e.Windows, e.Looked, e.Complete, e.Next})
}
