package main

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

// lateStore returns the address of a server that closes its first connections,
// and then passes them on to another.
func lateStore(t *testing.T, network, addr string, closed int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for n := 0; ; n++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if n < closed {
				_ = in.Close()
				continue
			}
			out, err := net.Dial(network, addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	return l.Addr().String()
}

// A server may be started before its store.
func TestWaitForStore(t *testing.T) {
	f := func(store string) {
		t.Helper()
		p := start(t, nil, "--http", "127.0.0.1:0", "--store", store, "--wait-for-store", "1m")
		if got := p.client()("add", "a"); got != "1" {
			t.Errorf("%s: add: %q", store, got)
		}
		if code, _ := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: exit %d", store, code)
		}
		if n := strings.Count(p.stderr.String(), `"msg":"waiting for the store"`); n != 1 {
			t.Errorf("%s: logged %d times: %s", store, n, p.stderr)
		}
	}
	f("redis://" + lateStore(t, "tcp", redisproc.For(t).Addr, 2))
	pg, err := url.Parse(startPostgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	q := pg.Query()
	host, port, err := net.SplitHostPort(lateStore(t, "unix", filepath.Join(q.Get("host"), ".s.PGSQL."+q.Get("port")), 4))
	if err != nil {
		t.Fatal(err)
	}
	q.Set("host", host)
	q.Set("port", port)
	pg.RawQuery = q.Encode()
	f(pg.String())

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, store := range []string{"redis://" + l.Addr().String(), "postgres://" + l.Addr().String() + "/d"} {
		refused(t, 3, "connection refused", "serve", "--store", store, "--http", "127.0.0.1:0")
		refused(t, 3, "waiting for the store", "serve", "--store", store, "--http", "127.0.0.1:0", "--wait-for-store", "1s")
	}
	// What waiting does not mend is not waited for.
	refused(t, 1, "maxmemory-policy", "serve", "--store", "redis://"+redisproc.For(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr,
		"--http", "127.0.0.1:0", "--wait-for-store", "1h")
}

// A server that only reads does not begin with an empty store of its own: a name
// that is mistyped would read as zero everywhere.
func TestReadOnlyMakesNothing(t *testing.T) {
	for url, advice := range map[string]string{"redis://" + redisproc.For(t).Addr: "start a server that writes", startPostgres(t).URL(): "quipu migrate"} {
		for range 2 { // the first has made nothing
			refused(t, 3, advice, "serve", "--read-only", "--store", url, "--http", "127.0.0.1:0")
			refused(t, 3, advice, "copy", "--from", url, "--to", "embedded:"+t.TempDir())
		}
	}
}
