package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// several opens stores on one schema.
func several(t testing.TB, n int, url string, o pgstore.Options) []*pgstore.Store {
	o.Schema = newSchema()
	all := make([]*pgstore.Store, n)
	for i := range all {
		all[i] = open(t, url, o)
	}
	return all
}

// Two stores have the same tokens and the same batches at the same instant.
func TestTwoStoresAgree(t *testing.T) {
	stores := several(t, 2, server.URL(), pgstore.Options{})
	const rounds = 30
	w, err := store.Enlist(t.Context(), stores[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(rounds) {
		batches := []store.Batch{
			{Deltas: []store.Delta{once(add("token", 1), fmt.Sprint(i))}},
			{Writer: w, Prev: i, Seq: i + 1, Deltas: []store.Delta{{Cell: at("mark"), Op: store.OpAdd, N: 1, Want: true}}},
		}
		for _, b := range batches {
			var got [4]store.Reply
			var wg sync.WaitGroup
			for g := range got {
				wg.Go(func() {
					var err error
					if got[g], err = try(t.Context(), stores[g%2], b); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			fresh := 0
			for _, r := range got {
				if len(r.Results) != 1 || r.Results[0].After != int64(i+1) || r.Results[0].Version != got[0].Results[0].Version {
					t.Fatalf("round %d: %+v", i, got)
				}
				if !r.Results[0].Replayed {
					fresh++
				}
			}
			if fresh != 1 {
				t.Fatalf("round %d: %d were the first", i, fresh)
			}
		}
	}
	holds(t, stores[1], "token", rounds)
	holds(t, stores[1], "mark", rounds)
	audited(t, stores[0])
}

// Batches that overlap, in any order, from several stores, never wait for each
// other in a circle, and all of them count.
func TestNoDeadlocks(t *testing.T) {
	hunt(t, several(t, 3, server.URL(), pgstore.Options{MaxConns: 6}), 40)
}

func hunt(t *testing.T, stores []*pgstore.Store, rounds int) {
	t.Helper()
	const keys = 12
	var sum atomic.Int64
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for g := range 4 * len(stores) {
		s, rng := stores[g%len(stores)], rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Go(func() {
			w, err := store.Enlist(t.Context(), s)
			if err != nil {
				t.Error(err)
				return
			}
			seq := uint64(0)
			for i := range rounds {
				b := store.Batch{}
				if g%2 == 0 {
					b.Writer, b.Prev, b.Seq = w, seq, seq+1
					seq++
				}
				for range 1 + rng.IntN(8) {
					d := add(fmt.Sprint("k", rng.IntN(keys)), 1)
					d.Want = rng.IntN(2) == 0
					switch rng.IntN(8) {
					case 0:
						d.Cell.Namespace = fmt.Sprint("other", rng.IntN(3))
					case 1:
						d = once(d, fmt.Sprintf("%d-%d-%d", g, i, len(b.Deltas)))
					case 2:
						d.Op, d.N = store.OpGet, 0
					case 3: // makes and ends a cell
						d = store.Delta{Cell: at(fmt.Sprint("gone", rng.IntN(keys))), Op: store.OpDelete}
					case 4:
						d.Cell.Key, d.N = fmt.Sprint("gone", rng.IntN(keys)), 0
					}
					b.Deltas = append(b.Deltas, d)
				}
				bs := []store.Batch{b}
				if rng.IntN(4) == 0 {
					bs = append(bs, store.Batch{Deltas: []store.Delta{add(fmt.Sprint("k", rng.IntN(keys)), 1)}})
				}
				replies := make([]store.Reply, len(bs))
				if err := s.Apply(t.Context(), bs, replies); err != nil {
					t.Errorf("Apply: %v", err)
					return
				}
				for i, r := range replies {
					if r.Err != nil {
						t.Errorf("Apply: %v", r.Err)
						return
					}
					for j, res := range r.Results {
						if res.Outcome != store.Applied {
							t.Errorf("%+v: %+v", bs[i].Deltas[j], res)
						}
						sum.Add(bs[i].Deltas[j].N)
					}
				}
			}
		})
	}
	wg.Wait()
	have := int64(0)
	for _, ns := range []string{"default", "other0", "other1", "other2"} {
		es, err := stores[0].Scan(t.Context(), store.Range{Namespace: ns}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			have += e.Value.N
		}
	}
	if have != sum.Load() {
		t.Errorf("the counters sum to %d, want %d", have, sum.Load())
	}
	audited(t, stores[0])
	for _, s := range stores {
		if n := meter(t, s, "quipu_postgres_retries_total"); n != 0 {
			t.Errorf("%v transactions were ended for another", n)
		}
	}
}

// A namespace that fills up from several stores at once takes what its limit
// says, however far the limit is from what the stores must count alone.
func TestQuotaIsExact(t *testing.T) {
	const callers = 9
	f := func(name string, o pgstore.Options, left int64, fill func(schema string, s *pgstore.Store)) {
		t.Helper()
		stores := several(t, 3, server.URL(), o)
		fill(fmt.Sprintf("t%d", schemas.Load()), stores[0])
		var keys, tokens atomic.Int64
		var wg sync.WaitGroup
		for g := range callers {
			wg.Go(func() {
				s := stores[g%3]
				for i := range 10 {
					// They share no cell, so that only the limit keeps them apart.
					for count, d := range map[*atomic.Int64]store.Delta{
						&keys: add(fmt.Sprintf("%d-%d", g, i), 1), &tokens: once(add(fmt.Sprint("old", g), 1), fmt.Sprint(i)),
					} {
						r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{d}})
						if err != nil {
							t.Error(err)
							return
						}
						switch o := r.Results[0].Outcome; o {
						case store.Applied:
							count.Add(1)
						case store.Full:
						default:
							t.Error(o.Err())
						}
					}
				}
			})
		}
		wg.Wait()
		if keys.Load() != left || tokens.Load() != left {
			t.Errorf("%s: %d keys and %d tokens were taken, want %d", name, keys.Load(), tokens.Load(), left)
		}
	}
	old := func(s *pgstore.Store) {
		for g := range callers {
			do(t, s, add(fmt.Sprint("old", g), 1))
		}
	}
	f("small", pgstore.Options{Limits: store.Limits{KeysMax: callers + 20, TokensMax: 20}}, 20, func(_ string, s *pgstore.Store) { old(s) })
	const many = 1 << 40
	f("large", pgstore.Options{Limits: store.Limits{KeysMax: many, TokensMax: many}}, 30, func(schema string, s *pgstore.Store) {
		old(s)
		if s.Margin() > many/2 {
			t.Fatalf("a margin of %d", s.Margin())
		}
		// As if so many were there.
		execute(t, fmt.Sprintf(`insert into %[1]s.space values ('default', 0, 40, %[2]d), ('default', 1, 40, %[3]d)`,
			schema, many-30-callers, many-30))
	})
}

// Callers that find no room, more than there are connections, leave one to make it
// with.
func TestFullPool(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	const n = 20
	s := open(t, server.URL(), pgstore.Options{
		Schema: newSchema(), MaxConns: 4, Now: func() time.Time { return time.UnixMilli(now.Load()) },
		Limits: store.Limits{TokensMax: n, TokenWindow: time.Second},
	})
	s.Still()
	for i := range n {
		do(t, s, once(add("k", 1), fmt.Sprint("old", i)))
	}
	now.Add(10_000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			d := once(add("k", 1), fmt.Sprint("new", i))
			if r, err := try(ctx, s, store.Batch{Deltas: []store.Delta{d}}); err != nil || r.Results[0].Outcome != store.Applied {
				t.Errorf("%d: %+v, %v", i, r.Results, err)
			}
		})
	}
	wg.Wait()
	holds(t, s, "k", 2*n)
	audited(t, s)
}

// What takes room and can't be removed, since another has it, is not waited for
// forever.
func TestRoomIsHeld(t *testing.T) {
	now := time.Now()
	o := pgstore.Options{Schema: newSchema(), Now: func() time.Time { return now }, Limits: store.Limits{TokensMax: 1, TokenWindow: time.Second}}
	s, conn := open(t, server.URL(), o), connect(t)
	s.Still()
	do(t, s, once(add("k", 1), "old"))
	now = now.Add(time.Minute)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.token for update`, o.Schema)); err != nil {
		t.Fatal(err)
	}
	if r := do(t, s, once(add("k", 1), "new"))[0]; r.Outcome != store.Full {
		t.Errorf("while the old token is held: %+v", r)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := do(t, s, once(add("k", 1), "new"))[0]; r.Outcome != store.Applied {
		t.Errorf("when it is not: %+v", r)
	}
}

// A sweep that itself finds no room does not begin another.
func TestSweepFindsNoRoom(t *testing.T) {
	now := time.Now()
	o := pgstore.Options{Schema: newSchema(), Now: func() time.Time { return now }}
	s := open(t, server.URL(), o)
	over := add("over", 1)
	over.Expiry, over.DeadlineMS = store.ExpirySet, now.UnixMilli()+1
	do(t, s, add("a", 1), add("b", 1), over)
	s.Still()
	now = now.Add(time.Second)
	o.Limits.KeysMax = 1 // fewer than there are
	less := open(t, server.URL(), o)
	less.Still()
	execute(t, fmt.Sprintf(`select %s.add('over', 1)`, o.Schema))
	holds(t, less, "over", 0)
	audited(t, less)
}

// One writer too many is refused, whoever comes with it.
func TestWritersAreExact(t *testing.T) {
	stores := several(t, 3, server.URL(), pgstore.Options{Limits: store.Limits{WritersMax: 7}})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for g := range 15 {
		wg.Go(func() {
			s := stores[g%3]
			w, err := store.Enlist(t.Context(), s)
			if err == nil {
				_, err = try(t.Context(), s, store.Batch{Writer: w, Seq: 1, Deltas: []store.Delta{add(fmt.Sprint("a", g), 1)}})
			}
			switch store.KindOf(err) {
			case store.KindOther:
				if err != nil {
					t.Error(err)
				}
				taken.Add(1)
			case store.KindFull:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 7 {
		t.Errorf("%d writers have marks, want 7", taken.Load())
	}
	if n, err := stores[0].Size(t.Context(), "default"); err != nil || n != 7 {
		t.Errorf("%d counters, %v; want 7", n, err)
	}
}

// A call that ends while its commit is on its way does not know what became of
// it. The same batch, sent again, does.
func TestCancelledCommit(t *testing.T) {
	schema := newSchema()
	s, conn := open(t, server.URL(), pgstore.Options{Schema: schema}), connect(t)
	do(t, s, add("a", 1))
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells for update`, schema)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error)
	go func() {
		_, err := try(ctx, s, store.Batch{Deltas: []store.Delta{add("a", 1)}})
		said <- err
	}()
	blocked(t, schema)
	cancel()
	if err := <-said; !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a call cancelled in its commit said %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := insist(t.Context(), s, store.Batch{Writer: w, Seq: 1, Deltas: []store.Delta{add("b", 1)}}); err != nil {
			t.Error(err)
		}
	}
	holds(t, s, "b", 1)
}

// blocked waits until somebody waits for a lock in a schema.
func blocked(t testing.TB, schema string) {
	t.Helper()
	conn := connect(t)
	for n := 0; n == 0; {
		err := conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where wait_event_type = 'Lock' and query like '%"' || $1 || '"%'`, schema).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
}
