// Package otlp exports spans to a collector of OpenTelemetry, by its protocol over
// HTTP with protocol buffers.
//
// It promises that no call ever waits for the collector: what has ended waits in a
// queue, and what does not fit is dropped and metered. It is no more of the protocol
// than a server needs; OpenTelemetry's own SDK is not linked because of its size
// (docs/design/0006-dependencies.md).
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/trace"
)

const (
	queueMax     = 4096 // spans that wait, of about half a KiB each
	batchMax     = 512  // of one request
	sendEvery    = time.Second
	sendTimeout  = 10 * time.Second
	retriesMax   = 4                      // and at the end one
	retryFirst   = 500 * time.Millisecond // twice as long each time
	retryLongest = 30 * time.Second
	replyMax     = 64 << 10
)

// Path is where a collector takes spans.
const Path = "/v1/traces"

// Options are what an exporter is told.
type Options struct {
	// URL is that of the collector's receiver of spans, path included: see Endpoint.
	URL string

	// Headers are sent with every request.
	Headers map[string]string

	// Resource says what program the spans are of. Version is its version.
	Resource []trace.Attribute
	Version  string

	// Logger is told when spans are lost; nil for slog.Default().
	Logger *slog.Logger
}

// Endpoint returns the URL to which a collector at a base URL takes spans: with Path
// after it, unless it ends so.
func Endpoint(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("want an http or https URL, such as http://127.0.0.1:4318")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want a URL without a query and a fragment")
	}
	if !strings.HasSuffix(u.Path, Path) {
		u.Path = strings.TrimSuffix(u.Path, "/") + Path
	}
	return u.String(), nil
}

// An Exporter sends spans to a collector. It is a trace.Sink, and safe for concurrent
// use.
type Exporter struct {
	options Options
	client  *http.Client
	queue   chan *trace.Span
	writer  writer

	closing chan struct{} // closed when Close begins
	close   func()        // closes it
	ctx     context.Context
	cancel  context.CancelFunc // ends requests
	done    chan struct{}      // closed when nothing is sent any more

	exported, dropped, rejected, failures atomic.Uint64
}

// New returns an exporter. Close it after the last span.
func New(o Options) *Exporter {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	e := &Exporter{
		options: o,
		client: &http.Client{
			Timeout:       sendTimeout,
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers are for the collector alone
		},
		queue:   make(chan *trace.Span, queueMax),
		writer:  writer{resource: resource(o.Resource), scope: scope("github.com/quipudb/quipu", o.Version)},
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	e.close = sync.OnceFunc(func() { close(e.closing) })
	e.ctx, e.cancel = context.WithCancel(context.Background())
	go e.run()
	return e
}

// Take queues a span, or drops it if too many wait.
func (e *Exporter) Take(s *trace.Span) {
	select {
	case e.queue <- s:
	default:
		e.dropped.Add(1)
	}
}

// Close sends what waits, until ctx ends. Spans that come later are never sent. It
// returns an error if spans were lost that were queued before it.
func (e *Exporter) Close(ctx context.Context) error {
	lost := e.dropped.Load()
	e.close()
	defer context.AfterFunc(ctx, e.cancel)()
	<-e.done
	e.cancel()
	e.client.CloseIdleConnections()
	if lost = e.dropped.Load() - lost; lost > 0 {
		return fmt.Errorf("%d spans were not exported", lost)
	}
	return nil
}

// Meters calls f for each meter.
func (e *Exporter) Meters(f func(name, help string, value float64)) {
	f("quipu_trace_spans_total", "Spans that the collector has taken.", float64(e.exported.Load()))
	f("quipu_trace_dropped_total", "Spans that were dropped, because too many waited or the collector did not take them in time.", float64(e.dropped.Load()))
	f("quipu_trace_rejected_total", "Spans that the collector refused.", float64(e.rejected.Load()))
	f("quipu_trace_failures_total", "Requests to the collector that failed.", float64(e.failures.Load()))
	f("quipu_trace_waiting", "Spans that wait to be exported.", float64(len(e.queue)))
}

// run sends spans until Close, and then what is left.
func (e *Exporter) run() {
	defer close(e.done)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	batch := make([]*trace.Span, 0, batchMax)
	for open := true; open; {
		select {
		case s := <-e.queue:
			if batch = append(batch, s); len(batch) < batchMax {
				continue
			}
		case <-tick.C:
		case <-e.closing:
			open = false
			continue
		}
		batch = e.flush(batch)
	}
	for {
		select {
		case s := <-e.queue:
			if batch = append(batch, s); len(batch) == batchMax {
				batch = e.flush(batch)
			}
		default:
			e.flush(batch)
			return
		}
	}
}

// flush sends a batch, or gives it up, and returns it empty.
func (e *Exporter) flush(batch []*trace.Span) []*trace.Span {
	if len(batch) == 0 {
		return batch
	}
	rejected, err := e.export(e.writer.request(batch))
	if err != nil {
		e.dropped.Add(uint64(len(batch)))
		e.options.Logger.Warn("traces could not be exported", "error", err)
	} else {
		rejected = min(rejected, int64(len(batch)))
		e.rejected.Add(uint64(rejected))
		e.exported.Add(uint64(int64(len(batch)) - rejected))
	}
	clear(batch)
	return batch[:0]
}

// A refusal is a reply that is not 200.
type refusal struct {
	status int
	again  bool          // the same request may succeed later
	after  time.Duration // that the collector asks to wait
}

// Error says what the collector replied.
func (r *refusal) Error() string {
	return fmt.Sprintf("the collector replied %d %s", r.status, http.StatusText(r.status))
}

// export sends a request, again if that may help.
func (e *Exporter) export(request []byte) (rejected int64, err error) {
	for try := 0; ; try++ {
		if rejected, err = e.post(request); err == nil {
			return rejected, nil
		}
		e.failures.Add(1)
		pause := retryFirst << try
		if r, ok := errors.AsType[*refusal](err); ok {
			if !r.again {
				return 0, err
			}
			pause = max(pause, r.after)
		}
		if try == retriesMax || !e.pause(try, min(pause, retryLongest)) {
			return 0, err
		}
	}
}

// pause waits before another attempt, and reports whether there shall be one. At the end
// there is one, and if it fails nothing else is sent: that the collector can't be reached
// must not hold up the end for each request.
func (e *Exporter) pause(tries int, d time.Duration) bool {
	closing := e.closing
	select {
	case <-closing:
		if tries > 0 {
			e.cancel()
			return false
		}
		closing, d = nil, retryFirst
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-closing:
	case <-e.ctx.Done():
	}
	return e.ctx.Err() == nil
}

// post sends a request once.
func (e *Exporter) post(request []byte) (rejectedSpans int64, err error) {
	r, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.options.URL, bytes.NewReader(request))
	if err != nil {
		return 0, err
	}
	for name, value := range e.options.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "quipu-otlp/"+cmp.Or(e.options.Version, "unknown"))
	reply, err := e.client.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL may have a password
		}
		return 0, err
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(reply.Body, replyMax))
	if reply.StatusCode != http.StatusOK {
		return 0, refusalOf(reply)
	}
	if err != nil {
		return 0, err
	}
	return rejected(body), nil
}

func refusalOf(reply *http.Response) *refusal {
	r := &refusal{status: reply.StatusCode}
	switch reply.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r.again = true
	}
	if seconds, err := strconv.Atoi(reply.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = time.Second * time.Duration(min(seconds, 3600)) // and see retryLongest
	}
	return r
}
