package main

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestChart(t *testing.T) {
	f := func(columns int, bars []bar, want string) {
		t.Helper()
		got := chart(bars, columns)
		if text := strings.Join(got, "\n"); text != strings.TrimPrefix(want, "\n") {
			t.Errorf("got\n%s\nwant%s", text, want)
		}
	}
	f(80, nil, "")
	f(20, []bar{{label: "a", value: 0}, {label: "bc", value: 0}}, `
a   0
bc  0`)
	f(30, []bar{{label: "00:00", value: 1000}, {label: "01:00", value: 500, rough: true}, {label: "02:00", value: 1}, {label: "03:00"}}, `
00:00  1,000  ████████████████
01:00    500~ ████████
02:00      1  ▏
03:00      0`)
	f(24, []bar{{label: "a", value: 8}, {label: "b", value: -8}, {label: "c", value: -1}, {label: "d"}}, `
a   8          │████████
b  -8  ████████│
c  -1         █│
d   0          │`)
	f(20, []bar{{label: "a", value: -100}}, `
a  -100  █████████│`)
	f(20, []bar{{label: "a", value: -4}, {label: "b", value: -2}}, `
a  -4  ███████████│
b  -2       ▐█████│`)
}

// The middle of a long run of empty lines is left out.
func TestFolded(t *testing.T) {
	f := func(want string, values ...int64) {
		t.Helper()
		var bars []bar
		for i, v := range values {
			bars = append(bars, bar{label: string(rune('a' + i)), value: v, rough: i == 9})
		}
		if got := strings.Join(folded(chart(bars, 20), bars), "\n"); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", values, got, want)
		}
	}
	f("")
	f("a  0\nb  0\nc  0\nd  0\ne  0", 0, 0, 0, 0, 0)
	f("a  0\n… 4 more\nf  0", 0, 0, 0, 0, 0, 0)
	f("a  1  ██████████████\nb  0\n… 4 more\ng  0\nh  1  ██████████████", 1, 0, 0, 0, 0, 0, 0, 1)
	f("a  0\n… 7 more\ni  0\nj  0~", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// However large the values are and narrow the terminal, a line has its value and fits.
func TestChartFits(t *testing.T) {
	for _, columns := range []int{1, 20, 40, 80, 200} {
		for _, values := range [][]int64{{math.MaxInt64, 1}, {math.MinInt64, math.MaxInt64}, {math.MinInt64, -1}, {0, 3, -100_000}} {
			var bars []bar
			for _, v := range values {
				bars = append(bars, bar{label: "2026-11-16", value: v})
			}
			for i, line := range chart(bars, columns) {
				if !strings.Contains(line, thousands(values[i])) {
					t.Errorf("%d columns: no %d in %q", columns, values[i], line)
				}
				if n := utf8.RuneCountInString(line); n > max(columns, 55) {
					t.Errorf("%d columns: %d in %q", columns, n, line)
				}
			}
		}
	}
}
