package resp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// NewWithBug returns a door with a command BUG that panics when it has planned to
// add to a key, and one BUG.REPLY that adds to it and panics when it replies.
func NewWithBug(db *quipu.DB, o Options) *Door {
	d := New(db, o)
	d.commands["BUG"] = &command{name: "BUG", lower: "bug", arity: 2, flags: adds, keys: oneKey, plan: func(c *cycle, _ *session, args [][]byte) (encode, error) {
		_ = c.add(args[1], 1, false)
		panic("a bug")
	}}
	d.commands["BUG.REPLY"] = &command{name: "BUG.REPLY", lower: "bug.reply", arity: 2, flags: writes, keys: oneKey, plan: func(c *cycle, _ *session, args [][]byte) (encode, error) {
		delta, err := c.delta(store.OpAdd, args[1])
		if err == nil {
			delta.N = 1
		}
		return func(e *encoder, _ []store.Result) {
			e.ok()
			panic("a bug")
		}, err
	}}
	return d
}

// NewWithWait returns a door with a command WAIT that tells that it has begun, and
// replies OK when it is told to.
func NewWithWait(db *quipu.DB, o Options, begun chan<- struct{}, end <-chan struct{}) *Door {
	d := New(db, o)
	d.commands["WAIT"] = &command{name: "WAIT", lower: "wait", arity: 1, local: func(s *session, _ [][]byte) error {
		begun <- struct{}{}
		<-end
		s.ok()
		return nil
	}}
	return d
}

// SlowEntries returns how many slow commands the door holds.
func (d *Door) SlowEntries() int {
	d.slow.mu.Lock()
	defer d.slow.mu.Unlock()
	return len(d.slow.entries)
}

// ReadReply reads one reply of any type, as it is on the wire.
func ReadReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return line, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return line, fmt.Errorf("line %q", line)
	}
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return line, nil
	}
	n, err := strconv.Atoi(line[1 : len(line)-2])
	if err != nil {
		return line, err
	}
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return line + string(b), err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line, fmt.Errorf("line %q", line)
	}
	all := line
	for range max(n, 0) {
		one, err := ReadReply(r)
		all += one
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Buffered returns how many bytes the door holds for its sessions.
func (d *Door) Buffered() int64 { return d.buffered.Load() }

// News returns how many keys the sessions have to tell that have most.
func (d *Door) News() (most int) {
	d.tracker.mu.Lock()
	defer d.tracker.mu.Unlock()
	for _, s := range d.tracker.on {
		most = max(most, len(s.news.keys)+len(s.news.held)+len(s.news.seen))
	}
	return most
}

// A CommandRow is a command, as many arguments as it takes at least, and which of them are keys.
type CommandRow struct {
	Name string
	Args int
	Keys []int
}

// Commands returns all commands and subcommands, sorted by name.
func Commands() (all []CommandRow) {
	t := newTable()
	add := func(c *command) {
		n := c.arity
		if n < 0 {
			n = -n
		}
		all = append(all, CommandRow{c.name, n, c.keys.positions(make([][]byte, n))})
	}
	for _, name := range sortedNames(t) {
		add(t[name])
		for _, sub := range sortedNames(t[name].subs) {
			add(t[name].subs[sub])
		}
	}
	return all
}

// HoldScripts takes all places of scripts, and returns how to give one back.
func (d *Door) HoldScripts() (giveBack func()) {
	for range scriptsMax {
		d.scripting.take(context.Background(), "")
	}
	return d.scripting.giveBack
}
