package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A watch passes on what the suite asks a server, and notes the commands.
type watch struct {
	l    net.Listener
	to   string
	mu   sync.Mutex // guards the fields below
	test string     // that is under way
	seen map[string][]string
}

// listen starts a watch before a server.
func listen(to string) (*watch, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &watch{l: l, to: to, seen: map[string][]string{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	return w, nil
}

func (w *watch) addr() string { return w.l.Addr().String() }

func (w *watch) close() { _ = w.l.Close() }

// clear forgets what was noted.
func (w *watch) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.test, w.seen = "", map[string][]string{}
}

// commands returns the commands of each test.
func (w *watch) commands() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// carry passes one connection on.
func (w *watch) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	go func() {
		_, _ = io.Copy(c, s)
		_ = c.Close()
	}()
	r := bufio.NewReader(io.TeeReader(c, s))
	for {
		args, err := request(r)
		if err != nil { // Redis will say what is wrong with it, if anything.
			_, _ = io.Copy(s, c)
			return
		}
		w.note(args)
	}
}

// errGarbage is the error of what is no command.
var errGarbage = errors.New("no command")

// request reads the words that a command begins with: of a multibulk all, of a
// line what is before the first quote.
func request(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	count, multi := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "*")
	if !multi {
		return strings.Fields(line), nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n > 1<<20 {
		return nil, errGarbage
	}
	var args []string
	for range n {
		head, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.Trim(head, "$\r\n"))
		if err != nil || size < 0 || size > 1<<30 {
			return nil, errGarbage
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args = append(args, string(text[:size]))
	}
	return args, nil
}

// starting is what the suite tells a server of each test, before it begins.
var starting = regexp.MustCompile(`(?s)^### Starting test (.*) in tests/unit/\S+$`)

// word is what may be a subcommand.
var word = regexp.MustCompile(`^[a-zA-Z-]{1,20}$`)

// note notes a command. Between two blocks of tests the suite empties the server,
// functions included; what comes then belongs to no test.
func (w *watch) note(args []string) {
	if len(args) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.ToLower(args[0])
	if len(args) > 1 && word.MatchString(args[1]) {
		name += "|" + strings.ToLower(args[1])
	}
	switch name {
	case "debug|log":
		if m := starting.FindStringSubmatch(args[len(args)-1]); m != nil {
			w.test = m[1]
			w.seen[w.test] = append(w.seen[w.test], "ping") // it was run
		}
		return
	case "function|flush":
		w.test = ""
	}
	if w.test != "" && !slices.Contains(w.seen[w.test], name) {
		w.seen[w.test] = append(w.seen[w.test], name)
	}
}

// knowing returns a function that asks a server whether it has a command, or as
// "command|subcommand" one of those.
func knowing(addr string) func(string) (bool, error) {
	known := map[string]bool{}
	return func(name string) (bool, error) {
		if has, asked := known[name]; asked {
			return has, nil
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false, err
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprintf(c, "*3\r\n$7\r\nCOMMAND\r\n$4\r\nINFO\r\n$%d\r\n%s\r\n", len(name), name); err != nil {
			return false, err
		}
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); err != nil || line != "*1\r\n" {
			return false, fmt.Errorf("COMMAND INFO %q: %q, %w", name, line, err)
		}
		line, err := r.ReadString('\n')
		known[name] = line != "*-1\r\n" && line != "$-1\r\n"
		return known[name], err
	}
}
