package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// five is a reply of redis-cell.
func five(limited, limit, left, retry, reset int) string {
	return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", limited, limit, left, retry, reset)
}

// limits runs a test over both transports, and over stores that the loop waits for and does
// not wait for.
func limits(t *testing.T, f func(t *testing.T, d *door)) {
	transports(t, func(t *testing.T, o resp.Options) { f(t, open(t, o)) })
	t.Run("shared", func(t *testing.T) {
		f(t, openOver(t, quipu.New(memstore.New(memstore.Options{Partitions: 3, Shared: true}), quipu.Options{}), resp.Options{}))
	})
	t.Run("embedded", func(t *testing.T) { f(t, openEmbedded(t)) })
}

// TestThrottle sends what clients of redis-cell send.
func TestThrottle(t *testing.T) {
	limits(t, func(t *testing.T, d *door) {
		c := dial(t, d.addr)
		for left := 2; left >= 0; left-- {
			c.expect("CL.THROTTLE a 2 1 86400", five(0, 3, left, -1, 86400*(3-left)))
		}
		got := c.line("CL.THROTTLE a 2 1 86400")
		if want := five(1, 3, 0, 86400, 3*86400); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c.expect("cl.throttle b 2 1 86400 3", five(0, 3, 0, -1, 3*86400))
		c.expect("CL.THROTTLE c 2 1 86400 4", five(1, 3, 3, -1, 0)) // never
		c.expect("CL.THROTTLE c 2 1 86400 0", five(0, 3, 3, -1, 0))
		c.expect("GET a", "$-1\r\n") // it is no counter
		c.expect("DBSIZE", ":0\r\n")
		c.expect("Q.FORGET cl.throttle a", ok)
		c.expect("CL.THROTTLE a 2 1 86400", five(0, 3, 2, -1, 86400))
		bad := func(words, want string) {
			t.Helper()
			if got := c.line(words); !strings.HasPrefix(got, "-ERR") || !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", words, got, want)
			}
		}
		bad("CL.THROTTLE a 2 1", "wrong number of arguments")
		bad("CL.THROTTLE a 2 1 60 1 1", "syntax error")
		bad("CL.THROTTLE a x 1 60", "not an integer")
		bad("CL.THROTTLE a -1 1 60", "max_burst of 0 or more")
		bad("CL.THROTTLE a 1 0 60", "a count and a period of 1 or more")
		bad("CL.THROTTLE a 1 1 0", "a count and a period of 1 or more")
		bad("CL.THROTTLE a 1 1 60 -1", "cost of -1")
		bad("CL.THROTTLE a 1 1 99999999", "at most 366 days")
		bad("CL.THROTTLE "+strings.Repeat("k", 256)+" 1 1 60", "at most 255")
		c.expect("MULTI", ok)
		bad("CL.THROTTLE a 2 1 60", "can't be part of a transaction")
		c.line("DISCARD")
	})
}

// A pipeline has its replies in order, whatever they are made of.
func TestLimitsInPipelines(t *testing.T) {
	limits(t, func(t *testing.T, d *door) {
		hour, err := definition.ParseWidth("24h")
		if err != nil {
			t.Fatal(err)
		}
		limited := []definition.Definition{{Pattern: "api", Limits: []definition.Limit{{Rate: 1, Per: hour, Burst: 50}}}}
		if _, err := d.db.Define(t.Context(), limited, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, d.addr)
		var sent, want strings.Builder
		for i := range 100 {
			sent.WriteString(array("INCR", "n") + array("CL.THROTTLE", "k", "49", "1", "86400") + array("ECHO", "x") + array("Q.ALLOW", "api", "eve") + array("SET", "n", fmt.Sprint(i+1)))
			limited, left, retry := 0, 49-i, -1
			if i >= 50 {
				limited, left, retry = 1, 0, 86400
			}
			fmt.Fprintf(&want, ":%d\r\n%s%s%s", i+1, five(limited, 50, left, retry, min(i+1, 50)*86400), bulk("x"),
				strings.Replace("*16\r\n"+bulk("allowed")+":A\r\n", "A", fmt.Sprint(1-limited), 1))
			fmt.Fprintf(&want, "%s%s%s:50\r\n%s:%d\r\n", bulk("policy"), bulk("24h"), bulk("limit"), bulk("remaining"), left)
			fmt.Fprintf(&want, "%sretry\r\n%sreset\r\n%s%s%s:0\r\n", bulk("retry_after_ms"), bulk("reset_after_ms"), bulk("source"), bulk("store"), bulk("replayed"))
			want.WriteString(ok)
		}
		c.send(sent.String())
		var got strings.Builder
		for range 500 {
			got.WriteString(c.reply())
		}
		// How long it takes is not known to the millisecond.
		text := got.String()
		for _, name := range []string{"retry_after_ms", "reset_after_ms"} {
			pieces := strings.Split(text, bulk(name))
			for i := 1; i < len(pieces); i++ {
				_, rest, _ := strings.Cut(pieces[i], "\r\n")
				pieces[i] = name[:5] + "\r\n" + rest
			}
			text = strings.Join(pieces, bulk(name))
		}
		if text != want.String() {
			at := 0
			for at < len(text) && at < want.Len() && text[at] == want.String()[at] {
				at++
			}
			t.Errorf("at %d of %d: %.300q, want %.300q", at, len(text), text[at:], want.String()[at:])
		}
	})
}

func TestAllowRefuses(t *testing.T) {
	limits(t, func(t *testing.T, d *door) {
		c := dial(t, d.addr)
		bad := func(words, want string) {
			t.Helper()
			if got := c.line(words); !strings.HasPrefix(got, "-") || !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", words, got, want)
			}
		}
		bad("Q.ALLOW api eve", "no limits are defined for")
		bad("Q.ALLOW api eve x", "not an integer")
		bad("Q.ALLOW api eve 1 WARM", "syntax error")
		bad("Q.ALLOW api eve 1 ID", "syntax error")
		bad("Q.PEEK api eve", "no limits are defined for")
		bad("Q.PEEK api eve 1 2", "syntax error")
		c.expect("Q.FORGET api eve", ok)
	})
}
