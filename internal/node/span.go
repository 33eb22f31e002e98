package node

import (
	"context"

	"github.com/quipudb/quipu/internal/trace"
	"github.com/quipudb/quipu/store"
)

// A call that is sampled has a span for its time in the node and in the store. A flight
// with such calls has one too, which is a part of the first of them and names the
// others: so everybody finds out what was sent for them, and when.

// span begins the span of a call of the node, as a part of the one in ctx. It is nil if
// there is none.
func (n *Node) span(ctx context.Context, operation string) (context.Context, *trace.Span) {
	caller := trace.From(ctx)
	if caller == nil { // Fast path.
		return ctx, nil
	}
	s := n.describe(caller.Child("store "+operation, trace.Client), operation)
	return trace.With(ctx, s), s
}

func (n *Node) describe(s *trace.Span, operation string) *trace.Span {
	system := n.traits.Name
	if system == "postgres" {
		system = "postgresql" // as OpenTelemetry calls it
	}
	s.Set(trace.Text("db.system.name", system), trace.Text("db.operation.name", operation))
	return s
}

// end ends a span with what became of its work: the kind of an error, because its text may
// name what only the log has.
func end(s *trace.Span, err error) {
	if s == nil { // Fast path.
		return
	}
	if err != nil {
		s.Fail(store.KindOf(err).String())
	}
	s.End()
}

// depart begins the span of a flight, if one of its callers has one.
func (f *flight) depart() {
	for _, e := range f.entries {
		switch {
		case e.span == nil:
		case f.span == nil:
			f.span = f.lane.node.describe(e.span.Child("store send", trace.Client), "send")
		default:
			f.span.Link(e.span)
		}
	}
	if f.span != nil {
		f.span.Set(
			trace.Number("quipu.partition", int64(f.lane.partition)),
			trace.Number("quipu.calls", int64(len(f.entries))),
			trace.Number("quipu.changes", int64(len(f.batches[0].Deltas))),
		)
	}
}

// arrive ends the span of a flight.
func (f *flight) arrive(err error) {
	if f.span != nil {
		end(f.span, err)
		f.span = nil
	}
}
