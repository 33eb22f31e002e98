package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type uniqueCmd struct {
	remote `embed:""`
	span   `embed:""`

	Key  word   `arg:"" help:"The counter."`
	By   string `help:"A dimension, to print the users of each of its values." placeholder:"DIMENSION"`
	Top  int    `help:"Print only this many values, those with the most users." placeholder:"N"`
	With string `help:"Another counter: print how many users both counters have." placeholder:"KEY"`
}

// Help is shown by --help.
func (*uniqueCmd) Help() string {
	return `The counter needs a definition with "unique: who", and writes must name the user (--who). A key that PFADD wrote works too.
Without --from and --to the number covers all time. A user who appears in several windows counts once. Small numbers
are exact. Large numbers are estimates, and the range that follows is right in 95 of 100 cases.

Examples:

  quipu unique page.views
  quipu unique page.views --by country --from -7d`
}

// An estimateReply is how many users there were, as the REST API writes it.
type estimateReply struct {
	Count, Lower, Upper int64
	Exact               bool
}

func (e estimateReply) String() string {
	if e.Exact {
		return strconv.FormatInt(e.Count, 10)
	}
	return fmt.Sprintf("%d\t%d to %d", e.Count, e.Lower, e.Upper)
}

// A uniquesReply is the users of a counter, as the REST API writes it.
type uniquesReply struct {
	estimateReply
	Values []struct {
		Value  *string
		Values []string
		estimateReply
	}
	Other   *estimateReply
	Overlap *struct{ Only, Others, Both estimateReply }

	Aligned, Complete bool
	CompleteFrom      *time.Time `json:"complete_from"`
	From, To          *time.Time // nil for all time
}

// Run prints.
func (c *uniqueCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: "uniques/" + url.PathEscape(string(c.Key)), query: c.query()}
	if c.By != "" {
		q.query.Set("by", c.By)
	}
	if c.Top != 0 {
		q.query.Set("top", strconv.Itoa(c.Top))
	}
	if c.With != "" {
		q.query.Set("with", c.With)
	}
	var u uniquesReply
	raw, err := c.call(ctx, q, &u)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	for _, v := range u.Values {
		values := v.Values
		if v.Value != nil {
			values = []string{*v.Value}
		}
		names := make([]string, len(values))
		for i, name := range values {
			if names[i] = printable(name); name == "" {
				names[i] = "(none)"
			}
		}
		if err := out.print("%s\t%s", strings.Join(names, ", "), v.estimateReply); err != nil {
			return err
		}
	}
	if u.Other != nil && u.Other.Count != 0 {
		if err := out.print("(other)\t%s", *u.Other); err != nil {
			return err
		}
	}
	if o := u.Overlap; o != nil {
		if err := out.print("only here\t%s\nonly there\t%s\nboth\t%s", o.Only, o.Others, o.Both); err != nil {
			return err
		}
	}
	label := "all\t"
	if u.Values == nil && u.Overlap == nil {
		label = ""
	}
	if err := out.print("%s%s", label, u.estimateReply); err != nil {
		return err
	}
	switch {
	case u.From == nil || u.To == nil:
	case u.From.Equal(*u.To):
		out.hint(noWindow)
	default:
		w := windows{*u.From, *u.To, u.Aligned, u.Complete, u.CompleteFrom}
		w.hints(out)
	}
	return nil
}
