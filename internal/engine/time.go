package engine

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/store"
)

// now returns the store's time, which never falls: what has expired for one
// reader has expired for the next.
func (e *Engine) now() int64 {
	if now := e.clock.NowMS(); now > e.timeMS {
		e.timeMS, e.timeFrame = now, 0 // the next record says so
		e.told.Store(nil)
	}
	return e.timeMS
}

// nowUS returns the store's time as now or tick have told it last, in microseconds.
func (e *Engine) nowUS() int64 { return max(e.timeMS*1000, e.clock.US()) }

// NowMS returns the store's time. It asks for it once in a millisecond: every event does,
// and the lock is wanted for other things.
func (e *Engine) NowMS(store.Cell) int64 {
	if e.o.Now != nil { // as the tests have it
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.now()
	}
	since := time.Since(e.opened)
	if t := e.told.Load(); t != nil && since-t.since < time.Millisecond {
		return t.ms
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &told{since: since, ms: e.now()}
	e.told.Store(t)
	return t.ms
}

// told is the store's time, as it was so long after the store was opened.
type told struct {
	since time.Duration
	ms    int64
}

// keptTime is up to when the store's time is durable. It need not be known
// exactly, only never be too late: one frame is watched until it is synced, and
// then the next.
type keptTime struct {
	ms      int64
	frame   uint64 // the frame that is watched
	frameMS int64  // the time that it has
}

// logged notes that a frame has a time.
func (k *keptTime) logged(ms int64, frame, synced uint64) {
	if k.upTo(synced); k.frame == 0 {
		k.frame, k.frameMS = frame, ms
	}
}

// upTo returns the time that is durable when frames up to synced are.
func (k *keptTime) upTo(synced uint64) int64 {
	if k.frame != 0 && k.frame <= synced {
		k.ms, k.frame = max(k.ms, k.frameMS), 0
	}
	return k.ms
}

func (e *Engine) keptMS() int64 { return e.kept.upTo(e.log.Synced()) }

// keepTime makes the present time durable, so that what has expired by now has
// expired after a crash too, whatever the clock says then. It is called with the
// lock held and returns with it held.
func (e *Engine) keepTime(ctx context.Context) error {
	f := e.log.Begin()
	now := e.tick(f)
	e.log.End(store.Synced)
	e.mu.Unlock()
	err := f.Wait(ctx, store.Synced)
	e.mu.Lock()
	if err == nil {
		e.kept.ms = max(e.kept.ms, now)
	}
	return err
}

// startClock begins the store's time where the last process left it, or where the
// wall clock is by now. Of the time between nobody knows how much there really was,
// so tokens do not grow older by it. That is written down before anything is
// decided: the gap can't be told from time that has passed once it is in the log.
func (e *Engine) startClock() error {
	last := e.timeMS
	e.kept.ms = last
	gap := e.clock.Start(last)
	if off := e.clock.Off(); off < -clock.StepMax {
		e.o.Logger.Warn("the system clock is behind the time of the last change: the store's time runs at half speed until the clock has caught up",
			"by", -off)
	}
	if last == 0 || time.Duration(gap)*time.Millisecond <= clock.StepMax {
		return nil
	}
	e.gaps = e.gaps.With(clock.Gap{AtMS: last, ByMS: gap}, store.TokenKeptMS(e.o.Limits.TokenWindow))
	var m metaRow // of the last checkpoint, not of what was replayed since
	err := e.rows(rowMeta, func(_, value []byte) (ok bool) {
		m, ok = decodeMeta(value)
		return ok
	})
	if err != nil {
		return err
	}
	m.gaps = e.gaps
	return e.guarded(func() error {
		return e.ingest(context.Background(), func(t *rowWriter) error {
			t.set(rowMeta, nil, m.append(nil))
			return nil
		})
	})
}

// watchClock says when the wall clock has jumped.
func (e *Engine) watchClock() {
	e.mu.Lock()
	e.now()
	n, last := e.clock.Jumps()
	off := e.clock.Off()
	known := n == e.jumps
	e.jumps = n
	e.mu.Unlock()
	if known {
		return
	}
	e.o.Logger.Warn("the system clock jumped: the store's time follows slowly, so that nothing expires early",
		"by", last, "ahead of the store's time by", off)
}
