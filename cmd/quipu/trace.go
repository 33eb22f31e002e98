package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/otlp"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/trace"
)

// traceFlags say which calls are traced, and where to.
type traceFlags struct {
	TraceEndpoint string  `help:"OTLP/HTTP endpoint that gets traces, such as http://127.0.0.1:4318. By default what OTEL_EXPORTER_OTLP_ENDPOINT says, and off without it." placeholder:"URL"`
	TraceSample   float64 `help:"Which part of the calls without a trace context are traced, from 0 to 1. For others their callers decide." default:"1" placeholder:"RATIO"`
}

// flushLeast is the least time that is left for traces at the end.
const flushLeast = time.Second

// The environment of all programs with OpenTelemetry, as far as it means something here.
const (
	otelDisabled       = "OTEL_SDK_DISABLED"
	otelEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otelTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otelHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	otelTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	otelProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	otelTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	otelService        = "OTEL_SERVICE_NAME"
	otelResource       = "OTEL_RESOURCE_ATTRIBUTES"

	otlpProtocol = "http/protobuf"
)

// check returns an error that names a flag.
func (f *traceFlags) check() error {
	if f.TraceEndpoint != "" && f.TraceEndpoint != doorOff {
		if _, err := otlp.Endpoint(f.TraceEndpoint); err != nil {
			return &flagError{"trace-endpoint", err}
		}
	}
	if !(f.TraceSample >= 0 && f.TraceSample <= 1) { // NaN too
		return &flagError{"trace-sample", errors.New("want a number from 0 to 1")}
	}
	return nil
}

// endpoint returns the URL that spans are sent to, or "" if they are not. The flag goes
// before the environment, which is meant for many programs: an error of its is for the log.
func (f *traceFlags) endpoint() (string, error) {
	switch {
	case f.TraceEndpoint == doorOff:
		return "", nil
	case f.TraceEndpoint != "":
		return otlp.Endpoint(f.TraceEndpoint)
	case strings.EqualFold(os.Getenv(otelDisabled), "true"):
		return "", nil
	}
	whole, base := os.Getenv(otelTracesEndpoint), os.Getenv(otelEndpoint)
	if whole == "" && base == "" {
		return "", nil
	}
	if p := cmp.Or(os.Getenv(otelTracesProtocol), os.Getenv(otelProtocol), otlpProtocol); p != otlpProtocol {
		return "", fmt.Errorf("%s is %q: this server speaks %s, so give it --trace-endpoint", otelProtocol, p, otlpProtocol)
	}
	if whole != "" {
		if _, err := otlp.Endpoint(whole); err != nil {
			return "", fmt.Errorf("%s: %w", otelTracesEndpoint, err)
		}
		return whole, nil
	}
	to, err := otlp.Endpoint(base)
	if err != nil {
		return "", fmt.Errorf("%s: %w", otelEndpoint, err)
	}
	return to, nil
}

// traceHeaders returns the headers that the environment names, for collectors that want a
// key. Nothing of them is ever in an error.
func traceHeaders() (map[string]string, error) {
	headers := map[string]string{}
	for i, pair := range pairs(cmp.Or(os.Getenv(otelTracesHeaders), os.Getenv(otelHeaders))) {
		if !headerName.MatchString(pair.name) || !headerValue.MatchString(pair.value) {
			return nil, fmt.Errorf("%s: header %d: want NAME=VALUE, with commas between", otelHeaders, i+1)
		}
		headers[http.CanonicalHeaderKey(pair.name)] = pair.value
	}
	return headers, nil
}

var (
	headerName  = regexp.MustCompile(`^[-!#$%&'*+.^_|~0-9A-Za-z]+$`)
	headerValue = regexp.MustCompile(`^[\t -~]*$`)
)

// A pair is a name and its value.
type pair struct{ name, value string }

// pairs reads a list such as "a=1,b=2", whose values are escaped as in URLs.
func pairs(list string) (all []pair) {
	for one := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		name, value, _ := strings.Cut(one, "=")
		value = strings.TrimSpace(value)
		if plain, err := url.PathUnescape(value); err == nil {
			value = plain
		}
		all = append(all, pair{strings.TrimSpace(name), value})
	}
	return all
}

// traceResource returns what this server says of itself: what the environment says, and
// else its name, its version and its host.
func traceResource() (all []trace.Attribute) {
	host, _ := os.Hostname()
	own := []pair{{"service.name", "quipu"}, {"service.version", version}, {"host.name", host}}
	said := pairs(os.Getenv(otelResource))
	if name := os.Getenv(otelService); name != "" {
		said = append([]pair{{"service.name", name}}, said...)
	}
	known := map[string]bool{}
	for _, p := range append(said, own...) {
		if p.name != "" && p.value != "" && !known[p.name] {
			known[p.name] = true
			all = append(all, trace.Text(p.name, p.value))
		}
	}
	return all
}

// A tracing is what traces calls, or nil if nothing does.
type tracing struct {
	exporter *otlp.Exporter
	ratio    float64
	logger   *slog.Logger
	drained  atomic.Int64 // until when calls may take at the end, in Unix nanoseconds; 0 before that
}

// openTracing begins to trace, if this server is told to.
func (c *serveCmd) openTracing(ctx context.Context, logger *slog.Logger) (*tracing, error) {
	to, err := c.endpoint()
	var headers map[string]string
	if err == nil && to != "" {
		headers, err = traceHeaders()
	}
	switch {
	case err != nil && c.TraceEndpoint != "":
		return nil, err
	case err != nil:
		logger.Warn("calls are not traced", "error", err)
		return nil, nil
	case to == "":
		return nil, nil
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	logger.Info("tracing calls", "to", u.Redacted(), "sample", c.TraceSample)
	t := &tracing{
		exporter: otlp.New(otlp.Options{URL: to, Headers: headers, Resource: traceResource(), Version: version, Logger: logger}),
		ratio:    c.TraceSample,
		logger:   logger,
	}
	context.AfterFunc(ctx, func() { t.drained.Store(time.Now().Add(drainMax).UnixNano()) })
	return t, nil
}

func (t *tracing) tracer() *trace.Tracer {
	if t == nil {
		return nil
	}
	return trace.NewTracer(t.exporter, t.ratio)
}

// meters shows what becomes of spans, where there are any.
func (t *tracing) meters(m *server.Metrics) {
	if t != nil {
		m.WatchMeter(t.exporter)
	}
}

// close sends the spans that wait, until the drain must be over, and in any case for a
// moment.
func (t *tracing) close() {
	if t == nil {
		return
	}
	left := flushLeast
	if until := t.drained.Load(); until > 0 {
		left = max(left, time.Until(time.Unix(0, until)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	if err := t.exporter.Close(ctx); err != nil {
		t.logger.Warn("traces were lost at the end", "error", err)
	}
}
