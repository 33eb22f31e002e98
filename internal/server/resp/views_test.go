package resp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// TestViews sends the commands that Redis has to counters that have windows: each changes
// total and windows in one step, or what is outside of them.
func TestViews(t *testing.T) {
	all := func(t *testing.T, d *door) {
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		definitions := []definition.Definition{
			{Pattern: "vl*", Ledger: definition.Ledger{Record: definition.All}},
			{Pattern: "v*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(48 * time.Hour)}}},
		}
		c := dial(t, d.addr)
		if got := c.line("INCRBY v 5"); got != ":5\r\n" { // It was there before the definition.
			t.Fatal(got)
		}
		if _, err := d.db.Define(t.Context(), definitions, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		f := func(command, want string) {
			t.Helper()
			if got := c.line(command); got != want {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
		counted := func(key string, want int64) { // in windows; the rest is outside
			t.Helper()
			value, err := d.db.Read(t.Context(), key, quipu.Exact())
			if err != nil {
				t.Fatal(err)
			}
			outside, windows := viewParts(t, d.db, key)
			if windows != want || outside+windows != value.Value {
				t.Errorf("%s is %d: %d in windows, want %d, and %d outside", key, value.Value, windows, want, outside)
			}
		}
		f("INCR vl", ":1\r\n")
		f("Q.ADD vl 2 ID t", ":3\r\n")
		f("SET vl 4", ok)
		if page, err := d.db.Ledger(t.Context(), "vl", quipu.LedgerOptions{}); err != nil || len(page.Lines) != 3 ||
			slices.ContainsFunc(page.Lines, func(l quipu.Line) bool { return l.Source != "resp" }) {
			t.Errorf("the ledger: %+v, %v", page, err)
		}
		f("INCR v", ":6\r\n")
		f("DECRBY v 3", ":3\r\n")
		counted("v", -2)
		c.send(strings.Repeat(array("INCR", "v")+array("INCR", "plain"), 3) + array("EXPIRE", "v", "10") + array("INCR", "v"))
		for _, want := range []string{":4", ":1", ":5", ":2", ":6", ":3", "-ERR", ":7"} {
			if got := c.reply(); !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		counted("v", 2)
		f("SET v 100", ok)
		f("GETSET v 50", bulk("100"))
		f("SET v 60 GET", bulk("50"))
		counted("v", 2)
		f("GETDEL v", bulk("60"))
		f("EXISTS v", zero)
		counted("v", 2)
		f("INCR v", ":1\r\n")
		counted("v", 3)
		if d.db.Port().Traits().Partitions == 1 {
			f("MSET v 7 v2 8 plain 9", ok)
		} else {
			c.send(array("SET", "v", "7") + array("SET", "v2", "8") + array("SET", "plain", "9"))
			for range 3 {
				if got := c.reply(); got != ok {
					t.Error(got)
				}
			}
		}
		f("INCR v2", ":9\r\n")
		counted("v", 3)
		counted("v2", 1)
		f("DEL v v2 none", ":2\r\n")
		counted("v2", 1)
		f("SET v2 5 NX", ok)
		f("SET v2 6 XX", ok)
		counted("v2", 1)

		// A counter that has views has no deadline.
		for _, command := range []string{
			"EXPIRE v2 10", "PEXPIRE v2 10", "EXPIREAT v2 33333333333", "SETEX v2 10 1", "SET v2 1 EX 10", "GETEX v2 EX 10",
		} {
			if got := c.line(command); !strings.HasPrefix(got, "-ERR this counter can't have a deadline, because its definition has windows, dimensions, a ledger, choices or once\r\n") {
				t.Errorf("%s: %q", command, got)
			}
		}
		f("TTL v2", ":-1\r\n")
		f("PERSIST v2", zero)
		f("GET v2", bulk("6"))
		f("EXPIRE plain 100", one)
		counted("v2", 1)

		f("MULTI", ok)
		f("INCR v2", "+QUEUED\r\n")
		f("INCR v2", "+QUEUED\r\n")
		f("EXEC", "*2\r\n:7\r\n:8\r\n")
		counted("v2", 3)
		if d.db.Port().Traits().Partitions == 1 {
			f("RENAME v2 v3", ok)
			counted("v2", 3)
			counted("v3", 0)
			if got := c.line("RENAME plain v4"); !strings.HasPrefix(got, "-ERR") { // It brings its deadline.
				t.Error(got)
			}
			f("GET plain", bulk("9"))
		}
	}
	transports(t, func(t *testing.T, o resp.Options) { all(t, open(t, o)) })
	t.Run("embedded", func(t *testing.T) { all(t, openEmbedded(t)) })
	t.Run("many partitions", func(t *testing.T) {
		all(t, openOver(t, quipu.New(memstore.New(memstore.Options{Partitions: 5}), quipu.Options{}), resp.Options{}))
	})
}

// viewParts returns what is outside of the first view of a counter, and in its windows.
func viewParts(t *testing.T, db *quipu.DB, key string) (outside, windows int64) {
	t.Helper()
	for _, kind := range []store.PartKind{store.PartOutside, store.PartWindow} {
		rows := store.Rows{Namespace: "default", From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
		found, err := db.Port().Store().ScanParts(t.Context(), rows, store.ScanMax)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			if e.Cell.Key != key {
				continue
			}
			if kind == store.PartOutside {
				outside += e.Content.N
			} else {
				windows += e.Content.N
			}
		}
	}
	return outside, windows
}
