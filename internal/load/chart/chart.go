// Package chart draws lines as SVG.
//
// It exists because a figure says more than a table, and what is needed of a
// drawing library is a page of code: panels below each other, with titles, axes
// and a legend.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// A Panel is one set of axes with its lines.
type Panel struct {
	Title string
	X, Y  string // labels of the axes
	LogY  bool   // for what differs by orders of magnitude; then only what is above 0 is drawn
	Ticks []Tick // of the X axis; made from the lines if there are none
	Lines []Line
}

// A Tick is a mark on an axis.
type Tick struct {
	At    float64
	Label string
}

// A Line is a name and its points, in order.
type Line struct {
	Name   string
	Points []Point
}

// A Point is on a line.
type Point struct{ X, Y float64 }

// The measures of a page.
const (
	width        = 900
	titleHeight  = 50
	panelHeight  = 340
	left, right  = 90, 210 // of the axes, for labels and the legend
	top, bottom  = 40, 60
	plotWidth    = width - left - right
	plotHeight   = panelHeight - top - bottom
	lineHeight   = 20
	marksMax     = 40 // points of a line that get a mark
	ticksWanted  = 6
	labelDescent = 4
)

// colours can be told apart by people who see few of them.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Write draws panels below a title.
func Write(w io.Writer, title string, panels ...Panel) error {
	var d drawing
	height := titleHeight + panelHeight*len(panels)
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="13">`, width, height, width, height)
	d.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	d.text(width/2, 30, `text-anchor="middle" font-size="17" font-weight="bold"`, title)
	d.colours = map[string]string{}
	for i, p := range panels {
		d.printf(`<g transform="translate(%d %d)">`, left, titleHeight+i*panelHeight+top)
		d.panel(p)
		d.printf(`</g>`)
	}
	d.printf(`</svg>`)
	_, err := d.WriteTo(w)
	return err
}

// A drawing is SVG in the making.
type drawing struct {
	bytes.Buffer
	colours map[string]string // of the lines, by name: the same in every panel
}

// colour returns the colour of a line.
func (d *drawing) colour(name string) string {
	if _, ok := d.colours[name]; !ok {
		d.colours[name] = colours[len(d.colours)%len(colours)]
	}
	return d.colours[name]
}

func (d *drawing) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d, format+"\n", args...)
}

func (d *drawing) text(x, y float64, attributes, text string) {
	var escaped bytes.Buffer
	_ = xml.EscapeText(&escaped, []byte(text)) // a buffer takes everything
	d.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, escaped.Bytes())
}

// panel draws with the origin at the upper left of the axes.
func (d *drawing) panel(p Panel) {
	x, y := p.axes()
	d.text(0, -14, `font-weight="bold"`, p.Title)
	for _, t := range y.ticks {
		at := plotHeight * (1 - y.place(t.At))
		d.printf(`<line x1="0" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>`, plotWidth, at, at)
		d.text(-8, at+labelDescent, `text-anchor="end"`, t.Label)
	}
	for _, t := range x.ticks {
		at := plotWidth * x.place(t.At)
		d.printf(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#888888"/>`, at, at, plotHeight, plotHeight+5)
		d.text(at, plotHeight+lineHeight, `text-anchor="middle"`, t.Label)
	}
	d.printf(`<path d="M0 0V%dH%d" fill="none" stroke="#888888"/>`, plotHeight, plotWidth)
	d.text(plotWidth/2, plotHeight+2*lineHeight+2, `text-anchor="middle"`, p.X)
	d.text(-plotHeight/2, 18-left, `transform="rotate(-90)" text-anchor="middle"`, p.Y)
	for i, l := range p.Lines {
		colour := d.colour(l.Name)
		d.line(p.drawn(l), colour, x, y)
		at := float64(i * lineHeight)
		d.printf(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`,
			plotWidth+15, plotWidth+35, at, at, colour)
		d.text(plotWidth+42, at+labelDescent, "", l.Name)
	}
}

func (d *drawing) line(points []Point, colour string, x, y axis) {
	var path, marks bytes.Buffer
	for i, p := range points {
		px, py := plotWidth*x.place(p.X), plotHeight*(1-y.place(p.Y))
		command := "L"
		if i == 0 {
			command = "M"
		}
		_, _ = fmt.Fprintf(&path, "%s%.1f %.1f", command, px, py)
		if len(points) <= marksMax {
			_, _ = fmt.Fprintf(&marks, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px, py, colour)
		}
	}
	if len(points) > 0 {
		d.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="2"/>%s`, path.Bytes(), colour, marks.Bytes())
	}
}

// drawn returns the points that the axes have a place for.
func (p Panel) drawn(l Line) []Point {
	return slices.DeleteFunc(slices.Clone(l.Points), func(q Point) bool {
		return math.IsNaN(q.X+q.Y) || math.IsInf(q.X+q.Y, 0) || p.LogY && q.Y <= 0
	})
}

// An axis places values between 0 and 1.
type axis struct {
	from, to float64
	log      bool
	ticks    []Tick
}

func (a axis) place(v float64) float64 {
	if a.log {
		return (math.Log10(v) - math.Log10(a.from)) / (math.Log10(a.to) - math.Log10(a.from))
	}
	return (v - a.from) / (a.to - a.from)
}

// axes returns the axes that show all the lines.
func (p Panel) axes() (x, y axis) {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, q := range p.drawn(l) {
			xs, ys = append(xs, q.X), append(ys, q.Y)
		}
	}
	for _, t := range p.Ticks {
		xs = append(xs, t.At)
	}
	if len(ys) == 0 {
		ys = []float64{1}
	}
	if len(xs) == 0 {
		xs = []float64{0}
	}
	x = axis{from: slices.Min(xs), to: slices.Max(xs), ticks: p.Ticks}
	if x.from == x.to {
		x.to++
	}
	if len(x.ticks) == 0 {
		x.from = min(0, x.from)
		x.ticks = linearTicks(x.from, x.to)
	}
	if p.LogY {
		return x, logAxis(slices.Min(ys), slices.Max(ys))
	}
	y = axis{from: min(0, slices.Min(ys)), to: max(0, slices.Max(ys))}
	if y.from == y.to {
		y.to++
	}
	y.ticks = linearTicks(y.from, y.to)
	return x, y
}

// linearTicks returns round numbers from one value to another.
func linearTicks(from, to float64) []Tick {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/ticksWanted)))
	for _, f := range []float64{2, 2.5, 2} { // 1, 2, 5, 10 times
		if (to-from)/step > ticksWanted {
			step *= f
		}
	}
	var ticks []Tick
	for i := math.Ceil(from / step); i*step <= to+step/1e6; i++ {
		ticks = append(ticks, Tick{i * step, Number(i * step)})
	}
	return ticks
}

// logAxis returns an axis from one round number to another, with ticks at 1, 2
// and 5 times powers of ten; if those are many, at the powers only.
func logAxis(from, to float64) axis {
	low, high := math.Floor(math.Log10(from)), math.Ceil(math.Log10(to))
	var ticks []Tick
	for e := low; e <= high; e++ {
		for _, f := range []float64{1, 2, 5} {
			if f == 1 || high-low <= 3 {
				v := f * math.Pow(10, e)
				ticks = append(ticks, Tick{v, Number(v)})
			}
		}
	}
	// One tick outside on either side is enough.
	for len(ticks) > 2 && ticks[1].At <= from {
		ticks = ticks[1:]
	}
	for len(ticks) > 2 && ticks[len(ticks)-2].At >= to {
		ticks = ticks[:len(ticks)-1]
	}
	if len(ticks) == 1 {
		ticks = append(ticks, Tick{ticks[0].At * 10, Number(ticks[0].At * 10)})
	}
	return axis{from: ticks[0].At, to: ticks[len(ticks)-1].At, log: true, ticks: ticks}
}

// Number writes a value in few letters, such as 2.5M.
func Number(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= u.size {
			return strconv.FormatFloat(v/u.size, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
