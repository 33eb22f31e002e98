package storetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// The laws hold through Wrap as they do without: it adds nothing and loses nothing.
//
// The laws of crashes and reopening need a store that keeps something. This
// one is a memstore and a list of all calls: a log whose tail a crash drops.
func TestLaws(t *testing.T) {
	wrap := func(s store.Store) store.Store { return storetest.Wrap(s, new(storetest.Hooks)) }
	storetest.Run(t, func(_ testing.TB, c storetest.Config) *storetest.Instance {
		j := &journal{config: c}
		j.made = j.clock()
		return &storetest.Instance{
			Store: wrap(j.open()),
			Crash: func(testing.TB) store.Store { return wrap(j.crash()) },
			Reopen: func(tb testing.TB) store.Store {
				if err := j.close(); err != nil {
					tb.Errorf("Close: %v", err)
				}
				return wrap(j.open())
			},
		}
	})
}

// A journal outlives the stores that are opened on it.
type journal struct {
	config storetest.Config
	made   time.Time // a memstore's versions begin there

	mu      sync.Mutex // guards the fields below
	synced  []call     // what a crash keeps
	pending []call     // what it drops
	now     *logged    // the store that is open

	telling sync.Mutex // guards the fields below
	told    time.Time  // the latest time that a store was told
	still   bool       // it is told no later one
}

type call struct {
	at      time.Time
	batches []store.Batch
}

// logged is a store on a journal. It is not a store with hooks: it keeps what is
// written, and ends with a crash.
type logged struct {
	*memstore.Store
	journal *journal
}

func (j *journal) clock() time.Time {
	if j.config.Now != nil {
		return j.config.Now()
	}
	return time.Now()
}

// tell is the clock of the stores. It stands still while a call is applied, so that
// the call is kept with the time that it saw.
func (j *journal) tell() time.Time { return j.tellAnd(func() {}) }

// tellAnd also makes the clock stand still, or go on.
func (j *journal) tellAnd(then func()) time.Time {
	j.telling.Lock()
	defer j.telling.Unlock()
	if now := j.clock(); !j.still && now.After(j.told) {
		j.told = now
	}
	then()
	return j.told
}

func (j *journal) open() store.Store {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := func() time.Time { return j.made }
	s := memstore.New(memstore.Options{
		Limits:     j.config.Limits,
		Partitions: 3,
		Now:        func() time.Time { return now() },
	})
	for _, c := range j.synced {
		now = func() time.Time { return c.at }
		if err := s.Apply(context.Background(), c.batches, make([]store.Reply, len(c.batches))); err != nil {
			panic(err) // the same call did not fail before
		}
	}
	now = j.tell
	j.now = &logged{Store: s, journal: j}
	return j.now
}

func (j *journal) crash() store.Store {
	j.mu.Lock()
	j.pending, j.now = nil, nil
	j.mu.Unlock()
	return j.open()
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flush()
	return j.now.Store.Close()
}

func (j *journal) flush() {
	j.synced = append(j.synced, j.pending...)
	j.pending = nil
}

func (l *logged) Traits() store.Traits {
	t := l.Store.Traits()
	t.Durability = store.Synced
	return t
}

func (l *logged) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	j := l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.now != l {
		return store.ErrUnknown
	}
	c := call{at: j.tellAnd(func() { j.still = true })}
	defer j.tellAnd(func() { j.still = false })
	if err := l.Store.Apply(ctx, batches, replies); err != nil {
		return err
	}
	for _, b := range batches {
		b.If, b.Deltas = slices.Clone(b.If), slices.Clone(b.Deltas)
		for i := range b.Deltas {
			if bound := b.Deltas[i].Guard.Bound; bound != nil {
				b.Deltas[i].Guard.Bound = new(*bound)
			}
		}
		c.batches = append(c.batches, b)
	}
	j.pending = append(j.pending, c)
	for i := range batches {
		if batches[i].Durability != store.Memory {
			j.flush()
			replies[i].Durability = store.Synced
		}
	}
	return nil
}

func (l *logged) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	done(l.Apply(context.Background(), batches, replies))
	return true
}
