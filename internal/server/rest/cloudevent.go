package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// The content types of CloudEvents 1.0 over HTTP.
const (
	typeCloudEvent = "application/cloudevents+json"
	typeCloudBatch = "application/cloudevents-batch+json"
)

const (
	extensionsMax = 32  // attributes of an event besides those that every event may have
	depthMax      = 100 // of its data
)

// A cloudEvent is one event of the CloudEvents specification, as it came: values are the
// bytes of JSON, and nil if they were not given.
type cloudEvent struct {
	attributes []attribute
	data       []byte
}

type attribute struct {
	name  string
	value []byte
}

// get returns an attribute, "" if it is not given.
func (e *cloudEvent) get(name string) string {
	for i := range e.attributes {
		if e.attributes[i].name == name {
			text, _ := scalar(e.attributes[i].value)
			return text
		}
	}
	return ""
}

// check returns an error if the event lacks what each must have.
func (e *cloudEvent) check() error {
	if v := e.get("specversion"); v != "1.0" {
		return invalid("specversion", "want 1.0, not "+quoted([]byte(v)))
	}
	for _, name := range []string{"id", "source", "type"} {
		if e.get(name) == "" {
			return invalid(name, "each event must have one")
		}
	}
	return nil
}

// token names the event as its source and id do.
func (e *cloudEvent) token() string {
	source := e.get("source")
	var b []byte
	b = append(binary.AppendUvarint(b, uint64(len(source))), source...)
	b = append(b, e.get("id")...)
	sum := sha256.Sum256(b)
	return "ce-" + hex.EncodeToString(sum[:])
}

// at returns when the event happened, or the zero time.
func (e *cloudEvent) at() (time.Time, error) {
	text := e.get("time")
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, invalid("time", "want RFC 3339, not "+quoted([]byte(text)))
	}
	return t, nil
}

// find returns the value at a path: an attribute, or data and the names of members.
func (e *cloudEvent) find(path string) []byte {
	name, rest, _ := strings.Cut(path, ".")
	if name != "data" {
		for i := range e.attributes {
			if e.attributes[i].name == path {
				return e.attributes[i].value
			}
		}
		return nil
	}
	value := e.data
	for rest != "" && value != nil {
		name, rest, _ = strings.Cut(rest, ".")
		value = memberOf(value, name)
	}
	return value
}

// memberOf returns the value of a member of an object, or nil.
func memberOf(object []byte, name string) (found []byte) {
	eachMember(object, func(have string, value []byte) {
		if have == name && found == nil {
			found = value
		}
	})
	return found
}

// eachMember calls f with each member of what is an object; of what is not, with none.
func eachMember(object []byte, f func(name string, value []byte)) {
	d := decoder{b: object}
	if !d.take('{') {
		return
	}
	for n := 0; d.more('}', n, "data"); n++ {
		name := d.text("data")
		if d.err == nil && !d.take(':') {
			return
		}
		value := d.skip("data", depthMax)
		if d.err == nil {
			f(name, value)
		}
	}
}

// scalar returns a string, a number, true or false as text. It reports whether there is
// one: null is none.
func scalar(value []byte) (string, bool) {
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0 || value[0] == '{' || value[0] == '[' || string(value) == "null":
		return "", false
	case value[0] == '"':
		d := decoder{b: value}
		text := d.text("")
		return text, d.err == nil
	}
	return string(value), true
}

// skip reads any value, and returns its bytes.
func (d *decoder) skip(field string, depth int) []byte {
	d.space()
	first := d.i
	switch {
	case d.i == len(d.b):
		d.fail(d.i, field, "want a value")
	case d.b[d.i] == '"':
		d.raw(field)
	case depth == 0:
		d.refuse(store.KindTooLarge, d.i, field, "nested too deeply")
	case d.take('{'):
		for n := 0; d.more('}', n, field); n++ {
			d.space()
			d.raw(field)
			if d.err == nil && !d.take(':') {
				d.fail(d.i, field, "want :")
			}
			d.skip(field, depth-1)
		}
	case d.take('['):
		for n := 0; d.more(']', n, field); n++ {
			d.skip(field, depth-1)
		}
	default:
		d.word(field)
	}
	if d.err != nil {
		return nil
	}
	return d.b[first:d.i]
}

// word reads a number, true, false or null.
func (d *decoder) word(field string) {
	first := d.i
	for d.i < len(d.b) && (isOfNumber(d.b[d.i]) || 'a' <= d.b[d.i] && d.b[d.i] <= 'z') {
		d.i++
	}
	switch word := string(d.b[first:d.i]); word {
	case "true", "false", "null":
	default:
		if !isNumber(word) {
			d.fail(first, field, "want a value")
		}
	}
}

// isNumber reports whether a word is a number as JSON has it.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() (n int) {
		for n < len(s) && '0' <= s[n] && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n
	}
	leading := strings.HasPrefix(s, "0")
	if n := digits(); n == 0 || leading && n > 1 {
		return false
	}
	if rest, ok := strings.CutPrefix(s, "."); ok {
		if s = rest; digits() == 0 {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		if s = s[1:]; s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if digits() == 0 {
			return false
		}
	}
	return s == ""
}

// cloudEvent reads an event in structured mode.
func (d *decoder) cloudEvent() (e cloudEvent) {
	d.begin('{', "event")
	for n := 0; d.more('}', n, "event"); n++ {
		d.space()
		at := d.i
		name := d.text("event")
		if d.err == nil && !d.take(':') {
			d.fail(d.i, "event", "want :")
		}
		value := d.skip("event", depthMax)
		switch {
		case d.err != nil:
		case slices.ContainsFunc(e.attributes, func(a attribute) bool { return a.name == name }) || name == "data" && e.data != nil:
			d.fail(at, "event", quoted([]byte(name))+" is given twice,")
		case name == "data":
			e.data = value
		case len(e.attributes) == extensionsMax:
			d.refuse(store.KindTooLarge, at, "event", "more than "+strconv.Itoa(extensionsMax)+" attributes,")
		case string(value) != "null": // which is the same as none
			e.attributes = append(e.attributes, attribute{name, value})
		}
	}
	return e
}

// decodeCloudEvents reads events in the mode that the header says, and reports whether
// they are a batch.
func decodeCloudEvents(header http.Header, body []byte) (events []cloudEvent, batch bool, err error) {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && header.Get("Content-Type") != "" {
		return nil, false, invalid("Content-Type", "it is not a media type")
	}
	d := decoder{b: body}
	switch {
	case kind == typeCloudEvent:
		e := d.cloudEvent()
		return []cloudEvent{e}, false, d.end()
	case kind == typeCloudBatch:
		d.begin('[', "body")
		for i := 0; d.more(']', i, "body"); i++ {
			if i == store.BatchDeltasMax {
				d.refuse(store.KindTooLarge, d.i, "body", "more than "+strconv.Itoa(store.BatchDeltasMax)+" events,")
				break
			}
			events = append(events, d.cloudEvent())
		}
		return events, true, d.end()
	case strings.HasPrefix(kind, "application/cloudevents"):
		return nil, false, invalid("Content-Type", "want "+typeCloudEvent+", "+typeCloudBatch+" or an event in binary mode, not "+quoted([]byte(kind)))
	}
	e, err := binaryEvent(header, kind, body)
	return []cloudEvent{e}, false, err
}

// binaryEvent reads an event whose attributes are in the header.
func binaryEvent(header http.Header, kind string, body []byte) (e cloudEvent, err error) {
	for name, values := range header {
		attr, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if len(values) > 1 {
			return e, invalid(name, "given more than once")
		}
		if len(e.attributes) == extensionsMax {
			return e, ofKind(store.KindTooLarge, "more than "+strconv.Itoa(extensionsMax)+" attributes")
		}
		value, err := url.PathUnescape(values[0]) // which leaves + alone, as the binding has it
		if err != nil || !utf8.ValidString(value) {
			return e, invalid(name, "it is not percent-encoded UTF-8")
		}
		e.attributes = append(e.attributes, attribute{attr, appendString(nil, value)})
	}
	if len(e.attributes) == 0 {
		return e, invalid("Content-Type", "want "+typeCloudEvent+" or "+typeCloudBatch+", or headers such as ce-id")
	}
	if kind == "application/json" || strings.HasSuffix(kind, "+json") {
		d := decoder{b: body}
		if !d.empty() {
			e.data = d.skip("body", depthMax)
			err = d.end()
		}
	}
	return e, err
}
