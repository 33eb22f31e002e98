// Package otlptest is a collector of OpenTelemetry for tests: a server that takes
// spans by the protocol over HTTP, and decodes them by the published schema.
package otlptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The values of a span's kind and of its status.
const (
	Server = 2
	Client = 3
	Failed = 2
)

// A Span is one that came. Ids are bytes.
type Span struct {
	TraceID    []byte `json:"traceId"`
	SpanID     []byte `json:"spanId"`
	ParentID   []byte `json:"parentSpanId"`
	TraceState string `json:"traceState"`
	Name       string
	Kind       int
	Start      uint64 `json:"startTimeUnixNano,string"`
	End        uint64 `json:"endTimeUnixNano,string"`
	Attributes []Attribute
	Links      []Link
	Status     struct {
		Message string
		Code    int
	}
	Flags uint32
}

// A Link names another span.
type Link struct {
	TraceID []byte `json:"traceId"`
	SpanID  []byte `json:"spanId"`
	Flags   uint32
}

// An Attribute says something of a span or of the program.
type Attribute struct {
	Key   string
	Value struct {
		Text   *string `json:"stringValue"`
		Number *int64  `json:"intValue,string"`
	}
}

// Of returns an attribute as text, and "" if there is none.
func Of(attributes []Attribute, key string) string {
	for _, a := range attributes {
		switch {
		case a.Key != key:
		case a.Value.Text != nil:
			return *a.Value.Text
		case a.Value.Number != nil:
			return fmt.Sprint(*a.Value.Number)
		}
	}
	return ""
}

// A request is what came in one.
type request struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []Attribute }
		ScopeSpans []struct {
			Scope struct{ Name, Version string }
			Spans []Span
		}
	}
}

// A Collector takes spans. It is safe for concurrent use.
type Collector struct {
	URL string

	// Answer is asked before each request is taken, if it is not nil: it may answer
	// otherwise, and then returns true. Set it before spans come.
	Answer func(w http.ResponseWriter, r *http.Request) (answered bool)

	schema protoreflect.MessageDescriptor
	came   chan struct{} // has an element when something has come since it was taken

	mu       sync.Mutex // guards the fields below
	spans    []Span
	resource []Attribute
	scope    string
	headers  http.Header
	errs     []error
}

// For starts a collector, which ends with the test. What it can't read fails the
// test.
func For(t testing.TB) *Collector {
	t.Helper()
	d, err := descriptor()
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{schema: d, came: make(chan struct{}, 1)}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	c.URL = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if err := errors.Join(c.errs...); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	if c.Answer != nil && c.Answer(w, r) {
		return
	}
	err := c.take(r)
	c.mu.Lock()
	if err != nil {
		c.errs = append(c.errs, err)
		w.WriteHeader(http.StatusBadRequest)
	}
	c.mu.Unlock()
	select {
	case c.came <- struct{}{}:
	default:
	}
}

func (c *Collector) take(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s of %q", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	m := dynamicpb.NewMessage(c.schema)
	if err := proto.Unmarshal(body, m); err != nil {
		return err
	}
	if err := known(m); err != nil {
		return err
	}
	raw, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	var q request
	if err := json.Unmarshal(raw, &q); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = r.Header
	for _, rs := range q.ResourceSpans {
		c.resource = rs.Resource.Attributes
		for _, ss := range rs.ScopeSpans {
			c.scope = ss.Scope.Name
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	return nil
}

// known returns an error if a message has a field that the schema has not.
func known(m protoreflect.Message) (err error) {
	if u := m.GetUnknown(); len(u) > 0 {
		return fmt.Errorf("%s has unknown fields: %x", m.Descriptor().Name(), u)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				err = errors.Join(err, known(v.List().Get(i).Message()))
			}
		default:
			err = errors.Join(err, known(v.Message()))
		}
		return true
	})
	return err
}

// Spans returns what came until now.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Resource returns the attributes of the program that sent the last spans, the name of
// what made them, and the headers they came with.
func (c *Collector) Resource() (attributes []Attribute, scope string, headers http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource, c.scope, c.headers
}

// Await returns what came as soon as it is enough.
func (c *Collector) Await(t testing.TB, enough func([]Span) bool) []Span {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		spans := c.Spans()
		if enough(spans) {
			return spans
		}
		select {
		case <-c.came:
		case <-late.C:
			t.Fatalf("only these spans came: %+v", spans)
		}
	}
}
