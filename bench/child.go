package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Some figures need a process of their own, to weigh it or to kill it. A child
// is this program again: it does one task, prints the result, and waits until
// its standard input ends or it is killed.
const childCommand = "child"

func serveChild(name, args string, in io.Reader, out io.Writer) error {
	tasks := map[string]func(args []byte) (any, error){
		"weigh":  task(weigh),
		"load":   task(loadCold),
		"read":   task(readCold),
		"fill":   task(fill),
		"replay": task(replay),
		"attack": task(attack),
		"flood":  task(flood),
		"bare":   task(serveBare),
	}
	t, ok := tasks[name]
	if !ok {
		return fmt.Errorf("no task %q", name)
	}
	result, err := t([]byte(args))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// task makes a function one that takes and returns JSON.
func task[A, R any](f func(A) (R, error)) func([]byte) (any, error) {
	return func(text []byte) (any, error) {
		var args A
		if err := json.Unmarshal(text, &args); err != nil {
			return nil, err
		}
		return f(args)
	}
}

// ending says how a child ends.
type ending bool

const (
	ended  ending = false
	killed ending = true
)

// runChild has a child do a task, and returns the result.
func runChild[R any](ctx context.Context, name string, args any, end ending) (result R, err error) {
	c, result, err := startChild[R](ctx, name, args)
	if err != nil {
		return result, err
	}
	return result, c.stop(end)
}

// A child is one that has done its task.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startChild has a child do a task, and returns the result. The child must be
// stopped.
func startChild[R any](ctx context.Context, name string, args any) (c *child, result R, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, result, err
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, result, err
	}
	cmd := exec.CommandContext(ctx, self, childCommand, name, string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, result, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, result, err
	}
	if err := cmd.Start(); err != nil {
		return nil, result, err
	}
	c = &child{cmd, in}
	if err = json.NewDecoder(out).Decode(&result); err != nil {
		err = fmt.Errorf("read the result of child %s, which says on stderr why there is none: %w", name, err)
		return nil, result, errors.Join(err, c.stop(killed))
	}
	return c, result, nil
}

// stop ends the child.
func (c *child) stop(how ending) error {
	if how == killed {
		err := c.cmd.Process.Kill()
		_ = c.cmd.Wait() // says that it was killed
		return err
	}
	return errors.Join(c.in.Close(), c.cmd.Wait())
}
