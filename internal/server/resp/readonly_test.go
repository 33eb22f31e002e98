package resp_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// A server that takes no writes refuses them one by one: who reads in the same
// moment, or the same pipeline, is served.
func TestReadOnly(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openOver(t, quipu.New(memstore.New(memstore.Options{}), quipu.Options{ReadOnly: true}), o)
		c := dial(t, d.addr)
		c.send(strings.Repeat(array("GET", "a")+array("INCR", "a")+array("DEL", "a")+array("Q.ADD", "a", "1", "ID", "t"), 20))
		for range 20 {
			if got := c.reply(); got != null {
				t.Fatalf("GET: %q", got)
			}
			for range 3 {
				if got := c.reply(); !strings.HasPrefix(got, "-READONLY ") {
					t.Fatalf("a write: %q", got)
				}
			}
		}
		c.send(array("MULTI") + array("GET", "a") + array("INCR", "a") + array("EXEC") + array("GET", "a"))
		want := []string{"+OK", "+QUEUED", "-READONLY", "-EXECABORT", strings.TrimSpace(null)}
		for _, w := range want {
			if got := c.reply(); !strings.HasPrefix(got, w) {
				t.Fatalf("%q, want %s", got, w)
			}
		}
	})
}

// It watches, and reads what it watches, also if the counter is split: it can't
// put that together.
func TestReadOnlyWatch(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		s := common()
		value := strconv.FormatInt(split(t, s, "hot"), 10)
		d := openOver(t, quipu.New(s, quipu.Options{ReadOnly: true}), o)
		c := dial(t, d.addr)
		c.expect("WATCH hot other", ok)
		c.send(array("GET", "other") + array("GET", "hot") + array("GET", "other"))
		if got := c.reply() + c.reply() + c.reply(); got != null+bulk(value)+null {
			t.Errorf("%q, want %s between two that are not there", got, value)
		}
	})
}
