package engine

import (
	"context"
	"runtime"

	"github.com/quipudb/quipu/store"
)

// EvictAlways makes the engine keep no cell in memory that it can do without.
func (e *Engine) EvictAlways() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cellsMax = 0
}

// EvictNow removes every cell from memory that the engine can do without.
func (e *Engine) EvictNow() {
	e.EvictAlways()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inserts = int(e.cells.slots)
	e.evict()
}

// ScanSlowly is ScanParts for a namespace. It calls f between finding parts and reading
// them.
func (e *Engine) ScanSlowly(ctx context.Context, namespace string, f func()) ([]store.Content, error) {
	low := appendNamespace([]byte{nsPart}, namespace)
	page, err := e.page(ctx, low, successor(low), store.ScanMax, false)
	if err != nil {
		return nil, err
	}
	f()
	contents := make([]store.Content, len(page.all))
	return contents, e.readLooks(ctx, page, contents)
}

// BeginFilter begins to make a filter of the keys on disk, and returns what fills it
// and puts it in the place of the one that is.
func (e *Engine) BeginFilter() (fill func()) {
	e.mu.Lock()
	live := e.names.live()
	e.mu.Unlock()
	return e.begins(&e.counters, live)
}

// BeginMembers is BeginFilter for the filter of members.
func (e *Engine) BeginMembers() (fill func()) { return e.begins(&e.members, 1000) }

func (e *Engine) begins(k *known, keys int) (fill func()) {
	if err := e.checkpointing.enter(context.Background()); err != nil {
		panic(err)
	}
	defer e.checkpointing.leave()
	k.blocksMax = 1 << 16
	return e.beginFilter(k, keys)
}

// AwaitFilter returns when no filter of keys is being made, and reports whether there is
// one; AwaitMembers does for that of members.
func (e *Engine) AwaitFilter() bool  { return e.awaits(&e.counters) }
func (e *Engine) AwaitMembers() bool { return e.awaits(&e.members) }

func (e *Engine) awaits(k *known) bool {
	for {
		e.mu.Lock()
		made, filling := k.filter != nil, k.filling != nil
		e.mu.Unlock()
		if !filling {
			return made
		}
		runtime.Gosched()
	}
}

// LimitFilter limits the size of the filter, and has the next checkpoint make another.
func (e *Engine) LimitFilter(blocks int) { e.limits(&e.counters, blocks) }

// LimitMembers limits the size of the filter of members. There is none until one is begun, or
// the store is opened again.
func (e *Engine) LimitMembers(blocks int) { e.limits(&e.members, blocks) }

func (e *Engine) limits(k *known, blocks int) {
	if err := e.checkpointing.enter(context.Background()); err != nil { // one under way may be copying the filter
		panic(err)
	}
	defer e.checkpointing.leave()
	e.awaits(k)
	e.setFilter(k, nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	k.blocksMax = blocks
}

// AwaitOverfull returns when writers have to wait for a checkpoint.
func (e *Engine) AwaitOverfull() {
	for {
		e.mu.Lock()
		over := e.overfull()
		e.mu.Unlock()
		if over {
			return
		}
		runtime.Gosched()
	}
}

// HeldBytes returns the memory that the table of cells holds, also that of
// entries that are free.
func (e *Engine) HeldBytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.cells
	return t.arena.bytes() + int64(len(t.pages))*pageSlots*slotBytes + int64(len(t.heads))*headPage*4
}

// BeginCheckpoint begins a checkpoint and returns what finishes it, so that
// something can happen in between.
func (e *Engine) BeginCheckpoint() (finish func(ctx context.Context, sweep bool) error) {
	c := e.beginOne()
	return func(ctx context.Context, sweep bool) error {
		defer e.checkpointing.leave()
		return e.finish(ctx, c, sweep)
	}
}

// StepCheckpoint begins a checkpoint and returns what writes it, and what publishes it
// then.
func (e *Engine) StepCheckpoint() (write, publish func() error) {
	c := e.beginOne()
	write = func() error { return e.write(context.Background(), c, false) }
	return write, func() error {
		defer e.checkpointing.leave()
		return e.publish(c)
	}
}

func (e *Engine) beginOne() *checkpoint {
	if err := e.checkpointing.enter(context.Background()); err != nil {
		panic(err)
	}
	c := e.newCheckpoint()
	e.mu.Lock()
	e.begin(c)
	e.mu.Unlock()
	return c
}

// Unlocked reports whether nobody holds the engine's lock.
func (e *Engine) Unlocked() bool {
	if !e.mu.TryLock() {
		return false
	}
	e.mu.Unlock()
	return true
}

// Collect removes the cells that have expired, as the background does.
func (e *Engine) Collect(ctx context.Context) error { return e.collect(ctx) }

// WatchClock reports jumps of the wall clock, as the background does.
func (e *Engine) WatchClock() { e.watchClock() }
