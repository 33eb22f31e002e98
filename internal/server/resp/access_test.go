package resp_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// A guardedDoor is a door with keys in its store.
type guardedDoor struct {
	*door
	gate *server.Gate
	ring *keyring.Ring
}

// openGuarded opens a door for the key "root" and those of its store.
func openGuarded(t *testing.T, o resp.Options) *guardedDoor {
	t.Helper()
	var g server.GateOptions
	s := memstore.New(memstore.Options{})
	var err error
	if g.Keys, err = server.NewKeys([]string{"root"}); err != nil {
		t.Fatal(err)
	}
	g.Logger = slog.New(slog.DiscardHandler)
	g.Ring = keyring.New(s, keyring.Options{Logger: g.Logger})
	o.Gate = server.NewGate(g)
	g.Ring.OnChange(o.Gate.Changed)
	return &guardedDoor{openOver(t, quipu.New(s, quipu.Options{}), o), o.Gate, g.Ring}
}

// key makes a key.
func (d *guardedDoor) key(t *testing.T, w keyring.Wish) (id, key string) {
	t.Helper()
	if w.Name == "" {
		w.Name = strings.Join(w.Grants, " ")
	}
	k, key, err := d.ring.Create(t.Context(), w, func(*access.Roll, *access.Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return k.ID, key
}

// Every command has a row in the table of package access, and every row has a command.
func TestEveryCommandHasARow(t *testing.T) {
	needs, seen := access.RESP(), map[string]bool{}
	for _, c := range resp.Commands() {
		seen[c.Name] = true
		if _, ok := needs.Of(c.Name); !ok {
			t.Errorf("%s has no row in internal/access/operations.go", c.Name)
		}
	}
	for name := range needs {
		if !seen[name] {
			t.Errorf("row %s has no command", name)
		}
	}
}

// grants is what a rule should mean, spelled out: the test's own judge.
func grants(need access.Need, r access.Rule, namespace, key string) bool {
	var on bool
	here := r.Every || r.Namespace == namespace
	switch need.Scope {
	case access.OnNothing, access.OnLogin:
		return true
	case access.OnSome:
		on = true
	case access.OnKeys, access.OnPrefix:
		on = here && len(key) >= len(r.Prefix) && key[:len(r.Prefix)] == r.Prefix
	case access.OnNamespace:
		on = here && r.Prefix == ""
	case access.OnServer:
		on = r.Every && r.Prefix == ""
	}
	if need.Any {
		return on && need.Grants&r.Grants != 0
	}
	return on && need.Grants&^r.Grants == 0
}

// Every command, sent by every principal, on keys that it is granted and on others, alone and
// in a transaction, is allowed or refused as the table says.
func TestCommandsByPrincipal(t *testing.T) {
	d := openGuarded(t, resp.Options{})
	type try struct {
		rule access.Rule
		key  string
	}
	var tries []try
	for _, g := range []string{"read", "write", "decide", "admin", "read+write", "all"} {
		for _, where := range []string{"*", "n", "n/in:*", "*/in:*", "n/in:deep*"} {
			rule, err := access.ParseRule(g + ":" + where)
			if err != nil {
				t.Fatal(err)
			}
			_, key := d.key(t, keyring.Wish{Grants: []string{g + ":" + where}})
			tries = append(tries, try{rule, key})
		}
	}
	ids := map[string]string{}
	for _, key := range []string{"in:1", "in:deep", "out"} {
		if _, err := d.db.In("n").Set(t.Context(), key, 1000); err != nil {
			t.Fatal(err)
		}
		r, err := d.db.In("n").Reserve(t.Context(), key, 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		ids[key] = r.ID
	}
	needs, cells := access.RESP(), 0
	root := dial(t, d.addr)
	root.expect("AUTH n root", ok)
	for _, c := range resp.Commands() {
		need, _ := needs.Of(c.Name)
		for _, key := range []string{"in:1", "in:deep", "out"} {
			args := strings.Split(c.Name, "|")
			for len(args) < c.Args {
				args = append(args, "x")
			}
			for _, at := range c.Keys {
				args[at] = key
			}
			switch c.Name {
			case "Q.TOP":
				args = []string{"Q.TOP", "x", "KEY", key}
			case "KEYS":
				args[1] = key + "*"
			case "SCAN":
				args = []string{"SCAN", "0", "MATCH", key + "*"}
			case "Q.COMMIT", "Q.RELEASE", "Q.EXTEND", "Q.RESERVATION":
				args[1] = ids[key]
			case "Q.ALLOW", "Q.PEEK", "Q.FORGET", "PUBLISH", "SUBSCRIBE":
				args[1] = key
			case "PSUBSCRIBE":
				args[1] = key + "*"
			case "PUBSUB|CHANNELS":
				args = append(args, key+"*")
			case "PUBSUB|NUMSUB":
				args = append(args, key)
			}
			for _, p := range tries {
				c := dial(t, d.addr)
				c.expect("AUTH n "+p.key, ok)
				c.send(array(args...))
				got := c.reply()
				want := grants(need, p.rule, "n", key)
				if allowed := !strings.HasPrefix(got, "-NOPERM"); allowed != want {
					t.Errorf("%q by %s: %.100q; want allowed: %v", args, p.rule, got, want)
				}
				_ = c.Close()
				cells++
			}
			stranger := dial(t, d.addr)
			stranger.send(array(args...))
			if got := stranger.reply(); strings.HasPrefix(got, "-NOAUTH") == need.Open() && args[0] != "HELLO" {
				t.Errorf("%q by a stranger: %.100q", args, got)
			}
			_ = stranger.Close()
		}
	}
	t.Logf("%d cells", cells)
}

// What is not granted can't be had by another way.
func TestWaysAround(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openGuarded(t, o)
		_, key := d.key(t, keyring.Wish{Name: "in", Grants: []string{"read+write+decide:n/in:*"}})
		const noKey, noRun = "-NOPERM No permissions to access a key\r\n", "-NOPERM User in has no permissions to run the '%s' command\r\n"
		c := dial(t, d.addr)
		f := c.expect
		f("AUTH "+key, ok) // n is the one namespace that it has
		f("ACL WHOAMI", bulk("in"))
		f("INCR in:1", one)
		f("INCR out", noKey)
		f("INCR in", noKey)
		f("MGET in:1 out", noKey)
		f("MSET in:1 5 out 6", noKey)
		f("MSET in:1 5 in:2 6", ok)
		f("COPY in:1 out", noKey)
		f("PFMERGE in:3 out", noKey)
		f("CMS.MERGE in:3 1 out", noKey)
		f("CMS.MERGE in:3 2 in:4 out", noKey)
		f("CMS.MERGE in:3 -1 out", c.lineOf("CMS.MERGE in:3 -1 in:4"))
		f("Q.TOP trend", fmt.Sprintf(noRun, "q.top"))
		f("Q.TOP trend KEY out", noKey)
		f("Q.TOP trend KEY in:1 KEY out", noKey)
		f("RENAME out in:9", noKey)
		f("DEL in:2 out", noKey)
		f("KEYS *", noKey)
		f("KEYS in*", noKey)
		f("KEYS in:[1]", "*1\r\n"+bulk("in:1"))
		f("SCAN 0", noKey)
		f("SCAN 0 MATCH in:* MATCH *", noKey)
		f("SCAN 0 TYPE MATCH", noKey)
		f("FLUSHDB", fmt.Sprintf(noRun, "flushdb"))
		f("FLUSHALL", fmt.Sprintf(noRun, "flushall"))
		f("DBSIZE", "-NOPERM User in has no permissions to run the 'dbsize' command\r\n")
		f("CONFIG SET timeout 1", fmt.Sprintf(noRun, "config|set"))
		f("CLIENT LIST", fmt.Sprintf(noRun, "client|list"))
		// Other databases and namespaces.
		f("SELECT 1", "-NOPERM User in has no permissions in this database\r\n")
		f("AUTH m "+key, "-NOPERM in is granted nothing in namespace \"m\": name one of its namespaces as the user\r\n")
		f("INCR in:1", ":6\r\n") // still in n
		f("AUTH n.db1 "+key, "-NOPERM in is granted nothing in namespace \"n.db1\": name one of its namespaces as the user\r\n")
		f("HELLO 2 AUTH m "+key, "-NOPERM in is granted nothing in namespace \"m\": name one of its namespaces as the user\r\n")
		// A transaction is refused when a part of it is.
		f("MULTI", ok)
		f("INCR in:1", "+QUEUED\r\n")
		f("INCR out", noKey)
		f("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
		f("GET in:1", bulk("6"))
		f("MULTI", ok)
		f("SELECT 1", "-ERR SELECT can't be part of a transaction here\r\n")
		f("DISCARD", ok)
		f("WATCH out", noKey)
		// In a pipeline every command is looked at, also one that is nearly the one before.
		c.send(strings.Repeat(array("INCR", "in:1"), 3) + array("INCR", "out") + array("INCR", "in:2") + array("INCR", "ou") + array("INCR", "in:1"))
		got := ""
		for range 7 {
			got += c.reply()
		}
		if want := ":7\r\n:8\r\n:9\r\n" + noKey + ":7\r\n" + noKey + ":10\r\n"; got != want {
			t.Errorf("a pipeline: %q, want %q", got, want)
		}
		// A script may call what its session may, whatever keys it declares.
		const acl = "-NOPERM ACL failure in script: "
		script := func(want, text string, keys ...string) {
			t.Helper()
			got := c.do(append([]string{"EVAL", text, fmt.Sprint(len(keys))}, keys...)...)
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
		f("SET in:9 1", ok)
		script(":2", "return redis.call('incr', KEYS[1])", "in:9")
		script(acl+"No permissions to access a key", "return redis.call('incr', KEYS[1])", "out")
		script(acl+"No permissions to access a key", "return redis.call('get', 'o' .. 'ut')", "in:9")
		script(acl+"No permissions to access a key", "redis.call('incr', 'in:9') return redis.call('mget', 'in:9', 'out')")
		script(bulk("no"), "if redis.pcall('get', 'out').err then return 'no' end return 'yes'")
		f("GET in:9", bulk("3"))
		f("MULTI", ok)
		c.send(array("EVAL", "return redis.call('get', 'out')", "0"))
		if got := c.reply(); got != "+QUEUED\r\n" {
			t.Errorf("EVAL: %q", got)
		}
		if got := c.do("EXEC"); !strings.HasPrefix(got, "*1\r\n"+acl) {
			t.Errorf("a script in a transaction: %q", got)
		}
		f("SCRIPT FLUSH", fmt.Sprintf(noRun, "script|flush"))
		// Who may write sees what it writes, and not what was there.
		_, writer := d.key(t, keyring.Wish{Name: "w", Grants: []string{"write:n"}})
		f("AUTH "+writer, ok)
		f("SET in:1 7", ok)
		f("SET in:1 8 GET", noKey)
		f("GET in:1", "-NOPERM User w has no permissions to run the 'get' command\r\n")
		f("GETDEL in:1", noKey)
		f("INCR in:1", ":8\r\n")
		// Prefixes that a client listens to.
		f("AUTH "+key, ok)
		f("HELLO 3", c.lineOf("HELLO 3"))
		f("CLIENT TRACKING ON BCAST", noKey)
		f("CLIENT TRACKING ON BCAST PREFIX out", noKey)
		f("CLIENT TRACKING ON BCAST PREFIX in:", ok)
	})
}

// Channels are granted as keys of their names are.
func TestChannelGrants(t *testing.T) {
	const noChannel = "-NOPERM No permissions to access a channel\r\n"
	transports(t, func(t *testing.T, o resp.Options) {
		d := openGuarded(t, o)
		_, reader := d.key(t, keyring.Wish{Name: "r", Grants: []string{"read:n/in:*"}})
		_, writer := d.key(t, keyring.Wish{Name: "w", Grants: []string{"write:n/in:*"}})
		_, other := d.key(t, keyring.Wish{Name: "o", Grants: []string{"all:m"}})
		r, w, c := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		r.line("HELLO 3 AUTH n " + reader)
		w.expect("AUTH "+writer, ok)
		c.expect("AUTH "+other, ok)
		r.expect("SUBSCRIBE in:1 out", noChannel)
		r.expect("SUBSCRIBE out", noChannel)
		r.expect("PSUBSCRIBE *", noChannel)
		r.expect("PSUBSCRIBE in:* i*", noChannel)
		r.expect("PUBSUB CHANNELS", noChannel)
		r.expect("PUBSUB NUMPAT", "-NOPERM User r has no permissions to run the 'pubsub|numpat' command\r\n")
		r.expect("PUBLISH in:1 x", "-NOPERM User r has no permissions to run the 'publish' command\r\n")
		r.expect("SUBSCRIBE in:1", ">3\r\n"+bulk("subscribe")+bulk("in:1")+one)
		r.expect("SUBSCRIBE __redis__:invalidate", ">3\r\n"+bulk("subscribe")+bulk("__redis__:invalidate")+":2\r\n")
		r.expect("PSUBSCRIBE in:*", ">3\r\n"+bulk("psubscribe")+bulk("in:*")+":3\r\n")
		w.expect("PUBLISH out x", noChannel)
		w.expect("SUBSCRIBE in:1", "-NOPERM User w has no permissions to run the 'subscribe' command\r\n")
		if got := w.do("EVAL", "return redis.call('publish', 'out', 'x')", "0"); !strings.HasPrefix(got, "-NOPERM ACL failure in script: No permissions to access a channel") {
			t.Errorf("in a script: %q", got)
		}
		c.expect("PUBLISH in:1 x", zero) // It is another's.
		w.expect("PUBLISH in:1 x", ":2\r\n")
		if got := r.reply(); !strings.Contains(got, "message") {
			t.Errorf("heard %q", got)
		}
		r.reply()
		// Whoever becomes somebody else listens to nothing.
		r.expect("AUTH n root", ok)
		w.expect("PUBLISH in:1 x", zero)
	})
}

// lineOf returns the reply to a command.
func (c *client) lineOf(command string) string {
	c.t.Helper()
	return c.line(command)
}

// Who listens to a prefix, and becomes someone who may not, is told nothing more.
func TestListeningEnds(t *testing.T) {
	d := openGuarded(t, resp.Options{})
	_, narrow := d.key(t, keyring.Wish{Name: "narrow", Grants: []string{"read+write:n/in:*"}})
	c := dial(t, d.addr)
	c.line("HELLO 3 AUTH n root")
	c.expect("CLIENT TRACKING ON BCAST", ok)
	c.expect("AUTH "+narrow, ok)
	if got := c.line("CLIENT TRACKINGINFO"); !strings.Contains(got, "off") {
		t.Errorf("tracking: %q", got)
	}
}

// A key that is revoked, rotated or has expired ends the connections that were made with it.
func TestKeysEnd(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openGuarded(t, o)
		id, key := d.key(t, keyring.Wish{Name: "short", Grants: []string{"all:n"}})
		busy, idle, other := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		for _, c := range []*client{busy, idle} {
			c.expect("AUTH "+key, ok)
			c.expect("PING", pong)
		}
		other.expect("AUTH n root", ok)
		if _, err := d.ring.Revoke(t.Context(), id, func(*access.Roll, *access.Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		idle.ended()
		busy.ended()
		other.expect("PING", pong)
		c := dial(t, d.addr)
		c.expect("AUTH "+key, "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
		_, brief := d.key(t, keyring.Wish{Name: "brief", Grants: []string{"all:n"}, Life: 300 * time.Millisecond})
		c = dial(t, d.addr)
		c.expect("AUTH "+brief, ok)
		for deadline := time.Now().Add(patience); c.line("PING") == pong; {
			if time.Now().After(deadline) {
				t.Fatal("it does not expire")
			}
		}
		c.expect("INCR a", "-NOAUTH Authentication required.\r\n")
	})
}

// A door that is open closes when the first key is made: whoever is inside has to show one.
func TestClosing(t *testing.T) {
	s := memstore.New(memstore.Options{})
	ring := keyring.New(s, keyring.Options{})
	gate := server.NewGate(server.GateOptions{Ring: ring, Logger: slog.New(slog.DiscardHandler)})
	ring.OnChange(gate.Changed)
	d := &guardedDoor{openOver(t, quipu.New(s, quipu.Options{}), resp.Options{Gate: gate}), gate, ring}
	c := dial(t, d.addr)
	c.expect("INCR a", one)
	_, key := d.key(t, keyring.Wish{Name: "root", Grants: []string{"all:*"}})
	c.ended()
	c = dial(t, d.addr)
	c.expect("INCR a", "-NOAUTH Authentication required.\r\n")
	c.expect("AUTH "+key, ok)
	c.expect("INCR a", ":2\r\n")
}

// Quotas hold in a pipeline too.
func TestCommandQuota(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openGuarded(t, o)
		_, key := d.key(t, keyring.Wish{Name: "few", Grants: []string{"all:n"}, Quota: access.Quota{Requests: 50, Writes: 10}})
		c := dial(t, d.addr)
		c.expect("AUTH "+key, ok)
		c.send(strings.Repeat(array("INCR", "a"), 40))
		done, refused := 0, 0
		for range 40 {
			switch got := c.reply(); {
			case strings.HasPrefix(got, ":"):
				done++
			case strings.HasPrefix(got, "-ERR quota exceeded: "):
				refused++
			default:
				t.Fatalf("reply %q", got)
			}
		}
		if done < 10 || refused < 15 {
			t.Errorf("%d done, %d refused", done, refused)
		}
		other := dial(t, d.addr)
		other.expect("AUTH n root", ok)
		other.expect("GET a", bulk(fmt.Sprint(done)))
	})
}

// Administrators' commands are in the audit log.
func TestCommandAudit(t *testing.T) {
	d := openGuarded(t, resp.Options{})
	_, key := d.key(t, keyring.Wish{Name: "w", Grants: []string{"write:n"}})
	c := dial(t, d.addr)
	c.expect("AUTH n root", ok)
	c.expect("FLUSHDB", ok)
	c.expect("CONFIG SET timeout 0", ok)
	c.expect("AUTH "+key, ok)
	c.line("FLUSHDB")
	var acts []string
	for _, a := range d.gate.Acts(10) {
		acts = append(acts, a.Who+" "+a.Act+" "+a.Target+" "+a.Outcome)
	}
	if want := []string{"w FLUSHDB n denied", "server-key:1 CONFIG|SET timeout done", "server-key:1 FLUSHDB n done"}; !slices.Equal(acts, want) {
		t.Errorf("acts %q, want %q", acts, want)
	}
}

// Who is refused much more often than the quota rests between its commands, over all of its
// connections. Each has its replies in the end, and others do not wait.
func TestFloodRests(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := openGuarded(t, o)
		_, key := d.key(t, keyring.Wish{Name: "few", Grants: []string{"all:n"}, Quota: access.Quota{Requests: 1}})
		const connections, commands = 4, 200
		began := time.Now()
		var flood []*client
		for range connections {
			c := dial(t, d.addr)
			c.expect("AUTH "+key, ok)
			c.send(strings.Repeat(array("INCR", "a"), commands))
			flood = append(flood, c)
		}
		gone := dial(t, d.addr)
		gone.expect("AUTH "+key, ok)
		gone.send(strings.Repeat(array("INCR", "a"), commands))
		other := dial(t, d.addr)
		other.expect("AUTH n root", ok)
		for i := range 100 {
			other.expect("INCR b", fmt.Sprintf(":%d\r\n", i+1))
		}
		waited := time.Since(began)
		_ = gone.Close()
		refused := 0
		for _, c := range flood {
			for range commands {
				if strings.HasPrefix(c.reply(), "-ERR quota exceeded: ") {
					refused++
				}
			}
		}
		took := time.Since(began)
		if refused < connections*commands-10 {
			t.Errorf("%d refused", refused)
		}
		if took < 400*time.Millisecond {
			t.Errorf("%d were refused in %s", refused, took)
		}
		if waited > took {
			t.Errorf("another waited %s of %s", waited, took)
		}
		if d.meter("quipu_resp_rests_total") == 0 {
			t.Error("nobody rests")
		}
	})
}
