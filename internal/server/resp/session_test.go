package resp_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
)

func TestConnectionCommands(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("PING", "+PONG\r\n")
		f("PING hello", bulk("hello"))
		f("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n")
		f("ECHO x", bulk("x"))
		f("SELECT 0", ok)
		f("SELECT 16", "-ERR DB index is out of range\r\n")
		f("SELECT x", notInteger)
		f("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n")
		f("LPUSH a b", "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' \r\n")
		f("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.\r\n")
		f("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n")
		f("CLIENT GETNAME", null)
		f("CLIENT SETNAME me", ok)
		f("CLIENT GETNAME", bulk("me"))
		if got := c.do("CLIENT", "SETNAME", "a b"); got != "-ERR Client names cannot contain spaces, newlines or special characters.\r\n" {
			t.Errorf("SETNAME: %q", got)
		}
		f("CLIENT SETINFO lib-name lib", ok)
		f("CLIENT SETINFO LIB-VER 1.2", ok)
		f("CLIENT SETINFO foo bar", "-ERR Unrecognized option 'foo'\r\n")
		f("CLIENT NO-EVICT on", ok)
		f("CLIENT NO-EVICT x", syntax)
		f("CLIENT NO-TOUCH off", ok)
		f("CLIENT MAINT_NOTIFICATIONS OFF", ok)
		f("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip", ok)
		f("CLIENT|ID", "-ERR unknown command 'CLIENT|ID', with args beginning with: \r\n")
		id := strings.Trim(c.line("CLIENT ID"), ":\r\n")
		line := c.line("CLIENT INFO")
		for _, part := range []string{"id=" + id + " ", " name=me ", " flags=e ", " resp=2 ", " cmd=client|", " lib-name=lib lib-ver=1.2", " user=default "} {
			if !strings.Contains(line, part) {
				t.Errorf("CLIENT INFO: %q has no %q", line, part)
			}
		}
		if got := c.line("CLIENT LIST"); strings.Count(got, "id=") != 1 {
			t.Errorf("CLIENT LIST: %q", got)
		}
		if got := c.line("CLIENT LIST ID " + id); strings.Count(got, "id=") != 1 {
			t.Errorf("CLIENT LIST ID: %q", got)
		}
		f("CLIENT LIST TYPE pubsub", bulk(""))
		f("CLIENT LIST TYPE what", "-ERR Unknown client type 'what'\r\n")
		f("CLIENT LIST ID x", "-ERR Invalid client ID\r\n")
		f("CLIENT KILL ID 999999", zero)
		f("CLIENT KILL 1.2.3.4:5", "-ERR No such client\r\n")
		f("CLIENT KILL ID x", "-ERR client-id should be greater than 0\r\n")
		f("CLIENT KILL TYPE pubsub SKIPME no", zero)
		f("CLIENT KILL FOO bar", syntax)
		f("RESET", "+RESET\r\n")
		f("CLIENT GETNAME", null)
		f("QUIT", ok)
		c.ended()
	})
}

func TestServerCommands(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		if got := c.line("TIME"); !regexp.MustCompile(`^\*2\r\n\$10\r\n\d{10}\r\n\$\d\r\n\d{1,6}\r\n$`).MatchString(got) {
			t.Errorf("TIME: %q", got)
		}
		f("DBSIZE", zero)
		f("RANDOMKEY", null)
		f("MSET a 1 b 2 c 3", ok)
		f("DBSIZE", ":3\r\n")
		if got := c.line("RANDOMKEY"); !strings.Contains("abc", strings.TrimSpace(got[len(got)-3:])) {
			t.Errorf("RANDOMKEY: %q", got)
		}
		info := c.line("INFO")
		for _, part := range []string{"# Server\r\n", "redis_version:7.4.0\r\n", "quipu_version:", "connected_clients:1\r\n", "role:master\r\n", "db0:keys=3,"} {
			if !strings.Contains(info, part) {
				t.Errorf("INFO has no %q: %q", part, info)
			}
		}
		if got := c.line("INFO clients keyspace"); strings.Contains(got, "# Server") || !strings.Contains(got, "# Clients") || !strings.Contains(got, "# Keyspace") {
			t.Errorf("INFO clients: %q", got)
		}
		f("FLUSHDB WHAT", syntax)
		f("FLUSHALL ASYNC", ok)
		f("DBSIZE", zero)
		f("FLUSHDB", ok)
		f("FUNCTION FLUSH", ok)
		f("FUNCTION FLUSH SYNC", ok)
		f("FUNCTION FLUSH NOW", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option\r\n")
		f("CONFIG GET save", "*2\r\n"+bulk("save")+bulk(""))
		f("CONFIG GET SAVE database?", "*4\r\n"+bulk("databases")+bulk("16")+bulk("SAVE")+bulk(""))
		f("CONFIG GET nosuch", "*0\r\n")
		f("CONFIG GET timeout", "*2\r\n"+bulk("timeout")+bulk("0"))
		f("CONFIG SET timeout 300", ok)
		f("CONFIG GET timeout", "*2\r\n"+bulk("timeout")+bulk("300"))
		f("CONFIG SET timeout -1", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and 2147483647 inclusive\r\n")
		f("CONFIG SET save x", "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config\r\n")
		f("CONFIG SET nosuch x", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n")
		f("CONFIG SET timeout 300 save", syntax)
		f("CONFIG RESETSTAT", ok)
	})
}

func TestCommandCommands(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		count := strings.Trim(c.line("COMMAND COUNT"), ":\r\n")
		for _, words := range []string{"COMMAND", "COMMAND LIST", "COMMAND INFO"} {
			if got := c.line(words); !strings.HasPrefix(got, "*"+count+"\r\n") {
				t.Errorf("%s: %.40q, want %s of them", words, got, count)
			}
		}
		f("COMMAND INFO dbsize nosuch", "*2\r\n*10\r\n"+bulk("dbsize")+":1\r\n*2\r\n+readonly\r\n+fast\r\n:0\r\n:0\r\n:0\r\n"+
			"*3\r\n+@keyspace\r\n+@read\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n$-1\r\n")
		f("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n"+bulk("a")+bulk("b"))
		f("COMMAND GETKEYS MGET a b c", "*3\r\n"+bulk("a")+bulk("b")+bulk("c"))
		f("COMMAND GETKEYS PING x", "-ERR The command has no key arguments\r\n")
		f("COMMAND GETKEYS GET a b", "-ERR Invalid number of arguments specified for command\r\n")
		f("COMMAND GETKEYS NOSUCH x", "-ERR Invalid command specified\r\n")
		f("COMMAND DOCS echo", "*2\r\n"+bulk("echo")+"*6\r\n"+bulk("summary")+bulk("Returns the message.")+
			bulk("since")+bulk("1.0.0")+bulk("group")+bulk("connection"))
		f("COMMAND DOCS nosuch", "*0\r\n")
		f("COMMAND LIST FILTERBY PATTERN incr*", "*4\r\n"+bulk("incr")+bulk("incrby")+bulk("incrbyfloat")+bulk("increx"))
		f("COMMAND LIST FILTERBY MODULE x", "*0\r\n")
		f("COMMAND LIST FILTERBY ACLCAT transaction", "*5\r\n"+bulk("discard")+bulk("exec")+bulk("multi")+bulk("unwatch")+bulk("watch"))
		f("COMMAND LIST FOO", syntax)
		if got := c.line("COMMAND DOCS client"); !strings.Contains(got, "subcommands") || !strings.Contains(got, "client|setname") {
			t.Errorf("COMMAND DOCS client: %q", got)
		}
	})
}

func TestHello(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		id := c.line("CLIENT ID")
		fields := bulk("server") + bulk("redis") + bulk("version") + bulk("7.4.0") + bulk("proto") + "%s" + bulk("id") + id +
			bulk("mode") + bulk("standalone") + bulk("role") + bulk("master") + bulk("modules") + "*0\r\n"
		f("HELLO", "*14\r\n"+fmt.Sprintf(fields, ":2\r\n"))
		f("HELLO 3 SETNAME n", "%7\r\n"+fmt.Sprintf(fields, ":3\r\n"))
		f("CLIENT GETNAME", bulk("n"))
		f("HELLO", "%7\r\n"+fmt.Sprintf(fields, ":3\r\n"))
		f("GET none", "_\r\n")
		f("SET a 1 XX", "_\r\n")
		f("MGET none", "*1\r\n_\r\n")
		f("INCR a", one)
		f("GET a", bulk("1"))
		f("CONFIG GET save", "%1\r\n"+bulk("save")+bulk(""))
		f("COMMAND INFO echo", "*1\r\n*10\r\n"+bulk("echo")+":2\r\n~1\r\n+fast\r\n:0\r\n:0\r\n:0\r\n~2\r\n+@fast\r\n+@connection\r\n~0\r\n~0\r\n~0\r\n")
		if got := c.line("CLIENT INFO"); !strings.HasPrefix(got, "=") || !strings.Contains(got, "\r\ntxt:id=") {
			t.Errorf("CLIENT INFO: %q", got)
		}
		f("HELLO 4", "-NOPROTO unsupported protocol version\r\n")
		f("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n")
		f("HELLO 3 WHAT", "-ERR Syntax error in HELLO option 'WHAT'\r\n")
		f("HELLO 2", "*14\r\n"+fmt.Sprintf(fields, ":2\r\n"))
		f("GET none", null)
		f("AUTH x", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n")
		f("AUTH default x", ok)
		f("AUTH a b c", syntax)
	})
}

func TestAuth(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		keys, err := server.NewKeys([]string{"secret", "other"})
		if err != nil {
			t.Fatal(err)
		}
		o.Gate = server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})
		d := open(t, o)
		c := dial(t, d.addr)
		f := c.expect
		const noAuth = "-NOAUTH Authentication required.\r\n"
		const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		f("INCR a", noAuth)
		f("NOSUCH", noAuth)
		f("COMMAND", noAuth)
		f("MULTI", noAuth)
		if got := c.line("HELLO 3"); !strings.HasPrefix(got, "-NOAUTH HELLO must be called with the client already authenticated") {
			t.Errorf("HELLO: %q", got)
		}
		f("AUTH wrong", wrong)
		f("AUTH default wrong", wrong)
		f("HELLO 3 AUTH default wrong", wrong)
		f("INCR a", noAuth)
		f("AUTH secret", ok)
		f("INCR a", one)
		f("RESET", "+RESET\r\n")
		f("INCR a", noAuth)
		if got := c.line("HELLO 3 AUTH default other"); !strings.HasPrefix(got, "%7\r\n") {
			t.Errorf("HELLO AUTH: %q", got)
		}
		f("INCR a", ":2\r\n")
		// A user works in the namespace of that name.
		f("AUTH ads secret", ok)
		f("INCR a", one)
		f("MULTI", ok)
		f("INCR a", "+QUEUED\r\n")
		f("EXEC", "*1\r\n:2\r\n")
		f("DBSIZE", one)
		f("AUTH a/b secret", wrong)
		f("INCR a", ":3\r\n")
		if count, err := d.db.In("ads").Read(t.Context(), "a"); err != nil || count.Value != 3 {
			t.Errorf("namespace ads: %+v, %v", count, err)
		}
		f("FLUSHALL", ok)
		f("AUTH default secret", ok)
		f("GET a", bulk("2"))
		// Strangers may not send much.
		stranger := dial(t, d.addr)
		stranger.send("*11\r\n")
		if got := stranger.reply(); got != "-ERR Protocol error: unauthenticated multibulk length\r\n" {
			t.Errorf("a stranger's array: %q", got)
		}
		stranger.ended()
		stranger = dial(t, d.addr)
		stranger.send("*1\r\n$16385\r\n")
		if got := stranger.reply(); got != "-ERR Protocol error: unauthenticated bulk length\r\n" {
			t.Errorf("a stranger's bulk: %q", got)
		}
		stranger.ended()
	})
}

func TestReplyModes(t *testing.T) {
	story(t, func(c *client) {
		c.send(array("CLIENT", "REPLY", "SKIP") + array("INCR", "a") + array("INCR", "a"))
		if got := c.reply(); got != ":2\r\n" {
			t.Errorf("after SKIP: %q", got)
		}
		c.send(array("CLIENT", "REPLY", "OFF") + array("INCR", "a") + array("GET", "a") + array("NOSUCH") + array("PING") +
			array("Q.ADD", "a", "1", "ID", "t") + array("INFO") + array("INCR", "a") + array("CLIENT", "REPLY", "ON") + array("GET", "a"))
		if got := c.reply(); got != ok {
			t.Errorf("ON: %q", got)
		}
		if got := c.reply(); got != bulk("5") {
			t.Errorf("after ON: %q", got)
		}
		for _, skipped := range [][]string{{"GET", "a"}, {"PING"}, {"NOSUCH"}, {"INFO"}, {"Q.ADD", "a", "1", "ID", "u"}, {"INCR", "a"}, {"SET", "a", "x"}} {
			c.send(array("CLIENT", "REPLY", "SKIP") + array(skipped...) + array("ECHO", "next"))
			if got := c.reply(); got != bulk("next") {
				t.Errorf("after skipped %s: %q", skipped[0], got)
			}
		}
		c.expect("GET a", bulk("x"))
		c.expect("CLIENT REPLY WHAT", syntax)
	})
}

func TestKill(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c, victim := dial(t, d.addr), dial(t, d.addr)
		id := strings.Trim(victim.line("CLIENT ID"), ":\r\n")
		c.expect("CLIENT KILL ID "+id, one)
		victim.ended()
		victim = dial(t, d.addr)
		victim.expect("PING", "+PONG\r\n")
		c.expect("CLIENT KILL "+victim.LocalAddr().String(), ok)
		victim.ended()
		victim = dial(t, d.addr)
		victim.expect("PING", "+PONG\r\n")
		// A connection may be closed a moment before its session is gone.
		until(t, "the two that were closed are gone", func() bool { return strings.Count(c.line("CLIENT LIST"), " addr=") == 2 }, func() {})
		c.expect("CLIENT KILL USER default MAXAGE 0 LADDR "+c.RemoteAddr().String(), one)
		victim.ended()
		c.expect("CLIENT KILL SKIPME no ADDR "+c.LocalAddr().String(), one)
		c.ended()
	})
}

func TestOwnCommands(t *testing.T) {
	story(t, func(c *client) {
		f := c.expect
		f("Q.ADD a 5", ":5\r\n")
		f("Q.ADD a -2", ":3\r\n")
		f("Q.ADD a 1 NOVALUE", ok)
		f("Q.ADD a 1 ID t", ":5\r\n")
		f("Q.ADD a 1 ID t", ":5\r\n")
		f("INCR a", ":6\r\n")
		f("Q.ADD a 1 ID t", ":5\r\n")
		f("Q.ADD a 2 ID t", "-TOKEN the token was used for another payload: first it was to add 1, now it is to add 2\r\n")
		f("Q.ADD a 1 ID n NOVALUE", ok)
		f("Q.ADD a 1 NOVALUE ID n", ok)
		f("Q.ADD a 1 ID n", ok)
		f("Q.ADD a 1 ID w WHO me", ":8\r\n")
		f("Q.ADD a 1 WHO me ID w", ":8\r\n")
		f("Q.ADD a 1 WHO you ID w", "-TOKEN the token was used for another payload: both writes are to add 1, but they differ in who, time, dimensions, floor, ceiling, lifetime or version\r\n")
		f("Q.ADD a x", notInteger)
		f("Q.ADD a 1 ID", syntax)
		f("Q.ADD a 1 ID t ID u", syntax)
		f("Q.ADD a 1 AT x", "-ERR AT: want a time such as 2026-10-01T08:00:00Z or Unix milliseconds\r\n")
		f("Q.ADD a 1 AT 1 AT 2", syntax)
		f("Q.ADD a 1 AT", syntax)
		f("Q.ADD a 1 DIM a", syntax)
		f("Q.ADD a 1 DIM a b c", syntax)
		f("Q.ADD a 1 DIM a b NOVALUE c", syntax)
		f("Q.ADD a 1 DIM a b a c", "-ERR DIM \"a\" is given twice\r\n")
		f("Q.ADD a 1 DIM a b DIM a c", "-ERR DIM \"a\" is given twice\r\n")
		f("Q.ADD a 1 FOO", syntax)
		f("Q.ADD a 1 NOVALUE NOVALUE", syntax)
		f("Q.ADD a 1 WITHSESSION WITHSESSION", syntax)
		for _, added := range []struct{ words, value string }{
			{"Q.ADD b 2 WITHSESSION", ":2\r\n"},
			{"Q.ADD b 3 WITHSESSION ID b", ":5\r\n"},
			{"Q.ADD b 3 ID b WITHSESSION", ":5\r\n"},
			{"Q.ADD b 4 NOVALUE WITHSESSION WHO me", ok},
		} {
			m := regexp.MustCompile(`^\*2\r\n(.*\r\n)\$\d+\r\n(s\S+)\r\n$`).FindStringSubmatch(c.line(added.words))
			if m == nil || m[1] != added.value {
				t.Fatalf("%s: %q", added.words, m)
			}
			if got := c.line("Q.GET b SESSION " + m[2]); !strings.HasPrefix(got, "*24\r\n") {
				t.Errorf("Q.GET b SESSION %s: %q", m[2], got)
			}
		}
		f("Q.ADD b 3 ID b", ":5\r\n")
		if got := c.do("Q.ADD", "a", "1", "ID", ""); got != "-ERR token is empty\r\n" {
			t.Errorf("empty token: %q", got)
		}
		f("Q.ADD \xff 1 ID t", "-ERR key is not UTF-8\r\n")
		f("SET m "+maxInt, ok)
		f("Q.ADD m 1 ID t", overflow)
		got := c.line("Q.GET a")
		want := regexp.MustCompile(`^\*24\r\n\$3\r\nkey\r\n\$1\r\na\r\n\$5\r\nvalue\r\n:8\r\n\$5\r\nlower\r\n:8\r\n\$5\r\nupper\r\n:8\r\n` +
			`\$5\r\nexact\r\n:1\r\n\$8\r\ncomplete\r\n:1\r\n\$6\r\nexists\r\n:1\r\n\$5\r\nas_of\r\n:\d{13}\r\n\$12\r\nstaleness_ms\r\n:0\r\n` +
			`\$6\r\nsource\r\n\$5\r\nstore\r\n\$6\r\nshards\r\n:1\r\n\$7\r\nversion\r\n:[1-9]\d*\r\n$`)
		if !want.MatchString(got) {
			t.Errorf("Q.GET: %q", got)
		}
		for _, option := range []string{"EXACT", "STALE 100", "SESSION s1.1"} {
			if got := c.line("Q.GET a " + option); !strings.HasPrefix(got, "*24\r\n") {
				t.Errorf("Q.GET %s: %q", option, got)
			}
		}
		f("Q.GET a SESSION x", "-ERR session \"x\" is not a session: want the session of a write's reply\r\n")
		f("Q.GET a STALE -1", "-ERR STALE: want milliseconds between 0 and a day\r\n")
		f("Q.GET a WHAT", syntax)
		if got := c.line("Q.GET none"); !strings.Contains(got, bulk("exists")+zero) {
			t.Errorf("Q.GET none: %q", got)
		}
		look := regexp.MustCompile(`^\*12\r\n\$5\r\nstate\r\n\$7\r\napplied\r\n\$7\r\napplied\r\n:1\r\n\$6\r\nbefore\r\n:4\r\n\$5\r\nvalue\r\n:5\r\n` +
			`\$7\r\nversion\r\n:\d+\r\n\$2\r\nat\r\n:\d{13}\r\n$`)
		if got := c.line("Q.LOOKUP t a"); !look.MatchString(got) {
			t.Errorf("Q.LOOKUP: %q", got)
		}
		f("Q.LOOKUP none a", "*2\r\n"+bulk("state")+bulk("unknown"))
		f("Q.SETTLE none a", "*2\r\n"+bulk("state")+bulk("settled"))
		f("Q.ADD a 1 ID none", "-SETTLED the token was settled before its write arrived\r\n")
		if got := c.line("Q.SETTLE t a"); !look.MatchString(got) {
			t.Errorf("Q.SETTLE: %q", got)
		}
		if got := c.line("Q.LOOKUP n a"); !strings.Contains(got, bulk("value")+null) {
			t.Errorf("Q.LOOKUP of one without a value: %q", got)
		}
		c.line("HELLO 3")
		if got := c.line("Q.GET a"); !strings.HasPrefix(got, "%12\r\n") || !strings.Contains(got, bulk("exact")+"#t\r\n") {
			t.Errorf("Q.GET in RESP3: %q", got)
		}
	})
}

func TestScan(t *testing.T) {
	story(t, func(c *client) {
		want := map[string]bool{}
		args := []string{"MSET"}
		for i := range 500 {
			key := fmt.Sprintf("k%d", i)
			want[key] = true
			args = append(args, key, "1")
		}
		if got := c.do(args...); got != ok {
			t.Fatalf("MSET: %q", got)
		}
		c.expect("SET other 1", ok)
		collect := func(options ...string) (found map[string]int, calls int) {
			t.Helper()
			found = map[string]int{}
			cursor := "0"
			for {
				parts := strings.Split(c.do(append([]string{"SCAN", cursor}, options...)...), "\r\n")
				// *2 $n cursor *m ($n key)…
				cursor = parts[2]
				for i := 5; i < len(parts); i += 2 {
					found[parts[i]]++
				}
				if calls++; cursor == "0" {
					return found, calls
				}
			}
		}
		found, calls := collect()
		if len(found) != 501 || calls < 50 {
			t.Errorf("SCAN: %d keys in %d calls", len(found), calls)
		}
		found, calls = collect("MATCH", "k*", "COUNT", "100")
		if len(found) != 500 || calls > 6 {
			t.Errorf("SCAN MATCH: %d keys in %d calls", len(found), calls)
		}
		for key, n := range found {
			if !want[key] || n != 1 {
				t.Errorf("SCAN: %s %d times", key, n)
			}
		}
		if found, _ := collect("TYPE", "string", "MATCH", "*her"); len(found) != 1 {
			t.Errorf("SCAN TYPE string: %v", found)
		}
		if found, _ := collect("TYPE", "list"); len(found) != 0 {
			t.Errorf("SCAN TYPE list: %v", found)
		}
		f := c.expect
		f("SCAN 12345", "-ERR invalid cursor\r\n")
		f("SCAN x", "-ERR invalid cursor\r\n")
		f("SCAN 0 COUNT 0", syntax)
		f("SCAN 0 COUNT x", notInteger)
		f("SCAN 0 MATCH", syntax)
		f("SCAN 0 FOO bar", syntax)
		f("KEYS other", "*1\r\n"+bulk("other"))
		f("KEYS o[rst]h?r", "*1\r\n"+bulk("other"))
		f("KEYS nothing*", "*0\r\n")
		if got := c.line("KEYS *"); !strings.HasPrefix(got, "*501\r\n") {
			t.Errorf("KEYS: %.20q", got)
		}
		f("KEYS \xff*", "*0\r\n")
	})
}
