package node_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store"
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

// of returns the spans of a name.
func (s *spans) of(name string) (some []*trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.all {
		if span.Name == name {
			some = append(some, span)
		}
	}
	return some
}

// Callers whose calls are sampled find their flight: it is a part of the first of them, and
// names the others. Each attempt has a span.
func TestFlightsHaveSpans(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		var got spans
		tracer := trace.NewTracer(&got, 1)
		release := k.blocked()
		var callers []*trace.Span
		k.do(add("a", 1)) // not sampled
		for range 3 {
			s := tracer.Begin(trace.Context{}, "caller", trace.Server)
			callers = append(callers, s)
			k.begin(trace.With(k.ctx, s), k.batch(add("a", 1)))
		}
		k.failures(store.ErrUnknown)
		release()
		pass(10 * time.Second) // it is sent again
		k.holds("a", 4)

		calls, sent := got.of("store apply"), got.of("store send")
		if len(calls) != 3 || len(sent) != 2 || len(got.all) != 5 {
			t.Fatalf("%d calls, %d attempts, %d spans", len(calls), len(sent), len(got.all))
		}
		slices.SortFunc(calls, func(a, b *trace.Span) int { return a.Began.Compare(b.Began) })
		for _, c := range calls {
			at := slices.IndexFunc(callers, func(s *trace.Span) bool { return s.Trace == c.Trace })
			if at < 0 || c.Parent != callers[at].Context.Span || c.Kind != trace.Client || c.Failed {
				t.Errorf("a call is %+v", c)
			}
		}
		for i, s := range sent {
			first := slices.IndexFunc(calls, func(c *trace.Span) bool { return c.Context.Span == s.Parent })
			if first < 0 || s.Trace != calls[first].Trace || len(s.Links) != 2 || s.Links[0].Trace == s.Trace || s.Links[1].Trace == s.Trace || s.Links[0].Trace == s.Links[1].Trace {
				t.Errorf("attempt %d is %+v", i, s)
			}
		}
		if !sent[0].Failed || sent[0].Failure != "unknown" || sent[1].Failed {
			t.Errorf("the attempts: %+v, %+v", sent[0], sent[1])
		}
		slices.SortFunc(sent[1].Attributes, func(a, b trace.Attribute) int { return len(a.Key) - len(b.Key) })
		if at := slices.IndexFunc(sent[1].Attributes, func(a trace.Attribute) bool { return a.Key == "quipu.calls" }); at < 0 || sent[1].Attributes[at].Number != 4 {
			t.Errorf("the attempt says %+v", sent[1].Attributes)
		}
	})
}

// Reads have spans too, and a failure says its kind alone.
func TestReadsHaveSpans(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		var got spans
		ctx := trace.With(k.ctx, trace.NewTracer(&got, 1).Begin(trace.Context{}, "caller", trace.Server))
		read := func() error { return k.node.Read(ctx, []store.Cell{cell("a")}, make([]store.Value, 1)) }
		if err := read(); err != nil {
			t.Fatal(err)
		}
		k.away(store.Errorf(store.KindUnavailable, "secret"))
		if err := read(); err == nil {
			t.Fatal("it was read")
		}
		k.back()
		if s := got.of("store read"); len(s) != 2 || s[0].Failed || s[1].Failure != "unavailable" || s[1].Kind != trace.Client {
			t.Errorf("%+v", s)
		}
	})
}

// Calls without a span allocate nothing for it.
func TestNoSpans(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		if trace.From(t.Context()).Child("x", trace.Client) != nil {
			t.Error("a span")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
