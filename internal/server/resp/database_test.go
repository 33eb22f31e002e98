package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/resp"
)

// A database is a namespace: of the default user by its number, of others by the
// user's name too. What the doors count meets there, and nowhere else.
func TestDatabasesAreNamespaces(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c := dial(t, d.addr)
		long := strings.Repeat("u", 62)
		for i, words := range []string{
			"SELECT 1", "SELECT 15", "SELECT 0", "AUTH shop x", "SELECT 1", "AUTH other x", "AUTH default x", "RESET", "AUTH db1 x",
		} {
			c.line(words)
			c.expect(fmt.Sprintf("SET at %d", i), ok)
			namespace := []string{"db1", "db15", "default", "shop", "shop.db1", "other.db1", "db1", "default", "db1"}[i]
			if count, err := d.db.In(namespace).Read(t.Context(), "at"); err != nil || count.Value != int64(i) {
				t.Errorf("after %s, %s has %+v, %v", words, namespace, count, err)
			}
		}
		c.expect("AUTH "+long+" x", ok)
		c.expect("SELECT 1", "-ERR database 1 would be a namespace with too long a name\r\n")
		c.expect("SET at 99", ok)
		if count, err := d.db.In(long).Read(t.Context(), "at"); err != nil || count.Value != 99 {
			t.Errorf("after a SELECT that was refused: %+v, %v", count, err)
		}
		c.expect("FLUSHALL", ok)
		c.expect("AUTH shop x", ok)
		c.expect("FLUSHALL", ok)
		for namespace, kept := range map[string]bool{"shop": false, "shop.db1": false, "other.db1": true, "db1": true, "default": true} {
			if count, err := d.db.In(namespace).Read(t.Context(), "at"); err != nil || count.Exists != kept {
				t.Errorf("after FLUSHALL of another user, %s has %+v, %v", namespace, count, err)
			}
		}
	})
}

// Commands of a pipeline are executed in their order in whatever database is selected
// when their turn comes, and so are their replies.
func TestPipelineOverDatabases(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		var raw, want strings.Builder
		for i := range 100 {
			raw.WriteString(array("SELECT", fmt.Sprint(i%3)) + array("INCR", "k") + array("GET", "k") + array("INCRBY", "k", "0"))
			n := fmt.Sprint(i/3 + 1)
			want.WriteString(ok + ":" + n + "\r\n" + bulk(n) + ":" + n + "\r\n")
		}
		if got := c.all(raw.String()); got != want.String() {
			t.Errorf("replies %q", got)
		}
	})
}

func TestNoDatabaseChangeInTransactions(t *testing.T) {
	story(t, func(c *client) {
		c.expect("MULTI", ok)
		c.expect("SELECT 1", "-ERR SELECT can't be part of a transaction here\r\n")
		c.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		c.expect("WATCH k", ok)
		c.expect("SELECT 1", ok) // what is watched stays so: see TestDatabasesTogether
		c.expect("UNWATCH", ok)
	})
}

// Commands that clients may count on say why they do not exist.
func TestAbsentCommands(t *testing.T) {
	story(t, func(c *client) {
		c.expect("MOVE k 1", "-ERR MOVE is not supported: a counter stays in its namespace\r\n")
		c.expect("swapdb 0 1", "-ERR SWAPDB is not supported: a database is a namespace, and stays one\r\n")
		c.expect("DEBUG SLEEP 1", "-ERR DEBUG command not allowed: there is nothing to debug from here\r\n")
		c.expect("COMMAND INFO move", "*1\r\n"+null)
	})
}
