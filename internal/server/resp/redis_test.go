package resp_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

// A pair is the same client of both servers.
type pair struct{ ours, redis *client }

func newPair(t testing.TB, addr, redis string) pair {
	t.Helper()
	return pair{dial(t, addr), dial(t, redis)}
}

// Redis and the door get the same random commands and must give the same
// replies, byte for byte but for the passing of time and the order of KEYS.
func TestSameAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) {
		first := *seed
		if first == 0 {
			first = rand.Uint64()
		}
		for i := range uint64(20) {
			sameAsRedis(t, redis, open(t, o).addr, first+i)
		}
	})
	t.Run("embedded", func(t *testing.T) {
		sameAsRedis(t, redis, openEmbedded(t).addr, rand.Uint64())
	})
}

func sameAsRedis(t *testing.T, redis, addr string, seed uint64) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	g.texts, g.sketches, g.collections = g.IntN(2) == 0, g.IntN(2) == 0, g.IntN(2) == 0
	pairs := []pair{newPair(t, addr, redis), newPair(t, addr, redis)}
	pairs[0].redis.line("FLUSHALL")
	pairs[0].redis.line("MSET w:1 1 w:2 2")
	pairs[0].ours.line("MSET w:1 1 w:2 2")
	if g.IntN(2) == 0 {
		for _, p := range pairs {
			p.ours.line("HELLO 3")
			p.redis.line("HELLO 3")
		}
	}
	var history []string
	multi, watching := make([]bool, len(pairs)), make([]bool, len(pairs))
	// What can't be part of a transaction here, and what ends one.
	alone := map[string]bool{"KEYS": true, "SELECT": true, "OBJECT": true, "MEMORY": true}
	ends := map[string]bool{"EXEC": true, "DISCARD": true}
	for range 150 {
		at := g.IntN(len(pairs))
		p := pairs[at]
		var raw strings.Builder
		var commands [][]string
		for range 1 + g.IntN(8)*g.IntN(2) {
			c := g.command()
			for multi[at] && alone[strings.ToUpper(c[0])] {
				c = g.command()
			}
			switch { // SELECT is refused here while keys are watched, or may be
			case strings.EqualFold(c[0], "WATCH"):
				watching[at] = true
			case strings.EqualFold(c[0], "SELECT") && watching[at]:
				c, watching[at] = []string{"UNWATCH"}, false
			}
			multi[at] = len(c) == 1 && (strings.EqualFold(c[0], "MULTI") || multi[at] && !ends[strings.ToUpper(c[0])]) || len(c) > 1 && multi[at]
			commands = append(commands, c)
			history = append(history, fmt.Sprintf("%q", c))
			raw.WriteString(g.encode(c))
		}
		p.ours.send(raw.String())
		p.redis.send(raw.String())
		for _, c := range commands {
			got, want := p.ours.reply(), p.redis.reply()
			if !sameReply(c, got, want) {
				t.Fatalf("%q: %q, Redis %q\nafter %s\nreplay: go test ./internal/server/resp -run TestSameAsRedis -args -seed=%d",
					c, got, want, strings.Join(history[max(0, len(history)-30):], " "), seed)
			}
		}
	}
}

// sameReply compares replies.
func sameReply(c []string, got, want string) bool {
	if got == want {
		return true
	}
	switch name := strings.ToUpper(c[0]); {
	case name == "OBJECT": // Redis tells how text came to be, too.
		kept := []string{bulk("int"), bulk("embstr"), bulk("raw"), bulk("listpack"), bulk("hashtable"), bulk("skiplist")}
		return slices.Contains(kept, got) && slices.Contains(kept, want)
	case name == "KEYS":
		return slices.Equal(sortedLines(got), sortedLines(want))
	case strings.HasSuffix(name, "TTL"), strings.HasSuffix(name, "EXPIRETIME"), name == "EXEC":
		// Numbers that tell a time differ by what passed between two servers.
		a, b := strings.Split(got, "\r\n"), strings.Split(want, "\r\n")
		return slices.EqualFunc(a, b, func(a, b string) bool { return a == b || near(a, b) })
	}
	return false
}

func sortedLines(reply string) []string { return slices.Sorted(strings.SplitSeq(reply, "\r\n")) }

// near reports whether two integers of replies are times in seconds or
// milliseconds that are less than some seconds apart.
func near(a, b string) bool {
	x, err := strconv.ParseInt(strings.TrimPrefix(a, ":"), 10, 64)
	y, err2 := strconv.ParseInt(strings.TrimPrefix(b, ":"), 10, 64)
	const far = 1 << 42 // text lives until 6429 at the most
	return err == nil && err2 == nil && x > 50 && y > 50 && (max(x-y, y-x) <= 5000 || max(x, y) > far)
}

// A generator makes random commands.
type generator struct {
	*rand.Rand
	texts    bool // keys hold text too
	sketches bool // and sketches of uniques

	collections bool // and hashes and sorted sets
}

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g *generator) key() string { return g.pick("a", "b", "c", "d", "e:1", "e:2") }

// number is an argument that both servers take for an integer, or refuse.
func (g *generator) number() string {
	switch g.IntN(8) {
	case 0:
		return g.pick("9223372036854775807", "-9223372036854775808", "9223372036854775800", "-9223372036854775800")
	case 1:
		return "0"
	}
	return strconv.Itoa(g.IntN(2000) - 1000)
}

func (g *generator) amount() string {
	if g.IntN(10) == 0 {
		return g.pick("x", "1.5", "", "01", "+1", "9223372036854775808", "-0", " 1", "1 ")
	}
	return g.number()
}

// value is what a key is set to.
func (g *generator) value() string {
	if !g.texts || g.IntN(3) > 0 {
		return g.number()
	}
	return g.pick("", "x", "hello world", "007", "-0", "1.5", "-2.25e1", "9223372036854775808", "inf", strings.Repeat("long ", 20), "line\r\n", "\x00\xff")
}

// text is a command that a namespace of counters needs none of.
func (g *generator) text() []string {
	switch g.IntN(6) {
	case 0:
		return []string{"APPEND", g.key(), g.value()}
	case 1:
		return []string{g.pick("GETRANGE", "SUBSTR"), g.key(), strconv.Itoa(g.IntN(9) - 4), strconv.Itoa(g.IntN(9) - 4)}
	case 2:
		return []string{"SETRANGE", g.key(), strconv.Itoa(g.IntN(12) - 1), g.value()}
	case 3:
		return []string{"INCRBYFLOAT", g.key(), g.pick("1", "0.5", "-3.25", "1e3", "x", g.number())}
	case 4:
		c := []string{"COPY", g.key(), g.key()}
		if g.IntN(2) == 0 {
			c = append(c, "REPLACE")
		}
		return c
	default:
		return append([]string{"SET", g.key(), g.value()}, g.pick("", "NX", "XX", "GET", "KEEPTTL"))[:3+g.IntN(2)]
	}
}

// sketch is a command on sketches of uniques. Their items are so few that Redis counts them exactly, too.
func (g *generator) sketch() []string {
	h := func() string { return g.pick("h:1", "h:2", "h:3") }
	switch g.IntN(12) {
	case 0, 1, 2, 3:
		c := []string{"PFADD", h()}
		for range g.IntN(4) {
			c = append(c, strconv.Itoa(g.IntN(10)))
		}
		return c
	case 4, 5:
		return []string{"PFCOUNT", h(), h()}[:2+g.IntN(2)]
	case 6:
		return []string{"PFMERGE", h(), h(), h()}[:2+g.IntN(3)]
	case 7:
		// w:1 is a count in the first database, and watched in all: there PFMERGE into it would
		// touch it in Redis if it changes nothing, too.
		return [][]string{{"PFADD", "w:1"}, {"PFCOUNT", "w:1"}, {"PFMERGE", h(), "w:1"}}[g.IntN(3)]
	case 8:
		return []string{g.pick("DEL", "UNLINK"), h()}
	case 9:
		return []string{g.pick("EXISTS", "TYPE", "TTL", "PERSIST"), h()}
	case 10:
		return []string{"EXPIRE", h(), g.seconds()}
	default:
		return []string{g.pick("RENAME", "RENAMENX", "COPY"), h(), h()}
	}
}

// collection is a command on hashes and sorted sets.
func (g *generator) collection() []string {
	k := func() string { return g.pick("c:1", "c:2", "z:1", "z:2", "z:1", "c:1", "a") }
	field := func() string { return g.pick("f", "g", "h", "", "7") }
	score := func() string { return g.pick("1", "2", "-1.5", "0.1", "1e20", "inf", "x") }
	value := func() string { return g.pick("", "x", "1.5", "inf", "7") } // short, so that Redis keeps the order, too
	some := func(c []string, f func() string) []string {
		for range g.IntN(3) {
			c = append(c, f())
		}
		return c
	}
	switch g.IntN(18) {
	case 0, 1, 2:
		return []string{g.pick("HSET", "HMSET"), k(), field(), value(), field(), value()}[:4+2*g.IntN(2)]
	case 3:
		return some([]string{g.pick("HDEL", "HMGET", "ZREM", "ZMSCORE"), k(), field()}, field)
	case 4:
		return []string{g.pick("HGETALL", "HKEYS", "HVALS", "HLEN", "ZCARD", "TYPE", "EXISTS", "TTL", "PERSIST"), k()}
	case 5:
		return []string{g.pick("HGET", "HEXISTS", "HSTRLEN", "ZSCORE", "ZRANK", "ZREVRANK"), k(), field()}
	case 6:
		return []string{g.pick("HINCRBY", "HINCRBYFLOAT"), k(), field(), g.amount()}
	case 7:
		return []string{"HSETNX", k(), field(), value()}
	case 8, 9, 10:
		c := some([]string{"ZADD", k()}, func() string { return g.pick("NX", "XX", "GT", "LT", "CH", "INCR") })
		return append(c, []string{score(), field(), score(), field()}[:2+2*g.IntN(2)]...)
	case 11:
		return []string{"ZINCRBY", k(), score(), field()}
	case 12, 13:
		return some([]string{"ZRANGE", k(), g.pick("0", "-2", "1"), g.pick("-1", "1", "5")}, func() string { return g.pick("WITHSCORES", "REV", "BYSCORE") })
	case 14:
		return some([]string{g.pick("ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZREVRANGE", "ZCOUNT"), k(), g.pick("-inf", "(1", "1"), g.pick("+inf", "2", "(2")}, func() string { return "WITHSCORES" })
	case 15:
		return []string{g.pick("ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"), k(), g.pick("-5", "1"), g.pick("1", "2", "0")}
	case 16:
		return some([]string{g.pick("ZPOPMIN", "ZPOPMAX"), k()}, func() string { return g.pick("0", "1", "2", "-1", "x") })
	default:
		return [][]string{{"DEL", k()}, {"EXPIRE", k(), g.seconds()}, {"RENAME", k(), k()}, {"COPY", k(), k()}, {"GET", k()}, {"OBJECT", "ENCODING", k()}}[g.IntN(6)]
	}
}

// seconds is far from now, and no two are near each other.
func (g *generator) seconds() string { return strconv.Itoa(100 + 10*g.IntN(1_000_000)) }

func (g *generator) expiry() []string {
	switch g.IntN(9) {
	case 0:
		return []string{"EX", g.seconds()}
	case 1:
		return []string{"px", g.seconds() + "000"}
	case 2:
		return []string{"EXAT", strconv.Itoa(3_000_000_000 + g.IntN(1000))}
	case 3:
		return []string{"PXAT", strconv.Itoa(3_000_000_000_000 + g.IntN(1000))}
	case 4:
		return []string{g.pick("EXAT", "PXAT"), "1"}
	case 5:
		return []string{g.pick("EX", "PX", "EXAT", "PXAT"), g.pick("0", "-1", "x", "9223372036854775807", "9223372036854775")}
	case 6:
		return []string{g.pick("EX", "PX")}
	}
	return nil
}

// expiries is one, or now and then two.
func (g *generator) expiries() []string {
	if g.IntN(6) == 0 {
		return append(g.expiry(), g.expiry()...)
	}
	return g.expiry()
}

// command returns a command that both servers know, now and then with an
// argument too many or too few.
func (g *generator) command() []string {
	c := g.plain()
	switch g.IntN(40) {
	case 0:
		return append(c, g.pick("x", "NX", "EX"))
	case 1:
		if len(c) > 1 {
			return c[:len(c)-1]
		}
	case 2:
		c[0] = strings.ToLower(c[0])
	}
	return c
}

func (g *generator) plain() []string {
	k := g.key
	if g.texts && g.IntN(5) == 0 {
		return g.text()
	}
	if g.sketches && g.IntN(4) == 0 {
		return g.sketch()
	}
	if g.collections && g.IntN(3) == 0 {
		return g.collection()
	}
	switch g.IntN(46) {
	case 0, 1, 2, 3:
		return []string{"INCR", k()}
	case 4:
		return []string{"DECR", k()}
	case 5, 6:
		return []string{"INCRBY", k(), g.amount()}
	case 7:
		return []string{"DECRBY", k(), g.amount()}
	case 8, 9:
		return []string{"GET", k()}
	case 10, 11, 12:
		c := append([]string{"SET", k(), g.value()}, g.expiries()...)
		for range g.IntN(3) {
			c = append(c, g.pick("NX", "XX", "GET", "KEEPTTL", "nx", "get"))
		}
		return c
	case 13:
		return []string{"SETNX", k(), g.value()}
	case 14:
		return []string{g.pick("SETEX", "PSETEX"), k(), g.pick("100000", "-1", "0", "x", g.seconds()), g.value()}
	case 15:
		return []string{"GETSET", k(), g.value()}
	case 16:
		return []string{"GETDEL", k()}
	case 17:
		c := append([]string{"GETEX", k()}, g.expiries()...)
		if g.IntN(3) == 0 {
			c = append(c, "PERSIST")
		}
		return c
	case 18:
		return append([]string{"MGET"}, g.keys()...)
	case 19, 20:
		c := []string{g.pick("MSET", "MSET", "MSETNX")}
		for _, key := range g.keys() {
			c = append(c, key, g.value())
		}
		return c
	case 21:
		return []string{"STRLEN", k()}
	case 22, 23:
		return append([]string{g.pick("DEL", "UNLINK")}, g.keys()...)
	case 24:
		return append([]string{g.pick("EXISTS", "TOUCH")}, g.keys()...)
	case 25:
		return []string{"TYPE", k()}
	case 26:
		return []string{"KEYS", g.pick("*", "a", "e:*", "[a-c]", "[^a]", "?", "\\a", "e:[1", "*:*", "**1", "")}
	case 27, 28:
		return []string{"RENAME", k(), k()}
	case 29:
		return []string{"RENAMENX", k(), k()}
	case 30, 31:
		c := []string{g.pick("EXPIRE", "EXPIREAT"), k(), g.pick(g.seconds(), g.seconds(), "-1", "x", "9223372036854775807")}
		if c[0] == "EXPIREAT" && len(c[2]) > 2 && len(c[2]) < 12 {
			c[2] = strconv.Itoa(3_000_000_000 + g.IntN(1000))
		}
		for range g.IntN(3) {
			c = append(c, g.pick("NX", "XX", "GT", "LT", "FOO"))
		}
		return c
	case 32:
		c := []string{g.pick("PEXPIRE", "PEXPIREAT"), k(), g.pick("4000000000000", "3000000000000", "-1", "9223372036854775807", "")}
		for range g.IntN(3) {
			c = append(c, g.pick("NX", "XX", "GT", "LT", "lt"))
		}
		return c
	case 33:
		return []string{g.pick("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), k()}
	case 34:
		return []string{"PERSIST", k()}
	case 35, 36:
		return []string{g.pick("MULTI", "EXEC", "EXEC", "DISCARD")}
	case 37:
		// Only what is never absent: that a key came and went is a change for
		// Redis, and none here.
		return [][]string{{"WATCH", "w:1"}, {"WATCH", "w:1", "w:2"}, {"INCR", "w:2"}, {"SET", "w:1", g.number()}}[g.IntN(4)]
	case 38:
		return []string{"UNWATCH"}
	case 39:
		return []string{g.pick("PING", "ECHO", "CLIENT GETNAME"), "x"}
	case 40:
		return []string{"SELECT", g.pick("0", "1", "15", "16", "x", "-1")}
	case 41:
		return []string{"NOSUCH", "a", strings.Repeat("long", 40), "b"}
	case 42:
		return []string{"CLIENT", g.pick("SETNAME", "GETNAME", "NOSUCH"), "x"}
	case 43:
		return []string{"OBJECT", g.pick("ENCODING", "FREQ", "encoding"), k()}
	case 44:
		return strings.Fields(g.pick("CLIENT KILL ID x", "CLIENT KILL TYPE x", "CLIENT LIST ID x", "CLIENT LIST TYPE x", "COMMAND GETKEYS mset a 1 b 2", "COMMAND GETKEYSANDFLAGS set a 1",
			"MEMORY USAGE none", "SLOWLOG nosuch", "ACL WHOAMI", "ROLE", "LATENCY HISTORY x", "OBJECT nosuch", "CLIENT NO-EVICT off"))
	default:
		return []string{"CONFIG", "SET", g.pick("nosuch", "timeout", "TIMEOUT"), g.pick("x", "-1", "2147483648", "0")}
	}
}

func (g *generator) keys() []string {
	var keys []string
	for range 1 + g.IntN(3) {
		keys = append(keys, g.key())
	}
	return keys
}

// encode writes a command as an array, or as a line.
func (g *generator) encode(c []string) string {
	if g.IntN(4) > 0 {
		return array(c...)
	}
	words := make([]string, len(c))
	for i, w := range c {
		switch {
		case w == "" || !utf8.ValidString(w) || strings.ContainsAny(w, " \r\n\x00'\"") || g.IntN(5) == 0:
			words[i] = strconv.Quote(w)
		case g.IntN(5) == 0:
			words[i] = "'" + w + "'"
		default:
			words[i] = w
		}
	}
	return strings.Join(words, g.pick(" ", "  ", "\t")) + g.pick("\r\n", "\n")
}
