package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/store"
)

// A load is callers that send numbered batches, each an event with a window, again and
// again until its answer is known. Every caller has a writer of its own and goes round the
// counters, which are in different partitions.
type load struct {
	kit
	keys     []string
	stopped  chan struct{}
	wg       sync.WaitGroup
	callers  []*caller
	progress sync.Cond // told of each acknowledgement
}

type caller struct {
	writer store.Writer
	rows   []loadRow // one for each key
	acks   atomic.Int64
}

// A loadRow is the batches of a caller to one counter.
type loadRow struct {
	acked, attempted int64
	lost             bool // the store said that acknowledged ones are missing
}

// newLoad starts callers.
func newLoad(k kit, callers int) *load {
	l := &load{kit: k, stopped: make(chan struct{})}
	l.progress.L = &sync.Mutex{}
	for p := range min(k.Traits().Partitions, 12) {
		for i := 0; ; i++ {
			if key := fmt.Sprint("load", i); store.PartitionOf(cell(key), k.Traits().Partitions) == p {
				l.keys = append(l.keys, key)
				break
			}
		}
	}
	for range callers {
		l.callers = append(l.callers, &caller{writer: k.enlist(), rows: make([]loadRow, len(l.keys))})
	}
	for _, c := range l.callers {
		l.wg.Go(func() { l.call(c) })
	}
	return l
}

func (l *load) call(c *caller) {
	for i := 0; ; i = (i + 1) % len(l.keys) {
		r := &c.rows[i]
		if !r.lost {
			r.attempted++
			b := l.numbered(c.writer, uint64(r.acked), uint64(r.acked+1), sharing(l, add(l.keys[i], 1), append(based(1), applied(window(7, 0)))...))
			b.Books = []store.Book{{Namespace: "n", ID: 1}}
			l.insist(c, r, b)
		}
		select {
		case <-l.stopped:
			return
		default:
		}
	}
}

// insist sends a batch until its answer is known.
func (l *load) insist(c *caller, r *loadRow, b store.Batch) {
	for {
		ctx, cancel := context.WithTimeout(l.Context(), 2*time.Second)
		_, err := l.try(ctx, b)
		cancel()
		switch {
		case l.Context().Err() != nil: // the test has failed
			runtime.Goexit()
		case err == nil:
			r.acked++
		case errors.Is(err, store.ErrLost):
			r.lost = true
		case errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			continue
		default:
			l.Errorf("writer %d, batch %d: %v", c.writer, b.Seq, err)
			r.lost = true
		}
		c.acks.Add(1)
		l.progress.Broadcast()
		return
	}
}

// until waits for so many more answers to each caller.
func (l *load) until(more int64) {
	l.progress.L.Lock()
	defer l.progress.L.Unlock()
	for _, c := range l.callers {
		for want := c.acks.Load() + more; c.acks.Load() < want; {
			l.progress.Wait()
		}
	}
}

// round waits until every caller has been at every counter again.
func (l *load) round() { l.until(2 * int64(len(l.keys))) }

func (l *load) stop() {
	close(l.stopped)
	l.wg.Wait()
}

// losses returns how many rows were told that something is missing.
func (l *load) losses() (n int) {
	for _, c := range l.callers {
		for _, r := range c.rows {
			if r.lost {
				n++
			}
		}
	}
	return n
}

// exact checks that everything was counted once.
func (l *load) exact() {
	l.Helper()
	if n := l.losses(); n != 0 {
		l.Fatalf("%d rows were told that acknowledged batches are missing", n)
	}
	l.honest()
}

// honest checks that everything was counted once, except where the store has
// said that something is missing. It returns how much that is.
func (l *load) honest() (missing int64) {
	l.Helper()
	for i, key := range l.keys {
		var acked, attempted int64
		lost := false
		for _, c := range l.callers {
			acked += c.rows[i].acked
			attempted += c.rows[i].attempted
			lost = lost || c.rows[i].lost
		}
		n := l.read(key)
		if n > attempted || (n < acked && !lost) {
			l.Fatalf("%q holds %d: %d were acknowledged, %d attempted; missing was said: %v", key, n, acked, attempted, lost)
		}
		if got := l.part(key, window(7, 0)).N; got != n {
			l.Fatalf("%q holds %d, and its window %d", key, n, got)
		}
		missing += max(acked-n, 0)
	}
	l.clean()
	return missing
}
