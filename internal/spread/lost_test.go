package spread_test

import (
	"context"
	"math"
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// asked is a store that remembers of which cell it was asked last.
type asked struct {
	*memstore.Store
	of store.Cell
}

func (a *asked) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	a.of = c
	return a.Store.Lost(ctx, c, version, v)
}

// What a shard has told is judged by the shard, as long as the counter is split
// and when it is not any more.
func TestLost(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		under := &asked{Store: memstore.New(memstore.Options{Partitions: partitions})}
		s, c := server(t, under, lazy), cell("a")
		var told []uint64
		var took []store.Cell
		moved := 0
		write := func() {
			r := mustDo(t, s, add(c, 1))
			told, took = append(told, spread.Told(&r)), append(took, store.ShardCell(c, int(r.Shard)))
			if r.Shard > 0 {
				moved++
			}
		}
		check := func() {
			t.Helper()
			v := read(t, s, c)
			f := func(version uint64, want bool) {
				t.Helper()
				if is, err := s.Lost(t.Context(), c, version, v); err != nil || is != want {
					t.Fatalf("version %d of %+v: lost is %v, want %v; %v", version, v, is, want, err)
				}
			}
			for i, version := range told {
				f(version, false)
				if under.of != took[i] {
					t.Fatalf("%v was asked for a change of %v", under.of, took[i])
				}
				f(version+1<<45, true)
			}
		}
		write()
		split(t, s, c, 8)
		for range 100 {
			write()
		}
		if moved == 0 {
			t.Fatal("nothing went to a shard")
		}
		check()
		mustDo(t, s, want(add(c, 1)))
		holds(t, s, c, 102, 1)
		check()
		mustDo(t, s, store.Delta{Cell: c, Op: store.OpDelete})
		check()
	}
}

// A version that has no room for the number of its shard can't be judged.
func TestTold(t *testing.T) {
	f := func(version uint64, shard uint16, judged bool) {
		t.Helper()
		s := server(t, memstore.New(memstore.Options{}), lazy)
		told := spread.Told(&store.Result{Version: version, Shard: shard})
		lost, err := s.Lost(t.Context(), cell("a"), told, store.Value{})
		if err != nil || lost != judged {
			t.Errorf("version %#x of shard %d, told as %#x: judged %v, want %v; %v", version, shard, told, lost, judged, err)
		}
		if told&spread.OfShards != version&spread.OfShards {
			t.Errorf("version %#x of shard %d is told as %#x", version, shard, told)
		}
	}
	f(1, 0, true)
	f(1<<54, 0, true)
	f(spread.OfShards|1, 1, true)
	f(spread.OfShards|1<<55-1, hot.ShardsMax-1, true)
	f(spread.OfShards|1<<55, 1, false)
	f(math.MaxInt64, 1, false)
	f(spread.OfShards|1, 0, false)
}
