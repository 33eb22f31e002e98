package redisstore

import (
	"testing"

	"github.com/quipudb/quipu/store"
)

// What is waited for is what all servers tell that they can do.
func TestHear(t *testing.T) {
	f := func(keeps store.Durability, logs bool, servers ...map[string]string) {
		t.Helper()
		set := settings{keeps: store.Synced, logs: true}
		for _, got := range servers {
			set.hear(got)
		}
		if set.keeps != keeps || set.logs != logs {
			t.Errorf("%v: %+v, want %v and logs %v", servers, set, keeps, logs)
		}
	}
	server := func(appendonly, appendfsync, waitaof string) map[string]string {
		return map[string]string{"appendonly": appendonly, "appendfsync": appendfsync, "waitaof": waitaof}
	}
	f(store.Synced, true, server("yes", "always", "yes"))
	f(store.Written, true, server("yes", "everysec", "yes"))
	f(store.Written, false, server("yes", "no", "yes"))   // it never knows
	f(store.Memory, false, server("no", "always", "yes")) // it keeps none
	f(store.Synced, false, server("yes", "always", ""))   // it is older than the command
	f(store.Written, false, server("yes", "everysec", ""))
	f(store.Memory, false, map[string]string{"waitaof": "yes"}) // it does not tell
	f(store.Written, true, server("yes", "always", "yes"), server("yes", "everysec", "yes"))
	f(store.Synced, false, server("yes", "always", "yes"), server("yes", "always", ""))
	f(store.Memory, false, server("no", "everysec", "yes"), server("yes", "always", "yes"))
}
