package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store"
)

// ConnBytesMax is about how much memory a connection takes beside the budget:
// net/http's buffers, a goroutine or two, the head of a request and the free part
// of its body.
const ConnBytesMax = 32 << 10

const (
	bodyBytesMax      = 64 << 10
	batchBytesMax     = 4 << 20
	freeBytes         = 4 << 10  // bodies up to it cost no budget: net/http takes as much for any request
	entryBytes        = 512      // what an entry of a batch or a list takes, decoded and in the reply
	entryBodyBytes    = 12       // what it takes in the body at least
	pooledBytesMax    = 64 << 10 // buffers above it are left to the collector
	bufferedBytes     = 2 << 10  // replies up to it get their length from net/http
	retryAfterSeconds = "1"
)

// tokenHeader names a write.
const tokenHeader = "Idempotency-Key"

// Header values that are the same for many replies. They are shared by all of
// them, so nothing may append to or change them.
var (
	typeJSON        = []string{"application/json"}
	typeProblem     = []string{"application/problem+json"}
	replayedTrue    = []string{"true"}
	appliedMinimal  = []string{"return=minimal"}
	cacheRevalidate = []string{"no-cache"}
	cacheOwn        = []string{"private, no-cache"}
	cacheNever      = []string{"no-store"}
	varyAccept      = []string{"Accept"}
)

// A call is one request being answered. Calls are reused.
type call struct {
	*endpoint
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context // ends at the call's deadline
	db     *quipu.DB       // in the namespace that the path names
	args   params
	query  url.Values // nil if there is none
	id     string     // of the request
	start  time.Time
	traced *trace.Span // its span, or nil if it is not sampled

	status int                 // of the reply, 0 before it
	in     []byte              // the body
	out    []byte              // the reply
	opts   []quipu.WriteOption // what the headers ask of a write
	taken  int64               // of the budget

	who       *access.Principal // nil if nobody is known
	viaCookie bool              // by the login of a browser
	target    string            // what an administrator's call is about, for the audit log

	unmatched bool // it is to be made at a version of several cells
	quoted    bool // the reply has integers of 64 bits as strings
}

func (c *call) begin(h *Handler, w http.ResponseWriter, r *http.Request) {
	c.h, c.w, c.r = h, w, r
	c.start = time.Now()
	c.ctx = h.deadlines.from(c.start)
	c.status = 0
	c.quoted = false
	c.in, c.out, c.opts = c.in[:0], c.out[:0], c.opts[:0]
	c.args = params{}
	if c.endpoint = h.root.find(r.Method, r.URL.EscapedPath(), &c.args); c.endpoint == nil {
		c.endpoint = h.missing
	}
	if c.db = h.db; strings.HasPrefix(r.UserAgent(), server.CLIAgent) {
		c.db = h.cli
	}
	if c.inNamespace {
		c.db = c.db.In(c.args.ns)
	}
	if ids := r.Header["X-Request-Id"]; len(ids) == 1 && saneRequestID(ids[0]) {
		c.id = ids[0]
	} else {
		c.id = h.ids.next()
	}
	w.Header()["X-Request-Id"] = []string{c.id}
	if h.tracer != nil && c.spans != "" {
		c.trace()
	}
}

// end is deferred: it turns a panic into a reply, measures, and lets go of the
// call.
func (c *call) end() {
	p := recover()
	abort := p == any(http.ErrAbortHandler)
	if p != nil && !abort {
		c.h.logger.Error("panic", "request_id", c.id, "route", c.path, "error", p, "stack", string(debug.Stack()))
		c.fail(ofKind(store.KindOther, server.SeeLog))
	}
	if c.taken > 0 {
		c.h.budget.Give(c.taken)
	}
	c.note()
	took := time.Since(c.start)
	c.meter.Observe(c.status, took)
	if c.traced != nil {
		c.endSpan()
	}
	if c.h.logger.Enabled(c.ctx, slog.LevelDebug) {
		c.h.logger.Debug("request", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.EscapedPath(),
			"status", c.status, "took", took, "remote", c.r.RemoteAddr)
	}
	if abort {
		panic(p) // breaks the connection: a reply that was begun can't be finished
	}
	c.release()
}

func (c *call) release() {
	if cap(c.in) > pooledBytesMax || cap(c.out) > pooledBytesMax {
		return
	}
	clear(c.opts) // they hold tokens
	h := c.h
	*c = call{in: c.in, out: c.out, opts: c.opts}
	h.calls.Put(c)
}

// reply sends what is in out.
func (c *call) reply() error {
	header := c.w.Header()
	header["Content-Type"] = typeJSON
	if c.safe() {
		header["Vary"] = varyAccept
	}
	c.send(http.StatusOK)
	return nil
}

func (c *call) send(status int) {
	c.status = status
	if c.quoted {
		c.out = quoteInt64(c.out)
	}
	if len(c.out) > bufferedBytes { // net/http would send it in chunks
		c.w.Header()["Content-Length"] = []string{strconv.Itoa(len(c.out))}
	}
	if status != http.StatusOK {
		c.w.WriteHeader(status)
	}
	_, _ = c.w.Write(c.out) // a client that is gone can't be told
}

// fail sends a problem, unless a reply was begun.
func (c *call) fail(err error) {
	detail := server.Detail
	if c.safe() {
		detail = server.ReadDetail
	}
	p := problemOf(err, detail).of(tokenHeader)
	if c.unmatched && errors.Is(err, store.ErrChanged) {
		p.detail = "no write can be made at this ETag, which is weak or that of several cells: read with read=exact, and use the ETag of that"
	}
	c.log(p)
	if c.status != 0 {
		return
	}
	header := c.w.Header()
	header["Content-Type"] = typeProblem
	header["Cache-Control"] = cacheNever
	switch {
	case p.retryAfter > 0:
		header.Set("Retry-After", strconv.FormatInt(p.retryAfter, 10))
	case p.status == http.StatusServiceUnavailable:
		header.Set("Retry-After", retryAfterSeconds)
	}
	c.out = append(appendProblem(c.out[:0], p, c.id), '\n')
	c.send(p.status)
}

// log says what the caller is not told of a problem.
func (c *call) log(p *problem) {
	if p.cause == nil {
		return
	}
	level := slog.LevelWarn
	if p.status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	c.h.logger.Log(c.ctx, level, "call failed", "request_id", c.id, "method", c.r.Method, "route", c.path, "error", p.cause)
}

// take takes memory from the budget, once for a call and until its end. A
// little is free.
func (c *call) take(n int64) (err error) {
	if n > freeBytes {
		c.taken, err = c.h.budget.Take(c.ctx, n)
	}
	return err
}

// body returns the request's body of at most limit bytes. It is valid until
// the call ends.
func (c *call) body(limit int64) ([]byte, error) {
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	if c.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	paid, err := c.readBody(http.MaxBytesReader(c.w, c.r.Body, limit), limit)
	if err == nil {
		return c.in, c.pay(access.Cost{Bytes: max(int64(len(c.in))-paid, 0)})
	}
	if _, ok := errors.AsType[*store.Error](err); ok {
		return nil, err
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return nil, p
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &problem{
			status: http.StatusRequestTimeout, kind: "timeout", title: "Request too slow",
			detail: "the body did not arrive in time",
		}
	}
	return nil, invalid("body", "it ended too early")
}

func tooLarge(limit int64) *problem {
	return ofKind(store.KindTooLarge, "body: at most "+strconv.FormatInt(limit, 10)+" bytes")
}

// readBody reads r into in. It takes memory for what is not small when the
// free part has arrived: who announces a body and does not send it takes
// nothing from others. Before it takes some, the caller pays for the bytes that it
// announces, so that its quota bounds what slow bodies hold; paid is how many.
func (c *call) readBody(r io.Reader, limit int64) (paid int64, err error) {
	if cap(c.in) == 0 {
		c.in = make([]byte, 0, 512)
	}
	size := c.r.ContentLength // -1 if it is not announced
	free := size >= 0 && size <= freeBytes
	for {
		if !free && len(c.in) >= freeBytes {
			if size < 0 {
				size, paid = limit, int64(len(c.in))
			} else {
				paid = size
			}
			if err := c.pay(access.Cost{Bytes: paid}); err != nil {
				return 0, err
			}
			if err := c.take(bodyCost(size, limit)); err != nil {
				return paid, err
			}
			free = true
			if c.r.ContentLength > 0 {
				c.in = slices.Grow(c.in, int(size)-len(c.in))
			}
		}
		if len(c.in) == cap(c.in) {
			c.in = append(c.in, 0)[:len(c.in)]
		}
		end := cap(c.in)
		if !free {
			end = min(end, freeBytes)
		}
		n, err := r.Read(c.in[len(c.in):end])
		c.in = c.in[:len(c.in)+n]
		if err == io.EOF {
			return paid, nil
		}
		if err != nil {
			return paid, err
		}
	}
}

// bodyCost returns about how much memory a call with a body of so many bytes
// takes: the body, and if it may list counters, those.
func bodyCost(size, limit int64) int64 {
	if limit == bodyBytesMax {
		return size
	}
	return size + entryBytes*min(size/entryBodyBytes, store.BatchDeltasMax)
}

// parseQuery parses the parameters after the question mark. One that the route
// does not know is more likely a slip than meant to be ignored.
func (c *call) parseQuery() (err error) {
	if c.r.URL.RawQuery == "" || c.anyQuery { // Fast path.
		return c.parseInt64()
	}
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return invalid("query", err.Error())
	}
	if err := c.parseInt64(); err != nil {
		return err
	}
	for name, values := range c.query {
		if name != int64Parameter && !slices.Contains(c.known, name) {
			return invalid(name, "this path has no parameter of this name")
		}
		if len(values) > 1 {
			return invalid(name, "given more than once")
		}
	}
	return nil
}

// writeOptions fills opts with what the headers ask of a write.
func (c *call) writeOptions() error {
	token, err := c.token()
	if err != nil {
		return err
	}
	if token != "" {
		c.opts = append(c.opts, quipu.Token(token))
	}
	if c.minimal() {
		c.w.Header()["Preference-Applied"] = appliedMinimal
	} else {
		c.opts = append(c.opts, quipu.WantValue())
	}
	version, ok, err := c.precondition()
	if ok {
		c.opts = append(c.opts, quipu.IfVersion(version))
	}
	return err
}

// token returns the Idempotency-Key, or "" if there is none. Between double
// quotes it is a string of RFC 9651, as the draft of that header wants it;
// bare, it is what it is, as most clients send it.
func (c *call) token() (string, error) {
	vs := c.r.Header[tokenHeader]
	if vs == nil {
		return "", nil
	}
	const field = tokenHeader
	if len(vs) > 1 {
		return "", invalid(field, "given more than once")
	}
	v := vs[0]
	if strings.HasPrefix(v, `"`) {
		var ok bool
		if v, ok = unquote(v); !ok {
			return "", invalid(field, "its quotation marks are not closed, or something follows them")
		}
	}
	if v == "" {
		return "", invalid(field, "it is empty")
	}
	return v, nil
}

// unquote returns what is between the double quotes of an RFC 9651 string.
func unquote(v string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '"':
			return b.String(), i == len(v)-1
		case '\\':
			i++
			if i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", false
			}
			b.WriteByte(v[i])
		default:
			b.WriteByte(v[i])
		}
	}
	return "", false
}

// minimal reports whether the caller prefers no value (RFC 7240).
func (c *call) minimal() bool {
	for _, v := range c.r.Header["Prefer"] {
		for p := range strings.SplitSeq(v, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			if strings.EqualFold(name, "return") && strings.Trim(value, `"`) == "minimal" {
				return true
			}
		}
	}
	return false
}

// precondition returns the version that the counter must be at, if the caller
// gave one.
func (c *call) precondition() (version uint64, ok bool, err error) {
	match, none := c.r.Header["If-Match"], c.r.Header["If-None-Match"]
	switch {
	case match == nil && none == nil: // Fast path.
		return 0, false, nil
	case match != nil && none != nil:
		return 0, false, invalid("If-Match", "give it or If-None-Match, not both")
	case none != nil:
		if len(none) != 1 || none[0] != "*" {
			return 0, false, invalid("If-None-Match", "a write accepts only *")
		}
		return 0, true, nil
	case len(match) != 1 || match[0] == "*" || strings.Contains(match[0], ","):
		return 0, false, invalid("If-Match", "want one ETag, as a read returned it")
	}
	// A version of several cells is left to the store: it refuses the write, and
	// makes a split counter one cell again, so that the next read has a version.
	if strings.HasPrefix(match[0], weak) {
		c.unmatched = true
		return quipu.VersionMixed, true, nil
	}
	version, ok = parseETag(match[0])
	if !ok { // the ETag of something else: nothing can match it
		return 0, false, store.ErrChanged
	}
	c.unmatched = version >= quipu.VersionMixed
	return version, true, nil
}

// weak is what the ETag of a value begins with that is made up of several cells.
const weak = "W/"

// etag returns the ETag of a counter at a version.
func etag(version uint64) string {
	var room [24]byte
	b := room[:0]
	if version >= quipu.VersionMixed {
		b = append(b, weak...)
	}
	return string(append(strconv.AppendUint(append(b, '"'), version, 10), '"'))
}

func parseETag(s string) (uint64, bool) {
	if len(s) < 3 || s[0] != '"' || s[len(s)-1] != '"' {
		return 0, false
	}
	digits := s[1 : len(s)-1]
	v, err := strconv.ParseUint(digits, 10, 64)
	return v, err == nil && strconv.FormatUint(v, 10) == digits
}
