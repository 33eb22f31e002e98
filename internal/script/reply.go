package script

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/quipudb/quipu/internal/keyspace"
)

func errKeys(n int) error {
	return errors.New("ERR the script was broken off: it names more than " + itoa(n) + " keys, and has changed nothing")
}

// A writer makes replies of what a script returns.
type writer struct {
	r     *run
	size  int
	wrong error // the reply is too long, or too deep
}

// replyEach is about what each element of a reply takes.
const replyEach = 32

func (w *writer) reply(v lua.LValue, depth int) (reply keyspace.Reply) {
	if w.wrong != nil {
		return reply
	}
	if depth > w.r.Limits.Depth {
		w.wrong = errors.New("ERR the reply of the script is nested too deeply, or has no end: at most " + itoa(w.r.Limits.Depth) + " levels. It has changed nothing")
		return reply
	}
	if w.size += replyEach; w.size > w.r.Limits.Reply {
		w.wrong = errors.New("ERR the reply of the script is too long: at most " + itoa(w.r.Limits.Reply) + " bytes. It has changed nothing")
		return reply
	}
	switch v := v.(type) {
	case lua.LString:
		w.size += len(v)
		return bulk(string(v))
	case lua.LNumber:
		return keyspace.Reply{Kind: keyspace.Number, N: integer(float64(v))}
	case lua.LBool:
		switch {
		case w.r.resp3:
			return keyspace.Reply{Kind: keyspace.Bool, N: b2i(bool(v))}
		case bool(v):
			return keyspace.Reply{Kind: keyspace.Number, N: 1}
		}
	case *lua.LTable:
		return w.table(v, depth)
	}
	return reply
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// oneLine makes line ends spaces.
func oneLine(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }

func (w *writer) table(t *lua.LTable, depth int) keyspace.Reply {
	of := func(name string) (text string, is bool) {
		s, is := t.RawGetString(name).(lua.LString)
		w.size += len(s)
		text, _, _ = strings.Cut(string(s), "\x00") // as C's
		return text, is
	}
	if text, is := of("err"); is {
		return fail(text)
	}
	if text, is := of("ok"); is {
		return keyspace.Reply{Kind: keyspace.Status, Text: oneLine(text)}
	}
	if n, is := t.RawGetString("double").(lua.LNumber); is {
		return keyspace.Reply{Kind: keyspace.Double, F: float64(n), Text: formatNumber(float64(n), 17)}
	}
	if text, is := of("big_number"); is {
		return keyspace.Reply{Kind: keyspace.BigNumber, Text: oneLine(text)}
	}
	if verbatim, is := t.RawGetString("verbatim_string").(*lua.LTable); is {
		format, is1 := verbatim.RawGetString("format").(lua.LString)
		text, is2 := verbatim.RawGetString("string").(lua.LString)
		if is1 && is2 {
			w.size += len(text)
			return keyspace.Reply{Kind: keyspace.Verbatim, Text: clip(string(format)+"   ", 3) + ":" + string(text)}
		}
	}
	if fields, is := t.RawGetString("map").(*lua.LTable); is {
		return w.pairs(keyspace.Map, fields, depth, true)
	}
	if members, is := t.RawGetString("set").(*lua.LTable); is {
		return w.pairs(keyspace.Set, members, depth, false)
	}
	r := keyspace.Reply{Kind: keyspace.Array, All: []keyspace.Reply{}}
	for i := 1; w.wrong == nil; i++ {
		v := t.RawGetInt(i)
		if v == lua.LNil {
			break
		}
		r.All = append(r.All, w.reply(v, depth+1))
	}
	return r
}

func (w *writer) pairs(kind keyspace.Kind, t *lua.LTable, depth int, values bool) keyspace.Reply {
	r := keyspace.Reply{Kind: kind, All: []keyspace.Reply{}}
	for k, v := t.Next(lua.LNil); k != lua.LNil && w.wrong == nil; k, v = t.Next(k) {
		r.All = append(r.All, w.reply(k, depth+1))
		if values {
			r.All = append(r.All, w.reply(v, depth+1))
		}
	}
	return r
}
