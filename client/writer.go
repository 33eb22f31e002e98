package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// A Mode says when an Add of a Writer returns.
type Mode uint8

// The modes.
const (
	// Wait makes Add return when what it added is durable or refused. Adds that are
	// made while a batch is being sent share the next one.
	Wait Mode = iota

	// Flush makes Add return at once. The Writer sends what was added every
	// WriterOptions.Every, or when it has WriterOptions.Keys keys. If the process
	// dies, what was added since then is lost, and what was being sent counted once or
	// not at all. Writer.Flush and Writer.Close send the rest.
	Flush
)

// WriterOptions configure a Writer. The zero value has the mode Wait.
type WriterOptions struct {
	Mode Mode

	// Every and Keys say when a Writer in mode Flush sends what it has. The defaults
	// are 1 second and 2,000 keys.
	Every time.Duration
	Keys  int

	// KeysMax is the maximum number of keys that wait to be sent. As many again may be
	// under way. At the limit, an Add to another key waits. The default is 100,000.
	KeysMax int

	// OnFailure receives each add that was refused after Add returned, and
	// acknowledged batches that the server has lost. One goroutine calls it, and sends
	// nothing until it returns.
	OnFailure func(Failure)
}

// A Failure is an add that a Writer could not make.
type Failure struct {
	Key   string // "" if it is about no key
	Delta int64  // what was to be added
	Err   error
}

// Stats say what a Writer has done so far.
type Stats struct {
	Pending int64  // keys that wait to be shipped
	OnWay   int64  // keys that are being shipped
	Batches uint64 // answered
	Deltas  uint64 // in those batches: one for each key
	Resent  uint64 // batches sent again
	Refused uint64 // deltas that were refused
	Lost    uint64 // times that the server had lost acknowledged batches

	FlushTime    time.Duration // from taking deltas to the answer to the last of them, all together
	FlushTimeMax time.Duration // and the longest
	Flushes      uint64
}

// A Writer combines adds in this process, key by key, and sends them as
// numbered batches. A batch does not change after it was first sent, and it is
// sent again until there is a definite answer. So it counts once, whatever
// happens to the connection or the server. A Writer is safe for concurrent use.
//
// Adds to one key in the same batch are one write: they are refused together.
// Adds with options share a write only if they are of the same second and have
// the same Who and the same dimensions.
type Writer struct {
	db      *DB
	o       WriterOptions
	stripes *[1 << stripeBits]stripe // nil if adds wait
	pending atomic.Int64             // entries of the stripes, or of open

	mu      sync.Mutex // guards the fields below
	open    *batch     // what is taken next
	room    chan struct{}
	closed  bool
	failure error // the first since the last Flush
	stats   Stats

	kick    chan struct{} // holds one wish to ship now
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when nothing will be shipped any more
	ctx     context.Context
	cancel  context.CancelFunc // ends the shipping
	ship    *shipper
}

// A batch is what is shipped together.
type batch struct {
	sums
	done chan struct{} // closed when the fields below are final

	err  error         // why nothing is known of any entry, or nil
	errs map[int]error // by entry: those refused
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Writer returns a new Writer in the namespace of the DB. Close it before the DB.
func (db *DB) Writer(ctx context.Context, o WriterOptions) (*Writer, error) {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Keys == 0 {
		o.Keys = 2000
	}
	if o.KeysMax == 0 {
		o.KeysMax = 100_000
	}
	if o.Mode > Flush || o.Every < 0 || o.Keys < 0 || o.KeysMax < 0 {
		return nil, store.Errorf(store.KindInvalid, "writer options out of range: %+v", o)
	}
	w := &Writer{
		db: db, o: o, open: newBatch(), room: make(chan struct{}),
		kick: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	if o.Mode == Flush {
		w.stripes = new([1 << stripeBits]stripe)
	}
	var err error
	if w.ship, err = newShipper(ctx, w); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	go w.run()
	return w, nil
}

// Add adds delta to a counter. The Writer's mode says when it returns. An error
// means that nothing was added, unless it is store.ErrUnknown: then ctx ended
// while the add was being sent.
//
// The options are At, Dim and Who. At has a precision of a second. Without it,
// an add with options has the time of the call of Add, and an add without
// options the time at which its batch was made, by the clock of this machine.
func (w *Writer) Add(ctx context.Context, key string, delta int64, opts ...call.WriteOption) error {
	entry := key
	if len(opts) > 0 {
		var err error
		if entry, err = entryOf(key, opts); err != nil {
			return err
		}
	}
	if w.stripes == nil {
		return w.addWaiting(ctx, key, entry, delta)
	}
	s := here(w.stripes)
	if c := s.find(entry); c != nil && uint64(delta+smallMax) <= 2*smallMax {
		n := c.n.Add(2 * delta)
		if n != 2*delta && n&dead == 0 && uint64(n+cellMax) <= 2*cellMax { // Fast path.
			return nil
		}
		if n&dead == 0 {
			w.note(s, c)
			return nil
		}
	}
	return w.addNew(ctx, s, key, entry, delta)
}

// note makes an entry for a cell that was zero, or takes from one that is near
// its limit. An add to it was made already: so a full Writer does not matter.
func (w *Writer) note(s *stripe, c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := !s.sums.has(c.key)
	if n := c.n.Load(); uint64(n+cellMax) > 2*cellMax {
		s.sums.add(c.key, c.n.Swap(n&dead)>>1)
	} else {
		s.sums.add(c.key, 0)
	}
	if isNew {
		w.grown(s)
	}
}

// addNew adds to an entry that has no cell.
func (w *Writer) addNew(ctx context.Context, s *stripe, key, entry string, delta int64) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	var room chan struct{} // as it was before the last try
	for {
		done, err := w.tryAdd(s, entry, delta)
		if done || err != nil {
			return err
		}
		if room != nil {
			if err := w.waitFor(ctx, room); err != nil {
				return err
			}
		}
		room = w.roomNow()
	}
}

// tryAdd reports whether there was room.
func (w *Writer) tryAdd(s *stripe, key string, delta int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, store.ErrClosed
	}
	if s.sums.has(key) {
		s.install(s.sums.keys[s.sums.add(key, delta)]) // twice since the last take: worth a cell
		return true, nil
	}
	if w.pending.Load() >= int64(w.o.KeysMax) {
		return false, nil
	}
	s.sums.add(key, delta)
	w.grown(s)
	return true, nil
}

// grown counts an entry of s.
func (w *Writer) grown(s *stripe) {
	s.counted++
	if w.pending.Add(1) >= int64(min(w.o.Keys, w.o.KeysMax)) {
		w.wake()
	}
}

// wake makes the Writer ship now, or as soon as it can.
func (w *Writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// roomNow returns what is closed when there is room again.
func (w *Writer) roomNow() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room
}

func (w *Writer) waitFor(ctx context.Context, room chan struct{}) error {
	w.wake()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addWaiting adds to the open batch and waits for it.
func (w *Writer) addWaiting(ctx context.Context, key, entry string, delta int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := store.CheckKey(key); err != nil {
		return err
	}
	for {
		b, place, room, err := w.join(entry, delta)
		if err != nil {
			return err
		}
		if b == nil {
			if err := w.waitFor(ctx, room); err != nil {
				return err
			}
			continue
		}
		w.wake()
		select {
		case <-b.done:
			if b.err != nil {
				return b.err
			}
			return b.errs[place]
		case <-ctx.Done():
			return store.Errorf(store.KindUnknown, "the add is on its way: %w", ctx.Err())
		}
	}
}

// join adds to the open batch. If there is no room, it returns what is closed
// when there is.
func (w *Writer) join(key string, delta int64) (b *batch, entry int, room chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, 0, nil, store.ErrClosed
	}
	if len(w.open.keys) >= w.o.KeysMax && !w.open.has(key) {
		return nil, 0, w.room, nil
	}
	entry = w.open.add(key, delta)
	w.pending.Store(int64(len(w.open.keys)))
	return w.open, entry, nil, nil
}

// Flush waits until everything that was added before is durable or refused. It
// returns the first failure since the last Flush that no Add has returned.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	b := w.open
	w.mu.Unlock()
	w.wake()
	select {
	case <-b.done:
		return w.takeFailure()
	case <-ctx.Done():
		return store.Errorf(store.KindUnknown, "flush: %w", w.why(ctx.Err()))
	}
}

// takeFailure returns the first failure since it was last called.
func (w *Writer) takeFailure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.failure
	w.failure = nil
	return err
}

// Close sends what was added and ends the Writer. If ctx ends first, Close
// gives up: what was already sent may have counted, the rest has not, and the
// error is store.ErrUnknown. Otherwise it returns what Flush returns. Later
// calls return store.ErrClosed. A second Close returns nil.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.closing)
	}
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	<-w.ended
	return w.takeFailure()
}

// Stats returns what the Writer has done so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Pending = w.pending.Load()
	return s
}

// run ships batch after batch.
func (w *Writer) run() {
	defer close(w.ended)
	defer w.cancel()
	defer w.ship.close()
	var tick <-chan time.Time
	if w.o.Mode == Flush {
		t := time.NewTicker(w.o.Every)
		defer t.Stop()
		tick = t.C
	}
	for last := false; !last; {
		select {
		case <-w.kick:
		case <-tick:
		case <-w.closing:
			last = true
		case <-w.db.ending: // what is left can't be sent any more
			w.cancel()
			w.refuseAll()
			last = true
		}
		b := w.take(last)
		if len(b.keys) > 0 {
			w.flush(b)
		}
		close(b.done)
	}
}

// refuseAll refuses all adds from now on.
func (w *Writer) refuseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// take returns what was added so far.
func (w *Writer) take(last bool) *batch {
	w.mu.Lock()
	b := w.open
	w.open = newBatch()
	if w.stripes == nil {
		w.pending.Store(0)
	}
	w.mu.Unlock()
	if w.stripes != nil {
		for i := range w.stripes {
			taken, counted := w.stripes[i].take(last)
			w.pending.Add(-counted)
			for j, key := range taken.keys {
				b.add(key, taken.deltas[j])
			}
		}
	}
	w.mu.Lock()
	close(w.room)
	w.room = make(chan struct{})
	w.mu.Unlock()
	return b
}

// flush ships a batch.
func (w *Writer) flush(b *batch) {
	start := time.Now()
	w.count(func(st *Stats) { st.OnWay = int64(len(b.keys)) })
	w.ship.send(w.ctx, b)
	took := time.Since(start)
	w.count(func(st *Stats) {
		st.OnWay = 0
		st.Flushes++
		st.FlushTime += took
		st.FlushTimeMax = max(st.FlushTimeMax, took)
	})
	if b.err != nil {
		w.report(Failure{Err: b.err})
	}
	if w.o.Mode == Flush {
		for i, err := range b.errs {
			w.report(Failure{Key: keyOf(b.keys[i]), Delta: b.deltas[i], Err: err})
		}
	}
}

// count changes the stats.
func (w *Writer) count(change func(*Stats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.stats)
}

// report tells of a failure.
func (w *Writer) report(f Failure) {
	w.mu.Lock()
	if w.failure == nil {
		w.failure = f.Err
		if f.Key != "" {
			w.failure = store.Errorf(store.KindOf(f.Err), "%s: %w", f.Key, f.Err)
		}
	}
	w.mu.Unlock()
	if w.o.OnFailure != nil {
		w.o.OnFailure(f)
	}
}

// why adds what keeps the Writer from shipping, if something does, to cause.
func (w *Writer) why(cause error) error {
	if last := w.ship.trouble.Load(); last != nil {
		return store.Errorf(store.KindUnavailable, "%v: %w", *last, cause)
	}
	return cause
}
