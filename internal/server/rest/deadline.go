package rest

import (
	"context"
	"sync/atomic"
	"time"
)

// grains is how many deadlines there are in one timeout.
const grains = 50

// deadlines hands out contexts that end one timeout from now, or up to a
// fiftieth of it later. Calls that begin close together share a context: a
// context.WithTimeout for each would cost a timer, several allocations and a
// lock, half as much as all else that this package does for an increment
// (BenchmarkHandler).
//
// A shared context does not end when its caller goes away. That is meant: what
// a caller has sent is counted whether or not the connection lives to tell.
type deadlines struct {
	timeout time.Duration
	base    context.Context
	stop    context.CancelFunc
	current atomic.Pointer[deadline]
}

type deadline struct {
	ctx  context.Context
	last time.Time // calls that begin after it take a later one
}

func (d *deadlines) start(timeout time.Duration) {
	d.timeout = timeout
	d.base, d.stop = context.WithCancel(context.Background())
}

// from returns the context of a call that begins now.
func (d *deadlines) from(now time.Time) context.Context {
	if cur := d.current.Load(); cur != nil && now.Before(cur.last) {
		return cur.ctx
	}
	return d.next(now)
}

func (d *deadlines) next(now time.Time) context.Context {
	old := d.current.Load()
	grain := d.timeout / grains
	ctx, cancel := context.WithTimeout(d.base, d.timeout+grain)
	// It ends by its time or with the base, never before: others hold it.
	context.AfterFunc(ctx, cancel)
	d.current.CompareAndSwap(old, &deadline{ctx, now.Add(grain)}) // who loses the race keeps its own for one call
	return ctx
}
