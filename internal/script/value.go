package script

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var errTextLong = errors.New("ERR the script was broken off: it makes text of more than 1048576 bytes, and has changed nothing")

// isText reports whether a value is text, or a number, which is text where some is wanted.
func isText(v lua.LValue) bool {
	switch v.(type) {
	case lua.LString, lua.LNumber:
		return true
	}
	return false
}

// toText returns the text of such a value.
func toText(v lua.LValue) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return formatNumber(float64(v), 14)
	}
	return ""
}

// sizeOf returns at least how long the text of such a value is.
func sizeOf(v lua.LValue) int {
	if s, is := v.(lua.LString); is {
		return len(s)
	}
	return 24
}

func appendText(b []byte, v lua.LValue) []byte { return append(b, toText(v)...) }

// display returns what tostring would, but for metatables.
func display(v lua.LValue) string {
	switch v := v.(type) {
	case lua.LString, lua.LNumber:
		return toText(v)
	case *lua.LFunction:
		return fmt.Sprintf("function: %p", v)
	}
	return v.String()
}

// formatNumber writes a number as C's %.*g does.
func formatNumber(f float64, digits int) string {
	switch {
	case math.IsNaN(f) && math.Signbit(f):
		return "-nan"
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	case f == math.Trunc(f) && math.Abs(f) < 1e14 && (f != 0 || !math.Signbit(f)): // Fast path.
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}

const spaces = " \t\n\v\f\r"

// parseNumber returns the number that text is, as C's strtod reads it.
func parseNumber(text string) (float64, bool) {
	text, _, _ = strings.Cut(text, "\x00")
	s := strings.Trim(text, spaces)
	if s == "" || len(s) > 4<<10 || strings.ContainsAny(s, "_") {
		return 0, false
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return 0, false
	}
	if len(digits) > 1 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') && !strings.ContainsAny(digits, "pP.") {
		n, err := strconv.ParseUint(digits[2:], 16, 64)
		if err != nil {
			return 0, false
		}
		if s[0] == '-' {
			return -float64(n), true
		}
		return float64(n), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return f, true
}

// toNumber returns the number that a value is, or that its text is.
func toNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return parseNumber(string(v))
	}
	return 0, false
}

// integer returns a number without its fraction. Beyond what fits, it is what x86 makes of it.
func integer(f float64) int64 {
	if f >= -(1<<63) && f < 1<<63 {
		return int64(f)
	}
	return math.MinInt64
}

// toInt is integer in an int of C: its lowest 32 bits.
func toInt(f float64) int { return int(int32(integer(f))) } //nolint:gosec // as C converts

// What a function of a library was called with.
type params struct {
	*lua.LState
	r    *run
	name string
}

// A function of a library.
type function func(p params) int

// library makes a table of functions.
func (r *run) library(functions map[string]function) *lua.LTable {
	t := r.l.CreateTable(0, len(functions))
	r.add(t, functions)
	return t
}

func (r *run) add(t *lua.LTable, functions map[string]function) {
	for name, f := range functions {
		t.RawSetString(name, r.l.NewFunction(func(l *lua.LState) int { return f(params{l, r, name}) }))
	}
}

// raise raises an error, with where the function was called that is running.
func raise(l *lua.LState, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at, ok := l.GetStack(1); ok {
		if _, err := l.GetInfo("Sl", at, lua.LNil); err == nil && at.CurrentLine > 0 {
			text = at.Source + ":" + itoa(at.CurrentLine) + ": " + text
		}
	}
	l.Error(lua.LString(text), 0)
}

// RaiseError is raise.
func (p params) RaiseError(format string, args ...any) { raise(p.LState, format, args...) }

// wrong raises what is wrong with an argument.
func (p params) wrong(n int, why string) {
	p.RaiseError("bad argument #%d to '%s' (%s)", n, p.name, why)
}

func (p params) mistyped(n int, want string) {
	got := "no value"
	if n <= p.GetTop() {
		got = p.Get(n).Type().String()
	}
	p.wrong(n, want+" expected, got "+got)
}

func (p params) text(n int) string {
	v := p.Get(n)
	if !isText(v) {
		p.mistyped(n, "string")
	}
	return toText(v)
}

func (p params) textOr(n int, or string) string {
	if p.Get(n) == lua.LNil {
		return or
	}
	return p.text(n)
}

func (p params) number(n int) float64 {
	f, is := toNumber(p.Get(n))
	if !is {
		p.mistyped(n, "number")
	}
	return f
}

func (p params) int(n int) int { return toInt(p.number(n)) }

func (p params) intOr(n, or int) int {
	if p.Get(n) == lua.LNil {
		return or
	}
	return p.int(n)
}

// position is what says where in a text something begins or ends.
func (p params) position(n, or int) int {
	if p.Get(n) == lua.LNil && n > 1 && or != none {
		return or
	}
	return int(max(min(integer(p.number(n)), math.MaxInt32), math.MinInt32))
}

// none is what a position is if it is not left out.
const none = math.MinInt

// table returns the table that is the first argument.
func (p params) table() *lua.LTable {
	t, is := p.Get(1).(*lua.LTable)
	if !is {
		p.mistyped(1, "table")
	}
	return t
}

func (p params) any(n int) lua.LValue {
	if n > p.GetTop() {
		p.wrong(n, "value expected")
	}
	return p.Get(n)
}

// give returns values to the script.
func (p params) give(values ...lua.LValue) int {
	for _, v := range values {
		p.Push(v)
	}
	return len(values)
}

func (p params) giveNumber(f float64) int { return p.give(lua.LNumber(f)) }
