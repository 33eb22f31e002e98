package alert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/duration"
)

// An expr is an expression of PromQL, as far as the rules use it: selectors with = and
// =~, rate and increase over a range, sum by, histogram_quantile, label_replace,
// arithmetic, comparisons that filter, and, or.
type expr interface{ eval(at *moment) []result }

type (
	number   float64
	selector struct {
		name   string
		match  []matcher
		window time.Duration // 0 is now
	}
	matcher struct {
		label string
		re    *regexp.Regexp // nil for a value
		value string
	}
	binary struct {
		op          string
		left, right expr
	}
	growth struct { // rate or increase
		of        selector
		perSecond bool
	}
	sumBy struct {
		labels []string
		of     expr
	}
	quantile struct {
		q  float64
		of expr
	}
	replace struct { // of a label by a fixed value, where another label is missing
		of         expr
		label, add string
	}
)

// tokens of an expression: names, numbers with and without a unit, texts, operators.
var tokens = regexp.MustCompile(`\s+|#[^\n]*|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9]+(?:\.[0-9]+)?[smhd]?|"(?:[^"\\]|\\.)*"|=~|>=|<=|==|!=|[-+*/()\[\]{},<>=]`)

// depthMax is how deep parentheses may be.
const depthMax = 50

type parser struct {
	rest  []string
	depth int
}

// parse reads an expression.
func parse(text string) (e expr, err error) {
	p := &parser{}
	at := 0
	for _, m := range tokens.FindAllStringIndex(text, -1) {
		if m[0] != at {
			return nil, fmt.Errorf("%q is not understood", text[at:m[0]])
		}
		at = m[1]
		if t := text[m[0]:m[1]]; strings.TrimSpace(t) != "" && t[0] != '#' {
			p.rest = append(p.rest, t)
		}
	}
	if at != len(text) {
		return nil, fmt.Errorf("%q is not understood", text[at:])
	}
	if e, err = p.binary(0); err == nil && len(p.rest) > 0 {
		err = fmt.Errorf("%q follows the expression", p.rest[0])
	}
	return e, err
}

// precedence is that of PromQL, loosest first.
var precedence = [][]string{{"or"}, {"and"}, {">", "<", ">=", "<=", "==", "!="}, {"+", "-"}, {"*", "/"}}

func (p *parser) peek() string {
	if len(p.rest) == 0 {
		return ""
	}
	return p.rest[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t != "" {
		p.rest = p.rest[1:]
	}
	return t
}

func (p *parser) want(token string) error {
	if got := p.next(); got != token {
		return fmt.Errorf("%q where %q is wanted", got, token)
	}
	return nil
}

func (p *parser) binary(level int) (expr, error) {
	if level == len(precedence) {
		return p.unary()
	}
	left, err := p.binary(level + 1)
	for err == nil {
		op := p.peek()
		found := false
		for _, o := range precedence[level] {
			found = found || o == op
		}
		if !found {
			return left, nil
		}
		p.next()
		var right expr
		if right, err = p.binary(level + 1); err == nil {
			left = binary{op, left, right}
		}
	}
	return nil, err
}

func (p *parser) unary() (expr, error) {
	if p.depth++; p.depth > depthMax {
		return nil, fmt.Errorf("it is nested more than %d deep", depthMax)
	}
	defer func() { p.depth-- }()
	switch t := p.next(); {
	case t == "(":
		e, err := p.binary(0)
		if err != nil {
			return nil, err
		}
		return e, p.want(")")
	case t == "rate" || t == "increase":
		return p.growth(t == "rate")
	case t == "sum":
		return p.sum()
	case t == "histogram_quantile":
		return p.quantile()
	case t == "label_replace":
		return p.replace()
	case t != "" && t[0] >= '0' && t[0] <= '9':
		v, err := strconv.ParseFloat(t, 64)
		return number(v), err
	case t != "" && isName(t):
		return p.selector(t)
	default:
		return nil, fmt.Errorf("%q begins no expression", t)
	}
}

func isName(t string) bool {
	c := t[0]
	return c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *parser) selector(name string) (s selector, err error) {
	s.name = name
	if p.peek() == "{" {
		p.next()
		for p.peek() != "}" {
			m := matcher{label: p.next()}
			op := p.next()
			if m.value, err = p.text(); err != nil {
				return s, err
			}
			switch op {
			case "=":
			case "=~":
				if m.re, err = regexp.Compile("^(?:" + m.value + ")$"); err != nil {
					return s, err
				}
			default:
				return s, fmt.Errorf("%q between a label and its value", op)
			}
			s.match = append(s.match, m)
			if p.peek() == "," {
				p.next()
			}
		}
		p.next()
	}
	if p.peek() == "[" {
		p.next()
		if s.window, err = duration.Parse(p.next()); err != nil {
			return s, err
		}
		err = p.want("]")
	}
	return s, err
}

func (p *parser) text() (string, error) { return strconv.Unquote(p.next()) }

func (p *parser) growth(perSecond bool) (expr, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	of, err := p.selector(p.next())
	if err != nil {
		return nil, err
	}
	if of.window == 0 {
		return nil, fmt.Errorf("%s has no range", of.name)
	}
	return growth{of, perSecond}, p.want(")")
}

func (p *parser) sum() (expr, error) {
	s := sumBy{}
	if err := p.want("by"); err != nil {
		return nil, err
	}
	if err := p.want("("); err != nil {
		return nil, err
	}
	for p.peek() != ")" && p.peek() != "" {
		if t := p.next(); t != "," {
			s.labels = append(s.labels, t)
		}
	}
	p.next()
	if err := p.want("("); err != nil {
		return nil, err
	}
	var err error
	if s.of, err = p.binary(0); err != nil {
		return nil, err
	}
	return s, p.want(")")
}

func (p *parser) quantile() (expr, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	v, err := strconv.ParseFloat(p.next(), 64)
	if err != nil {
		return nil, err
	}
	if err := p.want(","); err != nil {
		return nil, err
	}
	of, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	return quantile{v, of}, p.want(")")
}

// replace takes label_replace of an empty pattern: it gives every result a label.
func (p *parser) replace() (expr, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	of, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	var args [4]string
	for i := range args {
		if err := p.want(","); err != nil {
			return nil, err
		}
		if args[i], err = p.text(); err != nil {
			return nil, err
		}
	}
	if args[2] != "" || args[3] != "" {
		return nil, fmt.Errorf("label_replace of the label %q by %q is not understood", args[2], args[3])
	}
	return replace{of, args[0], args[1]}, p.want(")")
}
