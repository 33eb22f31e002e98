package script_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/keyspace"
)

// A drawer draws random scripts.
type drawer struct {
	*rand.Rand
	depth int
}

func (d *drawer) of(from ...string) string { return from[d.IntN(len(from))] }

func (d *drawer) number() string {
	return d.of("0", "1", "-1", "2", "7", "1.5", "-0.5", "1e3", "0x1f", "100", "1/3", "2^53", "1e15", "-2^31", "#ARGV", "tonumber(ARGV[1])")
}

func (d *drawer) key() string { return d.of("KEYS[1]", "KEYS[2]", "'c'", "'dd'") }

func (d *drawer) text() string {
	return d.of(`'x'`, `''`, `'hello world'`, `'12'`, `' 5 '`, `'007'`, `'-3.5'`, `'a,b,,c'`, `'\0\255'`, `ARGV[1]`, `ARGV[2]`, `ARGV[3]`, `KEYS[1]`, `'%d+'`)
}

// deep reports whether an expression is deep enough. If not, leave is to be called at its end.
func (d *drawer) deep() (leave func(), is bool) {
	d.depth++
	return func() { d.depth-- }, d.depth > 4
}

// num draws what is mostly a number.
func (d *drawer) num() string {
	leave, deep := d.deep()
	defer leave()
	if deep {
		return d.number()
	}
	switch d.IntN(60) {
	case 0:
		return d.value()
	case 1, 2, 3, 4:
		return "(" + d.num() + " " + d.of("+", "-", "*", "/", "%") + " " + d.num() + ")"
	case 5, 6:
		return "#" + d.str()
	case 7, 8:
		return "(tonumber(" + d.str() + ") or " + d.number() + ")"
	case 9, 10:
		return d.of("math.floor", "math.ceil", "math.abs", "bit.tobit", "bit.bnot", "- ") + "(" + d.num() + ")"
	case 11, 12:
		return d.of("math.max", "math.min", "math.fmod", "bit.band", "bit.lshift", "bit.rshift") + "(" + d.num() + ", " + d.num() + ")"
	case 13, 14:
		return "select('#', " + d.value() + ", " + d.value() + ")"
	case 15, 16:
		return d.of("'5'", "'-3.5'", "' 7 '")
	case 17, 18:
		return d.of("(redis.call('incr', 'n') + 0)", "redis.call('strlen', 'c')", "redis.call('exists', 'c', 'n')")
	default:
		return d.number()
	}
}

// str draws what is mostly text.
func (d *drawer) str() string {
	leave, deep := d.deep()
	defer leave()
	if deep {
		return d.text()
	}
	switch d.IntN(60) {
	case 0:
		return d.value()
	case 1, 2, 3, 4:
		return "(" + d.str() + " .. " + d.of(d.str(), d.num()) + ")"
	case 5, 6:
		return "tostring(" + d.value() + ")"
	case 7, 8:
		return d.of("string.upper", "string.reverse", "redis.sha1hex", "string.lower", "cjson.encode") + "(" + d.str() + ")"
	case 9, 10:
		return "string.rep(" + d.str() + ", " + d.of("0", "1", "3", "-1") + ")"
	case 11, 12:
		return "string.sub(" + d.str() + ", " + d.num() + d.of(")", ", "+d.num()+")")
	case 13, 14:
		return "string.format(" + d.of(`'%d'`, `'%5.2f'`, `'%x'`, `'%g'`, `'%05d'`, `'%e'`, `'%i%%'`, `'%.3g'`, `'%+d'`, `'%.14g'`, `'%o'`) + ", " + d.num() + ")"
	case 15, 16:
		return "string.format(" + d.of(`'%s|%s'`, `'%q%s'`, `'%-8s|%5s'`, `'%.3s%s'`) + ", " + d.str() + ", " + d.str() + ")"
	case 17, 18:
		return "(" + d.str() + "):" + d.of("gsub", "match") + "(" + d.of(`'%w+'`, `'(%a)(%d*)'`, `'.-'`, `'[^,]*'`, `'^%s*'`, `'%s*$'`, `'()'`, `'l+'`, `'[%d%.]+'`, `'%f[%w]'`, `'(.)%1'`) + ", " + d.of(`'<%0>'`, `'%1'`, `'z'`, `''`) + ")"
	default:
		return d.text()
	}
}

// value draws an expression.
func (d *drawer) value() string {
	leave, deep := d.deep()
	defer leave()
	if deep {
		return d.of(d.number(), d.text(), "nil", "true", "false", "x", "y", "{}")
	}
	v := d.value
	switch d.IntN(20) {
	case 0, 1, 2:
		return d.num()
	case 3, 4, 5:
		return d.str()
	case 6:
		return d.of("x", "y", "z")
	case 7:
		return "{" + v() + ", " + v() + "}"
	case 8:
		return "{" + d.of("a", "ok", "err", "double", "map", "set", "n") + " = " + v() + "}"
	case 9:
		return "(" + d.num() + " " + d.of("==", "~=", "<", "<=") + " " + d.num() + ")"
	case 10:
		return "(" + v() + " " + d.of("and", "or") + " " + v() + ")"
	case 11:
		return "not " + v()
	case 12:
		return d.of("type", "tostring", "redis.error_reply", "redis.status_reply", "cjson.encode") + "(" + v() + ")"
	case 13:
		return "{unpack({" + v() + ", " + v() + ", " + v() + "})}"
	case 14:
		return "{pcall(" + d.of("tostring", "redis.call", "string.rep", "assert") + ", " + v() + ")}"
	case 15:
		return "(function(...) return " + d.of("...", "select('#', ...)", "{...}", "(...)") + " end)(" + v() + ", " + v() + ")"
	case 16:
		return "table.concat({" + d.str() + ", " + d.num() + "}, " + d.text() + ")"
	case 17:
		return "{(" + d.str() + "):find(" + d.of(`'l'`, `'%d'`, `'(a)()'`, `''`, `'.'`) + d.of("", ", "+d.num(), ", 1, true") + ")}"
	default:
		return d.call()
	}
}

// call draws a call of a command.
func (d *drawer) call() string {
	args := d.of(
		`'get', `+d.key(), `'set', `+d.key()+`, `+d.value(), `'incrby', `+d.of(`'n'`, d.key())+`, `+d.number(), `'append', `+d.key()+`, `+d.text(), `'del', `+d.key(), `'exists', `+d.key()+`, `+d.key(), `'mget', `+d.key()+`, `+d.key(),
		`'setnx', `+d.key()+`, `+d.text(), `'strlen', `+d.key(), `'getrange', `+d.key()+`, `+d.number()+`, `+d.number(), `'type', `+d.key(), `'incr', `+d.of(`'n'`, d.key()), `'rename', `+d.key()+`, `+d.key(), `'incrbyfloat', `+d.key()+`, `+d.number(), `'mset', `+d.key()+`, `+d.text()+`, `+d.key()+`, `+d.number(),
		`'set', `+d.key()+`, `+d.text()+`, 'NX'`, `'getset', `+d.key()+`, `+d.number(), `'set', `+d.key(), `'get'`, `'echo', `+d.value(), `'ping'`, `'persist', `+d.key(),
	)
	return "redis." + d.of("call", "call", "pcall") + "(" + args + ")"
}

// plain is a tostring that does not say where something is in memory.
const plain = "local of = tostring local function tostring(v) if type(v) == 'table' or type(v) == 'function' then return type(v) end return of(v) end\n"

// script draws a script.
func (d *drawer) script() string {
	var b strings.Builder
	b.WriteString(plain)
	b.WriteString("local x, y, z = " + d.value() + ", " + d.value() + "\n")
	for range d.IntN(4) {
		switch d.IntN(8) {
		case 0:
			b.WriteString(d.of("x", "y", "z") + " = " + d.value() + "\n")
		case 1:
			b.WriteString("x, y = " + d.value() + ", " + d.value() + "\n")
		case 2:
			b.WriteString("if " + d.value() + " then " + d.call() + " else z = " + d.value() + " end\n")
		case 3:
			b.WriteString("for i = " + d.of("1", "'1'", "3") + ", " + d.of("3", "ARGV[1]", "1") + d.of("", ", -1", ", 2") + " do y = i " + d.call() + " end\n")
		case 4:
			b.WriteString("local t = {} t[" + d.of("1", "'a'", "2.5", d.str()) + "] = " + d.value() + " t.b, t[#t + 1] = " + d.value() + ", " + d.value() + " z = t\n")
		case 5:
			b.WriteString("local function f(a, ...) z = a return " + d.value() + " end y = f(" + d.value() + ")\n")
		case 6:
			b.WriteString("pcall(function() x = " + d.value() + " " + d.call() + " y = 5 end)\n")
		default:
			b.WriteString(d.call() + "\n")
		}
	}
	if d.IntN(8) == 0 {
		b.WriteString("redis.setresp(3)\n")
	}
	if d.IntN(10) == 0 {
		b.WriteString("error(" + d.of("", "{err = ") + "tostring(" + d.value() + ")") // Redis 7.0.15 crashes on a table without err
		if strings.Contains(b.String(), "error({err") {
			b.WriteString("}")
		}
		b.WriteString(")\n")
	} else {
		b.WriteString("return " + d.value() + "\n")
	}
	return b.String()
}

// ofLua reports whether two replies are both errors that Lua has raised, in its own words.
func ofLua(got, want string) bool {
	return strings.HasPrefix(got, "-ERR user_script:") && strings.HasPrefix(want, "-ERR ")
}

// vague reports whether a script may say in which words something of Lua has failed, or something else that
// may differ: the order of fields, and the sign of zero.
func vague(want string) bool {
	for _, of := range []string{"user_script:", "attempt to", "bad argument", "nan", "ignore_error_stats_update", "-0"} {
		if strings.Contains(want, of) {
			return true
		}
	}
	return false
}

// TestRandom runs random scripts beside a real Redis, one after the other on the same keys: their
// replies are the same, and so is what they leave.
func TestRandom(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("again: go test ./internal/script -run '^TestRandom$' -seed %d", *seed)
		}
	}()
	c := startRedis(t)
	d := &drawer{Rand: rand.New(rand.NewPCG(*seed, 0))}
	compared, errors := 0, 0
	for range 300 {
		c.do(t, "FLUSHALL")
		w := &world{now: time.Now().UnixMilli(), keys: map[string]keyspace.Value{}}
		for range 10 {
			source := d.script()
			keys, args := []string{"a", "b"}, []string{d.of("3", "0", "12"), "text", "5.5"}
			got, want := w.eval(t, source, keys, args, false), c.do(t, evalArgs(source, keys, args)...)
			compared++
			if strings.HasPrefix(want, "-") {
				errors++
			}
			if got != want && !ofLua(got, want) && !vague(want) && !vague(got) {
				t.Fatalf("%s\n got %q\nwant %q", source, got, want)
			}
			if got != want { // what was written may hold those words
				break
			}
			for _, key := range []string{"a", "b", "c", "dd", "n"} {
				have := "$-1\r\n"
				if v := w.keys[key]; v.Exists {
					have = fmt.Sprintf("$%d\r\n%s\r\n", len(v.String()), v.String())
				}
				if want := c.do(t, "GET", key); have != want && !vague(want) {
					t.Fatalf("%s\n%s is %q, want %q", source, key, have, want)
				} else if have != want {
					w.keys[key] = keyspace.Value{}
					c.do(t, "DEL", key)
				}
			}
		}
	}
	t.Logf("%d replies, of which %d were errors", compared, errors)
}
