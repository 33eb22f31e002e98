package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
)

// addrOf returns where a door listens.
func (p *process) addrOf(door string) string {
	_, addr, _ := strings.Cut(p.ready, door+"=")
	addr, _, _ = strings.Cut(addr, " ")
	return addr
}

// Connections that never show a key fill no door: callers with a key come in,
// and stay.
func TestStrangersKeepNobodyOut(t *testing.T) {
	p := serve(t, "--api-key", "secret", "--max-connections", "20")
	dial := func(door string) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addrOf(door))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// Each returns a call on a connection with a key, which stays the same.
	overHTTP := func() func() error {
		c := dial("http")
		r := bufio.NewReader(c)
		return func() error {
			if _, err := io.WriteString(c, "GET /api/v1/counters/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"); err != nil {
				return err
			}
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, res.Body)
			if res.StatusCode != http.StatusOK {
				err = errors.New(res.Status)
			}
			return errors.Join(err, res.Body.Close())
		}
	}
	overRESP := func() func() error {
		c := dial("resp")
		r := bufio.NewReader(c)
		return func() error {
			if _, err := io.WriteString(c, "AUTH secret\r\n"); err != nil {
				return err
			}
			line, err := r.ReadString('\n')
			if err == nil && line != "+OK\r\n" {
				err = errors.New(line)
			}
			return err
		}
	}
	overRPC := func() func() error {
		db, err := client.Dial(t.Context(), p.addrOf("rpc"), client.Options{APIKey: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return func() error {
			_, err := db.Add(t.Context(), "a", 1, quipu.WantValue())
			return err
		}
	}
	f := func(door string, enter func() func() error) {
		t.Helper()
		before := enter()
		if err := before(); err != nil {
			t.Fatalf("%s: %v", door, err)
		}
		for range 60 {
			dial(door)
		}
		after := enter()
		for _, call := range []func() error{after, before, after, before} {
			if err := call(); err != nil {
				t.Errorf("%s beside strangers: %v", door, err)
			}
		}
	}
	f("http", overHTTP)
	f("resp", overRESP)
	f("rpc", overRPC)
}
