package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/store"
)

// The kinds of refusals that the tests reckon with, as the REST door names
// them; and one of the client's own: the request never left.
const (
	kindSettled     = "settled"
	kindChanged     = "changed"
	kindUnavailable = "unavailable"
	kindClosed      = "closed"
	kindUnsent      = "unsent"
	kindUnknown     = "unknown"
)

// callMax is how long a call may take: far more than the server's own limit.
const callMax = 30 * time.Second

var (
	// errDown is the error of a call that the server did not answer.
	errDown = errors.New("the server is down")
	// errBusy is the error of a call that the server could not serve.
	errBusy = errors.New("the server can't serve")
)

// A client calls one server. It sends each request once: net/http would send
// one with an Idempotency-Key again by itself, and the answers would not tell
// whether the first had counted.
type client struct {
	http *http.Client
	base string
}

func newClient(addr string) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		base: "http://" + addr + "/api/v1/",
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// A call is one HTTP request.
type call struct {
	method, path string
	body         string
	header       map[string]string
}

// A reply is what came of a call that was answered.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// failure returns an error unless the call succeeded.
func (r reply) failure(q call) error {
	switch r.status {
	case http.StatusOK:
		return nil
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s %s: %d %s", errBusy, q.method, q.path, r.status, r.body)
	default:
		return fmt.Errorf("%s %s: %d %s", q.method, q.path, r.status, r.body)
	}
}

// do makes a call. An error matches errDown, and is an *unsentError if the
// request did not leave.
func (c *client) do(ctx context.Context, q call) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, strings.NewReader(q.body))
	if err != nil {
		return reply{}, err
	}
	req.GetBody = nil // without it nothing is sent twice
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return reply{}, &unsentError{err}
		}
		return reply{}, fmt.Errorf("%w: %w", errDown, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errDown, err)
	}
	return reply{res.StatusCode, res.Header, body}, nil
}

// An unsentError is the error of a connection that was never made.
type unsentError struct{ error }

// Is reports whether target is errDown.
func (e *unsentError) Is(target error) bool { return target == errDown }

// wireReceipt is what the door replies to a write; in a batch, also a refusal.
type wireReceipt struct {
	Value      *int64       `json:"value"`
	Before     *int64       `json:"before"`
	Version    uint64       `json:"version"`
	Replayed   bool         `json:"replayed"`
	Durability string       `json:"durability"`
	Error      *wireProblem `json:"error"`
}

type wireProblem struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

func (r *wireReceipt) result() result {
	if r.Value == nil || r.Before == nil {
		return result{version: r.Version}
	}
	return result{valued: true, before: *r.Before, value: *r.Value, version: r.Version}
}

func (r *wireReceipt) answer() (answer, error) {
	if r.Error != nil {
		return r.Error.answer(), nil
	}
	durability, err := store.ParseDurability(r.Durability)
	return answer{outcome: success, replayed: r.Replayed, durability: durability, result: r.result()}, err
}

func (p *wireProblem) answer() answer {
	if p.Kind == kindUnknown {
		return answer{}
	}
	return answer{outcome: refusal, kind: p.Kind}
}

// send sends a request and returns the answer to each of its writes. If the
// server is down there are answers too.
func (c *client) send(ctx context.Context, r *request) ([]answer, error) {
	answers := make([]answer, len(r.writes))
	fill := func(a answer) []answer {
		for i := range answers {
			answers[i] = a
		}
		return answers
	}
	q := r.call()
	got, err := c.do(ctx, q)
	if err != nil {
		if _, ok := errors.AsType[*unsentError](err); ok {
			return fill(answer{outcome: refusal, kind: kindUnsent}), err
		}
		return answers, err
	}
	if got.status != http.StatusOK {
		var p wireProblem
		if err := json.Unmarshal(got.body, &p); err != nil || p.Kind == "" {
			return nil, fmt.Errorf("%s %s: %d %s", q.method, q.path, got.status, got.body)
		}
		return fill(p.answer()), nil
	}
	if r.token == "" {
		var receipt wireReceipt
		if err := json.Unmarshal(got.body, &receipt); err != nil {
			return nil, fmt.Errorf("decode %s: %w", got.body, err)
		}
		if got.header.Get("Idempotent-Replayed") == "true" != receipt.Replayed {
			return nil, fmt.Errorf("%s %s: Idempotent-Replayed is %q, but the body is %s",
				q.method, q.path, got.header.Get("Idempotent-Replayed"), got.body)
		}
		answers[0], err = receipt.answer()
		if r.writes[0].verb == undo { // what the ledger tells of it later has no value
			answers[0].result = result{version: receipt.Version}
		}
		return answers, err
	}
	var receipts struct {
		Results []wireReceipt `json:"results"`
	}
	if err := json.Unmarshal(got.body, &receipts); err != nil || len(receipts.Results) != len(r.writes) {
		return nil, fmt.Errorf("a batch of %d: %d results, %w", len(r.writes), len(receipts.Results), err)
	}
	for i := range answers {
		if answers[i], err = receipts.Results[i].answer(); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// call returns the HTTP request for r: the same bytes each time.
func (r *request) call() call {
	q := call{header: map[string]string{}}
	w := r.writes[0]
	if w.minimal {
		q.header["Prefer"] = "return=minimal"
	}
	if r.token != "" {
		q.method, q.path, q.body = http.MethodPost, "batch", r.batch()
		q.header["Idempotency-Key"] = r.token
		return q
	}
	if w.token != "" {
		q.header["Idempotency-Key"] = w.token
	}
	if w.match != 0 {
		q.header["If-Match"] = strconv.Quote(strconv.FormatUint(w.match, 10))
	}
	path := "counters/" + url.PathEscape(w.counter.key)
	switch {
	case w.verb == set:
		q.method, q.path, q.body = http.MethodPut, path, fmt.Sprintf(`{"value":%d}`, w.n)
	case w.verb == reset:
		q.method, q.path, q.body = http.MethodPost, path+"/reset", "{}"
	case w.verb == remove:
		q.method, q.path, q.body = http.MethodDelete, path, "{}"
	case w.verb == undo:
		q.method, q.path = http.MethodPost, "tokens/"+url.PathEscape(w.of.token)+"/undo?key="+url.QueryEscape(w.counter.key)
		q.body = `{"reason":"a test"}`
	case w.adjust:
		q.method, q.path, q.body = http.MethodPost, path+"/adjust", fmt.Sprintf(`{"delta":%d,"reason":"a test"%s}`, w.n, w.event)
	case w.n < 0:
		q.method, q.path, q.body = http.MethodPost, path+"/decrement", fmt.Sprintf(`{"delta":%d%s}`, -w.n, w.event)
	default:
		q.method, q.path, q.body = http.MethodPost, path+"/increment", fmt.Sprintf(`{"delta":%d%s%s}`, w.n, w.event, w.event.by())
	}
	return q
}

// batch returns the body of a batch.
func (r *request) batch() string {
	var b bytes.Buffer
	for i, w := range r.writes {
		b.WriteString(map[bool]string{true: `{"ops":[`, false: ","}[i == 0])
		fmt.Fprintf(&b, `{"key":%q,"delta":%d%s%s}`, w.counter.key, w.n, w.event, w.event.by())
	}
	b.WriteString("]}")
	return b.String()
}

// get makes a call that is no write, and decodes its reply.
func (c *client) get(ctx context.Context, q call, to any) error {
	got, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	if err := got.failure(q); err != nil {
		return err
	}
	if err := json.Unmarshal(got.body, to); err != nil {
		return fmt.Errorf("decode %s: %w", got.body, err)
	}
	return nil
}

// wireCount is a counter as the door replies it.
type wireCount struct {
	Key     string `json:"key"`
	Value   int64  `json:"value"`
	Version uint64 `json:"version"`
	Exact   bool   `json:"exact"`
}

// read reads a counter, exactly.
func (c *client) read(ctx context.Context, key string) (count, error) {
	var got wireCount
	err := c.get(ctx, call{method: http.MethodGet, path: "counters/" + url.PathEscape(key) + "/exact"}, &got)
	if err == nil && !got.Exact {
		err = fmt.Errorf("an exact read is not exact: %+v", got)
	}
	return count{got.Value, got.Version}, err
}

// readAll reads counters, exactly.
func (c *client) readAll(ctx context.Context, counters []*counter) ([]count, error) {
	keys := make([]string, len(counters))
	for i, c := range counters {
		keys[i] = c.key
	}
	body, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		return nil, err
	}
	var got struct {
		Counters []wireCount `json:"counters"`
	}
	if err := c.get(ctx, call{method: http.MethodPost, path: "read?read=exact", body: string(body)}, &got); err != nil {
		return nil, err
	}
	if len(got.Counters) != len(keys) {
		return nil, fmt.Errorf("read %d keys: %d counters", len(keys), len(got.Counters))
	}
	counts := make([]count, len(keys))
	for i, g := range got.Counters {
		if g.Key != keys[i] || !g.Exact {
			return nil, fmt.Errorf("read %s: %+v", keys[i], g)
		}
		counts[i] = count{g.Value, g.Version}
	}
	return counts, nil
}

// list returns every counter there is.
func (c *client) list(ctx context.Context) (map[string]count, error) {
	all := map[string]count{}
	for cursor := ""; ; {
		var page struct {
			Counters []wireCount `json:"counters"`
			Next     string      `json:"next"`
		}
		q := call{method: http.MethodGet, path: "counters?limit=1000&cursor=" + url.QueryEscape(cursor)}
		if err := c.get(ctx, q, &page); err != nil {
			return nil, err
		}
		for _, g := range page.Counters {
			all[g.Key] = count{g.Value, g.Version}
		}
		if page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

// lookup asks for the fate of a write's token.
func (c *client) lookup(ctx context.Context, w *write) (fate, error) {
	return c.fate(ctx, w, http.MethodGet, "")
}

// settle decides a write's token for good.
func (c *client) settle(ctx context.Context, w *write) (fate, error) {
	return c.fate(ctx, w, http.MethodPost, "/settle")
}

func (c *client) fate(ctx context.Context, w *write, method, rest string) (fate, error) {
	if w.verb == undo {
		return c.fateOfUndo(ctx, w)
	}
	path := "tokens/" + url.PathEscape(w.token) + rest + "?key=" + url.QueryEscape(w.counter.key)
	var got struct {
		State  string      `json:"state"`
		Result wireReceipt `json:"result"`
	}
	if err := c.get(ctx, call{method: method, path: path}, &got); err != nil {
		return fate{}, err
	}
	switch got.State {
	case "applied":
		return fate{applied, got.Result.result()}, nil
	case "settled":
		return fate{state: settled}, nil
	case "unknown":
		return fate{state: unknown}, nil
	}
	return fate{}, fmt.Errorf("%v: its token is %q", w, got.State)
}

// verify has the server compare what it serves with its own record.
func (c *client) verify(ctx context.Context) error {
	var got struct {
		OK    bool              `json:"ok"`
		Drift []json.RawMessage `json:"drift"`
	}
	if err := c.get(ctx, call{method: http.MethodPost, path: "verify"}, &got); err != nil {
		return err
	}
	if !got.OK {
		return fmt.Errorf("verify: drift: %s", got.Drift)
	}
	return nil
}

// backup takes a backup, which makes the server write a checkpoint, and throws
// it away.
func (c *client) backup(ctx context.Context) error {
	q := call{method: http.MethodGet, path: "backup"}
	got, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	return got.failure(q)
}
