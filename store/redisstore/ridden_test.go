package redisstore_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/redisstore"
)

// Batches of adds with riders, most of which the server applies alone, come to what the
// decider makes of them in memstore: results, cells, parts, and what is refused.
func TestRiddenAdds(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("QUIPU_SEED"), 10, 64)
	seed = cmp.Or(seed, rand.Uint64())
	defer func() {
		if t.Failed() {
			t.Logf("replay with QUIPU_SEED=%d go test ./store/redisstore -run TestRiddenAdds", seed)
		}
	}()
	for i := range uint64(20) {
		ridden(t, rand.New(rand.NewPCG(seed, i)))
	}
}

func ridden(t *testing.T, r *rand.Rand) {
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 1})}
	oracle := kit{t, memstore.New(memstore.Options{})}
	parts := []store.Part{
		window(7, 0), window(7, 60), window(8, 0), outside, held, member("eve"),
		store.PartFields{Kind: store.PartWindowDim, View: 2, Epoch: store.EpochForever, Name: "x"}.Part(),
	}
	number := func() int64 {
		return []int64{0, 1, 1, 2, -3, 1 << 40, 1<<53 + 1, 1 << 61, -1 << 61, 1 << 62, math.MaxInt64}[min(r.IntN(40), r.IntN(11))]
	}
	id := int64(1)
	event := func() store.Delta {
		d := store.Delta{Cell: cell(string('a' + byte(r.IntN(3)))), Op: store.OpAdd, N: number(), Want: r.IntN(2) == 0}
		if r.IntN(4) == 0 {
			d.Cell = store.ShardCell(d.Cell, 1)
		}
		if r.IntN(6) == 0 {
			return d
		}
		var riders []store.Rider
		if r.IntN(2) == 0 {
			riders = based(max(id-int64(r.IntN(2)), 1))
		}
		for range r.IntN(4) {
			x := applied(parts[r.IntN(len(parts))])
			if r.IntN(12) == 0 {
				x = rides(x.Part, number())
			}
			riders = append(riders, x)
		}
		if d = sharing(t, d, riders...); r.IntN(6) == 0 {
			d.Guard.Token, d.Guard.Digest = fmt.Sprint("t", r.IntN(9)), 1
		}
		return d
	}
	w, seq, mark := k.enlist(), uint64(0), store.Batch{}
	oracle.enlist()
	for range 40 {
		b := store.Batch{Apart: r.IntN(2) == 0}
		for range 1 + r.IntN(3) {
			b.Deltas = append(b.Deltas, event())
		}
		switch r.IntN(12) {
		case 0:
			id++
		case 1:
			b.Deltas = nil
			b.Floors = []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 1, Epoch: store.Epoch(6 + r.IntN(3))}}
		case 2:
			b.Deltas[0] = store.Delta{Cell: cell("a"), Op: store.OpDelete, Event: &store.Event{}}
		}
		if r.IntN(8) > 0 {
			b.Books = []store.Book{{Namespace: "n", ID: max(id-int64(r.IntN(8)/7), 1)}}
		}
		if numbered := r.IntN(2) == 0; numbered {
			b.Writer, b.Prev, b.Seq = w, seq, seq+1
		}
		if mark.Writer != 0 && r.IntN(8) == 0 {
			b = mark
			b.Books = nil
			for i := range b.Deltas { // a repeat is framed as it may be
				if b.Deltas[i].Event != nil {
					b.Deltas[i].Event = &store.Event{Riders: []store.Rider{line("x"), rides(held, 1)}}
				}
			}
		}
		got, err := k.try(t.Context(), b)
		want, wantErr := oracle.try(t.Context(), b)
		same := slices.EqualFunc(got.Results, want.Results, func(a, b store.Result) bool {
			a.Version, b.Version = min(a.Version, 1), min(b.Version, 1)
			return a == b
		})
		if store.KindOf(err) != store.KindOf(wantErr) || got.Mark != want.Mark || got.Replayed != want.Replayed || !same {
			t.Fatalf("%+v\nis %+v, %v\nwant %+v, %v", b, got, err, want, wantErr)
		}
		if err == nil && b.Writer != 0 && !got.Replayed {
			seq, mark = b.Seq, b
		}
		if got, want := k.rows(store.Rows{Namespace: "n"}, store.ScanMax), oracle.rows(store.Rows{Namespace: "n"}, store.ScanMax); !slices.Equal(got, want) {
			t.Fatalf("after %+v\nparts %+v\nwant %+v", b, got, want)
		}
		for _, key := range []string{"a", "b", "c"} {
			if got, want := k.read(key), oracle.read(key); got != want {
				t.Fatalf("%s is %d, want %d", key, got, want)
			}
		}
	}
	k.clean()
}
