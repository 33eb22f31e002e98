package rest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that begin together share a context; none gets less than its timeout,
// nor more than a grain above it.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, grain = 5 * time.Second, 100 * time.Millisecond
		var d deadlines
		d.start(timeout)
		defer d.stop()
		first := d.from(time.Now())
		if d.from(time.Now()) != first {
			t.Error("two calls at one moment have two contexts")
		}
		for range 200 {
			begin := time.Now()
			ctx := d.from(begin)
			until, _ := ctx.Deadline()
			if left := until.Sub(begin); left < timeout || left > timeout+grain {
				t.Fatalf("deadline in %v", left)
			}
			<-time.After(7 * time.Millisecond)
		}
		begin := time.Now()
		ctx := d.from(begin)
		<-ctx.Done()
		if took := time.Since(begin); took < timeout || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", took, ctx.Err())
		}
		if d.from(time.Now()).Err() != nil {
			t.Error("a new call has a deadline in the past")
		}
	})
}

// Stop ends the contexts that are out.
func TestDeadlinesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		d.start(time.Hour)
		ctx := d.from(time.Now())
		d.stop()
		<-ctx.Done()
		if d.from(time.Now().Add(time.Minute)).Err() == nil {
			t.Error("a call after stop has time")
		}
	})
}
