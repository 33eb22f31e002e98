package server

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/access"
)

// The limits of logins.
const (
	loginsMax    = 10_000
	loginsOfEach = 100 // of one principal
	LoginLife    = 12 * time.Hour
)

// logins are who has logged in to the page. A browser has a random name in a cookie in place
// of the key, which so is nowhere in it; and the server has digests of the names. They are of
// one server, and end with it.
type logins struct {
	mu   sync.Mutex // guards the fields below
	by   map[digest]*list.Element
	of   map[Holder]*list.List // the digests of each, the oldest first
	ages list.List             // all of them as login, the oldest first
}

// A digest is what is known of the name of a login.
type digest = [sha256.Size]byte

type login struct {
	who    *access.Principal
	until  time.Time
	digest digest
	place  *list.Element // in the list of its holder
}

// Login returns a name by which a principal is known for a while. If it has too many, its
// oldest ends; if all have too many, the oldest of all does.
func (g *Gate) Login(who *access.Principal) (name string, until time.Time) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	name = hex.EncodeToString(raw[:])
	until = time.Now().Add(LoginLife)
	if end := time.UnixMilli(who.UntilMS); who.UntilMS != 0 && end.Before(until) {
		until = end
	}
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by, l.of = map[digest]*list.Element{}, map[Holder]*list.List{}
	}
	holder := HolderOf(who)
	if own := l.of[holder]; own != nil && own.Len() >= loginsOfEach {
		l.end(own.Front().Value.(digest))
	}
	if len(l.by) >= loginsMax {
		l.end(l.ages.Front().Value.(login).digest)
	}
	own := l.of[holder]
	if own == nil {
		own = list.New()
		l.of[holder] = own
	}
	sum := sha256.Sum256([]byte(name))
	l.by[sum] = l.ages.PushBack(login{who, until, sum, own.PushBack(sum)})
	return name, until
}

// end ends a login, if there is such a one. The lock is held.
func (l *logins) end(sum digest) {
	e := l.by[sum]
	if e == nil {
		return
	}
	in := l.ages.Remove(e).(login)
	delete(l.by, sum)
	holder := HolderOf(in.who)
	own := l.of[holder]
	own.Remove(in.place)
	if own.Len() == 0 {
		delete(l.of, holder)
	}
}

// LoggedIn returns who a login is of, or nil, and when it ends.
func (g *Gate) LoggedIn(name string) (who *access.Principal, until time.Time) {
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := sha256.Sum256([]byte(name))
	e := l.by[sum]
	if e == nil {
		return nil, time.Time{}
	}
	in, now := e.Value.(login), time.Now()
	if now.After(in.until) || in.who.Ended(now.UnixMilli()) {
		l.end(sum)
		return nil, time.Time{}
	}
	return in.who, in.until
}

// Logout ends a login.
func (g *Gate) Logout(name string) {
	l := &g.logins
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(sha256.Sum256([]byte(name)))
}
