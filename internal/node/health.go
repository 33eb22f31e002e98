package node

import (
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// A failure is that the store does not answer.
type failure struct {
	since, last time.Time
	err         error // the last one
}

// probeEvery is how often a caller is let through to a store that is unreachable.
const probeEvery = 250 * time.Millisecond

func (f *failure) unavailable() error {
	return store.Errorf(store.KindUnavailable, "the store is unreachable since %s: %w", f.since.UTC().Format(time.RFC3339), f.err)
}

// tellEvery is how often the log is told of an outage at most: a store of which one
// part is gone fails with every other call. It is longer than logs hold back what
// they have just said.
const tellEvery = 15 * time.Second

// An outage is what the log was told of the store.
type outage struct {
	mu   sync.Mutex // guards the fields below
	told bool       // that it can't be reached, and not yet that it can
	last time.Time  // when it was told so
}

// note takes notice of whether a call reached the store. One that its caller cut
// short says nothing.
func (n *Node) note(err error) {
	switch {
	case err == nil:
		if n.failing.Load() != nil {
			n.reached()
		}
	case store.KindOf(err) == store.KindUnavailable:
		n.missed(err)
	}
}

// missed takes notice that a call did not reach the store.
func (n *Node) missed(err error) {
	n.outage.mu.Lock()
	defer n.outage.mu.Unlock()
	f := n.failing.Load().again(err)
	n.failing.Store(f)
	if n.outage.told || !n.outage.last.IsZero() && f.last.Sub(n.outage.last) < tellEvery {
		return
	}
	n.outage.told, n.outage.last = true, f.last
	n.options.Logger.Warn("the store is unreachable", "since", f.since.UTC(), "error", err)
}

// reached takes notice that a call did.
func (n *Node) reached() {
	n.outage.mu.Lock()
	defer n.outage.mu.Unlock()
	f := n.failing.Swap(nil)
	if f == nil || !n.outage.told {
		return
	}
	n.outage.told = false
	n.options.Logger.Info("the store is back", "away", time.Since(f.since).Round(time.Millisecond))
}

// again returns the failure that goes on with err. A nil one begins.
func (f *failure) again(err error) *failure {
	now := time.Now()
	next := &failure{since: now, last: now, err: err}
	if f != nil {
		next.since = f.since
	}
	return next
}

// unanswered takes notice that a flight was not answered.
func (l *lane) unanswered(err error) *failure {
	f := l.failing.Load().again(err)
	l.failing.Store(f)
	l.node.missed(err)
	return f
}

// answered takes notice that one was.
func (l *lane) answered() {
	if l.failing.Load() != nil {
		l.failing.Store(nil)
	}
	l.node.note(nil)
}
