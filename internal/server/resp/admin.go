package resp

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// redisVersion is the Redis whose commands clients may expect.
const redisVersion = "7.4.0"

func serverTime(s *session, _ [][]byte) error {
	now := time.Now()
	s.array(2)
	s.text(itoa(now.Unix()))
	s.text(itoa(int64(now.Nanosecond() / 1000)))
	return nil
}

// functionFlush has nothing to flush.
func functionFlush(s *session, args [][]byte) error {
	if len(args) > 3 || len(args) == 3 && !is(args[2], "SYNC") && !is(args[2], "ASYNC") {
		return wireError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
	}
	s.ok()
	return nil
}

// A parameter is what CONFIG GET shows: a text, or a number that CONFIG SET changes
// within a range.
type parameter struct {
	name      string
	get       func(d *Door) string
	number    func(d *Door) *atomic.Int64
	low, high int64
	bytes     bool          // with units
	changed   func(d *Door) // called after CONFIG SET, if there is something to do
}

// value returns what CONFIG GET shows.
func (p *parameter) value(d *Door) string {
	if p.number != nil {
		return itoa(p.number(d).Load())
	}
	return p.get(d)
}

// parse returns the number that CONFIG SET would make of the parameter. One that can't be
// changed may be set to what it is: tools write back what they have read.
func (p *parameter) parse(d *Door, value []byte) (int64, error) {
	failed := "ERR CONFIG SET failed (possibly related to argument '" + p.name + "') - "
	n, ok := parseInt(value)
	if p.bytes && !ok {
		n, ok = parseBytes(value)
	}
	switch {
	case p.number == nil && string(value) == p.get(d):
		return 0, nil
	case p.number == nil && over100(value):
		return 0, wireError(failed + "percentage argument must be less or equal to 100")
	case p.number == nil:
		return 0, wireError(failed + "can't set immutable config")
	case !ok && p.bytes:
		return 0, wireError(failed + "argument must be a memory value")
	case !ok:
		return 0, wireError(failed + "argument couldn't be parsed into an integer")
	case n < p.low || n > p.high:
		return 0, wireError(failed + "argument must be between " + itoa(p.low) + " and " + itoa(p.high) + " inclusive")
	}
	return n, nil
}

// over100 reports whether a value is a share of more than the whole.
func over100(value []byte) bool {
	share, is := bytes.CutSuffix(value, []byte("%"))
	n, ok := parseInt(share)
	return is && ok && n > 100
}

// parseBytes returns the number of bytes that is written with a unit, as in 100mb.
func parseBytes(value []byte) (int64, bool) {
	digits := len(value)
	for digits > 0 && (value[digits-1] < '0' || value[digits-1] > '9') {
		digits--
	}
	n, ok := parseInt(value[:digits])
	unit, known := map[string]int64{"b": 1, "k": 1000, "kb": 1 << 10, "m": 1000 * 1000, "mb": 1 << 20, "g": 1000 * 1000 * 1000, "gb": 1 << 30}[strings.ToLower(string(value[digits:]))]
	if !ok || !known || n < 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
}

func fixed(value string) func(*Door) string { return func(*Door) string { return value } }

func parameters() []parameter {
	return []parameter{
		{name: "appendfsync", get: func(d *Door) string {
			if d.logs() && d.db.Port().Traits().Durability == store.Synced {
				return "always"
			}
			return "no"
		}},
		{name: "appendonly", get: func(d *Door) string {
			if d.logs() {
				return "yes"
			}
			return "no"
		}},
		{name: "client-query-buffer-limit", get: fixed(strconv.Itoa(inBytesMax))},
		{name: "daemonize", get: fixed("no")},
		{name: "databases", get: fixed(strconv.Itoa(databases))},
		{name: "latency-monitor-threshold", number: func(d *Door) *atomic.Int64 { return &d.latency.threshold }, high: math.MaxInt64},
		{name: "maxclients", get: func(d *Door) string { return strconv.Itoa(d.options.ConnectionsMax) }},
		{name: "maxmemory", number: func(d *Door) *atomic.Int64 { return &d.memory.max }, high: math.MaxInt64, bytes: true},
		{name: "maxmemory-clients", get: func(d *Door) string { return itoa(d.options.Memory) }},
		{name: "maxmemory-policy", get: fixed("noeviction")},
		{name: "proto-max-bulk-len", get: fixed(strconv.Itoa(bulkBytesMax))},
		{name: "replicaof", get: fixed("")},
		{name: "save", get: fixed("")},
		{name: "slaveof", get: fixed("")},
		{name: "slowlog-log-slower-than", number: func(d *Door) *atomic.Int64 { return &d.slow.usec }, low: -1, high: math.MaxInt64},
		{name: "slowlog-max-len", number: func(d *Door) *atomic.Int64 { return &d.slow.length }, high: slowLengthMax},
		{name: "timeout", number: func(d *Door) *atomic.Int64 { return &d.idleSeconds }, high: math.MaxInt32},
		{name: "tracking-table-max-keys", number: func(d *Door) *atomic.Int64 { return &d.tracker.max }, low: 1, high: trackedMax, changed: func(d *Door) { d.tracker.resize() }},
	}
}

// configPatternsMax bounds what one CONFIG GET asks for.
const configPatternsMax = 64

func configGet(s *session, args [][]byte) error {
	if len(args) > 2+configPatternsMax {
		return wireError("ERR too many patterns: at most 64")
	}
	for _, a := range args[2:] {
		if len(a) > patternBytesMax {
			return errPattern
		}
	}
	var found []parameter
	var names []string // as the client spells them
	for _, p := range parameters() {
		i := slices.IndexFunc(args[2:], func(a []byte) bool { return match(strings.ToLower(string(a)), p.name) })
		if i < 0 {
			continue
		}
		found = append(found, p)
		if asked := string(args[2+i]); len(asked) == len(p.name) && !strings.ContainsAny(asked, "*?[\\") {
			names = append(names, asked)
		} else {
			names = append(names, p.name)
		}
	}
	s.fields(len(found))
	for i := range found {
		s.text(names[i])
		s.text(found[i].value(s.d))
	}
	return nil
}

func configSet(s *session, args [][]byte) error {
	if len(args)%2 != 0 {
		return errSyntax
	}
	all := parameters()
	named := make([]int, 0, len(args)/2) // indexes of the parameters
	for i := 2; i < len(args); i += 2 {
		name := strings.ToLower(string(args[i]))
		at := slices.IndexFunc(all, func(p parameter) bool { return p.name == name })
		if at < 0 {
			return wireError("ERR Unknown option or number of arguments for CONFIG SET - '" + clip(args[i], 128) + "'")
		}
		if slices.Contains(named, at) {
			return wireError("ERR CONFIG SET failed (possibly related to argument '" + clip(args[i], 128) + "') - duplicate parameter")
		}
		named = append(named, at)
	}
	values := make([]int64, len(named)) // stored when all are in order
	for i, at := range named {
		var err error
		if values[i], err = all[at].parse(s.d, args[3+2*i]); err != nil {
			return err
		}
	}
	for i, at := range named {
		if all[at].number == nil {
			continue
		}
		all[at].number(s.d).Store(values[i])
		if f := all[at].changed; f != nil {
			f(s.d)
		}
	}
	s.ok()
	return nil
}

func configResetStat(s *session, _ [][]byte) error {
	s.d.each(func(c *command) { c.stats.reset() })
	s.ok()
	return nil
}

// commandAll replies the whole table.
func commandAll(s *session, _ [][]byte) error {
	names := s.d.names
	s.array(len(names))
	for _, name := range names {
		s.describeCommand(s.d.commands[name])
	}
	return nil
}

func commandCount(s *session, _ [][]byte) error {
	s.integer(int64(len(s.d.names)))
	return nil
}

func commandList(s *session, args [][]byte) error {
	filter := func(*command) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) == 5 && is(args[2], "FILTERBY") && is(args[3], "PATTERN"):
		if len(args[4]) > patternBytesMax {
			return errPattern
		}
		pattern := strings.ToLower(string(args[4]))
		filter = func(c *command) bool { return match(pattern, c.lower) }
	case len(args) == 5 && is(args[2], "FILTERBY") && is(args[3], "ACLCAT"):
		category := "@" + strings.ToLower(string(args[4]))
		filter = func(c *command) bool { return slices.Contains(c.categories(), category) }
	case len(args) == 5 && is(args[2], "FILTERBY") && is(args[3], "MODULE"):
		filter = func(*command) bool { return false }
	default:
		return errSyntax
	}
	var found []string
	for _, name := range s.d.names {
		if c := s.d.commands[name]; filter(c) {
			found = append(found, c.lower)
		}
	}
	s.array(len(found))
	for _, name := range found {
		s.text(name)
	}
	return nil
}

func commandInfo(s *session, args [][]byte) error {
	if len(args) == 2 {
		return commandAll(s, args)
	}
	s.array(len(args) - 2)
	for _, name := range args[2:] {
		if s.full() {
			break
		}
		if c := s.d.commands.path(name); c != nil {
			s.describeCommand(c)
		} else {
			s.null()
		}
	}
	return nil
}

func commandDocs(s *session, args [][]byte) error {
	var found []*command
	for _, a := range args[2:] {
		if c := s.d.commands.path(a); c != nil {
			found = append(found, c)
		}
	}
	if len(args) == 2 {
		for _, name := range s.d.names {
			found = append(found, s.d.commands[name])
		}
	}
	s.fields(len(found))
	for _, c := range found {
		if s.full() {
			break
		}
		s.text(c.lower)
		s.documentCommand(c)
	}
	return nil
}

func commandGetKeys(s *session, args [][]byte) error {
	_, at, err := s.keysOf(args[2:])
	if err != nil {
		return err
	}
	s.array(len(at))
	for _, i := range at {
		s.bulk(args[2+i])
	}
	return nil
}

func commandGetKeysAndFlags(s *session, args [][]byte) error {
	c, at, err := s.keysOf(args[2:])
	if err != nil {
		return err
	}
	s.array(len(at))
	for n, i := range at {
		s.array(2)
		s.bulk(args[2+i])
		s.words(strings.Fields(c.keys.use(n, args[2:])))
	}
	return nil
}

// use returns what becomes of the n-th key of a command with arguments. Those of SET
// decide whether it reads.
func (k keySpec) use(n int, args [][]byte) string {
	words, varies := strings.CutSuffix(k.uses[min(n, len(k.uses)-1)], " variable_flags")
	if varies && !slices.ContainsFunc(args[3:], func(a []byte) bool { return is(a, "GET") }) {
		return "OW update"
	}
	return words
}

// keysOf returns the command that args are, and the indexes of its keys.
func (s *session) keysOf(args [][]byte) (*command, []int, error) {
	c, err := s.d.commands.find(args, nil)
	if c == nil {
		return nil, nil, wireError("ERR Invalid command specified")
	}
	at := c.keys.positions(args)
	switch {
	case c.keys.first == 0 && c.keys.count == 0:
		return nil, nil, wireError("ERR The command has no key arguments")
	case err != nil:
		return nil, nil, wireError("ERR Invalid number of arguments specified for command")
	}
	return c, at, nil
}

// words returns the flags of a command as Redis names them.
func (c *command) words() []string {
	var w []string
	for _, f := range []struct {
		flag flags
		word string
	}{{flagWrite, "write"}, {flagRead, "readonly"}, {flagGrow, "denyoom"}, {flagAdmin, "admin"}, {flagFast, "fast"}, {flagStranger, "no_auth"}} {
		if c.flags&f.flag != 0 {
			w = append(w, f.word)
		}
	}
	if c.flags&flagScript != 0 {
		w = append(w, "noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys")
	}
	return w
}

// categories returns the categories of a command as Redis names them, in its order.
func (c *command) categories() []string {
	if c.subs != nil && c.local == nil { // its subcommands say more
		return []string{"@slow"}
	}
	category := c.category
	if category == "" {
		category = map[string]string{
			"generic": "keyspace", "string": "string", "counter": "string", "limit": "string", "connection": "connection", "transactions": "transaction", "set": "set", "hyperloglog": "hyperloglog", "scripting": "scripting",
			"hash": "hash", "sorted-set": "sortedset",
		}[c.group]
	}
	var w []string
	for _, f := range []struct {
		word string
		has  bool
	}{
		{"keyspace", category == "keyspace"},
		{"read", c.flags&flagRead != 0 && c.flags&flagScript == 0},
		{"write", c.flags&flagWrite != 0},
		{"set", category == "set"},
		{"sortedset", category == "sortedset"},
		{"hash", category == "hash"},
		{"string", category == "string"},
		{"hyperloglog", category == "hyperloglog"},
		{"pubsub", category == "pubsub"},
		{"admin", c.flags&flagAdmin != 0 || category == "admin"},
		{"fast", c.flags&flagFast != 0},
		{"slow", c.flags&flagFast == 0},
		{"dangerous", c.flags&(flagAdmin|flagDangerous) != 0},
		{"connection", category == "connection"},
		{"transaction", category == "transaction"},
		{"scripting", category == "scripting"},
	} {
		if f.has {
			w = append(w, "@"+f.word)
		}
	}
	return w
}

// describeCommand replies a command as COMMAND INFO does.
func (s *session) describeCommand(c *command) {
	s.array(10)
	s.text(c.lower)
	s.integer(int64(c.arity))
	s.words(c.words())
	s.integer(int64(c.keys.first))
	s.integer(int64(c.keys.last))
	s.integer(int64(c.keys.step))
	s.words(c.categories())
	s.set(0) // tips
	s.describeKeys(c.keys)
	s.set(len(c.subs))
	for _, name := range sortedNames(c.subs) {
		s.describeCommand(c.subs[name])
	}
}

// describeKeys replies where the keys of a command are, and what becomes of them:
// one specification for all, or one for each and the last for those behind it.
func (s *session) describeKeys(k keySpec) {
	s.set(len(k.uses))
	for i, uses := range k.uses {
		last := k.last
		switch at := k.first + i; {
		case i < len(k.uses)-1:
			last = 0
		case last > 0: // counted from the first of these keys
			last -= at
		}
		s.fields(3)
		s.text("flags")
		s.words(strings.Fields(uses))
		s.text("begin_search")
		s.fields(2)
		s.text("type")
		s.text("index")
		s.text("spec")
		s.fields(1)
		s.text("index")
		s.integer(int64(k.first + k.count + i))
		s.text("find_keys")
		s.fields(2)
		if k.count > 0 {
			s.text("type")
			s.text("keynum")
			s.text("spec")
			s.fields(3)
			s.text("keynumidx")
			s.integer(0)
			s.text("firstkey")
			s.integer(1)
			s.text("keystep")
			s.integer(1)
			continue
		}
		s.text("type")
		s.text("range")
		s.text("spec")
		s.fields(3)
		s.text("lastkey")
		s.integer(int64(last))
		s.text("keystep")
		s.integer(int64(k.step))
		s.text("limit")
		s.integer(0)
	}
}

// help returns what replies the subcommands of a command, with their meaning.
func help(c *command) func(*session, [][]byte) error {
	return func(s *session, _ [][]byte) error {
		names := slices.DeleteFunc(sortedNames(c.subs), func(name string) bool { return name == "HELP" })
		s.array(1 + 2*len(c.subs))
		s.simple(c.name + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
		for _, name := range append(names, "HELP") { // the last one, as in Redis
			s.simple(c.subs[name].syntax)
			s.simple("    " + c.subs[name].about)
		}
		return nil
	}
}

// words replies a set of simple strings.
func (e *encoder) words(words []string) {
	e.set(len(words))
	for _, w := range words {
		e.simple(w)
	}
}

// documentCommand replies a command as COMMAND DOCS does.
func (s *session) documentCommand(c *command) {
	fields := [][2]string{{"summary", c.about}, {"since", c.since}, {"group", c.group}}
	n := len(fields)
	if c.subs != nil {
		n++
	}
	s.fields(n)
	for _, f := range fields {
		s.text(f[0])
		s.text(f[1])
	}
	if c.subs == nil {
		return
	}
	s.text("subcommands")
	s.fields(len(c.subs))
	for _, name := range sortedNames(c.subs) {
		s.text(c.subs[name].lower)
		s.documentCommand(c.subs[name])
	}
}

func sortedNames(m map[string]*command) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
