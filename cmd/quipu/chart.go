package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// chartColumns is the width of a chart if nobody knows that of the terminal, and
// barColumnsMin what its bars take at least.
const (
	chartColumns  = 80
	barColumnsMin = 10
)

// A bar is one line of a chart.
type bar struct {
	label string
	value int64
	rough bool // the value is not all there is to it
}

// chart draws bars in so many columns: the label, the value, and a bar to its right,
// or to its left if the value is negative. Rough values have a ~ behind them.
func chart(bars []bar, columns int) []string {
	labels, values := 0, 0
	low, high := 0.0, 0.0
	for _, b := range bars {
		labels = max(labels, utf8.RuneCountInString(b.label))
		values = max(values, len(thousands(b.value)))
		low, high = min(low, float64(b.value)), max(high, float64(b.value))
	}
	room := max(barColumnsMin, columns-labels-values-len("  ")-len("~ "))
	left := 0 // columns of negative bars, and one for the axis
	if low < 0 {
		left = min(room-2, max(1, int(math.Round(float64(room-1)*(-low/(high-low))))))
		room -= left + 1
	}
	lines := make([]string, len(bars))
	for i, b := range bars {
		value := thousands(b.value)
		mark := " "
		if b.rough {
			mark = "~"
		}
		line := b.label + strings.Repeat(" ", labels-utf8.RuneCountInString(b.label)) + "  " +
			strings.Repeat(" ", values-len(value)) + value + mark + " "
		if low < 0 {
			line += leftBar(-float64(b.value)/-low, left) + "│"
		}
		if high > 0 {
			line += rightBar(float64(b.value)/high, room)
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// folded returns the lines of bars without the middle of long runs of empty ones.
func folded(lines []string, bars []bar) (out []string) {
	const long = 6
	for i := 0; i < len(bars); {
		end := i + 1
		for bars[i].value == 0 && end < len(bars) && bars[end].value == 0 && bars[end].rough == bars[i].rough {
			end++
		}
		if end-i < long {
			out = append(out, lines[i:end]...)
		} else {
			out = append(out, lines[i], fmt.Sprintf("… %s more", thousands(int64(end-i-2))), lines[end-1])
		}
		i = end
	}
	return out
}

// rightBar returns a bar over a share of so many columns. What is above nothing is
// seen.
func rightBar(share float64, columns int) string {
	if share <= 0 {
		return ""
	}
	const parts = 8
	n := max(1, int(math.Round(share*float64(columns*parts))))
	text := strings.Repeat("█", n/parts)
	if n%parts > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[n%parts-1])
	}
	return text
}

// leftBar is rightBar for a bar that ends at the right. There are characters for
// halves only.
func leftBar(share float64, columns int) string {
	if share <= 0 {
		return strings.Repeat(" ", columns)
	}
	n := max(1, int(math.Round(share*float64(columns*2))))
	text := strings.Repeat("█", n/2)
	if n%2 > 0 {
		text = "▐" + text
	}
	return strings.Repeat(" ", columns-utf8.RuneCountInString(text)) + text
}

// align returns rows as lines with their columns in line: numbers end in line, and
// other text begins in line.
func align(rows [][]string, number func(column int) bool) []string {
	var widths []int
	for _, row := range rows {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		cells := make([]string, len(row))
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if number(i) {
				cells[i] = pad + text
			} else {
				cells[i] = text + pad
			}
		}
		lines[n] = strings.TrimRight(strings.Join(cells, "  "), " ")
	}
	return lines
}
