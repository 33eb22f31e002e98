package total_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// The first total of all is read and kept while an exact read is under way, which is
// told more: no later reader is told less.
func TestFirstTotal(t *testing.T) {
	for _, other := range []bool{false, true} { // there is a total of another counter
		synctest.Test(t, func(t *testing.T) {
			w := &way{Store: memstore.New(memstore.Options{})}
			db := over(t, w, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 10 * time.Second})
			mustAdd(t, db, "a", 1)
			if other {
				mustRead(t, db, "b")
			}
			late := make(chan struct{})
			w.hold(map[int]chan struct{}{0: late}, nil)
			var wg sync.WaitGroup
			wg.Go(func() {
				if c := mustRead(t, db, "a", quipu.Exact()); c.Value != 11 {
					t.Errorf("%+v", c)
				}
			})
			synctest.Wait()
			if c := mustRead(t, db, "a"); c.Value != 1 {
				t.Errorf("%+v", c)
			}
			mustAdd(t, db, "a", 10)
			close(late)
			wg.Wait()
			if c := mustRead(t, db, "a"); c.Value != 11 {
				t.Errorf("other=%v: told 11 exactly, and then %+v", other, c)
			}
		})
	}
}

// A list tells what the store has: no total tells less after it.
func TestListThenTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := over(t, &way{Store: memstore.New(memstore.Options{})}, quipu.Policy{Pattern: "*", Timing: quipu.Rollup, Interval: 10 * time.Second})
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a")
		mustAdd(t, db, "a", 10)
		p, err := db.List(t.Context(), "", quipu.ListOptions{})
		if err != nil || p.Counts[0].Value != 11 {
			t.Fatal(p, err)
		}
		if c := mustRead(t, db, "a"); c.Value < 11 {
			t.Errorf("a list told 11 (%+v), and then %+v", p.Counts[0], c)
		}
	})
}

// One who can't wait is told what the store has, of a counter of which no policy has
// a total kept, and a reader has: that one does not tell less after it.
func TestPeekThenTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := over(t, memstore.New(memstore.Options{}))
		mustAdd(t, db, "a", 1)
		mustRead(t, db, "a", quipu.MaxStaleness(time.Minute))
		mustAdd(t, db, "a", 10)
		var v [1]store.Value
		if !db.Port().Peek([]string{"a"}, v[:]) || v[0].N != 11 {
			t.Fatal(v)
		}
		if c := mustRead(t, db, "a", quipu.MaxStaleness(time.Minute)); c.Value < 11 {
			t.Errorf("told 11, and then %+v", c)
		}
	})
}
