package script

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func textFunctions() map[string]function {
	return map[string]function{
		"byte":    textByte,
		"char":    textChar,
		"find":    func(p params) int { return p.find(true) },
		"format":  textFormat,
		"gfind":   textGMatch,
		"gmatch":  textGMatch,
		"gsub":    textGSub,
		"len":     func(p params) int { return p.giveNumber(float64(len(p.text(1)))) },
		"lower":   func(p params) int { return p.mapped(func(c byte) byte { return c + 'a' - 'A' }, isUpper) },
		"match":   func(p params) int { return p.find(false) },
		"rep":     textRepeat,
		"reverse": textReverse,
		"sub":     textSub,
		"upper":   func(p params) int { return p.mapped(func(c byte) byte { return c - 'a' + 'A' }, isLower) },
	}
}

// textArithmetic is what arithmetic does with text: that of the interpreter reads octal numbers.
func textArithmetic() map[string]function {
	two := func(f func(a, b float64) float64) function {
		return func(p params) int {
			a, is1 := toNumber(p.Get(1))
			b, is2 := toNumber(p.Get(2))
			if !is1 || !is2 {
				wrong := p.Get(1)
				if is1 {
					wrong = p.Get(2)
				}
				p.RaiseError("attempt to perform arithmetic on a %s value", wrong.Type())
			}
			return p.giveNumber(f(a, b))
		}
	}
	return map[string]function{
		"__add": two(func(a, b float64) float64 { return a + b }),
		"__sub": two(func(a, b float64) float64 { return a - b }),
		"__mul": two(func(a, b float64) float64 { return a * b }),
		"__div": two(func(a, b float64) float64 { return a / b }),
		"__mod": two(func(a, b float64) float64 { return a - math.Floor(a/b)*b }),
		"__pow": two(math.Pow),
		"__unm": func(p params) int {
			f, is := toNumber(p.Get(1))
			if !is {
				p.RaiseError("attempt to perform arithmetic on a string value")
			}
			return p.giveNumber(-f)
		},
	}
}

// from returns a position that may be counted from the end.
func from(at, n int) int {
	if at < 0 {
		at = max(at+n+1, 0)
	}
	return at
}

func textByte(p params) int {
	s := p.text(1)
	first := from(p.position(2, 1), len(s))
	last := min(from(p.position(3, first), len(s)), len(s))
	first = max(first, 1)
	if last-first >= valuesMax {
		p.RaiseError("string slice too long")
	}
	for i := first; i <= last; i++ {
		p.Push(lua.LNumber(s[i-1]))
	}
	return max(last-first+1, 0)
}

func textChar(p params) int {
	b := make([]byte, p.GetTop())
	for i := range b {
		n := p.int(i + 1)
		if n < 0 || n > 255 {
			p.wrong(i+1, "invalid value")
		}
		b[i] = byte(n)
	}
	return p.r.text(string(b))
}

func (p params) mapped(f func(byte) byte, which func(byte) bool) int {
	s := p.text(1)
	p.r.room(len(s))
	b := []byte(s)
	for i, c := range b {
		if which(c) {
			b[i] = f(c)
		}
	}
	return p.give(lua.LString(b))
}

func textRepeat(p params) int {
	s, n := p.text(1), max(p.int(2), 0)
	if n > 0 && len(s) > textMax/n {
		p.r.room(textMax + 1)
	}
	p.r.room(len(s) * n)
	return p.give(lua.LString(strings.Repeat(s, n)))
}

func textReverse(p params) int {
	s := p.text(1)
	p.r.room(len(s))
	b := make([]byte, len(s))
	for i := range b {
		b[i] = s[len(s)-1-i]
	}
	return p.give(lua.LString(b))
}

func textSub(p params) int {
	s := p.text(1)
	first := max(from(p.position(2, none), len(s)), 1)
	last := min(from(p.position(3, -1), len(s)), len(s))
	if first > last {
		return p.give(lua.LString(""))
	}
	return p.r.text(strings.Clone(s[first-1 : last]))
}

// find is find, or match.
func (p params) find(where bool) int {
	s, pat := p.text(1), p.text(2)
	init := min(max(from(p.position(3, 1), len(s))-1, 0), len(s))
	if where && (lua.LVAsBool(p.Get(4)) || !strings.ContainsAny(pat, "^$*+?.([%-")) {
		p.r.meter.work(p.LState, (len(s)-init)/64)
		if at := strings.Index(s[init:], pat); at >= 0 {
			return p.give(lua.LNumber(init+at+1), lua.LNumber(init+at+len(pat)))
		}
		return p.give(lua.LNil)
	}
	m := matcher{p: p, s: s}
	var anchored bool
	m.pat, anchored = strings.CutPrefix(pat, "^")
	for ; init <= len(s); init++ {
		m.level = 0
		if end := m.match(init, 0); end >= 0 {
			if !where {
				return m.push(init, end, true)
			}
			p.Push(lua.LNumber(init + 1))
			p.Push(lua.LNumber(end))
			return m.push(init, end, false) + 2
		}
		if anchored {
			break
		}
	}
	return p.give(lua.LNil)
}

func textGMatch(p params) int {
	s, pat, at := p.text(1), p.text(2), 0
	r := p.r
	r.meter.charge(p.LState, costClosure)
	return p.give(p.NewFunction(func(l *lua.LState) int {
		m := matcher{p: params{l, r, "gmatch"}, s: s, pat: pat}
		for ; at <= len(s); at++ {
			m.level = 0
			if end := m.match(at, 0); end >= 0 {
				start := at
				if at = end; end == start {
					at++
				}
				return m.push(start, end, true)
			}
		}
		return 0
	}))
}

func textGSub(p params) int {
	s, pat := p.text(1), p.text(2)
	to := p.Get(3)
	_, calls := to.(*lua.LFunction)
	_, looks := to.(*lua.LTable)
	if !calls && !looks && !isText(to) {
		p.wrong(3, "string/function/table expected")
	}
	most := p.intOr(4, len(s)+1)
	m := matcher{p: p, s: s}
	var anchored bool
	m.pat, anchored = strings.CutPrefix(pat, "^")
	var b []byte
	n, at := 0, 0
	for n < most {
		m.level = 0
		end := m.match(at, 0)
		if end >= 0 {
			n++
			b = m.replace(b, to, at, end)
			if len(b) > textMax {
				p.r.room(len(b))
			}
		}
		if end > at {
			at = end
		} else if at < len(s) {
			b = append(b, s[at])
			at++
		} else {
			break
		}
		if anchored {
			break
		}
	}
	b = append(b, s[at:]...)
	p.r.text(string(b))
	p.Push(lua.LNumber(n))
	return 2
}

// replace appends what is to stand for what has matched.
func (m *matcher) replace(b []byte, to lua.LValue, s, end int) []byte {
	var v lua.LValue
	switch to := to.(type) {
	case *lua.LFunction:
		m.p.Push(to)
		n := m.push(s, end, true)
		m.p.Call(n, 1)
		v = m.p.Get(-1)
		m.p.Pop(1)
	case *lua.LTable:
		v = m.p.GetTable(to, m.captured(0, s, end))
	default:
		return m.template(b, toText(to), s, end)
	}
	switch {
	case !lua.LVAsBool(v):
		return append(b, m.s[s:end]...)
	case !isText(v):
		m.fail("invalid replacement value (a " + v.Type().String() + ")")
	}
	return appendText(b, v)
}

func (m *matcher) template(b []byte, text string, s, end int) []byte {
	for i := 0; i < len(text); i++ {
		m.step()
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		i++
		switch {
		case i == len(text):
			return append(b, 0)
		case !isDigit(text[i]):
			b = append(b, text[i])
		case text[i] == '0':
			b = append(b, m.s[s:end]...)
		default:
			b = appendText(b, m.captured(int(text[i]-'1'), s, end))
		}
		if len(b) > textMax {
			m.p.r.room(len(b))
		}
	}
	return b
}

// textFormat is C's printf, as far as Lua lets one have it.
func textFormat(p params) int {
	format := p.text(1)
	var b []byte
	for arg := 1; format != ""; {
		plain, rest, more := strings.Cut(format, "%")
		b, format = append(b, plain...), rest
		if !more {
			break
		}
		if strings.HasPrefix(format, "%") {
			b, format = append(b, '%'), format[1:]
			continue
		}
		if arg++; arg > p.GetTop() {
			p.wrong(arg, "no value")
		}
		var f spec
		f, format = p.spec(format)
		if b = p.item(b, f, arg); len(b) > textMax {
			p.r.room(len(b))
		}
	}
	return p.r.text(string(b))
}

// A spec is how one argument is formatted.
type spec struct {
	flags       string
	width, prec int // -1 if there is none
	verb        byte
}

func (p params) spec(format string) (f spec, rest string) {
	n := 0
	for n < len(format) && strings.IndexByte("-+ #0", format[n]) >= 0 {
		n++
	}
	if n > 5 {
		p.RaiseError("invalid format (repeated flags)")
	}
	f.flags, rest = format[:n], format[n:]
	digits := func() int {
		n := 0
		for n < 2 && n < len(rest) && isDigit(rest[n]) {
			n++
		}
		v, _ := strconv.Atoi(rest[:n])
		if n == 0 {
			v = -1
		}
		rest = rest[n:]
		return v
	}
	f.width, f.prec = digits(), -1
	if strings.HasPrefix(rest, ".") {
		rest = rest[1:]
		f.prec = max(digits(), 0)
	}
	if rest != "" && isDigit(rest[0]) {
		p.RaiseError("invalid format (width or precision too long)")
	}
	if rest == "" {
		p.RaiseError("invalid option '%%' to 'format'")
	}
	f.verb = rest[0]
	return f, rest[1:]
}

func (p params) item(b []byte, f spec, arg int) []byte {
	switch f.verb {
	case 'c':
		return f.pad(b, string([]byte{byte(p.int(arg))}))
	case 'd', 'i':
		n := integer(p.number(arg))
		text := strconv.FormatUint(magnitude(n), 10)
		return f.signed(b, f.zeros(text, n == 0), n < 0)
	case 'o', 'u', 'x', 'X':
		return f.unsigned(b, unsigned(p.number(arg)))
	case 'e', 'E', 'f', 'g', 'G':
		return f.float(b, p.number(arg))
	case 'q':
		return quoted(b, p.text(arg))
	case 's':
		v := p.any(arg)
		text := ""
		if isText(v) {
			text = toText(v)
		} else {
			p.mistyped(arg, "string")
		}
		if f.prec >= 0 || len(text) < 100 { // C's own: it ends at a zero
			text, _, _ = strings.Cut(text, "\x00")
		}
		if f.prec >= 0 {
			text = clip(text, f.prec)
		}
		return f.pad(b, text)
	}
	p.RaiseError("invalid option '%%%s' to 'format'", string([]byte{f.verb}))
	return b
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return uint64(-n) //nolint:gosec // the least number is its own negative
	}
	return uint64(n)
}

func unsigned(f float64) uint64 {
	if f >= 1<<63 && f < 1<<64 {
		return uint64(f)
	}
	return uint64(integer(f)) //nolint:gosec // as C converts
}

func (f spec) has(flag byte) bool { return strings.IndexByte(f.flags, flag) >= 0 }

// zeros gives a number as many digits as the precision asks for.
func (f spec) zeros(text string, zero bool) string {
	if f.prec == 0 && zero {
		return ""
	}
	return strings.Repeat("0", max(f.prec-len(text), 0)) + text
}

func (f spec) unsigned(b []byte, n uint64) []byte {
	base, prefix := 10, ""
	switch f.verb {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
		if f.has('#') && n != 0 {
			prefix = "0" + string([]byte{f.verb})
		}
	}
	text := strconv.FormatUint(n, base)
	if f.verb == 'X' {
		text = strings.ToUpper(text)
	}
	text = f.zeros(text, n == 0)
	if f.verb == 'o' && f.has('#') && !strings.HasPrefix(text, "0") {
		text = "0" + text
	}
	if f.has('0') && !f.has('-') && f.prec < 0 {
		text = strings.Repeat("0", max(f.width-len(prefix)-len(text), 0)) + text
	}
	return f.pad(b, prefix+text)
}

// signed appends digits with their sign.
func (f spec) signed(b []byte, digits string, minus bool) []byte {
	sign := ""
	switch {
	case minus:
		sign = "-"
	case f.has('+'):
		sign = "+"
	case f.has(' '):
		sign = " "
	}
	whole := f.verb == 'd' || f.verb == 'i'
	if f.has('0') && !f.has('-') && (!whole || f.prec < 0) && digits != "inf" && digits != "nan" {
		digits = strings.Repeat("0", max(f.width-len(sign)-len(digits), 0)) + digits
	}
	return f.pad(b, sign+digits)
}

func (f spec) float(b []byte, n float64) []byte {
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	verb := f.verb
	var text string
	switch {
	case math.IsInf(n, 0):
		text = "inf"
	case math.IsNaN(n):
		text = "nan"
	case verb|0x20 == 'g':
		text = general(math.Abs(n), max(prec, 1), f.has('#'))
	default:
		text = strconv.FormatFloat(math.Abs(n), verb|0x20, prec, 64)
		if prec == 0 && f.has('#') {
			mantissa, exponent, _ := strings.Cut(text, "e")
			if text = mantissa + "."; verb|0x20 == 'e' {
				text += "e" + exponent
			}
		}
	}
	if isUpper(verb) {
		text = strings.ToUpper(text)
	}
	return f.signed(b, text, math.Signbit(n))
}

// general writes a number as C's %g does.
func general(n float64, prec int, all bool) string {
	if !all {
		return strconv.FormatFloat(n, 'g', prec, 64)
	}
	exponent := 0
	if n != 0 {
		_, after, _ := strings.Cut(strconv.FormatFloat(n, 'e', prec-1, 64), "e")
		exponent, _ = strconv.Atoi(after)
	}
	var text string
	if exponent < -4 || exponent >= prec {
		text = strconv.FormatFloat(n, 'e', prec-1, 64)
	} else {
		text = strconv.FormatFloat(n, 'f', prec-1-exponent, 64)
	}
	if !strings.Contains(text, ".") {
		mantissa, after, is := strings.Cut(text, "e")
		if text = mantissa + "."; is {
			text += "e" + after
		}
	}
	return text
}

// pad appends text with as many spaces as make its width.
func (f spec) pad(b []byte, text string) []byte {
	gap := strings.Repeat(" ", max(f.width-len(text), 0))
	if f.has('-') {
		return append(append(b, text...), gap...)
	}
	return append(append(b, gap...), text...)
}

func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b = append(b, '\\', c)
		case '\r':
			b = append(b, `\r`...)
		case 0:
			b = append(b, `\000`...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
