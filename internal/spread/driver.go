package spread

import (
	"context"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

// drive makes the calls of a machine until its act is over.
func (s *Store) drive(ctx context.Context, m machine) {
	for calls := m.next(nil); len(calls) > 0; {
		calls = s.step(ctx, m, calls)
	}
}

// step makes some calls, side by side, and tells the machine what became of them.
func (s *Store) step(ctx context.Context, m machine, calls []call) []call {
	got := make([]answer, len(calls))
	if len(calls) == 1 {
		if calls[0].alone && s.starter != nil {
			s.splitting.Lock()
			defer s.splitting.Unlock()
		}
		s.do(ctx, &calls[0], &got[0])
		return m.next(got)
	}
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() { s.do(ctx, &calls[i], &got[i]) })
	}
	wg.Wait()
	return m.next(got)
}

// do makes one call.
func (s *Store) do(ctx context.Context, c *call, got *answer) {
	switch {
	case c.fold != nil:
		if c.asked {
			s.asked(*c.fold)
		}
		got.err = s.Fold(ctx, *c.fold)
	case c.apply != nil:
		if c.again {
			s.retried(c.apply)
		}
		got.replies = make([]store.Reply, len(c.apply))
		began := s.options.Now()
		got.err = s.under.Apply(ctx, c.apply, got.replies)
		got.at = s.options.Now()
		got.took = got.at.Sub(began)
		if c.own && got.err == nil {
			s.renew(ctx, c.apply, got.replies)
		}
	default:
		got.values = make([]store.Value, len(c.read))
		got.err = s.under.Read(ctx, c.read, got.values)
	}
}

// renew has a book read again that the store has refused. The machine sees by itself
// whether a higher one is known then.
func (s *Store) renew(ctx context.Context, batches []store.Batch, replies []store.Reply) {
	for i := range replies {
		if err := replies[i].Err; s.options.Renew == nil || err == nil || store.KindOf(err) != store.KindOutdated {
			continue
		}
		book := store.Book{Namespace: store.SpaceOf(batches[i].Deltas[0].Cell)}
		if len(batches[i].Books) > 0 {
			book = batches[i].Books[0]
		}
		if err := s.options.Renew(ctx, book.Namespace, book.ID); err != nil {
			replies[i].Err = err
		}
		return // All batches of a machine are of one counter.
	}
}

// A folding is a fold under way, for all who wait for it.
type folding struct {
	done chan struct{}
	err  error
}

// foldMax is how long a fold may take before those who wait are told.
const foldMax = 10 * time.Second

// Fold makes a counter one cell again. It does what is left to do of a fold that
// someone has begun. Many who ask at once share one.
func (s *Store) Fold(ctx context.Context, c store.Cell) error {
	if s.options.ReadOnly {
		return store.ErrReadOnly
	}
	s.folding.Lock()
	f := s.folds[c]
	if f == nil {
		if s.closed {
			s.folding.Unlock()
			return store.ErrClosed
		}
		f = &folding{done: make(chan struct{})}
		s.folds[c] = f
		s.folders.Go(func() {
			within, cancel := context.WithTimeout(s.ctx, foldMax)
			defer cancel()
			m := s.newFold(c)
			s.drive(within, m)
			f.err = m.err
			s.folding.Lock()
			delete(s.folds, c)
			s.folding.Unlock()
			close(f.done)
		})
	}
	s.folding.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return store.Errorf(store.KindUnavailable, "the counter is being put together: %w", ctx.Err())
	}
}
