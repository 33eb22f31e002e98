package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
)

// pubsubStories are as trackingStories are.
var pubsubStories = map[string][]string{
	"one channel": {
		"A SUBSCRIBE news", "B PUBLISH news hello", "b PUBLISH news two", "B PUBLISH other x", "A PUBLISH news mine", "A GET k", "A UNSUBSCRIBE news", "B PUBLISH news gone",
	},
	"in RESP2": {
		"a SUBSCRIBE news other news", "B PUBLISH news hello", "a GET k", "a PING", "a PING x", "a PUBLISH news x", "a NOSUCH", "B PUBLISH other 2", "a UNSUBSCRIBE other", "a UNSUBSCRIBE", "a GET k", "B PUBLISH news 3",
	},
	"patterns": {
		"A PSUBSCRIBE n* [mn]ews", "a PSUBSCRIBE ?ews", "A SUBSCRIBE news", "B PUBSUB NUMPAT", "B PUBSUB CHANNELS", "B PUBSUB NUMSUB news none", "a PUNSUBSCRIBE ?ews", "A UNSUBSCRIBE",
		"B PUBSUB CHANNELS", "A PUNSUBSCRIBE n*", "A PUNSUBSCRIBE", "B PUBSUB NUMPAT", "B PUBLISH news 2",
	},
	"a pattern and a channel": {"a PSUBSCRIBE ?ews", "a SUBSCRIBE news", "B PUBLISH fews 1", "a UNSUBSCRIBE", "a PUNSUBSCRIBE nothing", "a PUNSUBSCRIBE", "a GET k"},
	"nothing to end":          {"A UNSUBSCRIBE", "A PUNSUBSCRIBE", "a UNSUBSCRIBE x y", "a PUNSUBSCRIBE", "a GET k"},
	"what is asked": {
		"A SUBSCRIBE a:1 a:2 b", "B PUBSUB CHANNELS a:[12]x", "B PUBSUB CHANNELS b", "B PUBSUB NUMSUB", "B PUBSUB NUMSUB a:1 a:1 c", "B PUBSUB", "B PUBSUB NOSUCH", "B PUBSUB NUMPAT x",
		"B PUBLISH a", "B PUBLISH a b c", "A SUBSCRIBE", "A PSUBSCRIBE", "B PUBSUB CHANNELS x y",
	},
	"of all databases": {"A SUBSCRIBE news", "B SELECT 3", "B PUBLISH news hello", "A SELECT 2", "B PUBLISH news more"},
	"reset":            {"A SUBSCRIBE news", "A PSUBSCRIBE n*", "A RESET", "B PUBLISH news x", "a SUBSCRIBE news", "a RESET", "B PUBLISH news x", "a GET k"},
	"in a transaction": {
		"A SUBSCRIBE news", "B MULTI", "B PUBLISH news 1", "B SET k 5", "B PUBLISH news 2", "B EXEC", "B GET k", "B MULTI", "B PUBLISH news x", "B DISCARD",
		"B WATCH k", "C SET k 6", "B MULTI", "B PUBLISH news watched", "B EXEC",
	},
	"the order of what is seen": {"A SUBSCRIBE news", "B SET k 1", "B PUBLISH news changed", "C GET k"},
}

// Redis and the door tell those who listen the same.
func TestPubSubAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) {
		for name, lines := range pubsubStories {
			t.Run(name, func(t *testing.T) { tellBoth(t, open(t, o).addr, redis, lines) })
		}
	})
	t.Run("embedded", func(t *testing.T) {
		for name, lines := range pubsubStories {
			t.Run(name, func(t *testing.T) { tellBoth(t, openEmbedded(t).addr, redis, lines) })
		}
	})
}

// What a script publishes is told when what it has changed is so, and not if it was broken off.
func TestPublishInScripts(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		listener, c := dial(t, d.addr), dial(t, d.addr)
		listener.expect("SUBSCRIBE news", "*3\r\n"+bulk("subscribe")+bulk("news")+one)
		eval := func(want, script string) {
			t.Helper()
			if got := c.do("EVAL", script, "1", "k"); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", script, got, want)
			}
		}
		hears := func(text string) {
			t.Helper()
			if got := listener.reply(); got != "*3\r\n"+bulk("message")+bulk("news")+bulk(text) {
				t.Errorf("heard %q, want %q", got, text)
			}
		}
		eval(":2\r\n", `redis.call('incr', KEYS[1]) return redis.call('publish', 'news', 'a') + redis.call('publish', 'news', 'b')`)
		hears("a")
		hears("b")
		eval(zero, `return redis.call('publish', 'other', 'a')`)
		eval("-ERR the script", `redis.call('publish', 'news', 'broken off') while true do end`)
		eval("-ERR boom", `redis.call('publish', 'news', 'before the error') error({err = 'ERR boom'})`) // as what it has written stays
		hears("before the error")
		c.expect("MULTI", ok)
		c.line("PUBLISH news first")
		c.do("EVAL", `redis.call('publish', 'news', 'second') redis.call('set', KEYS[1], 'text') return 1`, "1", "k")
		c.do("EVAL", `redis.call('publish', 'news', 'never') while true do end`, "1", "k")
		c.line("PUBLISH news third")
		if got := c.line("EXEC"); !strings.HasPrefix(got, "*4\r\n"+one+one+"-ERR the script") {
			t.Errorf("EXEC: %q", got)
		}
		hears("first")
		hears("second")
		hears("third")
		if got := c.do("EVAL_RO", `return redis.call('publish', 'news', 'x')`, "0"); !strings.Contains(got, "Write commands are not allowed from read-only scripts") {
			t.Errorf("EVAL_RO: %q", got)
		}
		c.expect("PUBLISH __redis__:invalidate k", "-ERR nobody publishes to __redis__:invalidate\r\n")
		eval("-ERR nobody publishes to __redis__:invalidate", `return redis.call('publish', '__redis__:invalidate', 'k')`)
	})
}

// Two users never share a channel, whoever they are.
func TestChannelsOfUsers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		ana, bob := dial(t, d.addr), dial(t, d.addr)
		ana.line("HELLO 3 AUTH ana x")
		bob.expect("AUTH bob x", ok)
		ana.line("SUBSCRIBE news")
		ana.line("PSUBSCRIBE *")
		bob.expect("PUBLISH news x", zero)
		bob.expect("PUBSUB CHANNELS", "*0\r\n")
		bob.expect("PUBSUB NUMPAT", zero)
		bob.expect("PUBSUB NUMSUB news", "*2\r\n"+bulk("news")+zero)
		ana.expect("PUBLISH news mine", ":2\r\n")
		if got := []string{ana.reply(), ana.reply()}; !strings.Contains(got[0]+got[1], "mine") {
			t.Errorf("heard %q", got)
		}
		// As somebody else it listens to nothing.
		ana.expect("AUTH bob x", ok)
		bob.expect("PUBLISH news x", zero)
		ana.expect("PUBSUB NUMPAT", zero)
	})
}

// A client that takes none of its messages is closed, and nobody else notices.
func TestSlowListener(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		slow, quick, c := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		slow.line("SUBSCRIBE news")
		quick.line("SUBSCRIBE news")
		text := strings.Repeat("x", 1<<20)
		for range 200 {
			got := c.do("PUBLISH", "news", text)
			if quick.reply() == "" {
				t.Fatal("the other one was closed")
			}
			if got == one {
				break
			}
		}
		c.expect("PUBSUB NUMSUB news", "*2\r\n"+bulk("news")+one)
		if n := d.meter("quipu_resp_listeners_dropped_total"); n != 1 {
			t.Errorf("%v were closed", n)
		}
		c.expect("PUBLISH news x", one)
	})
}

// The limits are refused with an error that changes nothing.
func TestListeningLimits(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		c.line("HELLO 3")
		long := strings.Repeat("x", 1025)
		c.expect("SUBSCRIBE "+long, "-ERR the name of a channel is too long: at most 1024 bytes\r\n")
		c.expect("PSUBSCRIBE "+long[:257], "-ERR pattern is too long: a connection listens to patterns of at most 256 bytes\r\n")
		c.expect("PUBLISH "+long+" x", "-ERR the name of a channel is too long: at most 1024 bytes\r\n")
		for i := range 100 {
			c.line(fmt.Sprint("PSUBSCRIBE p", i))
		}
		c.expect("PSUBSCRIBE more", "-ERR too many patterns: a connection listens to at most 100, and all of a user to at most 1000\r\n")
		c.expect("PUBSUB NUMPAT", ":100\r\n")
	})
}

// A pattern that takes too long is refused, and so takes nobody's time; others with the same names are not.
func TestHardPatterns(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		c, listener := dial(t, addr), dial(t, addr)
		refusal := "-ERR the pattern takes too long to match with so many names: use one with fewer * ? [ or a smaller COUNT of SCAN\r\n"
		for i := range 200 {
			listener.line(fmt.Sprintf("SUBSCRIBE a:%s%03d", strings.Repeat("c", 1000), i))
		}
		c.expect("PUBSUB CHANNELS a:*"+strings.Repeat("[^]", 330)+"x*", refusal)
		c.expect("PUBSUB CHANNELS a:*???*?*[bd]*?*", "*0\r\n")
		if got := c.line("PUBSUB CHANNELS a:*c*c*c[0]99"); strings.Count(got, "a:c") != 1 {
			t.Errorf("PUBSUB CHANNELS: %q", got)
		}
		for from := 1000; from < 5000; from += 2000 {
			args := []string{"MSET"}
			for i := range 2000 {
				args = append(args, fmt.Sprintf("a:%s%04d", strings.Repeat("c", 500), from+i), "1")
			}
			if got := c.do(args...); got != ok {
				t.Fatal(got)
			}
		}
		hard := "a:*" + strings.Repeat("[^]", 250) + "x*"
		c.expect("KEYS "+hard, refusal)
		c.expect("SCAN 0 COUNT 10000 MATCH "+hard, refusal)
		c.expect("SCAN 0 COUNT 10000 MATCH a:*???*?*[bd]*?*", "*2\r\n"+bulk("0")+"*0\r\n")
		c.expect("KEYS a:*c*?[2-3]34x", "*0\r\n")
		if got := c.line("KEYS a:*c*c[2]999"); strings.Count(got, "a:c") != 1 {
			t.Errorf("KEYS: %q", got)
		}
		c.expect("PING", "+PONG\r\n")
	})
}

// The patterns of a user are bounded together, so that one message costs others no time. Those that end make room.
func TestListeningBytes(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		listeners := []*client{dial(t, addr), dial(t, addr)}
		for i, c := range listeners {
			c.line("HELLO 3")
			for j := range 64 {
				pattern := fmt.Sprintf("a:*%s%04d*", strings.Repeat("[^x]", 62), 64*i+j)
				if got := c.do("PSUBSCRIBE", pattern); !strings.HasPrefix(got, ">3\r\n"+bulk("psubscribe")) {
					t.Fatalf("pattern %d of %d bytes: %q", 64*i+j, len(pattern), got)
				}
			}
		}
		full := "-ERR too many patterns: those of a user have at most 32768 bytes together\r\n"
		c := dial(t, addr)
		c.expect("PSUBSCRIBE x", full)
		c.expect("PUBSUB NUMPAT", ":128\r\n")
		c.expect("PUBLISH a:"+strings.Repeat("c", 1022)+" x", zero)
		listeners[0].line("RESET")
		listeners[1].expect("PSUBSCRIBE x", ">3\r\n"+bulk("psubscribe")+bulk("x")+":65\r\n")
		if got := c.do("AUTH", "ana", "x"); got != ok {
			t.Fatal(got)
		}
		c.line("PSUBSCRIBE x") // Another user has room of their own.
		c.expect("PUNSUBSCRIBE x", "*3\r\n"+bulk("punsubscribe")+bulk("x")+zero)
	})
}
