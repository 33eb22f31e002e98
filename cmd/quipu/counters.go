package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/quipudb/quipu"
)

// writeFlags are what every write takes.
type writeFlags struct {
	remote `embed:""`

	ID *word `name:"id" help:"Token for this write. A repeated write with the same token counts once. The default is a new token for each run." placeholder:"TOKEN"`
}

// receipt is what the server says of a write.
type receipt struct {
	Value, Before int64
	Late          bool
	Duplicate     bool

	DuplicateError float64 `json:"duplicate_error"`
}

// token returns the token of the write.
func (f *writeFlags) token() (string, error) {
	switch {
	case f.ID == nil:
		return newToken(), nil
	case *f.ID == "":
		return "", usage("--id is empty: leave it out to have a token made")
	case strings.ContainsFunc(string(*f.ID), unicode.IsControl):
		return "", usage("--id %q: want a token without control characters", *f.ID)
	}
	return string(*f.ID), nil
}

// write makes a write and prints what show takes from its receipt.
func (f *writeFlags) write(ctx context.Context, out *output, q request, show func(receipt) int64) error {
	var err error
	if q.token, err = f.token(); err != nil {
		return err
	}
	var r receipt
	raw, err := f.call(ctx, q, &r)
	if err != nil {
		if exitCode(err) == exitUnknown {
			out.hint("the write may have counted; run it again with --id " + strconv.Quote(q.token) + " to be sure")
		}
		return err
	}
	if f.JSON {
		return out.print("%s", raw)
	}
	switch {
	case r.Duplicate && r.DuplicateError > 0:
		out.hint(fmt.Sprintf("nothing was added: the user was counted in this window before (one new user in %.0f is mistaken for one who was)", 1/r.DuplicateError))
	case r.Duplicate:
		out.hint("nothing was added: the user was counted in this window before")
	}
	if r.Late {
		out.hint("the event is late: windows that no longer keep its time leave it out or count it at a later time, as its definition says")
	}
	return out.print("%d", show(r))
}

func after(r receipt) int64  { return r.Value }
func before(r receipt) int64 { return r.Before }

type addCmd struct {
	writeFlags `embed:""`
	factFlags  `embed:""`

	Key      word           `arg:"" help:"The counter."`
	N        *number        `arg:"" optional:"" help:"The amount, which may be negative; 1 if not given."`
	Floor    *number        `help:"Refuse the write if the counter would end below this value." placeholder:"N"`
	Ceiling  *number        `help:"Refuse the write if the counter would end above this value." placeholder:"N"`
	Saturate bool           `help:"Instead of refusing the write, add as much as the floor or the ceiling allows, including those of the counter's definition."`
	TTL      *time.Duration `name:"ttl" help:"Delete the counter after this time, such as 30s or 7d." placeholder:"TIME"`
	Who      word           `help:"User who caused the event." placeholder:"NAME"`
}

// Help is shown by --help.
func (*addCmd) Help() string {
	return `Examples:

  quipu add page.views
  quipu add stock.shoes -3
  quipu add orders 1 --id order-4711     counts once, however often you run it
  quipu add stock.shoes -3 --floor 0     takes three or none
  quipu add hits.10:25 --ttl 1h          deletes the counter after an hour
  quipu add page.views --at 2026-10-01T08:00:00Z --dim country=DE
  quipu add -- -5 1                      a key that looks like a flag`
}

// Run adds.
func (c *addCmd) Run(ctx context.Context, out *output) error {
	delta := number(1)
	if c.N != nil {
		delta = *c.N
	}
	body := map[string]any{"delta": delta}
	if c.Floor != nil {
		body["floor"] = *c.Floor
	}
	if c.Ceiling != nil {
		body["ceiling"] = *c.Ceiling
	}
	if c.Saturate {
		body["saturate"] = true
	}
	if c.TTL != nil {
		body["ttl"] = c.TTL.String()
	}
	if c.Who != "" {
		body["who"] = c.Who
	}
	if err := c.put(body); err != nil {
		return err
	}
	return c.write(ctx, out, request{
		method: http.MethodPost, path: counter(c.Key, "/increment"), body: body,
	}, after)
}

type setCmd struct {
	writeFlags `embed:""`
	whyFlags   `embed:""`

	Key       word    `arg:"" help:"The counter."`
	N         number  `arg:"" help:"The new value."`
	IfVersion *uint64 `help:"Set the counter only if it has this version, as get --exact --json prints it. 0 means that the counter does not exist. A counter that is split has no version until you try this once." placeholder:"VERSION"`
}

// Help is shown by --help.
func (*setCmd) Help() string {
	return `Examples:

  quipu set stock.shoes 100
  quipu set stock.shoes 90 --if-version 17
  quipu set stock.shoes 100 --if-version 0     only if there is no such counter`
}

// Run sets.
func (c *setCmd) Run(ctx context.Context, out *output) error {
	header := map[string]string{}
	switch {
	case c.IfVersion == nil:
	case *c.IfVersion == 0:
		header["If-None-Match"] = "*"
	default:
		header["If-Match"] = `"` + strconv.FormatUint(*c.IfVersion, 10) + `"`
	}
	return c.write(ctx, out, request{
		method: http.MethodPut, path: counter(c.Key, ""), header: header,
		body: c.why(map[string]any{"value": c.N}),
	}, after)
}

type resetCmd struct {
	writeFlags `embed:""`
	whyFlags   `embed:""`

	Key word `arg:"" help:"The counter."`
}

// Help is shown by --help.
func (*resetCmd) Help() string {
	return `No increment is lost: each one is either in the printed value or in the new count from 0.

Example:

  quipu reset errors.today`
}

// Run resets.
func (c *resetCmd) Run(ctx context.Context, out *output) error {
	return c.write(ctx, out, request{method: http.MethodPost, path: counter(c.Key, "/reset"), body: c.why(map[string]any{})}, before)
}

type deleteCmd struct {
	writeFlags `embed:""`
	whyFlags   `embed:""`

	Key word `arg:"" help:"The counter."`
}

// Help is shown by --help.
func (*deleteCmd) Help() string {
	return `Deleting a counter that does not exist is no error.

Example:

  quipu delete errors.today`
}

// Run deletes.
func (c *deleteCmd) Run(ctx context.Context, out *output) error {
	return c.write(ctx, out, request{method: http.MethodDelete, path: counter(c.Key, ""), query: c.query()}, before)
}

// count is a counter as it was read.
type count struct {
	Key          string
	Value        int64
	Lower, Upper *int64
	Exact        bool
	Complete     bool
	Source       string
	AsOf         time.Time `json:"as_of"`
	StalenessMS  int64     `json:"staleness_ms"`
}

// sourceWindows is the source of a value that was asked for as of a time.
const sourceWindows = "windows"

// doubts says how far the value can be trusted, "" if that is all the way.
func (c *count) doubts() string {
	if c.Exact {
		return ""
	}
	if c.Source == sourceWindows {
		s := fmt.Sprintf("%s is not exact: as of %s, by its windows", printable(c.Key), c.AsOf.Format(time.RFC3339))
		if !c.Complete {
			s += ", which lack events since"
		}
		return s
	}
	s := fmt.Sprintf("%s is not exact: as of %v ago", printable(c.Key), milliseconds(c.StalenessMS))
	if c.Lower != nil && c.Upper != nil {
		s += fmt.Sprintf(", when it was from %d to %d", *c.Lower, *c.Upper)
	}
	return s
}

// page is a list of counters, each also as the server wrote it.
type page struct {
	Counters []json.RawMessage
	Next     string
}

// print writes counters, one a line: the value alone, whatever a policy makes of
// it, for scripts; what else is to be said of it goes where people look.
func (p *page) print(out *output, asJSON, named bool) error {
	for _, raw := range p.Counters {
		var c count
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("decode the reply: %w", err)
		}
		line := strconv.FormatInt(c.Value, 10)
		switch {
		case asJSON:
			line = string(raw)
		case named:
			line = printable(c.Key) + "\t" + line
		}
		if err := out.print("%s", line); err != nil {
			return err
		}
		if doubts := c.doubts(); doubts != "" && !asJSON {
			out.hint(doubts)
		}
	}
	return nil
}

// printable returns a key as it is, or quoted as in Go if it has what would
// break a line or steer a terminal, or if it looks quoted already.
func printable(key string) string {
	if strings.HasPrefix(key, `"`) || strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

type getCmd struct {
	remote `embed:""`

	Keys         []word         `arg:"" name:"key" help:"The counters."`
	Exact        bool           `help:"Include every write acknowledged before this read."`
	Session      *string        `help:"Include the write that returned this session (add --json prints it)." placeholder:"SESSION"`
	MaxStaleness *time.Duration `help:"Accept a value up to this old." placeholder:"TIME"`
	At           moment         `help:"Print the values at this time, as far as the counters' windows go back." placeholder:"TIME"`
}

// Help is shown by --help.
func (*getCmd) Help() string {
	return `For one key it prints the value. For several it prints a line for each: the key, a tab and the value. A counter that
does not exist is 0. If a value is not exact, its age and bounds go to standard error; --json has them too. Keys with
control characters are quoted.

Examples:

  quipu get page.views
  quipu get page.views page.likes --exact
  quipu get page.views --max-staleness 5s
  quipu get page.views --at 2026-10-01
  quipu get page.views --json`
}

// Run reads.
func (c *getCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodPost, path: "read", reads: true, body: map[string][]word{"keys": c.Keys}, query: url.Values{}}
	if c.Exact {
		q.query.Set("read", "exact")
	}
	if c.Session != nil {
		if *c.Session == "" { // more likely a variable that was not set than no wish
			return usage("--session is empty: leave it out to read what the policy promises")
		}
		q.query.Set("session", *c.Session)
	}
	if c.MaxStaleness != nil {
		q.query.Set("max_staleness", c.MaxStaleness.String())
	}
	if c.At != "" {
		if len(q.query) > 0 {
			return usage("--at can't be combined with --exact, --session or --max-staleness")
		}
		return c.earlier(ctx, out, q.query)
	}
	var p page
	if _, err := c.call(ctx, q, &p); err != nil {
		return err
	}
	return p.print(out, c.JSON, len(c.Keys) > 1)
}

// earlier prints what the counters were at a time.
func (c *getCmd) earlier(ctx context.Context, out *output, query url.Values) error {
	c.At.put(query, "at")
	var p page
	for _, key := range c.Keys {
		var one json.RawMessage
		if _, err := c.call(ctx, request{method: http.MethodGet, path: counter(key, ""), query: query}, &one); err != nil {
			return err
		}
		p.Counters = append(p.Counters, one)
	}
	return p.print(out, c.JSON, len(c.Keys) > 1)
}

type listCmd struct {
	remote `embed:""`

	Prefix word `arg:"" optional:"" help:"Only keys with this prefix."`
	Limit  int  `help:"Maximum number of counters to print; with --all, the size of a page." default:"100"`
	All    bool `help:"Print all counters, page by page."`
	Sum    bool `help:"Print only the number of counters and their sum."`
}

// Help is shown by --help.
func (*listCmd) Help() string {
	return `Each line has the key, a tab and the value, in the byte order of the keys. Keys with control characters are quoted;
--json prints every key as it is. --sum reads the counters one after the other, so it includes some of the writes that
arrive in the meantime.

Examples:

  quipu list
  quipu list page. --limit 10
  quipu list page. --sum
  quipu list --all --json`
}

// Validate is called after the flags are parsed.
func (c *listCmd) Validate() error {
	if c.Limit < 1 || c.Limit > quipu.PageMax {
		return fmt.Errorf("--limit: want 1 to %d", quipu.PageMax)
	}
	return nil
}

// Run lists.
func (c *listCmd) Run(ctx context.Context, out *output) error {
	if c.Sum {
		return c.sum(ctx, out)
	}
	q := url.Values{"prefix": {string(c.Prefix)}, "limit": {strconv.Itoa(c.Limit)}}
	for {
		var p page
		if _, err := c.call(ctx, request{method: http.MethodGet, path: "counters", query: q}, &p); err != nil {
			return err
		}
		if err := p.print(out, c.JSON, true); err != nil {
			return err
		}
		c.hintPattern(out, int64(len(p.Counters)))
		if p.Next == "" {
			return nil
		}
		if !c.All {
			out.hint("there may be more: use --limit or --all")
			return nil
		}
		q.Set("cursor", p.Next)
	}
}

// sum prints what the counters add up to. A server sums as many as it can within
// the time of a call.
func (c *listCmd) sum(ctx context.Context, out *output) error {
	type part struct {
		Prefix   string `json:"prefix"`
		Sum      int64  `json:"sum"`
		Keys     int64  `json:"keys"`
		Exact    bool   `json:"exact"`
		Complete bool   `json:"complete"`
		AsOf     string `json:"as_of"`
		Next     string `json:"next,omitempty"`
	}
	var all part
	q := url.Values{"prefix": {string(c.Prefix)}}
	for first := true; first || all.Next != ""; first = false {
		var p part
		if _, err := c.call(ctx, request{method: http.MethodGet, path: "sum", query: q}, &p); err != nil {
			return err
		}
		if first {
			all = p
		} else {
			sum := all.Sum + p.Sum
			if (sum > all.Sum) != (p.Sum > 0) && p.Sum != 0 {
				return fmt.Errorf("the first %d counters add up to more than an int64", all.Keys+p.Keys)
			}
			all.Sum, all.Keys, all.Complete, all.Next = sum, all.Keys+p.Keys, p.Complete, p.Next
			all.Exact = all.Complete // What is read later counts what was acknowledged before the first call too.
		}
		q.Set("cursor", p.Next)
	}
	if c.JSON {
		raw, err := json.Marshal(all)
		return errors.Join(err, out.print("%s", raw))
	}
	c.hintPattern(out, all.Keys)
	return out.print("sum\t%d\nkeys\t%d", all.Sum, all.Keys)
}

// hintPattern says what may be wrong if nothing starts with a prefix.
func (c *listCmd) hintPattern(out *output, found int64) {
	if prefix, ok := strings.CutSuffix(string(c.Prefix), "*"); ok && found == 0 {
		out.hint("no key starts with " + strconv.Quote(string(c.Prefix)) + ": a prefix takes no *; try quipu list " + printable(prefix))
	}
}

// tokenFlags are what the commands on tokens take.
type tokenFlags struct {
	remote `embed:""`

	Token word `arg:"" help:"The token: the --id of a write."`
	Key   word `help:"The counter of the write." required:"" placeholder:"KEY"`
}

// ask prints what the server says of the token.
func (f *tokenFlags) ask(ctx context.Context, out *output, method, rest string) error {
	var fate struct {
		State, Before string
		Choice        *string
	}
	raw, err := f.call(ctx, request{
		method: method, path: "tokens/" + url.PathEscape(string(f.Token)) + rest,
		query: url.Values{"key": {string(f.Key)}},
	}, &fate)
	if err != nil {
		return err
	}
	if f.JSON {
		return out.print("%s", raw)
	}
	if fate.Choice != nil {
		out.hint(fmt.Sprintf("choice %q, before %q", *fate.Choice, fate.Before))
	}
	return out.print("%s", fate.State)
}

type lookupCmd struct {
	tokenFlags `embed:""`
}

// Help is shown by --help.
func (*lookupCmd) Help() string {
	return `The command changes nothing. It prints one word:

  applied   the write counted
  refused   a floor, a ceiling or a condition refused the write
  settled   the write did not count, and never will
  expired   the token is too old to tell
  unknown   the write did not count yet; it may still arrive

Only counters with a definition remember that a write was refused.

Example:

  quipu lookup order-4711 --key orders`
}

// Run looks up.
func (c *lookupCmd) Run(ctx context.Context, out *output) error {
	return c.ask(ctx, out, http.MethodGet, "")
}

type settleCmd struct {
	tokenFlags `embed:""`
}

// Help is shown by --help.
func (*settleCmd) Help() string {
	return `The command prints "applied" if the write counted, "refused" if the counter remembers that it refused the write, and
"settled" if the write did not count. A settled write never counts, even if it arrives later.

Example:

  quipu settle order-4711 --key orders`
}

// Run settles.
func (c *settleCmd) Run(ctx context.Context, out *output) error {
	return c.ask(ctx, out, http.MethodPost, "/settle")
}
