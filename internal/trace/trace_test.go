package trace_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/trace"
)

// sink keeps spans.
type sink struct{ spans []*trace.Span }

func (s *sink) Take(span *trace.Span) { s.spans = append(s.spans, span) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// FuzzParent reads what a stranger may send, and never takes what it would not send on.
func FuzzParent(f *testing.F) {
	for _, s := range []string{parent, "", "00", strings.Repeat("-", 55), "cc" + parent[2:] + "-more"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := trace.ParseParent(s)
		if ok != c.Valid() {
			t.Fatalf("%q: %v, but %+v", s, ok, c)
		}
		if !ok {
			return
		}
		again, ok := trace.ParseParent(c.Parent())
		if !ok || again != c {
			t.Fatalf("%q: %+v, and again %+v", s, c, again)
		}
		if len(s) == len(parent) && c.Parent()[2:53] != s[2:53] {
			t.Fatalf("%q became %q", s, c.Parent())
		}
	})
}

// The cases of the W3C's recommendation.
func TestParseParent(t *testing.T) {
	f := func(s string, ok, sampled bool) {
		t.Helper()
		c, got := trace.ParseParent(s)
		if got != ok || c.Sampled != sampled {
			t.Errorf("%q: %+v, %v", s, c, got)
		}
	}
	f(parent, true, true)
	f(parent[:53]+"00", true, false)
	f(parent[:53]+"ff", true, true)
	f(parent[:53]+"02", true, false)
	f("01"+parent[2:], true, true)
	f("cc"+parent[2:]+"-what the future will be like", true, true)
	f("cc"+parent[2:]+".what the future will not be like", false, false)
	f("ff"+parent[2:], false, false)
	f(parent+"-x", false, false)
	f(parent+" ", false, false)
	f(strings.ToUpper(parent), false, false)
	f("00-00000000000000000000000000000000-b7ad6b7169203331-01", false, false)
	f("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false, false)
	f("00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01", false, false)
	f("0x"+parent[2:], false, false)
	f(strings.Replace(parent, "af", "+f", 1), false, false)
}

func TestExtract(t *testing.T) {
	f := func(parents, states []string, ok bool, state string) {
		t.Helper()
		c, got := trace.Extract(parents, states)
		if got != ok || c.State != state {
			t.Errorf("%q, %q: %+v, %v", parents, states, c, got)
		}
	}
	f(nil, nil, false, "")
	f([]string{parent}, nil, true, "")
	f([]string{parent, parent}, nil, false, "")
	f([]string{parent}, []string{"a=1", "b=2"}, true, "a=1,b=2")
	f([]string{parent}, []string{"a=\n"}, true, "")
	f([]string{parent}, []string{strings.Repeat("x", 513)}, true, "")
	f([]string{parent[:53] + "00"}, []string{"a=1"}, true, "")
}

// A caller decides whether its call is sampled, and else the ratio does.
func TestSampling(t *testing.T) {
	f := func(ratio float64, header string, least, most int) {
		t.Helper()
		c, _ := trace.ParseParent(header)
		tracer, n := trace.NewTracer(&sink{}, ratio), 0
		for range 4000 {
			if s := tracer.Begin(c, "x", trace.Server); s != nil {
				n++
			}
		}
		if n < least || n > most {
			t.Errorf("%v of %q: %d of 4000", ratio, header, n)
		}
	}
	f(1, "", 4000, 4000)
	f(0, "", 0, 0)
	f(math.NaN(), "", 0, 0)
	f(0.25, "", 700, 1300) // further off once in 10^30
	f(0, parent, 4000, 4000)
	f(1, parent[:53]+"00", 0, 0)
	f(1, parent[:10], 4000, 4000)
}

// A span continues the trace of its caller, or begins one.
func TestSpans(t *testing.T) {
	var s sink
	tracer := trace.NewTracer(&s, 1)
	c, _ := trace.ParseParent(parent)
	root, own := tracer.Begin(c, "root", trace.Server), tracer.Begin(trace.Context{}, "own", trace.Server)
	if root.Trace != c.Trace || root.Parent != c.Span || root.Context.Span == c.Span || !root.Valid() {
		t.Errorf("%+v", root)
	}
	if own.Trace == c.Trace || own.Parent != (trace.SpanID{}) || !own.Valid() {
		t.Errorf("%+v", own)
	}
	child := trace.From(trace.With(t.Context(), root)).Child("child", trace.Client)
	if child.Trace != root.Trace || child.Parent != root.Context.Span || child.Context.Span == root.Context.Span {
		t.Errorf("%+v", child)
	}
	child.End()
	root.End()
	if len(s.spans) != 2 || s.spans[0] != child || s.spans[1] != root || child.Ended.Before(child.Began) {
		t.Errorf("%+v", s.spans)
	}
}

// What a span may hold has limits.
func TestLimits(t *testing.T) {
	tracer := trace.NewTracer(&sink{}, 1)
	s, other := tracer.Begin(trace.Context{}, "x", trace.Server), tracer.Begin(trace.Context{}, "y", trace.Server)
	for range 100 {
		s.Set(trace.Text("k", strings.Repeat("ü", 1000)), trace.Number("n", 1))
		s.Link(other)
	}
	s.Fail(strings.Repeat("\xff", 1000))
	if len(s.Attributes) != 16 || len(s.Links) != 32 || len(s.Attributes[0].Text) > 256+3 || len(s.Failure) > 3*256 {
		t.Errorf("%d attributes, %d links, %d bytes, %d bytes", len(s.Attributes), len(s.Links), len(s.Attributes[0].Text), len(s.Failure))
	}
}

// What is not traced costs nothing.
func TestNothing(t *testing.T) {
	ctx, tracer := context.Background(), (*trace.Tracer)(nil)
	if n := testing.AllocsPerRun(1000, func() {
		s := tracer.Begin(trace.Context{}, "x", trace.Server)
		if trace.With(ctx, s) != ctx {
			t.Error("it is carried")
		}
		c := trace.From(ctx).Child("y", trace.Client)
		c.Set(trace.Number("n", 1))
		c.Link(s)
		c.Fail("")
		c.End()
		s.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
