package browsertest

import (
	"net"
	"os/exec"
	"testing"
)

// redis starts a Redis server, and returns its URL.
func redis(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return "redis://" + addr
}

// The overview has all servers of a store side by side, and says which has stopped speaking.
func TestServers(t *testing.T) {
	url := redis(t)
	first, second := serveOver(t, url), serveOver(t, url)
	b := open(t, 375, 812)
	b.to(first.url + "/")
	b.says("main", "Servers of this store")
	b.says("tr", second.url[len("http://"):])
	b.says("main", "2 servers")
	second.call("POST", "/counters/a/increment", "")
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.says("tr.gone", "Silent for")
	b.readable("servers")
	third := serveOver(t, url)
	b.says("tr", third.url[len("http://"):])
	third.stop()
	b.wait(`document.querySelectorAll("tr.gone").length === 1 && !document.querySelector("main").innerText.includes("` + third.url[len("http://"):] + `")`)
	// A server that writes nothing lists the others, and its forms say what it is.
	reader := serveOver(t, url, "--read-only")
	b.to(reader.url + "/")
	b.says("tr", "read-only")
	b.says("tr", first.url[len("http://"):])
	b.to(reader.url + "/#/counter/default/a")
	b.says("form.action", "This server is read-only.")
	b.wait(`document.querySelector("form.action fieldset").disabled`)
}
