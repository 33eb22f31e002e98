package spread

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

var viewsSeed = flag.Uint64("views.seed", 0, "the seed of views; 0 takes a new one")

// A town is servers over one store that count with views, of which one comes with each
// book.
type town struct {
	*testing.T
	under   *memstore.Store
	servers []*Store
	ids     []atomic.Int64 // of the book that each server knows
	book    atomic.Int64   // the highest

	mu    sync.Mutex // guards the field below
	adds  []int64    // what was added under each book
	lines atomic.Int64

	sharded atomic.Int64 // events that a shard has taken
}

// viewsMax is how many books are published.
const viewsMax = 3

func newTown(t *testing.T, partitions, servers int) *town {
	w := &town{
		T: t, under: memstore.New(memstore.Options{Partitions: partitions, Shared: true}),
		ids: make([]atomic.Int64, servers), adds: make([]int64, viewsMax+1),
	}
	for i := range servers {
		id := &w.ids[i]
		s := New(open{w.under}, Options{
			Policy: func(store.Cell) Policy { return Policy{Limits: hot.Limits{Max: hot.ShardsMax, CoolDown: time.Hour}} },
			Every:  time.Hour,
			Book:   func(store.Cell) (int64, *store.Event) { n := id.Load(); return n, touchUnder(n) },
			Renew: func(context.Context, string, int64) error {
				id.Store(w.book.Load())
				return nil
			},
		})
		w.servers = append(w.servers, s)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return w
}

// open is a store that stays open when one of its servers is closed.
type open struct{ *memstore.Store }

func (open) Close() error { return nil }

// write makes a write on a server as definitions have it, and again if they have changed.
func (w *town) write(server int, d store.Delta) {
	w.Helper()
	line := store.Rider{
		Part: store.PartFields{Kind: store.PartEntries, View: 9, Epoch: 7}.Part(), Op: store.OpPut, Place: store.PlaceVersion, Bytes: []byte("x"),
	}
	for range 2 * viewsMax {
		b := store.Batch{Partition: store.PartitionOf(subject, w.under.Traits().Partitions), Deltas: []store.Delta{d}}
		id := w.ids[server].Load()
		if id > 0 {
			b.Books = []store.Book{{Namespace: subject.Namespace, ID: id}}
			each := windowOf
			if d.Op != store.OpAdd {
				each = outsideOf
			}
			b.Deltas[0].Event = &store.Event{Riders: append(ridersUnder(id, each), line)}
		}
		replies := make([]store.Reply, 1)
		err := w.servers[server].Apply(w.Context(), []store.Batch{b}, replies)
		switch {
		case err == nil && stale(replies):
			w.ids[server].Store(w.book.Load())
			continue
		case err != nil || replies[0].Err != nil || replies[0].Results[0].Outcome != store.Applied:
			w.Errorf("server %d, %+v: %v, %+v", server, d, err, replies[0])
			return
		}
		if id > 0 {
			w.lines.Add(1)
			w.sharded.Add(int64(min(replies[0].Results[0].Shard, 1)))
		}
		if d.Op == store.OpAdd {
			w.mu.Lock()
			w.adds[id] += d.N
			w.mu.Unlock()
		}
		return
	}
	w.Errorf("server %d: %+v is outdated for ever", server, d)
}

// publish raises the next book in one partition after the other. Between them do is
// called.
func (w *town) publish(do func()) {
	id := w.book.Add(1)
	for i := range w.under.Traits().Partitions {
		b := store.Batch{Partition: i, Books: []store.Book{{Namespace: subject.Namespace, ID: id}}}
		replies := make([]store.Reply, 1)
		if err := w.under.Apply(w.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil {
			w.Error(err, replies[0].Err)
		}
		do()
	}
}

// act has a server do something of chance, and returns by how much it changes the
// counter, or what it sets that to.
func (w *town) act(r *rand.Rand, server int) (change int64, sets bool) {
	s := w.servers[server]
	switch n := r.Int64N(9); r.IntN(12) {
	case 0:
		if _, err := s.split(w.Context(), subject, 2+r.IntN(6)); err != nil && store.KindOf(err) != store.KindOutdated && store.KindOf(err) != store.KindUnavailable {
			w.Error("split:", err)
		}
	case 1:
		if err := s.Fold(w.Context(), subject); err != nil && store.KindOf(err) != store.KindUnavailable {
			w.Error("fold:", err)
		}
	case 2:
		if err := s.look(w.Context()); err != nil && store.KindOf(err) != store.KindOutdated {
			w.Error("look:", err)
		}
	case 3:
		w.write(server, store.Delta{Cell: subject, Op: store.OpAdd, N: n, Want: true})
		return n, false
	case 4:
		w.write(server, store.Delta{Cell: subject, Op: store.OpAdd, N: -n})
		return -n, false
	case 5:
		if r.IntN(4) == 0 {
			w.write(server, store.Delta{Cell: subject, Op: store.OpDelete})
			return 0, true
		}
		w.write(server, store.Delta{Cell: subject, Op: store.OpSet, N: n})
		return n, true
	default:
		w.write(server, store.Delta{Cell: subject, Op: store.OpAdd, N: n, Lot: r.Uint32()})
		return n, false
	}
	return 0, false
}

// check checks the equations when nothing is under way: what a view has counted, that it
// adds up to the total with what is outside of it, and that there is a line for each write.
func (w *town) check(truth int64) {
	w.Helper()
	var v [1]store.Value
	if err := w.servers[0].Read(w.Context(), []store.Cell{subject}, v[:]); err != nil || v[0].N != truth {
		w.Fatalf("it reads %+v, %v, want %d", v[0], err, truth)
	}
	width := w.part(subject, partWidth)
	lines := 0
	var unbased [viewsMax + 1]int64
	var windows, outside [viewsMax + 1]int64
	for i := range hot.ShardsMax {
		c := store.ShardCell(subject, i)
		var own [1]store.Value
		if err := w.under.Read(w.Context(), []store.Cell{c}, own[:]); err != nil {
			w.Fatal(err)
		}
		for view := int64(1); view <= w.book.Load(); view++ {
			window, beside := w.part(c, windowOf(view)), w.part(c, outsideOf(view))
			if int64(i) > width && (window != 0 || beside != 0) {
				w.Errorf("shard %d has parts, and the width is %d", i, width)
			}
			windows[view] += window
			outside[view] += beside
			if w.part(c, partBook) < view && w.live(i, own[0]) {
				unbased[view] += own[0].N
			}
		}
		lines += w.entries(c)
	}
	if int64(lines) != w.lines.Load() {
		w.Errorf("%d lines of %d writes", lines, w.lines.Load())
	}
	for view := int64(1); view <= w.book.Load(); view++ {
		var added int64
		for _, n := range w.adds[view:] {
			added += n
		}
		if windows[view] != added {
			w.Errorf("view %d has counted %d, want %d", view, windows[view], added)
		}
		if sum := windows[view] + outside[view] + unbased[view]; sum != truth {
			w.Errorf("view %d adds up to %d (%d counted, %d outside, %d not yet), and the counter is %d", view, sum, windows[view], outside[view], unbased[view], truth)
		}
	}
}

// live reports whether home names shard i, which is v.
func (w *town) live(i int, v store.Value) bool {
	if i == 0 {
		return true
	}
	var home [1]store.Value
	if err := w.under.Read(w.Context(), []store.Cell{subject}, home[:]); err != nil {
		w.Fatal(err)
	}
	word, is := hot.Word(home[0].Layout), hot.Word(v.Layout)
	return word != 0 && i < word.Shards() && (is == hot.Open(word.Gen()) || is == hot.Open(word.Gen()).Fold())
}

func (w *town) part(c store.Cell, p store.Part) int64 {
	w.Helper()
	var got [1]store.Content
	if err := w.servers[0].ReadParts(w.Context(), []store.PartCell{{Cell: c, Part: p}}, got[:]); err != nil {
		w.Fatal(err)
	}
	return got[0].N
}

func (w *town) entries(c store.Cell) int {
	w.Helper()
	from := store.PartFields{Kind: store.PartEntries, View: 9, Epoch: 7}
	to := from
	to.Position = 1 << 62
	found, err := w.servers[0].ScanParts(w.Context(), store.RowsOf(c, from, to), store.ScanMax)
	if err != nil {
		w.Fatal(err)
	}
	return len(found)
}

// Whatever servers do to a counter while books are published, each view counts what was
// added under its book, and all else is outside of it.
func TestRandomViews(t *testing.T) {
	seed := cmp.Or(*viewsSeed, rand.Uint64())
	t.Logf("replay: go test ./internal/spread -run '^TestRandomViews$' -args -views.seed=%d", seed)
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			sharded := int64(0)
			defer func() {
				if sharded == 0 {
					t.Error("no shard has taken an event")
				}
			}()
			for round := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, round))
				w := newTown(t, partitions, 3)
				truth := int64(0)
				does := func() {
					if change, sets := w.act(r, r.IntN(3)); sets {
						truth = change
					} else {
						truth += change
					}
				}
				for range 60 {
					if r.IntN(20) == 0 && w.book.Load() < viewsMax {
						w.publish(does)
					}
					does()
					if w.check(truth); t.Failed() {
						t.Fatalf("round %d", round)
					}
				}
				sharded += w.sharded.Load()
			}
		})
	}
}

// The same while all of them act at once.
func TestViewsAtOnce(t *testing.T) {
	seed := cmp.Or(*viewsSeed, rand.Uint64())
	t.Logf("seed %d; it does not tell the order", seed)
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			w := newTown(t, partitions, 3)
			w.write(0, store.Delta{Cell: subject, Op: store.OpAdd, N: 1})
			sums := make([]int64, 6)
			var wg sync.WaitGroup
			for i := range sums {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 300 {
						kind := r.IntN(12)
						if kind < 3 {
							_, _ = w.servers[i%3].split(t.Context(), subject, 2+r.IntN(6))
							continue
						}
						if kind == 3 {
							_ = w.servers[i%3].look(t.Context())
							continue
						}
						d := store.Delta{Cell: subject, Op: store.OpAdd, N: r.Int64N(9), Want: kind == 4, Lot: r.Uint32()}
						w.write(i%3, d)
						sums[i] += d.N
					}
				})
			}
			for range viewsMax {
				w.publish(func() { w.write(1, store.Delta{Cell: subject, Op: store.OpAdd}) })
			}
			wg.Wait()
			truth := int64(1)
			for _, n := range sums {
				truth += n
			}
			for i := range w.servers {
				w.ids[i].Store(viewsMax)
			}
			w.check(truth)
			if !slices.ContainsFunc(w.servers, func(s *Store) bool { return s.meters.folds.Load() > 0 }) {
				t.Error("nothing was folded")
			}
		})
	}
}
