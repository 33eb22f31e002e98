package server

import (
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/access"
)

// LoginTimeoutDefault is how long a stranger may stay: a connection that has
// shown no API key where one is required. The TLS handshake counts too.
const LoginTimeoutDefault = 10 * time.Second

// strangerGrace is how long a stranger may keep its place while others wait for
// it. It is long enough for a TLS handshake and a key on a busy server: when
// thousands of clients reconnect at once, they wait for their turn in the
// system's queue instead of dropping each other before any of them has logged
// in. It is short enough that a flood of silent connections delays a client by
// a fraction of a second.
const strangerGrace = 100 * time.Millisecond

// strangerCallsMax is how many calls a stranger may make, refused ones included:
// some for health, not so many that one connection keeps the server busy.
const strangerCallsMax = 32

// strangerCallsEvery is how often a stranger of a listener may make a call, all of
// them together, and strangerCallsAhead how far they may be ahead of that. Beyond
// it calls wait for their turn, each in the goroutine of its own connection.
// Otherwise strangers who leave after their last call and come back at once would
// keep the server busy.
const (
	strangerCallsEvery = time.Second / 500
	strangerCallsAhead = 200 * time.Millisecond
)

// strangersShare is which part of a listener's connections strangers may have,
// and strangersFew how many they may have in any case.
const (
	strangersShare = 20
	strangersFew   = 16
)

// StrangersMax returns how many of so many connections may be strangers.
func StrangersMax(connectionsMax int) int {
	return max(connectionsMax/strangersShare, min(connectionsMax, strangersFew))
}

// places hands out what a listener may have open at a time. Where keys are
// required a connection begins as a stranger. Strangers have a small share of
// the places, and leave at a deadline; when their share is full, the oldest
// makes room for the newest. So they never take a place from a connection that
// has shown a key, and a client with a key always finds a place to show it. If
// the newest were refused instead, whoever filled the share first would keep
// everyone out.
type places struct {
	max          int // places in all
	strangersMax int // of them for strangers; 0 if nobody is one
	loginTimeout time.Duration
	freed        chan struct{} // holds one if a place was given back
	closed       chan struct{}

	mu        sync.Mutex // guards the fields below
	known     int
	strangers list.List // of *Place, oldest first
	due       time.Time // when the next call of a stranger is
	refused   int64
	dropped   int64
	expired   int64
}

// A Place is what one connection holds under its listener's limit. All methods
// of a nil Place do nothing, so that a door also serves connections of other
// listeners. A Place is safe for concurrent use.
type Place struct {
	places *places
	since  time.Time
	timer  *time.Timer
	login  atomic.Bool // it is known, or gone: Known has nothing to do
	calls  atomic.Int32
	user   atomic.Pointer[access.Principal]

	// Guarded by places.mu.
	at   *list.Element // among the strangers, nil if it is not one
	held bool
	drop func() // closes the connection
}

func newPlaces(connectionsMax, strangersMax int, loginTimeout time.Duration) *places {
	return &places{
		max: connectionsMax, strangersMax: strangersMax, loginTimeout: loginTimeout,
		freed: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// strange has connections be strangers from now on, if they are not yet.
func (ps *places) strange(most int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.strangersMax == 0 {
		ps.strangersMax = most
	}
}

// take returns a place for a connection that drop closes, or nil if there is
// none. It waits while the strangers before it may still log in.
func (ps *places) take(drop func()) *Place {
	ps.mu.Lock()
	for {
		if ps.known >= ps.max {
			ps.refused++
			ps.mu.Unlock()
			return nil
		}
		if ps.strangersMax == 0 {
			p := &Place{places: ps, held: true, drop: drop}
			p.login.Store(true)
			ps.known++
			ps.mu.Unlock()
			return p
		}
		if ps.strangers.Len() < min(ps.strangersMax, ps.max-ps.known) {
			break
		}
		oldest, _ := ps.strangers.Front().Value.(*Place)
		if left := strangerGrace - time.Since(oldest.since); left > 0 {
			ps.mu.Unlock()
			if !ps.wait(left) {
				return nil
			}
			ps.mu.Lock()
			continue
		}
		ps.dropped++
		oldest.evict()
	}
	p := &Place{places: ps, since: time.Now(), held: true, drop: drop}
	p.at = ps.strangers.PushBack(p)
	p.timer = time.AfterFunc(ps.loginTimeout, p.expire)
	ps.mu.Unlock()
	return p
}

// wait waits until a stranger's place is free or the time is over. It reports
// whether the listener is still open.
func (ps *places) wait(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ps.freed:
	case <-t.C:
	case <-ps.closed:
		return false
	}
	return true
}

// signal ends the wait of an acceptor, so that it looks again.
func (ps *places) signal() {
	select {
	case ps.freed <- struct{}{}:
	default:
	}
}

// evict takes the place of a stranger away. It is called with the lock held,
// and lets go of it meanwhile: to close a connection may take a while.
func (p *Place) evict() {
	ps := p.places
	p.forget()
	drop := p.drop
	ps.mu.Unlock()
	drop()
	ps.mu.Lock()
}

// forget frees the place. It is called with the lock held.
func (p *Place) forget() {
	ps := p.places
	p.held = false
	p.login.Store(true)
	if p.at == nil {
		ps.known--
	} else {
		p.leave()
	}
	ps.signal()
}

// leave takes the place from the strangers' share. It is called with the lock
// held.
func (p *Place) leave() {
	p.timer.Stop()
	p.places.strangers.Remove(p.at)
	p.at = nil
}

// expire drops a stranger that has not logged in.
func (p *Place) expire() {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if p.at != nil {
		p.places.expired++
		p.evict()
	}
}

// Known says that the connection has shown a key. It stays a stranger no
// longer, and may stay as long as it likes.
func (p *Place) Known() {
	if p == nil || p.login.Load() { // Fast path.
		return
	}
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if p.at != nil {
		p.leave()
		p.places.known++
		p.login.Store(true)
		p.places.signal()
	}
}

// Used notes who uses the connection, and reports whether that is someone new.
func (p *Place) Used(who *access.Principal) bool {
	return p != nil && p.user.Load() != who && p.user.Swap(who) != who
}

// Call counts a call without a key, and waits for its turn if strangers make too
// many. It reports whether this one may make more: if not, the door should end the
// connection, by Drop if it has no better way.
func (p *Place) Call() (more bool) {
	if p == nil || p.login.Load() {
		return true
	}
	p.places.turn()
	return p.calls.Add(1) < strangerCallsMax
}

// turn waits until a stranger may make a call.
func (ps *places) turn() {
	ps.mu.Lock()
	now := time.Now()
	if ahead := now.Add(-strangerCallsAhead); ps.due.Before(ahead) {
		ps.due = ahead
	}
	ps.due = ps.due.Add(strangerCallsEvery)
	left := ps.due.Sub(now)
	ps.mu.Unlock()
	if left <= 0 {
		return
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ps.closed:
	}
}

// Drop closes the connection of a stranger.
func (p *Place) Drop() {
	if p == nil {
		return
	}
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if p.at != nil {
		p.places.dropped++
		p.evict()
	}
}

// Release gives the place back, once.
func (p *Place) Release() {
	if p == nil {
		return
	}
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if p.held {
		p.forget()
	}
}

// OnDrop has f close the connection, from any goroutine, if it must make room or
// did not log in in time. That is at once if it has happened already.
func (p *Place) OnDrop(f func()) {
	if p == nil {
		return
	}
	p.places.mu.Lock()
	p.drop = f
	held := p.held
	p.places.mu.Unlock()
	if !held {
		f()
	}
}

// PlaceOf returns the place of a connection that a Listener accepted, also
// under TLS, or nil.
func PlaceOf(c net.Conn) *Place {
	for {
		if own, ok := c.(*conn); ok {
			return own.place
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = outer.NetConn()
	}
}

// placeKey is the key of a connection's place in the contexts of its requests.
type placeKey struct{}

// withPlace returns a context from which PlaceFrom returns the place of c.
func withPlace(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, PlaceOf(c))
}

// PlaceFrom returns the place of the connection that an HTTP request came on, or
// nil.
func PlaceFrom(ctx context.Context) *Place {
	p, _ := ctx.Value(placeKey{}).(*Place)
	return p
}

// Connections is what a Listener counts.
type Connections struct {
	Open      int64 // all that are open
	Strangers int64 // of them those without a key where one is required

	// Since the start.
	Refused int64 // at the limit
	Dropped int64 // strangers that made room for others
	Expired int64 // strangers that did not log in in time
}

// count returns what is counted.
func (ps *places) count() Connections {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := int64(ps.strangers.Len())
	return Connections{Open: int64(ps.known) + n, Strangers: n, Refused: ps.refused, Dropped: ps.dropped, Expired: ps.expired}
}
