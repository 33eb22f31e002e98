package resp_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

func TestTop(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Define(t.Context(), []definition.Definition{{
			Pattern: "p*", Windows: []definition.Window{{Every: hour, Keep: definition.KeepMax / 25}},
			Tops: []definition.Top{{Name: "first", By: definition.ByKey}, {Name: "terms", By: "term", K: 5}},
		}}, quipu.DefineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, openOver(t, db, o).addr)
		f := func(words, want string) { // or what the reply begins with
			t.Helper()
			if got := c.line(words); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", words, got, want)
			}
		}
		f("Q.ADD p1 5 DIM term a", ":5\r\n")
		f("INCR p2", ":1\r\n")
		f("INCRBY p2 2", ":3\r\n")
		f("DECR p2", ":2\r\n") // takes nothing out
		f("Q.ADD p1 1 DIM term b AT 2024-10-01T08:30:00Z", ":6\r\n")
		head := func(name, by string) string {
			return "*20\r\n" + bulk("name") + bulk(name) + bulk("by") + bulk(by) + bulk("counts") + bulk("added") + bulk("items")
		}
		f("Q.TOP first", head("first", "key")+"*2\r\n*3\r\n"+bulk("p1")+":6\r\n:6\r\n*3\r\n"+bulk("p2")+":3\r\n:3\r\n"+
			bulk("exact")+":1\r\n"+bulk("rest")+":0\r\n"+bulk("total")+":9\r\n"+bulk("complete")+":1\r\n"+bulk("complete_from")+":")
		f("Q.TOP terms KEY p1 COUNT 1", head("terms", "term")+"*1\r\n*3\r\n"+bulk("a")+":5\r\n:5\r\n"+bulk("exact")+":1\r\n"+bulk("rest")+":1\r\n")
		f("Q.TOP first FROM 1727769600000 TO 2024-10-01T09:00:00Z", head("first", "key")+"*1\r\n*3\r\n"+bulk("p1")+":1\r\n:1\r\n")
		f("Q.TOP first FROM 2024-10-01T08:00:00Z TO 2024-10-01T09:00:00Z TREND", head("first", "key")+"*1\r\n*6\r\n"+bulk("p1")+":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n")
		f("Q.TOP none", "-ERR ")
		f("Q.TOP terms", "-ERR ")
		f("Q.TOP first COUNT 0", "-ERR COUNT is out of range\r\n")
		f("Q.TOP first COUNT 1001", "-ERR COUNT is out of range\r\n")
		f("Q.TOP first FROM", syntax)
		f("Q.TOP first FROM soon", "-ERR FROM: want a time such as")
		f("Q.ADD p1 1 DIM shape round", "-ERR ")
	})
}
