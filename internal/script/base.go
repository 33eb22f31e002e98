package script

import (
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// ofInterpreter are the functions that the interpreter has as Redis's Lua does.
var ofInterpreter = []string{"getfenv", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "select", "setfenv", "type"}

// open makes what a script finds: its globals, which it can't change.
func (r *run) open() {
	l := r.l
	globals := l.G.Global // It stays empty, so that every new global is one of the script.
	l.Push(l.NewFunction(lua.OpenBase))
	l.Call(0, 0)
	ours := l.NewTable()
	for _, name := range ofInterpreter {
		ours.RawSetString(name, globals.RawGetString(name))
	}
	globals.ForEach(func(k, _ lua.LValue) { globals.RawSet(k, lua.LNil) })
	r.add(ours, baseFunctions())
	ours.RawSetString("_G", globals)
	ours.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	text := r.library(textFunctions())
	for name, t := range map[string]*lua.LTable{
		"string": text, "table": r.library(tableFunctions()), "math": r.math(), "cjson": r.json(), "bit": r.library(bitFunctions()), "redis": r.redis(),
	} {
		ours.RawSetString(name, t)
	}
	ours.RawSetString("KEYS", r.list(r.Keys))
	ours.RawSetString("ARGV", r.list(r.Args))

	l.SetMetatable(ours, r.library(map[string]function{"__index": func(p params) int {
		if !isText(p.Get(2)) {
			p.RaiseError("Second argument to luaProtectedTableError must be a string or number")
		}
		p.RaiseError("Script attempted to access nonexistent global variable '%s'", toText(p.Get(2)))
		return 0
	}}))
	refuse := r.library(map[string]function{"__newindex": func(p params) int {
		p.RaiseError(errLocked)
		return 0
	}})
	refuse.RawSetString("__index", ours)
	l.SetMetatable(globals, refuse)

	ofText := r.library(textArithmetic())
	ofText.RawSetString("__index", text)
	l.SetMetatable(lua.LString(""), ofText)

	r.locked = map[*lua.LTable]bool{globals: true, ours: true, refuse: true, ofText: true}
	ours.ForEach(func(k, v lua.LValue) {
		if t, is := v.(*lua.LTable); is && k != lua.LString("KEYS") && k != lua.LString("ARGV") {
			r.lock(t)
		}
	})
}

// list makes a table of arguments.
func (r *run) list(all [][]byte) *lua.LTable {
	t := r.l.CreateTable(len(all), 0)
	for _, a := range all {
		t.Append(lua.LString(a))
	}
	return t
}

func baseFunctions() map[string]function {
	return map[string]function{
		"assert":         baseAssert,
		"collectgarbage": collect,
		"error":          baseError,
		"gcinfo":         func(p params) int { return p.giveNumber(float64(p.r.meter.bytes >> 10)) },
		"load":           load,
		"loadstring":     loadText,
		"pcall":          protected,
		"rawset":         rawSet,
		"setmetatable":   setMetatable,
		"tonumber":       baseNumber,
		"tostring":       baseText,
		"unpack":         unpack,
		"xpcall":         protectedBy,
	}
}

func baseAssert(p params) int {
	if lua.LVAsBool(p.any(1)) {
		return p.GetTop()
	}
	p.RaiseError("%s", p.textOr(2, "assertion failed!"))
	return 0
}

func collect(p params) int {
	switch what := p.textOr(1, "collect"); what {
	case "count":
		return p.giveNumber(float64(p.r.meter.bytes) / 1024)
	case "collect", "stop", "restart", "step", "setpause", "setstepmul":
		return p.giveNumber(0)
	default:
		p.wrong(1, "invalid option '"+clip(what, 64)+"'")
	}
	return 0
}

func baseError(p params) int {
	v, level := p.Get(1), p.intOr(2, 1)
	if isText(v) && level > 0 {
		text := toText(v)
		if at, ok := p.GetStack(level); ok {
			if _, err := p.GetInfo("Sl", at, lua.LNil); err == nil && at.CurrentLine > 0 {
				text = at.Source + ":" + itoa(at.CurrentLine) + ": " + text
			}
		}
		p.r.room(len(text))
		v = lua.LString(text)
	}
	p.Error(v, 0)
	return 0
}

func load(p params) int {
	f, is := p.Get(1).(*lua.LFunction)
	if !is {
		p.mistyped(1, "function")
	}
	var text strings.Builder
	for {
		p.Push(f)
		p.Call(0, 1)
		piece := p.Get(-1)
		p.Pop(1)
		if piece == lua.LNil || piece == lua.LString("") {
			return p.compiled(text.String(), p.textOr(2, "=(load)"))
		}
		if !isText(piece) {
			return p.give(lua.LNil, lua.LString("reader function must return a string"))
		}
		p.r.room(text.Len() + sizeOf(piece))
		text.WriteString(toText(piece))
	}
}

func loadText(p params) int {
	text := p.text(1)
	return p.compiled(text, p.textOr(2, text))
}

// compiled returns the function that some text is.
func (p params) compiled(text, name string) int {
	if strings.HasPrefix(text, "\x1b") || len(text) > SourceMax {
		return p.give(lua.LNil, lua.LString("attempt to load chunk with wrong mode, or too long"))
	}
	line, _, _ := strings.Cut(name, "\n")
	if rest, is := strings.CutPrefix(line, "@"); is {
		name = rest
	} else if rest, is := strings.CutPrefix(line, "="); is {
		name = rest
	} else {
		name = `[string "` + clip(line, 40) + `"]`
	}
	p.r.meter.work(p.LState, len(text))
	p.r.meter.charge(p.LState, costCompile+64*len(text)) // about what a tree and its code take
	proto, why := compile(text, name)
	if why != "" {
		return p.give(lua.LNil, lua.LString(why))
	}
	f, err := p.r.function(proto)
	if err != nil {
		return p.give(lua.LNil, lua.LString(err.Error()))
	}
	return p.give(f)
}

// protected is pcall. Redis's gives the text of an error of its own.
func protected(p params) int {
	p.any(1)
	args := make([]lua.LValue, 0, p.GetTop())
	for i := 2; i <= p.GetTop(); i++ {
		args = append(args, p.Get(i))
	}
	results, err := p.r.protect(p.LState, p.Get(1), args, nil)
	if err != nil {
		v := errorValue(err)
		if t, is := v.(*lua.LTable); is {
			if text := t.RawGetString("err"); isText(text) {
				v = text
			}
		}
		return p.give(lua.LFalse, v)
	}
	return p.give(append([]lua.LValue{lua.LTrue}, results...)...)
}

// errorValue returns what an error is to a script.
func errorValue(err error) lua.LValue {
	if api, is := err.(*lua.ApiError); is { //nolint:errorlint // it is what PCall returns
		return api.Object
	}
	return lua.LString(err.Error())
}

func protectedBy(p params) int {
	handler, is := p.Get(2).(*lua.LFunction)
	if !is {
		return p.give(lua.LFalse, lua.LString("attempt to call a "+p.Get(2).Type().String()+" value"))
	}
	// What the handler returns is raised, which takes the local variables of functions that
	// have ended from those that are still running.
	results, err := p.r.protect(p.LState, p.Get(1), nil, p.NewFunction(func(l *lua.LState) int {
		l.Push(handler)
		l.Push(l.Get(1))
		l.Call(1, 1)
		l.Error(l.Get(-1), 0)
		return 0
	}))
	if err != nil {
		return p.give(lua.LFalse, errorValue(err))
	}
	return p.give(append([]lua.LValue{lua.LTrue}, results...)...)
}

func unpack(p params) int {
	t := p.table()
	first, last := p.intOr(2, 1), p.intOr(3, t.Len())
	if last-first >= valuesMax {
		p.RaiseError("too many results to unpack")
	}
	for i := first; i <= last; i++ {
		p.Push(t.RawGetInt(i))
	}
	return max(last-first+1, 0)
}

func rawSet(p params) int {
	t := p.table()
	p.any(2)
	p.r.set(t, p.Get(2), p.any(3))
	p.SetTop(1)
	return 1
}

func setMetatable(p params) int {
	t := p.table()
	mt := p.Get(2)
	if mt != lua.LNil || p.GetTop() < 2 {
		if _, is := mt.(*lua.LTable); !is {
			p.wrong(2, "nil or table expected")
		}
	}
	p.r.unlocked(t)
	if p.GetMetaField(t, "__metatable") != lua.LNil {
		p.RaiseError("cannot change a protected metatable")
	}
	p.SetMetatable(t, mt)
	p.SetTop(1)
	return 1
}

func baseNumber(p params) int {
	v, base := p.any(1), p.intOr(2, 10)
	if base == 10 {
		if f, is := toNumber(v); is {
			return p.giveNumber(f)
		}
		return p.give(lua.LNil)
	}
	text := strings.Trim(p.text(1), spaces)
	if base < 2 || base > 36 {
		p.wrong(2, "base out of range")
	}
	minus := strings.HasPrefix(text, "-")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "-"), "+")
	if base == 16 {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X")
	}
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil || strings.ContainsAny(text, "+-_") {
		return p.give(lua.LNil)
	}
	if minus {
		n = -n
	}
	return p.giveNumber(float64(n))
}

func baseText(p params) int {
	v := p.any(1)
	if f := p.GetMetaField(v, "__tostring"); f != lua.LNil {
		p.Push(f)
		p.Push(v)
		p.Call(1, 1)
		return 1
	}
	if _, is := v.(lua.LString); is {
		return p.give(v)
	}
	return p.r.text(display(v))
}
