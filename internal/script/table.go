package script

import (
	"sort"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func tableFunctions() map[string]function {
	return map[string]function{
		"concat": tableConcat,
		"foreach": func(p params) int {
			t := p.table()
			for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
				if p.each(k, v) {
					return 1
				}
			}
			return 0
		},
		"foreachi": func(p params) int {
			t := p.table()
			for i, n := 1, t.Len(); i <= n; i++ {
				if p.each(lua.LNumber(i), t.RawGetInt(i)) {
					return 1
				}
			}
			return 0
		},
		"getn":   func(p params) int { return p.giveNumber(float64(p.table().Len())) },
		"insert": tableInsert,
		"maxn":   tableMaxN,
		"remove": tableRemove,
		"sort":   tableSort,
	}
}

// each calls the function that foreach was given, and reports whether it has returned something.
func (p params) each(k, v lua.LValue) bool {
	p.Push(p.Get(2))
	p.Push(k)
	p.Push(v)
	p.Call(2, 1)
	if p.Get(-1) != lua.LNil {
		return true
	}
	p.Pop(1)
	return false
}

func tableConcat(p params) int {
	t, separator := p.table(), p.textOr(2, "")
	from, to := p.intOr(3, 1), p.intOr(4, t.Len())
	var b strings.Builder
	for i := from; i <= to; i++ {
		v := t.RawGetInt(i)
		if !isText(v) {
			p.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		if b.Len()+sizeOf(v) > textMax {
			p.r.room(textMax + 1)
		}
		b.WriteString(toText(v))
		if i < to {
			b.WriteString(separator)
		}
		p.r.meter.work(p.LState, 1)
	}
	return p.r.text(b.String())
}

func tableInsert(p params) int {
	t := p.table()
	n := t.Len() + 1
	switch p.GetTop() {
	case 2:
		p.r.set(t, lua.LNumber(n), p.Get(2))
	case 3:
		at, v := p.int(2), p.Get(3)
		n = max(n, at)
		p.r.meter.work(p.LState, max(n-at, 0)/8)
		if at < 1 {
			for i := n; i > at && n-i < textMax; i-- { // as Redis's Lua has it: no index is refused
				p.r.set(t, lua.LNumber(i), t.RawGet(lua.LNumber(i-1)))
			}
			p.r.set(t, lua.LNumber(at), v)
			return 0
		}
		p.r.set(t, lua.LNumber(n), lua.LTrue) // makes room, and pays for it
		for i := n; i > at; i-- {
			t.RawSetInt(i, t.RawGetInt(i-1))
		}
		t.RawSetInt(at, v)
	default:
		p.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

func tableRemove(p params) int {
	t := p.table()
	n := t.Len()
	at := p.intOr(2, n)
	if at < 1 || at > n {
		return 0
	}
	p.r.unlocked(t)
	p.r.meter.work(p.LState, (n-at)/8)
	return p.give(t.Remove(at))
}

func tableMaxN(p params) int {
	most := 0.0
	t := p.table()
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		if n, is := k.(lua.LNumber); is {
			most = max(most, float64(n))
		}
		p.r.meter.work(p.LState, 1)
	}
	return p.giveNumber(most)
}

// A sorter sorts the array of a table.
type sorter struct {
	p      params
	t      *lua.LTable
	n      int
	before *lua.LFunction
}

func (s sorter) Len() int { return s.n }

func (s sorter) Swap(i, j int) {
	a, b := s.t.RawGetInt(i+1), s.t.RawGetInt(j+1)
	s.t.RawSetInt(i+1, b)
	s.t.RawSetInt(j+1, a)
}

func (s sorter) Less(i, j int) bool {
	s.p.r.meter.work(s.p.LState, 1)
	a, b := s.t.RawGetInt(i+1), s.t.RawGetInt(j+1)
	if s.before == nil {
		return s.p.LessThan(a, b)
	}
	s.p.Push(s.before)
	s.p.Push(a)
	s.p.Push(b)
	s.p.Call(2, 1)
	is := lua.LVAsBool(s.p.Get(-1))
	s.p.Pop(1)
	return is
}

func tableSort(p params) int {
	t := p.table()
	s := sorter{p: p, t: t, n: t.Len()}
	if p.Get(2) != lua.LNil {
		f, is := p.Get(2).(*lua.LFunction)
		if !is {
			p.mistyped(2, "function")
		}
		s.before = f
	}
	p.r.unlocked(t)
	sort.Sort(s)
	return 0
}
