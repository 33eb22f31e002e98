package wal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/quipudb/quipu/store"
)

// This file alone knows the bytes. All integers are little endian, everything
// stands at a multiple of 8, and checksums are CRC-32C (Castagnoli).
//
// A segment is a header, then frames until the next segment's start:
//
//	0       8         10      12         16         32      40      48
//	┌───────┬─────────┬───────┬──────────┬──────────┬───────┬───────┐
//	│ magic │ version │ flags │ checksum │ store id │ epoch │ start │
//	└───────┴─────────┴───────┴──────────┴──────────┴───────┴───────┘
//
// The checksum is that of the 48 bytes with zeros in its own place. Magic,
// version and checksum keep place and meaning in all versions, so that a newer
// version is told from a damaged one.
//
// A frame is a header, then the payload, then zeros up to a multiple of 8:
//
//	0       2       4        8       16         24       32     36     40
//	┌───────┬───────┬────────┬───────┬──────────┬────────┬──────┬──────┐
//	│ magic │ flags │ length │ epoch │ position │ synced │ body │ head │
//	└───────┴───────┴────────┴───────┴──────────┴────────┴──────┴──────┘
//
// Body is the checksum of the payload and its padding. Head is that of the 36
// bytes before it, begun from the segment header's checksum: a frame is good
// in its own segment only, so bytes left from the file's earlier life, or
// written by a caller to look like a frame, are never taken for one. A frame
// in a segment that starts at position p stands at offset 48 + position - p,
// and has the segment's epoch.
const (
	segmentMagic       = "quipuwal"
	segmentVersion     = 1
	segmentHeaderBytes = 48

	// flagRecycled says that the file was another segment before: what stands
	// after the last frame may be left from that one.
	flagRecycled = 1

	frameMagic       = 0x4651 // "QF"
	frameHeaderBytes = 40
	frameAlign       = 8

	// flagClose marks the frame that a clean close leaves behind: without
	// payload, vouching for everything before it. It takes no room in the
	// numbering of positions, so that nothing depends on its own survival.
	flagClose = 1

	// payloadBytesMax keeps every length far from the limits of its field.
	payloadBytesMax = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A segmentHeader is the first thing in a segment file.
type segmentHeader struct {
	recycled bool
	storeID  [16]byte
	epoch    uint64
	start    Position
	checksum uint32 // set by encode and decode; the frames' checksums begin from it
}

func (h *segmentHeader) encode() []byte {
	b := make([]byte, segmentHeaderBytes)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint16(b[8:], segmentVersion)
	if h.recycled {
		binary.LittleEndian.PutUint16(b[10:], flagRecycled)
	}
	copy(b[16:], h.storeID[:])
	binary.LittleEndian.PutUint64(b[32:], h.epoch)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.start))
	h.checksum = crc32.Checksum(b, castagnoli)
	binary.LittleEndian.PutUint32(b[12:], h.checksum)
	return b
}

// decodeSegmentHeader decodes the header at the beginning of b.
func decodeSegmentHeader(b []byte) (segmentHeader, *store.Error) {
	if len(b) < segmentHeaderBytes {
		return segmentHeader{}, store.Errorf(store.KindCorrupt, "segment header cut short")
	}
	h := segmentHeader{
		storeID:  [16]byte(b[16:]),
		epoch:    binary.LittleEndian.Uint64(b[32:]),
		start:    Position(binary.LittleEndian.Uint64(b[40:])),
		checksum: binary.LittleEndian.Uint32(b[12:]),
	}
	b = bytes.Clone(b[:segmentHeaderBytes])
	clear(b[12:16])
	if string(b[:8]) != segmentMagic || crc32.Checksum(b, castagnoli) != h.checksum {
		return segmentHeader{}, store.Errorf(store.KindCorrupt, "bad segment header")
	}
	version, flags := binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint16(b[10:])
	if version > segmentVersion {
		return segmentHeader{}, store.Newer("it", int(version), segmentVersion)
	}
	if version < segmentVersion || flags&^flagRecycled != 0 {
		return segmentHeader{}, store.Errorf(store.KindCorrupt, "no such format: %d, flags %#x", version, flags)
	}
	h.recycled = flags&flagRecycled != 0
	return h, nil
}

// A frameHeader stands before each payload.
type frameHeader struct {
	flags    uint16
	length   uint32
	epoch    uint64
	position Position // of the header's first byte
	synced   Position // everything before it was on stable storage when the frame was written
	body     uint32
}

// size returns the bytes of the whole frame.
func (h frameHeader) size() int { return frameBytes(int(h.length)) }

func (h frameHeader) closes() bool { return h.flags&flagClose != 0 }

// frameBytes returns the bytes of a frame whose payload has n.
func frameBytes(n int) int {
	return frameHeaderBytes + (n+frameAlign-1)&^(frameAlign-1)
}

// encode returns the header. Seed is the checksum of the segment's header.
func (h frameHeader) encode(seed uint32) []byte {
	b := make([]byte, frameHeaderBytes)
	h.put(b, seed)
	return b
}

func (h frameHeader) put(b []byte, seed uint32) {
	binary.LittleEndian.PutUint16(b[0:], frameMagic)
	binary.LittleEndian.PutUint16(b[2:], h.flags)
	binary.LittleEndian.PutUint32(b[4:], h.length)
	binary.LittleEndian.PutUint64(b[8:], h.epoch)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.position))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.synced))
	binary.LittleEndian.PutUint32(b[32:], h.body)
	binary.LittleEndian.PutUint32(b[36:], crc32.Update(seed, castagnoli, b[:36]))
}

// sealFrame completes the frame in b, which begins with room for the header and
// goes on with the payload: it pads the payload and puts the header, with the
// length and the checksums filled in. Seed is the checksum of the segment's
// header.
func sealFrame(b []byte, h frameHeader, seed uint32) []byte {
	h.length = uint32(len(b) - frameHeaderBytes)
	b = append(b, make([]byte, h.size()-len(b))...)
	h.body = crc32.Checksum(b[frameHeaderBytes:], castagnoli)
	h.put(b, seed)
	return b
}

// closingFrame returns the frame that ends a segment at a position.
func closingFrame(h segmentHeader, end Position) []byte {
	f := frameHeader{flags: flagClose, epoch: h.epoch, position: end, synced: end}
	return f.encode(h.checksum)
}

// decodeFrameHeader decodes the header at the beginning of b. It looks at the
// header alone: the payload may be cut short or damaged.
func decodeFrameHeader(b []byte, seed uint32) (h frameHeader, ok bool) {
	if len(b) < frameHeaderBytes || binary.LittleEndian.Uint16(b) != frameMagic ||
		crc32.Update(seed, castagnoli, b[:36]) != binary.LittleEndian.Uint32(b[36:]) {
		return frameHeader{}, false
	}
	h = frameHeader{
		flags:    binary.LittleEndian.Uint16(b[2:]),
		length:   binary.LittleEndian.Uint32(b[4:]),
		epoch:    binary.LittleEndian.Uint64(b[8:]),
		position: Position(binary.LittleEndian.Uint64(b[16:])),
		synced:   Position(binary.LittleEndian.Uint64(b[24:])),
		body:     binary.LittleEndian.Uint32(b[32:]),
	}
	wellFormed := h.flags&^flagClose == 0 && h.closes() == (h.length == 0) &&
		h.length <= payloadBytesMax && h.synced <= h.position
	return h, wellFormed
}

// payload returns the payload of the frame at the beginning of b. It aliases b.
func (h frameHeader) payload(b []byte) (p []byte, ok bool) {
	if len(b) < h.size() {
		return nil, false
	}
	if crc32.Checksum(b[frameHeaderBytes:h.size()], castagnoli) != h.body {
		return nil, false
	}
	end := frameHeaderBytes + int(h.length)
	return b[frameHeaderBytes:end:end], true
}
