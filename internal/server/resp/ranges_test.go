package resp_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

func TestRanges(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		hour, err := definition.ParseWidth("1h")
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Define(t.Context(), []definition.Definition{{
			Pattern: "v*", Windows: []definition.Window{{Every: hour, Keep: definition.KeepMax / 10}},
			Dimensions: []definition.Dimension{{By: []string{"country"}, Limit: 5}, {By: []string{"country", "os"}, Limit: 5}},
			Ledger:     definition.Ledger{Record: definition.All},
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
		f("Q.ADD v 3 AT 1727769600000 DIM country DE DIM os linux", ":3\r\n")
		f("Q.ADD v 3 AT 2024-10-01T08:00:00Z DIM os linux DIM country DE ID t", ":6\r\n")
		f("Q.ADD v 3 AT 1727769600000 DIM country DE DIM os linux ID t", ":6\r\n")
		f("Q.ADD v 3 AT 1727769600000 DIM country DE os linux ID t", ":6\r\n")
		f("Q.ADD v 3 dim os linux country DE at 1727769600000 ID t", ":6\r\n")
		f("Q.ADD v 3 AT 1727769600000 DIM country PE DIM os linux ID t", "-TOKEN ")
		f("Q.ADD v 1 AT 1727776799999 NOVALUE", ok)
		f("INCR v", ":8\r\n")
		f("Q.RANGE v 1727769600000 2024-10-01T10:00:00Z STEP 1h", "*16\r\n"+bulk("key")+bulk("v")+bulk("step")+bulk("1h")+bulk("points")+"*2\r\n"+
			"*4\r\n:1727769600000\r\n:6\r\n:1\r\n:0\r\n*4\r\n:1727773200000\r\n:1\r\n:1\r\n:0\r\n"+bulk("sum")+":7\r\n"+bulk("exact")+":1\r\n"+bulk("complete")+":0\r\n")
		f("Q.RANGE v 1727769600000 2024-10-01T10:00:00Z STEP 1h RATE", "*18\r\n"+bulk("key")+bulk("v")+bulk("step")+bulk("1h")+bulk("points")+"*2\r\n"+
			"*5\r\n:1727769600000\r\n:6\r\n:1\r\n:0\r\n"+bulk("0.0016666666666666668")+"*5\r\n:1727773200000\r\n")
		if got := c.line("Q.RANGE v 1727769600000 2024-10-01T10:00:00Z rate"); !strings.HasSuffix(got, bulk("rate")+bulk("0.0009722222222222222")) {
			t.Errorf("the rate of the whole: %q", got)
		}
		three := dial(t, c.RemoteAddr().String())
		three.line("HELLO 3")
		if got := three.line("Q.RANGE v 1727769600000 2024-10-01T10:00:00Z RATE"); !strings.HasSuffix(got, bulk("rate")+",0.0009722222222222222\r\n") {
			t.Errorf("the rate in RESP3: %q", got)
		}
		f("Q.RANGE v -1h now RATE STEP", syntax)
		f("Q.BY v country", "*18\r\n"+bulk("key")+bulk("v")+bulk("dimension")+bulk("country")+bulk("values")+
			"*2\r\n*2\r\n"+bulk("DE")+":6\r\n*2\r\n"+bulk("")+":2\r\n"+bulk("other")+":0\r\n"+bulk("sum")+":8\r\n")
		f("Q.BY v country,os FROM 1727769600000 TO 1727776800000 TOP 1", "*18\r\n"+bulk("key")+bulk("v")+bulk("dimension")+bulk("country,os")+bulk("values")+
			"*1\r\n*3\r\n"+bulk("DE")+bulk("linux")+":6\r\n"+bulk("other")+":1\r\n"+bulk("sum")+":7\r\n")

		f("Q.ADD v 1 DIM colour red", "-ERR ")
		f("Q.RANGE v", "-ERR wrong number of arguments for 'q.range' command\r\n")
		f("Q.RANGE v yesterday now", "-ERR from: want a time such as")
		f("Q.RANGE v -1h now STEP 7d", "-ERR STEP: ")
		f("Q.RANGE v -1h now STEP 1h STEP 1h", syntax)
		f("Q.RANGE v -1h now STEP", syntax)
		f("Q.RANGE w -1h now", "-ERR ")
		f("Q.BY v country TOP 0", "-ERR TOP is out of range\r\n")
		f("Q.BY v country TOP x", notInteger)
		f("Q.BY v colour", "-ERR ")
		f("EXPIRE v 100", "-ERR ")
		f("Q.ADD w 1 WHO u", ":1\r\n")
		f("Q.ADD v2 1 WHO u", ":1\r\n")
		p, err := db.Ledger(t.Context(), "v2", quipu.LedgerOptions{})
		if err != nil || len(p.Lines) != 1 || p.Lines[0].Actor != "u" {
			t.Errorf("the ledger is %+v, %v", p, err)
		}
	})
}
