package redisstore

import (
	"crypto/tls"
	"testing"
)

// Each host that a URL names proves its own name, and those that a cluster tells of prove the
// first.
func TestSecureTo(t *testing.T) {
	o, err := parseURL("rediss://a.example:1,b.example:2")
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{hosts: o.InitAddress}
	f := func(addr, name string) {
		t.Helper()
		if got := s.secureTo(addr, o.TLSConfig).ServerName; got != name {
			t.Errorf("%s has to prove %q, want %q", addr, got, name)
		}
	}
	f("a.example:1", "a.example")
	f("b.example:2", "b.example")
	f("10.0.0.7:6379", "a.example")
	f("b.example:3", "a.example")
	if o.TLSConfig.ServerName != "a.example" || o.TLSConfig.MinVersion < tls.VersionTLS12 {
		t.Errorf("it was changed: %+v", o.TLSConfig)
	}
}
