package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An outcome is what a caller knows of a write.
type outcome int

const (
	refused outcome = iota // nothing changed
	counted
	doubtful // nobody knows, or the caller was not answered
	lost     // the store had forgotten what it had acknowledged
)

// A reply is what a node says of a write.
type reply struct {
	outcome  outcome
	value    int64 // after it
	replayed bool
}

// rest is the REST door of a node.
type rest struct {
	node *node
	http.Client
}

func newREST(n *node) *rest {
	return &rest{n, http.Client{Timeout: callMax, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// An answer is what came back of a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errDown is the error of a call to a node that went away before it answered.
var errDown = errors.New("the node is down")

// call makes a call. What is not answered in time hangs, and that is an error of
// its own.
func (r *rest) call(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+r.node.http+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	p, err := r.Do(q)
	if err != nil {
		return answer{}, r.failed(err)
	}
	defer func() { _ = p.Body.Close() }()
	text, err := io.ReadAll(p.Body)
	if err != nil {
		return answer{}, r.failed(err)
	}
	return answer{p.StatusCode, p.Header, text}, nil
}

func (r *rest) failed(err error) error {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return fmt.Errorf("node %s did not answer within %v: %w", r.node.name, callMax, err)
	}
	return fmt.Errorf("%w: %w", errDown, err)
}

// add adds to a counter under a token.
func (r *rest) add(ctx context.Context, key string, delta int64, token string) (reply, error) {
	a, err := r.call(ctx, http.MethodPost, "/api/v1/counters/"+key+"/increment", fmt.Sprintf(`{"delta":%d}`, delta),
		"Idempotency-Key", token)
	if errors.Is(err, errDown) {
		return reply{outcome: doubtful}, nil
	}
	if err != nil {
		return reply{}, err
	}
	return r.written(a)
}

// written reads the answer to a write.
func (r *rest) written(a answer) (reply, error) {
	var got struct {
		Kind     string `json:"kind"`
		Value    int64  `json:"value"`
		Replayed bool   `json:"replayed"`
	}
	if err := json.Unmarshal(a.body, &got); err != nil {
		return reply{}, fmt.Errorf("node %s: %w: %s", r.node.name, err, a.body)
	}
	switch {
	case a.status == http.StatusOK:
		if h := a.header.Get("Idempotent-Replayed"); (h == "true") != got.Replayed {
			return reply{}, fmt.Errorf("node %s: Idempotent-Replayed %q: %s", r.node.name, h, a.body)
		}
		return reply{counted, got.Value, got.Replayed}, nil
	case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		return reply{outcome: refused}, nil
	case a.status == http.StatusGatewayTimeout && got.Kind == "unknown":
		return reply{outcome: doubtful}, nil
	case got.Kind == "lost":
		return reply{outcome: lost}, nil
	}
	return reply{}, fmt.Errorf("node %s: status %d, Retry-After %q: %s", r.node.name, a.status, a.header.Get("Retry-After"), a.body)
}

// get makes a call that must succeed, and reads what came back.
func (r *rest) get(ctx context.Context, method, path string, into any) error {
	a, err := r.call(ctx, method, path, "")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal(a.body, into)
	}
	if err != nil {
		return fmt.Errorf("node %s: %s %s: %w", r.node.name, method, path, err)
	}
	return nil
}

// A count is what a read says.
type count struct {
	Value int64 `json:"value"`
	Exact bool  `json:"exact"`
}

// read reads a counter exactly.
func (r *rest) read(ctx context.Context, key string) (int64, error) {
	var c count
	if err := r.get(ctx, http.MethodGet, "/api/v1/counters/"+key+"/exact", &c); err != nil {
		return 0, err
	}
	if !c.Exact {
		return 0, fmt.Errorf("node %s: an exact read of %s is not exact: %+v", r.node.name, key, c)
	}
	return c.Value, nil
}

// ready reports what the node says of itself: whether it can take writes.
func (r *rest) ready(ctx context.Context) (bool, error) {
	a, err := r.call(ctx, http.MethodGet, "/readyz", "")
	switch {
	case err != nil:
		return false, err
	case a.status == http.StatusOK:
		return true, nil
	case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		return false, nil
	}
	return false, fmt.Errorf("node %s: readyz: status %d: %s", r.node.name, a.status, a.body)
}

// loss is how verify calls what a Redis has lost since the node was started. It goes
// on telling of it.
var loss = regexp.MustCompile(`^times that the store had forgotten |^partition \d+, found to be behind at |^version of partition \d+$|^mark of writer \d+ in partition \d+$`)

// verify has the node compare what is served with the store's own record, and
// returns how much of what was acknowledged it finds to be lost since it was
// started.
func (r *rest) verify(ctx context.Context) (lost int, err error) {
	var got struct {
		Drift []struct{ What, Have, Want string }
	}
	if err := r.get(ctx, http.MethodPost, "/api/v1/verify", &got); err != nil {
		return 0, err
	}
	for _, d := range got.Drift {
		if !loss.MatchString(d.What) {
			return 0, fmt.Errorf("verify: drift: %+v", got.Drift)
		}
	}
	return len(got.Drift), nil
}

// sound returns an error unless verify finds everything in order.
func (r *rest) sound(ctx context.Context) error {
	lost, err := r.verify(ctx)
	if err == nil && lost > 0 {
		err = fmt.Errorf("verify finds %d losses", lost)
	}
	return err
}

// losses returns how often the node has found that its store had forgotten what
// it had acknowledged.
func (r *rest) losses(ctx context.Context) (float64, error) {
	a, err := r.call(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0, err
	}
	sum, seen := 0.0, 0
	for line := range bytes.Lines(a.body) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if name != "quipu_node_lost_total" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += n
		seen++
	}
	if seen != 1 {
		return 0, fmt.Errorf("node %s: %d meters of what was lost", r.node.name, seen)
	}
	return sum, nil
}

// resp is a connection to the RESP door of a node.
type resp struct {
	node *node
	net.Conn
	r *bufio.Reader
}

func dialRESP(ctx context.Context, n *node) (*resp, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", n.resp)
	if err != nil {
		return nil, err
	}
	return &resp{n, c, bufio.NewReader(c)}, nil
}

// run sends commands as a pipeline, and tells the reply to each. Those that were
// not answered because the node went away are doubtful.
func (c *resp) run(commands [][]string, tell func(i int, r reply)) error {
	var out bytes.Buffer
	for _, args := range commands {
		fmt.Fprintf(&out, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	_ = c.SetDeadline(time.Now().Add(callMax))
	_, err := c.Write(out.Bytes())
	for i := range commands {
		var r reply
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(callMax)) // each has its own
			r, err = c.reply()
		}
		switch {
		case err == nil:
			tell(i, r)
		case errors.Is(err, errDown) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError)) && !isTimeout(err):
			tell(i, reply{outcome: doubtful})
		default:
			return fmt.Errorf("node %s: %w", c.node.name, err)
		}
	}
	if err != nil {
		return errDown
	}
	return nil
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// reply reads one.
func (c *resp) reply() (reply, error) {
	line, err := c.r.ReadString('\n')
	switch {
	case err != nil && isTimeout(err):
		return reply{}, fmt.Errorf("no reply within %v: %w", callMax, err)
	case err != nil:
		return reply{}, fmt.Errorf("%w: %w", errDown, err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	word, _, _ := strings.Cut(line, " ")
	switch word {
	case "-UNAVAILABLE":
		return reply{outcome: refused}, nil
	case "-UNKNOWN":
		return reply{outcome: doubtful}, nil
	case "-LOST":
		return reply{outcome: lost}, nil
	}
	if line[0] != ':' {
		return reply{}, fmt.Errorf("reply %q", line)
	}
	n, err := strconv.ParseInt(line[1:], 10, 64)
	return reply{outcome: counted, value: n}, err
}
