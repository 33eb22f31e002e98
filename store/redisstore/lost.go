package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

var _ store.Witness = (*Store)(nil)

// lossesMax is how many losses are remembered.
const lossesMax = 100

// losses are what was found to be lost since the store was opened. Each is told to
// one caller, and to everyone who audits the store.
type losses struct {
	mu  sync.Mutex // guards all
	all []store.Drift
}

// lose remembers that a partition has less than it had.
func (s *Store) lose(partition int, have, want string) {
	s.meters.lost.Add(1)
	s.losses.mu.Lock()
	defer s.losses.mu.Unlock()
	if len(s.losses.all) < lossesMax {
		what := fmt.Sprintf("partition %d, found to be behind at %s", partition, time.Now().UTC().Format(time.RFC3339))
		s.losses.all = append(s.losses.all, store.Drift{What: what, Have: have, Want: want})
	}
}

// lost returns what was found to be lost.
func (l *losses) lost() []store.Drift {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// raised are the highest books and floors of a partition that this store has seen
// acknowledged.
type raised struct {
	mu     sync.Mutex // guards the fields below
	books  decide.Fences
	floors decide.Floors
}

// raise takes those of a batch that was applied.
func (r *raised) raise(b *store.Batch) {
	if len(b.Books) == 0 && len(b.Floors) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books == nil {
		r.books, r.floors = make(decide.Fences), make(decide.Floors)
	}
	r.books.Raise(b)
	r.floors.Raise(b)
}

// lower calls drift for each book and floor of a partition that is lower than it was. The
// next batch under the book raises that again, and upkeep the floor. Until then a
// server that has not heard of a book may count by the one before.
func (s *Store) lower(ctx context.Context, p *partition, drift func(what, have, want string)) error {
	r := &s.raised[p.number]
	r.mu.Lock()
	books, floors := maps.Clone(r.books), maps.Clone(r.floors)
	r.mu.Unlock()
	if len(books)+len(floors) == 0 {
		return nil
	}
	st := newState(p, s.share)
	for name := range books {
		st.book(name)
	}
	for shelf := range floors {
		st.shelf(shelf)
	}
	if err := s.load(ctx, st, 0, 0, s.shown()); err != nil {
		return err
	}
	for _, f := range st.fences {
		want := books[f.book]
		if f.shelf.Kind != 0 {
			want = int64(floors[f.shelf])
		}
		if f.was < want {
			drift(fmt.Sprintf("%q in the head of partition %d", f.field, p.number), fmt.Sprint(f.was), fmt.Sprintf("%d, which was acknowledged", want))
		}
	}
	return nil
}

// vouch compares what the server has with what this store knows that it had: which
// store it is, and in each partition the versions that callers were told of, and the
// marks, books and floors that were acknowledged. A server that was emptied adds up, too.
func (s *Store) vouch(ctx context.Context) ([]store.Drift, error) {
	found := s.losses.lost()
	drift := func(what, have, want string) { found = append(found, store.Drift{What: what, Have: have, Want: want}) }
	if s.id != "" {
		key := s.options.Prefix + ":store"
		id, err := s.client.Do(ctx, s.client.B().Hmget().Key(key).Field("id").Build()).AsStrSlice()
		if err != nil {
			return nil, looked(ctx, failed(ctx, err))
		}
		if id[0] != s.id {
			drift("id of the store in "+key, cmp.Or(id[0], "none"), s.id)
		}
	}
	for i := range s.partitions {
		told, acked := s.told[i].Load(), s.acked[i].all() // before the server is asked: it may have more by then
		if told > 0 {
			is, err := s.version(ctx, &s.partitions[i])
			if err != nil {
				return nil, err
			}
			if is < told {
				drift(fmt.Sprintf("version of partition %d", i), fmt.Sprint(is), fmt.Sprintf("%d, of which callers were told", told))
			}
		}
		if err := s.lower(ctx, &s.partitions[i], drift); err != nil {
			return nil, err
		}
		for _, w := range slices.Sorted(maps.Keys(acked)) {
			st := newState(&s.partitions[i], s.share)
			if err := s.load(ctx, st, w, 0, s.shown()); err != nil {
				return nil, err
			}
			mark, _, _ := strings.Cut(st.mark, " ")
			d := decoder{}
			if is, floor := d.uint(cmp.Or(mark, "0")), store.Writer(d.uint(st.floor)); d.err == nil && is < acked[w] && w > floor {
				drift(fmt.Sprintf("mark of writer %d in partition %d", w, i), fmt.Sprint(is), fmt.Sprintf("%d, which was acknowledged", acked[w]))
			}
			if d.err != nil {
				return nil, d.err
			}
		}
	}
	return found, nil
}

// version returns the highest version that a partition has given out.
func (s *Store) version(ctx context.Context, p *partition) (uint64, error) {
	m, err := s.look(ctx, call{script: sizeScript, keys: []string{p.head}}, s.shown())
	if err != nil {
		return 0, err
	}
	reply, err := texts(m)
	if err != nil {
		return 0, err
	}
	d := decoder{}
	return d.uint(reply[0]), d.err
}

// Lost reports whether a version is above all that its partition has given out:
// then a failover or a restart took the last writes with it. It can't tell any more
// when as many have been given out again since, unless the counter itself is at
// a lower one.
func (s *Store) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if err := store.CheckCell(c); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.calls.Done()
	if lacks, known := v.Lacks(version); known {
		return lacks, nil
	}
	p := &s.partitions[store.PartitionOf(c, len(s.partitions))]
	is, err := s.version(ctx, p)
	return err == nil && version > is, err
}
