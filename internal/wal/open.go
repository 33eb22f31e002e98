package wal

import (
	"fmt"
	"slices"
	"sync"

	"github.com/quipudb/quipu/store"
)

// Create makes a new, empty log that starts at a position: 0 for a new store,
// that of the checkpoint for a copy of one. Its epochs will be higher than the
// one given.
func Create(o Options, start Position, epoch uint64) error {
	d := directory{o.FS, o.Dir}
	if err := d.fs.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("create log directory: %w", err)
	}
	starts, _, err := d.list()
	if err != nil {
		return err
	}
	if len(starts) > 0 {
		return store.Errorf(store.KindInvalid, "create log: there is one in %s", d.path)
	}
	h := segmentHeader{storeID: o.StoreID, epoch: epoch, start: start}
	if err := d.store(start, h.encode()); err != nil {
		return err
	}
	return syncDir(d.fs, d.fs.PathDir(d.path))
}

// Recovery is what Open found.
type Recovery struct {
	Segments int      // there were
	Frames   int      // replayed
	Bytes    int64    // of the payloads replayed
	End      Position // where the log ended
	Epoch    uint64   // of this Open: one more than the highest found
	Clean    bool     // the log had been closed
	Cut      *Cut     // what was dropped at the end, nil if nothing
}

// A Cut is a torn end: bytes that were written, but never known to be synced.
type Cut struct {
	File   string
	Offset int64
	Bytes  int64
	Reason string
}

// Open replays the log from a position, makes durable what it replayed, and
// returns the log, ready for appending.
//
// Replay is called in order for every frame that has some of its payload at or
// after from, with the position of the payload's first byte. The payload is
// valid until replay returns. If replay fails, Open returns its error and has
// changed nothing.
//
// Open refuses, and changes nothing, unless the log is this store's and whole
// from that position up to everything that was ever known to be synced.
func Open(o Options, from Position, replay func(pos Position, payload []byte) error) (*Log, Recovery, error) {
	o = o.withDefaults()
	r := recovery{dir: directory{o.FS, o.Dir}, from: from, replay: replay}
	if err := r.scan(o.StoreID); err != nil {
		return nil, r.found, err
	}
	if err := r.repair(); err != nil {
		return nil, r.found, err
	}
	l := &Log{
		o:    o,
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	if l.mu = o.Lock; l.mu == nil {
		l.mu = new(sync.Mutex)
	}
	l.files.directory = r.dir
	l.files.starts = r.starts
	l.end, l.safe = r.found.End, r.found.End
	if err := l.startSegment(r.found.Epoch); err != nil {
		return nil, r.found, err
	}
	l.open = l.newFrame(1, l.end)
	go l.run()
	return l, r.found, nil
}

// A recovery is one Open under way.
type recovery struct {
	dir    directory
	from   Position
	replay func(Position, []byte) error

	starts []Position // of the segments
	litter []string   // files to remove
	found  Recovery
	last   []byte // the last segment up to the end of the log
}

// scan reads and replays everything. It changes nothing.
func (r *recovery) scan(storeID [16]byte) (err error) {
	if r.starts, r.litter, err = r.dir.list(); err != nil {
		return err
	}
	r.found.Segments = len(r.starts)
	if len(r.starts) == 0 {
		return store.Errorf(store.KindLost, "the log is missing: there is no segment in %s", r.dir.path)
	}
	if r.starts[0] > r.from {
		return store.Errorf(store.KindLost, "log segment missing: the first one is %s, but position %d is needed",
			r.dir.segment(r.starts[0]), r.from)
	}
	if err := r.checkHeaders(storeID); err != nil {
		return err
	}
	// The segments before the one that holds from do not matter.
	// Some of them may be missing: a crash can undo the removal of a segment
	// and not that of the next.
	first := len(r.starts) - 1
	for r.starts[first] > r.from {
		first--
	}
	for i := first; i < len(r.starts); i++ {
		if err := r.segment(i); err != nil {
			return err
		}
	}
	if r.pastEnd(r.found.End) {
		return store.Errorf(store.KindLost, "the end of the log is missing: %s, offset %d is position %d, but position %d is needed",
			r.dir.segment(r.starts[len(r.starts)-1]), len(r.last), r.found.End, r.from)
	}
	return nil
}

// pastEnd reports whether from lies past a log that ends at a position. The
// position of a byte not yet appended to an empty frame does not: it follows
// the header that the frame would have had.
func (r *recovery) pastEnd(end Position) bool { return r.from > end+frameHeaderBytes }

func (r *recovery) checkHeaders(storeID [16]byte) error {
	for _, start := range r.starts {
		h, err := r.dir.readHeader(start)
		if err != nil {
			return err
		}
		if h.storeID != storeID {
			return store.Errorf(store.KindCorrupt, "log segment %s, offset 0: it belongs to store %x, this is store %x",
				r.dir.segment(start), h.storeID, storeID)
		}
		if h.epoch < r.found.Epoch {
			return store.Errorf(store.KindCorrupt, "log segment %s, offset 0: epoch %d after epoch %d",
				r.dir.segment(start), h.epoch, r.found.Epoch)
		}
		r.found.Epoch = h.epoch
	}
	r.found.Epoch++
	return nil
}

// segment replays the i-th segment and judges where it ends.
func (r *recovery) segment(i int) error {
	start, limit := r.starts[i], ^Position(0)
	if i+1 < len(r.starts) {
		limit = r.starts[i+1]
	}
	b, err := r.dir.read(start, r.last)
	if err != nil {
		return err
	}
	h, err := r.dir.checkHeader(start, b)
	if err != nil {
		return err
	}
	c := newCursor(b, h, limit)
	for c.next() {
		at := c.frame.position + frameHeaderBytes
		if at+Position(len(c.payload)) <= r.from {
			continue
		}
		if err := r.replay(at, c.payload); err != nil {
			return err
		}
		r.found.Frames++
		r.found.Bytes += int64(len(c.payload))
	}
	r.last, r.found.End = b[:c.offset], c.position()
	if i+1 < len(r.starts) {
		return r.judgeInner(&c)
	}
	return r.judgeLast(&c)
}

// judgeInner refuses a segment that does not reach to the next one: that one
// was started when everything before it was synced (I2).
func (r *recovery) judgeInner(c *cursor) error {
	if c.position() == c.limit {
		return nil
	}
	kind := store.KindCorrupt
	if c.closed || allZero(c.b[c.offset:]) {
		kind = store.KindLost
	}
	if c.position() > c.limit {
		c.reason = "frames go on"
	}
	return store.Errorf(kind, "log segment %s, offset %d: %s at position %d, but the next segment starts at %d",
		r.dir.segment(c.header.start), c.offset, c.reason, c.position(), c.limit)
}

// judgeLast decides whether the log ends here or is damaged here.
func (r *recovery) judgeLast(c *cursor) error {
	if c.closed {
		r.found.Clean = true
		return nil
	}
	rest := c.rest()
	vouched, by := rest.vouched, fmt.Sprintf("the frame at offset %d", rest.by)
	if r.pastEnd(c.position()) && r.from > vouched {
		vouched, by = r.from, "the checkpoint"
	}
	switch name := r.dir.segment(c.header.start); {
	case rest.bytes == 0:
	case c.position() < vouched:
		return store.Errorf(store.KindCorrupt, "log segment %s, offset %d: %s at position %d, but %s says that all was synced up to %d",
			name, c.offset, c.reason, c.position(), by, vouched)
	default:
		r.found.Cut = &Cut{File: name, Offset: int64(c.offset), Bytes: int64(rest.bytes), Reason: c.reason}
	}
	return nil
}

// repair makes durable what was replayed. After a kill the end of the last
// segment may be in the page cache alone; after a failed sync the page cache
// may hold what the disk lacks, and syncing again would not write it. So the
// last segment is written anew, unless the closing frame says it was synced.
func (r *recovery) repair() error {
	for _, path := range r.litter {
		if err := r.dir.fs.Remove(path); err != nil {
			return fmt.Errorf("remove left file: %w", err)
		}
	}
	start := r.starts[len(r.starts)-1]
	if r.found.End == start {
		// It is empty: the segment to be started has its name and replaces it.
		r.starts = slices.Delete(r.starts, len(r.starts)-1, len(r.starts))
		return nil
	}
	if r.found.Clean {
		return nil
	}
	return r.dir.store(start, r.last)
}
