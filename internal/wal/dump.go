package wal

import "github.com/cockroachdb/pebble/v2/vfs"

// FrameInfo is a frame as Dump found it, or bytes that are none.
type FrameInfo struct {
	File     string
	Offset   int64
	Bytes    int64 // of the whole frame, or of what is none
	Epoch    uint64
	Position Position
	Synced   Position
	Close    bool   // a closing frame
	Payload  []byte // only valid until visit returns
	Err      string // what is wrong with the bytes; "" if nothing
}

// Dump visits all frames of the log in a directory, good and bad, in order. It
// changes nothing, and stops at the first error of visit.
func Dump(fs vfs.FS, dir string, visit func(FrameInfo) error) error {
	d := directory{fs, dir}
	starts, _, err := d.list()
	if err != nil {
		return err
	}
	var buf []byte
	for _, start := range starts {
		if buf, err = d.read(start, buf); err != nil {
			return err
		}
		if err := dumpSegment(d.segment(start), start, buf, visit); err != nil {
			return err
		}
	}
	return nil
}

func dumpSegment(name string, start Position, b []byte, visit func(FrameInfo) error) error {
	h, herr := decodeSegmentHeader(b)
	if herr != nil {
		return visit(FrameInfo{File: name, Bytes: int64(len(b)), Position: start, Err: herr.Detail})
	}
	c := newCursor(b, h, ^Position(0))
	for {
		info := FrameInfo{File: name, Offset: int64(c.offset), Position: c.position()}
		switch {
		case c.next():
			info.fill(&c)
		case c.closed:
			info.fill(&c)
			c.closed = false
			c.offset += c.frame.size()
		case c.rest().bytes == 0:
			return nil
		default:
			info.Err = c.reason
			c.seek()
		}
		info.Bytes = int64(c.offset) - info.Offset
		if err := visit(info); err != nil {
			return err
		}
	}
}

func (i *FrameInfo) fill(c *cursor) {
	i.Epoch, i.Synced, i.Close, i.Payload = c.frame.epoch, c.frame.synced, c.frame.closes(), c.payload
}
