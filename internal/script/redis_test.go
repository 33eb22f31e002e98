package script_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/script"
)

var seed = flag.Uint64("seed", 0, "the seed; 0 takes a new one")

// A redis is a connection to a real Redis.
type redis struct {
	conn net.Conn
	r    *bufio.Reader
}

func startRedis(t testing.TB) *redis {
	t.Helper()
	server, err := redisproc.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &redis{conn, bufio.NewReader(conn)}
}

func (c *redis) do(t testing.TB, args ...string) string {
	t.Helper()
	text := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.reply(&b); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return b.String()
}

// reply writes a reply as it came.
func (c *redis) reply(b *strings.Builder) error {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return err
	}
	b.WriteString(line)
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$', '=':
		if n >= 0 {
			text := make([]byte, n+2)
			_, err = io.ReadFull(c.r, text)
			b.Write(text)
		}
	case '*', '~', '%':
		if line[0] == '%' {
			n *= 2
		}
		for range n {
			if err := c.reply(b); err != nil {
				return err
			}
		}
	}
	return err
}

// encode writes a reply in the words of RESP3 or RESP2.
func encode(b *strings.Builder, r keyspace.Reply, resp3 bool) {
	head := func(sign3, sign2 string, n int) {
		if resp3 {
			sign2 = sign3
		}
		fmt.Fprintf(b, "%s%d\r\n", sign2, n)
	}
	switch r.Kind {
	case keyspace.Status:
		b.WriteString("+" + r.Text + "\r\n")
	case keyspace.Error:
		b.WriteString("-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(r.Text) + "\r\n")
	case keyspace.Number:
		fmt.Fprintf(b, ":%d\r\n", r.N)
	case keyspace.Bulk:
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(r.Text), r.Text)
	case keyspace.Bool:
		if resp3 {
			b.WriteString(map[int64]string{0: "#f\r\n", 1: "#t\r\n"}[r.N])
		} else {
			fmt.Fprintf(b, ":%d\r\n", r.N)
		}
	case keyspace.Double:
		text := strconv.FormatFloat(r.F, 'g', 17, 64)
		if math.IsInf(r.F, 0) {
			text = strings.ToLower(strings.TrimPrefix(text, "+"))
		}
		if resp3 {
			b.WriteString("," + text + "\r\n")
		} else {
			fmt.Fprintf(b, "$%d\r\n%s\r\n", len(text), text)
		}
	case keyspace.BigNumber:
		if resp3 {
			b.WriteString("(" + r.Text + "\r\n")
		} else {
			fmt.Fprintf(b, "$%d\r\n%s\r\n", len(r.Text), r.Text)
		}
	case keyspace.Verbatim:
		if resp3 {
			fmt.Fprintf(b, "=%d\r\n%s\r\n", len(r.Text), r.Text)
		} else {
			fmt.Fprintf(b, "$%d\r\n%s\r\n", len(r.Text)-4, r.Text[4:])
		}
	case keyspace.Array, keyspace.Pairs: // Scripts make arrays of pairs.
		head("*", "*", len(r.All))
	case keyspace.Set:
		head("~", "*", len(r.All))
	case keyspace.Map:
		if resp3 {
			head("%", "", len(r.All)/2)
		} else {
			head("", "*", len(r.All))
		}
	case keyspace.Null:
		if resp3 {
			b.WriteString("_\r\n")
		} else {
			b.WriteString("$-1\r\n")
		}
	}
	for _, one := range r.All {
		encode(b, one, resp3)
	}
}

// A world is what is written, by what scripts have made of it.
type world struct {
	now   int64
	keys  map[string]keyspace.Value
	cache script.Cache
}

// eval runs a script as the server does.
func (w *world) eval(t testing.TB, source string, keys, args []string, resp3 bool) string {
	t.Helper()
	var b strings.Builder
	s, err := w.cache.Load([]byte(source))
	if err != nil {
		encode(&b, keyspace.Reply{Kind: keyspace.Error, Text: err.Error()}, resp3)
		return b.String()
	}
	space := keyspace.New(w.now, func(key string) (keyspace.Value, error) { return w.keys[key], nil })
	r, err := s.Run(t.Context(), script.Call{Space: space, Keys: bytesOf(keys), Args: bytesOf(args), Limits: script.DefaultLimits(), Refuse: refuse})
	if err != nil {
		encode(&b, keyspace.Reply{Kind: keyspace.Error, Text: err.Error()}, resp3)
		return b.String()
	}
	for _, key := range space.Keys() {
		w.keys[key] = space.Is(key)
	}
	encode(&b, r, resp3)
	return b.String()
}

// refuse says what Redis says of commands that are not for scripts.
func refuse(args [][]byte) string {
	if string(args[0]) == "eval" {
		return "This Redis command is not allowed from script"
	}
	return "Unknown Redis command called from script"
}

func bytesOf(all []string) (b [][]byte) {
	for _, s := range all {
		b = append(b, []byte(s))
	}
	return b
}

func evalArgs(source string, keys, args []string) []string {
	return append(append([]string{"EVAL", source, strconv.Itoa(len(keys))}, keys...), args...)
}

// stories are scripts whose replies are Redis's, byte for byte.
var stories = []string{
	`return 1`, `return 1.9`, `return -1.9`, `return "x"`, `return true`, `return false`, `return nil`, `return`, ``, `return {1,2,{3,"4",{}},nil,5}`,
	`return {ok="fine"}`, `return {ok="two\r\nlines"}`, `return {err="ERR my"}`, `return {err="My Err"}`, `return redis.error_reply("My Err")`, `return redis.error_reply("-X my err")`, `return redis.error_reply("single")`,
	`return redis.error_reply("")`, `return redis.status_reply("S")`, `return redis.error_reply(1)`, `return redis.status_reply()`, `return {double=1.5}`, `return {double=3}`, `return {map={a=1}}`, `return {set={a=true}}`, `return {big_number="123"}`,
	`return {verbatim_string={format="txt",string="hello"}}`, `redis.setresp(3); return true`, `redis.setresp(3); return false`, `redis.setresp(3); return redis.call('get','none')`, `redis.setresp(3); return redis.call('get','none') == nil`,
	`return redis.call('get','none') == false`, `redis.setresp(4)`, `redis.setresp()`, `return 2^53`, `return 2^63`, `return -2^63`, `return 1e300`, `return 0/0`, `return {1,nil,3}`, `return function() end`,
	`return redis.call('set','k','v')`, `return redis.call('set','k','v').ok`, `return redis.pcall('incr','k')`, `return redis.call('incr','k')`, `return redis.pcall('incr','k').err`, "local a = 1\nreturn redis.call('incr','k')",
	`return redis.call('get')`, `return redis.call()`, `return redis.call({})`, `return redis.call('get', nil)`, `return redis.pcall()`, `return redis.call('eval','return 1',0)`,
	`return pcall(redis.call, 'incr', 'k')`, `local ok, e = pcall(redis.call, 'incr', 'k'); return {ok and 1 or 0, e}`, `local ok, e = pcall(error, {err='ERR x'}); return e`, `return error('boom')`, `error('boom', 0)`, `error({err='MY boom'})`, `error({err='MY boom', extra=1})`,
	`error()`, `error(nil)`, `error(12)`, `error('boom', 2)`, `local function f() error('in f') end; f()`, "local function f()\n error('in f', 2)\n end\n f()", `return xpcall(function() error('x', 0) end, function(m) return 'handled '..m end)`, `local ok, m = xpcall(function() error('x', 0) end, function(m) return 'handled '..m end) return m`,
	`return assert(false)`, `return assert(false, 'why')`, `return assert(1, 2)`, `return assert(nil, {})`, `return {assert(1, 2, 3)}`, `return tostring(nil)`, `return tostring(1e15)`, `return tostring(2^53)`, `return tostring(0.1)`, `return tostring(1/3)`, `return tostring(-0.0)`, `return tostring(1e100)`, `return tostring(1/0)`, `return tostring(-1/0)`, `return tostring(100)`, `return tostring(1e14)`, `return tostring(123456789012345)`,
	`return 1 .. 2`, `return 'a' .. 1.5 .. 'b'`, `return 'a' .. nil`, `return 'a' .. {}`, `local x; return 'a' .. x`, `return setmetatable({}, {__concat = function(a, b) return 'c' end}) .. 'x'`, `return 'x' .. 'y' .. setmetatable({}, {__concat = function(a, b) return a .. '|' end})`, `local function f() return 'a', 'b' end return 'x' .. f()`, `local function f(...) return 'x' .. ... end return f('a', 'b')`,
	`return tonumber('0x10')`, `return tonumber('010')`, `return tonumber(' 12 ')`, `return tonumber('1e2')`, `return tonumber('')`, `return tonumber('abc')`, `return tonumber('ff', 16)`, `return tonumber('zz', 36)`, `return tonumber('8', 8)`, `return tonumber('10', 2)`, `return tonumber(nil)`, `return tonumber()`, `return tonumber('1_000')`, `return tonumber('inf') == 1/0`, `return tonumber('-0x10')`, `return 010`, `return 0x1F`, `return '010' + 1`, `return '0x10' + 1`, `return 10 .. ''`, `return '5' * '2'`, `return -'3'`, `return 'x' + 1`, `return 1 + 'x'`, `return 2 ^ '3'`, `return '7' % 4`, `return '7' / 2 .. ''`,
	`for i = '1', '3' do redis.call('append', 'l', i) end return redis.call('get', 'l')`, `local t = {} for i = 3, 1, -1 do t[#t+1] = i end return t`, `for i = 1, 'x' do end`, `return #KEYS + #ARGV`, `return {KEYS[1], ARGV[1], ARGV[2]}`, `return ARGV`, `return KEYS`, `KEYS[1] = 'other' return KEYS[1]`, `KEYS = {}`, `foo = 1`, `return foo`, `return _G.foo`, `_G.foo = 1`, `string.foo = 1`, `string.format = 1`, `redis.call = 1`, `rawset(string, 'foo', 1)`, `rawset(_G, 'foo', 1)`, `table.insert(string, 1)`, `setmetatable(string, {})`, `setmetatable(_G, {})`, `table.remove(string)`, `getmetatable('').__index = nil`, `return type(_G)`, `function f() end`, `local function f(n) if n == 0 then return 0 end return 1 + f(n - 1) end return f(50)`,
	`return print`, `return os`, `return os.time()`, `return io`, `return require`, `return dofile`, `return debug`, `return package`, `return newproxy == nil`, `return type(loadstring)`, `return loadstring('return 1 + 1')()`, `return loadstring('return ...')(7)`, `return loadstring('x x')`, `local f, e = loadstring('x x') return type(e)`, `return load(function() return nil end)()`, `local n = 0 return load(function() n = n + 1 return ({'return ', '4', '2'})[n] end)()`, `return loadstring('\27Lua')`, `return type(_VERSION)`, `return _VERSION`,
	`local t = {1,2,3} table.insert(t, 4) table.insert(t, 1, 0) return t`, `local t = {1,2,3} table.remove(t) return t`, `local t = {1,2,3} return {table.remove(t, 1), unpack(t)}`, `return table.remove({})`, `return table.concat({1,2,3}, ',')`, `return table.concat({1,2,3}, ',', 2)`, `return table.concat({1,2,3}, ',', 2, 3)`, `return table.concat({}, ',')`, `return table.concat({1,{},3})`, `return table.concat({1,2}, ',', 1, 4)`, `local t = {3,1,2} table.sort(t) return t`, `local t = {3,1,2} table.sort(t, function(a,b) return a > b end) return t`, `local t = {'b','a','C'} table.sort(t) return t`, `table.sort({1,'a'})`, `return table.maxn({1,2,[10]=3})`, `return table.getn({1,2})`, `return #{1,2,3}`, `return #'abc'`, `table.insert({}, 1, 2, 3)`, `table.insert(nil, 1)`, `table.insert()`,
	`local a, b = {}, {} a.x, b.y = 1, 2 return {a.x, b.y}`, `local t = {1,2} t[1], t[2] = t[2], t[1] return t`, `local x, y = {1}, 2 x, y = tostring(5), {x[1], x} return y`, `local t = {} t[1], t[2], t[3] = (function() return 1, 2, 3 end)() return t`, `local i, t = 1, {} i, t[i] = i + 1, 20 return {i, t[1]}`, `local t = {} t.a = {} t.a.b = 5 return t.a.b`, `local t = {f = function(self, x) return x end} return t:f(3)`, `local t = {} function t.f(x) return x * 2 end return t.f(4)`, `local t = {n = 5} function t:g() return self.n end return t:g()`, `local t = setmetatable({}, {__index = function(t, k) return k .. '!' end}) return t.x`, `local log = {} local t = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v * 2) end}) t.x = 4 return t.x`, `local u = {} local t = setmetatable({}, {__newindex = u}) t.x = 4 return {u.x, rawget(t, 'x') == nil}`, `local t = {} t[nil] = 1`, `local t = {} t[0/0] = 1`, `return ({})[nil]`, `local x = nil x.y = 1`, `local x = 5 x.y = 1`,
	`return select('#', 1, nil, 3)`, `return {select(2, 'a', 'b', 'c')}`, `return {select(-1, 'a', 'b')}`, `return select(0)`, `return {unpack({1,2,3}, 2)}`, `return {unpack({1,2,3}, 2, 3)}`, `local function f(...) return arg.n end return f(1, 2)`, `local function f(...) local a, b = ... return b end return f(1, 2)`, `local function f(...) return {...} end return f(1, 2, 3)`, `local function f(...) return select('#', ...) end return f(nil, nil)`, `return type(next)`, `return next({})`, `return {next({5})}`, `local n = 0 for k, v in pairs({1,2,3}) do n = n + k * v end return n`, `local n = 0 for i, v in ipairs({1,2,nil,4}) do n = n + v end return n`, `return rawequal('a', 'a')`, `return rawget({5}, 1)`, `return type(setmetatable({}, {}))`, `return setmetatable(1, {})`, `return getmetatable('').__index == string`, `local t = setmetatable({}, {__metatable = 'no'}) return getmetatable(t)`, `setmetatable(setmetatable({}, {__metatable = 1}), {})`, `return tostring(setmetatable({}, {__tostring = function() return 'me' end}))`, `return collectgarbage('step') ~= nil`,
	`local n = 0 local function inc() n = n + 1 end pcall(error) inc() return n`, `local g = 0 pcall(function() local a = 5 g = function() a = a + 1 return a end error('x') end) local q, r, s = 100, 200, 300 return {g(), g(), q, r, s}`, `local g = 0 xpcall(function() local a = 5 g = function() a = a + 1 return a end error('x') end, function(x) return x end) local q, r, s = 100, 200, 300 return {g(), g(), q, r, s}`,
	`return {pcall(function(...) return ... end, 1, 2, 3)}`, `return select('#', pcall(function() return nil, nil end))`, `local a = 1 pcall(function() a = a + 1 pcall(function() a = a * 10 error('x') end) a = a + 1 end) return a`, `return {pcall(pcall, error, 'x')}`, `return {pcall(5)}`, `return {pcall(nil)}`, `local ok, e = pcall(function() error('m', 1) end) return e`, `local function f() error('m', 2) end local ok, e = pcall(function() f() end) return e`, `local ok, e = pcall(function() local x = nil; return x.y end) return type(e)`,
	`return redis.sha1hex('')`, `return redis.sha1hex('x')`, `return redis.sha1hex()`, `return redis.sha1hex(1)`, `redis.log(redis.LOG_DEBUG, 'x')`, `redis.log()`, `redis.log('x', 'y')`, `redis.log(9, 'y')`, `return redis.REDIS_VERSION`, `return redis.REDIS_VERSION_NUM`, `return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING, redis.REPL_ALL, redis.REPL_NONE}`, `redis.set_repl(redis.REPL_ALL) return 1`, `redis.set_repl(9)`, `redis.set_repl()`,
	`math.randomseed(5) return {math.random(1000), math.random(1000)}`, `return math.random(0)`, `return math.floor(-1.5)`, `return math.ceil(1.2)`, `return math.max(1, 5, 3)`, `return math.min(4, '2')`, `return math.max()`, `return tostring(math.pi)`, `return tostring(math.huge)`, `return math.fmod(7, 3)`, `return math.fmod(-7, 3)`, `return -7 % 3`, `return 7 % -3`, `return tostring(5 % 0)`, `return math.abs(-3)`, `return {math.modf(3.7)}`, `return {math.frexp(8)}`, `return math.ldexp(1, 4)`, `return tostring(math.sqrt(2))`, `return math.floor('x')`, `return math.floor()`, `return tostring(math.deg(1))`, `return tostring(math.log10(1000))`, `return 7 / 2`, `return 2 ^ 10`, `return 10 / 0`,
	`return cjson.encode({1,2,3})`, `return cjson.encode({})`, `return cjson.encode({a=1})`, `return cjson.encode('a"b\\c/d\n\1\127é')`, `return cjson.encode(1.5)`, `return cjson.encode(1e20)`, `return cjson.encode(nil)`, `return cjson.encode(cjson.null)`, `return cjson.encode(true)`, `return cjson.encode({1,nil,3})`, `return cjson.encode({[1]=1,[20]=2})`, `return cjson.encode(0/0)`, `return cjson.encode(function() end)`, `return cjson.encode({[{}]=1})`, `return cjson.encode({{1},{a={}}})`, `return cjson.decode('[1,2,{"a":"b"}]')`, `return cjson.decode('{"a":[1,null,true,false,"\\u0041\\n\\ud83d\\ude00"]}').a[5]`, `return cjson.decode('{"a":null}').a == cjson.null`, `return cjson.decode('1.5e3')`, `return cjson.decode('"x"')`, `return cjson.decode('')`, `return cjson.decode('[1,')`, `return cjson.decode('{"a"}')`, `return cjson.decode('nonsense')`, `return cjson.decode('[1]x')`, `return cjson.decode('{"1":2}')['1']`, `return type(cjson.decode('null'))`, `return cjson.decode('[1 2]')`, `return cjson.decode('["\\x"]')`,
	`return bit.band(0xff, 0x0f)`, `return bit.bor(1, 2, 4)`, `return bit.bxor(5, 1)`, `return bit.bnot(0)`, `return bit.lshift(1, 31)`, `return bit.rshift(-1, 4)`, `return bit.arshift(-16, 2)`, `return bit.rol(0x12345678, 8)`, `return bit.ror(0x12345678, 8)`, `return bit.bswap(0x12345678)`, `return bit.tobit(2^32 + 1)`, `return bit.tohex(255)`, `return bit.tohex(-1, -4)`, `return bit.band('x')`, `return bit.tobit(2.5)`,
	`return string.format('%d %i %5d|%-5d|%05d|%+d|% d', 1, 2, 3, 4, 5, 6, 7)`, `return string.format('%x %X %#x %o %u', 255, 255, 255, 8, 9)`, `return string.format('%x', -1)`, `return string.format('%s|%5s|%-5s|%.2s', 'a', 'b', 'c', 'def')`, `return string.format('%s', nil)`, `return string.format('%s', 1.5)`, `return string.format('%q', 'a"b\\c\nd\0e\r')`, `return string.format('%f %.2f %e %.3e %g %.3g', 1.5, 2.345, 3.5, 4.5, 5.5, 6.789)`, `return string.format('%g %g %g %g', 1e20, 1e-5, 100000, 1000000)`, `return string.format('%5.1f|%-8.2f|%08.3f|%+.1f', 1.25, 2.5, -3.5, 4)`, `return string.format('%c%c', 65, 66)`, `return string.format('%%')`, `return string.format('%d', 'x')`, `return string.format('%d', '12')`, `return string.format('%d')`, `return string.format('%y', 1)`, `return string.format('%123d', 1)`, `return string.format('%.123f', 1)`, `return string.format('%d', 3.99)`, `return string.format('%d', -3.99)`, `return string.format('%.0f', 0.5)`, `return string.format('%.14g', 2^53)`, `return string.format('%.17g', 0.1)`, `return string.format('%i', 2^53)`, `return string.format('%#g %#.3g %#x %#o', 1, 2, 0, 8)`, `return string.format('%.3d|%5.3d|%05.1d', 5, 6, 7)`, `return string.format('%f %g', 1/0, -1/0)`, `return string.format('%5c|', 65)`, `return ('x'):rep(3)`, `return ('x'):rep(-1)`, `return ('abc'):upper():lower():reverse():len()`, `return ('abc'):byte(1, -1)`, `return {('abc'):byte(1, -1)}`, `return {('abc'):byte(10)}`, `return ('hello'):sub(2, -2)`, `return ('hello'):sub(-3)`, `return ('hello'):sub(0)`, `return ('hello'):sub(4, 2)`, `return string.char(72, 105)`, `return string.char(256)`, `return string.len(12)`, `return string.rep()`, `return string.sub('x')`, `return string.upper(nil)`,
	`math.randomseed(7) return {tostring(math.random()), tostring(math.random()), math.random(10), math.random(5, 8)}`, `return {('hello world'):find('wor')}`, `return {('hello world'):find('o', 6)}`, `return {('hello'):find('l+')}`, `return {('hello'):find('xyz')}`, `return {('a.b'):find('.', 1, true)}`, `return {('hello'):find('')}`, `return {('hello'):find('', 10)}`, `return {('key=val'):match('(%w+)=(%w+)')}`, `return ('  trim  '):match('^%s*(.-)%s*$')`, `return {('abc'):match('()b()')}`, `return ('x'):match('y')`, `return {('f(a(b)c)d'):match('%b()')}`, `return {('THE (quick) fox'):find('%((%a+)%)')}`, `return ('hello'):gsub('l', 'L')`, `return {('hello'):gsub('l', 'L')}`, `return {('hello'):gsub('l', 'L', 1)}`, `return {('hello world'):gsub('%w+', '<%0>')}`, `return {('hello'):gsub('(l)(l)', '%2%1')}`, `return {('abc'):gsub('', '-')}`, `return {('abc'):gsub('%w', {a = '1', b = true, c = false})}`, `return {('abc'):gsub('%w', function(c) if c == 'b' then return 'B' end end)}`, `return {('abc'):gsub('b', '%9')}`, `return {('abc'):gsub('b', function() return {} end)}`, `return ('abc'):gsub('b')`, `local t = {} for w in ('one two'):gmatch('%a+') do t[#t+1] = w end return t`, `local t = {} for k, v in ('a=1,b=2'):gmatch('(%w+)=(%w+)') do t[#t+1] = k .. v end return t`, `return ('x'):match('[')`, `return ('x'):match('%')`, `return ('x'):match('(x')`, `return ('x'):match('x)')`, `return ('x'):match('%1')`, `return ('abcabc'):match('(abc)%1')`, `return {('THE (quick) fox'):gsub('%f[%a]%a+', string.lower)}`, `return ('a-b'):match('[a%-]+')`, `return ('a]b'):match('[]]')`, `return ('abc'):match('[^a]+')`, `return ('a1_'):match('[%w_]+')`, `return ('x^y'):match('%^')`, `return ('$5'):match('$%d')`, `return ('aaa'):match('a-$')`, `return ('aaa'):match('^a?a?a?a?$')`,
	`return {redis.call('mset','a','1','b','x'), redis.call('mget','a','b','none')}`, `return redis.call('incrbyfloat','a',1.5)`, `return redis.call('set','n',1e15)`, `redis.call('set','n',0.1) return redis.call('get','n')`, `redis.call('set','n',2^53) return redis.call('get','n')`, `redis.call('set','n',-1.5) return redis.call('get','n')`, `redis.call('set','n',1e100) return redis.call('get','n')`, `redis.call('set','n',1e-7) return redis.call('get','n')`, `redis.call('set','n',1/3) return redis.call('get','n')`, `redis.call('set','n',1/0) return redis.call('get','n')`, `return redis.call('type','a')`, `return redis.call('type','a').ok`, `return redis.call('exists','a','b')`, `return redis.call('ttl','a')`, `redis.call('set','e','1','ex',100) return redis.call('ttl','e')`, `return redis.call('ECHO','x')`, `return redis.call('PING')`, `return redis.call('ping','x')`, `return #redis.call('time')`, `return redis.call('DEL','a','b','none')`, `redis.call('set','half','1') error('after')`, `return redis.call('get','half')`, `redis.call('set','half','2') redis.call('incr','k') redis.call('set','half','3')`, `return redis.call('get','half')`, `return redis.call('set','k')`, `return redis.call('set','k','v','bad')`, `return redis.call('incrby','half','x')`,
	`return redis.call('hset','h','f',1,'g',1.5)`, `return redis.call('hget','h','f')`, `return redis.call('hmget','h','g','none')`, `return redis.call('hgetall','h')`, `redis.setresp(3); return redis.call('hgetall','h').map.g`, `return redis.call('hincrby','h','f',-3)`, `return redis.call('hincrbyfloat','h','f',0.5)`, `return redis.pcall('hincrby','h','g',1).err`, `return redis.call('hmset','h','f',2^53)`, `return redis.call('hdel','h','f','g','none')`, `return redis.call('hget','k','f')`,
	`return redis.call('zadd','z',1,'a',2.5,'b','-inf','c')`, `return redis.call('zscore','z','b')`, `return type(redis.call('zscore','z','b'))`, `return tostring(redis.call('zscore','z','none'))`, `redis.setresp(3); return redis.call('zscore','z','b')`, `redis.setresp(3); return redis.call('zscore','z','b').double`, `return redis.call('zrange','z',0,-1,'withscores')`, `redis.setresp(3); return redis.call('zrange','z',0,-1,'withscores')`, `redis.setresp(3); return #redis.call('zrange','z',0,-1,'withscores')[1]`, `return redis.call('zrangebyscore','z','-inf','(' .. 2.5)`, `return redis.call('zincrby','z',0.1,'a')`, `return redis.call('zpopmin','z')`, `redis.setresp(3); return redis.call('zpopmin','z',2)`, `return redis.call('zadd','k',1,'a')`, `return redis.call('publish','nobody','x')`, `return redis.call('publish','nobody')`,
	"#!lua\nreturn 1", "#!lua flags=no-writes\nreturn redis.call('set','k','1')", "#!lua flags=no-writes\nreturn redis.call('get','k')", "#!lua flags=bad\nreturn 1", "#!lua foo\nreturn 1", "#!python\nreturn 1", "#!lua", "#!lua flags=allow-oom\nreturn foo", "if x then", "return return", "x = = 1", "local x = 'unfinished", "goto x", "return 1 +", "while true do break end return 1", "repeat local x = 1 until x == 1 return 2", "do local x = 1 end return x", "-- comment\nreturn 1", "--[[ long\n]] return 2", "return [[long\nstring]]", "return '\\65\\n\\\\'", "return not nil", "return nil and 1 or 2", "return 1 < 2", "return 'a' < 'b'", "return 1 < 'x'", "return {} < {}", "return 1 == '1'", "return 'a' == 'a'", "return #nil", "return -{}", "return {} + 1", "return nil + 1", "local t = {} return t.x.y", "return x.y.z", "local f return f()", "return ('x')()", "return ({}).x()", "return math.nothing()", "return string.nothing",
}

// TestStories compares scripts with a real Redis, one after the other on the same keys.
func TestStories(t *testing.T) {
	c := startRedis(t)
	for _, resp3 := range []bool{false, true} {
		c.do(t, "FLUSHALL")
		if resp3 {
			c.do(t, "HELLO", "3")
		}
		w := &world{now: 1_700_000_000_000, keys: map[string]keyspace.Value{}}
		keys, args := []string{"k1", "k2"}, []string{"a1", "2", "\x00\xff"}
		for _, source := range stories {
			got, want := w.eval(t, source, keys, args, resp3), c.do(t, evalArgs(source, keys, args)...)
			if got != want && !alike(got, want) {
				t.Errorf("%s\n got %q\nwant %q", source, got, want)
			}
		}
	}
}

// otherwise are what two replies have in which they differ, and may: the words of Lua itself.
var otherwise = [][2]string{
	{"a nil value", "a nil value)"},
	{"a number value", "a number value)"},
	{"attempt to compare", "attempt to compare"},
	{"to select (", "to 'select' ("},
	{"argument #3", "argument #2"},
	{"non-function object", "attempt to call"},
	{"__len undefined", "get length of"},
	{"__unm undefined", "perform arithmetic"},
	{"cannot perform", "perform arithmetic"},
	{"non-table object", "attempt to index"},
	{"Error compiling script (new function): user_script:1: ", "Error compiling script (new function): user_script:1: "},
	{"goto", "'=' expected"},
	{"nan", "-nan"},
}

// alike reports whether two replies differ only as they may.
func alike(got, want string) bool {
	return slices.ContainsFunc(otherwise, func(o [2]string) bool { return strings.Contains(got, o[0]) && strings.Contains(want, o[1]) })
}
