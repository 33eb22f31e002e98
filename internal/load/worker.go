package load

import (
	"context"
	"time"
)

// A worker sends the requests of one connection.
type worker struct {
	conn   conn
	rec    *recorder
	budget *budget
	depth  int
	began  time.Time
	due    schedule
	keys   func() uint64
	ops    func() Op

	// Of the batch that is on its way.
	sent     int64         // requests sent before it
	answered int64         // requests of it that have a reply
	at       time.Duration // when it was sent, since the beginning
}

// A schedule says when the requests of a connection are due in an open loop.
// All connections together make an even rate.
type schedule struct {
	spans       []span // none is a closed loop; the last has no end
	first, step int    // this connection's turns
}

// A span is a time of one rate.
type span struct {
	from   time.Duration
	before float64 // requests of all connections that are due before it
	rate   float64 // of all connections
}

// schedule returns that of one of some connections.
func (c Config) schedule(connection, connections int) schedule {
	s := schedule{first: connection, step: connections}
	if c.Rate > 0 {
		s.spans = []span{{rate: c.Rate}}
	}
	var next span
	for _, step := range c.Steps {
		next.rate = step.Rate
		s.spans = append(s.spans, next)
		next.from += step.Duration
		next.before += step.Rate * step.Duration.Seconds()
	}
	return s
}

func (s schedule) open() bool { return len(s.spans) > 0 }

// at returns when request n of the connection is due, since the beginning.
func (s schedule) at(n int64) time.Duration {
	k := float64(int64(s.first) + n*int64(s.step))
	i := len(s.spans) - 1
	for i > 0 && s.spans[i].before > k {
		i--
	}
	return s.spans[i].from + time.Duration((k-s.spans[i].before)/s.spans[i].rate*float64(time.Second))
}

// until returns how many requests of the connection are due by a time.
func (s schedule) until(t time.Duration) int64 {
	i := len(s.spans) - 1
	for i > 0 && s.spans[i].from > t {
		i--
	}
	due := s.spans[i].before + (t-s.spans[i].from).Seconds()*s.spans[i].rate
	n := max(0, int64((due-float64(s.first))/float64(s.step)))
	for s.at(n) <= t { // the quotient is rounded
		n++
	}
	return n
}

// run sends batches until ctx ends or nothing is left to send.
func (w *worker) run(ctx context.Context) error {
	got := w.got // one value, made once
	if w.due.open() {
		defer func() { w.rec.unsent(w.due.until(time.Since(w.began)) - w.sent) }()
	}
	for ctx.Err() == nil {
		n := w.budget.take(w.ready(ctx))
		if n == 0 {
			return nil
		}
		for range n {
			w.conn.add(w.ops(), w.keys())
		}
		w.at, w.answered = time.Since(w.began), 0
		err := w.conn.exchange(got)
		w.sent += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// ready waits until requests are due, and returns how many to send: none when
// ctx ended.
func (w *worker) ready(ctx context.Context) int {
	if !w.due.open() {
		return w.depth
	}
	for {
		now := time.Since(w.began)
		if n := w.due.until(now) - w.sent; n > 0 {
			return int(min(n, int64(w.depth)))
		}
		timer := time.NewTimer(w.due.at(w.sent) - now)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0
		}
	}
}

// got records replies, which come in the order of the requests.
func (w *worker) got(r replies) {
	now := time.Since(w.began)
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	w.rec.refused(r)
	if !w.due.open() {
		w.rec.add(now-w.at, r.n)
		return
	}
	for range r.n {
		w.rec.add(now-w.due.at(w.sent+w.answered), 1)
		w.answered++
	}
}
