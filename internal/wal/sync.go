package wal

import (
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// gatherMax is how often gather lets others go first. Larger limits showed no
// steady gain: BenchmarkCommit.
const gatherMax = 4

// syncer is what the one who writes and syncs has to himself: who is busy.
type syncer struct {
	file   vfs.File // the current segment
	header segmentHeader
	size   int64 // of the current segment, up to its last frame
	filled int64 // and with the zeros after that

	end      Position  // of what was written
	safe     Position  // of what was synced
	buffer   []byte    // of the frame in hand
	unsynced []*Frame  // written and not yet synced
	syncBy   time.Time // when they have to be; zero if there are none
}

// run is the syncer: it takes the open frame when someone needs it and nobody
// else takes it, writes it, and syncs if someone needs that. After an error
// nobody ever writes or syncs again: what a failed sync left on the disk can't be
// known, and a second one may succeed without having written a thing (I6).
func (l *Log) run() {
	defer close(l.done)
	for {
		f, need := l.take()
		switch {
		case need == 0: // a leader has failed
			return
		case f == nil:
			l.stop(l.writeClosing())
			return
		case !l.carry(f, need):
			return
		}
	}
}

// lead is what the syncer does, once, in the goroutine of a caller. It reports
// false if there is nothing to do, or someone else does it.
func (l *Log) lead() bool {
	if l.busy.Load() {
		return false
	}
	l.gather()
	l.mu.Lock()
	if l.busy.Load() || l.need < store.Written || l.gate.Load()&(gateClosing|gateStopped) != 0 {
		l.mu.Unlock()
		return false
	}
	f, need := l.begin(l.need)
	l.mu.Unlock()
	l.carry(f, need)
	return true
}

// begin takes the open frame for someone who is busy from now on. The caller
// holds l.mu.
func (l *Log) begin(need Level) (*Frame, Level) {
	l.busy.Store(true)
	l.need = 0
	return l.swap(), need
}

// carry commits a frame, and then is no longer busy. It reports false if that
// failed.
func (l *Log) carry(f *Frame, need Level) bool {
	err := l.commit(f, need)
	if err != nil {
		l.stop(err, f)
	}
	l.mu.Lock()
	l.keep(f)
	l.busy.Store(false)
	// The syncer goes on if there is more to do, or a time to wait for.
	more := l.need != 0 || !l.syncBy.IsZero() || !l.open.syncBy.IsZero() || l.gate.Load() != 0
	l.mu.Unlock()
	if more {
		l.signal()
	}
	return err == nil
}

// take waits until there is something to do, and takes the open frame. There is
// none when the log is to be closed and everything is synced; and no need, when
// it has stopped.
func (l *Log) take() (f *Frame, need Level) {
	for {
		l.gather()
		f, need, due := l.poll()
		if need != 0 || l.gate.Load()&gateStopped != 0 {
			return f, need
		}
		if due.IsZero() {
			<-l.wake
			continue
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// gather lets those append first who are about to. A sync wakes many callers at
// once, and many come back with their next record: taking the frame with the
// record of the first would have all others wait for one more sync. It ends as
// soon as nobody came, so one caller alone waits for nothing.
func (l *Log) gather() {
	size := -1
	for range gatherMax {
		l.mu.Lock()
		before := size
		size = len(l.open.Payload)
		wanted := l.need >= store.Written
		l.mu.Unlock()
		if !wanted || size == before {
			return
		}
		runtime.Gosched()
	}
}

// poll takes the open frame if there is something to do, and otherwise tells
// when there will be if nobody asks for anything; never, if due is zero.
func (l *Log) poll() (f *Frame, need Level, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy.Load() || l.gate.Load()&gateStopped != 0 {
		return nil, 0, due
	}
	need = l.need
	due = earliest(l.open.syncBy, l.syncBy)
	if !due.IsZero() && !time.Now().Before(due) {
		need = store.Synced
	}
	if l.gate.Load()&gateClosing != 0 {
		if need < store.Written && len(l.open.Payload) == 0 && len(l.unsynced) == 0 {
			l.shut()
			return nil, store.Synced, due
		}
		need = store.Synced
	}
	if need < store.Written {
		return nil, 0, due
	}
	f, need = l.begin(need)
	return f, need, due
}

// shut has everything refused that is not yet written. The caller holds l.mu.
func (l *Log) shut() {
	l.gate.Or(gateStopped)
	l.admit()
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// swap puts a fresh frame in the place of the open one. The caller holds l.mu.
func (l *Log) swap() *Frame {
	f := l.open
	l.open = l.newFrame(f.ID+1, f.end())
	if l.gate.Load()&gateFull != 0 {
		l.gate.And(^uint32(gateFull))
		l.admit()
	}
	return f
}

// admit wakes those who wait in Room. The caller holds l.mu.
func (l *Log) admit() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

func (l *Log) newFrame(id uint64, start Position) *Frame {
	buf := l.spare
	l.spare = nil
	if buf == nil {
		buf = make([]byte, frameHeaderBytes, bufferBytes)
	}
	return &Frame{ID: id, log: l, start: start, buffer: buf, Payload: buf[frameHeaderBytes:frameHeaderBytes]}
}

// commit writes a frame, and syncs everything written if that is needed.
func (l *Log) commit(f *Frame, need Level) error {
	if len(f.Payload) > 0 {
		if err := l.write(f); err != nil {
			return err
		}
	} else {
		l.buffer = f.buffer
	}
	l.unsynced = append(l.unsynced, f)
	l.written.Store(f.ID)
	f.release(store.Written)
	if need == store.Synced {
		return l.sync()
	}
	l.syncBy = earliest(l.syncBy, earliest(f.syncBy, time.Now().Add(l.o.SyncEvery)))
	return nil
}

func (l *Log) write(f *Frame) error {
	if len(f.Payload) > payloadBytesMax {
		return fmt.Errorf("write frame: %d bytes are over the limit of %d", len(f.Payload), payloadBytesMax)
	}
	if l.size > segmentHeaderBytes && l.size+int64(frameBytes(len(f.Payload))) > l.o.SegmentBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	b := sealFrame(f.bytes(), frameHeader{epoch: l.header.epoch, position: f.start, synced: l.safe}, l.header.checksum)
	if err := writeAt(l.file, b, l.size); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	l.size += int64(len(b))
	if err := l.fill(len(b)); err != nil {
		return err
	}
	l.end += Position(len(b))
	l.frames.Add(1)
	l.bytes.Add(uint64(len(b)))
	l.buffer = b
	return nil
}

// fill writes zeros after the last frame, if the next frames are likely to be
// short: then most of them change neither the length of the file nor its blocks,
// and a sync has only their bytes to write. A recycled segment has its length.
func (l *Log) fill(frame int) error {
	n := min(l.o.FillBytes, l.o.SegmentBytes-l.size)
	if l.header.recycled || l.size <= l.filled || int64(frame) > n/4 {
		return nil
	}
	if err := writeAt(l.file, make([]byte, n), l.size); err != nil {
		return fmt.Errorf("fill segment: %w", err)
	}
	l.filled = l.size + n
	return nil
}

// bytes returns the payload with room for the header before it.
func (f *Frame) bytes() []byte {
	n := frameHeaderBytes + len(f.Payload)
	if n <= cap(f.buffer) && &f.buffer[:n][frameHeaderBytes] == &f.Payload[0] {
		return f.buffer[:n]
	}
	// Appending has moved the payload. The larger buffer is kept, so this copy
	// is only made while frames get longer.
	b := make([]byte, n, frameHeaderBytes+cap(f.Payload)+frameAlign)
	copy(b[frameHeaderBytes:], f.Payload)
	return b
}

// keep takes back the buffer of a frame that was written. The caller holds l.mu: it
// is not taken for this between the write and the sync, as whoever has it then would
// have all callers of the frame wait.
func (l *Log) keep(f *Frame) {
	f.buffer, f.Payload = nil, nil
	if b := l.buffer; cap(b) >= frameHeaderBytes && cap(b) <= 2*l.o.FrameBytesMax+bufferBytes {
		l.spare = b[:frameHeaderBytes]
	}
	l.buffer = nil
}

// sync makes everything written durable, and says so.
func (l *Log) sync() error {
	if l.safe < l.end {
		began := time.Now()
		if err := l.file.SyncData(); err != nil {
			return fmt.Errorf("sync segment: %w", err)
		}
		l.syncs.Add(1)
		l.syncTime.Add(int64(time.Since(began)))
		l.safe = l.end
	}
	l.synced.Store(l.written.Load())
	for _, f := range l.unsynced {
		f.release(store.Synced)
	}
	clear(l.unsynced)
	l.unsynced = l.unsynced[:0]
	l.syncBy = time.Time{}
	return nil
}

// rotate starts the next segment. Everything before it is synced first, so
// that a segment vouches for all the ones before (I2).
func (l *Log) rotate() error {
	if err := l.sync(); err != nil {
		return err
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close segment: %w", err)
	}
	l.file = nil
	return l.startSegment(l.header.epoch)
}

// startSegment makes the segment that starts at the end of the log the current
// one.
func (l *Log) startSegment(epoch uint64) error {
	spare := l.files.spare()
	h := segmentHeader{recycled: spare != "", storeID: l.o.StoreID, epoch: epoch, start: l.end}
	f, err := l.files.create(h.start, h.encode(), spare)
	if err != nil {
		return err
	}
	l.file, l.header, l.size, l.filled = f, h, segmentHeaderBytes, 0
	l.files.add(h.start)
	return nil
}

// writeClosing writes the frame that vouches for everything (I5).
func (l *Log) writeClosing() error {
	if err := writeAt(l.file, closingFrame(l.header, l.end), l.size); err != nil {
		return fmt.Errorf("write closing frame: %w", err)
	}
	if err := l.file.SyncData(); err != nil {
		return fmt.Errorf("sync closing frame: %w", err)
	}
	return nil
}

// stop ends the log for good, because of an error or of Close, and wakes
// everyone, also those who wait for a frame in hand.
func (l *Log) stop(err error, inHand ...*Frame) {
	if l.file != nil {
		closeFile(l.file, &err)
	}
	if err != nil {
		l.cause.Store(&err)
	}
	l.mu.Lock()
	l.shut()
	inHand = append(inHand, l.open)
	l.mu.Unlock()
	for _, f := range append(l.unsynced, inHand...) {
		f.release(store.Written)
		f.release(store.Synced)
	}
	l.unsynced = nil
}
