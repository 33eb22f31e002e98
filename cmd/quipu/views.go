package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// span are the flags of a stretch of time.
type span struct {
	From moment `help:"Start of the range: a time such as 2026-10-01T08:00:00Z or 2026-10-01, Unix milliseconds, or -24h for a day ago. The default is the beginning of the data." placeholder:"TIME"`
	To   moment `help:"End of the range. The default is now." placeholder:"TIME"`
}

func (s *span) query() url.Values {
	q := url.Values{}
	s.From.put(q, "from")
	s.To.put(q, "to")
	return q
}

// columns returns how wide the terminal is.
func (o *output) columns(ctx context.Context) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if !o.stdoutTerminal {
		return chartColumns
	}
	c := exec.CommandContext(ctx, "stty", "size")
	c.Stdin = os.Stdin
	size, err := c.Output()
	if _, text, ok := strings.Cut(strings.TrimSpace(string(size)), " "); err == nil && ok {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			return n
		}
	}
	return chartColumns
}

// printCSV prints rows as comma-separated values.
func (o *output) printCSV(rows [][]string) error {
	w := csv.NewWriter(o.stdout)
	err := w.WriteAll(rows)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

type rangeCmd struct {
	remote `embed:""`
	span   `embed:""`

	Key    word   `arg:"" help:"The counter. With --prefix: the prefix of the counters' keys."`
	Step   string `help:"Length of each point, such as 1m, 1h, 1d or 1mo. The default is the shortest that gives at most 1,000 points." placeholder:"WIDTH"`
	Zone   string `help:"Time zone for days, weeks and months and for the dates of --from and --to. The default is the zone of the counter's windows, and UTC for dates." placeholder:"NAME"`
	Prefix bool   `help:"Sum over all counters whose keys start with KEY."`
	Rate   bool   `help:"Also print rates: how much was counted a second."`
	CSV    bool   `name:"csv" help:"Print comma-separated values."`
}

// Help is shown by --help.
func (*rangeCmd) Help() string {
	return `The counter needs a definition with windows: see "quipu policy explain". The command draws a bar for each point. A point
marked ~ is incomplete: it begins or ends within a window, or windows did not count all of its events. If many points
in a row are empty, only the first and the last are drawn. The rate of the current point is the rate so far.

Examples:

  quipu range page.views --from -24h --step 1h
  quipu range page.views --from -1h --rate
  quipu range page.views --from 2026-10-01 --to 2026-11-01 --step 1d --zone Europe/Berlin
  quipu range page. --prefix --from -7d --csv`
}

// A seriesReply is a range, as the REST API writes it.
type seriesReply struct {
	Step, Zone string
	Points     []struct {
		From, To        time.Time
		Value           int64
		Rate            float64
		Exact, Complete bool
	}
	Sum             int64
	Rate            float64
	Exact, Complete bool
	CompleteFrom    *time.Time `json:"complete_from"`
	AsOf            time.Time  `json:"as_of"`
}

// Run draws.
func (c *rangeCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: counter(c.Key, "/range"), query: c.query()}
	if c.Prefix {
		q.path = "range"
		q.query.Set("prefix", string(c.Key))
	}
	if c.Step != "" {
		q.query.Set("step", c.Step)
	}
	if c.Zone != "" {
		q.query.Set("zone", c.Zone)
	}
	if c.Rate {
		q.query.Set("rate", "true")
	}
	var s seriesReply
	raw, err := c.call(ctx, q, &s)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if c.CSV {
		return out.printCSV(s.rows(c.Rate))
	}
	bars := s.bars(c.Zone)
	if c.Rate {
		s.rate(bars)
	}
	if err := out.printLines(folded(chart(bars, out.columns(ctx)), bars)); err != nil {
		return err
	}
	if err := out.print("sum\t%d", s.Sum); err != nil {
		return err
	}
	if c.Rate {
		if err := out.print("rate\t%s", perSecond(s.Rate)); err != nil {
			return err
		}
	}
	if c.Prefix && s.Sum == 0 && strings.HasSuffix(string(c.Key), "*") {
		out.hint("a prefix takes no *")
	}
	n := len(s.Points)
	if n == 0 {
		out.hint(noWindow)
		return nil
	}
	w := windows{s.Points[0].From, s.Points[n-1].To, s.Exact, s.Complete, s.CompleteFrom}
	w.hints(out)
	if s.AsOf.Before(w.from) {
		out.hint("the range is in the future: only events that were sent ahead are counted")
	}
	return nil
}

// noWindow says why a range has nothing that could be counted.
const noWindow = "not complete: no window begins in this range; it ends before all that is kept, or is within one window"

// windows are those that are counted for a range.
type windows struct {
	from, to        time.Time
	exact, complete bool
	completeFrom    *time.Time
}

// hints says how they differ from the range that was asked for.
func (w *windows) hints(out *output) {
	if !w.exact {
		out.hint(fmt.Sprintf("not exact: the range begins or ends within a window; the windows from %s to %s are counted", w.from.Format(time.RFC3339), w.to.Format(time.RFC3339)))
	}
	const why = "earlier windows are not kept any more, or began before their definition was in force"
	switch {
	case w.complete:
	case w.completeFrom == nil || !w.completeFrom.Before(w.to):
		out.hint("not complete: " + why)
	default:
		out.hint("complete only from " + w.completeFrom.Format(time.RFC3339) + " on: " + why)
	}
}

// rows returns the points of a range as rows.
func (s *seriesReply) rows(rate bool) [][]string {
	rows := [][]string{{"from", "to", "value", "exact", "complete"}}
	for _, p := range s.Points {
		rows = append(rows, []string{
			p.From.Format(time.RFC3339), p.To.Format(time.RFC3339), strconv.FormatInt(p.Value, 10),
			strconv.FormatBool(p.Exact), strconv.FormatBool(p.Complete),
		})
	}
	if rate {
		rows[0] = append(rows[0], "rate")
		for i, p := range s.Points {
			rows[i+1] = append(rows[i+1], strconv.FormatFloat(p.Rate, 'f', -1, 64))
		}
	}
	return rows
}

// rate puts the rates of points behind the labels of their bars.
func (s *seriesReply) rate(bars []bar) {
	rows := make([][]string, len(bars))
	for i := range bars {
		rows[i] = []string{bars[i].label, perSecond(s.Points[i].Rate)}
	}
	for i, line := range align(rows, func(column int) bool { return column == 1 }) {
		bars[i].label = line
	}
}

// perSecond writes a rate for people, with three digits that tell something.
func perSecond(rate float64) string {
	digits := 0
	for r := math.Abs(rate); r != 0 && r < 99.95 && digits < 9; r *= 10 {
		digits++
	}
	return strconv.FormatFloat(rate, 'f', digits, 64) + "/s"
}

// bars returns the points of a range, with the times of a zone, or of the windows' own.
func (s *seriesReply) bars(zone string) []bar {
	if zone == "" {
		zone = s.Zone
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		location = time.UTC
	}
	form := time.DateOnly
	for _, p := range s.Points {
		switch at := p.From.In(location); {
		case at.Second() != 0:
			form = time.DateTime
		case form == time.DateOnly && (at.Hour() != 0 || at.Minute() != 0):
			form = "2006-01-02 15:04"
		}
	}
	bars := make([]bar, len(s.Points))
	for i, p := range s.Points {
		bars[i] = bar{label: p.From.In(location).Format(form), value: p.Value, rough: !p.Exact || !p.Complete}
	}
	return bars
}

type byCmd struct {
	remote `embed:""`
	span   `embed:""`

	Key       word `arg:"" help:"The counter."`
	Dimension word `arg:"" help:"The dimension. Several names have commas between them, such as country,platform."`
	Top       int  `help:"Print only this many values, those with the highest counts." placeholder:"N"`
	CSV       bool `name:"csv" help:"Print comma-separated values."`
}

// Help is shown by --help.
func (*byCmd) Help() string {
	return `Without --from and --to the chart covers all time. "(none)" counts events without a value. "(other)" counts the values that
have no line of their own, because they are beyond the limit of the dimension or beyond --top.

Examples:

  quipu by page.views country --top 10
  quipu by page.views country,platform --from -7d`
}

// A breakdownReply is a dimension, as the REST API writes it.
type breakdownReply struct {
	Values []struct {
		Value  *string
		Values []string
		Count  int64
	}
	Other, Sum, Outside int64
	Exact, Complete     bool
	CompleteFrom        *time.Time `json:"complete_from"`
	From, To            *time.Time // nil for all time
}

// Run draws.
func (c *byCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: counter(c.Key, "/by/"+url.PathEscape(string(c.Dimension))), query: c.query()}
	if c.Top != 0 {
		q.query.Set("top", strconv.Itoa(c.Top))
	}
	var b breakdownReply
	raw, err := c.call(ctx, q, &b)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if c.CSV {
		return out.printCSV(b.rows(string(c.Dimension)))
	}
	var bars []bar
	for _, v := range b.Values {
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
		bars = append(bars, bar{label: strings.Join(names, ", "), value: v.Count})
	}
	if b.Other != 0 {
		bars = append(bars, bar{label: "(other)", value: b.Other})
	}
	if err := out.printLines(chart(bars, out.columns(ctx))); err != nil {
		return err
	}
	if err := out.print("sum\t%d", b.Sum); err != nil {
		return err
	}
	if b.Outside != 0 {
		out.hint(fmt.Sprintf("the counter has %d more, which no value counts: it was set, counted before the dimension was defined, or added by SQL", b.Outside))
	}
	switch {
	case b.From == nil || b.To == nil:
	case b.From.Equal(*b.To):
		out.hint(noWindow)
	default:
		w := windows{*b.From, *b.To, b.Exact, b.Complete, b.CompleteFrom}
		w.hints(out)
	}
	return nil
}

// rows returns the values as rows: their names, and their counts. What is counted as
// other has no names.
func (b *breakdownReply) rows(dimension string) [][]string {
	names := strings.Split(dimension, ",")
	rows := [][]string{append(names, "count")}
	for _, v := range b.Values {
		values := v.Values
		if v.Value != nil {
			values = []string{*v.Value}
		}
		rows = append(rows, append(slices.Clip(values), strconv.FormatInt(v.Count, 10)))
	}
	if b.Other != 0 {
		row := make([]string, len(names)+1)
		row[0], row[len(names)] = "(other)", strconv.FormatInt(b.Other, 10)
		rows = append(rows, row)
	}
	return rows
}

// lineReply is an entry of a ledger, as the REST API writes it.
type lineReply struct {
	Position, Kind                       string
	At, Recorded                         time.Time
	Delta, Value                         *int64
	Token, Actor, Reason, Source, Undoes string
	Erased, Undone                       bool
	Dims                                 json.RawMessage
}

type ledgerCmd struct {
	remote `embed:""`
	span   `embed:""`

	Key   word `arg:"" help:"The counter."`
	Limit int  `help:"Maximum number of entries to print; with --all, the size of a page." default:"100"`
	All   bool `help:"Print all entries, page by page."`
	Actor word `help:"Print only entries made by this actor." placeholder:"NAME"`
	Token word `help:"Print only the entries of this token." placeholder:"TOKEN"`
	CSV   bool `name:"csv" help:"Print comma-separated values."`
}

// Help is shown by --help.
func (*ledgerCmd) Help() string {
	return `The command prints the latest entry first. With --json each line is one entry. --from and --to select by the time an entry
was recorded, by the clock of the store.

Examples:

  quipu ledger page.views
  quipu ledger page.views --actor ana --from -7d
  quipu ledger page.views --all --json > page.views.ndjson`
}

// ledgerHead are the columns of a ledger, of which the third and the fourth are numbers.
var ledgerHead = []string{"recorded", "kind", "delta", "value", "actor", "reason", "token", "position", "at", "source", "undoes", "undone", "dims"}

// row returns what is shown of an entry, in the order of ledgerHead.
func (l *lineReply) row() []string {
	number := func(n *int64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatInt(*n, 10)
	}
	actor, undone := l.Actor, ""
	if l.Erased {
		actor = "(erased)"
	}
	if l.Undone {
		undone = "undone"
	}
	return []string{
		l.Recorded.Format(time.RFC3339), l.Kind, number(l.Delta), number(l.Value), actor, l.Reason, l.Token, l.Position,
		l.At.Format(time.RFC3339), l.Source, l.Undoes, undone, string(l.Dims),
	}
}

// Run prints.
func (c *ledgerCmd) Run(ctx context.Context, out *output) error {
	q := c.query()
	q.Set("limit", strconv.Itoa(c.Limit))
	if c.Actor != "" {
		q.Set("actor", string(c.Actor))
	}
	if c.Token != "" {
		q.Set("token", string(c.Token))
	}
	for first := true; ; first = false {
		var p struct {
			Entries []json.RawMessage
			Cursor  string
		}
		if _, err := c.call(ctx, request{method: http.MethodGet, path: counter(c.Key, "/ledger"), query: q}, &p); err != nil {
			return err
		}
		if err := c.print(out, p.Entries, first); err != nil {
			return err
		}
		if first && len(p.Entries) == 0 {
			out.hint("no entries")
		}
		if p.Cursor == "" {
			return nil
		}
		if !c.All {
			out.hint("there may be more: use --limit or --all")
			return nil
		}
		q.Set("cursor", p.Cursor)
	}
}

// print writes a page, the first with the names of its columns.
func (c *ledgerCmd) print(out *output, entries []json.RawMessage, first bool) error {
	var rows [][]string
	if first {
		rows = append(rows, ledgerHead)
	}
	for _, raw := range entries {
		if c.JSON {
			if err := out.print("%s", raw); err != nil {
				return err
			}
			continue
		}
		var l lineReply
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("decode the reply: %w", err)
		}
		rows = append(rows, l.row())
	}
	switch {
	case c.JSON:
		return nil
	case c.CSV:
		return out.printCSV(rows)
	}
	for i, row := range rows {
		rows[i] = shown(row, i == 0 && first)
	}
	return out.printLines(align(rows, func(column int) bool { return column == 2 || column == 3 }))
}

// shown returns the part of a row that people need, as a terminal takes it.
func shown(row []string, head bool) []string {
	const columns = 7 // up to the token
	out := make([]string, columns)
	for i, text := range row[:columns] {
		switch {
		case head:
			out[i] = strings.ToUpper(text)
		case text == "":
			out[i] = "-"
		default:
			out[i] = printable(text)
		}
	}
	if !head && row[11] != "" {
		out[1] += " (" + row[11] + ")"
	}
	return out
}

type eraseCmd struct {
	remote `embed:""`

	Who word `arg:"" help:"The name."`
	Yes bool `help:"Do not ask for confirmation."`
}

// Help is shown by --help.
func (*eraseCmd) Help() string {
	return `The command removes the name as the actor of ledger entries in the whole namespace, and removes the reactions of the user.
Counts, reasons, tokens and values of dimensions stay. It can't be undone. You can run it again.

Example:

  quipu erase user-17 --yes`
}

// Run erases.
func (c *eraseCmd) Run(ctx context.Context, out *output) error {
	if !c.Yes {
		if !terminal(os.Stdin) {
			return usage("erasing can't be undone: give --yes")
		}
		question := fmt.Sprintf("Erase %s from all ledgers and reactions of namespace %s? This can't be undone.", printable(string(c.Who)), printable(string(c.Namespace)))
		if err := confirm(out, os.Stdin, question); err != nil {
			return err
		}
	}
	type part struct {
		Counters, Lines, Reactions, Looked int64
		Next                               string
	}
	var all part
	q := request{method: http.MethodDelete, path: "subjects/" + url.PathEscape(string(c.Who)), query: url.Values{}}
	for first := true; first || all.Next != ""; first = false {
		var p part
		raw, err := c.call(ctx, q, &p)
		if err == nil && c.JSON {
			err = out.print("%s", raw)
		}
		if err != nil {
			return err
		}
		all = part{all.Counters + p.Counters, all.Lines + p.Lines, all.Reactions + p.Reactions, all.Looked + p.Looked, p.Next}
		q.query.Set("cursor", p.Next)
	}
	if c.JSON {
		return nil
	}
	if all.Reactions > 0 {
		out.hint("reactions taken back: " + strconv.FormatInt(all.Reactions, 10))
	}
	return out.print("erased from %d entries of %d counters; looked at %d entries", all.Lines, all.Counters, all.Looked)
}
