package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// Two servers of one store list each other. One that ends in peace is gone from the list, and
// one that is killed is silent in it; what they put into the store is no drift.
func TestServersOfPostgres(t *testing.T) { serversOf(t, startPostgres(t).URL()) }

func TestServersOfRedis(t *testing.T) { serversOf(t, "redis://"+redisproc.For(t).Addr) }

func serversOf(t *testing.T, url string) {
	serve := func(more ...string) *process {
		t.Helper()
		return start(t, nil, append([]string{"--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--store", url}, more...)...)
	}
	a, b := serve(), serve()
	address := func(p *process) string { return strings.TrimPrefix(p.url, "http://") }
	// list returns the servers that one lists, by their addresses: self, speaks or silent.
	list := func(p *process) map[string]string {
		t.Helper()
		_, body := httpGet(t.Context(), t, p.url+"/api/v1/servers")
		var l struct {
			Servers  []serverReply
			Complete bool
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil || !l.Complete {
			t.Fatalf("%s: %v", body, err)
		}
		states := map[string]string{}
		for _, s := range l.Servers {
			switch {
			case s.Self:
				states[s.Doors[0].Address] = "self"
			case s.Silent:
				states[s.Doors[0].Address] = "silent"
			default:
				states[s.Doors[0].Address] = "speaks"
			}
		}
		return states
	}
	becomes := func(p *process, want map[string]string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for fmt.Sprint(list(p)) != fmt.Sprint(want) {
			if time.Now().After(deadline) {
				t.Fatalf("the servers are %v, want %v", list(p), want)
			}
			<-tick.C
		}
	}
	becomes(a, map[string]string{address(a): "self", address(b): "speaks"})
	becomes(b, map[string]string{address(a): "speaks", address(b): "self"})
	c, reader := serve(), serve("--read-only")
	becomes(reader, map[string]string{address(a): "speaks", address(b): "speaks", address(c): "speaks", address(reader): "self"})
	becomes(a, map[string]string{address(a): "self", address(b): "speaks", address(c): "speaks"})
	if code, _ := c.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("SIGTERM: exit code %d\n%s", code, c.stderr)
	}
	becomes(a, map[string]string{address(a): "self", address(b): "speaks"})
	if err := b.c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	becomes(a, map[string]string{address(a): "self", address(b): "silent"})

	quipu := a.client()
	quipu("add", "x", "5")
	if out := quipu("servers"); !strings.Contains(out, "silent, ") || !strings.Contains(out, address(b)) || !strings.Contains(out, "now") || strings.Count(out, "127.0.0.1:") != 2 {
		t.Errorf("servers:\n%s", out)
	}
	quipu("verify")
	if out := quipu("list"); strings.Contains(out, "server/") {
		t.Errorf("list: %s", out)
	}
}
