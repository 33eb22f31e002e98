package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/trace"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// traced reports whether the calls of a method have spans. Health and reflection have
// none, nor has the stream of a writer, which lasts as long as its client: its batches
// have them.
func traced(full string) bool {
	return !strings.HasPrefix(full, "/grpc.") && full != pb.Quipu_Write_FullMethodName
}

// trace begins the span of the visit, if its caller wants one or it is sampled here.
func (v *visit) trace(info *tap.Info) {
	parent, _ := trace.Extract(info.Header.Get(trace.ParentHeader), info.Header.Get(trace.StateHeader))
	if v.span = v.door.tracer.Begin(parent, strings.TrimPrefix(info.FullMethodName, "/"), trace.Server); v.span != nil {
		v.Context = trace.With(v.Context, v.span)
	}
}

// endSpan ends the span of the visit.
func (v *visit) endSpan(full string, code codes.Code) {
	describe(v.span, full)
	v.span.Set(trace.Number("rpc.grpc.status_code", int64(code)))
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		v.span.Fail(code.String())
	default: // the caller knows what to do
	}
	v.span.End()
}

func describe(s *trace.Span, full string) {
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	s.Set(trace.Text("rpc.system", "grpc"), trace.Text("rpc.service", service), trace.Text("rpc.method", method))
}

// trace begins the span of a group of batches, if it is sampled. It begins a trace: the
// batches carry the adds of many callers of a client, and no context of theirs.
func (w *writeStream) trace(ctx context.Context) (context.Context, func()) {
	full := pb.Quipu_Write_FullMethodName
	s := w.door.tracer.Begin(trace.Context{}, strings.TrimPrefix(full, "/"), trace.Server)
	if s == nil {
		return ctx, func() {}
	}
	return trace.With(ctx, s), func() {
		describe(s, full)
		s.Set(trace.Number("quipu.batches", int64(len(w.requests))), trace.Number("quipu.adds", w.adds()))
		for i := range w.answers {
			if e := w.answers[i].Error; e != nil && server.StatusOf(store.Kind(e.Kind)).Private {
				s.Fail("a batch failed")
			}
		}
		s.End()
	}
}

// adds returns how many adds there are in the group.
func (w *writeStream) adds() (n int64) {
	for _, r := range w.requests {
		n += int64(len(r.Keys))
	}
	return n
}
