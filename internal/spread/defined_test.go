package spread

import (
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A server that has not heard of a book reads it when the store refuses a fold, and folds
// under it at once.
func TestFoldRenews(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		w := newTown(t, partitions, 2)
		w.write(0, store.Delta{Cell: subject, Op: store.OpAdd, N: 7})
		if ok, err := w.servers[0].split(t.Context(), subject, 4); !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.write(0, store.Delta{Cell: subject, Op: store.OpAdd, N: 3})
		w.publish(func() {})
		if err := w.servers[0].Fold(t.Context(), subject); err != nil {
			t.Error(err)
		}
		if id := w.ids[0].Load(); id != 1 {
			t.Errorf("the server knows book %d", id)
		}
		w.check(10)
	}
}

// A counter with views has few shards in a store of several partitions.
func TestViewedShards(t *testing.T) {
	for partitions, want := range map[int]int{1: hot.ShardsMax, 8: viewedMax} {
		w := newTown(t, partitions, 1)
		if n := w.servers[0].limits(subject).Max; n != hot.ShardsMax {
			t.Errorf("%d partitions: up to %d shards without views", partitions, n)
		}
		w.ids[0].Store(1)
		if n := w.servers[0].limits(subject).Max; n != want {
			t.Errorf("%d partitions: up to %d shards with views, want %d", partitions, n, want)
		}
	}
}

// A floor is raised in the partition that the batch is for, wherever its adds could go.
func TestFloorsStay(t *testing.T) {
	w := newTown(t, 8, 1)
	w.publish(func() {})
	w.ids[0].Store(1)
	w.write(0, store.Delta{Cell: subject, Op: store.OpAdd, N: 1})
	if ok, err := w.servers[0].split(t.Context(), subject, 2); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b := store.Batch{
		Partition: store.PartitionOf(subject, 8), Apart: true, Books: []store.Book{{Namespace: subject.Namespace, ID: 1}},
		Floors: []store.Floor{{Namespace: subject.Namespace, Kind: store.PartWindow, View: 1, Epoch: 8}},
		Deltas: []store.Delta{{Cell: subject, Op: store.OpAdd, N: 1}},
	}
	replies := make([]store.Reply, 1)
	if err := w.servers[0].Apply(t.Context(), []store.Batch{b}, replies); err != nil || replies[0].Err != nil {
		t.Fatal(err, replies[0].Err)
	}
	if n := w.part(subject, windowOf(1)); n != 0 {
		t.Errorf("the window holds %d, and is below the floor", n)
	}
}

// If some of the partitions that a batch goes to know a higher book, or do not keep a
// window, its other deltas are applied, and these say so by themselves.
func TestPartlyStale(t *testing.T) {
	f := func(name string, outcome store.Outcome, raise func(b *store.Batch)) {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, 8, 1)
			w.publish(func() {})
			w.ids[0].Store(1)
			w.write(0, store.Delta{Cell: subject, Op: store.OpAdd, N: 1})
			if ok, err := w.servers[0].split(t.Context(), subject, 2); !ok || err != nil {
				t.Fatal(ok, err)
			}
			event := func(n int64) store.Delta {
				return store.Delta{Cell: subject, Op: store.OpAdd, N: n, Event: &store.Event{Riders: ridersUnder(1, windowOf)}}
			}
			apply := func(deltas ...store.Delta) store.Reply {
				t.Helper()
				b := store.Batch{Partition: store.PartitionOf(subject, 8), Apart: true, Books: []store.Book{{Namespace: subject.Namespace, ID: 1}}, Deltas: deltas}
				replies := make([]store.Reply, 1)
				if err := w.servers[0].Apply(t.Context(), []store.Batch{b}, replies); err != nil {
					t.Fatal(err)
				}
				return replies[0]
			}
			if r := apply(event(1)); r.Err != nil || r.Results[0].Shard != 1 {
				t.Fatalf("%+v", r)
			}
			b := store.Batch{Partition: store.PartitionOf(store.ShardCell(subject, 1), 8)}
			raise(&b)
			if err := w.under.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
				t.Fatal(err)
			}
			// What takes away stays at home, whose partition knows nothing of it.
			r := apply(event(1), event(-1), event(1))
			var told []store.Outcome
			for i := range r.Results {
				told = append(told, r.Results[i].Outcome)
			}
			if r.Err != nil || !slices.Equal(told, []store.Outcome{outcome, store.Applied, outcome}) {
				t.Errorf("%+v, %v", told, r.Err)
			}
			if r := apply(event(1), event(1)); store.KindOf(r.Err) != store.KindOf(outcome.Err()) || len(r.Results) != 0 {
				t.Errorf("all of it is refused: %+v", r)
			}
		})
	}
	f("outdated", store.Outdated, func(b *store.Batch) { b.Books = []store.Book{{Namespace: subject.Namespace, ID: 2}} })
	f("late", store.Late, func(b *store.Batch) {
		b.Floors = []store.Floor{{Namespace: subject.Namespace, Kind: store.PartWindow, View: 1, Epoch: 8}}
	})
}
