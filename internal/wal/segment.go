package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

const (
	segmentSuffix = ".wal"   // a segment, named for its start
	tempSuffix    = ".tmp"   // a segment in the making
	spareSuffix   = ".spare" // a segment of no more use, kept to be overwritten

	// writeCategory is how a file system that tells writes apart counts ours.
	writeCategory vfs.DiskWriteCategory = "quipu-wal"
)

func segmentName(start Position) string { return fmt.Sprintf("%016x", uint64(start)) + segmentSuffix }

func parseSegmentName(name string) (start Position, ok bool) {
	var n uint64
	if _, err := fmt.Sscanf(name, "%016x", &n); err != nil {
		return 0, false
	}
	return Position(n), segmentName(Position(n)) == name
}

// A directory is where the segments are.
type directory struct {
	fs   vfs.FS
	path string
}

func (d directory) join(name string) string { return d.fs.PathJoin(d.path, name) }

// segment returns the path of the segment that starts at a position.
func (d directory) segment(start Position) string { return d.join(segmentName(start)) }

// list returns the start positions of the segments, lowest first, and the
// paths of other files of ours, which an ended process has left.
func (d directory) list() (starts []Position, litter []string, err error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, nil, fmt.Errorf("list log directory: %w", err)
	}
	for _, name := range names {
		if start, ok := parseSegmentName(name); ok {
			starts = append(starts, start)
		} else if strings.HasSuffix(name, segmentSuffix+tempSuffix) || strings.HasSuffix(name, segmentSuffix+spareSuffix) {
			litter = append(litter, d.join(name))
		}
	}
	slices.Sort(starts)
	return starts, litter, nil
}

// sync makes durable what was created, renamed and removed in the directory.
func (d directory) sync() error { return syncDir(d.fs, d.path) }

func syncDir(fs vfs.FS, path string) (err error) {
	f, err := fs.OpenDir(path)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	defer closeFile(f, &err)
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// create makes the segment that starts at a position with what is in it so
// far, and returns it open for appending. If there is a spare file it is
// overwritten instead of making a new one. The segment gets its name only when
// it is durable, so its header is never torn: a bad one was damaged later (I3).
func (d directory) create(start Position, content []byte, spare string) (vfs.File, error) {
	temp := d.segment(start) + tempSuffix
	var f vfs.File
	var err error
	if spare == "" {
		f, err = d.fs.Create(temp, writeCategory)
	} else {
		f, err = d.fs.ReuseForWrite(spare, temp, writeCategory)
	}
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	if err = d.publish(f, start, content); err != nil {
		closeFile(f, &err)
		return nil, err
	}
	return f, nil
}

func (d directory) publish(f vfs.File, start Position, content []byte) error {
	if err := writeAll(f, content); err != nil {
		return fmt.Errorf("write segment: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync segment: %w", err)
	}
	name := d.segment(start)
	if err := d.fs.Rename(name+tempSuffix, name); err != nil {
		return fmt.Errorf("rename segment: %w", err)
	}
	return d.sync()
}

// store makes a segment that nothing will be appended to.
func (d directory) store(start Position, content []byte) (err error) {
	f, err := d.create(start, content, "")
	if err != nil {
		return err
	}
	closeFile(f, &err)
	return err
}

// read returns the bytes of a segment, in buf if it has room.
func (d directory) read(start Position, buf []byte) (b []byte, err error) {
	f, err := d.fs.Open(d.segment(start))
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	defer closeFile(f, &err)
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat segment: %w", err)
	}
	b = slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read segment: %w", err)
	}
	return b, nil
}

// readHeader returns the header of the segment that starts at a position.
func (d directory) readHeader(start Position) (h segmentHeader, err error) {
	f, err := d.fs.Open(d.segment(start))
	if err != nil {
		return h, fmt.Errorf("open segment: %w", err)
	}
	defer closeFile(f, &err)
	b := make([]byte, segmentHeaderBytes)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return h, fmt.Errorf("read segment: %w", err)
	}
	return d.checkHeader(start, b[:n])
}

// checkHeader decodes the header of the segment that starts at a position.
func (d directory) checkHeader(start Position, b []byte) (segmentHeader, error) {
	h, err := decodeSegmentHeader(b)
	if err != nil {
		return h, store.Errorf(err.Kind, "log segment %s, offset 0: %s", d.segment(start), err.Detail)
	}
	if h.start != start {
		return h, store.Errorf(store.KindCorrupt, "log segment %s, offset 0: it is named for position %d, but starts at %d",
			d.segment(start), start, h.start)
	}
	return h, nil
}

// writeAll writes b. A write cut short is a failure.
func writeAll(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// writeAt writes b at an offset. A write cut short is a failure.
func writeAt(w io.WriterAt, b []byte, offset int64) error {
	n, err := w.WriteAt(b, offset)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// closeFile closes a file, and tells if that is the first thing to fail.
func closeFile(f vfs.File, err *error) {
	if cerr := f.Close(); cerr != nil && *err == nil {
		*err = fmt.Errorf("close file: %w", cerr)
	}
}
