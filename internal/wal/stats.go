package wal

import (
	"sync/atomic"
	"time"
)

// Stats is what the log did since it was opened.
type Stats struct {
	Frames   uint64        // written
	Bytes    uint64        // of frames written, headers included
	Syncs    uint64        // of data; a frame that shared its sync counts nothing
	SyncTime time.Duration // spent in them
	Segments int           // there are now
}

type meters struct {
	frames, bytes, syncs atomic.Uint64
	syncTime             atomic.Int64
}

// Stats returns what the log did since it was opened.
func (l *Log) Stats() Stats {
	return Stats{
		Frames:   l.frames.Load(),
		Bytes:    l.bytes.Load(),
		Syncs:    l.syncs.Load(),
		SyncTime: time.Duration(l.syncTime.Load()),
		Segments: l.files.segments(),
	}
}
