package main

import (
	"bufio"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A server that reads a standby says how old its values are, and refuses to tell
// what it can't know, by every door; until the standby is promoted.
func TestStandbyIsNotExact(t *testing.T) {
	primary := startPostgres(t)
	w := start(t, nil, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--store", primary.URL())
	w.client()("add", "a", "5")
	standby := primary.Follow(t)
	r := start(t, nil, "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off", "--store", standby.URL(), "--read-only")
	sql(t, standby, `select 'ok' from pg_wal_replay_pause()`)
	w.client()("add", "a", "1")
	f := func(path string, code int, words ...string) {
		t.Helper()
		got, body := httpGet(t.Context(), t, r.url+path)
		for _, word := range words {
			if got != code || !regexp.MustCompile(word).MatchString(body) {
				t.Errorf("%s: %d %s, want %s", path, got, body, word)
			}
		}
	}
	f("/api/v1/counters/a", 200, `"value":5`, `"exact":false`, `"staleness_ms":[1-9]`, `"source":"replica"`)
	f("/api/v1/counters/a?max_staleness=1h", 200, `"value":5`, `"exact":false`)
	f("/api/v1/counters/a/exact", 503, "ask a server that writes")
	f("/api/v1/counters/a?read=exact", 503, "ask a server that writes")
	f("/api/v1/counters/a?max_staleness=1ms", 503, "ask a server that writes")
	f("/api/v1/counters?prefix=a", 200, `"exact":false`)
	f("/readyz", 200, "")
	conn, err := net.Dial("tcp", "127.0.0.1:"+r.respPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET a\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "$1") {
		t.Errorf("GET: %q, %v", line, err)
	}

	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		code, body := httpGet(t.Context(), t, r.url+"/api/v1/counters/a/exact")
		if code == 200 && strings.Contains(body, `"exact":true`) && strings.Contains(body, `"source":"store"`) {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("after it was promoted: %d %s", code, body)
		}
	}
}
