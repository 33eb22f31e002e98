package crash

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	pipeliners  = 8
	pipelineMax = 60 // deeds
)

// overLoop kills the server under clients of Redis, which one loop serves.
func overLoop(t *testing.T, binary string, rng *rand.Rand) {
	newTill(t, newHost(t, binary, "--resp"), rng).live()
}

// overGoroutines does the same over TLS, where each connection has a goroutine.
func overGoroutines(t *testing.T, binary string, rng *rand.Rand) {
	h := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	defer h.Close()
	own := h.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	l := newTill(t, newHost(t, binary, "--resp", "--tls-cert", write("cert", "CERTIFICATE", own.Certificate[0]),
		"--tls-key", write("key", "PRIVATE KEY", key)), rng)
	l.tls = h.Client().Transport.(*http.Transport).TLSClientConfig
	l.live()
}

// A till is what clients of Redis know of the counters of a host.
type till struct {
	t    *testing.T
	host *host
	rng  *rand.Rand
	tls  *tls.Config // if not nil

	plain   []*tally // counted without tokens
	bounded *tally   // the same, up to boundMax
	guarded []*tally // counted with tokens
	pairs   []*tally // each is the first of two that add up to zero

	// Of one life, and under the lock while it lasts:
	mu     sync.Mutex
	adds   []*tokenAdd
	mortal []*mortal
	life   int

	kept []*tokenAdd // of former lives, to be repeated

	resent, doubts, expired int
}

const boundMax = 2000

func newTill(t *testing.T, h *host, rng *rand.Rand) *till {
	some := func(name string, n int) (list []*tally) {
		for i := range n {
			list = append(list, &tally{key: fmt.Sprint(name, i)})
		}
		return list
	}
	// One of the plain is hot, most are cold.
	return &till{
		t: t, host: h, rng: rng, plain: some("plain:", 200), guarded: some("guarded:", 20), pairs: some("pair:", 5),
		bounded: &tally{key: "bounded"},
	}
}

// live kills the server again and again.
func (l *till) live() {
	for range *cycles {
		l.load()
		l.host.start()
		l.judge()
	}
	if l.resent == 0 || l.doubts == 0 || l.expired == 0 {
		l.t.Error("nothing was killed under load")
	}
	l.t.Logf("%d lives: %d counters had more than what was acknowledged, %d adds were sent again, %d counters were gone at their deadlines",
		l.life, l.doubts, l.resent, l.expired)
	l.host.process.Kill()
	command(l.t, l.host.binary, "verify", "--data", l.host.dir)
}

// load has clients send pipelines until the server is killed.
func (l *till) load() {
	l.life++
	var done sync.WaitGroup
	for i := range pipeliners + 2 {
		w := l.dial()
		p := &pipeliner{
			till: l, name: fmt.Sprintf("%d.%d", l.life, i), rng: rand.New(rand.NewPCG(l.rng.Uint64(), 0)),
		}
		done.Go(func() {
			defer func() { _ = w.Close() }()
			for {
				switch i { // readers have nothing of their own to wait for
				case pipeliners:
					p.get(l.plain[0])
				case pipeliners + 1:
					p.getPairs()
				default:
					p.deeds()
				}
				if err := p.run(w); errors.Is(err, errDown) {
					return
				} else if err != nil {
					l.t.Errorf("life %d: %v", l.life, err)
					return
				}
			}
		})
	}
	p := l.host.process
	pause(time.Duration(50+l.rng.IntN(350))*time.Millisecond, p.Exited)
	if err := p.Died(); err != nil {
		l.t.Error(err)
	}
	if l.rng.IntN(4) == 0 {
		p.Terminate()
		pause(time.Duration(l.rng.IntN(30))*time.Millisecond, p.Exited)
	}
	p.Kill()
	done.Wait()
	if l.t.Failed() {
		l.t.Fatalf("the server's log:\n%s", &p.Log)
	}
}

// judge compares what a new server serves with what was told by the last, and
// sends again what must count once.
func (l *till) judge() {
	l.t.Helper()
	w := l.dial()
	defer func() { _ = w.Close() }()
	fail := func(err error) {
		if err != nil {
			l.t.Errorf("life %d: %v", l.life, err)
		}
	}
	recount := func(list []*tally) {
		for i, n := range w.values(l.t, list) {
			if n != list[i].acked {
				l.doubts++
			}
			fail(list[i].recount(n))
		}
	}
	recount(l.plain)
	recount([]*tally{l.bounded})
	if n := l.bounded.acked; n > boundMax {
		l.t.Errorf("life %d: %s is %d, its bound is %d", l.life, l.bounded.key, n, boundMax)
	}
	recount(l.pairs)
	for _, a := range l.pairs {
		if n := w.values(l.t, []*tally{{key: a.key + "'"}})[0]; n != -a.acked {
			l.t.Errorf("life %d: %s is %d, and its other half %d", l.life, a.key, a.acked, n)
		}
	}
	l.judgeGuarded(w, fail)
	l.judgeMortal(w)
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// judgeGuarded sends the adds again that were not answered, and some that were.
// Then the sums are exact.
func (l *till) judgeGuarded(w *wire, fail func(error)) {
	for i, n := range w.values(l.t, l.guarded) {
		fail(l.guarded[i].check(n))
	}
	var again []*tokenAdd
	for _, a := range l.adds {
		if a.reply == "" {
			l.resent++
			again = append(again, a)
		} else if l.rng.IntN(50) == 0 {
			l.kept = append(l.kept, a)
		}
	}
	l.adds = nil
	again = append(again, l.kept...)
	p := &pipeliner{till: l}
	for _, a := range again {
		p.guarded(a)
	}
	if err := p.run(w); err != nil {
		l.t.Fatalf("life %d: send again: %v", l.life, err)
	}
	for i, n := range w.values(l.t, l.guarded) {
		if g := l.guarded[i]; n != g.acked || n != g.sent {
			l.t.Errorf("life %d: %s is %d after everything was sent again: want %d", l.life, g.key, n, g.sent)
		}
	}
}

// judgeMortal looks at the counters with deadlines: each is there as a whole
// until then, if it was acknowledged, and gone as a whole from then on.
func (l *till) judgeMortal(w *wire) {
	p := &pipeliner{till: l}
	reads, replies := make([]string, len(l.mortal)), make([]string, len(l.mortal))
	for i, m := range l.mortal {
		p.command([]string{"GET", m.key}, func(reply string) error { reads[i] = reply; return nil })
		p.command([]string{"MULTI"}, nil)
		p.command([]string{"GET", m.key}, nil)
		p.command([]string{"PEXPIRETIME", m.key}, nil)
		p.command([]string{"EXEC"}, func(reply string) error { replies[i] = reply; return nil })
	}
	before := time.Now().UnixMilli()
	if err := p.run(w); err != nil {
		l.t.Fatal(err)
	}
	after := time.Now().UnixMilli()
	for i, m := range l.mortal {
		if reads[i] != "nil" && before >= m.deadline {
			l.t.Errorf("life %d: %s outlives its deadline %d: it was read at %d", l.life, m.key, m.deadline, before)
		}
		switch replies[i] {
		case fmt.Sprintf("%d %d", mortalValue, m.deadline):
			if before >= m.deadline || reads[i] == "nil" {
				l.t.Errorf("life %d: %s outlives its deadline %d: it was found at %d, and read as %s", l.life, m.key, m.deadline, before, reads[i])
			}
		case "nil -2":
			if m.acked && after < m.deadline {
				l.t.Errorf("life %d: %s is gone before its deadline", l.life, m.key)
			}
			l.expired++
			p.command([]string{"INCR", m.key}, func(reply string) error {
				if reply != "1" {
					return fmt.Errorf("%s had expired, and goes on at %s", m.key, reply)
				}
				return nil
			})
		default:
			l.t.Errorf("life %d: value and deadline of %s are %s, want %d %d", l.life, m.key, replies[i], mortalValue, m.deadline)
		}
		p.command([]string{"DEL", m.key}, nil)
	}
	l.mortal = nil
	if err := p.run(w); err != nil {
		l.t.Fatalf("life %d: %v", l.life, err)
	}
}

// A tally is what is known of one counter that only rises.
type tally struct {
	key string

	mu    sync.Mutex // guards the fields below
	acked int64      // what must count
	sent  int64      // what may count at most
	seen  int64      // the largest value that anyone was told
}

// send takes note of an addition that is about to be sent, and returns what must
// have counted before it.
func (c *tally) send(n int64) (floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += n
	return c.acked
}

// told takes the value after an addition, or after n of 0 a value that was read,
// which was sent when floor must have counted.
func (c *tally) told(n, value, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked += n
	c.seen = max(c.seen, value)
	if value < floor+n || value > c.sent {
		return fmt.Errorf("%s is said to be %d: want between %d and %d", c.key, value, floor+n, c.sent)
	}
	return nil
}

// check returns an error if the counter can't have a value after a crash.
func (c *tally) check(value int64) error {
	if least := max(c.acked, c.seen); value < least || value > c.sent {
		return fmt.Errorf("%s is %d after the crash: want between %d, which was acknowledged or seen, and %d, which was sent", c.key, value, least, c.sent)
	}
	return nil
}

// recount is check, and from then on the value is what is known.
func (c *tally) recount(value int64) error {
	err := c.check(value)
	c.acked, c.sent = value, value
	return err
}

// A tokenAdd is one Q.ADD with a token.
type tokenAdd struct {
	*tally
	n       int64
	token   string
	minimal bool
	floor   int64  // what had counted before it was first sent
	reply   string // "" until it was answered
}

// A mortal is a counter that was made in one step with its deadline.
type mortal struct {
	key      string
	deadline int64 // in Unix milliseconds
	acked    bool
}

const mortalValue = 7

// A pipeliner makes pipelines of commands, with what is to be done with each
// reply.
type pipeliner struct {
	till  *till
	rng   *rand.Rand
	name  string // begins its tokens and keys
	count int

	raw   strings.Builder
	takes []func(reply string) error
}

// command appends a command. What take is not given was not answered.
func (p *pipeliner) command(args []string, take func(reply string) error) {
	fmt.Fprintf(&p.raw, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&p.raw, "$%d\r\n%s\r\n", len(a), a)
	}
	p.takes = append(p.takes, take)
}

// run sends the commands and takes the replies. An error that matches errDown
// means that the server is gone.
func (p *pipeliner) run(w *wire) error {
	raw, takes := p.raw.String(), p.takes
	p.raw.Reset()
	p.takes = nil
	sent := make(chan struct{})
	go func() { // the replies may be longer than what fits between the two
		defer close(sent)
		_, _ = io.WriteString(w, raw)
	}()
	defer func() { <-sent }()
	for _, take := range takes {
		reply, err := w.reply()
		if err == nil && take != nil {
			err = take(reply)
		}
		if err != nil {
			_ = w.Close() // or the other goroutine might wait
			return err
		}
	}
	return nil
}

// deeds appends some deeds.
func (p *pipeliner) deeds() {
	for range 1 + p.rng.IntN(pipelineMax) {
		p.deed()
	}
}

// deed appends commands that do one thing.
func (p *pipeliner) deed() {
	l := p.till
	n := 1 + p.rng.Int64N(9)
	c := l.plain[p.rng.IntN(len(l.plain))]
	if p.rng.IntN(3) > 0 {
		c = l.plain[0]
	}
	switch d := p.rng.IntN(100); {
	case d < 30:
		p.add(c, 1, "INCR", c.key)
	case d < 45:
		p.add(c, n, "INCRBY", c.key, itoa(n))
	case d < 55:
		p.increx(c, n, "INCREX", c.key, "BYINT", itoa(n))
	case d < 60:
		p.increx(l.bounded, n, "INCREX", l.bounded.key, "BYINT", itoa(n), "UBOUND", itoa(boundMax), "SATURATE")
	case d < 65:
		p.get(c)
	case d < 80:
		p.count++
		a := &tokenAdd{tally: l.guarded[p.rng.IntN(len(l.guarded))], n: n, token: fmt.Sprint(p.name, "/", p.count), minimal: p.rng.IntN(4) == 0}
		a.floor = a.send(n)
		l.mu.Lock()
		l.adds = append(l.adds, a)
		l.mu.Unlock()
		p.guarded(a)
	case d < 90:
		p.pair(l.pairs[p.rng.IntN(len(l.pairs))], n)
	default:
		p.mortal()
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// number returns the value of a counter.
func number(reply string) (int64, error) {
	if reply == "nil" {
		return 0, nil
	}
	return strconv.ParseInt(reply, 10, 64)
}

// get appends a read.
func (p *pipeliner) get(c *tally) { p.add(c, 0, "GET", c.key) }

// add appends an addition that replies the value.
func (p *pipeliner) add(c *tally, n int64, args ...string) {
	floor := c.send(n)
	p.command(args, func(reply string) error {
		value, err := number(reply)
		return errors.Join(err, c.told(n, value, floor))
	})
}

// increx appends an addition that replies the value, and how much was added.
func (p *pipeliner) increx(c *tally, n int64, args ...string) {
	floor := c.send(n)
	p.command(args, func(reply string) error {
		var value, applied int64
		if _, err := fmt.Sscan(reply, &value, &applied); err != nil || applied < 0 || applied > n {
			return fmt.Errorf("%q: reply %s", args, reply)
		}
		return c.told(applied, value, floor)
	})
}

// guarded appends an addition with a token: for the first time, or again.
func (p *pipeliner) guarded(a *tokenAdd) {
	args := []string{"Q.ADD", a.key, itoa(a.n), "ID", a.token}
	if a.minimal {
		args = append(args, "NOVALUE")
	}
	p.command(args, func(reply string) error {
		if a.reply != "" {
			if reply != a.reply {
				return fmt.Errorf("%q: a repeat got %s, the first %s", args, reply, a.reply)
			}
			return nil
		}
		a.reply = reply
		value, err := a.floor+a.n, error(nil)
		if !a.minimal {
			value, err = number(reply)
		} else if reply != "OK" {
			err = fmt.Errorf("%q: reply %s", args, reply)
		}
		return errors.Join(err, a.told(a.n, value, a.floor))
	})
}

// pair appends a transaction that changes both halves of a pair, and a look at
// them.
func (p *pipeliner) pair(a *tally, n int64) {
	other := a.key + "'"
	p.command([]string{"MULTI"}, nil)
	p.command([]string{"INCRBY", a.key, itoa(n)}, nil)
	p.command([]string{"DECRBY", other, itoa(n)}, nil)
	floor := a.send(n)
	halves := func(n int64) func(string) error {
		return func(reply string) error {
			x, y, _ := strings.Cut(reply, " ")
			value, err := number(x)
			opposite, err2 := number(y)
			if value != -opposite {
				return fmt.Errorf("the halves of %s are %s", a.key, reply)
			}
			return errors.Join(err, err2, a.told(n, value, floor))
		}
	}
	p.command([]string{"EXEC"}, halves(n))
	p.command([]string{"MGET", a.key, other}, halves(0))
}

// getPairs appends a look at all pairs at one moment.
func (p *pipeliner) getPairs() {
	args := []string{"MGET"}
	for _, a := range p.till.pairs {
		args = append(args, a.key, a.key+"'")
	}
	p.command(args, func(reply string) error {
		words := strings.Split(reply, " ")
		for i, a := range p.till.pairs {
			value, err := number(words[2*i])
			opposite, err2 := number(words[2*i+1])
			if err := errors.Join(err, err2); err != nil || value != -opposite {
				return fmt.Errorf("the halves of %s are %s", a.key, words[2*i:2*i+2])
			}
		}
		return nil
	})
}

// mortal appends what makes a counter with a deadline, in one of several ways.
func (p *pipeliner) mortal() {
	l := p.till
	p.count++
	m := &mortal{key: fmt.Sprint("mortal:", p.name, "/", p.count), deadline: time.Now().UnixMilli() + p.rng.Int64N(1500)}
	if p.rng.IntN(2) == 0 {
		m.deadline += time.Hour.Milliseconds()
	}
	l.mu.Lock()
	l.mortal = append(l.mortal, m)
	l.mu.Unlock()
	at, value := itoa(m.deadline), itoa(mortalValue)
	acked := func(string) error { m.acked = true; return nil }
	switch p.rng.IntN(3) {
	case 0:
		p.command([]string{"SET", m.key, value, "PXAT", at}, acked)
	case 1:
		p.command([]string{"INCREX", m.key, "BYINT", value, "PXAT", at, "ENX"}, acked)
	case 2:
		p.command([]string{"MULTI"}, nil)
		p.command([]string{"INCRBY", m.key, value}, nil)
		p.command([]string{"PEXPIREAT", m.key, at}, nil)
		p.command([]string{"EXEC"}, acked)
	}
}

// A wire is a connection of a client of Redis.
type wire struct {
	net.Conn
	r *bufio.Reader
}

func (l *till) dial() *wire {
	l.t.Helper()
	c, err := net.Dial("tcp", l.host.addr)
	if err != nil {
		l.t.Fatal(err)
	}
	if l.tls != nil {
		own := l.tls.Clone()
		own.ServerName = "127.0.0.1"
		c = tls.Client(c, own)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	return &wire{c, bufio.NewReader(c)}
}

// reply reads a reply: what it says, and the elements of an array with spaces
// between them.
func (w *wire) reply() (string, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			return "", fmt.Errorf("no reply after a minute: %w", err)
		}
		return "", fmt.Errorf("%w: %w", errDown, err)
	}
	text := strings.TrimSuffix(line[1:], "\r\n")
	switch line[0] {
	case '+', ':':
		return text, nil
	case '$':
		if text == "-1" {
			return "nil", nil
		}
		line, err := w.r.ReadString('\n') // none has line ends in it
		if err != nil {
			return "", fmt.Errorf("%w: %w", errDown, err)
		}
		return strings.TrimSuffix(line, "\r\n"), nil
	case '*':
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", err
		}
		parts := make([]string, n)
		for i := range parts {
			if parts[i], err = w.reply(); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, " "), nil
	default:
		return "", fmt.Errorf("reply %q", line)
	}
}

// values reads counters, at one moment.
func (w *wire) values(t *testing.T, list []*tally) []int64 {
	t.Helper()
	args := []string{"MGET"}
	for _, c := range list {
		args = append(args, c.key)
	}
	values := make([]int64, len(list))
	p := &pipeliner{}
	p.command(args, func(reply string) error {
		for i, word := range strings.Split(reply, " ") {
			var err error
			if values[i], err = number(word); err != nil {
				return err
			}
		}
		return nil
	})
	if err := p.run(w); err != nil {
		t.Fatalf("read: %v", err)
	}
	return values
}
