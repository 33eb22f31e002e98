package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/chart"
)

const viralAbout = "One counter goes viral: 100 writes a second rise to 200,000 within 5 s, stay there for 10 s and fall back to 100, while 20,000 reads a second go on. " +
	"It is an open loop: requests are due whatever the server does, and latency counts from when they were. Over RESP, 50 connections for the writes, 50 for the reads. " +
	"Embedded: `INCR` on one server, at most 16 at once on a connection. Two nodes over PostgreSQL with synchronous_commit on: adds that ask for nothing back, at most 64 at once. " +
	"Load and servers share the machine. The charts are of the first round."

const (
	viralConnections = 50

	viralLow   = 100.0 // writes a second
	viralSteps = 10    // from there to the peak

	// viralInterval is how long totals are kept, and viralSlack how much longer a
	// refresh may take.
	viralInterval = time.Second
	viralSlack    = 100 * time.Millisecond

	peakRate  = "writes/s at the peak"
	unsent    = "writes due and never sent"
	failures  = "errors"
	writeP99  = "write p99 ms"
	readP99   = "read p99 ms"
	oldest    = "largest staleness of a sampled read, ms"
	shardsMax = "shards at most"
	busyOf    = "cores kept busy by "
)

// An event is what happens to the counter.
type event struct {
	*session
	high, reads               float64 // a second
	before, rise, stay, after time.Duration
	coolDown                  time.Duration

	postgres                    string // its version
	rates, p99s, stales, shards []chart.Line
}

// The sides.
const (
	alone    = "embedded"
	together = "2 nodes"
)

func viral(s *session) error {
	v := &event{
		session: s, high: 200_000, reads: 20_000,
		before: 2 * time.Second, rise: 5 * time.Second, stay: 10 * time.Second, after: 8 * time.Second, coolDown: 5 * time.Second,
	}
	if s.quick {
		v.high, v.reads = 4_000, 400
		v.before, v.rise, v.stay, v.after, v.coolDown = time.Second/2, time.Second, 2*time.Second, time.Second/2, time.Second
	}
	var due []chart.Point
	from := 0.0
	for _, step := range v.steps() {
		to := from + step.Duration.Seconds()
		due = append(due, chart.Point{X: from, Y: step.Rate}, chart.Point{X: to, Y: step.Rate})
		from = to
	}
	v.rates = append(v.rates, chart.Line{Name: "due", Points: due})
	if err := s.alternate(v.embedded, v.overPostgres); err != nil {
		return err
	}
	s.note("Policy `%s`.", v.policy())
	s.note("%s, default settings, over a Unix socket.", v.postgres)
	v.judge(alone)
	s.atMost(alone+": "+writeP99, s.median(alone, writeP99), 10)
	v.judge(together)
	s.Panels = []chart.Panel{
		{Title: "Writes", X: "seconds", Y: "writes a second", LogY: true, Lines: v.rates},
		{Title: "Latency, p99 of a second", X: "seconds", Y: "milliseconds", LogY: true, Lines: v.p99s},
		{Title: "Age of what a reader is told", X: "seconds", Y: "milliseconds", Lines: v.stales},
		{Title: "Shards", X: "seconds", Y: "shards", Lines: v.shards},
	}
	return nil
}

// steps are the rates of the writes: each step of the rise is by the same factor.
func (v *event) steps() []load.Step {
	steps := []load.Step{{Rate: viralLow, Duration: v.before}}
	for i := range viralSteps {
		r := viralLow * math.Pow(v.high/viralLow, float64(i+1)/(viralSteps+1))
		steps = append(steps, load.Step{Rate: r, Duration: v.rise / viralSteps})
	}
	return append(steps, load.Step{Rate: v.high, Duration: v.stay}, load.Step{Rate: viralLow, Duration: v.after})
}

// policy is that of the counter.
func (v *event) policy() string {
	return fmt.Sprintf(`{pattern: "*", timing: rollup, interval: %v, cool-down: %v}`, viralInterval, v.coolDown)
}

func (v *event) embedded() (err error) {
	nodes, err := v.serveUnder(1, "embedded:", v.policy())
	defer func() { err = errors.Join(err, nodes.stop(), os.RemoveAll(filepath.Join(v.dir, "data"))) }()
	if err != nil {
		return err
	}
	return v.happen(alone, nodes, load.Config{Op: load.Incr, Depth: 16}, nil)
}

func (v *event) overPostgres() (err error) {
	pg, err := startPostgres(v.ctx, v.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop(), os.RemoveAll(pg.Dir())) }()
	nodes, err := v.serveUnder(2, pg.URL(), v.policy())
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	v.postgres = pg.Version
	return v.happen(together, nodes, load.Config{Op: load.Add, Depth: 64}, pg)
}

// happen lets it happen once.
func (v *event) happen(side string, n nodes, writes load.Config, pg *postgres) error {
	writes.Dist, writes.Connections, writes.Steps = load.Hot, viralConnections, v.steps()
	reads := load.Config{Op: load.Get, Dist: load.Hot, Connections: viralConnections, Depth: 16, Rate: v.reads, Duration: v.before + v.rise + v.stay + v.after}
	used := func() (time.Duration, error) { return 0, nil }
	if pg != nil {
		used = func() (time.Duration, error) { return cpuTimeOfAll(pg.PID) }
	}
	before, err := used()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(v.out, "%s: %s\n", v.Figure, side)
	began := time.Now()
	end := n[0].watch(v.ctx, load.KeyZero, byPolicy, 50*time.Millisecond) // as any reader: an exact read would refresh the total
	var wrote, read []*load.Report
	var writeErr, readErr error
	var group sync.WaitGroup
	group.Go(func() { wrote, writeErr = n.load(v.ctx, writes) })
	group.Go(func() { read, readErr = n.load(v.ctx, reads) })
	group.Wait()
	last := time.Now()
	seen, seeErr := end()
	after, err := used()
	if err = errors.Join(err, writeErr, readErr, seeErr); err != nil {
		return err
	}
	if pg != nil {
		v.record(side, busyOf+"PostgreSQL", (after-before).Seconds()/last.Sub(began).Seconds())
	}
	v.measured(side, wrote, read)
	v.looked(side, began, seen)
	if err := n[0].counted(v.ctx, load.KeyZero, operations(wrote)); err != nil {
		return err
	}
	if most := v.find(side, shardsMax).Values; most[len(most)-1] > 1 {
		return v.recordFold(side, n[0], load.KeyZero, last)
	}
	return nil
}

// judge judges what was measured in all rounds.
func (v *event) judge(side string) {
	v.atLeast(side+": "+peakRate, v.median(side, peakRate), 0.99*v.high)
	v.atMost(side+": "+failures, slices.Max(v.find(side, failures).Values), 0)
	v.atMost(side+": "+readP99, v.median(side, readP99), 5)
	v.atMost(side+": "+oldest, slices.Max(v.find(side, oldest).Values), float64((viralInterval + viralSlack).Milliseconds()))
	if v.has(side, foldedAfter) {
		v.atMost(side+": "+foldedAfter+", cool-down included", v.median(side, foldedAfter), (v.coolDown + 2*time.Second).Seconds())
	}
}

// measured records what the load saw.
func (v *event) measured(side string, wrote, read []*load.Report) {
	rates, writeMS := course(wrote)
	_, readMS := course(read)
	if !v.has(side, peakRate) {
		v.rates = append(v.rates, chart.Line{Name: side, Points: rates})
		v.p99s = append(v.p99s, chart.Line{Name: side + ", writes", Points: writeMS}, chart.Line{Name: side + ", reads", Points: readMS})
	}
	failed, first := refusals(append(slices.Clone(wrote), read...))
	if failed > 0 {
		v.note("%s: the first error: %s.", side, first)
	}
	late, cores := int64(0), 0.0
	for _, r := range wrote {
		late += r.Unsent
		if r.Server != nil {
			cores += r.Server.Cores
		}
	}
	v.record(side, peakRate, v.peak(rates))
	v.record(side, unsent, float64(late))
	v.record(side, failures, float64(failed))
	v.record(side, writeP99, slowest(wrote))
	v.record(side, readP99, slowest(read))
	v.record(side, busyOf+"Quipu", cores)
	if c := wrote[0].Client; c != nil {
		v.record(side, busyOf+"the load", c.Cores)
	}
}

// course returns the rate of all reports in each second, and the p99 of the
// slowest of them in milliseconds.
func course(reports []*load.Report) (rates, p99 []chart.Point) {
	for _, r := range reports {
		for i, s := range r.Series {
			if i == len(rates) {
				rates, p99 = append(rates, chart.Point{X: s.At}), append(p99, chart.Point{X: s.At})
			}
			rates[i].Y += s.Rate
			p99[i].Y = max(p99[i].Y, float64(s.P99)/float64(time.Millisecond))
		}
	}
	return rates, p99
}

// slowest returns the p99 of the slowest report, in milliseconds.
func slowest(reports []*load.Report) (ms float64) {
	for _, r := range reports {
		ms = max(ms, float64(r.Latency.P99)/float64(time.Millisecond))
	}
	return ms
}

// peak returns the median rate of the seconds at the peak.
func (v *event) peak(rates []chart.Point) float64 {
	from, to := (v.before + v.rise).Seconds(), (v.before + v.rise + v.stay).Seconds()
	var at series
	for i, p := range rates {
		if i > 0 && rates[i-1].X >= from && p.X <= to {
			at.Values = append(at.Values, p.Y)
		}
	}
	if len(at.Values) == 0 {
		return 0
	}
	return at.median()
}

// looked records what readers were told, and how the counter was laid out.
func (v *event) looked(side string, began time.Time, seen []sight) {
	stale, most := 0.0, 0
	var ages, shards []chart.Point
	for _, one := range seen {
		at := one.at.Sub(began).Seconds()
		ages = append(ages, chart.Point{X: at, Y: one.StalenessMS})
		shards = append(shards, chart.Point{X: max(0, at-one.StalenessMS/1000), Y: float64(one.Shards)}) // as of then
		stale, most = max(stale, one.StalenessMS), max(most, one.Shards)
	}
	if !v.has(side, oldest) {
		v.stales, v.shards = append(v.stales, chart.Line{Name: side, Points: ages}), append(v.shards, chart.Line{Name: side, Points: shards})
	}
	v.record(side, oldest, stale)
	v.record(side, shardsMax, float64(most))
}
