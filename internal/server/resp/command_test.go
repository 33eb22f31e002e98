package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server/resp"
)

const (
	ok         = "+OK\r\n"
	null       = "$-1\r\n"
	one        = ":1\r\n"
	zero       = ":0\r\n"
	syntax     = "-ERR syntax error\r\n"
	notInteger = "-ERR value is not an integer or out of range\r\n"
	overflow   = "-ERR increment or decrement would overflow\r\n"
	maxInt     = "9223372036854775807"
	minInt     = "-9223372036854775808"
)

// story runs a fresh client through lines on each transport and store.
func story(t *testing.T, f func(c *client)) {
	t.Helper()
	transports(t, func(t *testing.T, o resp.Options) {
		f(dial(t, open(t, o).addr))
	})
	t.Run("embedded", func(t *testing.T) { f(dial(t, openEmbedded(t).addr)) })
}

func TestCounting(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("INCR a", one)
		f("incr a", ":2\r\n")
		f("InCr a", ":3\r\n")
		f("GET a", bulk("3"))
		f("DECR a", ":2\r\n")
		f("INCRBY a 40", ":42\r\n")
		f("DECRBY a 50", ":-8\r\n")
		f("INCRBY a 0", ":-8\r\n")
		f("INCRBY a x", notInteger)
		f("INCRBY a 1.5", notInteger)
		f("INCRBY a 9223372036854775808", notInteger)
		f("INCRBY a +1", notInteger)
		f("INCRBY a 01", notInteger)
		f("DECRBY a "+minInt, "-ERR decrement would overflow\r\n")
		f("INCR", "-ERR wrong number of arguments for 'incr' command\r\n")
		f("INCR a b", "-ERR wrong number of arguments for 'incr' command\r\n")
		f("SET a "+maxInt, ok)
		f("INCR a", overflow)
		f("GET a", bulk(maxInt))
		f("SET a "+minInt, ok)
		f("DECR a", overflow)
		f("DECRBY a "+maxInt, overflow)
		f("INCRBY a "+maxInt, ":-1\r\n")
		f("STRLEN a", ":2\r\n")
		f("STRLEN none", zero)
	})
}

func TestKeyNames(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("INCR "+strings.Repeat("k", 512), one)
		f("INCR "+strings.Repeat("k", 513), "-ERR key of 513 bytes: at most 512\r\n")
		f("GET "+strings.Repeat("k", 513), "-ERR key of 513 bytes: at most 512\r\n")
		f("INCR \xff", "-ERR key is not UTF-8\r\n")
		f("RENAME \xff a", "-ERR key is not UTF-8\r\n")
		f("WATCH \xff", "-ERR key is not UTF-8\r\n")
		f("MGET a \xff", "-ERR key is not UTF-8\r\n")
		f("MSET a 1 \xff 2", "-ERR key is not UTF-8\r\n")
		f("EXISTS a", zero)
		if got := c.do("INCR", ""); got != "-ERR key is empty\r\n" {
			t.Errorf("empty key: %q", got)
		}
		f("INCR größe", one)
	})
}

func TestSet(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("SET a 5", ok)
		f("SET a abc", ok)
		f("SET a 1.5", ok)
		f("SET a 007", ok)
		f("INCR a", notInteger)
		f("SET a 5", ok)
		f("SET a", "-ERR wrong number of arguments for 'set' command\r\n")
		f("SET a 6 NX", null)
		f("SET b 6 NX", ok)
		f("SET c 6 XX", null)
		f("SET b 7 XX", ok)
		f("SET b 8 NX XX", syntax)
		f("SET b 8 XX NX", syntax)
		f("SET b 8 GET", bulk("7"))
		f("SET none 8 GET", null)
		f("SET b 9 NX GET", bulk("8"))
		f("GET b", bulk("8"))
		f("SET n 9 NX GET", null)
		f("GET n", bulk("9"))
		f("SET b 9 XX GET", bulk("8"))
		f("SET m 9 XX GET", null)
		f("GET m", null)
		f("SET b 1 EX 100", ok)
		f("TTL b", ":100\r\n")
		f("SET b 2 KEEPTTL", ok)
		f("TTL b", ":100\r\n")
		f("INCR b", ":3\r\n")
		f("TTL b", ":100\r\n")
		f("SET b 2", ok)
		f("TTL b", ":-1\r\n")
		f("SET b 2 PX 100000", ok)
		f("TTL b", ":100\r\n")
		f("SET b 2 EXAT 33333333333", ok)
		f("EXPIRETIME b", ":33333333333\r\n")
		f("SET b 2 PXAT 33333333333333", ok)
		f("PEXPIRETIME b", ":33333333333333\r\n")
		f("SET b 2 PXAT 1", ok)
		f("EXISTS b", zero)
		f("SET b 2 EX 0", "-ERR invalid expire time in 'set' command\r\n")
		f("SET b 2 EX -1", "-ERR invalid expire time in 'set' command\r\n")
		f("SET b 2 EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n")
		f("SET b 2 PX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n")
		f("SET b 2 EX x", notInteger)
		f("SET b 2 EX", syntax)
		f("SET b 2 EX 5 PX 5", syntax)
		f("SET b 2 EX 5 KEEPTTL", syntax)
		f("SET b 2 KEEPTTL EX 5", syntax)
		f("SET b 2 WHAT", syntax)
		f("EXISTS b", zero)
		f("SETNX s 1", one)
		f("SETNX s 2", zero)
		f("SETNX s x", zero)
		f("SETEX s 10 5", ok)
		f("TTL s", ":10\r\n")
		f("SETEX s 0 5", "-ERR invalid expire time in 'setex' command\r\n")
		f("PSETEX s 10000 6", ok)
		f("TTL s", ":10\r\n")
		f("PSETEX s -1 5", "-ERR invalid expire time in 'psetex' command\r\n")
		f("GETSET s 7", bulk("6"))
		f("TTL s", ":-1\r\n")
		f("GETSET t 7", null)
		f("GETSET t x", bulk("7"))
		f("GETDEL t", bulk("x"))
		f("GETDEL t", null)
		f("GETEX s", bulk("7"))
		f("GETEX s EX 10", bulk("7"))
		f("TTL s", ":10\r\n")
		f("GETEX s PERSIST", bulk("7"))
		f("TTL s", ":-1\r\n")
		f("GETEX s PERSIST", bulk("7"))
		f("GETEX s PXAT 33333333333333", bulk("7"))
		f("PEXPIRETIME s", ":33333333333333\r\n")
		f("GETEX s EX", syntax)
		f("GETEX s EX 5 PERSIST", syntax)
		f("GETEX s EX 0", "-ERR invalid expire time in 'getex' command\r\n")
		f("GETEX nothing EX 5", null)
		f("GETEX s EXAT 1", bulk("7"))
		f("EXISTS s", zero)
	})
}

func TestMany(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("MSET a 1 b 2 a 3", ok)
		f("MGET a b none a", "*4\r\n"+bulk("3")+bulk("2")+null+bulk("3"))
		f("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n")
		f("MSET a 3 b x", ok)
		f("MGET a b", "*2\r\n"+bulk("3")+bulk("x"))
		f("MSETNX c 1 d 2", one)
		f("MSETNX c 1 e 2", zero)
		f("EXISTS e", zero)
		f("MSETNX c", "-ERR wrong number of arguments for 'msetnx' command\r\n")
		f("MSETNX e 1 f", "-ERR wrong number of arguments for 'msetnx' command\r\n")
		f("MSETNX e 1 e 2", one)
		f("GET e", bulk("2"))
		f("MSETNX a 1 g x", zero)
		f("EXISTS a a b none", ":3\r\n")
		f("TOUCH a none", one)
		f("DEL a a none", one)
		f("UNLINK b c", ":2\r\n")
		f("TYPE d", "+string\r\n")
		f("TYPE none", "+none\r\n")
		many := []string{"MGET"}
		for i := range 10_000 {
			many = append(many, fmt.Sprintf("k%d", i))
		}
		if got := c.do(many...); got != "*10000\r\n"+strings.Repeat(null, 10_000) {
			t.Errorf("MGET of many: %.50q", got)
		}
		if got := c.do(append(many, "one-more")...); !strings.HasPrefix(got, "-ERR too many keys") {
			t.Errorf("MGET of too many: %.50q", got)
		}
	})
}

func TestExpiry(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("EXPIRE a 10", zero)
		f("TTL a", ":-2\r\n")
		f("PTTL a", ":-2\r\n")
		f("EXPIRETIME a", ":-2\r\n")
		f("SET a 1", ok)
		f("PEXPIRETIME a", ":-1\r\n")
		f("EXPIRE a 10", one)
		f("TTL a", ":10\r\n")
		f("PERSIST a", one)
		f("PERSIST a", zero)
		f("PERSIST none", zero)
		f("EXPIRE a 10 XX", zero)
		f("EXPIRE a 10 GT", zero)
		f("EXPIRE a 10 LT", one)
		f("EXPIRE a 20 NX", zero)
		f("EXPIRE a 20 LT", zero)
		f("EXPIRE a 20 GT", one)
		f("TTL a", ":20\r\n")
		f("EXPIRE a 30 XX GT", one)
		f("PEXPIRE a 40000", one)
		f("TTL a", ":40\r\n")
		f("EXPIREAT a 33333333333", one)
		f("EXPIRETIME a", ":33333333333\r\n")
		f("PEXPIREAT a 33333333333499", one)
		f("EXPIRETIME a", ":33333333333\r\n")
		f("PEXPIREAT a 33333333333500", one)
		f("EXPIRETIME a", ":33333333334\r\n")
		f("PEXPIREAT a "+maxInt, one)
		f("PEXPIRETIME a", ":"+maxInt+"\r\n")
		f("EXPIRETIME a", ":9223372036854776\r\n")
		f("EXPIRE a 1 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n")
		f("EXPIRE a 1 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n")
		f("EXPIRE a 1 FOO", "-ERR Unsupported option FOO\r\n")
		f("EXPIRE a x", notInteger)
		f("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n")
		f("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command\r\n")
		f("EXPIRE a -1", one)
		f("EXISTS a", zero)
		f("SET a 1", ok)
		f("EXPIREAT a -5", one)
		f("GET a", null)
		f("SET a 7 PX 1", ok)
		// From its deadline on a counter starts at nothing.
		for until := time.Now().Add(patience); c.line("EXISTS a") != zero; {
			if time.Now().After(until) {
				t.Fatal("a did not expire")
			}
		}
		f("INCR a", one)
		f("TTL a", ":-1\r\n")
	})
}

func TestIncrEx(t *testing.T) {
	story(t, func(c *client) {
		f := func(words string, value, applied int) {
			t.Helper()
			c.expect(words, fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", value, applied))
		}
		f("INCREX a", 1, 1)
		f("INCREX a BYINT 5", 6, 5)
		f("INCREX a BYINT 5 UBOUND 10", 6, 0)
		f("INCREX a BYINT 4 UBOUND 10", 10, 4)
		f("INCREX a BYINT -5 LBOUND 6", 10, 0)
		f("INCREX a BYINT 5 UBOUND 12 SATURATE", 12, 2)
		f("INCREX a BYINT -50 LBOUND -1 SATURATE", -1, -13)
		f("INCREX none UBOUND 0", 0, 0)
		c.expect("EXISTS none", zero)
		f("INCREX a BYINT 1 EX 100", 0, 1)
		c.expect("TTL a", ":100\r\n")
		f("INCREX a UBOUND 0 EX 200", 0, 0)
		c.expect("TTL a", ":100\r\n")
		f("INCREX a EX 200 ENX", 1, 1)
		c.expect("TTL a", ":100\r\n")
		f("INCREX a PX 200000", 2, 1)
		c.expect("TTL a", ":200\r\n")
		f("INCREX a PERSIST", 3, 1)
		c.expect("TTL a", ":-1\r\n")
		f("INCREX a EX 100 ENX", 4, 1)
		c.expect("TTL a", ":100\r\n")
		f("INCREX a EXAT 33333333333", 5, 1)
		f("INCREX a PXAT 33333333333333", 6, 1)
		c.expect("PEXPIRETIME a", ":33333333333333\r\n")
		f("INCREX a BYINT 0", 6, 0)
		c.expect("SET m "+maxInt, ok)
		c.expect("INCREX m", "*2\r\n:"+maxInt+"\r\n:0\r\n")
		c.expect("INCREX m SATURATE", "*2\r\n:"+maxInt+"\r\n:0\r\n")
		c.expect("INCREX a BYFLOAT 1.5", "-ERR INCREX BYFLOAT is not supported: counters are integers\r\n")
		c.expect("INCREX a BYINT x", notInteger)
		c.expect("INCREX a LBOUND 5 UBOUND 4", "-ERR LBOUND is greater than UBOUND\r\n")
		c.expect("INCREX a ENX", "-ERR ENX needs one of EX, PX, EXAT and PXAT\r\n")
		c.expect("INCREX a PERSIST ENX", "-ERR ENX needs one of EX, PX, EXAT and PXAT\r\n")
		c.expect("INCREX a EX 1 PX 1", syntax)
		c.expect("INCREX a EX 0", "-ERR invalid expire time in 'increx' command\r\n")
		c.expect("INCREX a WHAT", syntax)
		c.expect("INCREX a BYINT", syntax)
	})
}

func TestRename(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("RENAME a b", "-ERR no such key\r\n")
		f("RENAMENX a b", "-ERR no such key\r\n")
		f("SET a 5 EX 100", ok)
		f("SET b 6", ok)
		f("RENAMENX a b", zero)
		f("RENAME a b", ok)
		f("GET b", bulk("5"))
		f("TTL b", ":100\r\n")
		f("EXISTS a", zero)
		f("RENAMENX b c", one)
		f("SET d 1 EX 50", ok)
		f("SET e 2", ok)
		f("RENAME e d", ok)
		f("TTL d", ":-1\r\n")
		f("RENAME d d", ok)
		f("RENAMENX d d", zero)
		f("GET d", bulk("2"))
	})
}

func TestTransactions(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		const queued = "+QUEUED\r\n"
		f("EXEC", "-ERR EXEC without MULTI\r\n")
		f("DISCARD", "-ERR DISCARD without MULTI\r\n")
		f("MULTI", ok)
		f("MULTI", "-ERR MULTI calls can not be nested\r\n")
		f("INCR a", queued)
		f("INCR a", queued)
		f("GET a", queued)
		f("SET a x", queued)
		f("PING", queued)
		f("EXPIRE a 100", queued)
		f("TTL a", queued)
		f("EXEC", "*7\r\n:1\r\n:2\r\n"+bulk("2")+ok+"+PONG\r\n:1\r\n:100\r\n")
		f("MULTI", ok)
		f("EXEC", "*0\r\n")
		f("MULTI", ok)
		f("INCR a", queued)
		f("DISCARD", ok)
		f("GET a", bulk("x"))

		f("MULTI", ok)
		f("NOSUCH a", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' \r\n")
		f("INCR a", queued)
		f("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		f("GET a", bulk("x"))
		f("MULTI", ok)
		f("INCR", "-ERR wrong number of arguments for 'incr' command\r\n")
		f("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		f("MULTI", ok)
		f("RENAME a b", queued)
		f("GET b", queued)
		f("RENAME b a", queued)
		f("EXEC", "*3\r\n"+ok+bulk("x")+ok)
		f("MULTI", ok)
		f("Q.ADD a 1 ID t", "-ERR Q.ADD can't be part of a transaction here\r\n")
		f("Q.ADD a 1 WITHSESSION", "-ERR Q.ADD can't be part of a transaction here\r\n")
		f("Q.ADD a 1", queued)
		f("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		f("MULTI", ok)
		f("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n")
		f("EXEC", "*0\r\n")

		// An addition that overflows fails alone.
		f("SET m "+maxInt, ok)
		f("MULTI", ok)
		f("INCR m", queued)
		f("DECR m", queued)
		f("EXEC", "*2\r\n"+overflow+":9223372036854775806\r\n")
		f("MULTI", ok)
		f("INCR m", queued)
		f("INCR m", queued)
		f("EXEC", "*2\r\n:"+maxInt+"\r\n"+overflow)
	})
}

func TestWatch(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, other := dial(t, d.addr), dial(t, d.addr)
		f := c.expect
		f("WATCH a b", ok)
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("EXEC", "*1\r\n:1\r\n")
		f("WATCH a", ok)
		other.expect("INCR a", ":2\r\n")
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("EXEC", "*-1\r\n")
		f("GET a", bulk("2"))
		// What was watched is forgotten after EXEC, DISCARD and UNWATCH.
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("EXEC", "*1\r\n:3\r\n")
		f("WATCH a", ok)
		other.expect("INCR a", ":4\r\n")
		f("UNWATCH", ok)
		f("MULTI", ok)
		f("EXEC", "*0\r\n")
		f("WATCH a", ok)
		other.expect("INCR a", ":5\r\n")
		f("MULTI", ok)
		f("DISCARD", ok)
		f("MULTI", ok)
		f("EXEC", "*0\r\n")
		// What did not exist, and then does; and what was deleted.
		f("WATCH new", ok)
		other.expect("SET new 1", ok)
		f("MULTI", ok)
		f("EXEC", "*-1\r\n")
		f("WATCH new", ok)
		other.expect("DEL new", one)
		f("MULTI", ok)
		f("GET new", "+QUEUED\r\n")
		f("EXEC", "*-1\r\n")
		f("HELLO 3", c.line("HELLO 3"))
		f("WATCH a", ok)
		other.expect("INCR a", ":6\r\n")
		f("MULTI", ok)
		f("EXEC", "_\r\n")
		// The connection's own change counts too.
		f("WATCH a", ok)
		f("INCR a", ":7\r\n")
		f("MULTI", ok)
		f("EXEC", "_\r\n")
	})
}
