package alert

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An annotation is a text with places for a result. It is a small part of the
// language of text/template, enough for annotations: whatever links that package
// has every method of every type, and a program is a third larger.
type annotation []func(of result) string

// parseAnnotation reads a text with {{ $labels.NAME }}, {{ $value }} and
// {{ $value | WORD }} in it.
func parseAnnotation(text string) (all annotation, err error) {
	for text != "" {
		plain, rest, found := strings.Cut(text, "{{")
		all = append(all, func(result) string { return plain })
		if !found {
			break
		}
		place, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return nil, fmt.Errorf("%q is not closed", "{{"+rest)
		}
		part, err := parsePlace(strings.TrimSpace(place))
		if err != nil {
			return nil, err
		}
		all, text = append(all, part), after
	}
	return all, nil
}

// parsePlace reads what stands between braces.
func parsePlace(place string) (func(of result) string, error) {
	if name, ok := strings.CutPrefix(place, "$labels."); ok && name != "" && !strings.ContainsAny(name, " |.") {
		return func(of result) string { return of.labels[name] }, nil
	}
	value, word, piped := strings.Cut(place, "|")
	show := words[strings.TrimSpace(word)]
	if strings.TrimSpace(value) != "$value" || piped && show == nil {
		return nil, fmt.Errorf("{{ %s }}: want $labels.NAME, $value, or $value | humanize, humanizeDuration or humanizePercentage", place)
	}
	if !piped {
		show = func(v float64) string { return fmt.Sprint(v) }
	}
	return func(of result) string { return show(of.value) }, nil
}

// fill returns the text for a result.
func (a annotation) fill(of result) string {
	var b strings.Builder
	for _, part := range a {
		b.WriteString(part(of))
	}
	return b.String()
}

// words are how annotations show a value.
var words = map[string]func(v float64) string{
	"humanize":           func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) },
	"humanizePercentage": func(v float64) string { return strconv.FormatFloat(v*100, 'g', 4, 64) + "%" },
	"humanizeDuration": func(v float64) string {
		return time.Duration(v * float64(time.Second)).Round(time.Millisecond).String()
	},
}
