package resp_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A definition's floor and ceiling hold for every command, and for each of those that
// come together.
func TestDefinedBounds(t *testing.T) {
	o := quipu.Options{Logger: slog.New(slog.DiscardHandler)}
	define := func(t *testing.T, db *quipu.DB) *quipu.DB {
		t.Helper()
		d := definition.Definition{Pattern: "s*", Floor: new(int64(0)), Ceiling: new(int64(9))}
		if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		return db
	}
	const leaves = "-ERR the counter would cross its floor or ceiling\r\n"
	outside := func(n string) string {
		return "-ERR " + n + " is outside the floor and the ceiling that the definition has: 0 to 9\r\n"
	}
	check := func(t *testing.T, c *client) {
		t.Helper()
		f := c.expect
		f("INCRBY s 3", ":3\r\n")
		f("DECRBY s 4", leaves)
		f("DECR free", ":-1\r\n")
		f("INCRBY s 7", leaves)
		f("Q.ADD s -4 NOVALUE", leaves)
		f("Q.ADD s -4 ID t", "-ERR adding -4 to 3 would end below the floor of 0\r\n")
		f("SET s -1", outside("-1"))
		f("SET s 10 EX 9 GET", outside("10"))
		f("SETEX s 9 10", outside("10"))
		f("MSET free 5 s -1", outside("-1"))
		f("MSETNX other 5 s2 -1", outside("-1"))
		f("EXISTS other", zero)
		f("GET free", bulk("-1"))
		f("RENAME free s", outside("-1"))
		f("GET free", bulk("-1"))
		f("GET s", bulk("3"))
		f("INCREX s BYINT -4", "*2\r\n:3\r\n:0\r\n")
		f("INCREX s BYINT -4 LBOUND 20", "*2\r\n:3\r\n:0\r\n")
		f("INCREX s BYINT -4 SATURATE", "*2\r\n:0\r\n:-3\r\n")
		f("INCREX s BYINT 4 UBOUND 2 SATURATE", "*2\r\n:2\r\n:2\r\n")

		// Those that come together share a delta, but not its fate.
		c.send(strings.Repeat("DECR s\r\n", 4))
		for _, want := range []string{":1\r\n", zero, leaves, leaves} {
			if got := c.reply(); got != want {
				t.Fatalf("one of four: %q, want %q", got, want)
			}
		}
		f("MULTI", ok)
		f("INCR s", "+QUEUED\r\n")
		f("DECRBY s 5", "+QUEUED\r\n")
		f("INCR s", "+QUEUED\r\n")
		f("EXEC", "*3\r\n"+one+leaves+":2\r\n")
	}
	transports(t, func(t *testing.T, r resp.Options) {
		check(t, dial(t, openOver(t, define(t, quipu.New(memstore.New(memstore.Options{}), o)), r).addr))
	})
	t.Run("embedded", func(t *testing.T) {
		db, err := quipu.Open(t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, dial(t, openOver(t, define(t, db), resp.Options{}).addr))
	})
}

func TestIncrExOnce(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("INCREX a BYINT 3 UBOUND 4 EX 100 ID t", "*2\r\n:3\r\n:3\r\n")
		f("INCRBY a 10", ":13\r\n")
		f("PERSIST a", one)
		f("INCREX a BYINT 3 UBOUND 4 EX 100 ID t", "*2\r\n:3\r\n:3\r\n") // the first reply, and no second lifetime
		f("TTL a", ":-1\r\n")
		f("INCREX a ID t BYINT 3 EX 100 UBOUND 4", "*2\r\n:3\r\n:3\r\n")
		for _, other := range []string{"BYINT 3 UBOUND 4 EX 101", "BYINT 3 UBOUND 5 EX 100", "BYINT 3 UBOUND 4", "UBOUND 4 EX 100", "BYINT 3 UBOUND 4 EX 100 SATURATE"} {
			f("INCREX a ID t "+other, "-TOKEN the token was used for another payload\r\n")
		}
		f("INCREX a BYINT 3 UBOUND 4 ID u", "*2\r\n:13\r\n:0\r\n")
		f("SET a 1", ok)
		f("INCREX a BYINT 3 UBOUND 4 ID u", "*2\r\n:13\r\n:0\r\n") // Its token remembers the refusal.
		f("MULTI", ok)
		f("INCREX a BYINT 3 UBOUND 4 ID u", "+QUEUED\r\n")
		f("INCREX a ID v", "+QUEUED\r\n")
		f("EXEC", "*2\r\n*2\r\n:13\r\n:0\r\n*2\r\n:2\r\n:1\r\n")
		f("INCREX a ID", syntax)
		f("INCREX a ID a ID b", syntax)
		f("INCREX a ID "+strings.Repeat("t", 256), "-ERR token of 256 bytes: at most 255\r\n")
		f("GET a", bulk("2"))
	})
}

// TestIncrExForgotten has more refusals than tokens may remember: the reply of one that is not
// remembered says so.
func TestIncrExForgotten(t *testing.T) {
	transports(t, func(t *testing.T, r resp.Options) {
		s := memstore.New(memstore.Options{Limits: store.Limits{TokensMax: 20}}) // of which two remember refusals
		f := dial(t, openOver(t, quipu.New(s, quipu.Options{}), r).addr).expect
		f("SET a 4", ok)
		f("INCREX a UBOUND 4 ID t", "*2\r\n:4\r\n:0\r\n")
		f("INCREX a UBOUND 4 ID u", "*2\r\n:4\r\n:0\r\n")
		const forgotten = "-ERR the counter would cross its floor or ceiling; there is no room to remember that, so a repeat is decided anew\r\n"
		f("INCREX a UBOUND 4 ID v", forgotten)
		f("INCREX a UBOUND 4", "*2\r\n:4\r\n:0\r\n")
		f("INCREX a UBOUND 4 ID t", "*2\r\n:4\r\n:0\r\n")
		f("DECR a", ":3\r\n")
		f("INCREX a UBOUND 4 ID v", "*2\r\n:4\r\n:1\r\n")
	})
}
