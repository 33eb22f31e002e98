package wal

import (
	"bytes"
	"fmt"
)

// A cursor walks over the frames in the bytes of a segment.
type cursor struct {
	b      []byte
	header segmentHeader
	limit  Position // where the next segment starts, the highest there is if none does

	offset  int // of the next frame, or of what is none
	frame   frameHeader
	payload []byte // aliases b
	closed  bool   // it is the closing frame that stands at offset
	reason  string // what is wrong at offset
}

func newCursor(b []byte, h segmentHeader, limit Position) cursor {
	return cursor{b: b, header: h, limit: limit, offset: segmentHeaderBytes}
}

// position returns the position of what stands at the cursor.
func (c *cursor) position() Position {
	return c.header.start + Position(c.offset-segmentHeaderBytes)
}

// next moves over a good frame. It returns false at the limit, at the closing
// frame, at the end, and at the first bytes that are no frame of this place.
func (c *cursor) next() bool {
	if c.position() >= c.limit {
		return false
	}
	h, ok := c.peek()
	if !ok {
		return false
	}
	if h.closes() {
		c.frame, c.payload, c.closed, c.reason = h, nil, true, "closing frame"
		return false
	}
	p, ok := h.payload(c.b[c.offset:])
	if !ok {
		c.reason = "bad payload"
		if len(c.b)-c.offset < h.size() {
			c.reason = "frame cut short"
		}
		return false
	}
	c.frame, c.payload = h, p
	c.offset += h.size()
	return true
}

// peek returns the frame header at the cursor, if it is one of this place.
func (c *cursor) peek() (frameHeader, bool) {
	h, ok := decodeFrameHeader(c.b[c.offset:], c.header.checksum)
	switch {
	case c.offset == len(c.b):
		c.reason = "end of file"
	case !ok:
		c.reason = "bad frame header"
	case h.epoch != c.header.epoch:
		c.reason = fmt.Sprintf("frame of epoch %d in a segment of epoch %d", h.epoch, c.header.epoch)
	case h.position != c.position():
		c.reason = fmt.Sprintf("frame of position %d at position %d", h.position, c.position())
	default:
		return h, true
	}
	return frameHeader{}, false
}

// seek moves from what is not a good frame to the next frame header of its
// place, or to the end: by the length of the bad frame if at least its header
// is good, else by looking wherever one could be.
func (c *cursor) seek() bool {
	step := frameAlign
	if h, ok := c.peek(); ok {
		step = h.size()
	}
	for c.offset += step; c.offset < len(c.b); c.offset += frameAlign {
		if h, ok := c.peek(); ok {
			c.frame = h
			return true
		}
	}
	c.offset = len(c.b)
	return false
}

// A rest is what stands at and after a cursor that next can't move.
type rest struct {
	bytes   int      // up to the end of the file; 0 if there is nothing of note
	vouched Position // the highest position that a frame in it knew to be synced
	by      int      // the offset of that frame
}

// rest looks at what is left. After the end of a recycled segment stands what
// is left from its earlier life, and after that of a new one stand zeros: that is
// of no note.
func (c *cursor) rest() (r rest) {
	ahead := *c
	_, noted := ahead.peek()
	for ahead.seek() {
		noted = true
		if ahead.frame.synced > r.vouched {
			r.vouched, r.by = ahead.frame.synced, ahead.offset
		}
	}
	if noted || !c.header.recycled && !allZero(c.b[c.offset:]) {
		r.bytes = len(c.b) - c.offset
	}
	return r
}

func allZero(b []byte) bool {
	return len(bytes.TrimLeft(b, "\x00")) == 0
}
