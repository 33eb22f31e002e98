package rest

import (
	"net/http"
	"strings"

	"github.com/quipudb/quipu/internal/trace"
)

// spansOf returns what the spans of a route are called, or "" if it has none: probes
// and pages say nothing, and a live stream lasts as long as its reader looks.
func spansOf(r *route) string {
	if !strings.HasPrefix(r.path, apiPath+"/") || strings.HasSuffix(r.path, "/live") {
		return ""
	}
	if r.method == "other" {
		return "HTTP " + r.path
	}
	return r.method + " " + r.path
}

// trace begins the span of the call, if its caller wants one or it is sampled here.
// Headers are looked at by the names that net/http gives them.
func (c *call) trace() {
	parent, _ := trace.Extract(c.r.Header["Traceparent"], c.r.Header["Tracestate"])
	if c.traced = c.h.tracer.Begin(parent, c.spans, trace.Server); c.traced != nil {
		c.ctx = trace.With(c.ctx, c.traced)
	}
}

// endSpan ends the span. It says what the log may: no key of a counter, and nothing
// of what was sent.
func (c *call) endSpan() {
	c.traced.Set(
		trace.Text("http.request.method", c.r.Method),
		trace.Text("http.route", c.path),
		trace.Number("http.response.status_code", int64(c.status)),
		trace.Text("quipu.request_id", c.id),
	)
	if c.status >= http.StatusInternalServerError {
		c.traced.Fail("")
	}
	c.traced.End()
}
