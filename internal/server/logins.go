package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/access"
)

// The limits of logins.
const (
	loginsMax = 10_000
	LoginLife = 12 * time.Hour
)

// logins are who has logged in to the page. A browser has a random name in a cookie in place
// of the key, which so is nowhere in it; and the server has digests of the names. They are of
// one server, and end with it.
type logins struct {
	mu sync.Mutex // guards by
	by map[[sha256.Size]byte]login
}

type login struct {
	who   *access.Principal
	until time.Time
}

// Login returns a name by which a principal is known for a while.
func (g *Gate) Login(who *access.Principal) (name string, until time.Time) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	name = hex.EncodeToString(raw[:])
	now := time.Now()
	until = now.Add(LoginLife)
	if end := time.UnixMilli(who.UntilMS); who.UntilMS != 0 && end.Before(until) {
		until = end
	}
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[[sha256.Size]byte]login{}
	}
	if len(l.by) >= loginsMax {
		oldest, at := [sha256.Size]byte{}, time.Time{}
		for digest, old := range l.by {
			if now.After(old.until) || old.who.Ended(now.UnixMilli()) {
				delete(l.by, digest)
			} else if at.IsZero() || old.until.Before(at) {
				oldest, at = digest, old.until
			}
		}
		if len(l.by) >= loginsMax {
			delete(l.by, oldest)
		}
	}
	l.by[sha256.Sum256([]byte(name))] = login{who, until}
	return name, until
}

// LoggedIn returns who a login is of, or nil, and when it ends.
func (g *Gate) LoggedIn(name string) (who *access.Principal, until time.Time) {
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.by[sha256.Sum256([]byte(name))]
	now := time.Now()
	if !ok || now.After(in.until) || in.who.Ended(now.UnixMilli()) {
		return nil, time.Time{}
	}
	return in.who, in.until
}

// Logout ends a login.
func (g *Gate) Logout(name string) {
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, sha256.Sum256([]byte(name)))
}
