package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/internal/instant"
)

// FuzzBody compares the decoder of increments with encoding/json, held to the
// same strictness.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		"", " ", "{}", `{"delta":1}`, `{"delta":-9223372036854775808}`, `{"delta":9223372036854775808}`, `{"delta":1.0}`,
		`{"delta":1e2}`, `{"delta":-0}`, `{"delta":00}`, `{"delta":"1"}`, `{"delta":null}`, `{"delta":1,"delta":1}`, `{"Delta":1}`,
		`{"delta":1}x`, `{"delta":1,}`, `[1]`, `null`, `{"who":"\u00e9\ud83d\ude00\n\/\\"}`, `{"who":"\ud83d"}`, `{"who":"\ud83d\u0041"}`, `{"who":"` + "\xff" + `"}`,
		`{"who":"\ufffd"}`, `{"at":"2026-01-02T03:04:05.678Z"}`, `{"floor":-1,"ceiling":5,"saturate":true,"ttl":"1m"}`, `{"ttl":"0s"}`, `{"saturate":1}`, `{"delta":"-7","floor":"0"}`, `{"delta":"\u0031"}`, `{"at":"5"}`, `{"\u0064elta":3}`,
		`{"dims":{}}`, `{"dims":{"a":"b", "\u0063":"\n"},"at":-5}`, `{"dims":{"a":"b","a":"b"}}`, `{"dims":null,"at":null}`, `{"dims":{"a":1}}`, "{\"delta\"\t:\r\n 5 }", `{"delta":18446744073709551616}`, `{"who":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeEvent(body)
		want, ok := oracle(body)
		if ok != (err == nil) {
			t.Fatalf("body %q: decoder says %v, encoding/json says %v", body, err, ok)
		}
		if p, isProblem := errors.AsType[*problem](err); err != nil && (!isProblem || p.offset > len(body) || p.field == "" || p.status < 400) {
			t.Fatalf("body %q: bad problem %+v", body, err)
		}
		if ok && !reflect.DeepEqual(got, want) {
			t.Fatalf("body %q: got %+v, want %+v", body, got, want)
		}
	})
}

var integerText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// oracle decodes the body of an increment by encoding/json, and adds the
// strictness that it lacks.
func oracle(body []byte) (quipu.Event, bool) {
	e := quipu.Event{Delta: 1}
	if len(bytes.Trim(body, " \t\r\n")) == 0 {
		return e, true
	}
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return e, false
	}
	if repeated(body) {
		return e, false
	}
	for name, raw := range members {
		var ok bool
		switch name {
		case "delta":
			e.Delta, ok = oracleInteger(raw)
		case "floor":
			e.Floor = new(int64)
			*e.Floor, ok = oracleInteger(raw)
		case "ceiling":
			e.Ceiling = new(int64)
			*e.Ceiling, ok = oracleInteger(raw)
		case "saturate":
			e.Saturate, ok = string(raw) == "true", string(raw) == "true" || string(raw) == "false"
		case "who":
			e.Who, ok = oracleText(raw)
		case "ttl":
			var s string
			var err error
			if s, ok = oracleText(raw); ok {
				e.TTL, err = duration.Parse(s)
				ok = err == nil && e.TTL >= time.Millisecond
			}
		case "at":
			e.At, ok = oracleMoment(raw)
		case "dims":
			e.Dims, ok = oracleDims(raw)
		}
		if !ok {
			return e, false
		}
	}
	return e, true
}

func oracleInteger(raw json.RawMessage) (int64, bool) {
	if len(raw) > 2 && raw[0] == '"' { // what is in quotes
		raw = raw[1 : len(raw)-1]
	}
	return oracleNumber(raw)
}

func oracleNumber(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && integerText.Match(raw)
}

// oracleMoment decodes a time: text, or an integer.
func oracleMoment(raw json.RawMessage) (time.Time, bool) {
	if ms, ok := oracleNumber(raw); ok {
		return time.UnixMilli(ms), true
	}
	s, ok := oracleText(raw)
	t, err := instant.Fixed(s)
	return t, ok && err == nil
}

// oracleDims decodes an object of strings, in its order.
func oracleDims(raw json.RawMessage) (dims []quipu.Dimension, ok bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil || repeated(raw) || len(members) > quipu.DimsMax {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // the brace
	for d.More() {
		start := d.InputOffset()
		_, _ = d.Token() // the name
		name, ok := oracleText(bytes.TrimLeft(raw[start:d.InputOffset()], ", \t\r\n"))
		var value json.RawMessage
		if !ok || d.Decode(&value) != nil {
			return nil, false
		}
		text, ok := oracleText(value)
		if !ok {
			return nil, false
		}
		dims = append(dims, quipu.Dimension{Name: name, Value: text})
	}
	return dims, true
}

// oracleText decodes a string; half a surrogate pair, which encoding/json
// replaces, is refused.
func oracleText(raw json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", false
	}
	meant := strings.Count(strings.ToLower(string(raw)), `\ufffd`) + strings.Count(string(raw), "\ufffd")
	return *s, strings.Count(*s, "\ufffd") <= meant
}

// repeated reports whether two members of an object have the same name.
func repeated(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return false
		}
		s, _ := name.(string)
		if seen[s] {
			return true
		}
		seen[s] = true
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return false
		}
	}
	return false
}

// FuzzString checks that every string comes back from its JSON, by this
// package's decoder and by encoding/json.
func FuzzString(f *testing.F) {
	for _, seed := range []string{"", "a", `"\`, "\x00\x1f\x7f", "é日😀", "\xff", "a\xc3", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := appendString(nil, s)
		want := strings.ToValidUTF8(s, "\ufffd")
		if !utf8.ValidString(s) { // one replacement for each bad byte
			want = string([]rune(s))
		}
		var got string
		if err := json.Unmarshal(raw, &got); err != nil || got != want {
			t.Fatalf("%q as %s: got %q, %v", s, raw, got, err)
		}
		d := decoder{b: raw}
		if got := d.text("s"); d.end() != nil || got != want {
			t.Fatalf("%q as %s: got %q, %v", s, raw, got, d.err)
		}
	})
}

// FuzzAdjustment decodes corrections: what is refused says where, and an adjustment without
// its delta, its time and its dimensions is a correction.
func FuzzAdjustment(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"delta":-3,"reason":"r","actor":"a","at":"2026-01-02T03:04:05Z","dims":{"country":"DE"}}`, `{"delta":1,"reason":""}`, `{"reason":"r","actor":"\u00e9"}`,
		`{"delta":1,"delta":2}`, `{"delta":1.5}`, `{"delta":1,"at":5}`, `{"delta":1,"at":"yesterday"}`, `{"delta":1,"dims":{"a":"b","a":"c"}}`, `{"delta":1,"who":"w"}`, `{"delta":1}x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, why, err := decodeAdjustment(body)
		c, failed := decodeCorrection(body)
		for _, err := range []error{err, failed} {
			if p, ok := errors.AsType[*problem](err); err != nil && (!ok || p.offset > len(body) || p.field == "" || p.status < 400) {
				t.Fatalf("body %q: bad problem %+v", body, err)
			}
		}
		switch {
		case err == nil && failed == nil:
			t.Errorf("body %q is an adjustment %+v, and a correction %+v", body, e, c)
		case err == nil:
			want := map[string]any{"delta": e.Delta, "reason": why.Reason, "actor": why.Actor}
			again, _ := json.Marshal(want)
			if e2, why2, err := decodeAdjustment(again); err != nil || e2.Delta != e.Delta || why2 != why {
				t.Errorf("body %q is %+v, %+v, and %s is %+v, %+v: %v", body, e, why, again, e2, why2, err)
			}
		}
	})
}
