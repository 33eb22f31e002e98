// Package script runs Lua scripts as Redis does, on a snapshot of keys.
// redis.call executes commands of package keyspace, so a script is one step:
// its writes are in the Space that it was given, and the caller decides whether
// they are applied.
//
// Scripts are not trusted. They reach only their keys and arguments: no file,
// no socket, no clock, no other script. Each instruction, each allocated byte
// and each step of a pattern is counted. A script that exceeds its Limits is
// stopped, and so is one whose context ends. Lua has no means to bound memory,
// so the syntax tree is rewritten before it is compiled: see rewrite.go.
//
// A script is deterministic: the same keys, arguments and time make the same
// reply and writes.
package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/quipudb/quipu/internal/keyspace"
)

// SourceMax is how many bytes a script may have.
const SourceMax = 128 << 10

// Limits are what a script may take. They are counted, not measured, so a script that is
// broken off by one of them always is.
type Limits struct {
	Steps int64 // instructions, and steps of patterns
	Bytes int64 // allocated in all, whether they are still in use or not
	Reply int   // bytes of the reply, about
	Depth int   // of arrays in arrays in the reply
	Keys  int   // that are read or written
}

// DefaultLimits are what the server allows.
func DefaultLimits() Limits {
	return Limits{Steps: 10_000_000, Bytes: 64 << 20, Reply: 16 << 20, Depth: 128, Keys: 1000}
}

// chunk is what errors call a script.
const chunk = "user_script"

// A Script is compiled. It is safe for concurrent use.
type Script struct {
	SHA    string // of its source, in hex
	Source string
	Writes bool // it may write: its first line does not say no-writes
	proto  *lua.FunctionProto
}

// SHA returns the name of a script.
func SHA(source []byte) string {
	sum := sha1.Sum(source) //nolint:gosec // Redis names scripts by it
	return hex.EncodeToString(sum[:])
}

// Compile compiles a script. The errors are in Redis's words.
func Compile(source []byte) (*Script, error) {
	s := &Script{SHA: SHA(source), Source: string(source), Writes: true}
	if len(source) > SourceMax {
		return nil, errors.New("ERR the script is too long: at most " + strconv.Itoa(SourceMax) + " bytes")
	}
	body, err := s.shebang()
	if err != nil {
		return nil, err
	}
	proto, why := compile(body, chunk)
	if why != "" {
		return nil, errors.New("ERR Error compiling script (new function): " + why)
	}
	s.proto = proto
	return s, nil
}

// shebang reads the first line of a script if it is for the server, and returns the rest, with its
// line end.
func (s *Script) shebang() (body string, err error) {
	if !strings.HasPrefix(s.Source, "#!") {
		return s.Source, nil
	}
	line, _, ends := strings.Cut(s.Source, "\n")
	if !ends {
		return "", errors.New("ERR Invalid script shebang")
	}
	parts := strings.Fields(line)
	if parts[0] != "#!lua" {
		return "", errors.New("ERR Unexpected engine in script shebang: " + parts[0])
	}
	for _, part := range parts[1:] {
		flags, is := strings.CutPrefix(part, "flags=")
		if !is {
			return "", errors.New("ERR Unknown lua shebang option: " + part)
		}
		for flag := range strings.SplitSeq(flags, ",") {
			switch flag {
			case "no-writes":
				s.Writes = false
			case "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys":
			default:
				return "", errors.New("ERR Unexpected flag in script shebang: " + flag)
			}
		}
	}
	return s.Source[len(line):], nil
}

// compile returns what makes the function that some text is, or why it is none.
func compile(text, name string) (proto *lua.FunctionProto, why string) {
	defer func() {
		if p := recover(); p != nil { // The compiler says so of what it can't take.
			proto, why = nil, name+": the script can't be compiled"
		}
	}()
	stmts, err := parse.Parse(strings.NewReader(text), name)
	var wrong *parse.Error
	switch {
	case errors.As(err, &wrong):
		why := strings.TrimSpace(wrong.Message)
		if wrong.Pos.Line == parse.EOF {
			return nil, name + ":" + strconv.Itoa(1+strings.Count(text, "\n")) + ": " + why + " near '<eof>'"
		}
		return nil, name + ":" + strconv.Itoa(wrong.Pos.Line) + ": " + why + " near '" + wrong.Token + "'"
	case err != nil:
		return nil, name + ": " + err.Error()
	}
	stmts, err = rewrite(stmts)
	if err == nil {
		proto, err = lua.Compile(stmts, name)
	}
	if err != nil {
		return nil, name + ": " + err.Error()
	}
	return proto, ""
}

// A Call is what a script is run on.
type Call struct {
	Space    *keyspace.Space
	Keys     [][]byte
	Args     [][]byte
	ReadOnly bool
	Limits   Limits
	Seed     int32 // of math.random

	// CheckKey returns why a key can't be one; nil takes all.
	CheckKey func(key string) error
	// Permit returns the error of a command that the caller may not execute, "" if it may; nil
	// permits all. It is asked before anything that a key holds is looked at.
	Permit func(args [][]byte) string
	// Refuse returns why a command that a Space does not have can't be called.
	Refuse func(args [][]byte) string
	// Log takes what redis.log is given; nil drops it.
	Log func(level int, text string)
}

// Run executes a script and returns its reply, which may be an error that it has raised: what it has
// written before stays written, as in Redis. If Run returns an error, the script was broken
// off, and nothing that it has written may take place.
func (s *Script) Run(ctx context.Context, c Call) (keyspace.Reply, error) {
	r := &run{Call: c, script: s, meter: newMeter(ctx, c.Limits)}
	return r.run()
}
