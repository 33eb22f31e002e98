package node

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quipudb/quipu/store"
)

// How long to wait before a flight is sent again: twice as long each time, less a
// random part, so that nodes do not come together.
const (
	pauseFirst   = 50 * time.Millisecond
	pauseLongest = 2 * time.Second
	pauseDown    = time.Minute // unless it is back before
)

// errUnsent is that no attempt was made yet.
var errUnsent = errors.New("not sent")

// insist sends a flight by itself until there is a definite answer, and gives that to
// its callers. Err is what became of an attempt before.
func (l *lane) insist(f *flight, err error) { l.ended(f, l.send(f, err)) }

// send sends a flight until there is a definite answer, and returns nil if it was
// applied. Err is what became of an attempt before.
func (l *lane) send(f *flight, err error) error {
	for tries := 0; ; {
		if !errors.Is(err, errUnsent) {
			reached, end := l.judge(f, err)
			if end != nil {
				return end
			}
			if !reached || tries > 0 { // else there is nothing to wait for
				l.rest(tries)
			}
			tries++
		}
		if err = l.attempt(f); err == nil {
			l.acknowledged(f)
			return nil
		}
	}
}

// acknowledged takes notice that a flight was applied.
func (l *lane) acknowledged(f *flight) {
	l.mark = f.batches[0].Seq
	l.pulse.answered()
}

// attempt sends a flight once.
func (l *lane) attempt(f *flight) error {
	n := l.node
	if l.pulse.ctx.Err() != nil {
		return store.ErrClosed
	}
	ctx, cancel := context.WithTimeout(l.pulse.ctx, n.options.AttemptTimeout)
	defer cancel()
	if err := l.enroll(ctx, f); err != nil {
		return err
	}
	if f.sent {
		n.resends.Add(1)
	}
	f.sent = true
	defer l.pulse.watch()()
	f.depart()
	err := n.under.Apply(ctx, f.batches[:], f.replies[:])
	if err == nil {
		err = f.replies[0].Err
	}
	f.arrive(err)
	return err
}

// enroll makes a flight the next of the lane's writer, and gets one if need be.
func (l *lane) enroll(ctx context.Context, f *flight) error {
	if l.writer == 0 || l.stale {
		w, err := l.node.enlist(ctx, l.writer)
		switch {
		case store.KindOf(err) == store.KindClosed:
			return err
		case err != nil: // whatever became of that, the flight was not sent
			return store.Errorf(store.KindUnavailable, "%w: %w", errNoWriter, err)
		}
		l.writer, l.mark, l.stale = w, 0, false
	}
	l.assign(f)
	return nil
}

// assign makes a flight the next of the lane's writer. As long as the writer is not
// stale, that is always the same number.
func (l *lane) assign(f *flight) {
	b := &f.batches[0]
	b.Writer, b.Prev, b.Seq = l.writer, l.mark, l.mark+1
}

// judge decides what the error of an attempt means: the end of the flight, or,
// if that is nil, that it has to be sent again. Reached says that the store
// answered.
//
// A flight may get a new number only if no attempt can have been applied, nor can
// be later: a number that was sent, and not answered, stays.
func (l *lane) judge(f *flight, err error) (reached bool, end error) {
	n, b := l.node, &f.batches[0]
	kind := store.KindOf(err)
	switch kind {
	case store.KindRetired:
		n.retired.Add(1)
		end = f.inDoubt(err)
	case store.KindMark:
		if mark := f.replies[0].Mark; mark < b.Prev {
			n.lost.Add(1)
			end = store.Errorf(store.KindLost, "batches %d to %d of writer %d were acknowledged, and are gone: %w", mark+1, b.Prev, b.Writer, err)
		} else {
			end = f.inDoubt(err)
		}
	case store.KindLost:
		n.lost.Add(1)
		end = err
	case store.KindInvalid, store.KindTooLarge, store.KindUnsupported, store.KindSplit:
		if !f.doubt { // Nothing was applied, so the next flight has its number: a new writer is for another partition to issue.
			l.pulse.answered()
			return true, err
		}
		end = f.inDoubt(err)
	case store.KindOutdated, store.KindLate:
		// Books and floors only rise, so no attempt before was applied, nor will be, though
		// it was in doubt: the next flight has the number.
		l.pulse.answered()
		return true, err
	case store.KindClosed:
		end = cmp.Or(f.inDoubt(err), err)
	case store.KindFull: // of marks
		l.pulse.answered()
		l.makeRoom()
		return true, nil // the same again: if it was retired, the store says so
	default:
		f.doubt = f.doubt || kind != store.KindUnavailable
		if !errors.Is(err, errNoWriter) { // which another partition could not issue
			l.pulse.failed(err)
		}
		if f.doubt {
			return false, nil
		}
		// Nothing was applied, so the next flight has its number.
		if err := l.pulse.refused(false); err != nil {
			return false, err
		}
		if time.Since(f.begun) > n.options.Patience {
			return false, (&failure{n.named(l.partition), f.begun, err}).unavailable()
		}
		return false, nil
	}
	l.pulse.answered()
	l.stale = true // If there is no end, nothing was applied, and it goes on under another writer.
	return true, end
}

// inDoubt returns an error if the flight may have been applied by an earlier
// attempt, and err is all there is to be had.
func (f *flight) inDoubt(err error) error {
	if !f.doubt {
		return nil
	}
	return store.Errorf(store.KindUnknown, "sent, and not answered: %w", err)
}

// refusal reports whether an error of a flight says that its batches were
// refused and changed nothing, rather than that nothing can be said.
func refusal(err error) bool {
	switch store.KindOf(err) {
	case store.KindInvalid, store.KindTooLarge, store.KindUnsupported, store.KindSplit, store.KindOutdated, store.KindLate:
		return true
	default:
		return false
	}
}

// rest waits before another attempt: while the partition is down, until it is back.
func (l *lane) rest(tries int) {
	d := min(pauseFirst<<min(tries, 10), pauseLongest)
	d = d/2 + rand.N(d/2)
	back := l.pulse.back()
	if back != nil {
		d = pauseDown
	}
	pause(l.pulse.ctx, d, back)
}

// pause waits, unless something happens meanwhile or the context ends.
func pause(ctx context.Context, d time.Duration, until <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-until:
	case <-ctx.Done():
	}
}

// errNoWriter says that a flight was not sent, because its lane has no writer.
var errNoWriter = errors.New("no writer")

// enlist returns a writer for a lane, later than the one it had. Lanes of
// different partitions share theirs: the marks of a writer are apart.
func (n *Node) enlist(ctx context.Context, old store.Writer) (store.Writer, error) {
	select {
	case n.enlisting <- struct{}{}:
		defer func() { <-n.enlisting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if n.writer > old && n.traits.Partitions > 1 {
		return n.writer, nil
	}
	w, err := store.Enlist(ctx, n.under)
	if err == nil {
		n.writer = w
	}
	return w, err
}

// makeRoom lets the lane's partition forget the marks of the writers that were
// issued longest ago, as many as leave room for half of what it may hold.
func (l *lane) makeRoom() {
	n := l.node
	ctx, cancel := context.WithTimeout(n.ctx, n.options.AttemptTimeout)
	defer cancel()
	last, err := store.Issued(ctx, n.under)
	keep := store.Writer(max(n.limits.WritersMax/2, 1))
	if err != nil || last <= keep {
		return
	}
	b := store.Batch{Partition: l.partition, Deltas: []store.Delta{{Op: store.OpRetire, N: int64(last - keep)}}}
	// If it fails, the flight that had no room is refused again, and so is this done again.
	_ = n.under.Apply(ctx, []store.Batch{b}, make([]store.Reply, 1))
}
