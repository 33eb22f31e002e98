package resp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// field returns what stands after a name in a reply: a bulk string or an integer.
func field(t *testing.T, reply, name string) string {
	t.Helper()
	at := strings.LastIndex(reply, bulk(name)) // A value may be the same word, and comes before.
	if at < 0 {
		t.Fatalf("no %s in %q", name, reply)
	}
	rest := reply[at+len(bulk(name)):]
	if strings.HasPrefix(rest, "$-1") {
		return ""
	}
	if rest[0] == '$' {
		_, rest, _ = strings.Cut(rest, "\r\n")
	} else {
		rest = rest[1:]
	}
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// TestReservations reserves over RESP, and has the commands of Redis meet what is reserved.
func TestReservations(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{Partitions: 3}), quipu.Options{})
	d := openOver(t, db, resp.Options{})
	c := dial(t, d.addr)
	f := func(command, want string) {
		t.Helper()
		if got := c.line(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	has := func(reply string, fields ...string) {
		t.Helper()
		for i := 0; i < len(fields); i += 2 {
			if got := field(t, reply, fields[i]); got != fields[i+1] {
				t.Errorf("%s is %q, want %q in %q", fields[i], got, fields[i+1], reply)
			}
		}
	}
	f("SET stock 10", ok)
	one := c.line("Q.RESERVE stock 4 1h WHO eve ID t")
	has(one, "amount", "4", "who", "eve", "state", "open", "value", "10", "reserved", "4", "available", "6", "open", "1", "exact", "1")
	id := field(t, one, "id")
	if again := c.line("Q.RESERVE stock 4 1h WHO eve ID t"); field(t, again, "id") != id {
		t.Errorf("again: %q", again)
	}
	f("GET stock", bulk("6"))
	f("Q.RESERVE stock 7 30", "-ERR 7 asked for, and 6 available\r\n")
	f("Q.RESERVE stock 1 30 FLOOR 6", "-ERR 1 asked for, and 6 available, which must not go below 6\r\n")
	const held = "-ERR the counter has open reservations: until they have ended, it can't be deleted or reset, and can't have a deadline\r\n"
	f("DEL stock", held)
	f("GETDEL stock", held)
	f("EXPIRE stock 10", held)
	f("SET stock 3 EX 10", held)
	f("RENAME stock other", held)
	f("DEL stock none", held)
	f("SET stock 20", ok) // what is available
	f("INCRBY stock 1", ":21\r\n")
	list := c.line("Q.RESERVATIONS stock WHO eve COUNT 5")
	has(list, "value", "25", "reserved", "4", "id", id, "next", "")
	has(c.line("Q.EXTEND "+id+" 7200"), "state", "open")
	has(c.line("Q.COMMIT "+id+" 3"), "state", "committed", "committed", "3", "available", "22", "open", "0")
	has(c.line("Q.COMMIT "+id+" 3"), "state", "committed")
	f("Q.COMMIT "+id, "-ENDED the reservation has ended: it was committed, with 3\r\n")
	f("Q.RELEASE "+id, "-ENDED the reservation has ended: it was committed, with 3\r\n")
	has(c.line("Q.RESERVATION "+id), "state", "committed", "committed", "3")
	two := field(t, c.line("Q.RESERVE stock 1 10m"), "id")
	has(c.line("Q.RELEASE "+two), "state", "released", "committed", "")
	f("RENAME stock other", ok)
	f("EXPIRE other 10", one1int)
	f("DEL other", one1int)

	for _, bad := range []string{
		"Q.RESERVE a 1", "Q.RESERVE a x 30", "Q.RESERVE a 0 30", "Q.RESERVE a 1 0", "Q.RESERVE a 1 -5", "Q.RESERVE a 1 30 ID", "Q.RESERVE a 1 30 ID t ID u",
		"Q.RESERVE a 1 9223372036854775807", "Q.COMMIT x", "Q.COMMIT " + id + " -1", "Q.COMMIT " + id + " 1 2", "Q.RELEASE", "Q.EXTEND " + id, "Q.RESERVATION x",
		"Q.RESERVATIONS", "Q.RESERVATIONS a COUNT 0", "Q.RESERVATIONS a CURSOR x",
	} {
		if got := c.line(bad); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("%s: %q", bad, got)
		}
	}
	if _, err := db.Reserve(t.Context(), "other", 1, 0); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

const one1int = ":1\r\n"
