package rest

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/internal/instant"
	"github.com/quipudb/quipu/store"
)

// A decoder reads one JSON value strictly: exact names, each at most once,
// integers that fit, in quotes or not, text that is UTF-8, and nothing after the end. The first
// error stays; what follows it reads as zero.
//
// It exists beside encoding/json because that takes names in any case, the
// last of two equal names, broken UTF-8, and null for anything, and says less
// about where an error is.
type decoder struct {
	b   []byte
	i   int
	err *problem
}

// fail notes that the part of the body at offset is not what was wanted.
func (d *decoder) fail(offset int, field, want string) {
	d.refuse(store.KindInvalid, offset, field, want)
}

// refuse notes an error of any kind.
func (d *decoder) refuse(k store.Kind, offset int, field, why string) {
	if d.err != nil {
		return
	}
	d.err = ofKind(k, field+": "+why+" at byte "+strconv.Itoa(offset))
	d.err.field, d.err.offset, d.err.body = field, offset, true
	d.i = len(d.b)
}

// broken notes that the body is no JSON, which a caller must mend before anything else.
func (d *decoder) broken(offset int, field, want string) {
	if d.err != nil {
		return
	}
	if field != "body" {
		want = field + ": " + want
	}
	if d.fail(offset, "the body is not JSON", want); d.err != nil {
		d.err.field = field
	}
}

// unlike notes that the value at offset is not what was wanted, or none of JSON at all. A
// body that is missing is no broken one.
func (d *decoder) unlike(offset int, field, want string) {
	rest := d.b[offset:]
	some := len(rest) > 0 && strings.IndexByte(`{["-0123456789`, rest[0]) >= 0
	for _, word := range []string{"true", "false", "null"} {
		some = some || bytes.HasPrefix(rest, []byte(word))
	}
	if some || len(bytes.TrimSpace(d.b)) == 0 {
		d.fail(offset, field, want)
	} else {
		d.broken(offset, field, want)
	}
}

func (d *decoder) space() {
	for d.i < len(d.b) && (d.b[d.i] == ' ' || d.b[d.i] == '\n' || d.b[d.i] == '\t' || d.b[d.i] == '\r') {
		d.i++
	}
}

// take skips space, and c if it is next.
func (d *decoder) take(c byte) bool {
	d.space()
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	return false
}

// begin expects the opening byte of an object or array.
func (d *decoder) begin(c byte, field string) {
	if !d.take(c) {
		want := "want an object"
		if c == '[' {
			want = "want an array"
		}
		d.unlike(d.i, field, want)
	}
}

// more reports whether another member or element follows; n is how many there
// were.
func (d *decoder) more(end byte, n int, field string) bool {
	if d.err != nil || d.take(end) {
		return false
	}
	if n > 0 && !d.take(',') {
		d.broken(d.i, field, "want , or "+string(end))
	}
	return d.err == nil
}

// member reads the name of an object's member and the colon after it. The
// name is one of those given, and returned as its index; seen has a bit for
// each that was there before.
func (d *decoder) member(field string, seen *uint, names ...string) int {
	d.space()
	at := d.i
	if d.i == len(d.b) || d.b[d.i] != '"' {
		d.broken(at, field, "want a name in double quotes")
	}
	name := d.raw(field)
	if d.err == nil && !d.take(':') {
		d.broken(d.i, field, "want :")
	}
	if d.err != nil {
		return -1
	}
	for i, n := range names {
		if n != string(name) {
			continue
		}
		if *seen&(1<<i) != 0 {
			d.fail(at, n, "given twice,")
			return -1
		}
		*seen |= 1 << i
		return i
	}
	known := "; it has none"
	if len(names) > 0 {
		known = "; want " + strings.Join(names, ", ")
	}
	d.fail(at, field, "unknown field "+quoted(name)+known+",")
	return -1
}

// quoted shortens a name that the caller made up.
func quoted(name []byte) string {
	const bytesMax = 64
	if len(name) > bytesMax {
		return strconv.QuoteToGraphic(string(name[:bytesMax])) + "…"
	}
	return strconv.QuoteToGraphic(string(name))
}

// end expects nothing but space.
func (d *decoder) end() error {
	d.space()
	if d.i < len(d.b) {
		d.fail(d.i, "body", "something follows the value")
	}
	if d.err != nil { // a nil *problem would be an error that is not nil
		return d.err
	}
	return nil
}

const wantInteger = "want an integer between -9223372036854775808 and 9223372036854775807"

// integer reads an integer: no fraction, no exponent. It may be in quotes, because
// a number of JavaScript does not hold all of them.
func (d *decoder) integer(field string) int64 {
	d.space()
	at := d.i
	i := at
	quoted := i < len(d.b) && d.b[i] == '"'
	if quoted {
		i++
	}
	negative := i < len(d.b) && d.b[i] == '-'
	if negative {
		i++
	}
	first := i
	var n uint64
	ok := true
	for ; i < len(d.b) && '0' <= d.b[i] && d.b[i] <= '9'; i++ {
		if n > (math.MaxUint64-9)/10 {
			ok = false
		}
		n = n*10 + uint64(d.b[i]-'0')
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	leadingZero := i-first > 1 && d.b[first] == '0'
	more := i < len(d.b) && (d.b[i] == '.' || d.b[i] == 'e' || d.b[i] == 'E')
	if quoted {
		more = i == len(d.b) || d.b[i] != '"'
	}
	if i == first || leadingZero || more || !ok || n > limit {
		d.unlike(at, field, wantInteger)
		return 0
	}
	if d.i = i; quoted {
		d.i++
	}
	if negative {
		return -int64(n) // n is at most 2^63, whose negative is itself
	}
	return int64(n)
}

// text reads a string.
func (d *decoder) text(field string) string { return string(d.raw(field)) }

// raw reads a string, and returns it as bytes that are the caller's only until
// the body is.
func (d *decoder) raw(field string) []byte {
	d.space()
	at := d.i
	if !d.take('"') {
		d.unlike(at, field, "want a string")
		return nil
	}
	first := d.i
	for i := first; i < len(d.b); i++ {
		switch c := d.b[i]; {
		case c == '"': // Fast path: nothing to unescape.
			if !utf8.Valid(d.b[first:i]) {
				d.fail(at, field, "the string is not UTF-8")
				return nil
			}
			d.i = i + 1
			return d.b[first:i]
		case c == '\\':
			return d.escaped(at, field)
		case c < ' ':
			d.broken(i, field, "control character in a string")
			return nil
		}
	}
	d.broken(at, field, "the string has no end")
	return nil
}

// escaped reads a string with escapes; d.i is after the opening quote.
func (d *decoder) escaped(at int, field string) []byte {
	var out []byte
	for d.i < len(d.b) {
		c := d.b[d.i]
		d.i++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				d.fail(at, field, "the string is not UTF-8")
				return nil
			}
			return out
		case c < ' ':
			d.broken(d.i-1, field, "control character in a string")
			return nil
		case c != '\\':
			out = append(out, c)
		default:
			r, ok := d.escape()
			if !ok {
				d.broken(d.i, field, "bad escape in a string")
				return nil
			}
			out = utf8.AppendRune(out, r)
		}
	}
	d.broken(at, field, "the string has no end")
	return nil
}

// escape reads what follows a backslash. Half a surrogate pair is no
// character.
func (d *decoder) escape() (rune, bool) {
	if d.i == len(d.b) {
		return 0, false
	}
	c := d.b[d.i]
	d.i++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		r, ok := d.hex4()
		if !ok || !utf16.IsSurrogate(r) {
			return r, ok
		}
		if d.i+2 > len(d.b) || d.b[d.i] != '\\' || d.b[d.i+1] != 'u' {
			return 0, false
		}
		d.i += 2
		low, ok := d.hex4()
		r = utf16.DecodeRune(r, low)
		return r, ok && r != utf8.RuneError
	}
	return 0, false
}

func (d *decoder) hex4() (rune, bool) {
	if d.i+4 > len(d.b) {
		return 0, false
	}
	var r rune
	for _, c := range d.b[d.i : d.i+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	d.i += 4
	return r, true
}

// empty reports whether there is no value at all.
func (d *decoder) empty() bool {
	d.space()
	return d.i == len(d.b)
}

// decodeEvent reads {"delta":1,"at":…,"who":…,"dims":{…},…}. All of it is optional.
func decodeEvent(body []byte) (quipu.Event, error) {
	e := quipu.Event{Delta: 1}
	d := decoder{b: body}
	if d.empty() {
		return e, nil
	}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		d.term(&e, d.member("body", &seen, eventFields...))
	}
	return e, d.end()
}

// eventFields are what every add may say, and opFields what one of a batch may.
var (
	eventFields = []string{"delta", "who", "floor", "ceiling", "saturate", "ttl", "at", "dims"}
	opFields    = append([]string{"key", "id"}, eventFields...)
)

// term reads the value of one of eventFields.
func (d *decoder) term(e *quipu.Event, field int) {
	switch field {
	case 0:
		e.Delta = d.integer("delta")
	case 1:
		e.Who = d.text("who")
	case 2:
		e.Floor = new(d.integer("floor"))
	case 3:
		e.Ceiling = new(d.integer("ceiling"))
	case 4:
		e.Saturate = d.truth("saturate")
	case 5:
		e.TTL = d.lifetime()
	case 6:
		e.At = d.moment("at")
	case 7:
		e.Dims = d.dims("dims")
	}
}

// correctionFields are what a correction says, adjustmentFields what else one with an
// amount does, and valueFields what else a set does.
var (
	correctionFields = []string{"reason", "actor"}
	adjustmentFields = append(correctionFields[:2:2], "delta", "at", "dims")
	valueFields      = append([]string{"value"}, correctionFields...)
)

// why reads the value of one of correctionFields.
func (d *decoder) why(c *quipu.Correction, field int) {
	switch field {
	case 0:
		c.Reason = d.text("reason")
	case 1:
		c.Actor = d.text("actor")
	}
}

// decodeCorrection reads {"reason":…,"actor":…}. All of it is optional.
func decodeCorrection(body []byte) (c quipu.Correction, err error) {
	d := decoder{b: body}
	if d.empty() {
		return c, nil
	}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		d.why(&c, d.member("body", &seen, correctionFields...))
	}
	return c, d.end()
}

// decodeAdjustment reads {"delta":…,"reason":…,"actor":…,"at":…,"dims":{…}}, of which the
// delta must be there.
func decodeAdjustment(body []byte) (e quipu.Event, c quipu.Correction, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch field := d.member("body", &seen, adjustmentFields...); field {
		case 2:
			e.Delta = d.integer("delta")
		case 3:
			e.At = d.moment("at")
		case 4:
			e.Dims = d.dims("dims")
		default:
			d.why(&c, field)
		}
	}
	if d.err == nil && seen&(1<<2) == 0 {
		d.fail(d.i, "delta", "it is missing; "+wantInteger)
	}
	return e, c, d.end()
}

// moment reads when something happened: RFC 3339, or Unix milliseconds.
func (d *decoder) moment(field string) time.Time {
	d.space()
	at := d.i
	if at < len(d.b) && d.b[at] != '"' {
		return time.UnixMilli(d.integer(field))
	}
	t, err := instant.Fixed(d.text(field))
	if err != nil {
		d.fail(at, field, err.Error())
	}
	return t
}

// dims reads values by the names of their dimensions.
func (d *decoder) dims(field string) []quipu.Dimension {
	var dims []quipu.Dimension
	d.begin('{', field)
	for n := 0; d.more('}', n, field); n++ {
		d.space()
		at := d.i
		name := d.text(field)
		switch {
		case d.err == nil && !d.take(':'):
			d.broken(d.i, field, "want :")
		case n == quipu.DimsMax:
			d.refuse(store.KindTooLarge, at, field, "more than "+strconv.Itoa(n)+" dimensions,")
		case slices.ContainsFunc(dims, func(e quipu.Dimension) bool { return e.Name == name }):
			d.fail(at, field, quoted([]byte(name))+" is given twice,")
		}
		dims = append(dims, quipu.Dimension{Name: name, Value: d.text(field)})
	}
	return dims
}

// lifetime reads a ttl: a duration above zero.
func (d *decoder) lifetime() time.Duration {
	const field = "ttl"
	d.space()
	at := d.i
	s := d.text(field)
	if d.err != nil {
		return 0
	}
	ttl, err := duration.Parse(s)
	if err != nil || ttl < time.Millisecond {
		d.fail(at, field, "want a duration of 1ms or more, such as 30s or 7d,")
	}
	return ttl
}

// decodeValue reads {"value":…,"reason":…,"actor":…}, of which the value must be there.
func decodeValue(body []byte) (value int64, c quipu.Correction, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if field := d.member("body", &seen, valueFields...); field == 0 {
			value = d.integer("value")
		} else {
			d.why(&c, field-1)
		}
	}
	if d.err == nil && seen&1 == 0 {
		d.fail(d.i, "value", "it is missing; "+wantInteger)
	}
	return value, c, d.end()
}

// decodeNothing accepts no body, or an object with nothing in it.
func decodeNothing(body []byte) error {
	d := decoder{b: body}
	if d.empty() {
		return nil
	}
	d.begin('{', "body")
	var seen uint
	if d.more('}', 0, "body") {
		d.member("body", &seen)
	}
	return d.end()
}

// decodeList reads {"name":[…]}: up to so many elements, each by one.
func decodeList[T any](body []byte, name, elements string, most int, one func(d *decoder, i int) T) ([]T, error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var list []T
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if d.member("body", &seen, name) != 0 {
			continue
		}
		d.begin('[', name)
		for i := 0; d.more(']', i, name); i++ {
			if i == most {
				d.refuse(store.KindTooLarge, d.i, name, "more than "+strconv.Itoa(most)+" "+elements+",")
				break
			}
			list = append(list, one(&d, i))
		}
	}
	if d.err == nil && seen == 0 {
		d.fail(d.i, name, "it is missing; want an array")
	}
	return list, d.end()
}

// decodeBatch reads {"ops":[{"key":…,"delta":1,"id":…,…},…]}.
func decodeBatch(body []byte) ([]quipu.Event, error) {
	return decodeList(body, "ops", "operations", store.BatchDeltasMax, (*decoder).op)
}

// op reads one operation of a batch.
func (d *decoder) op(i int) quipu.Event {
	e := quipu.Event{Delta: 1}
	d.space()
	at := d.i
	d.begin('{', "ops")
	var seen uint
	for n := 0; d.more('}', n, "ops"); n++ {
		at := d.i
		switch field := d.member("ops", &seen, opFields...); field {
		case 0:
			e.Key = d.text("key")
		case 1:
			if e.Token = d.text("id"); e.Token == "" {
				d.fail(at, "id", "it is empty,")
			}
		default:
			d.term(&e, field-2)
		}
	}
	if d.err == nil && seen&1 == 0 {
		d.fail(at, "key", "operation "+strconv.Itoa(i)+" has none,")
	}
	return e
}

// decodeKeys reads {"keys":[…]}.
func decodeKeys(body []byte) ([]string, error) {
	return decodeList(body, "keys", "keys", quipu.KeysMax, func(d *decoder, _ int) string { return d.text("keys") })
}
