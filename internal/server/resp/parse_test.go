package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// parsed is what a stream of bytes means: its commands, and why it ended.
type parsed struct {
	commands [][]string
	err      string
	rest     int // bytes after the last whole command
}

// parseAll feeds a stream to a parser in pieces of the given lengths, over and
// over.
func parseAll(stream []byte, known bool, pieces ...int) (out parsed) {
	p := parser{known: known}
	var buf []byte
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if len(pieces) > 0 {
			n = min(max(pieces[i%len(pieces)], 1), n)
		}
		buf = append(buf, stream[:n]...)
		stream = stream[n:]
		for {
			n, args, err := p.next(buf, nil)
			if err != nil {
				out.err = err.Error()
				return out
			}
			if n == 0 {
				break
			}
			out.add(args)
			buf = append([]byte{}, buf[n:]...) // elsewhere
		}
	}
	out.rest = len(buf)
	return out
}

func (o *parsed) add(args [][]byte) {
	if len(args) == 0 {
		return
	}
	var words []string
	for _, a := range args {
		words = append(words, string(a))
	}
	o.commands = append(o.commands, words)
}

// oracle is a parser that has the whole stream before it.
func oracle(stream string, known bool) (out parsed) {
	for stream != "" {
		words, n, err := oracleOne(stream, known)
		if err != nil {
			if !errors.Is(err, errShort) {
				out.err = err.Error()
				return out
			}
			break
		}
		if len(words) > 0 {
			out.commands = append(out.commands, words)
		}
		stream = stream[n:]
	}
	out.rest = len(stream)
	return out
}

var errShort = errors.New("short")

func oracleOne(s string, known bool) (words []string, n int, err error) {
	if s[0] != '*' {
		i := strings.IndexByte(s, '\n')
		if i < 0 {
			if len(s) > inlineBytesMax {
				return nil, 0, protocolError("too big inline request")
			}
			return nil, 0, errShort
		}
		args, ok := splitWords([]byte(strings.TrimSuffix(s[:i], "\r")), nil)
		if !ok {
			return nil, 0, protocolError("unbalanced quotes in request")
		}
		for _, a := range args {
			words = append(words, string(a))
		}
		return words, i + 1, nil
	}
	count, n, err := oracleHead(s, "mbulk count", "multibulk length", argsMax)
	if err != nil {
		return nil, 0, err
	}
	if count > strangerArgsMax && !known {
		return nil, 0, protocolError("unauthenticated multibulk length")
	}
	for range count {
		if n == len(s) {
			return nil, 0, errShort
		}
		if s[n] != '$' {
			return nil, 0, protocolError(fmt.Sprintf("expected '$', got '%c'", printable(s[n])))
		}
		size, head, err := oracleHead(s[n:], "bulk count", "bulk length", bulkBytesMax)
		switch {
		case err != nil:
			return nil, 0, err
		case size < 0:
			return nil, 0, protocolError("invalid bulk length")
		case size > strangerBulkMax && !known:
			return nil, 0, protocolError("unauthenticated bulk length")
		}
		n += head
		if n+size+2 > len(s) {
			return nil, 0, errShort
		}
		words = append(words, s[n:n+size])
		n += size + 2
	}
	return words, n, nil
}

func oracleHead(s, long, wrong string, limit int) (value, n int, err error) {
	i := strings.IndexByte(s, '\r')
	switch {
	case i < 0 && len(s)-1 > inlineBytesMax:
		return 0, 0, protocolError("too big " + long + " string")
	case i < 0 || i+1 == len(s):
		return 0, 0, errShort
	}
	value, err = strconv.Atoi(s[1:i])
	if err != nil || strconv.Itoa(value) != s[1:i] || value > limit {
		return 0, 0, protocolError("invalid " + wrong)
	}
	return value, i + 2, nil
}

func TestParse(t *testing.T) {
	f := func(stream, want string) {
		t.Helper()
		got := fmt.Sprint(parseAll([]byte(stream), true))
		if got != want {
			t.Errorf("%.60q: %.100s, want %.100s", stream, got, want)
		}
		for _, pieces := range [][]int{{1}, {2}, {3, 1}, {7, 2}} {
			if split := fmt.Sprint(parseAll([]byte(stream), true, pieces...)); split != got {
				t.Errorf("%.60q in pieces of %d: %.100s, whole %.100s", stream, pieces, split, got)
			}
		}
		if o := fmt.Sprint(oracle(stream, true)); o != want {
			t.Errorf("the oracle reads %.60q as %.100s", stream, o)
		}
	}
	f("", "{[]  0}")
	f("*1\r\n$4\r\nPING\r\n", "{[[PING]]  0}")
	f("*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$1\r\nx\r\n", "{[[GET ] [x]]  0}")
	f("*2\r\n$3\r\nGET\r\n$1\r\n", "{[]  17}")
	f("PING\r\nGET  a\nECHO 'it\\'s' \"\\x41\\n\"\r\n", "{[[PING] [GET a] [ECHO it's A\n]]  0}")
	f("\r\n\n  \r\n", "{[]  0}")
	f("*0\r\n*-1\r\nPING\n", "{[[PING]]  0}")
	f("ECHO \"a\r\n", "{[] ERR Protocol error: unbalanced quotes in request 0}")
	f("ECHO \"a\"b\r\n", "{[] ERR Protocol error: unbalanced quotes in request 0}")
	f("*x\r\n", "{[] ERR Protocol error: invalid multibulk length 0}")
	f("*01\r\n", "{[] ERR Protocol error: invalid multibulk length 0}")
	f("*1048577\r\n", "{[] ERR Protocol error: invalid multibulk length 0}")
	f("*1\r\n:1\r\n", "{[] ERR Protocol error: expected '$', got ':' 0}")
	f("*1\r\n\x01", "{[] ERR Protocol error: expected '$', got '.' 0}")
	f("*1\r\n$-1\r\n", "{[] ERR Protocol error: invalid bulk length 0}")
	f("*1\r\n$2147483648\r\n", "{[] ERR Protocol error: invalid bulk length 0}")
	f("*1\r\n$4194305\r\n", "{[] ERR Protocol error: invalid bulk length 0}")
	f("*1\r\n$1x\r\n", "{[] ERR Protocol error: invalid bulk length 0}")
	long := strings.Repeat("1", inlineBytesMax+1)
	f(long, "{[] ERR Protocol error: too big inline request 0}")
	f("*"+long, "{[] ERR Protocol error: too big mbulk count string 0}")
	f("*1\r\n$"+long, "{[] ERR Protocol error: too big bulk count string 0}")
}

// However a stream is cut, it means the same, and what a plain parser says.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\nINCR a\r\n", "SET a \"1\\x20\" 'x'\r\n", "*0\r\n*-5\r\n",
		"*1\r\n$-1\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20\r\n", "*11\r\n$1\r\na\r\n", "*1\r\n$16385\r\n", "ECHO \"a\r\n",
	} {
		f.Add([]byte(s), uint8(1), uint8(3), true)
		f.Add([]byte(s), uint8(2), uint8(200), false)
	}
	f.Fuzz(func(t *testing.T, stream []byte, a, b uint8, known bool) {
		whole := parseAll(stream, known)
		split := parseAll(stream, known, int(a), int(b))
		want := oracle(string(stream), known)
		if fmt.Sprint(whole) != fmt.Sprint(want) {
			t.Errorf("%q: %+v, want %+v", stream, whole, want)
		}
		if fmt.Sprint(split) != fmt.Sprint(want) {
			t.Errorf("%q in pieces of %d and %d: %+v, want %+v", stream, a, b, split, want)
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, p := range []string{"*", "a?c", "[a-c]*", "[^x]", "\\*", "[", "[z-a]", "a**b", "[\\]]"} {
		f.Add(p, "abc")
	}
	f.Add(strings.Repeat("*", 25)+"\\1", "000000000000")
	f.Add(strings.Repeat("*a", 15)+"b", strings.Repeat("a", 40))
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 200 || len(s) > 200 {
			return // the oracle takes its time
		}
		got := match(pattern, s)
		if want := slowMatch(pattern, s); got != want {
			t.Errorf("match(%q, %q) = %v", pattern, s, got)
		}
		if prefix := literalPrefix(pattern); got && !strings.HasPrefix(s, prefix) {
			t.Errorf("%q matches %q, which does not begin with %q", pattern, s, prefix)
		}
	})
}

// slowMatch is match as one would say it.
func slowMatch(pattern, s string) bool { return known{}.match(pattern, s) }

// known is what was found of the ends of a pattern and a string, by their
// lengths: without it, many stars would take for ever.
type known map[[2]int]bool

func (k known) match(pattern, s string) bool {
	at := [2]int{len(pattern), len(s)}
	if _, done := k[at]; !done {
		k[at] = k.find(pattern, s)
	}
	return k[at]
}

func (k known) find(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return k.match(pattern[1:], s) || s != "" && k.match(pattern, s[1:])
	case s == "":
		return false
	}
	ok, n := matchOne(pattern, s[0])
	return ok && k.match(pattern[n:], s[1:])
}

func TestParseInt(t *testing.T) {
	f := func(s string, want int64, ok bool) {
		t.Helper()
		if got, is := parseInt([]byte(s)); got != want || is != ok {
			t.Errorf("parseInt(%q) = %d, %v", s, got, is)
		}
	}
	f("0", 0, true)
	f("-1", -1, true)
	f("9223372036854775807", 9223372036854775807, true)
	f("-9223372036854775808", -9223372036854775808, true)
	for _, s := range []string{"", "-", "+1", "01", "-0", "1 ", " 1", "1.0", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "0x1"} {
		f(s, 0, false)
	}
}

func BenchmarkParse(b *testing.B) {
	stream := bytes.Repeat([]byte("*2\r\n$4\r\nINCR\r\n$16\r\nkey:__rand_int__\r\n"), 64)
	p := parser{known: true}
	var args [][]byte
	b.ReportAllocs()
	for b.Loop() {
		buf := stream
		for range 64 {
			var n int
			n, args, _ = p.next(buf, args[:0])
			buf = buf[n:]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/command")
}
