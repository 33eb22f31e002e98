package resp

import (
	"bytes"
	"math"
)

// The limits of what a client may send. The first is Redis's.
const (
	inlineBytesMax = 64 << 10 // a line: an inline command, or the head of an array or an argument
	argsMax        = 1 << 17  // arguments of a command: those with the most counters have 20,000
	bulkBytesMax   = 4 << 20  // one argument

	// Those of a client that has yet to say who it is. Redis has the first two.
	strangerArgsMax     = 10
	strangerBulkMax     = 16 << 10
	strangerBytesMax    = 16 << 10 // a command
	strangerCommandsMax = 32       // before it has to

	// keptArgsMax is how many arguments a parser keeps room for.
	keptArgsMax = 64
)

// A protocolError ends a connection: what follows can't be understood.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// A parser reads commands from a connection's bytes as they arrive: arrays of
// bulk strings, and lines for people (inline commands). It remembers how far it
// came, so that a command that arrives a byte at a time is read once.
type parser struct {
	at    int    // how much of the command was read
	left  int    // arguments of an array still to come; 0 outside of one
	bulk  int    // length of the argument that comes next, -1 before its head
	spans []span // the arguments that have come
	known bool   // the client may send what others may not
}

// A span is where an argument is, from the first byte of its command.
type span struct{ from, to int }

// next returns the length of the command that buf begins with and its arguments,
// which are parts of buf unless they were quoted, appended to args. Length 0
// says that buf must grow, from the same first byte. A command may have no
// arguments.
func (p *parser) next(buf []byte, args [][]byte) (n int, _ [][]byte, err error) {
	if p.left == 0 {
		if len(buf) == 0 {
			return 0, args, nil
		}
		if buf[0] != '*' {
			return p.inline(buf, args)
		}
		if n, args := quick(buf, args); n > 0 {
			return n, args, nil
		}
		count, n, err := p.head(buf, 0, "invalid multibulk length", "too big mbulk count string")
		if n == 0 || err != nil {
			return 0, args, err
		}
		switch {
		case count > argsMax:
			return 0, args, protocolError("invalid multibulk length")
		case count > strangerArgsMax && !p.known:
			return 0, args, protocolError("unauthenticated multibulk length")
		case count <= 0:
			p.reset()
			return n, args, nil
		}
		p.at, p.left, p.bulk = n, int(count), -1
	}
	if ok, err := p.array(buf); !ok {
		return 0, args, err
	}
	for _, s := range p.spans {
		args = append(args, buf[s.from:s.to])
	}
	n = p.at
	p.reset()
	return n, args, nil
}

// quick is next for what nearly all commands are: at most 9 arguments of at most
// 99 bytes, all there. Otherwise it returns 0, and next takes the long way
// (BenchmarkParse).
func quick(buf []byte, args [][]byte) (int, [][]byte) {
	if len(buf) < 4 || buf[1] < '1' || buf[1] > '9' || buf[2] != '\r' {
		return 0, args
	}
	before := args
	at := 4
	for range buf[1] - '0' {
		arg, end := short(buf, at)
		if end == 0 {
			return 0, before
		}
		args = append(args, arg)
		at = end
	}
	return at, args
}

// short returns the argument at buf[at:], if it is all there and has at most 99 bytes,
// and where it ends, or else 0.
func short(buf []byte, at int) (arg []byte, end int) {
	if len(buf)-at < 6 || buf[at] != '$' {
		return nil, 0
	}
	size := int(buf[at+1] - '0')
	at += 2
	if buf[at] != '\r' {
		if size = size*10 + int(buf[at]-'0'); size < 10 {
			return nil, 0
		}
		at++
	}
	end = at + 2 + size
	if size > 99 || buf[at] != '\r' || buf[at-1] < '0' || buf[at-1] > '9' || end+2 > len(buf) {
		return nil, 0
	}
	return buf[at+2 : end : end], end + 2
}

// reset makes the parser ready for another command.
func (p *parser) reset() {
	p.at, p.left = 0, 0
	if cap(p.spans) > keptArgsMax {
		p.spans = nil
	}
	p.spans = p.spans[:0]
}

// array reads the arguments of an array, and reports whether it has all.
func (p *parser) array(buf []byte) (bool, error) {
	for p.left > 0 {
		if p.bulk < 0 {
			if p.at == len(buf) {
				return false, nil
			}
			if buf[p.at] != '$' {
				return false, protocolError("expected '$', got '" + string(printable(buf[p.at])) + "'")
			}
			size, n, err := p.head(buf, p.at, "invalid bulk length", "too big bulk count string")
			if n == 0 || err != nil {
				return false, err
			}
			switch {
			case size < 0 || size > bulkBytesMax:
				return false, protocolError("invalid bulk length")
			case size > strangerBulkMax && !p.known:
				return false, protocolError("unauthenticated bulk length")
			}
			p.at, p.bulk = n, int(size)
		}
		if len(buf)-p.at < p.bulk+2 { // and the line's end, which Redis does not look at either
			return false, nil
		}
		p.spans = append(p.spans, span{p.at, p.at + p.bulk})
		p.at += p.bulk + 2
		p.bulk = -1
		p.left--
	}
	return true, nil
}

// head reads a line of a sign and a number at buf[at:], and returns the number
// and where the line ends, or 0 if it has not come yet.
func (p *parser) head(buf []byte, at int, wrong, long protocolError) (v int64, end int, err error) {
	i := at + 1
	for i < len(buf) && buf[i] >= '0' && buf[i] <= '9' && i-at < 8 { // Fast path.
		v = v*10 + int64(buf[i]-'0')
		i++
	}
	if i+1 < len(buf) && buf[i] == '\r' && i-at > 1 && (buf[at+1] != '0' || i-at == 2) {
		return v, i + 2, nil
	}
	line := buf[at+1:]
	i = bytes.IndexByte(line, '\r')
	switch {
	case i < 0 && len(line) > inlineBytesMax:
		return 0, 0, long
	case i < 0 || i+1 == len(line):
		return 0, 0, nil
	}
	v, ok := parseInt(line[:i])
	if !ok {
		return 0, 0, wrong
	}
	return v, at + 1 + i + 2, nil
}

// inline reads a line of words.
func (p *parser) inline(buf []byte, args [][]byte) (int, [][]byte, error) {
	i := bytes.IndexByte(buf[p.at:], '\n')
	if i < 0 {
		if p.at = len(buf); p.at > inlineBytesMax {
			return 0, args, protocolError("too big inline request")
		}
		return 0, args, nil
	}
	n := p.at + i + 1
	p.reset()
	line := buf[:n-1]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	args, ok := splitWords(line, args)
	if !ok {
		return 0, args, protocolError("unbalanced quotes in request")
	}
	return n, args, nil
}

// splitWords appends the words of a line to args: between spaces, or in double
// quotes with the escapes of C, or in single quotes with \' alone. It reports
// false if quotes do not close, or something follows them.
func splitWords(line []byte, args [][]byte) ([][]byte, bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, true
		}
		word, n, ok := firstWord(line[i:])
		if !ok {
			return args, false
		}
		args = append(args, word)
		i += n
	}
}

// firstWord returns the word that line begins with, and its length there.
func firstWord(line []byte) (word []byte, n int, ok bool) {
	for n < len(line) && !isSpace(line[n]) && line[n] != '"' && line[n] != '\'' && line[n] != 0 {
		n++
	}
	if n == len(line) || isSpace(line[n]) { // Fast path: no quotes.
		return line[:n], n, true
	}
	word = append([]byte{}, line[:n]...)
	for n < len(line) && !isSpace(line[n]) && line[n] != 0 {
		if line[n] != '"' && line[n] != '\'' {
			word = append(word, line[n])
			n++
			continue
		}
		var used int
		if word, used, ok = unquote(word, line[n:]); !ok {
			return nil, 0, false
		}
		n += used
		return word, n, n == len(line) || isSpace(line[n])
	}
	if n < len(line) && line[n] == 0 { // Redis's strings end here
		n = len(line)
	}
	return word, n, true
}

// unquote appends what is between the quotes that s begins with, and returns how
// much of s they take.
func unquote(word, s []byte) (_ []byte, n int, ok bool) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return word, i + 1, true
		case s[i] == '\\' && quote == '\'' && i+1 < len(s) && s[i+1] == '\'':
			word = append(word, '\'')
			i++
		case s[i] == '\\' && quote == '"' && i+3 < len(s) && s[i+1] == 'x' && hexDigit(s[i+2]) >= 0 && hexDigit(s[i+3]) >= 0:
			word = append(word, byte(hexDigit(s[i+2])<<4|hexDigit(s[i+3])))
			i += 3
		case s[i] == '\\' && quote == '"' && i+1 < len(s):
			word = append(word, unescape(s[i+1]))
			i++
		default:
			word = append(word, s[i])
		}
	}
	return nil, 0, false
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// printable returns c, or a dot for what would break a line of reply.
func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '.'
	}
	return c
}

// parseInt returns the number that b writes as Redis would: no plus, no leading
// zeros, no spaces.
func parseInt(b []byte) (int64, bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	switch {
	case len(digits) == 0 || len(digits) > 19:
		return 0, false
	case digits[0] == '0':
		return 0, len(b) == 1
	}
	v := uint64(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0') // 19 digits fit
	}
	switch {
	case negative && v <= -math.MinInt64:
		return -int64(v), true
	case !negative && v <= math.MaxInt64:
		return int64(v), true
	}
	return 0, false
}
