package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A respDriver speaks to Redis, and to servers that speak like it.
type respDriver struct {
	network
	password string
	name     string // of the first key
}

func (d respDriver) dial(ctx context.Context) (conn, error) {
	c, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	return newWire(c, newRESP(d.name)), nil
}

// connect connects and, if there is a password, says it.
func (d respDriver) connect(ctx context.Context) (net.Conn, error) {
	c, err := d.network.dial(ctx)
	if err != nil || d.password == "" {
		return c, err
	}
	w := newWire(c, newRESP(d.name))
	w.out, w.queued = command("AUTH", d.password), 1
	refused := ""
	err = w.exchange(func(r replies) { refused = r.first })
	if err == nil && refused != "" {
		err = errors.New(refused)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	return c, nil
}

// pid asks a server on the loopback for its process.
func (d respDriver) pid(ctx context.Context) int {
	c, err := d.connect(ctx)
	if err != nil {
		return 0
	}
	defer func() { _ = c.Close() }()
	if a, ok := c.RemoteAddr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return 0
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if _, err := c.Write(command("INFO", "server")); err != nil {
		return 0
	}
	in := bufio.NewReader(c)
	head, err := in.ReadString('\n')
	left, sizeErr := strconv.Atoi(strings.TrimSpace(strings.TrimLeft(head, "$=")))
	if err != nil || sizeErr != nil {
		return 0
	}
	for left > 0 {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		left -= len(line)
		if value, ok := strings.CutPrefix(line, "process_id:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(value)) // 0 is unknown
			return pid
		}
	}
	return 0
}

// command encodes a command.
func command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// resp is the state of one connection: what is left of a reply.
type resp struct {
	requests
	skip  int // bytes of a string, and of its end
	items int // of an array that are still to come
}

func newRESP(name string) *resp {
	f := func(words ...string) template { return newTemplate(string(command(words...))) }
	return &resp{requests: requests{
		incr: f("INCR", name), add: f("Q.ADD", name, "1", "NOVALUE"), get: f("GET", name), set: f("SET", name, setValue),
		throttle: f("CL.THROTTLE", name, "15", "30", "60"),
	}}
}

// scan knows the replies of the commands that are sent: integers, strings,
// nulls, errors, and arrays of integers.
func (s *resp) scan(p []byte) (used int, r replies, err error) {
	for {
		if s.skip > 0 {
			n := min(s.skip, len(p)-used)
			used += n
			s.skip -= n
			if s.skip > 0 {
				return used, r, nil
			}
			r.n++
		}
		end := bytes.IndexByte(p[used:], '\n')
		if end < 0 {
			return used, r, nil
		}
		line := p[used : used+end+1]
		if len(line) < len(":\r\n") || line[end-1] != '\r' {
			return used, r, unexpected(line)
		}
		text := line[1 : end-1]
		switch line[0] {
		case ':':
			if s.items > 0 {
				s.items--
			}
			if s.items == 0 {
				r.n++
			}
		case '*':
			n, err := strconv.Atoi(string(text))
			if err != nil || n < 1 || n > itemsMax || s.items > 0 {
				return used, r, unexpected(line)
			}
			s.items = n
		case '+', '_':
			r.n++
		case '-':
			r.fail(text, bytes.HasPrefix(text, []byte("NOAUTH ")))
		case '$':
			n, err := strconv.Atoi(string(text))
			switch {
			case err != nil || n < -1 || n > stringMax:
				return used, r, unexpected(line)
			case n == -1:
				r.n++
			default:
				s.skip = n + len("\r\n")
			}
		default:
			return used, r, unexpected(line)
		}
		used += len(line)
	}
}

// itemsMax is the longest array.
const itemsMax = 16

// stringMax is the longest string that a server may have.
const stringMax = 512 << 20

func unexpected(line []byte) error {
	return fmt.Errorf("unexpected reply %.100q", bytes.TrimSpace(line))
}
