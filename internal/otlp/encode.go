package otlp

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quipudb/quipu/internal/trace"
)

// The fields of the messages in opentelemetry/proto/collector/trace/v1/trace_service.proto,
// trace/v1/trace.proto, common/v1/common.proto and resource/v1/resource.proto that are
// written here. Their numbers never change.
const (
	requestResourceSpans = 1

	resourceSpansResource   = 1
	resourceSpansScopeSpans = 2

	resourceAttributes = 1

	scopeSpansScope = 1
	scopeSpansSpans = 2

	scopeName    = 1
	scopeVersion = 2

	spanTraceID    = 1
	spanSpanID     = 2
	spanTraceState = 3
	spanParentID   = 4
	spanName       = 5
	spanKind       = 6
	spanStart      = 7
	spanEnd        = 8
	spanAttributes = 9
	spanLinks      = 13
	spanStatus     = 15
	spanFlags      = 16

	linkTraceID    = 1
	linkSpanID     = 2
	linkTraceState = 3
	linkFlags      = 6

	statusMessage = 2
	statusCode    = 3
	statusError   = 2 // a value of the code

	attributeKey   = 1
	attributeValue = 2

	valueText   = 1
	valueNumber = 3

	flagSampled = 1
)

// resource returns the message that says what program the spans are of.
func resource(attributes []trace.Attribute) []byte {
	var b []byte
	for i := range attributes {
		b = appendMessage(b, resourceAttributes, appendAttribute(nil, &attributes[i]))
	}
	return b
}

// scope returns the message that says what made the spans.
func scope(name, version string) []byte {
	return appendText(appendText(nil, scopeName, name), scopeVersion, version)
}

// A writer writes requests, and keeps its buffers for the next one.
type writer struct {
	resource, scope     []byte // encoded
	out, spans, one, in []byte
}

// request returns the request that exports some spans. It is valid until the next one.
func (w *writer) request(spans []*trace.Span) []byte {
	w.spans = appendMessage(w.spans[:0], scopeSpansScope, w.scope)
	for _, s := range spans {
		w.one = w.appendSpan(w.one[:0], s)
		w.spans = appendMessage(w.spans, scopeSpansSpans, w.one)
	}
	w.one = appendMessage(w.one[:0], resourceSpansResource, w.resource)
	w.one = appendMessage(w.one, resourceSpansScopeSpans, w.spans)
	w.out = appendMessage(w.out[:0], requestResourceSpans, w.one)
	return w.out
}

func (w *writer) appendSpan(b []byte, s *trace.Span) []byte {
	b = appendBytes(b, spanTraceID, s.Trace[:])
	b = appendBytes(b, spanSpanID, s.Context.Span[:])
	b = appendText(b, spanTraceState, s.State)
	if s.Parent != (trace.SpanID{}) {
		b = appendBytes(b, spanParentID, s.Parent[:])
	}
	b = appendText(b, spanName, s.Name)
	b = protowire.AppendVarint(protowire.AppendTag(b, spanKind, protowire.VarintType), uint64(s.Kind))
	b = protowire.AppendFixed64(protowire.AppendTag(b, spanStart, protowire.Fixed64Type), uint64(s.Began.UnixNano()))
	// Both by the clock that does not step: no span ends before it began.
	b = protowire.AppendFixed64(protowire.AppendTag(b, spanEnd, protowire.Fixed64Type), uint64(s.Began.UnixNano()+int64(s.Ended.Sub(s.Began))))
	for i := range s.Attributes {
		w.in = appendAttribute(w.in[:0], &s.Attributes[i])
		b = appendMessage(b, spanAttributes, w.in)
	}
	for i := range s.Links {
		l := &s.Links[i]
		w.in = appendBytes(w.in[:0], linkTraceID, l.Trace[:])
		w.in = appendBytes(w.in, linkSpanID, l.Span[:])
		w.in = appendText(w.in, linkTraceState, l.State)
		w.in = appendFlags(w.in, linkFlags)
		b = appendMessage(b, spanLinks, w.in)
	}
	if s.Failed {
		w.in = appendText(w.in[:0], statusMessage, s.Failure)
		w.in = protowire.AppendVarint(protowire.AppendTag(w.in, statusCode, protowire.VarintType), statusError)
		b = appendMessage(b, spanStatus, w.in)
	}
	return appendFlags(b, spanFlags)
}

func appendAttribute(b []byte, a *trace.Attribute) []byte {
	b = appendText(b, attributeKey, a.Key)
	var room [32 + 8]byte
	value := room[:0]
	if a.IsNumber {
		value = protowire.AppendVarint(protowire.AppendTag(value, valueNumber, protowire.VarintType), uint64(a.Number))
	} else {
		value = protowire.AppendString(protowire.AppendTag(value, valueText, protowire.BytesType), a.Text)
	}
	return appendMessage(b, attributeValue, value)
}

// appendFlags appends that a span is sampled, as all are that come here.
func appendFlags(b []byte, field protowire.Number) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), flagSampled)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return appendBytes(b, field, m)
}

// The fields of a reply that are read here.
const (
	replyPartial    = 1
	partialRejected = 1
)

// rejected returns how many spans a reply says were not taken. What is no reply says
// nothing.
func rejected(reply []byte) int64 {
	partial, ok := find(reply, replyPartial, protowire.BytesType)
	if !ok {
		return 0
	}
	message, n := protowire.ConsumeBytes(partial)
	if n < 0 {
		return 0
	}
	value, ok := find(message, partialRejected, protowire.VarintType)
	if !ok {
		return 0
	}
	number, n := protowire.ConsumeVarint(value)
	if n < 0 || int64(number) < 0 {
		return 0
	}
	return int64(number)
}

// find returns the last value of a field.
func find(message []byte, field protowire.Number, kind protowire.Type) (value []byte, ok bool) {
	for len(message) > 0 {
		is, of, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(is, of, message); n < 0 {
			return nil, false
		}
		if is == field && of == kind {
			value, ok = message[:n], true
		}
		message = message[n:]
	}
	return value, ok
}
