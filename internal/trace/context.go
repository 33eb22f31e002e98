// Package trace follows calls through a server, as OpenTelemetry and the W3C
// define it: a caller's trace context comes with its call, the server's spans
// continue it, and a Sink takes those that have ended.
//
// A call that is not sampled has no span, and all methods of a nil Span do
// nothing. So tracing costs a comparison where it is off. The package exports
// nothing by itself: package otlp does.
package trace

import (
	"encoding/hex"
	"strings"
)

// The headers of the W3C's trace context, in lower case, as gRPC wants them.
const (
	ParentHeader = "traceparent"
	StateHeader  = "tracestate"
)

const (
	parentLen     = 55  // of version 00: 00-<32>-<16>-<2>
	stateBytesMax = 512 // a longer state is dropped, which the W3C allows
)

// A ID names everything that was done for one request of some program. Zero
// is no name.
type ID [16]byte

// A SpanID names one span of a trace. Zero is no name.
type SpanID [8]byte

// A Context is what a call carries from one program to the next.
type Context struct {
	Trace   ID
	Span    SpanID
	Sampled bool
	State   string // of other tracing systems, to be passed on as it is
}

// Valid reports whether the context names a trace and a span.
func (c Context) Valid() bool { return c.Trace != ID{} && c.Span != SpanID{} }

// Parent returns the context as the header traceparent.
func (c Context) Parent() string {
	var room [parentLen]byte
	b := append(room[:0], "00-"...)
	b = append(hex.AppendEncode(b, c.Trace[:]), '-')
	b = append(hex.AppendEncode(b, c.Span[:]), '-', '0', '0')
	if c.Sampled {
		b[parentLen-1] = '1'
	}
	return string(b)
}

// ParseParent reads the header traceparent. Of a version that is not known yet it
// reads what all versions have in common. What is no context is not ok, and as
// if it had not been sent.
func ParseParent(s string) (c Context, ok bool) {
	if len(s) < parentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], s[:2]) || !decode(c.Trace[:], s[3:35]) || !decode(c.Span[:], s[36:52]) || !decode(flags[:], s[53:55]) {
		return Context{}, false
	}
	switch {
	case version[0] == 0xff, !c.Valid():
		return Context{}, false
	case len(s) > parentLen && (version[0] == 0 || s[parentLen] != '-'):
		return Context{}, false
	}
	c.Sampled = flags[0]&1 != 0
	return c, true
}

// decode decodes hexadecimal digits, which have to be in lower case.
func decode(to []byte, digits string) bool {
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(digits))
	return err == nil
}

// Extract returns the context in the headers of a call: traceparent, of which there
// must be one, and tracestate, which may come in parts.
func Extract(parents, states []string) (c Context, ok bool) {
	if len(parents) != 1 {
		return Context{}, false
	}
	if c, ok = ParseParent(parents[0]); ok && c.Sampled && len(states) > 0 {
		c.State = joinStates(states)
	}
	return c, ok
}

// joinStates returns the parts of a state as one, or "" if it is too long or is not
// printable.
func joinStates(states []string) string {
	n := len(states) - 1
	for _, s := range states {
		n += len(s)
	}
	if n > stateBytesMax {
		return ""
	}
	s := strings.Join(states, ",")
	for i := range len(s) {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\t' {
			return ""
		}
	}
	return s
}
