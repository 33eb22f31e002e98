// Package statsd reads the lines of StatsD and DogStatsD. It is pure.
//
// For any bytes, a line is either a metric or an error. The amounts of a
// counter are exact unless they are sampled or have fractions.
package statsd

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// A Kind is what a line counts.
type Kind uint8

// The kinds.
const (
	Other   Kind = iota // a type that Quipu does not count, an event or a service check
	Counter             // c
	Set                 // s
)

// TagsMax is how many tags a line may have.
const TagsMax = 64

// A Tag is a name, and a value that may be empty.
type Tag struct{ Name, Value []byte }

// A Metric is one line. Its bytes are those of the line.
type Metric struct {
	Kind Kind
	Name []byte

	// Count is what a counter counts, scaled by the sample rate, and Part, which is at
	// least 0 and below 1, is the rest of it.
	Count int64
	Part  float64

	Item []byte // of a Set
	Tags []Tag
	Time int64 // when it was, in Unix seconds; 0 if the line does not say
}

// Errors of lines.
var (
	errName   = errors.New("want a name before the colon")
	errType   = errors.New("want a type behind the value")
	errValue  = errors.New("want a number")
	errRange  = errors.New("the value is not within 64 bits")
	errRate   = errors.New("want a sample rate above 0 and at most 1")
	errTime   = errors.New("want a time in Unix seconds")
	errTags   = errors.New("too many tags")
	errItem   = errors.New("want an item")
	errRepeat = errors.New("a part is given twice")
)

// Cut returns the first line of a datagram that has something in it, and the rest.
func Cut(datagram []byte) (line, rest []byte) {
	for len(datagram) > 0 {
		line, datagram, _ = bytes.Cut(datagram, []byte{'\n'})
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
			return line, datagram
		}
	}
	return nil, nil
}

// Parse reads a line into m, and uses the room that its tags have.
func (m *Metric) Parse(line []byte) error {
	*m = Metric{Tags: m.Tags[:0]}
	if bytes.HasPrefix(line, []byte("_e{")) || bytes.HasPrefix(line, []byte("_sc|")) {
		return nil
	}
	name, rest, found := bytes.Cut(line, []byte{':'})
	if !found || len(name) == 0 {
		return errName
	}
	m.Name = name
	values, rest, found := bytes.Cut(rest, []byte{'|'})
	if !found {
		return errType
	}
	kind, rest, more := bytes.Cut(rest, []byte{'|'})
	switch string(kind) {
	case "c":
		m.Kind = Counter
	case "s":
		m.Kind = Set
	case "":
		return errType
	default:
		return nil
	}
	rate := 1.0
	var rated, tagged bool
	for more {
		var part []byte
		part, rest, more = bytes.Cut(rest, []byte{'|'})
		if len(part) == 0 {
			continue
		}
		var err error
		switch part[0] {
		case '@':
			if rated {
				return errRepeat
			}
			rated = true
			rate, err = strconv.ParseFloat(string(part[1:]), 64)
			if err != nil || !(rate > 0 && rate <= 1) {
				return errRate
			}
		case '#':
			if tagged {
				return errRepeat
			}
			tagged = true
			err = m.tags(part[1:])
		case 'T':
			m.Time, err = strconv.ParseInt(string(part[1:]), 10, 64)
			if err != nil || m.Time < 1 || m.Time > math.MaxInt64/1000 {
				return errTime
			}
		}
		if err != nil {
			return err
		}
	}
	if m.Kind == Set {
		if m.Item = values; len(values) == 0 {
			return errItem
		}
		return nil
	}
	return m.count(values, rate)
}

// tags reads the tags of DogStatsD.
func (m *Metric) tags(list []byte) error {
	for more := len(list) > 0; more; {
		var one []byte
		if one, list, more = bytes.Cut(list, []byte{','}); len(one) == 0 {
			continue
		}
		if len(m.Tags) == TagsMax {
			return errTags
		}
		name, value, _ := bytes.Cut(one, []byte{':'})
		m.Tags = append(m.Tags, Tag{name, value})
	}
	return nil
}

// count adds up the values of a counter: DogStatsD packs several into a line.
func (m *Metric) count(values []byte, rate float64) error {
	for more := true; more; {
		var one []byte
		one, values, more = bytes.Cut(values, []byte{':'})
		whole, part, err := scaled(one, rate)
		if err != nil {
			return err
		}
		sum := m.Count + whole
		if (sum > m.Count) != (whole > 0) && whole != 0 {
			return errRange
		}
		m.Count, m.Part = sum, m.Part+part
		if m.Part >= 1 {
			if m.Count == math.MaxInt64 {
				return errRange
			}
			m.Count, m.Part = m.Count+1, m.Part-1
		}
	}
	return nil
}

// scaled returns a value divided by the sample rate: how often it happened.
func scaled(value []byte, rate float64) (whole int64, part float64, err error) {
	if n, ok := integer(value); ok && rate == 1 { // Fast path, and exact.
		return n, 0, nil
	}
	if !decimal(value) {
		return 0, 0, errValue
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return 0, 0, errValue
	}
	f /= rate
	floor := math.Floor(f)
	const limit = 1 << 63
	if !(floor >= -limit && floor < limit) {
		return 0, 0, errRange
	}
	return int64(floor), f - floor, nil
}

// integer reads up to 18 digits with a sign.
func integer(b []byte) (n int64, ok bool) {
	digits := b
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		n, err := strconv.ParseInt(string(b), 10, 64)
		return n, err == nil
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if b[0] == '-' {
		n = -n
	}
	return n, true
}

// decimal reports whether only digits, a sign, a point and an exponent are there: a
// number of Go may be written in more ways.
func decimal(b []byte) bool {
	digits := 0
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E':
			return false
		}
	}
	return digits > 0
}
