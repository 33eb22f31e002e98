package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/chart"
)

// draw returns a drawing and its text, which must be well-formed.
func draw(t *testing.T, panels ...chart.Panel) (svg, text string) {
	t.Helper()
	var b, words strings.Builder
	if err := chart.Write(&b, "A <title> & more", panels...); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		if chars, ok := token.(xml.CharData); ok {
			words.Write(chars)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Errorf("numbers that are none in %s", b.String())
	}
	return b.String(), words.String()
}

func TestWrite(t *testing.T) {
	svg, text := draw(
		t, chart.Panel{
			Title: "Rate", X: "depth", Y: "operations a second", LogY: true,
			Ticks: []chart.Tick{{At: 0, Label: "one"}, {At: 1, Label: "sixteen"}},
			Lines: []chart.Line{
				{Name: "a<b", Points: []chart.Point{{X: 0, Y: 40_000}, {X: 1, Y: 5_000_000}}},
				{Name: "c", Points: []chart.Point{{X: 0, Y: 0}, {X: 1, Y: 50_000}}}, // 0 has no place
			},
		},
		chart.Panel{Title: "Course", X: "seconds", Lines: []chart.Line{{Points: []chart.Point{{X: 1, Y: 1200}, {X: 2, Y: 900}}}}},
	)
	for _, want := range []string{
		"A <title> & more", "Rate", "depth", "operations a second", "one", "sixteen", "a<b",
		"20k", "100k", "1M", "5M", "Course", "200", "1.2k",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if n := strings.Count(svg, "<circle"); n != 5 {
		t.Errorf("%d marks, want one for each point but that at 0", n)
	}
}

// Whatever the values, the points are inside of the axes.
func TestInside(t *testing.T) {
	circle := regexp.MustCompile(`<circle cx="([^"]+)" cy="([^"]+)"`)
	for _, log := range []bool{false, true} {
		for _, values := range [][]float64{{1}, {0}, {0, 0}, {3, 3, 3}, {1e-9, 1e12}, {-5, 7}, {math.NaN(), math.Inf(1), 2}, {10, 100}, {}} {
			var l chart.Line
			for i, v := range values {
				l.Points = append(l.Points, chart.Point{X: float64(i), Y: v})
			}
			svg, _ := draw(t, chart.Panel{LogY: log, Lines: []chart.Line{l}})
			for _, m := range circle.FindAllStringSubmatch(svg, -1) {
				x, errX := strconv.ParseFloat(m[1], 64)
				y, errY := strconv.ParseFloat(m[2], 64)
				if errX != nil || errY != nil || x < 0 || x > 600 || y < 0 || y > 240 {
					t.Errorf("values %v, log %v: a point at %s, %s", values, log, m[1], m[2])
				}
			}
		}
	}
	draw(t, chart.Panel{})
	draw(t)
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 12: "12", 1500: "1.5k", 2_500_000: "2.5M", 3e9: "3G", -2000: "-2k"} {
		if got := chart.Number(v); got != want {
			t.Errorf("number %v: got %s, want %s", v, got, want)
		}
	}
}
