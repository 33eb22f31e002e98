package redisstore

import "testing"

// What is waited for is what all servers tell that they can do.
func TestHear(t *testing.T) {
	f := func(syncs, logs bool, servers ...map[string]string) {
		t.Helper()
		set := settings{syncs: true, logs: true}
		for _, got := range servers {
			set.hear(got)
		}
		if set.syncs != syncs || set.logs != logs {
			t.Errorf("%v: %+v, want syncs %v and logs %v", servers, set, syncs, logs)
		}
	}
	server := func(appendonly, appendfsync, waitaof string) map[string]string {
		return map[string]string{"appendonly": appendonly, "appendfsync": appendfsync, "waitaof": waitaof}
	}
	f(true, true, server("yes", "always", "yes"))
	f(false, true, server("yes", "everysec", "yes"))
	f(false, false, server("yes", "no", "yes"))    // it never knows
	f(false, false, server("no", "always", "yes")) // it keeps none
	f(true, false, server("yes", "always", ""))    // it is older than the command
	f(false, false, server("yes", "everysec", ""))
	f(false, false, map[string]string{"waitaof": "yes"}) // it does not tell
	f(false, true, server("yes", "always", "yes"), server("yes", "everysec", "yes"))
	f(true, false, server("yes", "always", "yes"), server("yes", "always", ""))
	f(false, false, server("no", "everysec", "yes"), server("yes", "always", "yes"))
}
