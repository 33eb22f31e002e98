package script

import (
	"errors"
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/quipudb/quipu/internal/keyspace"
)

// The limits of the interpreter's stacks.
const (
	framesMax    = 1000
	registersMin = 512
	registersMax = 32 << 10
	valuesMax    = 7900 // that a function may return, as Redis's Lua has it
)

// textMax is the longest text that a script may make.
const textMax = 1 << 20

// A run is one execution of a script, in an interpreter of its own.
type run struct {
	Call
	script *Script
	meter  *meter
	l      *lua.LState          // the one that is running
	idle   []*lua.LState        // for pcall
	depth  int                  // of pcall in pcall
	locked map[*lua.LTable]bool // tables of the server, which scripts can't change
	random random
	keys   int  // that it has named first
	resp3  bool // redis.setresp(3): what redis.call returns, and a reply may be
}

func (r *run) run() (reply keyspace.Reply, err error) {
	r.l = newState()
	r.random.seed(r.Seed)
	r.open()
	r.l.SetContext(r.meter)
	err = r.call()
	if why := r.meter.Err(); why != nil {
		return keyspace.Reply{}, why
	}
	if err != nil {
		return r.failed(err), nil
	}
	w := writer{r: r}
	reply = w.reply(r.l.Get(-1), 0)
	return reply, w.wrong
}

func newState() *lua.LState {
	return lua.NewState(lua.Options{
		CallStackSize: framesMax, MinimizeStackMemory: true, SkipOpenLibs: true,
		RegistrySize: registersMin, RegistryMaxSize: registersMax, RegistryGrowStep: registersMin,
	})
}

// call calls the script.
func (r *run) call() (err error) {
	l := r.l
	defer func() {
		r.l = l
		if p := recover(); p != nil { // The interpreter panics if there is no room to tell of an error.
			err = errStack
		}
	}()
	f, err := r.function(r.script.proto)
	if err != nil {
		return err
	}
	l.Push(f)
	return l.PCall(0, 1, l.NewFunction(r.handle))
}

var errStack = errors.New("stack overflow")

// protect calls a function with arguments, and returns its results, or its error as it is
// to the handler.
//
// It does so in a state of its own. The interpreter takes, when an error is raised, the local
// variables of all functions of its state from the closures that share them, also of those
// that go on after the error is caught.
func (r *run) protect(l *lua.LState, f lua.LValue, args []lua.LValue, handler *lua.LFunction) (results []lua.LValue, err error) {
	if r.depth++; r.depth > protectedMax {
		r.depth--
		return nil, errStack
	}
	state := r.state(l)
	r.l = state
	defer func() {
		r.depth--
		r.l = l
		if p := recover(); p != nil {
			err = errStack
			return
		}
		state.SetTop(0)
		r.idle = append(r.idle, state)
	}()
	state.Push(f)
	for _, a := range args {
		state.Push(a)
	}
	if err := state.PCall(len(args), lua.MultRet, handler); err != nil {
		if api, is := err.(*lua.ApiError); is { //nolint:errorlint // it is what PCall returns
			r.meter.work(l, 100+len(api.StackTrace)/8)
		}
		r.meter.charge(l, costCaught)
		return nil, err
	}
	for i := 1; i <= state.GetTop(); i++ {
		results = append(results, state.Get(i))
	}
	return results, nil
}

// protectedMax is how deep pcall may call pcall.
const protectedMax = 150

// state returns a state to call a function in.
func (r *run) state(l *lua.LState) *lua.LState {
	if n := len(r.idle); n > 0 {
		s := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return s
	}
	r.meter.charge(l, costState)
	s := newState()
	s.G, s.Env = l.G, l.Env
	s.SetContext(r.meter)
	return s
}

// function makes the function of a chunk: see rewrite.go.
func (r *run) function(proto *lua.FunctionProto) (*lua.LFunction, error) {
	l := r.l
	l.Push(l.NewFunctionFromProto(proto))
	for _, f := range []lua.LGFunction{r.join, r.made, r.put, r.args, r.num} {
		l.Push(l.NewFunction(f))
	}
	if err := l.PCall(5, 1, nil); err != nil {
		return nil, err
	}
	f := l.Get(-1).(*lua.LFunction)
	l.Pop(1)
	return f, nil
}

// handle makes an error what the server can tell, with where it was raised.
func (r *run) handle(l *lua.LState) int {
	e, is := l.Get(1).(*lua.LTable)
	if !is {
		e = l.CreateTable(0, 3)
		e.RawSetString("err", lua.LString("ERR "+display(l.Get(1))))
	}
	for level := 1; level < 8; level++ { // functions of ours may have called each other
		at, ok := l.GetStack(level)
		if !ok {
			break
		}
		if _, err := l.GetInfo("Sl", at, lua.LNil); err == nil && at.CurrentLine > 0 {
			e.RawSetString("source", lua.LString("@"+at.Source))
			e.RawSetString("line", lua.LNumber(at.CurrentLine))
			break
		}
	}
	l.Push(e)
	return 1
}

// failed returns the reply of a script that has raised an error.
func (r *run) failed(err error) keyspace.Reply {
	text := "ERR " + err.Error()
	if api, is := err.(*lua.ApiError); is { //nolint:errorlint // it is what PCall returns
		e, is := api.Object.(*lua.LTable)
		if !is {
			return fail("ERR Error running script f_" + r.script.SHA + ", " + clip(display(api.Object), 100))
		}
		text = "ERR unknown error"
		if msg := e.RawGetString("err"); isText(msg) {
			text = toText(msg)
		}
		if source, line := e.RawGetString("source"), e.RawGetString("line"); isText(source) && isText(line) {
			text += " script: " + r.script.SHA + ", on " + toText(source) + ":" + toText(line) + "."
		}
	}
	return fail(text)
}

func fail(text string) keyspace.Reply { return keyspace.Reply{Kind: keyspace.Error, Text: text} }

func clip(s string, n int) string { return s[:min(len(s), n)] }

// join is what a .. b becomes.
func (r *run) join(l *lua.LState) int {
	n := l.GetTop()
	acc := l.Get(n)
	for i := n - 1; i >= 1; {
		from, size := i+1, 0
		if isText(acc) {
			size = sizeOf(acc)
			for from > 1 && isText(l.Get(from-1)) {
				from--
				size += sizeOf(l.Get(from))
			}
		}
		if from <= i {
			r.room(size)
			b := make([]byte, 0, size)
			for j := from; j <= i; j++ {
				b = appendText(b, l.Get(j))
			}
			acc, i = lua.LString(appendText(b, acc)), from-1
			continue
		}
		left := l.Get(i)
		f := l.GetMetaField(left, "__concat")
		if f == lua.LNil {
			f = l.GetMetaField(acc, "__concat")
		}
		if f == lua.LNil {
			if isText(left) {
				left = acc
			}
			raise(l, "attempt to concatenate a %s value", left.Type())
		}
		l.Push(f)
		l.Push(left)
		l.Push(acc)
		l.Call(2, 1)
		acc = l.Get(-1)
		l.Pop(1)
		i--
	}
	l.Push(acc)
	return 1
}

// room pays for text, and does not return if there is no room for it.
func (r *run) room(size int) {
	if size > textMax {
		r.meter.stop(errTextLong)
	}
	r.meter.charge(r.l, size+costSlot)
}

// text pushes text that was made.
func (r *run) text(s string) int {
	r.room(len(s))
	r.l.Push(lua.LString(s))
	return 1
}

// made is what a table or a function becomes: it pays for it.
func (r *run) made(l *lua.LState) int {
	cost := int(l.Get(1).(lua.LNumber))
	v := l.Get(2)
	if t, is := v.(*lua.LTable); is {
		cost += costSlot * t.Len() // with the results of the last call in it
	}
	r.meter.charge(l, cost)
	l.Push(v)
	return 1
}

// args is the table of the further arguments of a function.
func (r *run) args(l *lua.LState) int {
	n := l.GetTop()
	r.meter.charge(l, costTable+2*costField+costSlot*n)
	t := l.CreateTable(n, 1)
	for i := 1; i <= n; i++ {
		t.RawSetInt(i, l.Get(i))
	}
	t.RawSetString("n", lua.LNumber(n))
	l.Push(t)
	return 1
}

// num is what a bound of a loop becomes, of which there are three.
func (r *run) num(l *lua.LState) int {
	which, v := []string{"initial value", "limit", "step"}[int(l.Get(1).(lua.LNumber))], l.Get(2)
	if s, is := v.(lua.LString); is {
		if n, is := parseNumber(string(s)); is {
			v = lua.LNumber(n)
		}
	}
	if _, is := v.(lua.LNumber); !is {
		raise(l, "'for' %s must be a number", which)
	}
	l.Push(v)
	return 1
}

// loopMax is how long a chain of metatables may be.
const loopMax = 100

// put is what t[k] = v becomes.
func (r *run) put(l *lua.LState) int {
	object, key, value := l.Get(1), l.Get(2), l.Get(3)
	for range loopMax {
		t, is := object.(*lua.LTable)
		var next lua.LValue
		if is {
			if r.locked[t] {
				raise(l, errLocked)
			}
			if t.Metatable == lua.LNil || t.RawGet(key) != lua.LNil {
				r.set(t, key, value)
				return 0
			}
			if next = l.GetMetaField(t, "__newindex"); next == lua.LNil {
				r.set(t, key, value)
				return 0
			}
		} else if next = l.GetMetaField(object, "__newindex"); next == lua.LNil {
			raise(l, "attempt to index a %s value", object.Type())
		}
		if f, is := next.(*lua.LFunction); is {
			l.Push(f)
			l.Push(object)
			l.Push(key)
			l.Push(value)
			l.Call(3, 0)
			return 0
		}
		object = next
	}
	raise(l, "loop in settable")
	return 0
}

// set sets a field, and pays for it.
func (r *run) set(t *lua.LTable, key, value lua.LValue) {
	cost := costField
	switch k := key.(type) {
	case *lua.LNilType:
		raise(r.l, "table index is nil")
	case lua.LNumber:
		if k != k {
			raise(r.l, "table index is NaN")
		}
		if n := float64(k); n >= 1 && n < float64(lua.MaxArrayIndex) && n == float64(int(n)) {
			if value == lua.LNil && t.RawGetInt(int(n)) == lua.LNil {
				return // it would lengthen the array
			}
			// An array has all indexes up to the last one.
			last := t.MaxN()
			if cost = 2 * costSlot; int(n) > last {
				cost *= int(n) - last
			}
			if last == 0 {
				cost += costArray
			}
			r.unlocked(t)
			r.meter.charge(r.l, cost)
			t.RawSetInt(int(n), value)
			return
		}
	}
	if value != lua.LNil && firstField(t) {
		cost += costFields
	}
	r.unlocked(t)
	r.meter.charge(r.l, cost)
	t.RawSet(key, value)
}

// firstField reports whether a table has no fields besides an array.
func firstField(t *lua.LTable) bool {
	from := lua.LNil
	if n := t.MaxN(); n > 0 {
		from = lua.LNumber(n)
	}
	k, _ := t.Next(from)
	return k == lua.LNil
}

const errLocked = "Attempt to modify a readonly table"

// unlocked does not return if a table is one of the server. It is for functions of libraries, whose errors
// of this kind do not say where.
func (r *run) unlocked(t *lua.LTable) {
	if r.locked[t] {
		r.l.Error(lua.LString(errLocked), 0)
	}
}

// lock keeps scripts from changing a table.
func (r *run) lock(t *lua.LTable) { r.locked[t] = true }

func itoa(n int) string { return strconv.Itoa(n) }
