package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/instant"
)

// A moment is a time as its flag was given: what is relative is so to the server's clock.
type moment string

// Decode takes a time.
func (m *moment) Decode(ctx *kong.DecodeContext) error {
	s, err := popText(ctx)
	if err == nil {
		_, err = instant.Parse(s, time.Now())
	}
	if err != nil {
		return fmt.Errorf("%q: %w", s, err)
	}
	*m = moment(s)
	return nil
}

// put adds the moment to a query, if it was given.
func (m moment) put(q url.Values, name string) {
	if m != "" {
		q.Set(name, string(m))
	}
}

// fixed returns the moment as a request says it that may be sent again.
func (m moment) fixed() (string, error) {
	t, err := instant.Parse(string(m), time.Now().UTC())
	return t.UTC().Format(time.RFC3339Nano), err
}

// factFlags are what a command says of an event besides its amount.
type factFlags struct {
	At  moment   `help:"Time of the event. It decides which windows count it. The default is now, by the store's clock." placeholder:"TIME"`
	Dim []string `help:"Value of a dimension, such as country=DE. May be given more than once." placeholder:"NAME=VALUE" sep:"none"`
}

// put adds what was given to the body of a request.
func (f *factFlags) put(body map[string]any) error {
	if f.At != "" {
		at, err := f.At.fixed()
		if err != nil {
			return usage("--at: %w", err)
		}
		body["at"] = at
	}
	if len(f.Dim) == 0 {
		return nil
	}
	dims := map[string]string{}
	for _, text := range f.Dim {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := dims[name]; !ok || twice {
			return usage("--dim %q: want NAME=VALUE, each name once", text)
		}
		dims[name] = value
	}
	body["dims"] = dims
	return nil
}

// correctionFlags say why a counter is corrected.
type correctionFlags struct {
	Reason string `help:"Reason, for the ledger." required:""`
	Actor  string `help:"Person or program that makes the correction, for the ledger." placeholder:"NAME"`
}

func (f *correctionFlags) body() map[string]any {
	return map[string]any{"reason": f.Reason, "actor": f.Actor}
}

// whyFlags may say why a counter is changed.
type whyFlags struct {
	Reason string `help:"Reason, for the ledger, if the counter has one."`
	Actor  string `help:"Person or program that makes the change, for the ledger." placeholder:"NAME"`
}

// why adds what was given to the body of a request.
func (f *whyFlags) why(body map[string]any) map[string]any {
	if f.Reason != "" {
		body["reason"] = f.Reason
	}
	if f.Actor != "" {
		body["actor"] = f.Actor
	}
	return body
}

// query returns what was given as parameters.
func (f *whyFlags) query() url.Values {
	q := url.Values{}
	for name, value := range f.why(map[string]any{}) {
		q.Set(name, fmt.Sprint(value))
	}
	return q
}

type adjustCmd struct {
	writeFlags      `embed:""`
	factFlags       `embed:""`
	correctionFlags `embed:""`

	Key word   `arg:"" help:"The counter."`
	N   number `arg:"" help:"The amount, which may be negative."`
}

// Help is shown by --help.
func (*adjustCmd) Help() string {
	return `The ledger of the counter always records a correction, even if its definition records nothing else. Give --at and --dim
to correct the windows and the dimensions that counted the mistake.

Examples:

  quipu adjust page.views -120 --reason "bot traffic" --actor ana
  quipu adjust page.views -120 --reason "bot traffic" --at 2026-10-01T08:00:00Z --dim country=DE`
}

// Run adjusts.
func (c *adjustCmd) Run(ctx context.Context, out *output) error {
	body := c.body()
	body["delta"] = c.N
	if err := c.put(body); err != nil {
		return err
	}
	return c.write(ctx, out, request{method: http.MethodPost, path: counter(c.Key, "/adjust"), body: body}, after)
}

type undoCmd struct {
	remote          `embed:""`
	correctionFlags `embed:""`

	Token word `arg:"" help:"The --id of the write to undo."`
	Key   word `help:"The counter of the write." required:"" placeholder:"KEY"`
}

// Help is shown by --help.
func (*undoCmd) Help() string {
	return `The command adds the opposite amount, with the time and the dimensions of the original write, and records it in the ledger.
A write can be undone once: a second undo changes nothing. The ledger must still have the original write: the counter's
definition says what the ledger records, and for how long.

Example:

  quipu undo order-4711 --key orders --reason "cancelled" --actor ana`
}

// Run undoes.
func (c *undoCmd) Run(ctx context.Context, out *output) error {
	var r struct {
		Applied  int64
		Replayed bool
	}
	raw, err := c.call(ctx, request{
		method: http.MethodPost, path: "tokens/" + url.PathEscape(string(c.Token)) + "/undo",
		query: url.Values{"key": {string(c.Key)}}, body: c.body(),
	}, &r)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if r.Replayed {
		out.hint("the write was undone before: nothing changed")
	}
	return out.print("%d", r.Applied)
}

type recountCmd struct {
	remote          `embed:""`
	correctionFlags `embed:""`

	Key word `arg:"" help:"The counter."`
}

// Help is shown by --help.
func (*recountCmd) Help() string {
	return `"quipu verify" finds the counters that need this. The command takes the total as right, unless all views agree on another
one. The ledger of the counter records each repair. If windows differ from each other, the command leaves them
unchanged and exits with code 1.

Example:

  quipu recount page.views --reason "drift after a disk error" --actor ana`
}

// Run recounts.
func (c *recountCmd) Run(ctx context.Context, out *output) error {
	var r struct {
		Before, After  int64
		Repaired, Left []string
	}
	raw, err := c.call(ctx, request{method: http.MethodPost, path: counter(c.Key, "/recount"), body: c.body()}, &r)
	switch {
	case err != nil || c.JSON:
		err = printRaw(out, raw, err)
	case len(r.Repaired) > 0:
		err = out.print("%s\n%d, was %d", strings.Join(r.Repaired, "\n"), r.After, r.Before)
	case len(r.Left) == 0:
		err = out.print("all adds up to %d", r.After)
	}
	if err != nil || len(r.Left) == 0 {
		return err
	}
	for _, text := range r.Left {
		out.hint("left unchanged: " + text)
	}
	return errors.New("the counter does not add up: nothing shows which of the values left unchanged is right")
}
