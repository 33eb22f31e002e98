package client_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store/memstore"
)

// spans keeps spans.
type spans struct {
	mu  sync.Mutex
	all []*trace.Span
}

func (s *spans) Take(span *trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, span)
}

func (s *spans) named(name string) []*trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(s *trace.Span) bool { return s.Name != name })
}

type traceKey struct{}

// The server's span of a call is a part of the trace that the caller's context is of.
func TestTrace(t *testing.T) {
	var got spans
	s := serveWith(t, quipu.New(memstore.New(memstore.Options{}), quipu.Options{}), rpc.Options{Tracer: trace.NewTracer(&got, 0)})
	c := s.dial(client.Options{Trace: func(ctx context.Context) (string, string) {
		parent, _ := ctx.Value(traceKey{}).(string)
		return parent, "other=1"
	}})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	f := func(parent string, spans int, call func(ctx context.Context) error, name string, failed bool) {
		t.Helper()
		got.mu.Lock()
		got.all = nil
		got.mu.Unlock()
		_ = call(context.WithValue(t.Context(), traceKey{}, parent))
		all := got.named(name)
		if len(all) != spans {
			t.Errorf("%q: %d spans of %s", parent, len(all), name)
		}
		for _, s := range all {
			if s.Context.Parent()[:35] != parent[:35] || s.Parent != [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31} || s.State != "other=1" || s.Kind != trace.Server || s.Failed != failed {
				t.Errorf("%+v", s)
			}
		}
	}
	add := func(ctx context.Context) error { _, err := c.Add(ctx, "a", 1); return err }
	backup := func(ctx context.Context) error { return c.Backup(ctx, discard{}) }
	f(parent, 1, add, "quipu.v1.Quipu/Add", false)
	f(parent[:53]+"00", 0, add, "quipu.v1.Quipu/Add", false)
	f("", 0, add, "quipu.v1.Quipu/Add", false)
	f("nonsense\x00", 0, add, "quipu.v1.Quipu/Add", false)
	f(parent, 1, backup, "quipu.v1.Quipu/Backup", true) // memory: can't copy itself
	f(parent, 0, func(ctx context.Context) error { return add(context.WithValue(ctx, traceKey{}, nil)) }, "quipu.v1.Quipu/Add", false)
}

// discard takes everything.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// The batches of a writer carry the adds of many, and have traces of their own.
func TestWriterTrace(t *testing.T) {
	var got spans
	s := serveWith(t, quipu.New(memstore.New(memstore.Options{}), quipu.Options{}), rpc.Options{Tracer: trace.NewTracer(&got, 1)})
	c := s.dial(client.Options{})
	w, err := c.Writer(t.Context(), client.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := got.named("quipu.v1.Quipu/Write")
	if len(all) == 0 {
		t.Fatal("no spans")
	}
	adds := int64(0)
	for _, s := range all {
		for _, a := range s.Attributes {
			if a.Key == "quipu.adds" {
				adds += a.Number
			}
		}
		if s.Parent != (trace.SpanID{}) || s.Failed {
			t.Errorf("%+v", s)
		}
	}
	if adds != 1 {
		t.Errorf("%d adds", adds)
	}
}
