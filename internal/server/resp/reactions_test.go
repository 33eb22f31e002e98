package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// TestReactions sends Redis's commands of sets, and our own, to counters that have choices.
func TestReactions(t *testing.T) {
	const wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	all := func(t *testing.T, d *door) {
		day, err := definition.ParseWidth("1d")
		if err != nil {
			t.Fatal(err)
		}
		two := int64(2)
		definitions := []definition.Definition{{Pattern: "post:*", Choices: []string{"like", "dislike"}}, {Pattern: "few:*", Choices: []string{"in"}, Ceiling: &two}, {Pattern: "view:*", Once: definition.Once{Every: day}}}
		if _, err := d.db.Define(t.Context(), definitions, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, d.addr)
		f := func(command, want string) {
			t.Helper()
			if got := c.line(command); got != want {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
		f("TYPE post:1", "+none\r\n")
		f("SCARD post:1", zero)
		f("SMEMBERS post:1", "*0\r\n")
		f("SADD post:1 eve", one)
		f("EXISTS post:1 post:2", one)
		f("SREM post:1 eve", one)
		f("EXISTS post:1", zero) // as an emptied set
		f("TYPE post:1", "+none\r\n")
		f("SET plain:1 0", ok)
		f("EXISTS post:1 plain:1", one)
		f("SADD post:1 ana bob ana", ":2\r\n")
		f("SADD post:1 bob cy", one)
		f("SISMEMBER post:1 ana", one)
		f("SISMEMBER post:1 di", zero)
		f("SMISMEMBER post:1 ana di cy", "*3\r\n:1\r\n:0\r\n:1\r\n")
		f("SCARD post:1", ":3\r\n")
		f("TYPE post:1", "+set\r\n")
		f("GET post:1", bulk("3"))
		f("SREM post:1 bob di", one)
		f("SMEMBERS post:1", "*2\r\n"+bulk("ana")+bulk("cy"))
		f("SSCAN post:1 0", "*2\r\n"+bulk("0")+"*2\r\n"+bulk("ana")+bulk("cy"))
		f("SSCAN post:1 0 MATCH c*", "*2\r\n"+bulk("0")+"*1\r\n"+bulk("cy"))

		// Users of one call are decided one by one, and a refusal says for how many it was not.
		const crowded = "-ERR the number of users with a choice would cross the floor or the ceiling of the counter"
		for _, key := range []string{"few:1", "few:2"} {
			f("SADD "+key+" ana bob cy", crowded+"; of the 3 users of this call 2 were changed\r\n")
			f("SADD "+key+" di", crowded+"\r\n")
			f("SADD "+key+" ana bob", zero)
			f("SCARD "+key, ":2\r\n")
		}

		// Those who have another choice are no members, and SREM lets them be.
		f("Q.REACT post:1 ana dislike", one)
		f("Q.REACT post:1 ana dislike", zero)
		f("SREM post:1 ana", zero)
		f("SCARD post:1", one)
		f("Q.REACTION post:1", "*4\r\n"+bulk("like")+one+bulk("dislike")+one)
		f("Q.REACTION post:1 ana", bulk("dislike"))
		f("Q.REACTION post:1 di", "$-1\r\n")
		f("SADD post:1 ana", one)
		f("Q.UNREACT post:1 ana", one)
		f("Q.UNREACT post:1 ana", zero)
		f("Q.REACT post:1 ana like ID t", one)
		f("Q.UNREACT post:1 ana ID u", one)
		f("Q.REACT post:1 ana like ID t", one)
		f("GET post:1", one1)

		// A pipeline keeps its order, over a reset that the door learns of on its way.
		f("DEL post:1", one)
		if _, err := d.db.Reset(t.Context(), "post:2"); err != nil {
			t.Fatal(err)
		}
		c.send(strings.Repeat(array("SADD", "post:1", "ana")+array("SADD", "post:2", "ana", "bob")+array("SREM", "post:2", "bob")+array("GET", "post:2"), 2) + array("DEL", "post:2") + array("SADD", "post:2", "ana"))
		for i, want := range []string{one, ":2\r\n", one, one1, zero, one, one, one1, one, one} {
			if got := c.reply(); got != want {
				t.Errorf("reply %d of the pipeline: %q, want %q", i, got, want)
			}
		}
		c.send(array("DEL", "post:5") + array("SADD", "post:5", "ana") + array("DEL", "post:5") + array("SADD", "post:5", "bob") + array("GET", "post:5"))
		for i, want := range []string{zero, one, one, one, one1} {
			if got := c.reply(); got != want {
				t.Errorf("reply %d of a pipeline with resets: %q, want %q", i, got, want)
			}
		}
		f("SISMEMBER post:5 ana", zero)
		f("MULTI", ok)
		f("SADD post:1 di ed", "+QUEUED\r\n")
		f("Q.REACT post:1 ana dislike", "+QUEUED\r\n")
		f("EXEC", "*2\r\n:2\r\n:1\r\n")

		// As Redis says it.
		for _, command := range []string{"INCR post:1", "INCRBY post:1 3", "DECR post:1", "SET post:1 5", "GETSET post:1 5", "Q.ADD post:1 1"} {
			f(command, wrong)
		}
		f("SET plain 5", ok)
		for _, command := range []string{"SADD plain a", "SREM plain a", "SCARD plain", "SISMEMBER plain a", "SMISMEMBER plain a", "SMEMBERS plain", "SSCAN plain 0"} {
			f(command, wrong)
		}
		f("SREM none a", zero)
		f("SCARD none", zero)
		f("SMISMEMBER none a b", "*2\r\n:0\r\n:0\r\n")
		for command, want := range map[string]string{
			"SADD none a": "-ERR \"none\" has no choices", "Q.REACT none a like": "-ERR \"none\" has no choices", "Q.REACT post:1 ana love": "-ERR unknown choice \"love\": want like or dislike",
			"Q.REACT post:1 ana": "-ERR wrong number", "Q.REACT post:1 ana like ID": "-ERR syntax", "SSCAN post:1 x": "-ERR invalid cursor", "SSCAN post:1 77": "-ERR invalid cursor",
			"SADD post:1 " + strings.Repeat("x", 256): "-ERR who of 256 bytes: at most 255", "SSCAN post:1 0 TYPE set": "-ERR syntax", "EXPIRE post:1 10": "-ERR this counter can't have a deadline",
		} {
			if got := c.line(command); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
		if got := c.do("SADD", "post:1", ""); got != "-ERR user is empty\r\n" {
			t.Errorf("%q", got)
		}

		// Each is counted once a day.
		f("Q.ADD view:1 1 WHO ana", one)
		f("Q.ADD view:1 1 WHO ana", one)
		f("Q.ADD view:1 1 WHO bob ID t", ":2\r\n")
		f("Q.ADD view:1 1 WHO bob ID t", ":2\r\n")
		if got := c.line("INCR view:1"); !strings.HasPrefix(got, "-ERR the definition of the counter counts each user once: name the user (who)") {
			t.Errorf("%q", got)
		}

		// Many, page by page.
		for i := range 30 {
			f(fmt.Sprintf("SADD post:3 u%02d", i), one)
		}
		seen, cursor := 0, "0"
		for {
			got := c.line("SSCAN post:3 " + cursor + " COUNT 7")
			fields := strings.Split(got, "\r\n")
			seen += strings.Count(got, "\r\nu")
			if cursor = fields[2]; cursor == "0" {
				break
			}
		}
		if seen != 30 {
			t.Errorf("%d members in pages", seen)
		}
	}
	transports(t, func(t *testing.T, o resp.Options) { all(t, open(t, o)) })
	t.Run("embedded", func(t *testing.T) { all(t, openEmbedded(t)) })
	t.Run("many partitions", func(t *testing.T) {
		all(t, openOver(t, quipu.New(memstore.New(memstore.Options{Partitions: 5}), quipu.Options{}), resp.Options{}))
	})
}

// Another server resets a counter: the door finds out when the store refuses its reactions.
func TestReactionsOfOthers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		s := memstore.New(memstore.Options{})
		other := quipu.New(s, quipu.Options{})
		if _, err := other.Define(t.Context(), []definition.Definition{{Pattern: "post:*", Choices: []string{"like"}}}, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, openOver(t, quipu.New(s, quipu.Options{}), o).addr)
		c.expect("SADD post:1 ana", one)
		for range 3 {
			c.send(array("SADD", "post:1", "ana") + array("SADD", "post:1", "ana", "bob"))
			if a, b := c.reply(), c.reply(); a != zero || b != one {
				t.Errorf("%q, %q", a, b)
			}
			if _, err := other.Reset(t.Context(), "post:1"); err != nil {
				t.Fatal(err)
			}
			c.expect("SADD post:1 ana", one)
			c.expect("SCARD post:1", one)
		}
	})
}

const one1 = "$1\r\n1\r\n"
