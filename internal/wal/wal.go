// Package wal is the log of the embedded engine. A write is acknowledged when
// the log has it.
//
// Callers append records to the open frame. One goroutine takes the whole
// frame, writes it and syncs it for all callers at once, while the next frame
// fills. That goroutine is the syncer, or one of the callers, which saves
// waking another. The log does not know the meaning of the records.
//
// If Wait of a frame returned nil and what it waited for was survived (a power
// loss for Synced, a kill for Written), Open replays the frame. Frames are
// replayed in order, each once, and only appended ones. Damage to data that was
// known to be on stable storage is refused, naming the place. A torn end is cut
// and reported. DESIGN.md explains this, and numbers the invariants that the
// comments cite.
package wal

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// A Position counts the bytes of frames since the store was made; segment
// headers and closing frames do not count. It only rises, over restarts too.
type Position uint64

// A Level is how safe a frame is, or has to be: store.Memory, store.Written or
// store.Synced. The zero value means Synced.
type Level = store.Durability

// Options say where the log is and how it runs.
type Options struct {
	FS      vfs.FS
	Dir     string   // the directory of the segments, and of nothing else
	StoreID [16]byte // carried by every segment; a segment with another one is refused

	// Lock, if not nil, is what the caller holds whenever it appends: Begin and
	// End are called with it held, and the log needs no lock of its own.
	Lock *sync.Mutex

	SegmentBytes  int64         // a segment this long is followed by a new one. Default 64 MiB
	FlushEvery    time.Duration // what only Memory asked for is synced this soon. Default 50 ms
	SyncEvery     time.Duration // what only Written asked for is synced this soon. Default 200 ms
	FillBytes     int64         // zeros that a new segment is filled with at a time, ahead of frames much shorter. Default 256 KiB
	FrameBytesMax int           // an open frame this long is full, see Room. Default 8 MiB
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.FillBytes == 0 {
		o.FillBytes = 256 << 10
	}
	if o.FlushEvery == 0 {
		o.FlushEvery = 50 * time.Millisecond
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = 200 * time.Millisecond
	}
	if o.FrameBytesMax == 0 {
		o.FrameBytesMax = 8 << 20
	}
	return o
}

const (
	flushBytes  = 1 << 20  // an open frame this long is written, whoever needs it
	bufferBytes = 64 << 10 // what a payload buffer starts with
)

// The bits of Log.gate.
const (
	gateFull    = 1 << iota // the open frame is full
	gateClosing             // Close was called
	gateStopped             // the log failed or is closed: no frame will be written again
)

// A Log is an open log. It is safe for concurrent use.
type Log struct {
	o Options

	written atomic.Uint64         // ids of frames
	synced  atomic.Uint64         // ids of frames
	gate    atomic.Uint32         // bits; 0 lets everyone pass Room
	cause   atomic.Pointer[error] // why the log failed

	wake chan struct{} // tells the syncer to look what there is to do; of capacity 1
	done chan struct{} // closed when the syncer has ended
	busy atomic.Bool   // someone writes and syncs, and has the syncer's fields; changes under mu

	mu    *sync.Mutex   // guards the fields below; held from Begin to End
	open  *Frame        // what is appended to
	need  Level         // what has to be done next, 0 if nothing
	spare []byte        // the payload buffer that is not in use, if any
	room  chan struct{} // closed when the open frame is no longer full; nil if nobody waits

	files files
	syncer
	meters
}

// A Frame is what is written and synced as one.
type Frame struct {
	ID      uint64 // rises by one from frame to frame in this process
	Payload []byte // append to it between Begin and End; not to be kept

	log    *Log
	start  Position
	buffer []byte        // Payload with room for the header before it, as long as Payload was not moved
	need   atomic.Uint32 // the highest Level asked for; rises under Log.mu
	syncBy time.Time     // when what only Memory asked for has to be synced; guarded by Log.mu

	mu     sync.Mutex       // guards the fields below
	waiter [2]chan struct{} // closed at the level Written and Synced; nil if nobody waits
	notify [2][]func(error) // called then
}

// Pos returns the position of the next byte to be appended to the payload. It
// is for the one who holds the log between Begin and End.
func (f *Frame) Pos() Position {
	return f.start + frameHeaderBytes + Position(len(f.Payload))
}

// end returns the position after the frame. An empty frame is not written.
func (f *Frame) end() Position {
	if len(f.Payload) == 0 {
		return f.start
	}
	return f.start + Position(frameBytes(len(f.Payload)))
}

// Room blocks while the open frame is full because the disk does not keep up.
// It fails if the context ends or the log has stopped. Room reserves nothing:
// a frame may end up longer than FrameBytesMax by what those append who passed
// Room at the same time.
func (l *Log) Room(ctx context.Context) error {
	// Fast path: BenchmarkAppendMemory.
	if l.gate.Load() == 0 {
		return nil
	}
	for {
		l.mu.Lock()
		gate := l.gate.Load()
		if gate != gateFull {
			l.mu.Unlock()
			if gate == 0 {
				return nil
			}
			return l.refusal()
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("wait for room in the log: %w", ctx.Err())
		}
	}
}

// Full reports whether Room would block or fail.
func (l *Log) Full() bool { return l.gate.Load() != 0 }

// refusal returns why a log that stopped, or is closing, takes nothing more.
func (l *Log) refusal() error {
	if err := l.Err(); err != nil {
		return store.Errorf(store.KindUnavailable, "log stopped: %w", err)
	}
	return store.ErrClosed
}

// Begin locks the log for appending and returns the open frame. The caller
// appends to its Payload and calls End, without blocking in between.
func (l *Log) Begin() *Frame {
	if l.o.Lock == nil {
		l.mu.Lock()
	}
	return l.open
}

// End unlocks the log. Synced and Written ask for the frame to be written, and
// Synced also to be synced: the caller has to Wait for it, or Notify and Flush.
// Memory leaves it to fill, for FlushEvery at most.
func (l *Log) End(need Level) {
	f := l.open
	// Fast path: BenchmarkAppendMemory.
	if need == store.Memory && f.need.Load() != 0 && len(f.Payload) < min(flushBytes, l.o.FrameBytesMax) {
		l.unlock()
		return
	}
	l.endSlow(f, need)
	l.unlock()
}

// unlock undoes what Begin did.
func (l *Log) unlock() {
	if l.o.Lock == nil {
		l.mu.Unlock()
	}
}

func (l *Log) endSlow(f *Frame, need Level) {
	if l.gate.Load()&gateStopped != 0 {
		f.Payload = f.Payload[:0] // nobody will write it
		return
	}
	need = orSynced(need)
	if len(f.Payload) >= l.o.FrameBytesMax {
		l.gate.Or(gateFull)
	}
	if len(f.Payload) >= min(flushBytes, l.o.FrameBytesMax) {
		need = max(need, store.Written)
		l.signal() // whoever waits for it, or nobody
	}
	if need == store.Memory {
		if len(f.Payload) == 0 {
			return
		}
		f.syncBy = time.Now().Add(l.o.FlushEvery)
		l.signal() // it has a time to wait for now
	}
	l.raise(f, need)
}

// raise asks for a level of a frame. The caller holds l.mu.
func (l *Log) raise(f *Frame, level Level) {
	if uint32(level) > f.need.Load() {
		f.need.Store(uint32(level))
		l.need = max(l.need, level)
	}
}

// want asks for a level of a frame.
func (f *Frame) want(level Level) {
	if f.need.Load() < uint32(level) {
		f.log.mu.Lock()
		f.log.raise(f, level)
		f.log.mu.Unlock()
	}
}

// Flush has done what End and Notify asked for: in this goroutine, if here is
// set and nobody else is at it, which takes as long as the disk does; else soon.
func (l *Log) Flush(here bool) {
	if !here || !l.lead() {
		l.urge()
	}
}

// urge wakes the syncer. Someone who is busy looks for more to do by himself,
// after whatever was asked for until now.
func (l *Log) urge() {
	if !l.busy.Load() {
		l.signal()
	}
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // it has not yet seen the last one
	}
}

// Wait returns nil when the frame has reached a level, which may be more than
// End asked for. If the context ends or the log fails first, the outcome is
// unknown. A caller whose context can't end does the work itself if nobody else
// does: waking another for it costs as much as a sync.
func (f *Frame) Wait(ctx context.Context, level Level) error {
	level = orSynced(level)
	for {
		if over, err := f.state(level); over {
			return err
		}
		f.want(level)
		if ctx.Done() == nil && f.log.lead() {
			continue
		}
		ch := f.reaches(level)
		if ch == nil {
			continue
		}
		f.log.urge()
		select {
		case <-ch:
		case <-ctx.Done():
			return store.Errorf(store.KindUnknown, "wait for the log: %w", ctx.Err())
		}
	}
}

// Notify calls fn when Wait would return, with what it would return: here, or in
// the goroutine that syncs, which fn must not hold up. Until Flush is called that
// may be never.
func (f *Frame) Notify(level Level, fn func(error)) {
	level = orSynced(level)
	f.want(level)
	f.mu.Lock()
	over, err := f.state(level)
	if !over { // whoever publishes the level takes f.mu afterwards
		w := &f.notify[level-store.Written]
		*w = append(*w, fn)
	}
	f.mu.Unlock()
	if over {
		fn(err)
	}
}

// state reports whether there is nothing more to wait for, and what came of it.
func (f *Frame) state(level Level) (over bool, err error) {
	l := f.log
	// The gate first: what reached its level before the log stopped keeps it.
	stopped := l.gate.Load()&gateStopped != 0
	var reached bool
	switch level {
	case store.Memory:
		reached = !stopped || f.ID <= l.synced.Load()
	case store.Written:
		reached = f.ID <= l.written.Load()
	default:
		reached = f.ID <= l.synced.Load()
	}
	switch {
	case reached:
		return true, nil
	case !stopped:
		return false, nil
	}
	if err := l.Err(); err != nil {
		return true, store.Errorf(store.KindUnknown, "log stopped: %w", err)
	}
	return true, store.ErrClosed
}

// reaches returns what is closed when the frame reaches a level or never will,
// and nil if that is so already.
func (f *Frame) reaches(level Level) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The syncer publishes a level, or stops the log, before it takes f.mu to
	// wake those who wait. So whoever sees neither here is woken.
	if over, _ := f.state(level); over {
		return nil
	}
	w := &f.waiter[level-store.Written]
	if *w == nil {
		*w = make(chan struct{})
	}
	return *w
}

// release wakes those who wait for a level.
func (f *Frame) release(level Level) {
	f.mu.Lock()
	w := &f.waiter[level-store.Written]
	if *w != nil {
		close(*w)
		*w = nil
	}
	fns := f.notify[level-store.Written]
	f.notify[level-store.Written] = nil
	f.mu.Unlock()
	if len(fns) == 0 {
		return
	}
	_, err := f.state(level)
	for _, fn := range fns {
		fn(err)
	}
}

// Written returns the highest frame id that was handed to the operating
// system. It only rises.
func (l *Log) Written() uint64 { return l.written.Load() }

// Synced returns the highest frame id on stable storage. It only rises, and
// has risen before those who wait for it wake.
func (l *Log) Synced() uint64 { return l.synced.Load() }

// Err returns why the log failed, or nil.
func (l *Log) Err() error {
	if err := l.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// Next returns where the next byte appended would go. It locks the log: between
// Begin and End, ask the frame's Pos.
func (l *Log) Next() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open.Pos()
}

// Close syncs everything, leaves a closing frame that vouches for it, and
// returns what went wrong. Closing again returns the same.
func (l *Log) Close() error {
	l.mu.Lock()
	l.gate.Or(gateClosing)
	l.admit()
	l.signal()
	l.mu.Unlock()
	<-l.done
	return l.Err()
}

func orSynced(level Level) Level {
	if level == store.DurabilityDefault {
		return store.Synced
	}
	return level
}
