package load

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRequests_RESP(t *testing.T) {
	f := func(op Op, key uint64, want string) {
		t.Helper()
		if got := newRESP(KeyZero).request([]byte("x"), op, key); string(got) != "x"+want {
			t.Errorf("%s %d: got %q, want %q", op, key, got, want)
		}
	}
	f(Incr, 0, "*2\r\n$4\r\nINCR\r\n$16\r\nkey:000000000000\r\n")
	f(Incr, 42, "*2\r\n$4\r\nINCR\r\n$16\r\nkey:000000000042\r\n")
	f(Get, 999_999_999_999, "*2\r\n$3\r\nGET\r\n$16\r\nkey:999999999999\r\n")
	if got := newRESP("é").request(nil, Add, 0); string(got) != "*4\r\n$5\r\nQ.ADD\r\n$2\r\né\r\n$1\r\n1\r\n$7\r\nNOVALUE\r\n" {
		t.Errorf("a key of its own: %q", got)
	}
	f(Set, 7, "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$1\r\n1\r\n")
}

func TestRequests_REST(t *testing.T) {
	f := func(op Op, key uint64, want string) {
		t.Helper()
		if got := newREST("host:1", "k", KeyZero).request([]byte("x"), op, key); string(got) != "x"+want {
			t.Errorf("%s %d: got %q, want %q", op, key, got, want)
		}
	}
	const head = " HTTP/1.1\r\nHost: host:1\r\nAuthorization: Bearer k\r\n"
	f(Incr, 42, "POST /api/v1/counters/key:000000000042/increment"+head+"Content-Type: application/json\r\nContent-Length: 0\r\n\r\n")
	if got := newREST("host:1", "k", "a/é").request(nil, Get, 0); string(got) != "GET /api/v1/counters/a%2F%C3%A9"+head+"\r\n" {
		t.Errorf("a key of its own: %q", got)
	}
	f(Get, 0, "GET /api/v1/counters/key:000000000000"+head+"\r\n")
	f(Set, 999_999_999_999, "PUT /api/v1/counters/key:999999999999"+head+"Content-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"value\":1}")
}

func TestScan(t *testing.T) {
	f := func(p protocol, text string, n, failed int, first string, rest int) {
		t.Helper()
		used, r, err := p.scan([]byte(text))
		if want := (replies{n: n, failed: failed, first: first}); err != nil || r != want || len(text)-used != rest {
			t.Errorf("scan %q: got %+v, %d left, %v; want %+v, %d left", text, r, len(text)-used, err, want, rest)
		}
	}
	f(newRESP(KeyZero), "", 0, 0, "", 0)
	f(newRESP(KeyZero), ":1\r\n:-23\r\n+OK\r\n_\r\n$-1\r\n$0\r\n\r\n$2\r\n\r\n\r\n", 7, 0, "", 0)
	f(newRESP(KeyZero), "-ERR a\r\n:1\r\n-ERR b\r\n:2", 3, 2, "ERR a", 2)
	f(newRESP(KeyZero), "*2\r\n:1\r\n:-1\r\n*3\r\n:1\r\n:2\r\n", 1, 0, "", 0)
	f(newRESP(KeyZero), "$5\r\nab", 0, 0, "", 0)
	f(newRESP(KeyZero), ":1\r\n$", 1, 0, "", 1)
	f(newREST("h", "", KeyZero), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length:0\r\n\r\n", 2, 0, "", 0)
	f(newREST("h", "", KeyZero), "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nabcHTTP", 1, 1, "503 Service Unavailable", 4)

	bad := func(p protocol, text string) {
		t.Helper()
		if _, r, err := p.scan([]byte(text)); err == nil {
			t.Errorf("scan %q: got %+v", text, r)
		}
	}
	for _, text := range []string{"\r\n", "\n", ":1\n", "*x\r\n", "*0\r\n", "*17\r\n", "*2\r\n*2\r\n", "$x\r\n", "$-2\r\n", "$536870913\r\n", "HTTP/1.1 400 Bad Request\r\n"} {
		bad(newRESP(KeyZero), text)
	}
	for _, text := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "-ERR x\r\nContent-Length: 0\r\n\r\n"} {
		bad(newREST("h", "", KeyZero), text)
	}
}

// scanSplit scans text that comes in pieces: each byte of cuts is the length
// of the next one.
func scanSplit(p protocol, text, cuts []byte) (n, failed int, left []byte, err error) {
	var buffer []byte
	for len(text) > 0 && err == nil {
		piece := len(text)
		if len(cuts) > 0 {
			piece, cuts = min(int(cuts[0]), piece), cuts[1:]
		}
		buffer = append(buffer, text[:piece]...)
		text = text[piece:]
		var used int
		var r replies
		used, r, err = p.scan(buffer)
		buffer = buffer[used:]
		n, failed = n+r.n, failed+r.failed
	}
	return n, failed, buffer, err
}

// plainRESP counts replies the obvious way.
func plainRESP(text string) (n, failed int, err error) {
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return n, failed, nil
		}
		body, ok := strings.CutSuffix(line, "\r")
		if !ok || body == "" {
			return n, failed, errors.New("no line")
		}
		text = rest
		switch body[0] {
		case '-':
			failed++
		case ':', '+', '_':
		case '$':
			size, err := strconv.Atoi(body[1:])
			if err != nil || size < -1 || size > stringMax {
				return n, failed, errors.New("no length")
			}
			if size >= 0 {
				if len(text) < size+2 {
					return n, failed, nil
				}
				text = text[size+2:]
			}
		default:
			return n, failed, errors.New("no reply")
		}
		n++
	}
}

func FuzzScanRESP(f *testing.F) {
	f.Add([]byte(":1\r\n$3\r\nabc\r\n-ERR x\r\n+OK\r\n_\r\n$-1\r\n"), []byte{1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte("$5\r\nab"), []byte{5, 0, 1})
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		n, failed, err := plainRESP(string(text))
		for _, c := range [][]byte{nil, cuts} {
			gotN, gotFailed, _, gotErr := scanSplit(newRESP(KeyZero), text, c)
			if gotN != n || gotFailed != failed || (gotErr == nil) != (err == nil) {
				t.Errorf("scan %q, cut %v: got %d, %d, %v; want %d, %d, %v", text, c, gotN, gotFailed, gotErr, n, failed, err)
			}
		}
	})
}

func FuzzScanREST(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), []byte{1, 2, 3, 30, 31})
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		n, failed, left, err := scanSplit(newREST("h", "", KeyZero), text, nil)
		gotN, gotFailed, gotLeft, gotErr := scanSplit(newREST("h", "", KeyZero), text, cuts)
		if gotN != n || gotFailed != failed || !bytes.Equal(gotLeft, left) && err == nil || (gotErr == nil) != (err == nil) {
			t.Errorf("scan %q, cut %v: got %d, %d, %v; want %d, %d, %v", text, cuts, gotN, gotFailed, gotErr, n, failed, err)
		}
		if n > bytes.Count(text, []byte("HTTP/1.1")) {
			t.Errorf("scan %q: %d replies", text, n)
		}
	})
}

// answering returns a wire to a server that answers each batch with a text,
// and then closes.
func answering(t *testing.T, p protocol, text string) *wire {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = server.Read(make([]byte, 1<<20))
		for i := range text { // byte by byte, to be awkward
			if _, err := server.Write([]byte{text[i]}); err != nil {
				break
			}
		}
		_ = server.Close()
	}()
	t.Cleanup(func() { _ = client.Close(); <-done })
	return newWire(client, p)
}

func TestExchange(t *testing.T) {
	f := func(queue int, text string, n int, want string) {
		t.Helper()
		w := answering(t, newRESP(KeyZero), text)
		for range queue {
			w.add(Incr, 0)
		}
		sum := 0
		err := w.exchange(func(r replies) { sum += r.n })
		if fmt.Sprint(err) != want || sum != n {
			t.Errorf("exchange of %d, answered by %.40q: got %d, %v; want %d, %v", queue, text, sum, err, n, want)
		}
	}
	f(2, ":1\r\n:2\r\n", 2, "<nil>")
	f(2, ":1\r\n:", 1, "the server closed the connection")
	f(2, ":1\r\nHTTP\r\n", 1, `unexpected reply "HTTP"`)
	f(2, ":1\r\n"+strings.Repeat("+", readBytes+1), 1, "a reply is too long")
}

func TestExchangeTooManyReplies(t *testing.T) {
	w := newWire(&echo{reply: []byte(":1\r\n:2\r\n")}, newRESP(KeyZero))
	w.add(Incr, 0)
	if err := w.exchange(func(replies) {}); err == nil || !strings.Contains(err.Error(), "more replies") {
		t.Errorf("got %v", err)
	}
}

// An echo is a connection whose every read returns one reply.
type echo struct {
	net.Conn
	reply []byte
}

func (e *echo) Write(p []byte) (int, error) { return len(p), nil }
func (e *echo) Read(p []byte) (int, error)  { return copy(p, e.reply), nil }
func (e *echo) Close() error                { return nil }

// Nothing is allocated on the way of a request.
func TestAllocations(t *testing.T) {
	f := func(p protocol, reply string, c Config) {
		t.Helper()
		c.Depth = 16
		w := &worker{
			conn: newWire(&echo{reply: []byte(strings.Repeat(reply, c.Depth))}, p), rec: newRecorder(), began: time.Now(),
			depth: c.Depth, budget: &budget{limited: true}, due: c.schedule(0, 1),
			keys: c.keys(newRand()), ops: c.ops(newRand()),
		}
		run := func(batches int) float64 {
			return testing.AllocsPerRun(10, func() {
				w.budget.left.Store(int64(batches * c.Depth))
				if err := w.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
		run(1) // buffers grow
		if few, many := run(1), run(1000); many > few {
			t.Errorf("%+v: %v allocations for a batch, %v for 1000", c, few, many)
		}
	}
	f(newRESP(KeyZero), ":1\r\n", Config{Op: Incr, Dist: Hot})
	f(newRESP(KeyZero), ":1\r\n", Config{Op: Mixed, Dist: Zipf, Keys: 1e6})
	f(newRESP(KeyZero), "$5\r\n12345\r\n", Config{Op: Get, Dist: Uniform, Keys: 1e6})
	f(newRESP(KeyZero), ":1\r\n", Config{Op: Incr, Dist: Hot, Rate: 1e9})
	f(newREST("h", "", KeyZero), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Config{Op: Set, Dist: Uniform, Keys: 1e6})
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
