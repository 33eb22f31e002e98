package resp

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
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
}

// value returns what CONFIG GET shows.
func (p *parameter) value(d *Door) string {
	if p.number != nil {
		return itoa(p.number(d).Load())
	}
	return p.get(d)
}

// parse returns the number that CONFIG SET would make of the parameter.
func (p *parameter) parse(value []byte) (int64, error) {
	failed := "ERR CONFIG SET failed (possibly related to argument '" + p.name + "') - "
	n, ok := parseInt(value)
	switch {
	case p.number == nil:
		return 0, wireError(failed + "can't set immutable config")
	case !ok:
		return 0, wireError(failed + "argument couldn't be parsed into an integer")
	case n < p.low || n > p.high:
		return 0, wireError(failed + "argument must be between " + itoa(p.low) + " and " + itoa(p.high) + " inclusive")
	}
	return n, nil
}

func fixed(value string) func(*Door) string { return func(*Door) string { return value } }

func parameters() []parameter {
	return []parameter{
		{name: "appendfsync", get: fixed("always")},
		{name: "appendonly", get: func(d *Door) string {
			if d.db.Traits().Durability == store.Memory {
				return "no"
			}
			return "yes"
		}},
		{name: "client-query-buffer-limit", get: fixed(strconv.Itoa(inBytesMax))},
		{name: "databases", get: fixed(strconv.Itoa(databases))},
		{name: "maxclients", get: func(d *Door) string { return strconv.Itoa(d.options.ConnectionsMax) }},
		{name: "maxmemory", get: fixed("0")},
		{name: "maxmemory-clients", get: func(d *Door) string { return itoa(d.options.Memory) }},
		{name: "maxmemory-policy", get: fixed("noeviction")},
		{name: "proto-max-bulk-len", get: fixed(strconv.Itoa(bulkBytesMax))},
		{name: "save", get: fixed("")},
		{name: "timeout", number: func(d *Door) *atomic.Int64 { return &d.idleSeconds }, high: math.MaxInt32},
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
	values := map[int]int64{} // by the index of the parameter; stored when all are in order
	for i := 2; i < len(args); i += 2 {
		name := strings.ToLower(string(args[i]))
		at := slices.IndexFunc(all, func(p parameter) bool { return p.name == name })
		if at < 0 {
			return wireError("ERR Unknown option or number of arguments for CONFIG SET - '" + clip(args[i], 128) + "'")
		}
		if _, twice := values[at]; twice {
			return wireError("ERR CONFIG SET failed (possibly related to argument '" + clip(args[i], 128) + "') - duplicate parameter")
		}
		n, err := all[at].parse(args[i+1])
		if err != nil {
			return err
		}
		values[at] = n
	}
	for at, n := range values {
		all[at].number(s.d).Store(n)
	}
	s.ok()
	return nil
}

func configResetStat(s *session, _ [][]byte) error {
	s.ok()
	return nil
}

// info replies what monitoring tools read.
func info(ctx context.Context, s *session, args [][]byte) error {
	wanted := func(section string) bool {
		if len(args) == 1 {
			return true
		}
		return slices.ContainsFunc(args[1:], func(a []byte) bool {
			return is(a, strings.ToUpper(section)) || is(a, "ALL") || is(a, "DEFAULT") || is(a, "EVERYTHING")
		})
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	var b strings.Builder
	for _, section := range s.d.info(ctx, s) {
		if !wanted(section.name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + section.name + "\r\n")
		for _, f := range section.fields {
			b.WriteString(f + "\r\n")
		}
	}
	s.verbatim(b.String())
	return nil
}

type section struct {
	name   string
	fields []string
}

func (d *Door) info(ctx context.Context, s *session) []section {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	uptime := int64(time.Since(d.start) / time.Second)
	m := &d.meters
	aof := 1
	if d.db.Traits().Durability == store.Memory {
		aof = 0
	}
	sections := []section{
		{"Server", []string{
			"redis_version:" + redisVersion,
			"quipu_version:" + d.options.Version,
			"redis_mode:standalone",
			"os:" + runtime.GOOS + " " + runtime.GOARCH,
			"arch_bits:" + strconv.Itoa(strconv.IntSize),
			fmt.Sprintf("process_id:%d", os.Getpid()),
			"run_id:" + d.run,
			fmt.Sprintf("uptime_in_seconds:%d", uptime),
			fmt.Sprintf("uptime_in_days:%d", uptime/86400),
		}},
		{"Clients", []string{
			fmt.Sprintf("connected_clients:%d", d.connected()),
			fmt.Sprintf("maxclients:%d", d.options.ConnectionsMax),
			"blocked_clients:0",
		}},
		{"Memory", []string{
			fmt.Sprintf("used_memory:%d", memory.HeapInuse),
			fmt.Sprintf("used_memory_rss:%d", memory.Sys-memory.HeapReleased),
			fmt.Sprintf("mem_clients_normal:%d", d.buffered.Load()),
			"maxmemory:0",
			"maxmemory_policy:noeviction",
		}},
		{"Persistence", []string{"loading:0", fmt.Sprintf("aof_enabled:%d", aof), "rdb_changes_since_last_save:0"}},
		{"Stats", []string{
			fmt.Sprintf("total_connections_received:%d", m.connections.Load()),
			fmt.Sprintf("total_commands_processed:%d", m.commands.Load()),
			fmt.Sprintf("client_output_buffer_limit_disconnections:%d", m.evicted.Load()),
		}},
		{"Replication", []string{"role:master", "connected_slaves:0"}},
		{"Cluster", []string{"cluster_enabled:0"}},
	}
	keyspace := section{name: "Keyspace"}
	if n, err := s.db.Size(ctx); err == nil && n > 0 {
		keyspace.fields = []string{fmt.Sprintf("db0:keys=%d,expires=0,avg_ttl=0", n)}
	}
	return append(sections, keyspace)
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
		if c := s.d.commands.named(name); c != nil {
			s.describeCommand(c)
		} else {
			s.null()
		}
	}
	return nil
}

func commandDocs(s *session, args [][]byte) error {
	names := s.d.names
	if len(args) > 2 {
		names = nil
		for _, a := range args[2:] {
			if c := s.d.commands.named(a); c != nil {
				names = append(names, c.name)
			}
		}
	}
	s.fields(len(names))
	for _, name := range names {
		c := s.d.commands[name]
		s.text(c.lower)
		s.documentCommand(c)
	}
	return nil
}

func commandGetKeys(s *session, args [][]byte) error {
	c := s.d.commands.named(args[2])
	if c == nil {
		return wireError("ERR Invalid command specified")
	}
	rest := args[2:]
	if len(rest) != c.arity && (c.arity >= 0 || len(rest) < -c.arity) {
		return wireError("ERR Invalid number of arguments specified for command")
	}
	at := c.keys.positions(len(rest))
	if at == nil {
		return wireError("ERR The command has no key arguments")
	}
	s.array(len(at))
	for _, i := range at {
		s.bulk(rest[i])
	}
	return nil
}

// words returns the flags of a command as Redis names them.
func (c *command) words() []string {
	var w []string
	for _, f := range []struct {
		flag flags
		word string
	}{{flagWrite, "write"}, {flagRead, "readonly"}, {flagAdmin, "admin"}, {flagStranger, "no_auth"}, {flagFast, "fast"}} {
		if c.flags&f.flag != 0 {
			w = append(w, f.word)
		}
	}
	return w
}

// categories returns the categories of a command as Redis names them.
func (c *command) categories() []string {
	var w []string
	for _, f := range []struct {
		flag flags
		word string
	}{{flagWrite, "@write"}, {flagRead, "@read"}, {flagAdmin, "@admin"}} {
		if c.flags&f.flag != 0 {
			w = append(w, f.word)
		}
	}
	switch c.group {
	case "generic":
		w = append(w, "@keyspace")
	case "transactions":
		w = append(w, "@transaction")
	case "counter":
		w = append(w, "@string")
	default:
		w = append(w, "@"+c.group)
	}
	if c.flags&flagFast != 0 {
		return append(w, "@fast")
	}
	return append(w, "@slow")
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
	s.array(0) // tips
	s.array(0) // key specifications: first, last and step say all
	s.array(len(c.subs))
	for _, name := range sortedNames(c.subs) {
		s.describeCommand(c.subs[name])
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
