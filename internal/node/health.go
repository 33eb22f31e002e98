package node

import (
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

// note takes notice of whether a call reached the store. One that its caller cut
// short says nothing.
func (n *Node) note(err error) {
	switch {
	case err == nil:
		if n.failing.Load() != nil {
			n.failing.Store(nil)
		}
	case store.KindOf(err) == store.KindUnavailable:
		n.failing.Store(n.failing.Load().again(err))
	}
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
	l.node.failing.Store(l.node.failing.Load().again(err))
	return f
}

// answered takes notice that one was.
func (l *lane) answered() {
	if l.failing.Load() != nil {
		l.failing.Store(nil)
	}
	l.node.note(nil)
}
