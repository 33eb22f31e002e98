package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// A restDriver speaks to the REST door. A batch is sent as one pipeline.
type restDriver struct {
	network
	key  string
	name string // of the first counter
}

func (d restDriver) dial(ctx context.Context) (conn, error) {
	c, err := d.network.dial(ctx)
	if err != nil {
		return nil, err
	}
	return newWire(c, newREST(d.host, d.key, d.name)), nil
}

// pid is unknown: the door does not tell.
func (restDriver) pid(context.Context) int { return 0 }

// rest is the state of one connection: what is left of a reply.
type rest struct {
	requests
	skip int // bytes of a body
}

func newREST(host, key, name string) *rest {
	head := " HTTP/1.1\r\nHost: " + host + "\r\n"
	if key != "" {
		head += "Authorization: Bearer " + key + "\r\n"
	}
	f := func(method, rest, body string, more ...string) template {
		text := method + " /api/v1/counters/" + url.PathEscape(name) + rest + head + strings.Join(more, "")
		if method != "GET" {
			text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
		}
		return newTemplate(text + "\r\n" + body)
	}
	return &rest{requests: requests{
		incr: f("POST", "/increment", ""), add: f("POST", "/increment", "", "Prefer: return=minimal\r\n"), get: f("GET", "", ""), set: f("PUT", "", `{"value":`+setValue+`}`),
	}}
}

// scan knows as much of HTTP as the door uses: bodies have a length.
func (s *rest) scan(p []byte) (used int, r replies, err error) {
	for {
		n := min(s.skip, len(p)-used)
		used += n
		s.skip -= n
		end := bytes.Index(p[used:], []byte("\r\n\r\n"))
		if s.skip > 0 || end < 0 {
			return used, r, nil
		}
		head := p[used : used+end]
		used += end + len("\r\n\r\n")
		status, fields, _ := bytes.Cut(head, []byte("\r\n"))
		if s.skip, err = bodyLength(fields); err != nil {
			return used, r, err
		}
		switch version, code, _ := bytes.Cut(status, []byte(" ")); {
		case !bytes.Equal(version, []byte("HTTP/1.1")):
			return used, r, unexpected(status)
		case bytes.HasPrefix(code, []byte("200")):
			r.n++
		default:
			r.fail(code, bytes.HasPrefix(code, []byte("401")))
		}
	}
}

// bodyLength finds the length of a body in the fields of a head.
func bodyLength(fields []byte) (int, error) {
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !bytes.EqualFold(name, []byte("Content-Length")) {
			continue
		}
		n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
		if err != nil || n < 0 || n > stringMax {
			return 0, unexpected(line)
		}
		return n, nil
	}
	return 0, errors.New("a reply has no Content-Length")
}
