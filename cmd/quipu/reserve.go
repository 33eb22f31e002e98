package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A reservationReply is a reservation, as the REST API writes it.
type reservationReply struct {
	ID, Who, State    string
	Amount, Committed int64
	ExpiresAt         *time.Time `json:"expires_at"`
}

func (r *reservationReply) expires() string {
	if r.ExpiresAt == nil {
		return "-"
	}
	return r.ExpiresAt.UTC().Format(time.RFC3339)
}

// reservation returns the path of a reservation.
func reservation(id word, rest string) string {
	return "reservations/" + url.PathEscape(string(id)) + rest
}

type reserveCmd struct {
	writeFlags `embed:""`

	Key   word          `arg:"" help:"The counter."`
	N     *number       `arg:"" optional:"" help:"The amount; 1 if not given."`
	TTL   time.Duration `name:"ttl" required:"" help:"Time until the reservation expires and the amount is given back, such as 30s or 15m." placeholder:"TIME"`
	Who   word          `help:"User or order that the reservation is for." placeholder:"NAME"`
	Floor *number       `help:"Refuse the reservation if the counter would end below this. The default is the floor of its definition, or 0." placeholder:"N"`
}

// Help is shown by --help.
func (*reserveCmd) Help() string {
	return `A reserved amount is not available to others. "quipu commit" takes it for good and "quipu release" gives it back. If neither
happens in time, the reservation expires and the amount is given back.

Examples:

  quipu reserve stock.shoes 2 --ttl 10m
  quipu reserve stock.shoes --ttl 10m --who eve --id cart-4711     reserves once, however often you run it
  quipu commit $(quipu reserve tokens:acme 4000 --ttl 1m) 3127     takes 3,127 and gives back the rest`
}

// Run reserves and prints the id.
func (c *reserveCmd) Run(ctx context.Context, out *output) error {
	body := map[string]any{"ttl": c.TTL.String()}
	if c.N != nil {
		body["amount"] = *c.N
	}
	if c.Who != "" {
		body["who"] = c.Who
	}
	if c.Floor != nil {
		body["floor"] = *c.Floor
	}
	q := request{method: http.MethodPost, path: counter(c.Key, "/reserve"), body: body, token: newToken()}
	if c.ID != nil {
		if *c.ID == "" || strings.ContainsFunc(string(*c.ID), unicode.IsControl) {
			return usage("--id %q: want a token without control characters", *c.ID)
		}
		q.token = string(*c.ID)
	}
	var r reservationReply
	raw, err := c.call(ctx, q, &r)
	if err != nil {
		if exitCode(err) == exitUnknown {
			out.hint("it may be reserved; run it again with --id " + strconv.Quote(q.token) + " to be sure")
		}
		return err
	}
	if c.JSON {
		if err := out.print("%s", raw); err != nil {
			return err
		}
	}
	if r.State != "open" {
		return fmt.Errorf("nothing is reserved now: --id %s names reservation %s, which is %s; use another --id to reserve again", strconv.Quote(q.token), r.ID, r.State)
	}
	if c.JSON {
		return nil
	}
	return out.print("%s", r.ID)
}

// step makes a step in the life of a reservation, which may be made again, and prints what
// show takes from the reply.
func (r *remote) step(ctx context.Context, out *output, q request, show func(*reservationReply) string) error {
	q.method, q.token = http.MethodPost, newToken()
	var reply reservationReply
	raw, err := r.call(ctx, q, &reply)
	if err != nil {
		return err
	}
	if r.JSON {
		return out.print("%s", raw)
	}
	return out.print("%s", show(&reply))
}

type commitCmd struct {
	remote `embed:""`

	Reservation word    `arg:"" name:"id" help:"The id of the reservation."`
	N           *number `arg:"" optional:"" help:"Amount to take for good. The rest is given back. The default is all that is reserved."`
}

// Help is shown by --help.
func (*commitCmd) Help() string {
	return `You can run the command again: it takes the amount once. A reservation that was released or has expired can't be committed.

Examples:

  quipu commit AQRj-30Bxuioh2YiTbSzC1pfAWs
  quipu commit AQRj-30Bxuioh2YiTbSzC1pfAWs 3`
}

// Run commits and prints how much was taken.
func (c *commitCmd) Run(ctx context.Context, out *output) error {
	q := request{path: reservation(c.Reservation, "/commit")}
	if c.N != nil {
		q.body = map[string]any{"amount": *c.N}
	}
	return c.step(ctx, out, q, func(r *reservationReply) string { return strconv.FormatInt(r.Committed, 10) })
}

type releaseCmd struct {
	remote `embed:""`

	Reservation word `arg:"" name:"id" help:"The id of the reservation."`
}

// Help is shown by --help.
func (*releaseCmd) Help() string {
	return `Example:

  quipu release AQRj-30Bxuioh2YiTbSzC1pfAWs`
}

// Run releases and prints how much was given back.
func (c *releaseCmd) Run(ctx context.Context, out *output) error {
	return c.step(ctx, out, request{path: reservation(c.Reservation, "/release")}, func(r *reservationReply) string { return strconv.FormatInt(r.Amount, 10) })
}

type extendCmd struct {
	remote `embed:""`

	Reservation word          `arg:"" name:"id" help:"The id of the reservation."`
	TTL         time.Duration `name:"ttl" required:"" help:"Time from now until the reservation expires, such as 30s or 15m." placeholder:"TIME"`
}

// Help is shown by --help.
func (*extendCmd) Help() string {
	return `The command never makes a reservation expire earlier.

Example:

  quipu extend AQRj-30Bxuioh2YiTbSzC1pfAWs --ttl 15m`
}

// Run extends and prints when it expires.
func (c *extendCmd) Run(ctx context.Context, out *output) error {
	q := request{path: reservation(c.Reservation, "/extend"), body: map[string]any{"ttl": c.TTL.String()}}
	return c.step(ctx, out, q, (*reservationReply).expires)
}

type reservationsCmd struct {
	remote `embed:""`

	Key word `arg:"" help:"The counter."`
	Who word `help:"Print only reservations for this user or order." placeholder:"NAME"`
}

// Help is shown by --help.
func (*reservationsCmd) Help() string {
	return `Each line has the id, the amount, the time of expiry and the user or order it is for. The sums (in all, reserved and
available) go to standard error.

Example:

  quipu reservations stock.shoes`
}

// Run prints all pages.
func (c *reservationsCmd) Run(ctx context.Context, out *output) error {
	query := url.Values{"key": {string(c.Key)}, "limit": {"1000"}}
	if c.Who != "" {
		query.Set("who", string(c.Who))
	}
	for first := true; ; first = false {
		var page struct {
			Value, Reserved, Available, Open int64
			Exact                            bool

			Reservations []reservationReply
			Next         string
		}
		raw, err := c.call(ctx, request{method: http.MethodGet, path: "reservations", query: query}, &page)
		if err != nil {
			return err
		}
		if c.JSON {
			if err := out.print("%s", raw); err != nil {
				return err
			}
		} else if first {
			text := fmt.Sprintf("%d in all, %d reserved, %d available", page.Value, page.Reserved, page.Available)
			if !page.Exact {
				text += "; the counter changed during the read, so these numbers are from slightly different moments"
			}
			out.hint(text)
		}
		for i := range page.Reservations {
			r := &page.Reservations[i]
			if c.JSON {
				break
			}
			if err := out.print("%s\t%d\t%s\t%s", r.ID, r.Amount, r.expires(), printable(r.Who)); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		query.Set("cursor", page.Next)
	}
}
