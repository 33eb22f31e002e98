package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
)

// FuzzCloudEvents checks that whatever is taken for events is JSON, that its attributes
// are those of encoding/json, and that no mapping panics.
func FuzzCloudEvents(f *testing.F) {
	for _, seed := range []string{
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"amount":5,"dims":{"a":"b","c":1e3}}}`, `[{"id":"1"},{}]`, `{"data":[{"a":[1,-0.5,true,null]}]}`,
		`{"a":01}`, `{"a":tru}`, `{"a":"\ud83d\ude00"}`, `{"a":{"a":1},"a":2}`, `[`, `{"data":{"key":"\u0000"}}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`,
	} {
		f.Add([]byte(seed), "key=type,data.a&dims=x:data.a.b,source&amount=data.n&who=id")
	}
	f.Fuzz(func(t *testing.T, body []byte, query string) {
		for _, kind := range []string{typeCloudEvent, typeCloudBatch, "application/json"} {
			header := http.Header{"Content-Type": {kind}}
			if kind == "application/json" {
				header.Set("Ce-Id", string(body))
			}
			events, batch, err := decodeCloudEvents(header, body)
			if err != nil {
				continue
			}
			if batch != (kind == typeCloudBatch) || len(bytes.TrimSpace(body)) > 0 && !json.Valid(body) {
				t.Fatalf("%s: %q was taken", kind, body)
			}
			if kind == typeCloudEvent {
				sameAttributes(t, body, &events[0])
			}
			q, err := url.ParseQuery(query)
			if err != nil {
				continue
			}
			m, err := mappingOf(q)
			if err != nil {
				m = mapping{}
			}
			for i := range events {
				e, err := m.event(&events[i])
				if err == nil && (e.Token == "" || len(e.Token) > 255) {
					t.Fatalf("token %q", e.Token)
				}
			}
		}
	})
}

func sameAttributes(t *testing.T, body []byte, e *cloudEvent) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	for _, a := range e.attributes {
		if have := members[a.name]; string(have) != string(a.value) {
			t.Fatalf("%q: %s is %q, want %q", body, a.name, a.value, have)
		}
	}
}
