package resp_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server/resp"
)

func TestScripts(t *testing.T) {
	story(t, func(c *client) {
		f := func(want string, args ...string) {
			c.t.Helper()
			got := c.do(args...)
			if want[0] == '-' && !strings.HasSuffix(want, "\n") { // without the name of the script
				got = got[:min(len(want), len(got))]
			}
			if got != want {
				c.t.Errorf("%q: %q, want %q", args, got, want)
			}
		}
		f(one, "EVAL", "return redis.call('incr', KEYS[1])", "1", "n")
		f(":3\r\n", "eval", "return redis.call('incrby', KEYS[1], ARGV[1])", "1", "n", "2")
		f(bulk("3"), "GET", "n")
		f(ok, "SET", "lock", "me")
		compare := "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
		f(zero, "EVAL", compare, "1", "lock", "you")
		f(one, "EVAL", compare, "1", "lock", "me")
		f(zero, "EXISTS", "lock")

		sha := "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
		f("-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA", sha, "0")
		f(bulk(sha), "SCRIPT", "LOAD", "return 1")
		f(one, "EVALSHA", strings.ToUpper(sha), "0")
		f("*2\r\n"+one+zero, "SCRIPT", "EXISTS", sha, "nonsense")
		f(ok, "SCRIPT", "FLUSH", "sync")
		f("-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n", "SCRIPT", "FLUSH", "now")
		f("*1\r\n"+zero, "SCRIPT", "EXISTS", sha)
		f("-NOTBUSY No scripts in execution right now.\r\n", "SCRIPT", "KILL")
		f("-ERR Error compiling script (new function): user_script:1: parse error near 'x'\r\n", "SCRIPT", "LOAD", "x x")

		f("-ERR Number of keys can't be greater than number of args\r\n", "EVAL", "return 1", "1")
		f("-ERR Number of keys can't be negative\r\n", "EVAL", "return 1", "-1")
		f(notInteger, "EVAL", "return 1", "x")
		f("-ERR wrong number of arguments for 'eval' command\r\n", "EVAL", "return 1")
		f(one, "EVAL_RO", "return redis.call('exists', KEYS[1])", "1", "n")
		f("-ERR Write commands are not allowed from read-only scripts. script: ", "EVAL_RO", "return redis.call('incr', 'n')", "0")
		f("-ERR This Redis command is not allowed from script script: ", "EVAL", "return redis.call('multi')", "0")
		f("-ERR Unknown Redis command called from script script: ", "EVAL", "return redis.call('lpush')", "0")

		// What it has written before an error stays; if it is broken off, nothing does.
		f("-ERR user_script:1: no script: ", "EVAL", "redis.call('set', 'half', 'done') error('no')", "0")
		f(bulk("done"), "GET", "half")
		f("-ERR the script was broken off: it takes more than 10000000 steps, and has changed nothing\r\n", "EVAL", "redis.call('set', 'half', 'again') while true do end", "0")
		f(bulk("done"), "GET", "half")
		f("-ERR the reply of the script is nested", "EVAL", "redis.call('set', 'half', 'again') local t = {} t[1] = t return t", "0")
		f(bulk("done"), "GET", "half")

		// In a transaction.
		f(ok, "MULTI")
		f("+QUEUED\r\n", "SET", "half", "5")
		f("+QUEUED\r\n", "EVAL", "return redis.call('incr', 'half')", "1", "half")
		f("+QUEUED\r\n", "EVAL", "redis.call('set', 'half', 'broken') while true do end", "1", "half")
		f("+QUEUED\r\n", "EVALSHA", sha, "0")
		f("+QUEUED\r\n", "GET", "half")
		f("*5\r\n"+ok+":6\r\n-ERR the script was broken off: it takes more than 10000000 steps, and has changed nothing\r\n-NOSCRIPT No matching script. Please use EVAL.\r\n"+bulk("6"), "EXEC")

		f("*2\r\n"+bulk("a")+bulk("b"), "COMMAND", "GETKEYS", "EVAL", "return 1", "2", "a", "b", "c")
		f("*3\r\n"+one+null+null, "EVAL", "return {1, redis.call('get', 'none'), false}", "0")
	})
}

// Every script is one step: what several clients do to the same keys by scripts adds up.
func TestScriptsAtOnce(t *testing.T) {
	const move = `local from, to, n = tonumber(redis.call('get', KEYS[1])), tonumber(redis.call('get', KEYS[2])), tonumber(ARGV[1])
		if from < n then return redis.error_reply('POOR') end
		redis.call('set', KEYS[1], from - n) redis.call('set', KEYS[2], to + n) return from + to`
	transports(t, func(t *testing.T, o resp.Options) {
		addr := open(t, o).addr
		c := dial(t, addr)
		for i := range 4 {
			c.expect(fmt.Sprintf("SET account:%d 1000", i), ok)
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				c := dial(t, addr)
				for n := range 25 {
					switch n % 5 {
					case 4: // the sum is the same whenever it is looked at, also by keys that are not declared
						if got := c.do("EVAL", "local n = 0 for i = 0, 3 do n = n + redis.call('get', 'account:' .. i) end return n", "0"); got != ":4000\r\n" {
							t.Errorf("the sum is %q", got)
						}
					case 3:
						if got := c.do("INCRBY", fmt.Sprintf("account:%d", i), "0"); !strings.HasPrefix(got, ":") {
							t.Errorf("incrby: %q", got)
						}
					default:
						if got := c.do("EVAL", move, "2", fmt.Sprintf("account:%d", i), fmt.Sprintf("account:%d", (i+n%3+1)%4), "7"); !strings.HasPrefix(got, ":") && !strings.HasPrefix(got, "-POOR") {
							t.Errorf("move: %q", got)
						}
					}
				}
			})
		}
		all.Wait()
	})
}

// A script waits for others for half of its time at most, so that what has run can be written in the rest.
func TestScriptWaitsForHalf(t *testing.T) {
	d := open(t, resp.Options{Timeout: 4 * time.Second})
	giveBack := d.HoldScripts()
	c := dial(t, d.addr)
	start := time.Now()
	got := c.do("EVAL", "return redis.call('incr', 'n')", "0")
	if took := time.Since(start); !strings.HasPrefix(got, "-UNAVAILABLE other scripts take all the time there is") || took < 2*time.Second || took > 3500*time.Millisecond {
		t.Errorf("after %v: %q", took, got)
	}
	giveBack()
	if got := c.do("EVAL", "return redis.call('incr', 'n')", "0"); got != one {
		t.Errorf("with a place: %q", got)
	}
}
