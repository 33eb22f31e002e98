package script

import (
	lua "github.com/yuin/gopher-lua"
)

// The limits of a pattern.
const (
	capturesMax = 32
	nestingMax  = 200
)

// What a capture is that has no length.
const (
	unfinished = -1
	position   = -2
)

type capture struct{ at, n int }

// A matcher matches a pattern of Lua. Each step counts, since a short pattern can take
// longer than anyone lives.
type matcher struct {
	p        params
	s, pat   string
	captures [capturesMax]capture
	level    int
	nested   int
	steps    int
}

func (m *matcher) fail(why string) { m.p.RaiseError("%s", why) }

// stepsPaid is after how many steps they are paid for.
const stepsPaid = 256

func (m *matcher) step() {
	if m.steps++; m.steps == stepsPaid {
		m.steps = 0
		m.p.r.meter.work(m.p.LState, stepsPaid/4)
	}
}

// at returns a byte of the pattern, or 0 behind its end.
func (m *matcher) at(p int) byte {
	if p < len(m.pat) {
		return m.pat[p]
	}
	return 0
}

func (m *matcher) classEnd(p int) int {
	if p >= len(m.pat) {
		return p
	}
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			m.fail("malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		if m.at(p) == '^' {
			p++
		}
		for first := true; first || m.at(p) != ']'; first = false {
			if p >= len(m.pat) {
				m.fail("malformed pattern (missing ']')")
			}
			p++
			if m.pat[p-1] == '%' && p < len(m.pat) {
				p++
			}
			m.step()
		}
		return p + 1
	}
	return p
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isAlpha(c byte) bool { return isLower(c) || isUpper(c) }

func inClass(c, class byte) bool {
	var is bool
	switch class | 0x20 {
	case 'a':
		is = isAlpha(c)
	case 'c':
		is = c < ' ' || c == 127
	case 'd':
		is = isDigit(c)
	case 'l':
		is = isLower(c)
	case 'p':
		is = c > ' ' && c < 127 && !isAlpha(c) && !isDigit(c)
	case 's':
		is = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		is = isUpper(c)
	case 'w':
		is = isAlpha(c) || isDigit(c)
	case 'x':
		is = isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
	case 'z':
		is = c == 0
	default:
		return class == c
	}
	if !isAlpha(class) {
		return class == c
	}
	return is == isLower(class)
}

// inSet reports whether a byte is in the set that begins at p and ends with the ] at end.
func (m *matcher) inSet(c byte, p, end int) bool {
	in := true
	if m.at(p+1) == '^' {
		in = false
		p++
	}
	for p++; p < end; p++ {
		m.step()
		switch {
		case m.pat[p] == '%':
			if p++; inClass(c, m.at(p)) {
				return in
			}
		case m.at(p+1) == '-' && p+2 < end:
			if p += 2; m.pat[p-2] <= c && c <= m.pat[p] {
				return in
			}
		case m.pat[p] == c:
			return in
		}
	}
	return !in
}

func (m *matcher) single(s, p, end int) bool {
	m.step()
	if s >= len(m.s) {
		return false
	}
	switch c := m.s[s]; m.at(p) {
	case '.':
		return true
	case '%':
		return inClass(c, m.at(p+1))
	case '[':
		return m.inSet(c, p, end-1)
	default:
		return m.pat[p] == c
	}
}

// match returns where what matches from s on ends, or -1.
func (m *matcher) match(s, p int) int {
	if m.nested++; m.nested > nestingMax {
		m.fail("pattern too complex")
	}
	defer func() { m.nested-- }()
	for {
		m.step()
		if p >= len(m.pat) {
			return s
		}
		switch m.pat[p] {
		case '(':
			if m.at(p+1) == ')' {
				return m.start(s, p+2, position)
			}
			return m.start(s, p+1, unfinished)
		case ')':
			return m.end(s, p+1)
		case '$':
			if p+1 == len(m.pat) {
				if s == len(m.s) {
					return s
				}
				return -1
			}
		case '%':
			switch c := m.at(p + 1); {
			case c == 'b':
				if s = m.balance(s, p+2); s < 0 {
					return -1
				}
				p += 4
				continue
			case c == 'f':
				if p += 2; m.at(p) != '[' {
					m.fail("missing '[' after '%f' in pattern")
				}
				end := m.classEnd(p)
				var before, now byte
				if s > 0 {
					before = m.s[s-1]
				}
				if s < len(m.s) {
					now = m.s[s]
				}
				if m.inSet(before, p, end-1) || !m.inSet(now, p, end-1) {
					return -1
				}
				p = end
				continue
			case isDigit(c):
				if s = m.back(s, c); s < 0 {
					return -1
				}
				p += 2
				continue
			}
		}
		end := m.classEnd(p)
		switch m.at(end) {
		case '?':
			if m.single(s, p, end) {
				if to := m.match(s+1, end+1); to >= 0 {
					return to
				}
			}
			p = end + 1
		case '*':
			return m.most(s, p, end)
		case '+':
			if !m.single(s, p, end) {
				return -1
			}
			return m.most(s+1, p, end)
		case '-':
			return m.least(s, p, end)
		default:
			if !m.single(s, p, end) {
				return -1
			}
			s, p = s+1, end
		}
	}
}

func (m *matcher) most(s, p, end int) int {
	n := 0
	for m.single(s+n, p, end) {
		n++
	}
	for ; n >= 0; n-- {
		if to := m.match(s+n, end+1); to >= 0 {
			return to
		}
	}
	return -1
}

func (m *matcher) least(s, p, end int) int {
	for {
		if to := m.match(s, end+1); to >= 0 {
			return to
		}
		if !m.single(s, p, end) {
			return -1
		}
		s++
	}
}

func (m *matcher) start(s, p, what int) int {
	if m.level >= capturesMax {
		m.fail("too many captures")
	}
	m.captures[m.level] = capture{s, what}
	m.level++
	to := m.match(s, p)
	if to < 0 {
		m.level--
	}
	return to
}

func (m *matcher) end(s, p int) int {
	for l := m.level - 1; l >= 0; l-- {
		if c := &m.captures[l]; c.n == unfinished {
			c.n = s - c.at
			to := m.match(s, p)
			if to < 0 {
				c.n = unfinished
			}
			return to
		}
	}
	m.fail("invalid pattern capture")
	return -1
}

func (m *matcher) balance(s, p int) int {
	if p+1 >= len(m.pat) {
		m.fail("unbalanced pattern")
	}
	if s >= len(m.s) || m.s[s] != m.pat[p] {
		return -1
	}
	open := 1
	for s++; s < len(m.s); s++ {
		m.step()
		switch m.s[s] {
		case m.pat[p+1]:
			if open--; open == 0 {
				return s + 1
			}
		case m.pat[p]:
			open++
		}
	}
	return -1
}

// back matches what a capture has matched.
func (m *matcher) back(s int, digit byte) int {
	l := int(digit) - '1'
	if l < 0 || l >= m.level || m.captures[l].n == unfinished {
		m.fail("invalid capture index")
	}
	c := m.captures[l]
	if c.n < 0 || len(m.s)-s < c.n || m.s[c.at:c.at+c.n] != m.s[s:s+c.n] {
		return -1
	}
	m.p.r.meter.work(m.p.LState, c.n/64)
	return s + c.n
}

// captured returns a capture of what has matched from s to end.
func (m *matcher) captured(i, s, end int) lua.LValue {
	if i >= m.level {
		if i != 0 {
			m.fail("invalid capture index")
		}
		return m.piece(s, end)
	}
	switch c := m.captures[i]; c.n {
	case unfinished:
		m.fail("unfinished capture")
	case position:
		return lua.LNumber(c.at + 1)
	default:
		return m.piece(c.at, c.at+c.n)
	}
	return lua.LNil
}

// piece pays for a copy of a part of the text, so that it does not keep the whole.
func (m *matcher) piece(from, to int) lua.LValue {
	m.p.r.room(to - from)
	return lua.LString(append([]byte(nil), m.s[from:to]...))
}

// push pushes all captures, or if there are none what has matched, unless whole is false.
func (m *matcher) push(s, end int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.p.Push(m.captured(i, s, end))
	}
	return n
}
