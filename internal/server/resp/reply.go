package resp

import (
	"strconv"
)

// An encoder appends replies in the words of RESP2 or, if resp3 is set, RESP3.
// Where RESP2 has no word for a type it gets the one Redis uses: null becomes a
// null bulk, a map an array of keys and values.
type encoder struct {
	out   []byte
	resp3 bool
}

func (e *encoder) line(sign byte, text string) {
	e.out = append(e.out, sign)
	e.out = append(e.out, text...)
	e.out = append(e.out, '\r', '\n')
}

// simple appends a simple string, which has no line ends.
func (e *encoder) simple(text string) { e.line('+', text) }

func (e *encoder) ok() { e.simple("OK") }

// fail appends an error. Line ends in it become spaces.
func (e *encoder) fail(text string) {
	start := len(e.out) + 1
	e.line('-', text)
	for i := start; i < len(e.out)-2; i++ {
		if e.out[i] == '\r' || e.out[i] == '\n' {
			e.out[i] = ' '
		}
	}
}

func (e *encoder) head(sign byte, n int64) {
	e.out = append(e.out, sign)
	e.out = strconv.AppendInt(e.out, n, 10)
	e.out = append(e.out, '\r', '\n')
}

func (e *encoder) integer(n int64) { e.head(':', n) }

// flag appends 1 or 0, as Redis's commands that existed before RESP3 do.
func (e *encoder) flag(v bool) {
	if v {
		e.out = append(e.out, ":1\r\n"...)
	} else {
		e.out = append(e.out, ":0\r\n"...)
	}
}

// boolean appends a truth: #t in RESP3, else 1 or 0.
func (e *encoder) boolean(v bool) {
	switch {
	case !e.resp3:
		e.flag(v)
	case v:
		e.out = append(e.out, "#t\r\n"...)
	default:
		e.out = append(e.out, "#f\r\n"...)
	}
}

func (e *encoder) bulk(b []byte) {
	e.head('$', int64(len(b)))
	e.out = append(e.out, b...)
	e.out = append(e.out, '\r', '\n')
}

func (e *encoder) text(s string) {
	e.head('$', int64(len(s)))
	e.out = append(e.out, s...)
	e.out = append(e.out, '\r', '\n')
}

// number appends the value of a counter, as the string that Redis holds.
func (e *encoder) number(n int64) {
	var room [20]byte
	e.bulk(strconv.AppendInt(room[:0], n, 10))
}

// verbatim appends text for people.
func (e *encoder) verbatim(s string) {
	if !e.resp3 {
		e.text(s)
		return
	}
	e.head('=', int64(len(s)+4))
	e.out = append(e.out, "txt:"...)
	e.out = append(e.out, s...)
	e.out = append(e.out, '\r', '\n')
}

func (e *encoder) null() {
	if e.resp3 {
		e.out = append(e.out, "_\r\n"...)
	} else {
		e.out = append(e.out, "$-1\r\n"...)
	}
}

// nullArray appends the null that stands for an array.
func (e *encoder) nullArray() {
	if e.resp3 {
		e.out = append(e.out, "_\r\n"...)
	} else {
		e.out = append(e.out, "*-1\r\n"...)
	}
}

// array announces n elements.
func (e *encoder) array(n int) { e.head('*', int64(n)) }

// fields announces n pairs of a map.
func (e *encoder) fields(n int) {
	if e.resp3 {
		e.head('%', int64(n))
	} else {
		e.head('*', int64(2*n))
	}
}

// set announces n elements that differ.
func (e *encoder) set(n int) {
	if e.resp3 {
		e.head('~', int64(n))
	} else {
		e.array(n)
	}
}
