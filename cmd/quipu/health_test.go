package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A health check finds the server by the variables that the server has, and its
// exit code says whether it is ready.
func TestHealth(t *testing.T) {
	p := serve(t, "--api-key", "k")
	host := strings.TrimPrefix(p.url, "http://")
	_, port, _ := strings.Cut(host, ":")
	f := func(args ...string) {
		t.Helper()
		if r := command(t, args...); r.code != 0 || r.stdout != "ready\n" || r.stderr != "" {
			t.Errorf("quipu %q: %+v", args, r)
		}
	}
	f("health", "--addr", p.url)
	f("health", "--http", host)
	f("health", "--http", ":"+port)
	f("QUIPU_HTTP=0.0.0.0:"+port, "health")
	f("QUIPU_ADDR="+p.url, "health")

	refused(t, exitUnavailable, "reach the server at https://127.0.0.1:"+port, "QUIPU_TLS_CERT=cert.pem", "QUIPU_HTTP=0.0.0.0:"+port, "health")
	refused(t, exitUnavailable, "connection refused", "health", "--http", "127.0.0.1:1")
	refused(t, exitUsage, "--http: \"8080\": want HOST:PORT", "health", "--http", "8080")
	refused(t, exitUsage, "serves no REST API", "health", "--http", "off")
	refused(t, exitUsage, "--timeout: want more than 0s", "health", "--timeout", "0s")

	answer := func(tls bool, status int, body string) string {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
		s := httptest.NewUnstartedServer(h)
		if tls {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.URL
	}
	refused(t, exitUnavailable, "the disk is full (full)", "health", "--addr", answer(false, 503, `{"detail":"the disk is full","kind":"full"}`))
	refused(t, exitUnavailable, "does not answer like a Quipu server", "health", "--addr", answer(false, 200, `hello`))
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hanging.Close)
	refused(t, exitUnavailable, "deadline exceeded", "health", "--addr", hanging.URL, "--timeout", "50ms")

	// The certificate of the server's own address is of another name.
	own := answer(true, 200, `{"status":"degraded"}`)
	if r := command(t, "health", "--http", strings.TrimPrefix(own, "https://"), "--tls-cert", "cert.pem"); r.code != 0 || r.stdout != "degraded\n" {
		t.Errorf("%+v", r)
	}
	refused(t, exitUnavailable, "certificate", "health", "--addr", own)
}
