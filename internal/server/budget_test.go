package server_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// Who finds the budget used up waits in line until there is room, or its
// deadline comes.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := server.NewBudget(10)
		take := func(n int64, patience time.Duration) chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				took, err := b.Take(ctx, n)
				if err == nil && took != min(n, 10) {
					err = errors.New("it took another amount")
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		waits := func(done chan error) {
			t.Helper()
			synctest.Wait()
			if len(done) != 0 {
				t.Fatalf("it did not wait: %v", <-done)
			}
		}
		has := func(done chan error) {
			t.Helper()
			synctest.Wait()
			if len(done) == 0 {
				t.Fatal("it waits")
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		has(take(6, time.Hour))
		has(take(4, time.Hour))
		large := take(99, time.Hour) // more than there is: it goes alone
		small := take(1, time.Hour)
		b.Give(6)
		waits(large)
		waits(small) // behind the large one
		b.Give(4)
		has(large)
		waits(small)
		b.Give(10)
		has(small)

		hasty := take(10, time.Second)
		behind := take(9, time.Hour)
		<-time.After(2 * time.Second)
		if err := <-hasty; !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after its deadline: %v", err)
		}
		has(behind)
	})
}

// The line for memory has an end: a request that would be too far behind is
// refused at once.
func TestBudgetLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := server.NewBudget(10)
		all, err := b.Take(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var line sync.WaitGroup
		for range 1000 {
			line.Go(func() { _, _ = b.Take(ctx, 1) })
		}
		synctest.Wait()
		if _, err := b.Take(t.Context(), 1); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("at the end of a long line: %v", err)
		}
		cancel()
		line.Wait()
		b.Give(all)
		if n, err := b.Take(t.Context(), 10); n != 10 || err != nil {
			t.Errorf("after the line: %d, %v", n, err)
		}
	})
}
