package resp_test

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
)

// What the shapes of MEMORY and ACL are where Redis's own figures differ.
func TestToolCommands(t *testing.T) {
	story(t, func(c *client) {
		c.expect("SET counter 5", ok)
		c.expect("MEMORY USAGE counter", ":71\r\n")
		c.expect("MEMORY USAGE counter SAMPLES 0", ":71\r\n")
		stats := tree(c.line("MEMORY STATS")).([]any)
		figures := map[any]any{}
		for i := 0; i < len(stats); i += 2 {
			figures[stats[i]] = stats[i+1]
		}
		if figures["keys.count"] != 1 || figures["total.allocated"].(int) == 0 || figures["allocator.resident"].(int) == 0 {
			t.Errorf("MEMORY STATS: %v", figures)
		}
		if got := tree(c.line("ACL CAT string")).([]any); len(got) < 15 {
			t.Errorf("ACL CAT string: %v", got)
		}
		c.expect("AUTH shop x", ok)
		c.expect("ACL WHOAMI", bulk("shop"))
	})
	keys, err := server.NewKeys([]string{"secret"})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, open(t, resp.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})}).addr)
	c.expect("ACL WHOAMI", "-NOAUTH Authentication required.\r\n")
	c.expect("AUTH secret", ok)
	c.expect("ACL LIST", "*1\r\n"+bulk("user default on #(hidden) ~* &* +@all"))
}

// redis-cli looks through all keys and describes them.
func TestRedisCLITools(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatalf("%v: on Debian, apt-get install redis-tools", err)
	}
	d := open(t, resp.Options{})
	c := dial(t, d.addr)
	c.line("MSET likes:1 1 likes:22 12345")
	port := d.addr[strings.LastIndexByte(d.addr, ':')+1:]
	for option, want := range map[string]string{
		"--bigkeys": "Biggest string found '\"likes:22\"' has 5 bytes",
		"--memkeys": "Biggest string found '\"likes:22\"' has 72 bytes",
	} {
		out, err := exec.CommandContext(t.Context(), cli, "-p", port, option).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("redis-cli %s: %v\n%s", option, err, out)
		}
	}
}
