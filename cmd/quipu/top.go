package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quipudb/quipu/definition"
)

type topCmd struct {
	remote `embed:""`
	span   `embed:""`

	Name  word          `arg:"" help:"The name of the list in the definition."`
	Key   word          `arg:"" optional:"" help:"The counter that has the list. Leave it out for a list by key, which covers all counters of a pattern."`
	Limit int           `short:"k" help:"Number of items. The default is the number in the definition." placeholder:"N"`
	Trend bool          `help:"Show the items that rose the most, from the range before to this one. Without a range, compare the two windows that ended last."`
	Every time.Duration `help:"Time between updates." default:"1s"`
	Once  bool          `help:"Print the list and exit."`
}

// Help is shown by --help.
func (*topCmd) Help() string {
	return `The list needs a definition, such as top: {name: trending, by: key}. Without --from and --to it covers all time. On a
terminal the command redraws the list until you press q or Ctrl-C. Otherwise it prints the list once.

Each item has its count. If the count is not exact, a lower and an upper bound follow, which always hold. The list
counts additions only: negative amounts and corrections do not lower it.

Examples:

  quipu top trending --from -1h
  quipu top trending --trend
  quipu top countries post:17 --limit 5 --once
  quipu top trending --json | jq .items`
}

// Validate is called after the flags are parsed.
func (c *topCmd) Validate() error {
	switch {
	case c.Limit < 0 || c.Limit > definition.TopMax:
		return fmt.Errorf("--limit: want 1 to %d", definition.TopMax)
	case c.Every <= 0:
		return errors.New("--every: want more than 0")
	}
	return nil
}

// A topReply is a top list, as the REST API writes it.
type topReply struct {
	Items []struct {
		Item         string
		Lower, Upper int64
		Rise         *struct{ Count, Lower, Upper int64 }
	}
	Exact             bool
	Rest, Total       int64
	Aligned, Complete bool
	CompleteFrom      *time.Time `json:"complete_from"`
	From, To          *time.Time // nil for all time
}

// Run shows the list, on a terminal until ctx ends.
func (c *topCmd) Run(ctx context.Context, out *output) error {
	t, raw, err := c.ask(ctx)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if !c.Once && out.stdoutTerminal {
		ctx, quit := context.WithCancel(ctx)
		defer quit()
		defer keys(ctx, quit)()
		lines, err := watch(ctx, out, t.lines(), redrawn{c.Every, c.title, func(ctx context.Context) ([]string, error) {
			next, _, err := c.ask(ctx)
			if err != nil {
				return nil, err
			}
			t = next
			return next.lines(), nil
		}})
		return cmp.Or(err, out.printLines(lines))
	}
	if err := out.printLines(t.lines()); err != nil {
		return err
	}
	if !t.Exact && !c.Trend {
		out.hint(fmt.Sprintf("not exact: an item that is not listed came at most %d times; %d were added in all", t.Rest, t.Total))
	}
	switch {
	case t.From == nil || t.To == nil:
	case t.From.Equal(*t.To):
		out.hint(noWindow)
	default:
		w := windows{*t.From, *t.To, t.Aligned, t.Complete, t.CompleteFrom}
		w.hints(out)
	}
	return nil
}

// ask returns the list, and as the server wrote it.
func (c *topCmd) ask(ctx context.Context) (*topReply, []byte, error) {
	path := "tops/" + url.PathEscape(string(c.Name))
	if c.Key != "" {
		path = "counters/" + url.PathEscape(string(c.Key)) + "/top/" + url.PathEscape(string(c.Name))
	}
	q := request{method: http.MethodGet, path: path, query: c.query()}
	if c.Limit != 0 {
		q.query.Set("k", strconv.Itoa(c.Limit))
	}
	if c.Trend {
		q.query.Set("trend", "true")
	}
	t := &topReply{}
	raw, err := c.call(ctx, q, t)
	return t, raw, err
}

// lines returns what is shown of a list: items, numbers and, where they differ, bounds.
func (t *topReply) lines() []string {
	lines := make([]string, len(t.Items))
	for i, x := range t.Items {
		count, lower, upper, sign := x.Upper, x.Lower, x.Upper, ""
		if x.Rise != nil {
			if count, lower, upper = x.Rise.Count, x.Rise.Lower, x.Rise.Upper; count > 0 {
				sign = "+"
			}
		}
		lines[i] = fmt.Sprintf("%s\t%s%d", printable(x.Item), sign, count)
		if lower != upper {
			lines[i] += fmt.Sprintf("\t%d to %d", lower, upper)
		}
	}
	return lines
}

// title is the line above a list that is redrawn.
func (c *topCmd) title(wrong string) string {
	line := fmt.Sprintf("%s  %s", time.Now().Format(time.TimeOnly), c.Name)
	if c.Key != "" {
		line += " of " + string(c.Key)
	}
	line += fmt.Sprintf("  every %s, q ends", c.Every)
	if wrong != "" {
		line += "  OLD: " + wrong
	}
	return printable(line)
}
