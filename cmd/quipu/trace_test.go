package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/otlp/otlptest"
	"github.com/quipudb/quipu/internal/pgtest"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var (
	traceID    = []byte{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c}
	callerSpan = []byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}
)

// spansOf returns the spans of a trace that have a name.
func spansOf(spans []otlptest.Span, name string) (some []otlptest.Span) {
	for _, s := range spans {
		if s.Name == name && bytes.Equal(s.TraceID, traceID) {
			some = append(some, s)
		}
	}
	return some
}

// A caller that traces its calls finds what the server did for them, down to what was sent to
// the store, over REST and RPC.
func TestTraces(t *testing.T) {
	redis := redisproc.For(t)
	for _, store := range []struct{ name, url, system string }{
		{"postgres", pgtest.For(t).URL(), "postgresql"},
		{"redis", "redis://" + redis.Addr, "redis"},
		{"memory", "memory:", ""},
	} {
		t.Run(store.name, func(t *testing.T) {
			c := otlptest.For(t)
			p := start(t, []string{"OTEL_SERVICE_NAME=counters", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test%20one", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b"},
				"--http", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--resp", "off", "--store", store.url, "--trace-endpoint", c.URL, "--trace-sample", "0")
			increment(t, p.url+"/api/v1/counters/plain/increment", "") // not sampled
			increment(t, p.url+"/api/v1/counters/secret/increment", traceParent)
			db, err := client.Dial(t.Context(), p.addrOf("rpc"), client.Options{Trace: func(context.Context) (string, string) { return traceParent, "" }})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Add(t.Context(), "secret", 1); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if code, _ := p.signal(syscall.SIGTERM); code != 0 { // which sends what waits
				t.Errorf("exit %d: %s", code, p.stderr)
			}
			spans := c.Spans()
			for _, name := range []string{"POST /api/v1/counters/{key}/increment", "quipu.v1.Quipu/Add"} {
				doors := spansOf(spans, name)
				if len(doors) != 1 || !bytes.Equal(doors[0].ParentID, callerSpan) || doors[0].Kind != otlptest.Server || doors[0].End <= doors[0].Start {
					t.Fatalf("%s: %+v", name, doors)
				}
				if store.system == "" {
					continue
				}
				calls := slices.DeleteFunc(spansOf(spans, "store apply"), func(s otlptest.Span) bool { return !bytes.Equal(s.ParentID, doors[0].SpanID) })
				if len(calls) == 0 || otlptest.Of(calls[0].Attributes, "db.system.name") != store.system || calls[0].Kind != otlptest.Client {
					t.Fatalf("%s: no call of the store, but %+v", name, calls)
				}
				sent := slices.DeleteFunc(spansOf(spans, "store send"), func(s otlptest.Span) bool { return !bytes.Equal(s.ParentID, calls[0].SpanID) })
				if len(sent) == 0 {
					t.Errorf("%s: nothing was sent", name)
				}
			}
			for _, s := range spans {
				if !bytes.Equal(s.TraceID, traceID) || strings.Contains(fmt.Sprintf("%+v", s), "secret") {
					t.Errorf("got %+v", s)
				}
			}
			resource, _, headers := c.Resource()
			if otlptest.Of(resource, "service.name") != "counters" || otlptest.Of(resource, "service.version") == "" ||
				otlptest.Of(resource, "deployment.environment.name") != "test one" || headers.Get("X-Key") != "a b" {
				t.Errorf("they come from %+v with %v", resource, headers)
			}
		})
	}
}

// increment adds 1 to a counter.
func increment(t *testing.T, url, traceparent string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Body.Close(); err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", reply.Status, err)
	}
}

// A server in whose environment OpenTelemetry is set up needs no flag, and --trace-endpoint off
// or a protocol that it does not speak mean that nothing is traced.
func TestTraceEnvironment(t *testing.T) {
	f := func(traced bool, logged string, env []string, flags ...string) {
		t.Helper()
		c := otlptest.For(t)
		for i := range env {
			env[i] = strings.ReplaceAll(env[i], "URL", c.URL)
		}
		p := start(t, env, append(flags, "--http", "127.0.0.1:0", "--rpc", "off", "--resp", "off", "--store", "memory:")...)
		increment(t, p.url+"/api/v1/counters/a/increment", "")
		if code, _ := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("exit %d: %s", code, p.stderr)
		}
		if got := len(c.Spans()); got != 0 != traced {
			t.Errorf("%q %q: %d spans", env, flags, got)
		}
		if !strings.Contains(p.stderr.String(), logged) || strings.Contains(p.stderr.String(), "secret") {
			t.Errorf("%q %q: logged %s", env, flags, p.stderr)
		}
	}
	f(true, "tracing calls", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL"})
	f(true, "tracing calls", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=URL/v1/traces", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"})
	f(true, "tracing calls", []string{"QUIPU_TRACE_ENDPOINT=URL"})
	f(false, "", nil)
	f(false, "", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL"}, "--trace-endpoint", "off")
	f(false, "", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_SDK_DISABLED=true"})
	f(false, "tracing calls", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL"}, "--trace-sample", "0")
	f(false, "calls are not traced", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"})
	f(false, "calls are not traced", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=URL", "OTEL_EXPORTER_OTLP_HEADERS=a=1,=secret"})
	f(false, "calls are not traced", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=nonsense"})
	refused(t, 2, "--trace-endpoint: want an http or https URL", "serve", "--store", "memory:", "--trace-endpoint", "127.0.0.1:4318")
	for _, ratio := range []string{"2", "-0.1", "NaN"} {
		refused(t, 2, "--trace-sample: want a number from 0 to 1", "serve", "--store", "memory:", "--trace-sample="+ratio)
	}
}

// A server whose collector hangs serves, meters what is lost, and ends in time.
func TestTraceCollectorHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := start(t, nil, "--http", "127.0.0.1:0", "--rpc", "off", "--resp", "off", "--store", "memory:", "--trace-endpoint", "http://"+l.Addr().String())
	for range 100 {
		increment(t, p.url+"/api/v1/counters/a/increment", "")
	}
	if got := p.client()("get", "a"); got != "100" {
		t.Errorf("a is %s", got)
	}
	began := time.Now()
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
	if took := time.Since(began); took > endMax {
		t.Errorf("it took %s to end", took)
	}
	if !strings.Contains(p.stderr.String(), "traces were lost at the end") {
		t.Errorf("logged %s", p.stderr)
	}
}
