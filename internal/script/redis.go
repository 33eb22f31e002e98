package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/quipudb/quipu/internal/keyspace"
)

// The version that scripts are told: that of the Redis whose words this is.
const (
	versionText   = "7.0.15"
	versionNumber = 0x0007000f
)

// The levels of redis.log.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// redis makes the table by that name.
func (r *run) redis() *lua.LTable {
	t := r.library(map[string]function{
		"call":               func(p params) int { return p.command(true) },
		"pcall":              func(p params) int { return p.command(false) },
		"error_reply":        errorReply,
		"status_reply":       statusReply,
		"sha1hex":            sha1Hex,
		"log":                logText,
		"setresp":            setRESP,
		"set_repl":           setReplication,
		"replicate_commands": func(p params) int { return p.give(lua.LTrue) },
		"breakpoint":         func(p params) int { return p.give(lua.LFalse) },
		"debug":              func(params) int { return 0 },
	})
	for name, n := range map[string]int{
		"LOG_DEBUG": LogDebug, "LOG_VERBOSE": LogVerbose, "LOG_NOTICE": LogNotice, "LOG_WARNING": LogWarning,
		"REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3, "REDIS_VERSION_NUM": versionNumber,
	} {
		t.RawSetString(name, lua.LNumber(n))
	}
	t.RawSetString("REDIS_VERSION", lua.LString(versionText))
	return t
}

// errorTable makes the table that an error is to scripts: of "-CODE text", or of text, whose code is ERR.
func (r *run) errorTable(text string) *lua.LTable {
	text, _, _ = strings.Cut(text, "\x00") // as C's
	code, rest := "ERR", text
	if after, is := strings.CutPrefix(text, "-"); is {
		if head, tail, cut := strings.Cut(after, " "); cut {
			code, rest = head, tail
		} else {
			rest = after
		}
	}
	text = code + " " + strings.Trim(rest, "\r\n")
	r.meter.charge(r.l, costTable+3*costField+len(text))
	t := r.l.CreateTable(0, 1)
	t.RawSetString("err", lua.LString(text))
	return t
}

// raise raises an error of the server's.
func (p params) raise(text string) int {
	p.Error(p.r.errorTable(text), 0)
	return 0
}

// command is redis.call, or redis.pcall.
func (p params) command(raises bool) int {
	args, wrong := p.arguments()
	if wrong != "" {
		t := p.r.errorTable(wrong)
		if raises {
			p.Error(t, 0)
		}
		return p.give(t)
	}
	reply, wrong := p.r.execute(args)
	if p.r.meter.goOn(p.LState); wrong != "" || reply.Kind == keyspace.Error {
		t := p.r.errorTable(wrong)
		if wrong == "" {
			t = p.r.errorTable("-" + reply.Text)
		}
		t.RawSetString("ignore_error_stats_update", lua.LTrue)
		if raises {
			p.Error(t, 0)
		}
		return p.give(t)
	}
	return p.give(p.r.value(&reply))
}

// arguments returns those of a command.
func (p params) arguments() (args [][]byte, wrong string) {
	n := p.GetTop()
	if n == 0 {
		return nil, "Please specify at least one argument for this redis lib call"
	}
	size := 0
	for i := 1; i <= n; i++ {
		switch v := p.Get(i).(type) {
		case lua.LNumber:
			args = append(args, []byte(formatNumber(float64(v), 17)))
		case lua.LString:
			args = append(args, []byte(v))
			size += len(v)
		default:
			return nil, "Lua redis lib command arguments must be strings or integers"
		}
	}
	p.r.meter.charge(p.LState, size+40*n)
	return args, ""
}

// execute executes a command, or says why it can't be called.
func (r *run) execute(args [][]byte) (reply keyspace.Reply, wrong string) {
	name := strings.ToUpper(string(args[0][:min(len(args[0]), 64)]))
	switch name {
	case "TIME":
		if len(args) != 1 {
			return reply, errArity
		}
		now := r.Space.NowMS()
		return keyspace.Reply{Kind: keyspace.Array, All: []keyspace.Reply{bulk(itoa(int(now / 1000))), bulk(itoa(int(now % 1000 * 1000)))}}, ""
	case "ECHO":
		if len(args) != 2 {
			return reply, errArity
		}
		return bulk(string(args[1])), ""
	case "PING":
		switch len(args) {
		case 1:
			return keyspace.Reply{Kind: keyspace.Status, Text: "PONG"}, ""
		case 2:
			return bulk(string(args[1])), ""
		}
		return reply, errArity
	}
	writes, has := keyspace.Has(name)
	switch {
	case !has:
		if r.Refuse != nil {
			return reply, r.Refuse(args)
		}
		return reply, "Unknown Redis command called from script"
	case !keyspace.Fits(args):
		return reply, errArity
	case writes && (r.ReadOnly || !r.script.Writes):
		return reply, "Write commands are not allowed from read-only scripts."
	}
	if r.Permit != nil {
		if wrong := r.Permit(args); wrong != "" {
			return keyspace.Reply{Kind: keyspace.Error, Text: wrong}, ""
		}
	}
	if wrong := r.named(keyspace.KeysOf(args)); wrong != "" || r.meter.broken != nil {
		return reply, wrong
	}
	if name[0] == 'P' && name[1] == 'F' || strings.Contains(name, ".") { // It takes a sketch in hand.
		r.meter.charge(r.l, costSketch)
		r.meter.work(r.l, stepsSketch)
	}
	if name[0] == 'H' || name[0] == 'Z' { // It reads a collection as a whole, and may write it so.
		size := len(r.Space.Is(string(args[1])).Held)
		r.meter.charge(r.l, 2*size)
		r.meter.work(r.l, size/collectionBytesStep)
	}
	reply = r.Space.Do(args)
	if err := r.Space.Err(); err != nil {
		r.meter.stop(err)
	}
	return reply, ""
}

// named looks at the keys of a command, and returns why one can't be one.
func (r *run) named(keys [][]byte) (wrong string) {
	r.meter.steps += int64(20 + 10*len(keys))
	for _, key := range keys {
		if r.Space.Known(key) {
			continue
		}
		if r.CheckKey != nil {
			if err := r.CheckKey(string(key)); err != nil {
				return err.Error()
			}
		}
		if r.keys++; r.keys > r.Limits.Keys {
			r.meter.stop(errKeys(r.Limits.Keys))
			return ""
		}
	}
	return ""
}

// What a command on a sketch takes, about; and how many bytes of a collection are a step.
const (
	costSketch          = 64 << 10
	stepsSketch         = 10_000
	collectionBytesStep = 4
)

const errArity = "Wrong number of args calling Redis command from script"

func bulk(text string) keyspace.Reply { return keyspace.Reply{Kind: keyspace.Bulk, Text: text} }

// value is what a reply is to scripts. It pays for it.
func (r *run) value(reply *keyspace.Reply) lua.LValue {
	switch reply.Kind {
	case keyspace.Number:
		return lua.LNumber(reply.N)
	case keyspace.Bulk:
		r.meter.charge(r.l, costSlot+len(reply.Text))
		return lua.LString(reply.Text)
	case keyspace.Status:
		r.meter.charge(r.l, costTable+2*costField+len(reply.Text))
		t := r.l.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(reply.Text))
		return t
	case keyspace.Error:
		return r.errorTable("-" + reply.Text)
	case keyspace.Array:
		return r.array(reply.All)
	case keyspace.Bool, keyspace.Double, keyspace.Map, keyspace.Pairs:
		return r.typed(reply)
	default:
		if r.resp3 {
			return lua.LNil
		}
		return lua.LFalse
	}
}

func (r *run) array(all []keyspace.Reply) lua.LValue {
	r.meter.charge(r.l, costTable+costSlot*len(all))
	t := r.l.CreateTable(len(all), 0)
	for i := range all {
		t.RawSetInt(i+1, r.value(&all[i]))
	}
	return t
}

// pairs makes an array of arrays of two.
func (r *run) pairs(all []keyspace.Reply) lua.LValue {
	pairs := make([]keyspace.Reply, 0, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		pairs = append(pairs, keyspace.Reply{Kind: keyspace.Array, All: all[i : i+2]})
	}
	return r.array(pairs)
}

// typed is value for what RESP2 has no type for.
func (r *run) typed(reply *keyspace.Reply) lua.LValue {
	switch {
	case reply.Kind == keyspace.Bool && r.resp3:
		return lua.LBool(reply.N != 0)
	case reply.Kind == keyspace.Bool:
		return lua.LNumber(reply.N)
	case reply.Kind == keyspace.Double && !r.resp3:
		return lua.LString(formatNumber(reply.F, 17))
	case reply.Kind == keyspace.Map && !r.resp3, reply.Kind == keyspace.Pairs && !r.resp3:
		return r.array(reply.All)
	case reply.Kind == keyspace.Pairs:
		return r.pairs(reply.All)
	}
	r.meter.charge(r.l, 2*costTable+costField*(len(reply.All)+4))
	t := r.l.CreateTable(0, 1)
	if reply.Kind == keyspace.Double {
		t.RawSetString("double", lua.LNumber(reply.F))
		return t
	}
	fields := r.l.CreateTable(0, len(reply.All)/2)
	for i := 0; i+1 < len(reply.All); i += 2 {
		fields.RawSet(r.value(&reply.All[i]), r.value(&reply.All[i+1]))
	}
	t.RawSetString("map", fields)
	return t
}

func errorReply(p params) int {
	text, is := p.Get(1).(lua.LString)
	if !is || p.GetTop() != 1 {
		return p.give(p.r.errorTable("wrong number or type of arguments"))
	}
	return p.give(p.r.errorTable("-" + strings.TrimPrefix(string(text), "-")))
}

func statusReply(p params) int {
	text, is := p.Get(1).(lua.LString)
	if !is || p.GetTop() != 1 {
		return p.give(p.r.errorTable("wrong number or type of arguments"))
	}
	p.r.meter.charge(p.LState, costTable+2*costField)
	t := p.CreateTable(0, 1)
	t.RawSetString("ok", text)
	return p.give(t)
}

func sha1Hex(p params) int {
	if p.GetTop() != 1 {
		return p.raise("wrong number of arguments")
	}
	text := toText(p.Get(1))
	p.r.meter.work(p.LState, len(text)/64)
	return p.r.text(SHA([]byte(text)))
}

func logText(p params) int {
	if p.GetTop() < 2 {
		return p.raise("redis.log() requires two arguments or more.")
	}
	level, is := toNumber(p.Get(1))
	switch {
	case !is:
		return p.raise("First argument must be a number (log level).")
	case level < LogDebug || level > LogWarning:
		return p.raise("Invalid debug level.")
	}
	if p.r.Log == nil {
		return 0
	}
	var words []string
	for i := 2; i <= p.GetTop(); i++ {
		if v := p.Get(i); isText(v) {
			words = append(words, clip(toText(v), logMax))
		}
	}
	p.r.Log(int(level), clip(strings.Join(words, " "), logMax))
	return 0
}

// logMax is how long a line of redis.log may be.
const logMax = 1 << 10

func setRESP(p params) int {
	if p.GetTop() != 1 {
		return p.raise("redis.setresp() requires one argument.")
	}
	switch n, _ := toNumber(p.Get(1)); n {
	case 2, 3:
		p.r.resp3 = n == 3
	default:
		return p.raise("RESP version must be 2 or 3.")
	}
	return 0
}

func setReplication(p params) int {
	if p.GetTop() != 1 {
		return p.raise("redis.set_repl() requires two arguments.")
	}
	if n, _ := toNumber(p.Get(1)); int(n)&^3 != 0 {
		return p.raise("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return 0
}
