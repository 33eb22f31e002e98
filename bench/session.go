package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/quipudb/quipu/internal/load/chart"
)

// options are what the command line says.
type options struct {
	rounds       int
	quick        bool
	dir          string // for the data
	results      string // for the results
	command      string
	choice       choice // of the figure peers
	reviewsFile  string
	beforeBinary string
	binary       string // the command quipu; built when it is first needed
	out          io.Writer
}

// measure measures one figure and reports it.
func (o options) measure(ctx context.Context, f figure) error {
	dir, err := os.MkdirTemp(o.dir, "quipu-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &session{options: o, ctx: ctx, dir: dir, result: result{Figure: f.name, About: f.about}}
	if err := f.run(s); err != nil {
		return err
	}
	return s.report()
}

// A session is one run of a figure: it takes turns and keeps what was
// measured.
type session struct {
	options
	result
	ctx context.Context
	dir string
}

// A result is what a session measured.
type result struct {
	Figure  string    `json:"figure"`
	About   string    `json:"about"`
	Notes   []string  `json:"notes,omitempty"`
	Series  []*series `json:"series"`
	Targets []target  `json:"targets"`

	// Tables to show of it, if not simply all series and targets.
	Tables []table       `json:"-"`
	Panels []chart.Panel `json:"-"`
}

// A table is for people.
type table struct {
	Title   string
	columns []string
	rows    [][]string
}

func (t *table) head(first string, others ...string) { t.columns = append([]string{first}, others...) }

// A series is one quantity of one side, a value for each round.
type series struct {
	Side   string    `json:"side"`
	Metric string    `json:"metric"`
	Values []float64 `json:"values"`
}

func (s *series) median() float64 {
	v := slices.Sorted(slices.Values(s.Values))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// spread writes the median, with the smallest and the largest.
func (s *series) spread() string {
	return fmt.Sprintf("%s (%s .. %s)", number(s.median()), number(slices.Min(s.Values)), number(slices.Max(s.Values)))
}

// A target is a promise, and what came of it.
type target struct {
	What     string  `json:"what"`
	Want     float64 `json:"want"`
	Measured float64 `json:"measured"`
	Met      bool    `json:"met"`
}

// alternate runs the sides in rounds. Every other round has them in the
// reverse order, so that none gains by its place.
func (s *session) alternate(sides ...func() error) error {
	for round := range s.rounds {
		_, _ = fmt.Fprintf(s.out, "%s: round %d of %d\n", s.Figure, round+1, s.rounds)
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
			debug.FreeOSMemory() // what the other side left behind
			if err := sides[i](); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTemp calls f with a directory that is removed afterwards.
func (s *session) inTemp(f func(dir string) error) error {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return err
	}
	return errors.Join(f(dir), os.RemoveAll(dir))
}

// note adds a line to the report, once.
func (s *session) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// record keeps what a side measured in this round.
func (s *session) record(side, metric string, value float64) {
	to := s.find(side, metric)
	to.Values = append(to.Values, value)
}

func (s *session) find(side, metric string) *series {
	for _, have := range s.Series {
		if have.Side == side && have.Metric == metric {
			return have
		}
	}
	made := &series{Side: side, Metric: metric}
	s.Series = append(s.Series, made)
	return made
}

// has reports whether something was recorded.
func (s *session) has(side, metric string) bool {
	return slices.ContainsFunc(s.Series, func(have *series) bool { return have.Side == side && have.Metric == metric })
}

// over records the ratio of what a side measured to what its peer did, round by
// round, and returns its median.
func (s *session) over(side, peer, metric string) float64 {
	name := side + " / " + peer
	ours, theirs := s.find(side, metric).Values, s.find(peer, metric).Values
	for i := range ours {
		s.record(name, metric, ours[i]/theirs[i])
	}
	return s.median(name, metric)
}

func (s *session) median(side, metric string) float64 { return s.find(side, metric).median() }

func (s *session) atLeast(what string, measured, want float64) {
	s.Targets = append(s.Targets, target{what + ", at least", want, measured, measured >= want})
}

func (s *session) atMost(what string, measured, want float64) {
	s.Targets = append(s.Targets, target{what + ", at most", want, measured, measured <= want})
}

// pick returns the first of two sizes, or the second in a quick run.
func pick[T any](s *session, full, quick T) T {
	if s.quick {
		return quick
	}
	return full
}
