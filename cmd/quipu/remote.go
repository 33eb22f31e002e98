package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/server"
)

const (
	callTimeout   = 30 * time.Second
	attemptsMax   = 3
	retryAfter    = 200 * time.Millisecond // doubles
	replyBytesMax = 64 << 20

	defaultNamespace = "default"
)

// A remote is a server, as the flags of the client commands name it.
type remote struct {
	Addr      address `help:"Address of the server: HOST:PORT or a URL." default:"http://127.0.0.1:8080"`
	APIKey    string  `name:"api-key" help:"API key for the server. Of a comma-separated list, the first is used." placeholder:"KEY"`
	Namespace word    `help:"Namespace of the keys." default:"default"`
	JSON      bool    `name:"json" help:"Print the replies of the server, one JSON object per line."`
}

// A request is one call of the REST API.
type request struct {
	method string
	path   string // below the namespace, or absolute
	query  url.Values
	body   any
	token  string            // names a write, so that it may be sent again
	header map[string]string // further headers

	unhurried bool // may take longer than a call
	reads     bool // changes nothing, though it is no GET
}

// doubt is the exit code of a call that may or may not have been carried out.
func (q *request) doubt() int {
	if q.reads || q.method == http.MethodGet {
		return exitUnavailable
	}
	return exitUnknown
}

// counter returns the path of a counter.
func counter(key word, rest string) string {
	return "counters/" + url.PathEscape(string(key)) + rest
}

// call makes a call and decodes the reply into out. A write with a token is
// sent again, under the same token, if nothing or nothing certain came back.
func (r *remote) call(ctx context.Context, q request, out any) (raw []byte, err error) {
	if !q.unhurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	wait := retryAfter
	var doubt error // an earlier attempt may have counted
	for attempt := 1; ; attempt++ {
		raw, err = r.once(ctx, q)
		code := exitCode(err)
		if code == exitUnknown {
			doubt = err
		}
		if err == nil || q.token == "" || attempt == attemptsMax || code != exitUnavailable && code != exitUnknown ||
			errors.Is(err, syscall.ECONNREFUSED) || distrusted(err) {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
		wait *= 2
	}
	if err != nil && exitCode(err) == exitUnavailable && doubt != nil {
		return nil, doubt
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decode the reply of %s: %w", r.Addr, err)
	}
	return bytes.TrimSpace(raw), nil
}

// once makes a call and returns the body of the reply.
func (r *remote) once(ctx context.Context, q request) ([]byte, error) {
	res, err := r.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, replyBytesMax))
	if err != nil {
		return nil, &exitError{q.doubt(), fmt.Errorf("read the reply of %s: %w", r.Addr, err)}
	}
	return raw, nil
}

// open makes a call and returns the reply if it is a success.
func (r *remote) open(ctx context.Context, q request) (*http.Response, error) {
	req, err := r.request(ctx, q)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, r.unreached(err, q.doubt())
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, refusal(res, q.doubt())
}

// unreached returns the error of a call that got no reply, and the exit code of
// it if it may have been carried out.
func (r *remote) unreached(err error, doubt int) error {
	code := doubt
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the server is named below, and the path is nothing to the caller
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w; is it running? \"quipu serve\" starts one, and --addr says where it is", err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" || distrusted(err) {
		code = exitUnavailable // a connection that was never made sent nothing
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		err = fmt.Errorf("%w; if you trust it, put its certificate or that of its issuer into a PEM file, and name that in SSL_CERT_FILE", err)
	}
	// The other doors reply what is no HTTP, or hang up: before, while or after they
	// are sent the request, and each is another error. So does a server that dies:
	// then a write may have counted.
	if text := err.Error(); strings.Contains(text, "malformed HTTP") || strings.Contains(text, "connection broken") || strings.Contains(text, "%!w(<nil>)") {
		err = errNotHTTP // the text is of bytes, or of nothing: what came before the request was sent is no error to net/http
	}
	hangups := []error{errNotHTTP, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}
	if slices.ContainsFunc(hangups, func(hangup error) bool { return errors.Is(err, hangup) }) {
		err = fmt.Errorf("%w; is that the REST API? --addr needs the address of the server's --http, not of --resp or --rpc", err)
		if doubt != exitUnknown {
			code = exitFailed
		}
	}
	return &exitError{code, fmt.Errorf("reach the server at %s: %w", r.Addr, err)}
}

// errNotHTTP is the error of a server that answers, but not as one of HTTP does.
var errNotHTTP = errors.New("it does not speak HTTP, or broke the connection")

// distrusted reports whether a TLS handshake failed on our side.
func distrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || errors.Is(err, http.ErrSchemeMismatch)
}

// request builds the HTTP request of a call.
func (r *remote) request(ctx context.Context, q request) (*http.Request, error) {
	path := q.path
	if !strings.HasPrefix(path, "/") {
		path = "/api/v1/namespaces/" + url.PathEscape(string(r.Namespace)) + "/" + path
	}
	var body io.Reader
	if q.body != nil {
		raw, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, string(r.Addr)+path, body)
	if err != nil {
		return nil, usage("%w", err)
	}
	req.URL.RawQuery = q.query.Encode()
	req.Header.Set("User-Agent", server.CLIAgent+"/"+versionName()) // The ledger says where a change came from.
	if key, _, _ := strings.Cut(r.APIKey, ","); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if q.token != "" {
		req.Header.Set("Idempotency-Key", quoteToken(q.token))
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// quoteToken writes a token as the header wants it: bare, unless it begins
// like a quoted one, or with or ends in a space, which headers lose.
func quoteToken(token string) string {
	if !strings.HasPrefix(token, `"`) && strings.Trim(token, " ") == token {
		return token
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(token) + `"`
}

// refusal returns the error that a reply tells, and the exit code of a call that
// may have been carried out.
func refusal(res *http.Response, doubt int) error {
	code := exitFailed
	switch res.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		code = exitUnavailable
	case http.StatusGatewayTimeout, http.StatusBadGateway:
		code = doubt
	}
	var p struct {
		Detail, Kind string
		RequestID    string `json:"request_id"`
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, replyBytesMax))
	if res.StatusCode == http.StatusBadRequest && strings.Contains(string(raw), "HTTP request to an HTTPS server") { // so says net/http
		host := res.Request.URL.Host
		return &exitError{code, fmt.Errorf("reach the server at %s: it speaks TLS: use --addr https://%s", host, host)}
	}
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Detail == "" {
		return &exitError{code, fmt.Errorf("the server replied %s", res.Status)}
	}
	switch {
	case res.StatusCode != http.StatusUnauthorized:
	case res.Request.Header.Get("Authorization") == "":
		p.Detail = "the server needs an API key: give it with --api-key, or in QUIPU_API_KEY"
	default:
		p.Detail = "the server does not accept this API key: check --api-key and QUIPU_API_KEY"
	}
	p.Detail = strings.Replace(p.Detail, "the Idempotency-Key", "the token of --id", 1) // in the words of this door
	if p.RequestID != "" {
		p.Detail = strings.Replace(p.Detail, "this request id", "request id "+p.RequestID, 1)
	}
	return &exitError{code, fmt.Errorf("%s (%s)", p.Detail, p.Kind)}
}

// newToken returns a UUID of version 7: 48 bits of Unix milliseconds, the
// version, the variant, and 74 random bits.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
