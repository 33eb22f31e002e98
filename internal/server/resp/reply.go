package resp

import (
	"runtime"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/keyspace"
)

// Why a reply can't be made.
const (
	errReplyLong   = wireError("ERR the reply is too long: at most 16 MiB")
	errReplyMemory = wireError("OOM the memory for replies is used up: try again later")
)

// An encoder appends replies in the words of RESP2 or, if resp3 is set, RESP3.
// Where RESP2 has no word for a type it gets the one Redis uses: null becomes a
// null bulk, a map an array of keys and values.
//
// Its buffer grows only with leave (see grow). When that is refused, fault says
// why, and what was appended since is not whole: the owner takes it back.
type encoder struct {
	out    []byte
	resp3  bool
	fault  error
	pieces uint                    // how often full was asked
	claim  func(bytes int64) error // asks for memory; nil if nobody counts it
	told   []*keyspace.Value       // of the results that a reply is made of; nil if all are counts
}

// numberBytesMax is how long a line with a sign and a number can be.
const numberBytesMax = 24

// fits makes room for n more bytes, and reports whether there is any.
func (e *encoder) fits(n int) bool { return cap(e.out)-len(e.out) >= n || e.grow(n) }

// grow makes the buffer larger, if the reply may be so long and the memory can be
// had.
func (e *encoder) grow(n int) bool {
	had, need := cap(e.out), len(e.out)+n
	room := 2 * had
	if had > outBytesSoft { // slower, because the old buffer and the new are there at the same time
		room = had + had/4
	}
	room = max(min(room, outBytesMax), need, 64)
	switch {
	case e.fault != nil:
		return false
	case need > outBytesMax:
		e.fault = errReplyLong
		return false
	case e.claim != nil && large(room) > large(had):
		if e.fault = e.claim(large(room) - large(had)); e.fault != nil {
			return false
		}
	}
	e.out = append(make([]byte, 0, room), e.out...)
	return true
}

// chars appends text as it is: a piece of a reply.
func (e *encoder) chars(text string) {
	if e.fits(len(text)) {
		e.out = append(e.out, text...)
	}
}

// raw appends what was encoded before.
func (e *encoder) raw(b []byte) {
	if e.fits(len(b)) {
		e.out = append(e.out, b...)
	}
}

// cut takes back everything from start on, and the memory for it if that is much.
func (e *encoder) cut(start int) {
	e.out, e.fault = e.out[:start], nil
	if cap(e.out)-start > outBytesSoft {
		e.out = slices.Clone(e.out)
	}
}

// piecesMax is how many pieces of a long reply are made before others may run.
const piecesMax = 16

// full reports whether nothing more fits, so that there is no use in going on. Who
// makes a long reply asks it between two pieces. Now and then it lets others run:
// with few processors, the loop would otherwise wait for the end of a time slice.
func (e *encoder) full() bool {
	if e.pieces++; e.pieces%piecesMax == 0 {
		runtime.Gosched()
	}
	return e.fault != nil
}

// takeFault returns why the replies can't be made, if they can't, and forgets it.
func (e *encoder) takeFault() error {
	fault := e.fault
	e.fault = nil
	return fault
}

func (e *encoder) line(sign byte, text string) {
	if !e.fits(len(text) + 3) {
		return
	}
	e.out = append(e.out, sign)
	e.out = append(e.out, text...)
	e.out = append(e.out, '\r', '\n')
}

// simple appends a simple string, which has no line ends.
func (e *encoder) simple(text string) { e.line('+', text) }

func (e *encoder) ok() { e.chars("+OK\r\n") }

// fail appends an error. Line ends in it become spaces.
func (e *encoder) fail(text string) {
	start := len(e.out) + 1
	e.line('-', text)
	for i := min(start, len(e.out)); i < len(e.out)-2; i++ {
		if e.out[i] == '\r' || e.out[i] == '\n' {
			e.out[i] = ' '
		}
	}
}

func (e *encoder) head(sign byte, n int64) {
	if !e.fits(numberBytesMax) {
		return
	}
	e.out = append(e.out, sign)
	e.out = strconv.AppendInt(e.out, n, 10)
	e.out = append(e.out, '\r', '\n')
}

func (e *encoder) integer(n int64) { e.head(':', n) }

// sums appends n numbers, each greater than the one before by a step, or if they are
// blind, so many times OK. Pipelines are full of numbers that follow each other, so
// the line of one is made from that of the one before it (BenchmarkSums).
func (e *encoder) sums(v, step int64, n int, blind bool) {
	before := -1
	for range n {
		at := len(e.out)
		switch {
		case blind:
			e.ok()
		case before < 0 || !e.next(before):
			e.integer(v)
		}
		if step == 1 && v >= 0 && !blind {
			before = at
		}
		v += step
	}
}

// next appends the line of the number after the one whose line is the last, and
// begins at before. It reports false, and appends nothing, if that has one more digit.
func (e *encoder) next(before int) bool {
	if !e.fits(numberBytesMax) {
		return false
	}
	end := len(e.out)
	e.out = append(e.out, e.out[before:]...)
	for i := len(e.out) - 3; i > end; i-- {
		if e.out[i] != '9' {
			e.out[i]++
			return true
		}
		e.out[i] = '0'
	}
	e.out = e.out[:end]
	return false
}

// flag appends 1 or 0, as Redis's commands that existed before RESP3 do.
func (e *encoder) flag(v bool) {
	if v {
		e.integer(1)
	} else {
		e.integer(0)
	}
}

// boolean appends a truth: #t in RESP3, else 1 or 0.
func (e *encoder) boolean(v bool) {
	switch {
	case !e.resp3:
		e.flag(v)
	case v:
		e.line('#', "t")
	default:
		e.line('#', "f")
	}
}

// double appends a number that is no integer: a double in RESP3, else a string.
func (e *encoder) double(v float64) {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if e.resp3 {
		e.line(',', text)
	} else {
		e.text(text)
	}
}

// exactly is double for a number that is written already.
func (e *encoder) exactly(text string) {
	if e.resp3 {
		e.line(',', text)
	} else {
		e.text(text)
	}
}

func (e *encoder) bulk(b []byte) {
	if e.fits(numberBytesMax + len(b) + 2) {
		e.head('$', int64(len(b)))
		e.out = append(e.out, b...)
		e.out = append(e.out, '\r', '\n')
	}
}

func (e *encoder) text(s string) {
	if e.fits(numberBytesMax + len(s) + 2) {
		e.head('$', int64(len(s)))
		e.out = append(e.out, s...)
		e.out = append(e.out, '\r', '\n')
	}
}

// number appends the value of a counter, as the string that Redis holds.
func (e *encoder) number(n int64) {
	var room [20]byte
	e.bulk(strconv.AppendInt(room[:0], n, 10))
}

// verbatim appends text for people.
func (e *encoder) verbatim(s string) {
	start := len(e.out)
	e.chars(s)
	e.frameText(start)
}

// frameText makes everything appended since start one text for people. So the text
// can be appended in pieces, and is never in memory twice.
func (e *encoder) frameText(start int) {
	n := len(e.out) - start
	if e.resp3 {
		e.frame(start, "txt:", '=', n+4)
	} else {
		e.frame(start, "", '$', n)
	}
	if e.fits(2) {
		e.out = append(e.out, '\r', '\n')
	}
}

// frameArray makes the n elements appended since start an array.
func (e *encoder) frameArray(start, n int) { e.frame(start, "", '*', n) }

// frame puts a head, and what follows it, before everything appended since start.
func (e *encoder) frame(start int, after string, sign byte, n int) {
	if !e.fits(numberBytesMax + len(after)) {
		return
	}
	end := len(e.out)
	e.head(sign, int64(n))
	e.out = append(e.out, after...)
	e.toFront(start, end)
}

// toFront puts the little that was appended since end before everything that was
// appended since start.
func (e *encoder) toFront(start, end int) {
	var room [4 * numberBytesMax]byte
	front := append(room[:0], e.out[end:]...)
	copy(e.out[start+len(front):], e.out[start:end])
	copy(e.out[start:], front)
}

func (e *encoder) null() {
	if e.resp3 {
		e.chars("_\r\n")
	} else {
		e.chars("$-1\r\n")
	}
}

// nullArray appends the null that stands for an array.
func (e *encoder) nullArray() {
	if e.resp3 {
		e.chars("_\r\n")
	} else {
		e.chars("*-1\r\n")
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

// pairs announces n pairs, which are arrays of their own in RESP3.
func (e *encoder) pairs(n int) {
	if e.resp3 {
		e.array(n)
	} else {
		e.array(2 * n)
	}
}

// push announces n elements that answer no command: in RESP2 they are an array.
func (e *encoder) push(n int) {
	if e.resp3 {
		e.head('>', int64(n))
	} else {
		e.array(n)
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
