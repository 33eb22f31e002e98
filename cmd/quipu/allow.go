package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type allowCmd struct {
	remote `embed:""`

	Name  word    `arg:"" help:"The limit."`
	Who   word    `arg:"" help:"The client."`
	Cost  *number `arg:"" optional:"" help:"How much the client wants to use; 1 if not given."`
	Peek  bool    `help:"Print what is left and use nothing." xor:"what"`
	Reset bool    `help:"Forget what the client has used." xor:"what"`
	Burn  bool    `help:"If the call is refused, use up what is left, up to the cost." xor:"what"`
	ID    word    `name:"id" help:"Token for this call. A repeated call with the same token returns the first answer." placeholder:"TOKEN"`
}

// Help is shown by --help.
func (*allowCmd) Help() string {
	return `If the limit refuses the call, the command prints the reason and exits with code 1. The limit needs
a definition: see the section on rate limits in docs/decided.md.

Examples:

  quipu allow api eve
  quipu allow tokens eve 1200            a cost
  quipu allow api eve --peek             uses nothing
  quipu allow api eve --reset`
}

// Run asks a limit.
func (c *allowCmd) Run(ctx context.Context, out *output) error {
	cost := number(1)
	switch {
	case c.Cost != nil && (c.Peek || c.Reset):
		return usage("--peek and --reset use nothing: leave out the cost")
	case c.Cost != nil:
		cost = *c.Cost
	}
	limit := "limits/" + url.PathEscape(string(c.Name))
	var d struct {
		Allowed          bool
		Policy           string
		Limit, Remaining int64
		RetryMS          int64 `json:"retry_after_ms"`
		Source           string
	}
	q := request{method: http.MethodPost, path: limit + "/allow", token: string(c.ID), body: map[string]any{
		"who": c.Who, "cost": cost, "burn": c.Burn, "dry_run": c.Peek,
	}}
	if c.Peek {
		q.body.(map[string]any)["cost"], q.reads = 0, true
	}
	if c.Reset {
		q = request{method: http.MethodDelete, path: limit + "/clients/" + url.PathEscape(string(c.Who))}
	}
	raw, err := c.call(ctx, q, &d)
	switch {
	case err != nil:
		return err
	case c.JSON:
		if err := out.print("%s", raw); err != nil {
			return err
		}
	case c.Reset:
		return nil
	case d.Allowed:
		if d.Source != "store" {
			out.hint("the store can't be reached; this answer follows the definition for that case: " + d.Source)
		}
		return out.print("%d", d.Remaining)
	}
	if c.Reset || d.Allowed {
		return nil
	}
	when := "it never is, because the cost is above that"
	if d.RetryMS >= 0 {
		when = "try again in " + (time.Duration(d.RetryMS) * time.Millisecond).String()
	}
	return fmt.Errorf("refused by limit %s: %d of %d are left; %s", strconv.Quote(d.Policy), d.Remaining, d.Limit, when)
}
