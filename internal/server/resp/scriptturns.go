package resp

import (
	"context"
	"slices"
	"sync"
)

// Script turns are the places of the scripts that run. Users who wait for one take turns, so that
// the scripts of one user do not keep those of others from running. It is safe for concurrent use.
type scriptTurns struct {
	mu      sync.Mutex // guards the fields below
	free    int
	waiting map[string][]chan struct{} // by user, the first to come first; a place is given by closing it
	users   []string                   // those who wait, the next first
}

func newScriptTurns(n int) *scriptTurns {
	return &scriptTurns{free: n, waiting: make(map[string][]chan struct{})}
}

// take waits for a place, and reports whether there was one before the context ended.
func (t *scriptTurns) take(ctx context.Context, user string) bool {
	t.mu.Lock()
	if t.free > 0 { // Nobody waits then.
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	if len(t.waiting[user]) == 0 {
		t.users = append(t.users, user)
	}
	t.waiting[user] = append(t.waiting[user], mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
		return !t.leave(user, mine)
	}
}

// leave ends a wait, and reports whether it was one still: if not, the place is the caller's.
func (t *scriptTurns) leave(user string, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[user], mine)
	if i < 0 {
		return false
	}
	t.waiting[user] = slices.Delete(t.waiting[user], i, i+1)
	if len(t.waiting[user]) == 0 {
		delete(t.waiting, user)
		t.users = slices.DeleteFunc(t.users, func(u string) bool { return u == user })
	}
	return true
}

// giveBack gives a place to the next user, who is the last one then.
func (t *scriptTurns) giveBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.users) == 0 {
		t.free++
		return
	}
	user := t.users[0]
	t.users = slices.Delete(t.users, 0, 1)
	next := t.waiting[user]
	close(next[0])
	if next = slices.Delete(next, 0, 1); len(next) == 0 {
		delete(t.waiting, user)
		return
	}
	t.waiting[user] = next
	t.users = append(t.users, user)
}
