package resp_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

const (
	wrongKind  = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	notUniques = "-WRONGTYPE Key is not a valid HyperLogLog string value.\r\n"
)

// A key that holds a sketch is one to all commands, or refused by them as Redis does.
func TestSketches(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("PFADD u", one)
		f("PFADD u", zero)
		f("PFADD u a b c", one)
		f("PFADD u c a", zero)
		f("PFCOUNT u", ":3\r\n")
		f("PFADD v c d", one)
		f("PFCOUNT u v none", ":4\r\n")
		f("PFMERGE w u v", ok)
		f("PFCOUNT w", ":4\r\n")
		f("PFADD v e", one) // What is remembered is of sketches that are as they were.
		f("PFCOUNT u v none", ":5\r\n")
		f("PFCOUNT u v none", ":5\r\n")
		f("PFADD none f", one)
		f("PFCOUNT u v none", ":6\r\n")
		f("DEL none", one)
		f("PFCOUNT u v none", ":5\r\n")
		f("SET none 5", ok)
		f("PFCOUNT u v none", notUniques)
		f("DEL none", one)
		f("DEL v", one)
		f("PFADD v c d", one)
		f("PFCOUNT u v none", ":4\r\n")
		f("TYPE u", "+string\r\n")
		f("GET u", wrongKind)
		f("MGET u none", "*2\r\n"+null+null)
		f("STRLEN u", wrongKind)
		f("INCR u", notInteger) // as Redis has it: to it the sketch is a string
		f("APPEND u x", wrongKind)
		f("GETDEL u", wrongKind)
		f("Q.ADD u 1", notInteger)
		f("SETNX u 5", zero)
		f("EXISTS u v", ":2\r\n")
		f("EXPIRE u 5000", one)
		f("TTL u", ":5000\r\n")
		f("PFADD u e", one)
		f("TTL u", ":5000\r\n")
		f("PERSIST u", one)
		f("OBJECT ENCODING u", bulk("raw"))
		f("RENAME u x", ok)
		f("COPY x u", one)
		f("PFCOUNT x u", ":4\r\n")
		f("SET n 5", ok)
		f("PFADD n a", notUniques)
		f("SET text hello", ok)
		f("PFADD text a", notUniques)
		f("PFCOUNT text", notUniques)
		f("SET x 5", ok)
		f("INCR x", ":6\r\n")
		f("DEL u v w x n text", ":6\r\n")
		f("DBSIZE", zero)

		f("BF.ADD b a", one)
		f("BF.MADD b a c", "*2\r\n"+zero+one)
		f("BF.EXISTS b c", one)
		f("BF.MEXISTS b c z", "*2\r\n"+one+zero)
		f("BF.CARD b", ":2\r\n")
		f("BF.INFO b CAPACITY", "*1\r\n:100\r\n")
		f("TYPE b", "+MBbloom--\r\n")
		f("PFADD b x", notUniques)
		f("GET b", wrongKind)
		f("CMS.INITBYDIM c 2000 10", ok) // in pieces
		f("CMS.INCRBY c a 5 b 1", "*2\r\n:5\r\n:1\r\n")
		f("CMS.QUERY c b a z", "*3\r\n:1\r\n:5\r\n:0\r\n")
		f("CMS.INFO c", "*6\r\n+width\r\n:2000\r\n+depth\r\n:10\r\n+count\r\n:6\r\n")
		f("TYPE c", "+CMSk-TYPE\r\n")
		f("TOPK.RESERVE t 2 8 7 0.9", ok)
		f("TOPK.ADD t a b a", "*3\r\n"+null+null+null)
		f("TOPK.INCRBY t c 9", "*1\r\n"+bulk("b"))
		f("TOPK.LIST t", "*2\r\n"+bulk("c")+bulk("a"))
		f("TOPK.LIST t WITHCOUNT", "*4\r\n"+bulk("c")+":9\r\n"+bulk("a")+":2\r\n")
		f("TOPK.QUERY t a b", "*2\r\n"+one+zero)
		f("TOPK.COUNT t a b", "*2\r\n:2\r\n:1\r\n")
		f("TOPK.INFO t", "*8\r\n+k\r\n:2\r\n+width\r\n:64\r\n+depth\r\n:1\r\n+decay\r\n"+bulk("1"))
		f("TYPE t", "+TopK-TYPE\r\n")
		f("SET s text", ok)
		f("SET n 1", ok)
		f("SCAN 0 TYPE MBbloom--", "*2\r\n"+bulk("0")+"*1\r\n"+bulk("b"))
		f("SCAN 0 TYPE string", "*2\r\n"+bulk("0")+"*2\r\n"+bulk("n")+bulk("s"))
		f("SCAN 0 TYPE hash", "*2\r\n"+bulk("0")+"*0\r\n")
		f("SCAN 0", "*2\r\n"+bulk("0")+"*5\r\n"+bulk("b")+bulk("c")+bulk("n")+bulk("s")+bulk("t"))

		if got := c.line("HELLO 3"); got[0] != '%' {
			t.Fatalf("%q", got)
		}
		f("BF.ADD b z", "#t\r\n")
		f("BF.MEXISTS b z q", "*2\r\n#t\r\n#f\r\n")
		f("BF.INFO b ITEMS", "%1\r\n+Number of items inserted\r\n:3\r\n")
		f("CMS.INFO c", "%3\r\n+width\r\n:2000\r\n+depth\r\n:10\r\n+count\r\n:6\r\n")
		f("TOPK.QUERY t a b", "*2\r\n#t\r\n#f\r\n")
		f("TOPK.INFO t", "%4\r\n+k\r\n:2\r\n+width\r\n:64\r\n+depth\r\n:1\r\n+decay\r\n,1\r\n")
		f("FLUSHALL", ok)
		f("DBSIZE", zero)
		f("CMS.QUERY c a", "-CMS: key does not exist\r\n")
		f("CMS.INITBYDIM c 2000 10", ok)
		f("CMS.QUERY c a", "*1\r\n:0\r\n")

		f("MULTI", ok)
		f("PFADD u a", "+QUEUED\r\n")
		f("PFADD u a", "+QUEUED\r\n")
		f("INCR n", "+QUEUED\r\n")
		f("EXEC", "*3\r\n"+one+zero+one)
		f("MULTI", ok)
		f("PFADD u b", "+QUEUED\r\n")
		f("PFCOUNT u", "+QUEUED\r\n")
		f("TOPK.RESERVE t 5", "+QUEUED\r\n")
		f("TOPK.ADD t x", "+QUEUED\r\n")
		f("CMS.INCRBY c x 3", "+QUEUED\r\n")
		f("CMS.QUERY c x", "+QUEUED\r\n")
		f("TYPE t", "+QUEUED\r\n")
		f("EXEC", "*7\r\n"+one+":2\r\n"+ok+"*1\r\n_\r\n*1\r\n:3\r\n*1\r\n:3\r\n+TopK-TYPE\r\n")
		f("TOPK.LIST t", "*1\r\n"+bulk("x"))
	})
}

// Those who ask in one breath see what they have asked before.
func TestSketchesPipelined(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		c.send("PFADD a x\r\nPFADD a x\r\nINCR n\r\nPFCOUNT a\r\nGET a\r\nPFADD n x\r\nTYPE a\r\nBF.ADD b x\r\nTYPE b\r\nGET n\r\n")
		c.replies(one, zero, one, one, wrongKind, notUniques, "+string\r\n", one, "+MBbloom--\r\n", bulk("1"))
	})
}

// Of many callers that add the same item, one is told that it is new: also if they are at two servers of one
// store.
func TestSketchesOfMany(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		sketchesOfMany(t, addr, addr)
	})
	t.Run("shared", func(t *testing.T) {
		under, h := common(), new(storetest.Hooks)
		h.On(storetest.OnClose, storetest.Ignore)
		var addrs []string
		for range 2 {
			addrs = append(addrs, openOver(t, quipu.New(storetest.Wrap(under, h), quipu.Options{}), resp.Options{}).addr)
		}
		sketchesOfMany(t, addrs...)
	})
}

func sketchesOfMany(t *testing.T, addrs ...string) {
	t.Helper()
	addr := addrs[0]
	dial(t, addr).expect("CMS.INITBYDIM c 3000 5", ok)
	var all sync.WaitGroup
	var mu sync.Mutex
	fresh := map[string]int{}
	const callers, items = 8, 50
	for i := range callers {
		all.Go(func() {
			c := dial(t, addrs[i%len(addrs)])
			for i := range items {
				for _, command := range []string{"PFADD u", "BF.ADD b", "CMS.INCRBY c"} {
					words := fmt.Sprintf("%s %d", command, i)
					if command == "CMS.INCRBY c" {
						if got := c.line(words + " 1"); !strings.HasPrefix(got, "*1\r\n:") {
							t.Errorf("%s: %q", words, got)
						}
					} else if c.line(words) == one {
						mu.Lock()
						fresh[words]++
						mu.Unlock()
					}
				}
			}
		})
	}
	all.Wait()
	for words, n := range fresh {
		if n != 1 {
			t.Errorf("%s: %d were told that it is new", words, n)
		}
	}
	for _, addr := range addrs {
		c := dial(t, addr)
		c.expect("PFCOUNT u", fmt.Sprintf(":%d\r\n", items))
		c.expect("BF.CARD b", fmt.Sprintf(":%d\r\n", items))
		c.expect("CMS.INFO c", fmt.Sprintf("*6\r\n+width\r\n:3000\r\n+depth\r\n:5\r\n+count\r\n:%d\r\n", callers*items))
	}
}

// Keys that have definitions count.
func TestSketchesDefined(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		_, err := db.Define(t.Context(), []definition.Definition{{Pattern: "u*", Unique: definition.Unique{Of: definition.Who}}}, quipu.DefineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, openOver(t, db, o).addr)
		for _, words := range []string{"PFADD u a", "BF.ADD u a", "TOPK.RESERVE u 5", "CMS.INITBYDIM u 10 5", "CMS.INITBYDIM u 5000 5", "PFMERGE u", "PFADD u"} {
			if got := c.line(words); got != "-ERR the key has a definition as a counter, so it can't hold text, a sketch, a hash or a sorted set\r\n" {
				t.Errorf("%s: %q", words, got)
			}
			c.expect("EXISTS u", zero)
		}
		c.expect("Q.ADD u 1 WHO eve", one)
		if got := c.line("PFADD u a"); !strings.HasPrefix(got, "-ERR the key has a definition") {
			t.Errorf("%q", got)
		}
		c.expect("PFCOUNT u", notUniques)
		c.expect("GET u", bulk("1"))
	})
}
