package dbtest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu"
)

// parallels are the laws of many callers at once.
func parallels(s *suite) {
	const workers, each = 8, 50

	s.law("adds of many callers sum exactly", func(k *kit) {
		k.parallel(workers, func(w int) error {
			for i := range each {
				if _, err := k.db.Add(k.ctx, "one", int64(w+1)); err != nil {
					return err
				}
				if _, err := k.db.Add(k.ctx, fmt.Sprint("many", i%5), 1); err != nil {
					return err
				}
				_, err := k.db.AddBatch(k.ctx, []quipu.Event{{Key: "one", Delta: 1}, {Key: "two", Delta: -1}})
				if err != nil {
					return err
				}
			}
			return nil
		})
		k.holds("one", each*(workers*(workers+1)/2+workers))
		k.holds("two", -each*workers)
		for i := range 5 {
			k.holds(fmt.Sprint("many", i), workers*each/5)
		}
	})

	s.law("wanted values are unique and without a gap", func(k *kit) {
		var mu sync.Mutex
		seen := map[int64]bool{}
		k.parallel(workers, func(int) error {
			for range each {
				r, err := k.db.Add(k.ctx, "id", 1, quipu.WantValue())
				if err != nil {
					return err
				}
				mu.Lock()
				again := seen[r.Value]
				seen[r.Value] = true
				mu.Unlock()
				if again || r.Before != r.Value-1 {
					return fmt.Errorf("value %d (seen before: %v) came after %d", r.Value, again, r.Before)
				}
			}
			return nil
		})
		for v := range int64(workers * each) {
			if !seen[v+1] {
				k.Fatalf("nobody got %d", v+1)
			}
		}
		k.holds("id", workers*each)
	})

	s.law("of many who send one token, one counts", func(k *kit) {
		for i := range 20 {
			var firsts atomic.Int64
			k.parallel(workers, func(w int) error {
				token := fmt.Sprint("t", i)
				r, err := k.db.Add(k.ctx, "a", 1, quipu.Token(token), quipu.WantValue())
				if w%2 == 1 {
					var rs []quipu.Receipt
					rs, err = k.db.AddBatch(k.ctx, []quipu.Event{{Key: "a", Delta: 1, Token: token, WantValue: true}})
					if err == nil {
						r, err = rs[0], rs[0].Err
					}
				}
				if err != nil {
					return err
				}
				if !k.replayed(r) {
					firsts.Add(1)
				}
				if r.Value != int64(i+1) {
					return fmt.Errorf("%s returned %d, want %d", token, r.Value, i+1)
				}
				return nil
			})
			if n := firsts.Load(); n > 1 {
				k.Fatalf("token %d counted %d times", i, n)
			}
		}
		k.holds("a", 20)
	})

	s.law("resets and deletes that take the count lose no add", func(k *kit) {
		var taken atomic.Int64
		k.parallel(workers, func(w int) error {
			for i := range each {
				var r quipu.Receipt
				var err error
				switch {
				case w > 1:
					_, err = k.db.Add(k.ctx, "a", 1)
				case i%2 == 0:
					r, err = k.db.Reset(k.ctx, "a", quipu.WantValue())
				default:
					r, err = k.db.Delete(k.ctx, "a", quipu.WantValue())
				}
				if err != nil {
					return err
				}
				taken.Add(r.Before)
			}
			return nil
		})
		taken.Add(k.read("a", quipu.Exact()).Value)
		if got := taken.Load(); got != (workers-2)*each {
			k.Fatalf("%d adds were taken and left, want %d", got, (workers-2)*each)
		}
	})
}
