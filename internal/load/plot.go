package load

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/quipudb/quipu/internal/load/chart"
)

// Summary says in a line what was done.
func (c Config) Summary() string {
	what := string(c.Op)
	if c.Op == Mixed {
		what = fmt.Sprintf("%v%% get, else incr", 100*c.ReadShare)
	}
	keys := "one hot key"
	if c.Key != "" {
		keys = fmt.Sprintf("hot key %q", c.Key)
	}
	if c.Dist != Hot {
		keys = fmt.Sprintf("%d %s keys", c.Keys, c.Dist)
	}
	loop := "closed loop"
	if c.Rate > 0 {
		loop = fmt.Sprintf("open loop, %v/s", c.Rate)
	}
	if len(c.Steps) > 0 {
		loop = fmt.Sprintf("open loop, %d steps", len(c.Steps))
	}
	return fmt.Sprintf("%s: %s, %s, %d connections, depth %d, %s", c.Target, what, keys, c.Connections, c.Depth, loop)
}

// Plot draws the latencies and the course of the rate as SVG.
func (r *Report) Plot(w io.Writer) error {
	var latency, rate, p99 []chart.Point
	for _, p := range r.Curve {
		latency = append(latency, chart.Point{X: nines(p.Percentile), Y: milliseconds(p.NS)})
	}
	for _, s := range r.Series {
		rate = append(rate, chart.Point{X: s.At, Y: s.Rate})
		p99 = append(p99, chart.Point{X: s.At, Y: milliseconds(s.P99)})
	}
	ticks := []chart.Tick{{At: 0, Label: "0%"}}
	if n := len(r.Curve); n > 0 {
		for _, p := range []float64{50, 90, 99, 99.9, 99.99, 99.999, 99.9999} {
			if p <= r.Curve[n-1].Percentile {
				ticks = append(ticks, chart.Tick{At: nines(p), Label: fmt.Sprintf("%v%%", p)})
			}
		}
	}
	return chart.Write(w, r.Config.Summary(),
		chart.Panel{
			Title: "Latency", X: "percentile", Y: "milliseconds", LogY: true, Ticks: ticks,
			Lines: []chart.Line{{Name: "latency", Points: latency}},
		},
		chart.Panel{
			Title: "Throughput", X: "seconds", Y: "operations a second",
			Lines: []chart.Line{{Name: "operations/s", Points: rate}},
		},
		chart.Panel{
			Title: "Latency over time", X: "seconds", Y: "milliseconds",
			Lines: []chart.Line{{Name: "p99 of a second", Points: p99}},
		})
}

// nines places percentiles so that every further nine takes as much room.
func nines(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

func milliseconds(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
