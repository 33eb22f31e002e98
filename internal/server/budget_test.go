package server_test

import (
	"context"
	"errors"
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
