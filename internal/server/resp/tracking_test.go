package resp_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/storetest"
)

// trackingStories are what connections say, each line after the name of one; "=A" is
// the id of A. Those with a small letter speak RESP2.
var trackingStories = map[string][]string{
	"a write of another": {
		"A CLIENT TRACKING ON", "A GET k", "B SET k 1", "A GET k", "B INCR k", "B INCR k", "A GET k", "B DEL k", "A MGET k l m", "B MSET k 1 l 2 other 3", "B SET m 1",
	},
	"one's own": {"A CLIENT TRACKING ON", "A GET k", "A SET k 1", "A SET k 2", "A GET k", "A EXPIREAT k 3000000000", "A EXPIRETIME k", "B PERSIST k"},
	"no change": {"A CLIENT TRACKING ON", "B SET k 1", "A GET k", "B SET k 2 NX", "B GET k", "B EXPIRE nosuch 3", "B DEL nosuch", "B SET k 5"},
	"what is read": {
		"A CLIENT TRACKING ON", "A EXISTS a", "B SET a 1", "A TTL a", "B EXPIRE a 100", "A STRLEN a", "B INCR a", "A TYPE a", "B SET a 5", "A TOUCH a", "B DEL a",
		"A INCR b", "B INCR b", "A GETEX b", "B INCR b", "A SCAN 0", "B INCR b", "A EXPIRETIME b", "B DEL b", "A GETDEL b", "B INCR b",
	},
	"renamed":               {"B SET a 1", "A CLIENT TRACKING ON", "A MGET a b", "B RENAME a b", "A GET b", "B GETDEL b"},
	"pipelines of the same": {"A CLIENT TRACKING ON OPTOUT", "A CLIENT CACHING NO", "A GET k", "A GET k", "B INCR k", "B INCR k"},
	"optin": {
		"A CLIENT TRACKING ON OPTIN", "A GET k", "B SET k 1", "A CLIENT CACHING YES", "A CLIENT TRACKINGINFO", "A GET k", "A CLIENT TRACKINGINFO", "A GET l", "B MSET k 2 l 2",
		"A CLIENT CACHING YES", "A MULTI", "A PTTL k", "A GET l", "A EXEC", "B MSET k 3 l 3", "A CLIENT CACHING YES", "A PING", "A GET k", "B SET k 4",
		"A CLIENT CACHING YES", "A CLIENT ID", "A GET k", "B SET k 5", "A CLIENT CACHING YES", "A NOSUCH", "A GET k", "B SET k 6",
		"A CLIENT CACHING YES", "A MULTI", "A DISCARD", "A GET k", "B SET k 7",
	},
	"optout": {"A CLIENT TRACKING ON OPTOUT", "A GET k", "B SET k 1", "A CLIENT CACHING NO", "A CLIENT TRACKINGINFO", "A GET k", "B SET k 2", "A GET k", "B SET k 3"},
	"noloop": {
		"A CLIENT TRACKING ON NOLOOP", "A CLIENT TRACKINGINFO", "A GET k", "A SET k 1", "B SET k 2", "A GET k", "B SET k 3", "A GET k", "A SET k 9 NX", "B INCR k",
		"A MGET k l", "A INCR k", "B INCR l", "A GET k", "A DEL k", "B INCR k",
	},
	"transactions": {"A CLIENT TRACKING ON", "A MULTI", "A GET k", "A GET l", "A INCR l", "A EXEC", "B MSET k 1 l 1", "A MGET k l", "B MULTI", "B INCR k", "B INCR l", "B EXEC"},
	"broadcast": {
		"A CLIENT TRACKING ON BCAST PREFIX user: PREFIX post:", "A CLIENT TRACKINGINFO", "B SET user:1 1", "B SET other 1", "A GET other", "B SET other 2", "B INCR user:1",
		"A CLIENT TRACKING ON BCAST PREFIX other", "A CLIENT TRACKINGINFO", "B SET other 3", "A SET user:5 1", "A CLIENT TRACKING OFF", "B SET user:5 2", "A CLIENT TRACKINGINFO",
		"A CLIENT TRACKING ON BCAST", "A CLIENT TRACKINGINFO", "B SET anything 2",
	},
	"broadcast of one step":       {"A CLIENT TRACKING ON BCAST PREFIX a: PREFIX b:", "B MSET a:1 1 b:1 1 a:2 1 c:1 1 b:2 1", "B MULTI", "B INCR a:1", "B INCR b:1", "B INCR a:1", "B EXEC"},
	"broadcast without one's own": {"A CLIENT TRACKING ON BCAST NOLOOP", "A SET k 1", "B SET k 2", "A INCR k", "B INCR l"},
	"redirected to RESP2": {
		"b SUBSCRIBE __redis__:invalidate", "A CLIENT TRACKING ON REDIRECT =b", "A CLIENT GETREDIR", "A GET k", "C SET k 1", "A GET k", "A SET k 2",
		"a CLIENT TRACKING ON REDIRECT =b", "a GET k", "C SET k 3", "b PING", "b PING hello", "b GET k", "b UNSUBSCRIBE __redis__:invalidate", "b GET k", "A GET k", "C SET k 4",
	},
	"redirected to RESP3":    {"a CLIENT TRACKING ON REDIRECT =B", "a GET k", "C SET k 1", "a GET k", "a CLIENT TRACKING OFF", "C SET k 2", "a CLIENT GETREDIR"},
	"RESP2 without redirect": {"a CLIENT TRACKING ON", "a GET k", "B SET k 1", "a CLIENT TRACKINGINFO"},
	"reset":                  {"A CLIENT TRACKING ON OPTIN", "A CLIENT CACHING YES", "A GET k", "A RESET", "B SET k 1", "A CLIENT TRACKINGINFO", "A CLIENT GETREDIR"},
	"off and on":             {"A CLIENT TRACKING ON", "A GET k", "A CLIENT TRACKING OFF", "A CLIENT TRACKING ON", "B SET l 1", "A GET l", "B SET l 2"},
	"flushed":                {"A CLIENT TRACKING ON", "A GET k", "B FLUSHALL", "B SET k 1", "A GET k", "B SET k 2", "A FLUSHDB"},
	"flushed, redirected":    {"b SUBSCRIBE __redis__:invalidate", "a CLIENT TRACKING ON REDIRECT =b", "a GET k", "C FLUSHDB"},
	"errors": {
		"A CLIENT TRACKING", "A CLIENT TRACKING MAYBE", "A CLIENT TRACKING ON WHAT", "A CLIENT TRACKING ON REDIRECT", "A CLIENT TRACKING ON REDIRECT x", "A CLIENT TRACKING ON REDIRECT 99999",
		"A CLIENT TRACKING ON REDIRECT =B REDIRECT =B", "A CLIENT TRACKING ON PREFIX x", "A CLIENT TRACKING ON BCAST OPTIN", "A CLIENT TRACKING ON OPTIN OPTOUT", "A CLIENT CACHING YES",
		"A CLIENT TRACKING ON BCAST PREFIX ab PREFIX a", "A CLIENT TRACKING ON BCAST PREFIX ab", "A CLIENT TRACKING ON BCAST PREFIX abc", "A CLIENT TRACKING ON", "A CLIENT CACHING YES",
		"A CLIENT TRACKING OFF", "A CLIENT TRACKING ON OPTIN", "A CLIENT TRACKING ON OPTOUT", "A CLIENT CACHING NO", "A CLIENT CACHING WHAT", "A CLIENT TRACKINGINFO x", "A CLIENT GETREDIR x",
	},
}

// Redis and the door tell the same connections the same, reply by reply.
func TestTrackingAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	transports(t, func(t *testing.T, o resp.Options) {
		for name, lines := range trackingStories {
			t.Run(name, func(t *testing.T) { tellBoth(t, open(t, o).addr, redis, lines) })
		}
	})
	t.Run("embedded", func(t *testing.T) {
		for name, lines := range trackingStories {
			t.Run(name, func(t *testing.T) { tellBoth(t, openEmbedded(t).addr, redis, lines) })
		}
	})
}

func tellBoth(t *testing.T, addr, redis string, lines []string) {
	dial(t, redis).line("FLUSHALL")
	sides := []map[string]*client{{}, {}}
	ids := []map[string]string{{}, {}}
	for _, name := range []string{"A", "B", "C", "a", "b"} {
		for i, at := range []string{addr, redis} {
			c := dial(t, at)
			if name == strings.ToUpper(name) {
				c.line("HELLO 3")
			}
			sides[i][name], ids[i][name] = c, strings.Trim(c.line("CLIENT ID"), ":\r\n")
		}
	}
	multi := false
	for _, line := range lines {
		name, words, _ := strings.Cut(line, " ")
		multi = words == "MULTI" || multi && words != "EXEC" && words != "DISCARD"
		lone := multi || strings.HasPrefix(words, "CLIENT CACHING") // a PING would come between
		var heard [2]map[string][]string
		for i, side := range slices.Backward(sides) {
			said := strings.Fields(words)
			for at, w := range said {
				if id, ok := strings.CutPrefix(w, "="); ok {
					said[at] = ids[i][id]
				}
			}
			side[name].send(array(said...))
			heard[i] = map[string][]string{}
			var names []string
			for other := range side {
				if other != name {
					names = append(names, other)
				}
			}
			for _, other := range append([]string{name}, names...) {
				want := -1
				if i == 0 {
					want = len(heard[1][other])
				}
				if other == name {
					heard[i][other] = []string{side[other].reply()}
					want--
				}
				if !lone || other != name {
					heard[i][other] = append(heard[i][other], side[other].until(want)...)
				}
				for client, id := range ids[i] {
					for at, h := range heard[i][other] {
						if strings.Contains(words, "REDIR") || strings.Contains(words, "CLIENT ID") {
							heard[i][other][at] = strings.ReplaceAll(h, ":"+id+"\r\n", client)
						}
					}
				}
			}
		}
		for name := range heard[0] {
			if got, want := heard[0][name], heard[1][name]; !slices.Equal(normal(got), normal(want)) {
				t.Errorf("%s: %s heard %q, with Redis %q\nafter %q", line, name, got, want, lines)
			}
		}
	}
}

// normal returns what was heard in one order: keys that were changed in one step may be told
// in any.
func normal(heard []string) []string { return slices.Sorted(slices.Values(heard)) }

// until returns what the client hears until it has the reply to a PING, and so many
// messages. What was told to another client before may still be on its way.
func (c *client) until(messages int) (heard []string) {
	c.t.Helper()
	c.send(array("PING", "marker"))
	for marked := false; !marked || len(heard) < messages; {
		r := c.reply()
		if strings.Contains(r, "marker") {
			marked = true
			continue
		}
		heard = append(heard, r)
	}
	return heard
}

// invalidation is what a client with RESP3 is told of a key.
func invalidation(key string) string {
	return ">2\r\n" + bulk("invalidate") + "*1\r\n" + bulk(key)
}

// tracking returns a client with RESP3 that tracks.
func tracking(t *testing.T, addr, options string) *client {
	t.Helper()
	c := dial(t, addr)
	c.line("HELLO 3")
	c.expect(strings.TrimSpace("CLIENT TRACKING ON "+options), ok)
	return c
}

// A write through any other door is told.
func TestTrackingOtherDoors(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c := tracking(t, d.addr, "")
		for i, write := range []func() error{
			func() error { _, err := d.db.Add(t.Context(), "k", 1); return err },
			func() error { _, err := d.db.Set(t.Context(), "k", 7); return err },
			func() error { _, err := d.db.Delete(t.Context(), "k"); return err },
		} {
			c.line("GET k")
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if got := c.reply(); got != invalidation("k") {
				t.Errorf("after write %d: %q", i, got)
			}
		}
	})
}

// A key that ends by its deadline is told, whether anyone looks at it or not.
func TestTrackingExpiry(t *testing.T) {
	for name, d := range map[string]*door{"memory": open(t, resp.Options{}), "embedded": openEmbedded(t)} {
		t.Run(name, func(t *testing.T) {
			c := tracking(t, d.addr, "")
			c.expect("SET k 1 PX 300", ok)
			c.expect("GET k", bulk("1"))
			began := time.Now()
			if got := c.reply(); got != invalidation("k") {
				t.Errorf("%q", got)
			}
			if waited := time.Since(began); waited < 200*time.Millisecond {
				t.Errorf("told after %v", waited)
			}
			if got := c.line("GET k"); got != "_\r\n" {
				t.Errorf("then it is %q", got)
			}
		})
	}
}

// A client that has read more than its share is told to forget everything, and the table
// stays within its limit. Other clients lose what has to go, and are told.
func TestTrackingLimits(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		admin := dial(t, d.addr)
		admin.expect("CONFIG SET tracking-table-max-keys 100", ok)
		quiet := tracking(t, d.addr, "")
		quiet.line("GET mine")
		greedy := tracking(t, d.addr, "")
		var told int
		for i := range 1000 {
			greedy.send(array("GET", "k"+strconv.Itoa(i)))
			for greedy.reply() != "_\r\n" {
				told++
			}
		}
		if told += len(greedy.until(-1)); told < 10 {
			t.Errorf("told %d times", told)
		}
		if info := admin.line("INFO stats"); !regexpInt(info, "tracking_total_keys", 100) || !regexpInt(info, "tracking_total_items", 400) {
			t.Errorf("INFO: %q", info)
		}
		admin.line("SET mine 1")
		if heard := quiet.until(1); len(heard) != 1 || heard[0] != invalidation("mine") {
			t.Errorf("another client heard %q", heard)
		}
		admin.expect("CONFIG SET tracking-table-max-keys 10", ok)
		if info := admin.line("INFO stats"); !regexpInt(info, "tracking_total_keys", 10) {
			t.Errorf("INFO: %q", info)
		}
	})
}

// regexpInt reports whether a field of INFO is at most a number.
func regexpInt(info, field string, most int) bool {
	_, rest, found := strings.Cut(info, field+":")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(text)
	return found && err == nil && n <= most
}

// A client that never reads what it is told costs a bounded amount, and hurts nobody.
func TestTrackingNeverReads(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		deaf := tracking(t, d.addr, "BCAST")
		writer := dial(t, d.addr)
		var raw strings.Builder
		const each = 1000
		for round := range 100 {
			raw.Reset()
			for i := range each {
				raw.WriteString(array("INCR", fmt.Sprintf("%s:%d:%d", strings.Repeat("long", 50), round, i)))
			}
			writer.send(raw.String())
			for range each {
				if got := writer.reply(); got != ":1\r\n" {
					t.Fatalf("the writer got %q", got)
				}
			}
		}
		if held, keys := d.Buffered(), d.News(); held > 2<<20 || keys > 1024 {
			t.Errorf("%d bytes and %d keys are held for one that takes nothing", held, keys)
		}
		_ = deaf.Close()
	})
}

// When all who track are gone nothing is kept of them, and nobody listens to writes.
func TestTrackingEnds(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		admin := dial(t, d.addr)
		for range 3 {
			c := tracking(t, d.addr, "")
			c.line("MGET a b c")
			_ = c.Close()
			for deadline := time.Now().Add(patience); !strings.Contains(admin.line("INFO stats"), "tracking_total_keys:0"); {
				if time.Now().After(deadline) {
					t.Fatal("keys are kept")
				}
			}
			admin.expect("INCRBY a 0", admin.line("GET a")[:0]+":"+"0\r\n")
		}
	})
}

// Of readers and writers that do as they like, every reader that has been told everything
// has in its cache what there is.
func TestTrackingCoherence(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		for name, d := range map[string]*door{"memory": open(t, o), "embedded": openEmbedded(t)} {
			t.Run(name, func(t *testing.T) { coherence(t, d) })
		}
	})
}

func coherence(t *testing.T, d *door) {
	const keys, rounds, writers = 20, 300, 3
	done := make(chan struct{})
	for w := range writers {
		c := dial(t, d.addr)
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range rounds {
				c.line(fmt.Sprintf("INCR k%d", (i*7+w*3)%keys))
				if i%10 == 0 {
					_, _ = d.db.Add(context.Background(), fmt.Sprintf("k%d", i%keys), 1)
				}
			}
		}()
	}
	c := tracking(t, d.addr, "")
	cache := map[string]string{}
	hear := func(r string) bool {
		if !strings.HasPrefix(r, ">") {
			return false
		}
		for key := range strings.SplitSeq(r, "\r\n") {
			delete(cache, key)
		}
		return true
	}
	fill := func() {
		var asked []string
		var raw strings.Builder
		for i := range keys {
			if key := fmt.Sprintf("k%d", i); cache[key] == "" {
				asked = append(asked, key)
				raw.WriteString(array("GET", key))
			}
		}
		c.send(raw.String() + array("PING"))
		for at := 0; at <= len(asked); {
			r := c.reply()
			if hear(r) {
				continue
			}
			if at < len(asked) {
				cache[asked[at]] = r
			}
			at++
		}
	}
	for left := writers; left > 0; {
		select {
		case <-done:
			left--
		default:
			fill()
		}
	}
	// What was told is on its way at most: no look at the keys is needed.
	admin := dial(t, d.addr)
	for deadline := time.Now().Add(patience); ; {
		fill()
		stale := ""
		for key, value := range cache {
			if now := admin.line("GET " + key); strings.TrimLeft(now, "_") != strings.TrimLeft(value, "_") && now != value {
				stale = fmt.Sprintf("%s is %q, cached %q", key, now, value)
			}
		}
		if stale == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(stale)
		}
	}
}

// Over a store that others share, what another server writes is found by looking, also of a
// counter that is split, and whatever was read: what a key was is looked at before a client
// reads it for the first time.
func TestTrackingOtherServers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		under := common()
		lasting := new(storetest.Hooks)
		lasting.On(storetest.OnClose, storetest.Ignore)
		other := quipu.New(storetest.Wrap(under, lasting), quipu.Options{})
		t.Cleanup(func() { _ = other.Close() })
		d := openOver(t, quipu.New(under, quipu.Options{}), o)
		c := tracking(t, d.addr, "")
		c.expect("CLIENT TRACKING ON BCAST", "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.\r\n")
		dial(t, d.addr).expect("CLIENT TRACKING ON BCAST", "-ERR BCAST is not possible over a store that other servers share: they do not tell which keys they change\r\n")
		set := func(key string, n int64) {
			t.Helper()
			if _, err := other.Set(t.Context(), key, n); err != nil {
				t.Fatal(err)
			}
		}
		hears := func(key string) {
			t.Helper()
			if got := c.reply(); got != invalidation(key) {
				t.Errorf("%s: %q", key, got)
			}
		}
		c.line("MGET k l m")
		set("l", 5)
		hears("l")
		c.expect("GET l", bulk("5"))
		set("l", 5) // the same value, by another write
		hears("l")
		set("m", 1)
		hears("m")
		dial(t, d.addr).line("INCR k")
		hears("k")
		c.expect("EXISTS k", ":1\r\n")
		if _, err := other.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		hears("k")
		c.expect("SET e 1 PX 400", ok)
		c.line("GET e")
		hears("e")
		value := split(t, under, "wide")
		c.expect("GET wide", bulk(strconv.FormatInt(value, 10)))
		if _, err := other.Add(t.Context(), "wide", 1); err != nil {
			t.Fatal(err)
		}
		hears("wide")
		if heard := c.until(-1); len(heard) > 0 {
			t.Errorf("heard besides %q", heard)
		}
	})
}

// A key that changes between the look and the reply, by another server, is told.
func TestTrackingBetween(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		under, h := common(), new(storetest.Hooks)
		lasting := new(storetest.Hooks)
		lasting.On(storetest.OnClose, storetest.Ignore)
		other := quipu.New(storetest.Wrap(under, lasting), quipu.Options{})
		t.Cleanup(func() { _ = other.Close() })
		var reads atomic.Int32
		h.On(storetest.OnRead, func(c *storetest.Call) error {
			err := c.Pass()
			if reads.Add(1) == 2 { // the client has been told the value before
				if _, err := other.Set(context.Background(), "k", 7); err != nil {
					t.Error(err)
				}
			}
			return err
		})
		d := openOver(t, quipu.New(storetest.Wrap(under, h), quipu.Options{}), o)
		c := tracking(t, d.addr, "")
		c.expect("GET k", "_\r\n")
		if got := c.reply(); got != invalidation("k") {
			t.Errorf("heard %q", got)
		}
		c.expect("GET k", bulk("7"))
	})
}

// What says something of the next command says it of one, also in a pipeline of the same.
func TestTrackingPipeline(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, writer := tracking(t, d.addr, "OPTOUT"), dial(t, d.addr)
		c.send(array("CLIENT", "CACHING", "NO") + strings.Repeat(array("GET", "k"), 3))
		for range 4 {
			c.reply()
		}
		writer.line("INCR k")
		if heard := c.until(1); !slices.Equal(heard, []string{invalidation("k")}) {
			t.Errorf("heard %q", heard)
		}
	})
}

// What a client has read before a change is told before the change is, however long the
// reply has taken: otherwise it would keep what it reads last.
func TestTrackingOrder(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		h := new(storetest.Hooks)
		db := quipu.New(storetest.Wrap(common(), h), quipu.Options{})
		d := openOver(t, db, o)
		writer := dial(t, d.addr)
		writer.line("SET k 1")
		var reads atomic.Int32
		h.On(storetest.OnRead, func(c *storetest.Call) error {
			err := c.Pass()
			if reads.Add(1) == 2 { // the value is read, and not replied yet
				if _, err := db.Set(context.Background(), "k", 7); err != nil {
					t.Error(err)
				}
				for range 3 { // turns of the loop
					writer.line("PING")
				}
			}
			return err
		})
		c := tracking(t, d.addr, "")
		c.send(array("GET", "k"))
		if got := []string{c.reply(), c.reply()}; !slices.Equal(got, []string{bulk("1"), invalidation("k")}) {
			t.Errorf("heard %q", got)
		}
	})
}

// After a flush nothing is kept of who was told to forget everything.
func TestTrackingFlushed(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, admin := tracking(t, d.addr, ""), dial(t, d.addr)
		c.line("MGET a b c")
		admin.expect("FLUSHALL", ok)
		if info := admin.line("INFO stats"); !strings.Contains(info, "tracking_total_keys:0\r\ntracking_total_items:0\r\n") {
			t.Errorf("INFO: %q", info)
		}
	})
}

// A client that listens to prefixes does so in the database that it has selected.
func TestTrackingDatabases(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, writer := tracking(t, d.addr, "BCAST"), dial(t, d.addr)
		other := tracking(t, d.addr, "")
		other.line("GET k")
		c.expect("SELECT 1", ok)
		writer.line("SET k0 1")
		writer.line("SELECT 1")
		writer.line("SET k 1")
		if heard := c.until(1); !slices.Equal(heard, []string{invalidation("k")}) {
			t.Errorf("heard %q", heard)
		}
		if heard := other.until(-1); len(heard) > 0 {
			t.Errorf("who has read the key in another database heard %q", heard)
		}
	})
}

// A client that wants no replies is told all the same.
func TestTrackingMuted(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, writer := tracking(t, d.addr, ""), dial(t, d.addr)
		c.line("GET k")
		c.send(array("CLIENT", "REPLY", "OFF") + array("GET", "k"))
		writer.line("INCR k")
		if got := c.reply(); got != invalidation("k") {
			t.Errorf("heard %q", got)
		}
		c.send(array("CLIENT", "REPLY", "ON"))
		if got := c.reply(); got != ok {
			t.Errorf("then %q", got)
		}
	})
}
