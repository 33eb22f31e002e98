package wal

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/quipudb/quipu/store"
)

// Check reads the files of the log again, from one position on, and returns an error
// unless they are whole up to another, up to which everything is known to be synced.
// Nothing may be released meanwhile.
//
// A log that is open is never read otherwise: it is only here that the end of it is
// missed if somebody has cut it off.
func (l *Log) Check(from, to Position) error {
	l.files.mu.Lock()
	starts := slices.Clone(l.files.starts)
	l.files.mu.Unlock()
	first := len(starts) - 1
	for first > 0 && starts[first] > from {
		first--
	}
	d := l.files.directory
	var buf []byte
	for i := first; i < len(starts); i++ {
		limit := ^Position(0)
		if i+1 < len(starts) {
			limit = starts[i+1]
		}
		var err error
		if buf, err = d.read(starts[i], buf); err != nil {
			kind := store.KindUnavailable // it may be there, and whole
			if errors.Is(err, fs.ErrNotExist) {
				kind = store.KindLost
			}
			return store.Errorf(kind, "read log segment: %w", err)
		}
		h, err := d.checkHeader(starts[i], buf)
		if err != nil {
			return err
		}
		c := newCursor(buf, h, limit)
		for c.next() {
		}
		if c.position()+frameHeaderBytes >= to {
			return nil
		}
		if c.position() < limit {
			return store.Errorf(store.KindLost, "log segment %s, offset %d: %s at position %d, but everything up to %d was synced",
				d.segment(starts[i]), c.offset, c.reason, c.position(), to)
		}
	}
	return nil
}
