package trace

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"time"
)

// The limits of a span, so that what waits to be exported has one too.
const (
	linksMax        = 32
	attributesMax   = 16
	textBytesMax    = 256
	failureBytesMax = 256
)

// A Kind says on which side of a call a span is. Its values are those of the
// OpenTelemetry protocol.
type Kind uint8

// The kinds.
const (
	Internal Kind = 1 // of work in this program
	Server   Kind = 2 // of a call that this program answers
	Client   Kind = 3 // of a call that this program makes
)

// An Attribute says something about a span: a text, or a number.
type Attribute struct {
	Key      string
	Text     string
	Number   int64
	IsNumber bool
}

// Text returns an attribute. A long text is cut off.
func Text(key, value string) Attribute {
	return Attribute{Key: key, Text: shorten(value, textBytesMax)}
}

// Number returns an attribute.
func Number(key string, value int64) Attribute {
	return Attribute{Key: key, Number: value, IsNumber: true}
}

// shorten cuts text off after so many bytes, and makes it UTF-8.
func shorten(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// A Sink takes spans that have ended. Take must not block, and is called by many.
type Sink interface{ Take(s *Span) }

// A Tracer begins spans. A nil Tracer begins none. It is safe for concurrent use.
type Tracer struct {
	sink Sink
	most uint64 // traces whose ids end in less than this are sampled
}

// NewTracer returns a tracer that gives its spans to a sink. Of the calls that come
// without a trace context it samples a ratio, from 0 to 1. For the others their
// callers have decided.
func NewTracer(sink Sink, ratio float64) *Tracer {
	if !(ratio > 0) { // NaN too
		ratio = 0
	}
	return &Tracer{sink: sink, most: uint64(min(ratio, 1) * (1 << 63))}
}

// Begin returns the span of a call that begins now, or nil if it is not sampled.
// Parent is what came with the call; one that is not valid is none.
func (t *Tracer) Begin(parent Context, name string, kind Kind) *Span {
	if t == nil {
		return nil
	}
	c := Context{Trace: parent.Trace, Sampled: parent.Sampled, State: parent.State}
	if !parent.Valid() {
		parent = Context{}
		low := rand.Uint64()
		if c.Sampled = low>>1 < t.most; !c.Sampled { // Fast path.
			return nil
		}
		c.State = ""
		binary.BigEndian.PutUint64(c.Trace[:8], rand.Uint64()|1) // never zero
		binary.BigEndian.PutUint64(c.Trace[8:], low)
	}
	if !c.Sampled {
		return nil
	}
	return t.begin(c, parent.Span, name, kind)
}

func (t *Tracer) begin(c Context, parent SpanID, name string, kind Kind) *Span {
	for c.Span = (SpanID{}); c.Span == (SpanID{}); {
		binary.BigEndian.PutUint64(c.Span[:], rand.Uint64())
	}
	return &Span{Context: c, Parent: parent, Name: name, Kind: kind, Began: time.Now(), tracer: t}
}

// A Span is a piece of work that is sampled: a call, or a part of one. All methods
// of a nil Span do nothing. One goroutine at a time may change a span; its Context
// never changes. When it has ended it belongs to the sink.
type Span struct {
	Context
	Parent     SpanID // zero if the trace begins here
	Name       string
	Kind       Kind
	Began      time.Time
	Ended      time.Time
	Attributes []Attribute
	Links      []Context // of other spans that it worked for
	Failed     bool
	Failure    string // says why, if it may be told

	tracer *Tracer
}

// Child returns a span for a part of the work, which begins now.
func (s *Span) Child(name string, kind Kind) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.begin(s.Context, s.Context.Span, name, kind)
}

// Set adds attributes, as long as there are not too many.
func (s *Span) Set(attributes ...Attribute) {
	if s == nil {
		return
	}
	n := min(len(attributes), attributesMax-len(s.Attributes))
	s.Attributes = append(s.Attributes, attributes[:n]...)
}

// Link says that the span also works for another one, as long as there are not too
// many.
func (s *Span) Link(other *Span) {
	if s != nil && other != nil && len(s.Links) < linksMax {
		s.Links = append(s.Links, other.Context)
	}
}

// Fail says that the work failed. Why may be empty, and must be nothing secret.
func (s *Span) Fail(why string) {
	if s != nil {
		s.Failed, s.Failure = true, shorten(why, failureBytesMax)
	}
}

// End ends the span, which its sink then has.
func (s *Span) End() {
	if s != nil {
		s.Ended = time.Now()
		s.tracer.sink.Take(s)
	}
}

type key struct{}

// With returns a context that carries a span. A nil span is not carried.
func With(ctx context.Context, s *Span) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, s)
}

// From returns the span that a context carries, or nil.
func From(ctx context.Context) *Span {
	s, _ := ctx.Value(key{}).(*Span)
	return s
}
