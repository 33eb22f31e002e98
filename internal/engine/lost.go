package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// A version is a position in the log, and what was skipped before it. Skipping
// makes it the position in all that there ever was in the place of this store:
// what is lost keeps its versions for itself, and nobody else has to be told
// which store, or which life of it, they are of.

// A span is versions from one up to, and without, another.
type span struct{ from, to uint64 }

const (
	// skippedVersions is more than can have been given out and then be lost when
	// a log was not closed.
	skippedVersions = 1 << 30

	// restoredVersions is how far the store that a backup is of may have gone on
	// after it.
	restoredVersions = 1 << 40

	// lostMax is how many spans are kept.
	lostMax = 64

	// headBytes is what a frame has before its first record. A log that begins
	// where a backup ends begins with a frame, where the other went on with one.
	headBytes = 40
)

// clockVersion returns the version with which a store begins that is made now.
// The log that was in its place before has lower ones, unless it wrote more than 16 bytes
// of log for each microsecond that it was there, or the clock was set back.
func clockVersion(now time.Time) uint64 {
	const origin = 1_577_836_800_000_000 // 2020: so versions stay below 2^53 until 2037
	return uint64(max(now.UnixMicro()-origin, 0)) * 16
}

// skip leaves out n versions where the first record of a frame is: what had them
// is lost. If there are too many spans, the oldest goes: sessions that were lost as many crashes ago
// are not told so any more. The first one stays, which is what was before the
// store was made. The lock is held, or nobody else has the engine yet.
func (e *Engine) skip(at wal.Position, n uint64) {
	s := span{from: e.version(at) - headBytes, to: e.version(at) + n}
	e.skipped += n
	if last := len(e.lost) - 1; last >= 0 && s.from-e.lost[last].to < headBytes {
		e.lost[last].to = s.to // between them is no frame, and so no change
		return
	}
	if len(e.lost) == lostMax {
		e.lost = slices.Delete(e.lost, 1, 2)
	}
	e.lost = append(e.lost, s)
}

// skipLost leaves out versions that somebody may have been told of, and that are
// not in this store: of changes of level memory or written, if the log was not
// closed; and of all that was done after the backup that this store is from.
func (e *Engine) skipLost(clean bool) error {
	n := uint64(skippedVersions)
	_, err := e.o.FS.Stat(e.path(restoredFile))
	restored := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if clean && !restored {
		return nil
	}
	e.mu.Lock()
	f := e.log.Begin()
	if !restored {
		e.unclosed = f.Pos()
	}
	if restored {
		// The same backup may have been restored before.
		n = restoredVersions
		if first := clockVersion(e.clock.Wall()) + n; first > e.version(f.Pos())+n {
			n = first - e.version(f.Pos())
		}
	}
	e.skip(f.Pos(), n)
	f.Payload = binary.AppendUvarint(append(f.Payload, recSkip), n)
	e.log.End(store.Synced)
	e.mu.Unlock()
	if err := f.Wait(context.Background(), store.Synced); err != nil || !restored {
		return err
	}
	if err := e.o.FS.Remove(e.path(restoredFile)); err != nil {
		return err
	}
	return syncDir(e.o.FS, e.dir)
}

// Lost reports whether a version is of a change that a crash took, or that was
// made after the backup this store is from, or in another store that was in its
// place before this one was made. Of more than lostMax crashes it knows the last.
func (e *Engine) Lost(ctx context.Context, _ store.Cell, version uint64, v store.Value) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, store.ErrClosed
	}
	for _, s := range e.lost {
		if s.from <= version && version < s.to {
			return true, nil
		}
	}
	if lacks, known := v.Lacks(version); known {
		return lacks, nil
	}
	end := e.log.Begin().Pos()
	e.log.End(store.Memory)
	return version >= e.version(end), nil
}
