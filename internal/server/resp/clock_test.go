package resp_test

import (
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// skewed returns a DB over a store whose clock is ahead of the server's.
func skewed(ahead time.Duration) *quipu.DB {
	return quipu.New(memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }}), quipu.Options{})
}

// A lifetime is measured by the store's clock, however far the server's is off.
func TestLifetimesByTheStoresClock(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		for _, ahead := range []time.Duration{10 * time.Minute, 1000 * time.Hour, -10 * time.Minute, -1000 * time.Hour} {
			d := openOver(t, skewed(ahead), o)
			c := dial(t, d.addr)
			f := func(set, reply string) {
				t.Helper()
				c.expect("SET x 5", ok)
				c.expect(set, reply)
				c.expect("TTL x", ":600\r\n")
			}
			f("SET x 5 EX 600", ok)
			f("SET x 5 PX 600000", ok)
			f("SETEX x 600 5", ok)
			f("PSETEX x 600000 5", ok)
			f("EXPIRE x 600", ":1\r\n")
			f("PEXPIRE x 600000", ":1\r\n")
			f("EXPIRE x 600 LT", ":1\r\n")
			f("GETEX x EX 600", bulk("5"))
			f("INCREX x EX 600", "*2\r\n:6\r\n:1\r\n")
			c.expect("EXPIRE x 601 GT", ":1\r\n")
			c.expect("EXPIRE x 602 LT", ":0\r\n")
			c.expect("EXPIRE x 0", ":1\r\n")
			c.expect("EXISTS x", ":0\r\n")
			c.expect("SET x 5", ok)
			c.expect("PEXPIRE x 9000000000000000000", ":1\r\n")
			c.expect("PEXPIRE x -1", ":1\r\n")
			c.expect("EXISTS x", ":0\r\n")
			c.expect("SET x 5 PX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n")
		}
	})
}
