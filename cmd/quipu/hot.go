package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/internal/port"
)

// How many characters of a namespace and of a key are shown.
const (
	hotNamespaceMax = 24
	hotKeyMax       = 60
)

// The escapes of terminals that redraw in place: another screen without cursor
// and without wrapped lines, and back; the place of a line; the rest of a line.
const (
	screenOn  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	screenOff = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	lineAt    = "\x1b[%d;1H"
	lineEnd   = "\x1b[K"
	screenEnd = "\x1b[J"
)

type hotCmd struct {
	Addr   address       `help:"Address of the server: HOST:PORT or a URL." default:"http://127.0.0.1:8080"`
	APIKey string        `name:"api-key" help:"API key for the server. Of a comma-separated list, the first is used." placeholder:"KEY"`
	Limit  int           `help:"Number of counters to show." default:"20"`
	Every  time.Duration `help:"Time between updates." default:"1s"`
	Once   bool          `help:"Print one table and exit."`
	JSON   bool          `name:"json" help:"Print the reply of the server once, one counter per line."`
}

// Help is shown by --help.
func (*hotCmd) Help() string {
	return `It shows the hottest counters of all namespaces, the hottest first, then other counters that are split. On a terminal
it redraws the table until you press q or Ctrl-C; otherwise it prints the table once.

  RATE         writes a second through this server, mostly in the last second
  P99          the time that 99 of 100 writes took at most
  WORST SHARD  the same for the slowest part of a split counter
  SHARDS       number of parts that the counter is split into; the server decides this
  GROWTH       how much a split counter grows a second, by the writes of all servers
  ROLLUP       age of the total that is kept for readers, and how often it is refreshed

A server sees only the writes that go through it. If several servers share a store, run the command for each.

Examples:

  quipu hot
  quipu hot --limit 5 --every 250ms
  quipu hot --once --addr https://counters.example
  quipu hot --json | jq .key`
}

// Validate is called after the flags are parsed.
func (c *hotCmd) Validate() error {
	switch {
	case c.Limit < 1 || c.Limit > port.HottestMax:
		return fmt.Errorf("--limit: want 1 to %d", port.HottestMax)
	case c.Every <= 0:
		return errors.New("--every: want more than 0")
	}
	return nil
}

// Run shows hot counters, on a terminal until ctx ends.
func (c *hotCmd) Run(ctx context.Context, out *output) error {
	counters, err := c.ask(ctx)
	if err != nil {
		return err
	}
	var lines []string
	if c.JSON {
		for _, raw := range counters {
			lines = append(lines, string(raw))
		}
	} else if lines, err = hotTable(counters); err != nil {
		return err
	}
	if !c.JSON && !c.Once && out.stdoutTerminal {
		ctx, quit := context.WithCancel(ctx)
		defer quit()
		defer keys(ctx, quit)()
		lines, err = watch(ctx, out, lines, redrawn{c.Every, c.title, func(ctx context.Context) ([]string, error) {
			counters, err := c.ask(ctx)
			if err != nil {
				return nil, err
			}
			return hotTable(counters)
		}})
	}
	for _, line := range lines {
		err = cmp.Or(err, out.print("%s", line))
	}
	return err
}

// keys has the terminal pass on each key as it is pressed, unseen, and calls quit
// at a q. The returned function has the terminal be as it was. Where there is no
// stty, Ctrl-C is left.
func keys(ctx context.Context, quit func()) (restore func()) {
	stty := func(args ...string) (string, error) {
		c := exec.CommandContext(context.WithoutCancel(ctx), "stty", args...)
		c.Stdin = os.Stdin
		state, err := c.Output()
		return strings.TrimSpace(string(state)), err
	}
	if !terminal(os.Stdin) {
		return func() {}
	}
	was, err := stty("-g")
	if err == nil {
		_, err = stty("-icanon", "-echo")
	}
	if err != nil {
		return func() {}
	}
	go quitAt(os.Stdin, quit)
	return func() { _, _ = stty(was) }
}

// quitAt calls quit at the first q that is read.
func quitAt(keys io.Reader, quit func()) {
	for key := make([]byte, 1); ; {
		if _, err := keys.Read(key); err != nil {
			return
		}
		if key[0] == 'q' {
			quit()
			return
		}
	}
}

// ask returns the hottest counters of the server, each as it wrote it.
func (c *hotCmd) ask(ctx context.Context) ([]json.RawMessage, error) {
	var reply struct{ Counters []json.RawMessage }
	_, err := (&remote{Addr: c.Addr, APIKey: c.APIKey}).call(ctx, request{
		method: http.MethodGet, path: "/api/v1/hot", query: url.Values{"limit": {strconv.Itoa(c.Limit)}},
	}, &reply)
	return reply.Counters, err
}

// A redrawn table is one that is drawn again and again.
type redrawn struct {
	every time.Duration
	title func(wrong string) string // the line above it
	ask   func(ctx context.Context) (table []string, err error)
}

// watch redraws a table until ctx ends, and returns the last one. While the
// server can't be asked, that stays and is marked as old.
func watch(ctx context.Context, out *output, table []string, w redrawn) (last []string, err error) {
	if _, err := io.WriteString(out.stdout, screenOn); err != nil {
		return table, err
	}
	defer func() {
		_, e := io.WriteString(out.stdout, screenOff)
		err = errors.Join(err, e)
	}()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	head := w.title("")
	for ctx.Err() == nil {
		if err := drawScreen(out.stdout, head, table); err != nil {
			return table, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		next, err := w.ask(ctx)
		if err == nil {
			table = next
		}
		if head = w.title(""); err != nil {
			head = w.title(err.Error())
		}
	}
	return table, nil
}

// title is the line above a table that is redrawn.
func (c *hotCmd) title(wrong string) string {
	line := fmt.Sprintf("%s  %s  every %s, q ends", time.Now().Format(time.TimeOnly), c.Addr, c.Every)
	if wrong != "" {
		line += "  OLD: " + wrong
	}
	return printable(line)
}

// drawScreen draws lines from the top of a terminal, the last first: those that
// it has no room for all go to its last line, and what belongs there goes there
// after them.
func drawScreen(w io.Writer, head string, table []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, lineAt+screenEnd, len(table)+2)
	for i, line := range slices.Backward(table) {
		fmt.Fprintf(&b, lineAt+"%s"+lineEnd, i+2, line)
	}
	fmt.Fprintf(&b, lineAt+"%s"+lineEnd, 1, head)
	_, err := io.WriteString(w, b.String())
	return err
}

// hotCounter is a hot counter, as the REST API writes it.
type hotCounter struct {
	Namespace        string   `json:"namespace"`
	Key              string   `json:"key"`
	Rate             float64  `json:"rate"`
	Shards           int      `json:"shards"`
	WaitingRatio     float64  `json:"waiting_ratio"`
	ValueRatio       float64  `json:"value_ratio"`
	DecidedRatio     float64  `json:"decided_ratio"`
	P99MS            *float64 `json:"p99_ms,omitempty"`
	SlowestShardMS   *float64 `json:"slowest_shard_p99_ms,omitempty"`
	GrowthRate       *float64 `json:"growth_rate,omitempty"`
	RollupAgeMS      *int64   `json:"rollup_age_ms,omitempty"`
	RollupIntervalMS int64    `json:"rollup_interval_ms,omitempty"`
}

// row returns what is shown of it.
func (h *hotCounter) row() []string {
	growth, rollup := "-", "-"
	if h.GrowthRate != nil {
		growth = formatRate(*h.GrowthRate)
	}
	if h.RollupAgeMS != nil {
		rollup = fmt.Sprintf("%v of %v", milliseconds(*h.RollupAgeMS), milliseconds(h.RollupIntervalMS))
	}
	return []string{
		formatRate(h.Rate), formatMS(h.P99MS), formatMS(h.SlowestShardMS), strconv.Itoa(h.Shards), growth, rollup,
		shorten(printable(h.Namespace), hotNamespaceMax), shorten(printable(h.Key), hotKeyMax),
	}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// formatRate writes a rate for people: below 10 a digit more tells something.
func formatRate(rate float64) string {
	if rate < 9.95 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return thousands(int64(math.Round(rate)))
}

// formatMS writes milliseconds for people, with two digits that tell something.
func formatMS(ms *float64) string {
	if ms == nil {
		return "-"
	}
	d := time.Duration(*ms * float64(time.Millisecond))
	unit := time.Microsecond
	for d >= 100*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// shorten cuts text to so many characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// hotTexts is from which column on a table has text, which begins in line; the
// numbers before end in line.
const hotTexts = 6

// hotTable returns the lines of a table with aligned columns.
func hotTable(counters []json.RawMessage) ([]string, error) {
	// The heads are as wide as what is common below them, so that columns stay where
	// they are when the table is redrawn.
	rows := [][]string{{"     RATE", "    P99", "WORST SHARD", "SHARDS", "   GROWTH", "       ROLLUP", "NAMESPACE", "KEY"}}
	for _, raw := range counters {
		var h hotCounter
		if err := json.Unmarshal(raw, &h); err != nil {
			return nil, fmt.Errorf("decode the reply: %w", err)
		}
		rows = append(rows, h.row())
	}
	return align(rows, func(column int) bool { return column < hotTexts }), nil
}
