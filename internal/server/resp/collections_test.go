package resp_test

import (
	"fmt"
	"strings"
	"testing"
)

// What counts is refused by a key that holds something else, in Redis's words, whichever way it goes.
func TestCountingWhatIsNone(t *testing.T) {
	const wrongKind = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	story(t, func(c *client) {
		f := c.expect
		f("BF.ADD b x", one)
		f("CMS.INITBYDIM c 10 2", ok)
		f("TOPK.RESERVE t 3", ok)
		f("HSET h f 1", one)
		f("ZADD z 1 a", one)
		f("SET text x", ok)
		for _, key := range []string{"b", "c", "t", "h", "z"} {
			for _, words := range []string{"INCR", "DECR", "INCRBY %s 5", "DECRBY %s 5", "INCREX", "INCRBYFLOAT %s 1", "APPEND %s x", "Q.ADD %s 1", "GET", "GETSET %s 1", "STRLEN"} {
				if !strings.Contains(words, "%s") {
					words += " %s"
				}
				f(fmt.Sprintf(words, key), wrongKind)
			}
			f("MULTI", ok)
			f("INCR n", "+QUEUED\r\n")
			f("INCR "+key, "+QUEUED\r\n")
			if got := c.line("EXEC"); !strings.Contains(got, "WRONGTYPE") {
				t.Errorf("EXEC of %s: %q", key, got)
			}
		}
		// In one pipeline, between others.
		c.send(array("INCR", "n2") + array("INCR", "h") + array("INCR", "h") + array("INCR", "text") + array("INCR", "n2"))
		for i, want := range []string{one, wrongKind, wrongKind, notInteger, ":2\r\n"} {
			if got := c.reply(); got != want {
				t.Errorf("reply %d: %q, want %q", i, got, want)
			}
		}
	})
}

// A collection has a limit, and what would cross it changes nothing.
func TestCollectionLimits(t *testing.T) {
	const tooLong = "-ERR a hash or a sorted set has at most 65536 bytes here: nothing has changed\r\n"
	story(t, func(c *client) {
		f := c.expect
		long := strings.Repeat("x", 60_000)
		f("HSET h a "+long+" b 1", ":2\r\n")
		f("HSET h b 2 c "+long[:6000], tooLong)
		f("HSETNX h c "+long[:6000], tooLong)
		f("HMGET h b c", "*2\r\n"+bulk("1")+null)
		f("HSET h a 1", zero)
		f("HSET h c "+long, one)
		f("ZADD z 1 "+long, one)
		f("ZADD z 1 "+long[1:], tooLong)
		f("ZCARD z", one)
		f("OBJECT ENCODING z", bulk("skiplist"))
		f("OBJECT ENCODING h", bulk("hashtable"))
		f("SCAN 0 TYPE zset", "*2\r\n"+bulk("0")+"*1\r\n"+bulk("z"))
		f("SCAN 0 TYPE hash", "*2\r\n"+bulk("0")+"*1\r\n"+bulk("h"))
		f("RENAME h y", ok)
		f("COPY y h DB 3", one)
		f("HLEN y", ":3\r\n")
		f("ZRANGE z 0 -1 BYLEX", "-ERR BYLEX is not supported here\r\n")
		f("WATCH y", ok)
		f("HSET y b 5", zero)
		f("MULTI", ok)
		f("HGET y b", "+QUEUED\r\n")
		f("EXEC", "*-1\r\n")
		f("SELECT 3", ok)
		f("HGET h b", bulk("1"))
	})
}
