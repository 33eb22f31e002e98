package script

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

// jsonDepthMax is how deep JSON may be nested.
const jsonDepthMax = 1000

// json makes the table cjson.
func (r *run) json() *lua.LTable {
	null := &lua.LUserData{Metatable: lua.LNil}
	t := r.library(map[string]function{
		"encode": func(p params) int {
			e := jsonEncoder{p: p, null: null}
			if p.GetTop() != 1 {
				p.wrong(1, "expected 1 argument")
			}
			e.value(p.Get(1), 0)
			return p.r.text(string(e.b))
		},
		"decode": func(p params) int {
			if p.GetTop() != 1 {
				p.wrong(1, "expected 1 argument")
			}
			d := jsonDecoder{p: p, null: null, s: p.text(1)}
			v := d.value(0)
			if d.space(); d.at < len(d.s) {
				d.unexpected("the end")
			}
			return p.give(v)
		},
	})
	t.RawSetString("null", null)
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	return t
}

type jsonEncoder struct {
	p    params
	null *lua.LUserData
	b    []byte
}

func (e *jsonEncoder) cant(v lua.LValue, why string) {
	e.p.RaiseError("Cannot serialise %s: %s", v.Type(), why)
}

func (e *jsonEncoder) value(v lua.LValue, depth int) {
	e.p.r.meter.work(e.p.LState, 1)
	if len(e.b) > textMax {
		e.p.r.room(len(e.b))
	}
	switch v := v.(type) {
	case lua.LString:
		e.text(string(v))
	case lua.LNumber:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			e.cant(v, "must not be NaN or Inf")
		}
		e.b = append(e.b, formatNumber(float64(v), 14)...)
	case lua.LBool, *lua.LNilType:
		if v == lua.LNil {
			e.b = append(e.b, "null"...)
		} else {
			e.b = append(e.b, v.String()...)
		}
	case *lua.LTable:
		if depth++; depth > jsonDepthMax {
			e.p.RaiseError("Cannot serialise, excessive depth (%d)", depth)
		}
		e.table(v, depth)
	default:
		if v != lua.LValue(e.null) {
			e.cant(v, "type not supported")
		}
		e.b = append(e.b, "null"...)
	}
}

// length returns how long the array is that a table is, or -1 if it is none.
func (e *jsonEncoder) length(t *lua.LTable) int {
	most, n := 0, 0
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		f, is := k.(lua.LNumber)
		if !is || f <= 0 || float64(f) != math.Floor(float64(f)) {
			return -1
		}
		most = max(most, int(min(integer(float64(f)), math.MaxInt32)))
		n++
	}
	e.p.r.meter.work(e.p.LState, n)
	if most > 10 && most > n*2 {
		e.cant(t, "excessively sparse array")
	}
	return most
}

func (e *jsonEncoder) table(t *lua.LTable, depth int) {
	if n := e.length(t); n > 0 {
		e.b = append(e.b, '[')
		for i := range n {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			e.value(t.RawGet(lua.LNumber(i+1)), depth)
		}
		e.b = append(e.b, ']')
		return
	}
	e.b = append(e.b, '{')
	first := true
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if !first {
			e.b = append(e.b, ',')
		}
		first = false
		switch k := k.(type) {
		case lua.LString:
			e.text(string(k))
		case lua.LNumber:
			e.b = append(append(append(e.b, '"'), formatNumber(float64(k), 14)...), '"')
		default:
			e.cant(t, "table key must be a number or string")
		}
		e.b = append(e.b, ':')
		e.value(v, depth)
	}
	e.b = append(e.b, '}')
}

func (e *jsonEncoder) text(s string) {
	if len(e.b)+len(s) > textMax {
		e.p.r.room(len(e.b) + len(s))
	}
	e.b = append(e.b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '/':
			e.b = append(e.b, '\\', c)
		case '\b':
			e.b = append(e.b, `\b`...)
		case '\f':
			e.b = append(e.b, `\f`...)
		case '\n':
			e.b = append(e.b, `\n`...)
		case '\r':
			e.b = append(e.b, `\r`...)
		case '\t':
			e.b = append(e.b, `\t`...)
		default:
			if c >= ' ' && c != 127 {
				e.b = append(e.b, c)
				continue
			}
			e.b = append(e.b, `\u00`...)
			e.b = append(e.b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		}
	}
	e.b = append(e.b, '"')
}

type jsonDecoder struct {
	p    params
	null *lua.LUserData
	s    string
	at   int
}

func (d *jsonDecoder) space() {
	for d.at < len(d.s) && strings.IndexByte(" \t\n\r", d.s[d.at]) >= 0 {
		d.at++
	}
}

func (d *jsonDecoder) unexpected(want string) {
	got := "invalid token"
	if d.at >= len(d.s) {
		got = "T_END"
	} else if token, is := map[byte]string{'{': "T_OBJ_BEGIN", '}': "T_OBJ_END", '[': "T_ARR_BEGIN", ']': "T_ARR_END", ',': "T_COMMA", ':': "T_COLON", '"': "T_STRING"}[d.s[d.at]]; is {
		got = token
	} else if c := d.s[d.at]; isDigit(c) || c == '-' {
		got = "T_NUMBER"
	}
	d.p.RaiseError("Expected %s but found %s at character %d", want, got, d.at+1)
}

// next reports whether the next thing is a sign, and takes it.
func (d *jsonDecoder) next(c byte) bool {
	d.space()
	if d.at < len(d.s) && d.s[d.at] == c {
		d.at++
		return true
	}
	return false
}

func (d *jsonDecoder) value(depth int) lua.LValue {
	d.p.r.meter.work(d.p.LState, 1)
	if depth > jsonDepthMax {
		d.p.RaiseError("Found too many nested data structures (%d) at character %d", depth, d.at)
	}
	d.space()
	if d.at >= len(d.s) {
		d.unexpected("value")
	}
	switch c := d.s[d.at]; {
	case c == '{':
		d.at++
		return d.object(depth + 1)
	case c == '[':
		d.at++
		return d.array(depth + 1)
	case c == '"':
		s := d.text()
		d.p.r.room(len(s))
		return lua.LString(s)
	case isDigit(c) || c == '-':
		return d.number()
	}
	for word, v := range map[string]lua.LValue{"true": lua.LTrue, "false": lua.LFalse, "null": d.null} {
		if strings.HasPrefix(d.s[d.at:], word) {
			d.at += len(word)
			return v
		}
	}
	d.unexpected("value")
	return lua.LNil
}

func (d *jsonDecoder) number() lua.LValue {
	end := d.at
	for end < len(d.s) && (isDigit(d.s[end]) || strings.IndexByte("+-.eExXabcdfABCDF", d.s[end]) >= 0) {
		end++
	}
	f, is := parseNumber(d.s[d.at:end])
	if !is {
		d.unexpected("value")
	}
	d.at = end
	return lua.LNumber(f)
}

func (d *jsonDecoder) array(depth int) lua.LValue {
	d.p.r.meter.charge(d.p.LState, costTable)
	t := d.p.CreateTable(0, 0)
	if d.next(']') {
		return t
	}
	d.p.r.meter.charge(d.p.LState, costArray)
	for i := 1; ; i++ {
		d.p.r.meter.charge(d.p.LState, 2*costSlot)
		t.RawSetInt(i, d.value(depth))
		if d.next(']') {
			return t
		}
		if !d.next(',') {
			d.unexpected("comma or array end")
		}
	}
}

func (d *jsonDecoder) object(depth int) lua.LValue {
	d.p.r.meter.charge(d.p.LState, costTable)
	t := d.p.CreateTable(0, 0)
	if d.next('}') {
		return t
	}
	d.p.r.meter.charge(d.p.LState, costFields)
	for {
		if d.space(); d.at >= len(d.s) || d.s[d.at] != '"' {
			d.unexpected("object key string")
		}
		key := d.text()
		if !d.next(':') {
			d.unexpected("colon")
		}
		d.p.r.meter.charge(d.p.LState, costField+len(key))
		t.RawSetString(key, d.value(depth))
		if d.next('}') {
			return t
		}
		if !d.next(',') {
			d.unexpected("comma or object end")
		}
	}
}

// text reads a string.
func (d *jsonDecoder) text() string {
	start := d.at
	d.at++
	var b []byte
	for {
		if d.at >= len(d.s) {
			d.at = start
			d.p.RaiseError("Expected value but found unexpected end of string at character %d", len(d.s)+1)
		}
		c := d.s[d.at]
		d.at++
		switch {
		case c == '"':
			d.p.r.meter.work(d.p.LState, (d.at-start)/64)
			return string(b)
		case c < ' ':
			d.at--
			d.p.RaiseError("Expected value but found invalid token at character %d", d.at+1)
		case c == '\\':
			b = d.escape(b)
		default:
			b = append(b, c)
		}
	}
}

func (d *jsonDecoder) escape(b []byte) []byte {
	if d.at >= len(d.s) {
		return b
	}
	c := d.s[d.at]
	d.at++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return append(b, "\"\\/\b\f\n\r\t"[i])
	}
	if c == 'u' {
		if r, is := d.unit(); is {
			if r >= 0xd800 && r < 0xdc00 && strings.HasPrefix(d.s[d.at:], `\u`) {
				d.at += 2
				if low, is := d.unit(); is && low >= 0xdc00 && low < 0xe000 {
					return utf8.AppendRune(b, 0x10000+(r-0xd800)<<10+(low-0xdc00))
				}
			} else if r < 0xd800 || r >= 0xe000 {
				return utf8.AppendRune(b, r)
			}
			d.p.RaiseError("Expected value but found invalid unicode escape code at character %d", d.at)
		}
	}
	d.p.RaiseError("Expected value but found invalid escape code at character %d", d.at-1)
	return b
}

// unit reads four hexadecimal digits.
func (d *jsonDecoder) unit() (rune, bool) {
	if d.at+4 > len(d.s) {
		return 0, false
	}
	n, err := strconv.ParseUint(d.s[d.at:d.at+4], 16, 16)
	d.at += 4
	return rune(n), err == nil //nolint:gosec // 16 bits
}
