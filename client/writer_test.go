package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// memory returns a DB over the reference store.
func memory(l quipu.Limits, partitions int) *quipu.DB {
	return quipu.New(memstore.New(memstore.Options{Limits: l, Partitions: partitions}), quipu.Options{})
}

// writer returns a Writer that the test closes.
func (s *testServer) writer(o client.WriterOptions) *client.Writer {
	s.t.Helper()
	return newWriter(s.t, s.dial(client.Options{}), o)
}

func newWriter(t testing.TB, db *client.DB, o client.WriterOptions) *client.Writer {
	t.Helper()
	w, err := db.Writer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closeWriter(t testing.TB, w *client.Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// holds checks what a counter is.
func holds(t testing.TB, db *quipu.DB, key string, want int64) {
	t.Helper()
	c, err := db.Read(context.Background(), key)
	if err != nil || c.Value != want || !c.Exists {
		t.Fatalf("%s is %+v, %v; want %d", key, c, err, want)
	}
}

// oracle is the simplest combiner: a map and a mutex.
type oracle struct {
	mu   sync.Mutex
	sums map[string]int64
}

func (o *oracle) add(key string, delta int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sums[key] += delta
}

func (o *oracle) check(t testing.TB, db *quipu.DB) {
	t.Helper()
	for key, want := range o.sums {
		holds(t, db, key, want)
	}
}

// What goes in comes out: through cells, through entries, through several
// partitions, with flushes in between.
func TestWriterCountsAll(t *testing.T) {
	f := func(o client.WriterOptions, partitions, keys, each int) {
		t.Helper()
		db := memory(quipu.Limits{}, partitions)
		w := serve(t, db).writer(o)
		want := oracle{sums: map[string]int64{}}
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for i := range each {
					key := fmt.Sprintf("key %d", rand.IntN(keys))
					delta := rand.Int64N(2001) - 1000
					if i%50 == 0 {
						delta = rand.Int64N(1 << 40) // too large for a cell
					}
					if err := w.Add(t.Context(), key, delta); err != nil {
						t.Errorf("Add: %v", err)
						return
					}
					want.add(key, delta)
					if g == 0 && i%100 == 0 {
						if err := w.Flush(t.Context()); err != nil {
							t.Errorf("Flush: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		closeWriter(t, w)
		want.check(t, db)
		st := w.Stats()
		if st.Pending != 0 || st.OnWay != 0 || st.Batches == 0 || st.Deltas < uint64(len(want.sums)) || st.Flushes == 0 || st.FlushTimeMax > st.FlushTime {
			t.Errorf("stats %+v", st)
		}
	}
	flush := client.WriterOptions{Mode: client.Flush}
	f(flush, 1, 8, 20_000)
	f(flush, 1, 5000, 5000)
	f(flush, 3, 300, 5000)
	f(client.WriterOptions{Mode: client.Flush, Every: time.Millisecond, Keys: 1}, 2, 40, 5000)
	f(client.WriterOptions{Mode: client.Flush, KeysMax: 3}, 1, 100, 1000)
	f(client.WriterOptions{}, 1, 8, 200)
	f(client.WriterOptions{KeysMax: 2}, 3, 50, 200)
}

// A batch over the limits of a store is cut.
func TestWriterCutsBatches(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	w := serve(t, db).writer(client.WriterOptions{Mode: client.Flush, Keys: 1 << 20})
	long := strings.Repeat("x", 480)
	for i := range 25_000 {
		if err := w.Add(t.Context(), fmt.Sprint(long, i), 1); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	if st := w.Stats(); st.Deltas != 25_000 || st.Batches < 3 {
		t.Errorf("stats %+v", st)
	}
	holds(t, db, long+"24999", 1)
}

func TestWriterCutsBatchesOfShortKeys(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	w := serve(t, db).writer(client.WriterOptions{Mode: client.Flush, Every: time.Hour, Keys: 1 << 20})
	for i := range 25_000 {
		if err := w.Add(t.Context(), fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	if st := w.Stats(); st.Deltas != 25_000 || st.Batches != 3 {
		t.Errorf("stats %+v", st)
	}
}

// What Add returned is there: durable at once, or after Flush.
func TestWriterModes(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	s := serve(t, db)
	waits := s.writer(client.WriterOptions{})
	if err := waits.Add(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	holds(t, db, "a", 2)
	closeWriter(t, waits)

	flushes := s.writer(client.WriterOptions{Mode: client.Flush, Every: time.Hour})
	for _, delta := range []int64{5, -5, 0, math.MaxInt64, math.MaxInt64, math.MinInt64, math.MinInt64, 2} {
		if err := flushes.Add(t.Context(), "b", delta); err != nil {
			t.Fatal(err)
		}
	}
	if err := flushes.Add(t.Context(), "zero", 0); err != nil {
		t.Fatal(err)
	}
	for _, delta := range []int64{1, 1, -1, -1} {
		if err := flushes.Add(t.Context(), "nothing", delta); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := db.Read(t.Context(), "b"); err != nil || c.Exists {
		t.Fatalf("shipped too early: %+v, %v", c, err)
	}
	if err := flushes.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds(t, db, "b", 0)
	holds(t, db, "zero", 0)
	holds(t, db, "nothing", 0)
	if err := flushes.Flush(t.Context()); err != nil { // of nothing
		t.Fatal(err)
	}
	closeWriter(t, flushes)
	closeWriter(t, flushes)
	for _, w := range []*client.Writer{waits, flushes} {
		if err := w.Add(t.Context(), "a", 1); !errors.Is(err, quipu.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
		if err := w.Flush(t.Context()); !errors.Is(err, quipu.ErrClosed) {
			t.Errorf("Flush after Close: %v", err)
		}
	}
	holds(t, db, "a", 2)
}

// The ticker ships what nobody flushes.
func TestWriterFlushesByItself(t *testing.T) {
	f := func(o client.WriterOptions) {
		t.Helper()
		db := memory(quipu.Limits{}, 1)
		w := serve(t, db).writer(o)
		if err := w.Add(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		poll(t, func() bool {
			c, err := db.Read(t.Context(), "a")
			return err == nil && c.Value == 1
		})
		closeWriter(t, w)
	}
	f(client.WriterOptions{Mode: client.Flush, Every: time.Millisecond})
	f(client.WriterOptions{Mode: client.Flush, Every: time.Hour, Keys: 1})
}

// poll waits for something that happens by itself.
func poll(t testing.TB, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("nothing happened for 30 s")
		}
	}
}

// A refusal reaches whoever waits; otherwise OnFailure and the next Flush.
func TestWriterRefusals(t *testing.T) {
	db := memory(quipu.Limits{KeysMax: 2}, 1)
	s := serve(t, db)
	if _, err := db.Set(t.Context(), "top", math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	waits := s.writer(client.WriterOptions{})
	for key, want := range map[string]error{
		"": quipu.ErrInvalid, "\xff": quipu.ErrInvalid, strings.Repeat("k", 513): quipu.ErrTooLarge, "top": quipu.ErrOverflow,
	} {
		if err := waits.Add(t.Context(), key, 1); !errors.Is(err, want) {
			t.Errorf("Add(%q): %v, want %v", key, err, want)
		}
	}
	if err := waits.Add(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := waits.Add(t.Context(), "b", 1); !errors.Is(err, quipu.ErrFull) {
		t.Errorf("a third key: %v", err)
	}
	closeWriter(t, waits)

	var failures []client.Failure
	w := s.writer(client.WriterOptions{
		Mode: client.Flush, Every: time.Hour,
		OnFailure: func(f client.Failure) { failures = append(failures, f) },
	})
	for _, key := range []string{"", "\xff"} {
		if err := w.Add(t.Context(), key, 1); !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("Add(%q): %v", key, err)
		}
	}
	for _, key := range []string{"top", "a"} {
		if err := w.Add(t.Context(), key, 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); !errors.Is(err, quipu.ErrOverflow) || !strings.Contains(err.Error(), "top") {
		t.Errorf("Flush: %v", err)
	}
	if len(failures) != 1 || failures[0].Key != "top" || failures[0].Delta != 3 || !errors.Is(failures[0].Err, quipu.ErrOverflow) {
		t.Errorf("failures %+v", failures)
	}
	closeWriter(t, w)
	if st := w.Stats(); st.Refused != 1 {
		t.Errorf("stats %+v", st)
	}
	holds(t, db, "a", 4)
}

// Without a server, adds wait when there is no room, and give up with their
// context; Close gives up with its own.
func TestWriterBackPressure(t *testing.T) {
	f := func(o client.WriterOptions) {
		t.Helper()
		db := memory(quipu.Limits{}, 1)
		link := newLink(t, serve(t, db).addr)
		c := link.dial(client.Options{})
		o.KeysMax = 2
		w := newWriter(t, c, o)
		link.cut(true)
		added := 0
		for i := 0; ; i++ { // until one finds no room
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := w.Add(ctx, fmt.Sprint("k", i), 1)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quipu.ErrUnknown) {
				break
			}
			if err == nil || errors.Is(err, quipu.ErrUnknown) {
				added++
			} else {
				t.Fatal(err)
			}
		}
		if added < 2 || added > 4 {
			t.Errorf("%d keys were added with room for 2, and 2 on their way", added)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, quipu.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		link.cut(false)
		closeWriter(t, w)
		p, err := db.List(t.Context(), "", quipu.ListOptions{})
		if err != nil || len(p.Counts) != added {
			t.Errorf("%d counters, want %d: %v", len(p.Counts), added, err)
		}
	}
	f(client.WriterOptions{Mode: client.Flush, Every: time.Hour})
	f(client.WriterOptions{})
}

func TestWriterCloseGivesUp(t *testing.T) {
	f := func(mode client.Mode, end func(c *client.DB, w *client.Writer) error) {
		t.Helper()
		db := memory(quipu.Limits{}, 1)
		link := newLink(t, serve(t, db).addr)
		c := link.dial(client.Options{})
		w := newWriter(t, c, client.WriterOptions{Mode: mode, Every: time.Hour})
		link.cut(true)
		waited := make(chan error, 1)
		go func() { waited <- w.Add(t.Context(), "a", 1) }()
		if mode == client.Flush {
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
		} else {
			poll(t, func() bool { return w.Stats().OnWay > 0 })
		}
		if err := end(c, w); !errors.Is(err, quipu.ErrUnknown) {
			t.Errorf("Close: %v", err)
		}
		if mode == client.Wait {
			if err := <-waited; !errors.Is(err, quipu.ErrUnknown) {
				t.Errorf("Add: %v", err)
			}
		}
		if err := w.Add(t.Context(), "a", 1); !errors.Is(err, quipu.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
	}
	for _, mode := range []client.Mode{client.Wait, client.Flush} {
		f(mode, func(_ *client.DB, w *client.Writer) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			return w.Close(ctx)
		})
		f(mode, func(c *client.DB, w *client.Writer) error { // the wrong order
			if err := c.Close(); err != nil {
				return err
			}
			return w.Close(context.Background())
		})
	}
}

// A writer that was retired under way goes on as another, and loses nothing.
func TestWriterRetired(t *testing.T) {
	db := memory(quipu.Limits{WritersMax: 4}, 2)
	s := serve(t, db)
	w := s.writer(client.WriterOptions{OnFailure: func(f client.Failure) { t.Errorf("failure %+v", f) }})
	for range 5 {
		if err := w.Add(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), "b", 1); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if _, err := db.Port().Enlist(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeWriter(t, w)
	holds(t, db, "a", 5)
	holds(t, db, "b", 5)
}

// A server that lost what it acknowledged is told on, and the rest counts.
func TestWriterTellsOfLostData(t *testing.T) {
	f := func(enlisted int, after *quipu.DB) {
		t.Helper()
		before := memory(quipu.Limits{}, 1)
		link := newLink(t, serve(t, before).addr)
		var lost atomic.Int64
		w := newWriter(t, link.dial(client.Options{}), client.WriterOptions{OnFailure: func(f client.Failure) {
			if !errors.Is(f.Err, quipu.ErrLost) || f.Key != "" {
				t.Errorf("failure %+v", f)
			}
			lost.Add(1)
		}})
		for range 3 {
			if err := w.Add(t.Context(), "a", 1); err != nil {
				t.Fatal(err)
			}
		}
		for range enlisted { // the id may be known to the other store, or not
			if _, err := after.Port().Enlist(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		link.to(serve(t, after).addr)
		for range 2 {
			if err := w.Add(t.Context(), "a", 1); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, after, "a", 2)
		if lost.Load() != 1 || w.Stats().Lost != 1 {
			t.Errorf("lost %d times, stats %+v", lost.Load(), w.Stats())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Close(ctx); !errors.Is(err, quipu.ErrLost) {
			t.Errorf("Close: %v", err)
		}
	}
	f(0, memory(quipu.Limits{}, 1))
	f(5, memory(quipu.Limits{}, 1))
	frank := new(storetest.Hooks) // The store says by itself that it has lost something.
	frank.On(storetest.OnWrite, func(c *storetest.Call) error {
		err := c.Pass()
		for i := range c.Replies {
			if r := &c.Replies[i]; errors.Is(r.Err, store.ErrMark) && r.Mark < c.Batches[i].Prev {
				r.Err = store.ErrLost
			}
		}
		return err
	})
	f(0, quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), frank), quipu.Options{}))
}

// An id that someone else uses too is given up. What was not in doubt counts.
func TestWriterDisplaced(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	w := serve(t, db).writer(client.WriterOptions{})
	if err := w.Add(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	foreign := store.Batch{
		Writer: 1, Prev: 1, Seq: 7,
		Deltas: []store.Delta{{Cell: store.Cell{Key: "a"}, Op: store.OpAdd, N: 100}},
	}
	replies := make([]store.Reply, 1)
	if err := errors.Join(db.Port().WriteBatches(t.Context(), []store.Batch{foreign}, replies), replies[0].Err); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	closeWriter(t, w)
	holds(t, db, "a", 102)
}

// A store that can't answer is asked again until it does.
func TestWriterAsksUntilItKnows(t *testing.T) {
	for _, kind := range []store.Kind{store.KindUnavailable, store.KindUnknown, store.KindClosed, store.KindFull, store.KindOther} {
		hooks := []storetest.Hook{storetest.Fail(store.Errorf(kind, "not now"))}
		if kind == store.KindUnknown { // Of another one it would be a lie.
			hooks = append(hooks, storetest.Lose(store.ErrUnknown))
		}
		for _, hook := range hooks {
			h := new(storetest.Hooks)
			db := quipu.New(storetest.Wrap(memstore.New(memstore.Options{}), h), quipu.Options{})
			w := serve(t, db).writer(client.WriterOptions{OnFailure: func(f client.Failure) { t.Errorf("failure %+v", f) }})
			for range 3 {
				h.On(storetest.OnWrite, storetest.Nth(0, 2, hook))
				if err := w.Add(t.Context(), "a", 1); err != nil {
					t.Errorf("kind %d: Add: %v", kind, err)
				}
			}
			closeWriter(t, w)
			holds(t, db, "a", 3)
			if w.Stats().Resent != 6 {
				t.Errorf("kind %d: stats %+v", kind, w.Stats())
			}
		}
	}
}

// The answer to a batch is lost. If the mark is still there, it says what became
// of the batch. If it is not, because the writer was retired meanwhile, or someone
// else moved it, nobody can tell, and the writer says so.
func TestWriterLosesAnAnswer(t *testing.T) {
	f := func(meanwhile func(db *quipu.DB) error, want error) {
		t.Helper()
		h := new(storetest.Hooks)
		s := memstore.New(memstore.Options{Limits: quipu.Limits{WritersMax: 4}})
		db := quipu.New(storetest.Wrap(s, h), quipu.Options{})
		link := newLink(t, serve(t, db).addr)
		w := newWriter(t, link.dial(client.Options{}), client.WriterOptions{})
		if err := w.Add(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		h.On(storetest.OnWrite, storetest.Nth(0, 1, func(c *storetest.Call) error {
			err := c.Pass()
			link.cut(true)
			if err := meanwhile(db); err != nil {
				t.Error(err)
			}
			link.cut(false)
			return err
		}))
		if err := w.Add(t.Context(), "a", 10); !errors.Is(err, want) {
			t.Errorf("Add: %v, want %v", err, want)
		}
		if err := w.Add(t.Context(), "a", 100); err != nil {
			t.Error(err)
		}
		closeWriter(t, w)
		holds(t, db, "a", 111)
		if w.Stats().Resent == 0 {
			t.Error("nothing was sent again")
		}
	}
	f(func(*quipu.DB) error { return nil }, nil)
	f(func(db *quipu.DB) (err error) {
		for range 10 {
			_, e := db.Port().Enlist(context.Background())
			err = errors.Join(err, e)
		}
		return err
	}, quipu.ErrUnknown)
	f(func(db *quipu.DB) error {
		foreign := []store.Batch{{Writer: 1, Prev: 2, Seq: 9}}
		replies := make([]store.Reply, 1)
		err := db.Port().WriteBatches(context.Background(), foreign, replies)
		return errors.Join(err, replies[0].Err)
	}, quipu.ErrUnknown)
}

func TestWriterOptionsAreChecked(t *testing.T) {
	s := serve(t, memory(quipu.Limits{}, 1))
	c := s.dial(client.Options{})
	for _, o := range []client.WriterOptions{{Mode: 2}, {Every: -1}, {Keys: -1}, {KeysMax: -1}} {
		if _, err := c.Writer(t.Context(), o); !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := c.In("").Writer(t.Context(), client.WriterOptions{}); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("in no namespace: %v", err)
	}
}

// Adds that race with Close count or say that they did not.
func TestWriterCloseRaces(t *testing.T) {
	for _, mode := range []client.Mode{client.Wait, client.Flush} {
		for range 20 {
			db := memory(quipu.Limits{}, 1)
			w := serve(t, db).writer(client.WriterOptions{Mode: mode})
			var counted atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						err := w.Add(t.Context(), "a", 1)
						if errors.Is(err, quipu.ErrClosed) {
							return
						}
						if err != nil {
							t.Errorf("Add: %v", err)
							return
						}
						counted.Add(1)
					}
				})
			}
			poll(t, func() bool { return counted.Load() > 0 })
			closeWriter(t, w)
			wg.Wait()
			holds(t, db, "a", counted.Load())
		}
	}
}
