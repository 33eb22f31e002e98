package rest

import (
	"errors"
	"strconv"
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// A problem is an error as RFC 9457 tells it.
type problem struct {
	status int
	kind   string
	title  string
	detail string
	field  string // the part of the request that is wrong, or ""
	offset int    // the byte of the body where it is, if body is set
	body   bool
	cause  error // for the log, if the detail does not tell
	bound  *quipu.BoundError

	available *int64 // of a reservation that the bound refused

	retryAfter int64 // seconds; 0 says nothing of it
}

// Error returns the detail.
func (p *problem) Error() string { return p.detail }

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

// invalid returns a problem with one part of the request.
func invalid(field, detail string) *problem {
	p := ofKind(store.KindInvalid, field+": "+detail)
	p.field = field
	return p
}

// ofKind returns a problem of a kind.
func ofKind(k store.Kind, detail string) *problem {
	s := server.StatusOf(k)
	return &problem{status: s.HTTP, kind: s.Word, title: s.Title, detail: detail}
}

// problemOf returns the problem that an error is to a caller, who is told the
// detail of it.
func problemOf(err error, detail func(error) string) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	k := server.KindOf(err)
	p := ofKind(k, detail(err))
	if server.StatusOf(k).Private {
		p.cause = err
	}
	p.bound, _ = errors.AsType[*quipu.BoundError](err)
	return p
}

// of says which part of the request gave the token that a problem is about, in its
// own words: only the library calls it a token.
func (p *problem) of(field string) *problem {
	switch p.kind {
	case store.KindToken.String(), store.KindExpired.String(), store.KindSettled.String():
		p.field = field
		p.detail = strings.Replace(p.detail, "the token", "the "+field, 1)
	}
	return p
}

// appendProblem appends p; an id of "" is left out.
func appendProblem(b []byte, p *problem, requestID string) []byte {
	b = append(b, `{"type":"urn:quipu:problem:`...)
	b = append(b, p.kind...)
	b = append(b, `","title":`...)
	b = appendString(b, p.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"detail":`...)
	b = appendString(b, p.detail)
	b = append(b, `,"kind":"`...)
	b = append(b, p.kind...)
	b = append(b, '"')
	if p.field != "" {
		b = append(b, `,"field":`...)
		b = appendString(b, p.field)
	}
	if p.body {
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, int64(p.offset), 10)
	}
	if p.bound != nil {
		b = appendBound(b, p.bound)
	}
	if p.available != nil {
		b = append(b, `,"available":`...)
		b = strconv.AppendInt(b, *p.available, 10)
	}
	if requestID != "" {
		b = append(b, `,"request_id":`...)
		b = appendString(b, requestID)
	}
	return append(b, '}')
}

// appendBound appends what a bound refused: what the counter is, what was asked,
// and the limit.
func appendBound(b []byte, e *quipu.BoundError) []byte {
	b = append(b, `,"value":`...)
	b = strconv.AppendInt(b, e.Value, 10)
	b = append(b, `,"asked":`...)
	b = strconv.AppendInt(b, e.Asked, 10)
	if e.Above {
		b = append(b, `,"ceiling":`...)
	} else {
		b = append(b, `,"floor":`...)
	}
	b = strconv.AppendInt(b, e.Limit, 10)
	if e.Forgotten {
		b = append(b, `,"forgotten":true`...)
	}
	return b
}
