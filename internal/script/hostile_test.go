package script_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/script"
)

// empty is a Space of absent keys.
func empty() *keyspace.Space {
	return keyspace.New(1, func(string) (keyspace.Value, error) { return keyspace.Value{}, nil })
}

func tryRun(ctx context.Context, source string, l script.Limits) (keyspace.Reply, error) {
	s, err := script.Compile([]byte(source))
	if err != nil {
		return keyspace.Reply{}, err
	}
	return s.Run(ctx, script.Call{Space: empty(), Limits: l})
}

// hostile are scripts that would never end, or take all there is, and why each is broken off.
var hostile = []struct{ source, why string }{
	{`while true do end`, "steps"},
	{`repeat until false`, "steps"},
	{`for i = 1, 1/0 do end`, "steps"},
	{`while true do pcall(error) end`, "broken off"},
	{`while true do pcall(function() while true do end end) end`, "steps"},
	{`xpcall(function() while true do end end, function() while true do end end)`, "steps"},
	{`local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x`, "steps"},
	{`table.sort({1,2,3,4,5,6,7,8}, function() while true do end end)`, "steps"},
	{`return ('x'):rep(100):gsub('.', function() while true do end end)`, "steps"},
	{`return load(function() return 'x = 1 ' end)`, "allocates"},
	{`while true do loadstring('return 1') end`, "allocates"},
	{`return ('a'):rep(1000):find(('a*'):rep(30) .. 'b')`, "steps"},
	{`return ('a'):rep(100000):find(('.-'):rep(10) .. 'b')`, "steps"},
	{`local s = ('a'):rep(500000) while true do s:match('[^b]*b') end`, "steps"},
	{`return ('('):rep(500000):match('%b()')`, "steps"},
	{`while true do redis.call('get', 'k') end`, "steps"},
	{`for i = 1, 5000 do redis.call('get', 'k' .. i) end`, "keys"},
	{`local k = {} for i = 1, 2000 do k[i] = 'k' .. i end return redis.call('mget', unpack(k))`, "keys"},

	{`local s = 'x' while true do s = s .. s end`, "text of more"},
	{`local s = 'x' while true do s = s:rep(2) end`, "text of more"},
	{`return ('x'):rep(1e9)`, "text of more"},
	{`return ('x'):rep(1e300)`, ""},
	{`local t = {} for i = 1, 1e9 do t[i] = i end`, "broken off"},
	{`local t = {} for i = 1, 1e9 do t[#t + 1] = {} end`, "allocates"},
	{`local t = {} for i = 1, 1e9 do t[i + 0.5] = true t[i + 0.5] = nil end`, "allocates"},
	{`local t = {} for i = 1, 1e9 do t[i] = function() return i end end`, "allocates"},
	{`local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) end`, "allocates"},
	{`local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(100000):sub(1, 1) end`, "allocates"},
	{`local t, s = {}, ('x'):rep(100000) for i = 1, 1e9 do t[i] = s .. i end`, "allocates"},
	{`local t = {} t[60000000] = 1`, "allocates"},
	{`for i = 1, 1e9 do local t = {} t[10000] = 1 end`, "allocates"},
	{`local t = {} rawset(t, 60000000, 1)`, "allocates"},
	{`local t = {} table.insert(t, 60000000, 1)`, "allocates"},
	{`local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end`, "broken off"},
	{`local function f(...) return arg end local t = {} for i = 1, 1e9 do t[i] = f(1, 2, 3, 4, 5, 6, 7, 8, 9) end`, "allocates"},
	{`local function f(...) return {...} end local t = {} for i = 1, 1e9 do t[i] = f(unpack({1, 2, 3, 4, 5, 6, 7, 8, 9})) end`, "allocates"},
	{`local t = {} for i = 1, 1e9 do t[i] = tostring(i) end`, "broken off"},
	{`local t = {} for i = 1, 1e9 do t[i] = redis.status_reply('x') end`, "allocates"},
	{`local s = '[' .. ('[],'):rep(300000) .. '1]' local t = {} while true do t[#t + 1] = cjson.decode(s) end`, "allocates"},
	{`local t = {} for i = 1, 100 do t = {t, t} end return cjson.encode(t)`, "broken off"},
	{`return string.format(('%99d'):rep(200), unpack((function() local t = {} for i = 1, 200 do t[i] = i end return t end)())):rep(100)`, "text of more"},
	{`return ('x'):rep(1000000):gsub('x', 'yyyyyyyy')`, "text of more"},
	{`return ('x'):rep(1000):gsub('x', ('y'):rep(100000))`, "text of more"},
	{`local s = ('x'):rep(1000000) return table.concat({s, s})`, "text of more"},

	{`local t = {} t[1] = t return t`, "nested too deeply"},
	{`local t = {} for i = 1, 10000 do t = {t} end return t`, "nested too deeply"},
	{`local t = {} t.map = {x = t} return t`, "nested too deeply"},
	{`local t = {} for i = 1, 30 do t = {t, t} end return t`, "too long"},
	{`local s, t = ('x'):rep(1000000), {} for i = 1, 30 do t[i] = s end return t`, "too long"},
}

// TestHostile runs scripts that are meant to do harm. Each ends soon, takes little, and is
// broken off.
func TestHostile(t *testing.T) {
	for _, h := range hostile {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, err := tryRun(t.Context(), h.source, script.DefaultLimits())
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if (err == nil) != (h.why == "") || err != nil && !strings.Contains(err.Error(), h.why) {
			t.Errorf("%s\n\t%v, want %q", h.source, err, h.why)
		}
		if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 400<<20 {
			t.Errorf("%s\n\tallocated %d MiB", h.source, grown>>20)
		}
		t.Logf("%6.3fs %4d MiB  %.70s", took.Seconds(), (after.TotalAlloc-before.TotalAlloc)>>20, h.source)
	}
}

// What goes wrong within Lua is an error that the script could have caught.
func TestRecursion(t *testing.T) {
	for _, source := range []string{
		`local function f() return 1 + f() end return f()`,
		`local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x`,
		`local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x`,
		`local t = setmetatable({}, {}) getmetatable(t).__newindex = t t.x = 1`,
		`local t = setmetatable({}, {}) getmetatable(t).__tostring = tostring return tostring(t)`,
		`local t = setmetatable({}, {}) getmetatable(t).__concat = function(a, b) return a .. b end return t .. 'x'`,
		`local function f() return pcall(f) and error('x') or error('y') end f()`,
		`local function f(n) ('x'):gsub('x', f) end f()`,
		`local function f() table.sort({1, 2}, f) end f()`,
		`return unpack({}, 1, 1e8)`,
		`return unpack({}, -1e9, 1e9)`,
		`return ('x'):rep(100000):byte(1, -1)`,
		`return ('a?'):rep(1000), ('a'):rep(1000):match(('a?'):rep(1000))`,
		`return ('x'):match(('('):rep(100))`,
		`local s = ('['):rep(2000) return cjson.decode(s)`,
		`local function f(...) return f(1, ...) end return f()`,
		`local t = {} t[1] = t return cjson.encode(t)`,
	} {
		r, err := tryRun(t.Context(), source, script.DefaultLimits())
		if err != nil || r.Kind != keyspace.Error {
			t.Errorf("%s\n\t%+v, %v; want an error of its own", source, r, err)
		}
		caught := `local f = function() ` + source + ` end local ok, e = pcall(f) return {ok and 1 or 0, type(e)}`
		if r, err := tryRun(t.Context(), caught, script.DefaultLimits()); err != nil || r.Kind != keyspace.Array || r.All[0].N != 0 {
			t.Errorf("%s\n\tcaught: %+v, %v", source, r, err)
		}
	}
}

// Sources that are deep, long, or not text compile to an error, or to something.
func TestHostileSources(t *testing.T) {
	for _, source := range []string{
		strings.Repeat("(", 100_000), "return " + strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000), "return " + strings.Repeat("{", 60_000) + strings.Repeat("}", 60_000),
		"return " + strings.Repeat("not ", 30_000) + "1", "return " + strings.Repeat("-", 1), "return " + strings.Repeat("- ", 50_000) + "1", "return 1" + strings.Repeat("+1", 50_000), "return 'a'" + strings.Repeat("..'a'", 20_000), "return 2" + strings.Repeat("^2", 50_000),
		strings.Repeat("do ", 40_000), strings.Repeat("do ", 20_000) + strings.Repeat("end ", 20_000), strings.Repeat("if x then ", 12_000), "if x then" + strings.Repeat(" elseif x then", 9_000) + " end", strings.Repeat("while x do ", 10_000) + strings.Repeat("end ", 1_000),
		strings.Repeat("function f() ", 9_000), "local f = " + strings.Repeat("function() return ", 5_000) + strings.Repeat("end ", 5_000), "x" + strings.Repeat(".x", 60_000) + " = 1", "x" + strings.Repeat("()", 60_000), "x" + strings.Repeat("[1]", 40_000) + " = 1", "local " + strings.Repeat("a,", 60_000) + "a", strings.Repeat("local a ", 15_000),
		"return {" + strings.Repeat("1,", 60_000) + "}", "return f(" + strings.Repeat("1,", 60_000) + "1)", strings.Repeat("a,", 60_000) + "a = 1", strings.Repeat("t.a,", 100) + "t.a = 1", strings.Repeat("::a::", 20_000), strings.Repeat("goto a ", 15_000), "\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00", strings.Repeat("x", script.SourceMax+1), strings.Repeat("\x00", 1000), strings.Repeat("'", 999), strings.Repeat("[[", 999), strings.Repeat("--[[", 999), "return 1e" + strings.Repeat("9", 10_000), "return 0x" + strings.Repeat("f", 10_000), strings.Repeat("\xff", 1000),
		"return function(" + strings.Repeat("a,", 300) + "a) end", "local a1" + strings.Repeat("", 1), manyUpvalues(300), strings.Repeat("a()", 40_000), strings.Repeat("a=1 ", 30_000), strings.Repeat("a{}", 40_000),
	} {
		start := time.Now()
		_, _ = tryRun(t.Context(), source, script.DefaultLimits())
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%.40s took %v", source, took)
		}
	}
}

func manyUpvalues(n int) string {
	var b, use strings.Builder
	for i := range n {
		name := "v" + strings.Repeat("a", i%10) + string(rune('a'+i%26)) + strings.Repeat("b", i/26)
		if i%150 == 0 {
			b.WriteString("local function f() ")
		}
		b.WriteString("local " + name + " = 1 ")
		use.WriteString(" + " + name)
	}
	return b.String() + "return function() return 0" + use.String() + " end " + strings.Repeat("end ", (n+149)/150)
}

// A script whose caller waits no longer is broken off at once, whatever it does.
func TestBrokenOffByTime(t *testing.T) {
	unlimited := script.Limits{Steps: math.MaxInt64, Bytes: math.MaxInt64, Reply: 1 << 20, Depth: 10, Keys: 10}
	for _, source := range []string{
		`while true do end`, `while true do pcall(function() while true do end end) end`, `return ('a'):rep(1000):find(('a*'):rep(30) .. 'b')`,
		`local t = {} for i = 1, 100000 do t[i] = i end while true do table.sort(t, function() return true end) end`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		_, err := tryRun(ctx, source, unlimited)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "too long") || time.Since(start) > 5*time.Second {
			t.Errorf("%s: %v after %v", source, err, time.Since(start))
		}
	}
}

// FuzzScript runs any source: nothing panics, and it ends.
func FuzzScript(f *testing.F) {
	for i, s := range stories {
		if i%4 == 0 {
			f.Add([]byte(s))
		}
	}
	for _, h := range hostile {
		f.Add([]byte(h.source))
	}
	f.Fuzz(func(_ *testing.T, source []byte) {
		s, err := script.Compile(source)
		if err != nil {
			return
		}
		small := script.Limits{Steps: 20_000, Bytes: 1 << 20, Reply: 1 << 16, Depth: 20, Keys: 20}
		_, _ = s.Run(context.Background(), script.Call{Space: empty(), Args: [][]byte{source}, Keys: [][]byte{[]byte("k")}, Limits: small, Seed: rand.Int32()})
	})
}
