package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/load/chart"
)

// A record is a result with what it takes to repeat it.
type record struct {
	result
	Date    string  `json:"date"`
	Command string  `json:"command"`
	Rounds  int     `json:"rounds"`
	Machine machine `json:"machine"`
}

// report prints the result and, unless the run was a quick one, writes it to
// the directory of results.
func (s *session) report() error {
	m, err := thisMachine(s.ctx, s.dir)
	if err != nil {
		return err
	}
	r := record{s.result, time.Now().UTC().Format("2006-01-02 15:04 MST"), s.command, s.rounds, m}
	text := r.markdown()
	if s.quick {
		_, err = fmt.Fprintf(s.out, "\nA quick run: these numbers mean nothing.\n\n%s\n", text)
		return err
	}
	if _, err := fmt.Fprintf(s.out, "\n%s\n", text); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.results, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.results, s.Figure+".md"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.results, s.Figure+".json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if len(s.Panels) == 0 {
		return nil
	}
	var svg bytes.Buffer
	if err := chart.Write(&svg, s.Figure, s.Panels...); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.results, s.Figure+".svg"), svg.Bytes(), 0o644)
}

func (r *record) markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s\n\n%s\n", r.Figure, r.About)
	if len(r.Panels) > 0 {
		line("![charts](%s.svg)\n", r.Figure)
	}
	if len(r.Tables) > 0 {
		for _, t := range r.Tables {
			line("## %s\n\n%s", t.Title, t)
		}
	} else {
		r.all(line)
	}
	for _, n := range r.Notes {
		line("- %s", n)
	}
	line("- %s, commit %s: `%s`", r.Date, r.Machine.Commit, r.Command)
	line("- %s", r.Machine)
	return b.String()
}

// String writes a table in Markdown.
func (t table) String() string {
	var b strings.Builder
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(t.columns)
	b.WriteString("|---" + strings.Repeat("|---:", len(t.columns)-1) + "|\n")
	for _, r := range t.rows {
		row(r)
	}
	return b.String()
}

// all writes all series and targets.
func (r *record) all(line func(format string, args ...any)) {
	line("| side | what | median of %d | spread |\n|---|---|---:|---:|", r.Rounds)
	for _, s := range r.Series {
		line("| %s | %s | %s | %s .. %s |", s.Side, s.Metric,
			number(s.median()), number(slices.Min(s.Values)), number(slices.Max(s.Values)))
	}
	line("\n| target | | measured | |\n|---|---:|---:|---|")
	for _, t := range r.Targets {
		met := "met"
		if !t.Met {
			met = "**missed**"
		}
		line("| %s | %s | %s | %s |", t.What, number(t.Want), number(t.Measured), met)
	}
	line("")
}

// number writes a value as people read it: three digits or more, and groups
// of thousands.
func number(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
