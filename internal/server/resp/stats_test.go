package resp_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
)

// INFO commandstats counts as Redis does: what was executed, refused before that, and
// answered with an error; one at a time and in a pipeline, in transactions and with
// replies turned off.
func TestSameCommandStatsAsRedis(t *testing.T) {
	redis := redisproc.For(t).Addr
	commands := []string{
		"INCR k", "INCR k", "INCR k", "GET k", "SET k 1 EX 0", "SET k 5", "INCR", "GET a b", "GET k", "INCRBY k x", "INCRBY k 2", "NOSUCH", "CLIENT NOSUCH", "CLIENT ID", "CLIENT SETNAME",
		"SET k 9223372036854775807", "INCR k", "INCR k", "EXPIRE k 1 FOO", "EXPIRE k 100", "TTL k", "MULTI", "INCR j", "GET", "EXEC", "MULTI", "INCR j", "GET j", "INCRBY j x", "EXEC", "EXEC", "DISCARD",
		"KEYS *", "DBSIZE", "RENAME none x", "RENAME j i", "PING", "PING", "PING a b", "ECHO x", "MGET k i", "MSET a 1 b 2", "MSETNX a 1", "DEL a b", "OBJECT ENCODING k", "OBJECT FREQ k", "SELECT 99", "SELECT 1", "SELECT 0",
		"CLIENT REPLY OFF", "INCR q", "GET q", "PING", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "INCR q", "GET q", "SETEX k x 1", "SLOWLOG LEN", "WATCH k", "UNWATCH",
	}
	transports(t, func(t *testing.T, o resp.Options) {
		for _, pipelined := range []bool{false, true} {
			p := newPair(t, open(t, o).addr, redis)
			p.redis.line("FLUSHALL")
			p.redis.line("CONFIG RESETSTAT")
			for _, c := range []*client{p.ours, p.redis} {
				var raw strings.Builder
				for _, words := range commands {
					if raw.WriteString(array(strings.Fields(words)...)); !pipelined && !strings.HasPrefix(words, "CLIENT REPLY") {
						c.line(words)
					}
				}
				if pipelined {
					c.all(raw.String())
				}
			}
			if got, want := commandStats(p.ours), commandStats(p.redis); !slices.Equal(got, want) {
				t.Errorf("pipelined %t:\n%s\nRedis\n%s", pipelined, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			p.ours.expect("CONFIG RESETSTAT", ok)
			if got := commandStats(p.ours); len(got) > 0 {
				t.Errorf("after CONFIG RESETSTAT: %q", got)
			}
		}
	})
}

// commandStats returns what INFO commandstats tells, without times and without the
// commands that the test needs.
func commandStats(c *client) []string {
	var found []string
	own := regexp.MustCompile(`^cmdstat_(info|echo|config\|resetstat):`)
	times := regexp.MustCompile(`usec=\d+,usec_per_call=[\d.]+,`)
	for line := range strings.SplitSeq(c.line("INFO commandstats"), "\r\n") {
		if strings.HasPrefix(line, "cmdstat_") && !own.MatchString(line) {
			found = append(found, times.ReplaceAllString(line, ""))
		}
	}
	slices.Sort(found)
	return found
}

// SLOWLOG has the last commands that took long enough, with their arguments, cut, or of
// commands that are gathered their first key.
func TestSlowlog(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := open(t, o)
		c := dial(t, d.addr)
		c.expect("SLOWLOG GET", "*0\r\n")
		c.expect("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 4", ok)
		c.expect("CLIENT SETNAME me", ok)
		c.expect("INCRBY k 5", ":5\r\n")
		c.expect("GET k", bulk("5"))
		c.expect("PING hello", bulk("hello"))
		c.line("KEYS " + strings.Repeat("x", 200))
		c.line("MGET " + strings.Repeat("k ", 50))
		c.line("CLIENT LIST ID" + strings.Repeat(" 7", 40))
		if n := d.SlowEntries(); n != 4 {
			t.Errorf("%d entries are held", n)
		}
		entries := tree(c.line("SLOWLOG GET -1")).([]any)
		var args []string
		for i, e := range entries {
			fields := e.([]any)
			args = append(args, fmt.Sprint(fields[3]))
			if len(fields) != 6 || fields[4] != c.LocalAddr().String() || fields[5] != "me" || time.Since(time.Unix(int64(fields[1].(int)), 0)).Abs() > patience {
				t.Errorf("entry %v", e)
			}
			if i > 0 && fields[0].(int) != entries[i-1].([]any)[0].(int)-1 {
				t.Errorf("ids of %v", entries)
			}
		}
		want := []string{
			"[CLIENT LIST ID" + strings.Repeat(" 7", 28) + " ... (12 more arguments)]",
			"[MGET k]",
			"[KEYS " + strings.Repeat("x", 128) + "... (72 more bytes)]",
			"[PING hello]",
		}
		if !slices.Equal(args, want) {
			t.Errorf("SLOWLOG GET: %q, want %q", args, want)
		}
		c.expect("CONFIG SET slowlog-log-slower-than -1", ok)
		c.expect("SLOWLOG LEN", ":4\r\n")
		c.expect("CONFIG SET slowlog-max-len 2", ok)
		c.expect("SLOWLOG LEN", ":2\r\n")
		c.expect("SLOWLOG RESET", ok)
		c.expect("INCRBY k 5", ":10\r\n")
		c.expect("SLOWLOG LEN", zero)
		c.expect("CONFIG SET slowlog-max-len 1001", "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be between 0 and 1000 inclusive\r\n")
	})
}

// LATENCY remembers the seconds in which a command waited longer than the threshold,
// and counts all by how long they took.
func TestLatency(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		c := dial(t, open(t, o).addr)
		c.expect("LATENCY LATEST", "*0\r\n")
		for i := range 20 {
			words := []string{"MSET"}
			for j := range 5000 {
				words = append(words, fmt.Sprintf("k%d:%d", i, j), "1")
			}
			if got := c.do(words...); got != ok {
				t.Fatal(got)
			}
		}
		c.line("KEYS none*")
		c.expect("LATENCY LATEST", "*0\r\n") // it is not watched
		c.expect("CONFIG SET latency-monitor-threshold 1", ok)
		c.line("KEYS none*") // over a map of 100,000, which takes a while
		latest := tree(c.line("LATENCY LATEST")).([]any)
		if len(latest) != 1 || latest[0].([]any)[0] != "command" || latest[0].([]any)[3].(int) < 1 {
			t.Errorf("LATENCY LATEST: %v", latest)
		}
		if got := tree(c.line("LATENCY HISTORY command")).([]any); len(got) == 0 {
			t.Errorf("LATENCY HISTORY: %v", got)
		}
		c.expect("LATENCY HISTORY none", "*0\r\n")
		c.expect("CONFIG SET latency-monitor-threshold 0", ok)
		c.expect("LATENCY RESET none", zero)
		c.expect("LATENCY RESET", one)
		c.expect("LATENCY RESET command", zero)
		histogram := tree(c.line("LATENCY HISTOGRAM mset nosuch mset")).([]any)
		if len(histogram) != 2 || histogram[0] != "mset" {
			t.Fatalf("LATENCY HISTOGRAM: %v", histogram)
		}
		fields := histogram[1].([]any)
		buckets := fields[3].([]any)
		if fields[0] != "calls" || fields[1] != 20 || buckets[len(buckets)-1] != 20 {
			t.Errorf("LATENCY HISTOGRAM: %v", histogram)
		}
	})
}
