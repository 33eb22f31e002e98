package resp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/script"
	"github.com/quipudb/quipu/store"
)

// A script is executed as a command on text is: on a snapshot of its keys, in a step of its own.
// Package script runs it; here are the commands, what they reply, and how many run at a time.

const (
	// scriptTimeMax is how long a script may run. It is far more than its other limits let it
	// take, unless the machine has much else to do.
	scriptTimeMax = 2 * time.Second
	// scriptsMax is how many may run at a time: each needs a processor, and memory.
	scriptsMax = 2
)

const (
	errNoScript  = wireError("NOSCRIPT No matching script. Please use EVAL.")
	errNotBusy   = wireError("NOTBUSY No scripts in execution right now.")
	errKeysMore  = wireError("ERR Number of keys can't be greater than number of args")
	errKeysMinus = wireError("ERR Number of keys can't be negative")
)

// counted are the keys of commands whose second argument after the name says how many there are.
var counted = keySpec{count: 2, uses: []string{"RW access update"}}

func scriptCommands() []*command {
	const scripts = flagText | flagScript
	commands := []*command{
		{name: "EVAL", arity: -3, flags: scripts, keys: counted, slow: evalCommand, since: "2.6.0", about: "Executes a script in Lua."},
		{name: "EVALSHA", arity: -3, flags: scripts, keys: counted, slow: evalCommand, since: "2.6.0", about: "Executes a script that the server has, by its SHA1."},
		{name: "EVAL_RO", arity: -3, flags: scripts | flagRead, keys: counted.used("RO access"), slow: evalCommand, since: "7.0.0", about: "Executes a script in Lua that writes nothing."},
		{name: "EVALSHA_RO", arity: -3, flags: scripts | flagRead, keys: counted.used("RO access"), slow: evalCommand, since: "7.0.0", about: "Executes a script that the server has, and that writes nothing."},
		{name: "SCRIPT", arity: -2, since: "2.6.0", about: "Commands about scripts.", subs: map[string]*command{
			"LOAD":   {name: "SCRIPT|LOAD", syntax: "LOAD <script>", arity: 3, local: scriptLoad, since: "2.6.0", about: "Compiles a script, keeps it, and returns its SHA1."},
			"EXISTS": {name: "SCRIPT|EXISTS", syntax: "EXISTS <sha1> [<sha1> ...]", arity: -3, local: scriptExists, since: "2.6.0", about: "Returns which scripts the server has."},
			"FLUSH":  {name: "SCRIPT|FLUSH", syntax: "FLUSH [ASYNC|SYNC]", arity: -2, local: scriptFlush, since: "2.6.0", about: "Forgets all scripts."},
			"KILL":   {name: "SCRIPT|KILL", syntax: "KILL", arity: 2, local: func(*session, [][]byte) error { return errNotBusy }, since: "2.6.0", about: "Replies that none is to be killed: scripts end by themselves."},
		}},
	}
	return grouped("scripting", commands)
}

// An evaluation is a script with what it is to be run on.
type evaluation struct {
	script     *script.Script
	keys, args [][]byte
	readOnly   bool
	seed       int32
}

// evaluation returns what EVAL and its kin are to do.
func (s *session) evaluation(args [][]byte) (*evaluation, error) {
	n, err := integer(args[2])
	switch {
	case err != nil:
		return nil, err
	case n > int64(len(args)-3):
		return nil, errKeysMore
	case n < 0:
		return nil, errKeysMinus
	}
	name := strings.ToUpper(string(args[0]))
	e := &evaluation{keys: args[3 : 3+n], args: args[3+n:], readOnly: strings.HasSuffix(name, "_RO"), seed: rand.Int32()} //nolint:gosec // no secret
	if strings.HasPrefix(name, "EVALSHA") {
		if e.script = s.d.scripts.Get(string(bytes.ToLower(args[1]))); e.script == nil {
			return nil, errNoScript
		}
	} else if e.script, err = s.d.scripts.Load(args[1]); err != nil {
		return nil, wireError(err.Error())
	}
	return e, nil
}

// waitToRun waits for a place among the scripts that run, for half of the time that a command has: the other half is for
// the script and what it writes. One that has not run has changed nothing, and nothing of it is unknown.
func (s *session) waitToRun(ctx context.Context) error {
	wait := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(ctx, end.Add(-s.d.options.Timeout/2))
		defer cancel()
	}
	if !s.d.scripting.take(wait, s.user) {
		return store.Errorf(store.KindUnavailable, "other scripts take all the time there is: %w", wait.Err())
	}
	return nil
}

// runScript runs a script on a snapshot. An error is one of the store, or of the caller.
func (s *session) runScript(ctx context.Context, e *evaluation, space *keyspace.Space) (keyspace.Reply, error) {
	if err := s.waitToRun(ctx); err != nil {
		return keyspace.Reply{}, err
	}
	defer s.d.scripting.giveBack()
	ctx, cancel := context.WithTimeout(ctx, scriptTimeMax)
	defer cancel()
	r, err := e.script.Run(ctx, script.Call{
		Space: space, Keys: e.keys, Args: e.args, ReadOnly: e.readOnly, Limits: script.DefaultLimits(), Seed: e.seed,
		CheckKey: store.CheckKey,
		Permit:   s.permitInScript,
		Refuse:   s.d.refuse,
		Log:      func(level int, text string) { s.logScript(e, level, text) },
	})
	if err != nil && space.Err() == nil {
		s.d.meters.brokenOff.Add(1)
		return r, wireError(err.Error())
	}
	return r, err
}

// refuse says why a script can't call a command.
func (d *Door) refuse(args [][]byte) string {
	c := d.commands.named(args[0])
	switch {
	case c == nil:
		return "Unknown Redis command called from script"
	case c.flags&(flagRead|flagWrite) == 0:
		return "This Redis command is not allowed from script"
	}
	return "This command can't be called from a script here: " + c.name
}

// logScript writes what a script has to say to the log, for those who look for it.
func (s *session) logScript(e *evaluation, level int, text string) {
	log := s.d.options.Logger.Debug
	if level == script.LogWarning {
		log = s.d.options.Logger.Info
	}
	log("script", "sha", e.script.SHA, "client", s.addr, "says", text)
}

// evalCommand is EVAL and its kin.
func evalCommand(ctx context.Context, s *session, args [][]byte) error {
	e, err := s.evaluation(args)
	if err != nil {
		return err
	}
	keys, err := namesOf(e.keys)
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	var r keyspace.Reply
	var published []keyspace.Message
	if err := s.db.Port().Text(ctx, keys, nil, func(space *keyspace.Space) (err error) {
		s.publishing(space)
		r, err = s.runScript(ctx, e, space)
		published = space.Published()
		return err
	}); err != nil {
		return err
	}
	s.tellAll(published)
	s.answerText(&r)
	return nil
}

// evalIn executes a script of a transaction, on its snapshot. If the script is broken off, it has
// changed nothing there.
func (s *session) evalIn(ctx context.Context, args [][]byte, space *keyspace.Space) (keyspace.Reply, error) {
	e, err := s.evaluation(args)
	if err == nil {
		back := space.Save()
		var r keyspace.Reply
		if r, err = s.runScript(ctx, e, space); err == nil || space.Err() != nil {
			return r, err
		}
		back()
	}
	if _, of := err.(wireError); !of { //nolint:errorlint // handlers return it bare
		return keyspace.Reply{}, err
	}
	return keyspace.Reply{Kind: keyspace.Error, Text: errorText(err)}, nil
}

func scriptLoad(s *session, args [][]byte) error {
	c, err := s.d.scripts.Load(args[2])
	if err != nil {
		return wireError(err.Error())
	}
	s.text(c.SHA)
	return nil
}

func scriptExists(s *session, args [][]byte) error {
	s.array(len(args) - 2)
	for _, sha := range args[2:] {
		s.flag(s.d.scripts.Get(string(bytes.ToLower(sha))) != nil)
	}
	return nil
}

func scriptFlush(s *session, args [][]byte) error {
	if len(args) > 3 || len(args) == 3 && !is(args[2], "SYNC") && !is(args[2], "ASYNC") {
		return wireError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	s.d.scripts.Flush()
	s.ok()
	return nil
}

// namesOf returns keys as names, each once.
func namesOf(keys [][]byte) (names []string, err error) {
	for _, key := range keys {
		if err := store.CheckKey(string(key)); err != nil {
			return nil, err
		}
		names = append(names, string(key))
	}
	return distinct(names)
}
