package resp

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many scripts of one user wait, the first one of another is next but one.
func TestScriptTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newScriptTurns(2)
		for range 2 {
			if !turns.take(t.Context(), "ana") {
				t.Fatal("no free place")
			}
		}
		var mu sync.Mutex
		var order []string
		wait := func(user string) {
			go func() {
				if turns.take(t.Context(), user) {
					mu.Lock()
					order = append(order, user)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("ana")
		}
		wait("bob")
		wait("bob")
		wait("cy")
		for range 6 {
			turns.giveBack()
			synctest.Wait()
		}
		if want := []string{"ana", "bob", "cy", "ana", "bob", "ana"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}

		// A wait that ended takes no place, and a place that nobody waits for is free.
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if turns.take(soon, "ana") {
			t.Error("there was a third place")
		}
		turns.giveBack()
		turns.giveBack()
		if turns.free != 2 || len(turns.users) != 0 || len(turns.waiting) != 0 {
			t.Errorf("at the end: %+v", turns)
		}
	})
}

// A wait that ends when its place is given has the place, or leaves it to others.
func TestScriptTurnsEnd(t *testing.T) {
	turns := newScriptTurns(1)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*50*time.Microsecond)
			defer cancel()
			if turns.take(ctx, string(rune('a'+i%5))) {
				turns.giveBack()
			}
		})
	}
	all.Wait()
	if turns.free != 1 || len(turns.users) != 0 || len(turns.waiting) != 0 {
		t.Errorf("at the end: %+v", turns)
	}
}
