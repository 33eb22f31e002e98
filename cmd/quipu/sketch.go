package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
)

type sketchCmd struct {
	Make  sketchMakeCmd  `cmd:"" help:"Make a filter, frequencies or a top list."`
	Show  sketchShowCmd  `cmd:"" help:"Print the properties of a sketch, and the items of a top list."`
	Add   sketchAddCmd   `cmd:"" help:"Add items to a sketch, and print the result for each."`
	Ask   sketchAskCmd   `cmd:"" help:"Print what a sketch knows of items."`
	Merge sketchMergeCmd `cmd:"" help:"Merge sketches into one."`
}

// Help is shown by --help.
func (*sketchCmd) Help() string {
	return `A sketch takes kilobytes where a set or a table takes gigabytes, and its answers have bounds for their error. A filter tells whether an item was added,
frequencies tell how often it was added, and a top list has the most frequent items. "quipu delete KEY" deletes a sketch. "quipu unique" counts
distinct items.`
}

// sketchPath returns the path of a sketch.
func sketchPath(key word, rest string) string {
	return "sketches/" + url.PathEscape(string(key)) + rest
}

type sketchMakeCmd struct {
	remote `embed:""`

	Key  word   `arg:"" help:"The key. It must be absent, or hold a sketch of this kind and shape."`
	Kind string `arg:"" enum:"filter,frequencies,top" help:"filter, frequencies or top."`

	Capacity     int64   `help:"Filter: number of items that it is made for." placeholder:"N"`
	Error        float64 `help:"Filter: the share of items that were never added and may be found by mistake. The default is 0.01." placeholder:"RATE"`
	Growth       int     `help:"Filter: factor by which each further part is larger than the one before. The default is 2." placeholder:"N"`
	Fixed        bool    `help:"Filter: do not grow, and refuse new items when it is full."`
	Epsilon      float64 `help:"Frequencies: maximum error, as a share of the total. The default is 0.001." placeholder:"RATE"`
	Confidence   float64 `help:"Frequencies: probability that the error is within --epsilon. The default is 0.99." placeholder:"RATE"`
	Width        int     `help:"Frequencies: number of counters in a row, instead of --epsilon and --confidence." placeholder:"N"`
	Depth        int     `help:"Frequencies: number of rows." placeholder:"N"`
	Conservative bool    `help:"Frequencies: be more exact for rare items, without subtraction."`
	Limit        int     `short:"k" help:"Top list: number of items, up to 1,000." placeholder:"N"`

	TTL *time.Duration `name:"ttl" help:"Delete the sketch after this time, such as 30s or 7d." placeholder:"TIME"`
}

// Help is shown by --help.
func (*sketchMakeCmd) Help() string {
	return `If the key already holds such a sketch, nothing changes.

Examples:

  quipu sketch make seen filter --capacity 100000 --error 0.001
  quipu sketch make clicks frequencies --epsilon 0.0001 --ttl 7d
  quipu sketch make trending top --limit 10`
}

// Run makes it.
func (c *sketchMakeCmd) Run(ctx context.Context, out *output) error {
	if c.Kind == "filter" && c.Capacity == 0 {
		return usage("--capacity is missing: want the number of items that the filter is to hold, such as --capacity 100000")
	}
	body := map[string]any{"kind": c.Kind}
	for name, n := range map[string]int64{"capacity": c.Capacity, "growth": int64(c.Growth), "width": int64(c.Width), "depth": int64(c.Depth), "k": int64(c.Limit)} {
		if n != 0 {
			body[name] = n
		}
	}
	for name, f := range map[string]float64{"error": c.Error, "epsilon": c.Epsilon, "confidence": c.Confidence} {
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return usage("--%s: want more than 0 and less than 1", name)
		case f != 0:
			body[name] = f
		}
	}
	for name, is := range map[string]bool{"fixed": c.Fixed, "conservative": c.Conservative} {
		if is {
			body[name] = true
		}
	}
	if c.TTL != nil {
		body["ttl"] = c.TTL.String()
	}
	var r struct{ Made bool }
	raw, err := c.call(ctx, request{method: http.MethodPut, path: sketchPath(c.Key, ""), body: body}, &r)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if !r.Made {
		out.hint("it was there already: nothing changed")
	}
	return nil
}

// A sketchItem is what a sketch knows of an item, as the REST API writes it.
type sketchItem struct {
	Item         string
	Added, Found *bool
	Lower, Upper *int64
	Listed       bool
	Expelled     string
}

// line returns what is printed of an item.
func (s *sketchItem) line() string {
	line := printable(s.Item)
	answer := func(is bool, yes, no string) {
		if is {
			no = yes
		}
		line += "\t" + no
	}
	switch {
	case s.Added != nil:
		answer(*s.Added, "new", "found")
	case s.Found != nil:
		answer(*s.Found, "yes", "no")
	case s.Lower != nil && s.Upper != nil:
		if line += "\t" + strconv.FormatInt(*s.Upper, 10); *s.Lower != *s.Upper {
			line += fmt.Sprintf("\t%d to %d", *s.Lower, *s.Upper)
		}
	}
	if s.Expelled != "" {
		line += "\tin the place of " + printable(s.Expelled)
	}
	return line
}

func printItems(out *output, items []sketchItem) error {
	lines := make([]string, len(items))
	for i := range items {
		lines[i] = items[i].line()
	}
	return out.printLines(lines)
}

type sketchShowCmd struct {
	remote `embed:""`

	Key   word `arg:"" help:"The sketch."`
	Limit int  `short:"k" help:"Number of items of a top list. The default is the number that it was made for." placeholder:"N"`
}

// Help is shown by --help.
func (*sketchShowCmd) Help() string {
	return `Each item of a top list has its count. If the count is not exact, a lower and an upper bound follow, which always hold.

Examples:

  quipu sketch show seen
  quipu sketch show trending --limit 3`
}

// Run prints.
func (c *sketchShowCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: sketchPath(c.Key, ""), query: url.Values{}}
	if c.Limit != 0 {
		q.query.Set("k", strconv.Itoa(c.Limit))
	}
	var s struct {
		Shape               sketchShape
		Total, Bytes, Rest  int64
		Exact, Full         bool
		Error               float64
		Capacity            int64
		Epsilon, Confidence float64
		Items               []sketchItem
		Uniques             estimateReply
		ExpiresAt           *time.Time `json:"expires_at"`
	}
	raw, err := c.call(ctx, q, &s)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	about := func(exact bool) string {
		if exact {
			return ""
		}
		return "about "
	}
	lines := []string{"is\t" + s.Shape.String()}
	switch s.Shape.Kind {
	case call.SketchFilter:
		lines = append(lines, fmt.Sprintf("items\t%s%d", about(s.Exact), s.Total), fmt.Sprintf("room\t%d", s.Capacity), fmt.Sprintf("error\t%.3g now", s.Error))
		if s.Full {
			lines = append(lines, "full\tsome items that are new are refused")
		}
	case call.SketchFrequencies:
		lines = append(lines, fmt.Sprintf("total\t%d", s.Total), fmt.Sprintf("error\tat most %.3g too high, in %.4g of 100 cases", s.Epsilon*float64(s.Total), 100*s.Confidence))
	case call.SketchTop:
		lines = append(lines, fmt.Sprintf("total\t%d", s.Total), fmt.Sprintf("rest\t%d at most, of any other item", s.Rest))
	default:
		lines = append(lines, "users\t"+s.Uniques.String())
	}
	lines = append(lines, "takes\t"+formatSize(s.Bytes))
	if s.ExpiresAt != nil {
		lines = append(lines, "ends\t"+s.ExpiresAt.Format(time.RFC3339))
	}
	if err := out.printLines(lines); err != nil {
		return err
	}
	return printItems(out, s.Items)
}

// A sketchShape is what a sketch is made for, as the REST API writes it.
type sketchShape struct {
	Kind                call.SketchKind
	Capacity            int64
	Error               float64
	Growth              int
	Width, Depth, K     int
	Fixed, Conservative bool
}

func (s sketchShape) String() string {
	switch s.Kind {
	case call.SketchFilter:
		grows := fmt.Sprintf("growth %d", s.Growth)
		if s.Fixed {
			grows = "fixed"
		}
		return fmt.Sprintf("filter, capacity %d, error %.3g, %s", s.Capacity, s.Error, grows)
	case call.SketchFrequencies:
		how := ""
		if s.Conservative {
			how = ", conservative"
		}
		return fmt.Sprintf("frequencies, width %d, depth %d%s", s.Width, s.Depth, how)
	case call.SketchTop:
		return fmt.Sprintf("top list of %d", s.K)
	default:
		return string(s.Kind)
	}
}

type sketchAddCmd struct {
	writeFlags `embed:""`

	Key     word           `arg:"" help:"The sketch."`
	Items   []word         `arg:"" help:"Items, or - for one in each line of the standard input."`
	Amount  *number        `help:"How often each item occurred. The default is 1. Frequencies that are not conservative accept negative amounts." placeholder:"N" xor:"amount"`
	Amounts bool           `help:"Read lines with an item, a tab, and how often it occurred from the standard input." xor:"amount"`
	TTL     *time.Duration `name:"ttl" help:"Delete the sketch after this time, such as 30s or 7d." placeholder:"TIME"`
	Quiet   bool           `short:"q" help:"Do not print the items."`
}

// Help is shown by --help.
func (*sketchAddCmd) Help() string {
	return `Either all items of a call are added, or none. For a filter the command prints whether each item was new, and for frequencies and top lists how often it
was added. The command sends the standard input in calls of up to 10,000 items. After an error, run it again with the same --id and the same input:
nothing counts twice.

Examples:

  quipu sketch add seen ana bob
  quipu sketch add clicks buy --amount 5
  quipu sketch add clicks buy --id order-4711     counts once, however often you run it
  cut -f3 access.log | quipu sketch add trending - --quiet`
}

// Validate is called after the flags are parsed.
func (c *sketchAddCmd) Validate() error {
	switch {
	case c.Amounts && !fromInput(c.Items):
		return errors.New("--amounts is about the standard input: give - as the only item")
	case c.Amount != nil && *c.Amount == 0:
		return errors.New("--amount: want another number than 0")
	}
	return nil
}

// fromInput reports whether items are those of the standard input.
func fromInput(items []word) bool { return len(items) == 1 && items[0] == "-" }

// Run adds.
func (c *sketchAddCmd) Run(ctx context.Context, out *output) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	return eachItems(c.Items, os.Stdin, func(nth int, some []string) error {
		items := make([]any, len(some))
		for i, name := range some {
			if items[i], err = c.item(name); err != nil {
				return err
			}
		}
		body := map[string]any{"items": items}
		if c.TTL != nil {
			body["ttl"] = c.TTL.String()
		}
		q := request{method: http.MethodPost, path: sketchPath(c.Key, "/items"), body: body, token: token}
		if nth > 0 {
			q.token = fmt.Sprintf("%s/%d", token, nth)
		}
		var r struct{ Items []sketchItem }
		raw, err := c.call(ctx, q, &r)
		switch {
		case err != nil && exitCode(err) == exitUnknown:
			out.hint("the items may have been added; run it again with --id " + strconv.Quote(token) + " to be sure")
			return err
		case err != nil:
			return err
		case c.JSON:
			return out.print("%s", raw)
		case c.Quiet:
			return nil
		}
		return printItems(out, r.Items)
	})
}

// item returns an item as it is sent.
func (c *sketchAddCmd) item(name string) (any, error) {
	switch {
	case c.Amount != nil:
		return map[string]any{"item": name, "n": *c.Amount}, nil
	case !c.Amounts:
		return name, nil
	}
	name, amount, ok := strings.Cut(name, "\t")
	n, err := strconv.ParseInt(amount, 10, 64)
	if !ok || err != nil || n == 0 {
		return nil, fmt.Errorf("%q: want an item, a tab, and an integer other than 0", name+"\t"+amount)
	}
	return map[string]any{"item": name, "n": n}, nil
}

// itemsBytes is how many bytes of items are sent in a call: in JSON each may take six.
const itemsBytes = 512 << 10

// eachItems calls f for items, or for the lines of in if they are -, as many as go into a call at a time.
func eachItems(items []word, in io.Reader, f func(nth int, some []string) error) error {
	var some []string
	nth, bytes := 0, 0
	take := func(item string) error {
		if len(some) == call.ItemsMax || len(some) > 0 && bytes+len(item) > itemsBytes {
			if err := f(nth, some); err != nil {
				return afterCalls(nth, err)
			}
			nth, some, bytes = nth+1, some[:0], 0
		}
		some, bytes = append(some, item), bytes+len(item)
		return nil
	}
	if !fromInput(items) {
		for _, item := range items {
			if err := take(string(item)); err != nil {
				return err
			}
		}
	} else {
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 64<<10)
		for lines.Scan() {
			if err := take(strings.TrimSuffix(lines.Text(), "\r")); err != nil {
				return err
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("read the standard input: %w", err)
		}
		if len(some) == 0 {
			return nil
		}
	}
	return afterCalls(nth, f(nth, some))
}

// afterCalls returns the error of a call that was not the first.
func afterCalls(nth int, err error) error {
	if err == nil || nth == 0 {
		return err
	}
	return &exitError{exitCode(err), fmt.Errorf("after %d calls that were carried out: %w", nth, err)}
}

type sketchAskCmd struct {
	remote `embed:""`

	Key   word   `arg:"" help:"The sketch."`
	Items []word `arg:"" help:"Items, or - for one in each line of the standard input."`
}

// Help is shown by --help.
func (*sketchAskCmd) Help() string {
	return `For a filter the command prints yes or no: no is certain, and "quipu sketch show" prints the probability that yes is wrong. For frequencies and top lists it
prints how often an item was added and, if that is not exact, the bounds.

Examples:

  quipu sketch ask seen ana
  quipu sketch ask clicks buy sell`
}

// Run asks.
func (c *sketchAskCmd) Run(ctx context.Context, out *output) error {
	return eachItems(c.Items, os.Stdin, func(_ int, some []string) error {
		q := request{method: http.MethodPost, path: sketchPath(c.Key, "/query"), body: map[string]any{"items": some}, reads: true}
		var r struct{ Items []sketchItem }
		raw, err := c.call(ctx, q, &r)
		if err != nil || c.JSON {
			return printRaw(out, raw, err)
		}
		return printItems(out, r.Items)
	})
}

type sketchMergeCmd struct {
	writeFlags `embed:""`

	Key     word           `arg:"" help:"The key of the merged sketch. If it is absent, it is created."`
	From    []word         `arg:"" help:"The sketches to merge, of the same kind and shape."`
	Weights []int64        `help:"Frequencies: factors for the sketches, in their order." placeholder:"N,N"`
	TTL     *time.Duration `name:"ttl" help:"Delete the sketch after this time, such as 30s or 7d." placeholder:"TIME"`
}

// Help is shown by --help.
func (*sketchMergeCmd) Help() string {
	return `The command replaces the content of the key, unless the key is among the merged sketches.

Examples:

  quipu sketch merge clicks:week clicks:monday clicks:tuesday
  quipu sketch merge clicks:all clicks:all clicks:today --id 2026-10-01`
}

// Validate is called after the flags are parsed.
func (c *sketchMergeCmd) Validate() error {
	if n := len(c.Weights); n != 0 && n != len(c.From) {
		return fmt.Errorf("--weights: %d weights for %d sketches", n, len(c.From))
	}
	return nil
}

// Run merges.
func (c *sketchMergeCmd) Run(ctx context.Context, out *output) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	from := make([]any, len(c.From))
	for i, key := range c.From {
		if from[i] = key; len(c.Weights) > 0 {
			from[i] = map[string]any{"key": key, "weight": c.Weights[i]}
		}
	}
	body := map[string]any{"from": from}
	if c.TTL != nil {
		body["ttl"] = c.TTL.String()
	}
	var r struct{ Replayed bool }
	raw, err := c.call(ctx, request{method: http.MethodPost, path: sketchPath(c.Key, "/merge"), body: body, token: token}, &r)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	return nil
}
