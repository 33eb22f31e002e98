package otlp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quipudb/quipu/internal/otlp"
	"github.com/quipudb/quipu/internal/otlp/otlptest"
	"github.com/quipudb/quipu/internal/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func export(t *testing.T, c *otlptest.Collector, o otlp.Options) (*trace.Tracer, *otlp.Exporter) {
	t.Helper()
	o.URL, o.Logger = endpoint(t, c.URL), slog.New(slog.DiscardHandler)
	e := otlp.New(o)
	t.Cleanup(func() { closed(t, e) })
	return trace.NewTracer(e, 1), e
}

func endpoint(t *testing.T, base string) string {
	t.Helper()
	to, err := otlp.Endpoint(base)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func closed(t *testing.T, e *otlp.Exporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = e.Close(ctx) // a test that loses spans says so
}

func meters(e *otlp.Exporter) map[string]float64 {
	all := map[string]float64{}
	e.Meters(func(name, _ string, value float64) { all[name] = value })
	return all
}

// A collector gets all of a span, and finds its place in the trace.
func TestExport(t *testing.T) {
	c := otlptest.For(t)
	tracer, e := export(t, c, otlp.Options{
		Headers: map[string]string{"X-Key": "secret"}, Version: "v1",
		Resource: []trace.Attribute{trace.Text("service.name", "shop")},
	})
	parent, _ := trace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	parent.State = "other=1"
	s := tracer.Begin(parent, "GET /things", trace.Server)
	s.Set(trace.Text("route", "/things"), trace.Number("status", 503), trace.Number("below", -1))
	other := tracer.Begin(trace.Context{}, "other", trace.Internal)
	child := s.Child("store read", trace.Client)
	child.Link(other)
	child.End()
	s.Fail("it is down")
	s.End()
	closed(t, e)

	spans := c.Spans()
	if len(spans) != 2 {
		t.Fatalf("got %+v", spans)
	}
	in, out := spans[0], spans[1]
	if !bytes.Equal(out.TraceID, parent.Trace[:]) || !bytes.Equal(out.ParentID, parent.Span[:]) || out.TraceState != "other=1" || out.Kind != otlptest.Server ||
		out.Name != "GET /things" || out.Status.Code != otlptest.Failed || out.Status.Message != "it is down" || out.Flags != 1 {
		t.Errorf("got %+v", out)
	}
	if got := otlptest.Of(out.Attributes, "route") + otlptest.Of(out.Attributes, "status") + otlptest.Of(out.Attributes, "below"); got != "/things503-1" {
		t.Errorf("attributes %s", got)
	}
	if !bytes.Equal(in.TraceID, parent.Trace[:]) || !bytes.Equal(in.ParentID, out.SpanID) || in.Kind != otlptest.Client || in.Status.Code != 0 {
		t.Errorf("got %+v", in)
	}
	if len(in.Links) != 1 || !bytes.Equal(in.Links[0].TraceID, other.Trace[:]) || !bytes.Equal(in.Links[0].SpanID, other.Context.Span[:]) {
		t.Errorf("links %+v", in.Links)
	}
	if in.Start < out.Start || in.End > out.End || in.End < in.Start || time.Since(time.Unix(0, int64(out.Start))) > time.Minute {
		t.Errorf("%d to %d in %d to %d", in.Start, in.End, out.Start, out.End)
	}
	resource, scope, headers := c.Resource()
	if otlptest.Of(resource, "service.name") != "shop" || scope != "github.com/quipudb/quipu" || headers.Get("X-Key") != "secret" {
		t.Errorf("%+v of %q with %v", resource, scope, headers)
	}
	if m := meters(e); m["quipu_trace_spans_total"] != 2 || m["quipu_trace_dropped_total"] != 0 {
		t.Errorf("meters %v", m)
	}
}

// Spans go out soon, and not only at the end.
func TestSoon(t *testing.T) {
	c := otlptest.For(t)
	tracer, _ := export(t, c, otlp.Options{})
	tracer.Begin(trace.Context{}, "one", trace.Server).End()
	c.Await(t, func(s []otlptest.Span) bool { return len(s) == 1 })
}

// A collector that asks for patience gets the same spans again, and what it will never take
// is not sent again.
func TestAgain(t *testing.T) {
	f := func(status int, wantSpans, wantRequests int) {
		t.Helper()
		c := otlptest.For(t)
		var requests atomic.Int32
		c.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
			if requests.Add(1) > 1 {
				return false
			}
			w.WriteHeader(status)
			return true
		}
		tracer, e := export(t, c, otlp.Options{})
		tracer.Begin(trace.Context{}, "one", trace.Server).End()
		closed(t, e)
		if got := len(c.Spans()); got != wantSpans || int(requests.Load()) != wantRequests {
			t.Errorf("after %d: %d spans by %d requests", status, got, requests.Load())
		}
		m := meters(e)
		if m["quipu_trace_spans_total"]+m["quipu_trace_dropped_total"] != 1 || m["quipu_trace_failures_total"] != 1 || m["quipu_trace_spans_total"] != float64(wantSpans) {
			t.Errorf("after %d: meters %v", status, m)
		}
	}
	f(http.StatusServiceUnavailable, 1, 2)
	f(http.StatusTooManyRequests, 1, 2)
	f(http.StatusBadRequest, 0, 1)
	f(http.StatusTemporaryRedirect, 0, 1)
}

// What a collector refuses of a request is metered.
func TestRejected(t *testing.T) {
	c := otlptest.For(t)
	c.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
		_, _ = w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial))
		return true
	}
	tracer, e := export(t, c, otlp.Options{})
	for range 3 {
		tracer.Begin(trace.Context{}, "one", trace.Server).End()
	}
	closed(t, e)
	if m := meters(e); m["quipu_trace_spans_total"] != 1 || m["quipu_trace_rejected_total"] != 2 {
		t.Errorf("meters %v", m)
	}
}

// A collector that hangs makes nobody wait: what is too much is dropped, and Close ends
// when it must.
func TestHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	e := otlp.New(otlp.Options{URL: endpoint(t, "http://"+l.Addr().String()), Logger: slog.New(slog.DiscardHandler)})
	tracer := trace.NewTracer(e, 1)
	const spans = 10_000
	for range spans {
		tracer.Begin(trace.Context{}, "one", trace.Server).End()
	}
	dropped := meters(e)["quipu_trace_dropped_total"]
	if dropped < spans-4096-2*512 {
		t.Errorf("%v of %d were dropped: the queue has no limit", dropped, spans)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := e.Close(ctx); err == nil {
		t.Error("nobody says that spans were lost")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	if got := meters(e)["quipu_trace_dropped_total"]; got != spans {
		t.Errorf("%v of %d were dropped in the end", got, spans)
	}
}

func TestEndpoint(t *testing.T) {
	f := func(base, want string) {
		t.Helper()
		got, err := otlp.Endpoint(base)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", base, got, err)
		}
	}
	f("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces")
	f("https://collector.example/", "https://collector.example/v1/traces")
	f("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces")
	f("http://c:4318/v1/traces", "http://c:4318/v1/traces")
	f("", "")
	f("127.0.0.1:4318", "")
	f("grpc://127.0.0.1:4317", "")
	f("http://c/?x=1", "")
	f("http://c:bad", "")
}
