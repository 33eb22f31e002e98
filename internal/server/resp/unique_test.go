package resp_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

func TestUnique(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Define(t.Context(), []definition.Definition{{
			Pattern: "u*", Windows: []definition.Window{{Every: hour, Keep: definition.KeepMax / 25}},
			Dimensions: []definition.Dimension{{By: []string{"country"}}}, Unique: definition.Unique{Of: definition.Who},
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
		f("Q.ADD u 1 WHO eve DIM country DE", ":1\r\n")
		f("Q.ADD u 1 WHO eve DIM country FR", ":2\r\n")
		f("Q.ADD u 1 WHO bob DIM country DE AT 2024-10-01T08:00:00Z", ":3\r\n")
		f("INCR u", ":4\r\n")
		two := bulk("count") + ":2\r\n" + bulk("lower") + ":2\r\n" + bulk("upper") + ":2\r\n" + bulk("standard_error") + bulk("0") + bulk("exact") + ":1\r\n"
		f("Q.UNIQUE u", "*18\r\n"+bulk("key")+bulk("u")+two+bulk("complete")+":1\r\n"+bulk("complete_from")+":")
		f("Q.UNIQUE u BY country", "*24\r\n"+bulk("key")+bulk("u")+two+bulk("dimension")+bulk("country")+bulk("values")+"*2\r\n"+
			"*6\r\n"+bulk("DE")+":2\r\n:2\r\n:2\r\n"+bulk("0")+":1\r\n*6\r\n"+bulk("FR")+":1\r\n:1\r\n:1\r\n"+bulk("0")+":1\r\n"+
			bulk("other")+"*5\r\n:0\r\n:0\r\n:0\r\n"+bulk("0")+":1\r\n")
		f("Q.UNIQUE u FROM 1727769600000 TO 2024-10-01T10:00:00Z BY country TOP 1", "*24\r\n"+bulk("key")+bulk("u")+bulk("count")+":1\r\n")
		f("Q.UNIQUE v", "-ERR ")
		f("Q.UNIQUE u BY color", "-ERR ")
		f("Q.UNIQUE u TOP 0", "-ERR TOP is out of range\r\n")
		f("Q.UNIQUE u FROM", syntax)
		f("Q.UNIQUE u FROM soon", "-ERR FROM: want a time such as")
	})
}
