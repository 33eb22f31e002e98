//go:build linux

package bare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"syscall"
	"unsafe"
)

const (
	headBytes  = 8         // of a frame: the length of its records, and their checksum
	deltaBytes = 8         // of a record, after the length of its key and the key
	fillBytes  = 256 << 10 // zeros written at a time
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A log is a file of frames, each of which is a turn of the loop. Zeros are
// written ahead of short ones, so that most syncs change nothing but the bytes of
// a frame.
//
//	frame   length uint32 | checksum uint32 | records
//	record  length of the key uint8 | key | delta int64
type log struct {
	file   *os.File
	fd     uintptr
	end    int64 // of the frames
	filled int64 // of the zeros
	zeros  []byte
	frame  []byte // of this turn, with room for its head
	last   int    // where its last record begins; 0 if there is none
}

// openLog opens a log, which may be new, and hands over its records. It ends
// before the first frame that is not whole.
func openLog(path string, record func(key []byte, delta int64) error) (*log, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &log{file: file, fd: file.Fd(), zeros: make([]byte, fillBytes), frame: make([]byte, headBytes, 1<<20)}
	for rest := text; len(rest) >= headBytes; rest = text[l.end:] {
		n := int(binary.LittleEndian.Uint32(rest))
		if n == 0 || n > len(rest)-headBytes || crc32.Checksum(rest[headBytes:headBytes+n], castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		for r := rest[headBytes : headBytes+n]; len(r) > 0; {
			key := r[1 : 1+r[0]]
			r = r[1+len(key):]
			if err := record(key, int64(binary.LittleEndian.Uint64(r))); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			r = r[deltaBytes:]
		}
		l.end += int64(headBytes + n)
	}
	// A torn frame follows, or zeros. A torn one must not come back.
	if err := file.Truncate(l.end); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	l.filled = l.end
	return l, file.Sync()
}

// add appends a record to this turn's frame. Adds to one counter that follow each
// other become one.
func (l *log) add(key []byte, delta int64) {
	if l.last > 0 {
		r := l.frame[l.last:]
		if n := int(r[0]); string(r[1:1+n]) == string(key) {
			at := r[1+n:]
			binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)+uint64(delta))
			return
		}
	}
	l.last = len(l.frame)
	l.frame = append(append(l.frame, byte(len(key))), key...)
	l.frame = binary.LittleEndian.AppendUint64(l.frame, uint64(delta))
}

// sync makes this turn's frame durable.
func (l *log) sync() error {
	if l.last == 0 {
		return nil
	}
	records := l.frame[headBytes:]
	binary.LittleEndian.PutUint32(l.frame, uint32(len(records)))
	binary.LittleEndian.PutUint32(l.frame[4:], crc32.Checksum(records, castagnoli))
	if l.end+int64(len(l.frame)) > l.filled && len(l.frame) <= fillBytes/4 {
		if err := l.write(l.zeros, l.end); err != nil {
			return err
		}
		l.filled = l.end + fillBytes
	}
	if err := l.write(l.frame, l.end); err != nil {
		return err
	}
	if _, errno := raw(syscall.SYS_FDATASYNC, l.fd, 0, 0, 0); errno != 0 {
		return fmt.Errorf("fdatasync: %w", errno)
	}
	l.end += int64(len(l.frame))
	l.frame, l.last = l.frame[:headBytes], 0
	return nil
}

func (l *log) write(b []byte, at int64) error {
	n, errno := raw(syscall.SYS_PWRITE64, l.fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(at))
	if errno != 0 || n < len(b) {
		return fmt.Errorf("write the log: %d of %d bytes: %w", n, len(b), errno)
	}
	return nil
}
