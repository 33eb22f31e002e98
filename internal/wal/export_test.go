package wal

// AppendTestFrame appends to the bytes of a segment the header of the frame
// that would come next, with a payload of n bytes of which none are there.
func AppendTestFrame(segment []byte, n uint32) []byte {
	h, err := decodeSegmentHeader(segment)
	if err != nil {
		panic(err)
	}
	f := frameHeader{
		length:   n,
		epoch:    h.epoch,
		position: h.start + Position(len(segment)-segmentHeaderBytes),
	}
	return append(segment, f.encode(h.checksum)...)
}
