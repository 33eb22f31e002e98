package resp

import (
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// A command is a row of the table. It has one way to be executed, and some have
// slow besides plan, for what a batch of the store can't do.
type command struct {
	name  string // in capitals; of a subcommand "CLIENT|ID"
	lower string
	arity int // with the name; negative is at least that many
	flags flags
	keys  keySpec
	group string
	since string
	about string
	subs  map[string]*command // by the second word in capitals
	child bool                // it is one of them
	need  access.Need         // what it is granted to, by the table of package access

	stats    stats
	syntax   string // of a subcommand, for HELP
	category string // that access control knows it by, if the group does not say it

	// plan adds what the command does to a cycle, and returns what makes its
	// reply of the results.
	plan func(c *cycle, s *session, args [][]byte) (encode, error)
	// local needs nothing but the session.
	local func(s *session, args [][]byte) error
	// slow may wait for the store.
	slow func(ctx context.Context, s *session, args [][]byte) error
}

// joins reports whether a command has several deltas that are one step.
func (c *command) joins(args [][]byte) bool {
	return c.flags&flagAtomic != 0 && (c.keys.step == 0 || len(args) > 1+c.keys.step)
}

// long reports whether a command that needs nothing of the store may have a long
// reply, or take long to make it: all but those that say that they are short.
func (c *command) long() bool {
	return c.local != nil && c.flags&(flagInline|flagControl|flagLone|flagText) == 0
}

// A keySpec says which arguments are keys: from first to last, which is counted
// from the end if negative, every step. The zero value has none.
type keySpec struct {
	first, last, step int
	count             int      // of the argument that says how many follow it, if that is where they are
	uses              []string // what becomes of the keys, in Redis's words: of all, or of each
}

// used returns the keys with what becomes of them.
func (k keySpec) used(uses ...string) keySpec {
	k.uses = uses
	return k
}

type flags uint32

const (
	flagWrite flags = 1 << iota
	flagRead
	flagFast
	flagAdmin
	flagInline   // local and short, and any place in a pipeline will do
	flagControl  // executed even between MULTI and EXEC
	flagStranger // for those who have not shown a key
	flagAtomic   // its deltas are one step
	flagEntries  // its plan makes its own entries
	flagLone     // never part of a transaction
	flagRepeat   // see repeat
	flagSweep    // it goes through many keys
	flagGrow     // it may add a counter, for which there may be no room
	flagDangerous
	flagReact  // a reaction: see reactsSlow
	flagText   // it may meet text: see textual
	flagScript // it executes a script
	flagToken  // with an argument ID or WITHSESSION it is not planned but gathered apart
)

// Redis's words.
const (
	errSyntax     = wireError("ERR syntax error")
	errNotInteger = wireError("ERR value is not an integer or out of range")
	errNoAuth     = wireError("NOAUTH Authentication required.")
	errStranger   = wireError("NOAUTH Authentication required: too many commands without it.")
	errPattern    = wireError("ERR pattern is too long: at most 1024 bytes")
	errMaxMemory  = wireError("OOM command not allowed when used memory > 'maxmemory'.")
	errTooLarge   = wireError("ERR too many keys in one command or transaction: at most 10000 counters and 2 MiB of keys")
)

// A wireError is an error in the words of the wire.
type wireError string

func (e wireError) Error() string { return string(e) }

// errorText returns what a client reads of an error.
func errorText(err error) string {
	if e, ok := err.(wireError); ok { //nolint:errorlint // handlers return it bare
		return string(e)
	}
	kind := server.KindOf(err)
	word := server.RESPWord(kind)
	switch {
	case kind == store.KindOverflow:
		return word + " increment or decrement would overflow"
	case kind == store.KindNotCount, kind == store.KindSplit: // what meets text, and is for counts alone
		return "WRONGTYPE Operation against a key holding the wrong kind of value"
	case kind == store.KindUnsupported:
		return word + " Keys in request don't hash to the same slot"
	case server.Detail(err) == server.SeeLog:
		return word + " internal error: the server's log says more"
	}
	return word + " " + server.Detail(err)
}

// report counts commands that failed, and not by their callers' fault, and logs the
// error, of which clients are not told all.
func (d *Door) report(err error, commands int) {
	if _, ok := err.(wireError); !ok && server.StatusOf(server.KindOf(err)).Private { //nolint:errorlint // handlers return it bare
		d.meters.failed.Add(uint64(commands))
		d.options.Logger.Warn("RESP command failed", "error", err)
	}
}

// A table is the commands by name, in capitals and in small letters.
type table map[string]*command

// find returns the command that args name, and an error if it does not take so
// many arguments. The last one that the caller found is likely to be it again.
func (t table) find(args [][]byte, last *command) (*command, error) {
	c := last
	if last == nil || last.child || last.subs != nil || string(args[0]) != last.name && string(args[0]) != last.lower {
		if c = t.named(args[0]); c == nil {
			return nil, unknownCommand(args)
		}
	}
	if c.subs != nil && len(args) > 1 {
		parent := c
		if c = lookup(parent.subs, args[1]); c == nil {
			return nil, wireError("ERR unknown subcommand '" + clip(args[1], 128) + "'. Try " + parent.name + " HELP.")
		}
	}
	if len(args) != c.arity && (c.arity >= 0 || len(args) < -c.arity) {
		return c, wrongArity(c)
	}
	return c, nil
}

func (t table) named(name []byte) *command { return lookup(t, name) }

// path finds a command, or a subcommand such as "client|id".
func (t table) path(name []byte) *command {
	parent, child, nested := bytes.Cut(name, []byte("|"))
	c := t.named(parent)
	if c == nil || !nested {
		return c
	}
	return lookup(c.subs, child)
}

// lookup finds a name in any mixture of capitals and small letters.
func lookup(m map[string]*command, name []byte) *command {
	var room [32]byte
	if len(name) > len(room) {
		return nil
	}
	for i, c := range name {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		room[i] = c
	}
	return m[string(room[:len(name)])]
}

// family returns a command, or if it only has subcommands, those.
func (c *command) family() []*command {
	var all []*command
	if c.subs == nil || c.local != nil {
		all = append(all, c)
	}
	for _, name := range sortedNames(c.subs) {
		all = append(all, c.subs[name])
	}
	return all
}

func wrongArity(c *command) error {
	return wireError("ERR wrong number of arguments for '" + c.lower + "' command")
}

// absent says why commands that Redis has, and a client may count on, do not exist.
var absent = map[string]string{
	"DEBUG":  "DEBUG command not allowed: there is nothing to debug from here",
	"MOVE":   "MOVE is not supported: a counter stays in its namespace",
	"SWAPDB": "SWAPDB is not supported: a database is a namespace, and stays one",
}

func unknownCommand(args [][]byte) error {
	if why := absent[strings.ToUpper(clip(args[0], 32))]; why != "" {
		return wireError("ERR " + why)
	}
	var b strings.Builder
	b.WriteString("ERR unknown command '" + clip(args[0], 128) + "', with args beginning with: ")
	size := 0
	for _, a := range args[1:] {
		if size >= 128 {
			break
		}
		word := "'" + clip(a, 128-size) + "' "
		size += len(word)
		b.WriteString(word)
	}
	return wireError(b.String())
}

// clip returns the first bytes of b.
func clip(b []byte, n int) string { return string(b[:min(len(b), n)]) }

// is reports whether an argument is a word, given in capitals.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, c := range arg {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// integer returns the number an argument is.
func integer(arg []byte) (int64, error) {
	n, ok := parseInt(arg)
	if !ok {
		return 0, errNotInteger
	}
	return n, nil
}

// positions returns the indexes of the keys among arguments.
func (k keySpec) positions(args [][]byte) []int {
	if k.count > 0 && k.count < len(args) {
		n, _ := parseInt(args[k.count])
		k.first, k.last, k.step = k.count+1, k.count+int(min(max(n, 0), int64(len(args)))), 1
	}
	if k.first == 0 {
		return nil
	}
	last := k.last
	if last < 0 {
		last += len(args)
	}
	var at []int
	for i := k.first; i <= last && i < len(args); i += k.step {
		at = append(at, i)
	}
	return at
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
