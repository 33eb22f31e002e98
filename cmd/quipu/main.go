// Command quipu serves counters, and talks to a server that does.
//
// It exists to be the whole product in one binary: the server, the client
// commands, and the tools an operator needs. It holds no logic of its own:
// commands wire flags to the packages that do the work, and say what came of
// it by output meant for both people and scripts, and by the exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/store"
)

// The exit codes. They are part of the command's contract.
const (
	exitFailed      = 1 // refused, not found to be right, or broken
	exitUsage       = 2
	exitUnavailable = 3 // the server can't be reached or can't serve: nothing changed
	exitUnknown     = 4 // a write may or may not have counted
)

// version is stamped by the linker.
var version string

func main() { os.Exit(run(os.Args[1:])) }

// run runs one command, and returns its exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills

	out := newOutput(os.Stdout, os.Stderr)
	conf := &config{}
	parser, err := newParser(out, conf, kong.DefaultEnvars("QUIPU"))
	if err != nil {
		out.fail(err)
		return exitFailed
	}
	command, err := parser.Parse(escapeNumbers(args))
	if err != nil {
		out.fail(conf.blame(otherCommand(withoutArgument(err))))
		out.hint(usageHint(err))
		return exitUsage
	}
	for _, text := range mistyped(os.Environ(), parser.Model.Leaves(true)) {
		out.hint(text)
	}
	command.BindTo(ctx, (*context.Context)(nil))
	if err := command.Run(); err != nil {
		if !errors.Is(err, errSaid) {
			out.fail(err)
		}
		return exitCode(err)
	}
	return 0
}

// mistyped says which variables of the environment are nearly those of flags.
// Those that are near to none are someone else's: Kubernetes sets some that begin
// like ours for a service of our name.
func mistyped(environment []string, commands []*kong.Node) (texts []string) {
	const prefix = "QUIPU_"
	var known []string
	for _, command := range commands {
		for _, f := range command.Flags {
			for _, name := range f.Envs {
				known = append(known, strings.TrimPrefix(name, prefix))
			}
		}
	}
	for _, v := range environment {
		name, _, _ := strings.Cut(v, "=")
		word, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(known, word) {
			continue
		}
		if near := nearest(word, known); near != "" {
			texts = append(texts, fmt.Sprintf("%s is not a setting and was ignored: did you mean %s%s?", name, prefix, near))
		}
	}
	return texts
}

// withoutArgument does not repeat an argument of serve, which has none: it may be
// an API key behind a space too many.
func withoutArgument(err error) error {
	p, ok := errors.AsType[*kong.ParseError](err)
	if ok && p.Context != nil && strings.HasPrefix(err.Error(), "unexpected argument ") {
		if n := p.Context.Selected(); n != nil && n.Name == "serve" {
			return errors.New("serve takes only flags, but an argument was given")
		}
	}
	return err
}

// otherCommands are the words that others have for commands.
var otherCommands = map[string]string{
	"incr": "quipu add KEY", "incrby": "quipu add KEY N", "decr": "quipu add KEY -1", "decrby": "quipu add KEY -N",
	"del": "quipu delete KEY", "status": "quipu health", "ping": "quipu health",
}

// otherCommand names the command that is meant by a word of others.
func otherCommand(err error) error {
	rest, ok := strings.CutPrefix(err.Error(), "unexpected argument ")
	p, parsed := errors.AsType[*kong.ParseError](err)
	if !ok || !parsed || p.Context == nil || p.Context.Selected() != nil {
		return err
	}
	word, _, _ := strings.Cut(rest, ",")
	if meant := otherCommands[word]; meant != "" {
		return fmt.Errorf("no command %s: did you mean %q?", word, meant)
	}
	return err
}

// usageHint says how the command that was misused is used, and points to its help.
func usageHint(err error) string {
	path, use := "quipu", ""
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context != nil {
		if n := p.Context.Selected(); n != nil {
			path, use = n.FullPath(), "usage: quipu "+n.Summary()+"; "
		}
	}
	return fmt.Sprintf("%srun %q for help", use, path+" --help")
}

// An exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

// Error returns the text of the cause.
func (e *exitError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// errSaid is the error of a command whose output has said what is wrong.
var errSaid = errors.New("see the output")

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch store.KindOf(err) {
	case store.KindUnavailable:
		return exitUnavailable
	case store.KindUnknown:
		return exitUnknown
	default:
		return exitFailed
	}
}
