package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/chart"
)

// quickly measures a figure in a quick run, on real servers, and looks for what it
// should print.
func quickly(t *testing.T, name string, c choice, wants ...string) {
	t.Helper()
	dir := t.TempDir()
	var out strings.Builder
	// The user that runs PostgreSQL can't reach a directory of the test's own.
	o := options{rounds: 1, quick: true, dir: os.TempDir(), results: dir, command: "test", out: &out, choice: c}
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	o.binary = binary
	chosen, err := choose(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.measure(t.Context(), chosen[0]); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out.String())
	}
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("a quick run of %s wrote %v, %v", name, left, err)
	}
}

// The figures of hot counters are measured.
func TestHot(t *testing.T) {
	f := func(name string, wants ...string) {
		t.Helper()
		quickly(t, name, choice{}, wants...)
	}
	f("hot-read", "rate over that of MGET of 64 keys", "| quipu / redis | CPU ns/operation |", lookups)
	f("hot-tokens", "rate over that of a transaction by hand", "| quipu / "+inStatement)
	f("hot-adaptive", "rate over "+better, "| "+sixteen+" | "+shardsAtEnd+" |", "| "+single+" | "+shardsAtEnd+" | 1 |")
	f("viral", "(viral.svg)", "embedded: "+writeP99, "2 nodes: "+readP99, "2 nodes: "+oldest, "| embedded: "+failures+", at most |")
	f("bounded", "rate over that of INCR", "| "+soldOut+" | "+rate+" |")
	f("unique-error", "(unique-error.svg)", "largest error over that of theory", "| 1,366 |")
	f("heat-memory", "| quipu | "+liveMiB)
	f("part", "rate over RESP with "+hung, "| "+dead+", REST | "+failures+" |")
}

// The rise is even, and reaches the peak in time.
func TestViralSteps(t *testing.T) {
	v := &event{high: 200_000, before: 2 * time.Second, rise: 5 * time.Second, stay: 10 * time.Second, after: 8 * time.Second}
	steps := v.steps()
	at := time.Duration(0)
	for i, s := range steps {
		if s.Rate == v.high && at != v.before+v.rise {
			t.Errorf("the peak is reached after %v", at)
		}
		if i > 0 && i < len(steps)-1 {
			if factor := s.Rate / steps[i-1].Rate; math.Abs(factor-1.996) > 0.01 {
				t.Errorf("step %d: %v times the rate before", i, factor)
			}
		}
		at += s.Duration
	}
	if last := steps[len(steps)-1]; last.Rate != viralLow || at != 25*time.Second {
		t.Errorf("it ends with %+v after %v", last, at)
	}
}

// What several nodes did in a second is added up, and the slowest counts.
func TestCourse(t *testing.T) {
	ms := int64(time.Millisecond)
	reports := []*load.Report{
		{Series: []load.Sample{{At: 1, Rate: 10, P99: 2 * ms}, {At: 2, Rate: 20, P99: ms}}, Latency: load.Latency{P99: 3 * ms}},
		{Series: []load.Sample{{At: 1, Rate: 5, P99: ms}, {At: 2, Rate: 6, P99: 4 * ms}, {At: 3, Rate: 7, P99: 5 * ms}}, Latency: load.Latency{P99: 2 * ms}},
	}
	rates, p99 := course(reports)
	if want := []chart.Point{{X: 1, Y: 15}, {X: 2, Y: 26}, {X: 3, Y: 7}}; !slices.Equal(rates, want) {
		t.Errorf("rates %v, want %v", rates, want)
	}
	if want := []chart.Point{{X: 1, Y: 2}, {X: 2, Y: 4}, {X: 3, Y: 5}}; !slices.Equal(p99, want) {
		t.Errorf("p99 %v, want %v", p99, want)
	}
	if ms := slowest(reports); ms != 3 {
		t.Errorf("the slowest took %v ms", ms)
	}
	v := &event{before: time.Second, stay: time.Second}
	if got := v.peak(rates); got != 26 {
		t.Errorf("at the peak %v", got)
	}
	if got := v.peak(nil); got != 0 {
		t.Errorf("at the peak of nothing %v", got)
	}
}
