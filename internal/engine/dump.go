package engine

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/wal"
)

// Dump writes the log of the store in a directory to w, a line for each frame
// and each record in it. It only reads, and needs no lock: the end of the log
// of a running store may be seen half written. A nil fs is the operating
// system's.
func Dump(fs vfs.FS, dir string, w io.Writer) error {
	if fs == nil {
		fs = vfs.Default
	}
	return wal.Dump(fs, fs.PathJoin(dir, logDir), func(f wal.FrameInfo) error {
		if f.Err != "" {
			_, err := fmt.Fprintf(w, "%s offset %d: %s\n", f.File, f.Offset, f.Err)
			return err
		}
		kind := "frame"
		if f.Close {
			kind = "closing frame"
		}
		if _, err := fmt.Fprintf(w, "%s offset %d: %s at %d, epoch %d, synced %d, %d bytes\n",
			f.File, f.Offset, kind, f.Position, f.Epoch, f.Synced, len(f.Payload)); err != nil {
			return err
		}
		return dumpRecords(w, f)
	})
}

func dumpRecords(w io.Writer, f wal.FrameInfo) error {
	for r := (reader{b: f.Payload}); len(r.b) > 0; {
		at := len(f.Payload) - len(r.b)
		text := describe(&r)
		if r.bad {
			text = "can't be decoded"
		}
		if _, err := fmt.Fprintf(w, "  +%d %s\n", at, text); err != nil {
			return err
		}
	}
	return nil
}

// describe reads one record and says what it is.
func describe(r *reader) string {
	cell := func() string {
		b := r.cell()
		if r.bad {
			return ""
		}
		c := decodeCell(b)
		return fmt.Sprintf("%q in %q", c.Key, c.Namespace)
	}
	switch kind := r.byte(); kind {
	case recTime:
		return "time " + time.UnixMilli(int64(r.uvarint())).UTC().Format(time.RFC3339Nano)
	case recAdd:
		return fmt.Sprintf("add %s %+d", cell(), r.varint())
	case recAgain:
		return fmt.Sprintf("add to the same %+d", r.varint())
	case recSet:
		return fmt.Sprintf("set %s %d", cell(), r.varint())
	case recDelete:
		return "delete " + cell()
	case recToken, recTokenAgain:
		return describeToken(r)
	case recBegin:
		return "writer " + strconv.FormatUint(r.uvarint(), 10)
	case recMark:
		seq, digest := r.uvarint(), r.fixed()
		return fmt.Sprintf("mark %d, digest %016x, %d results", seq, digest, len(r.results()))
	case recDeadline:
		return fmt.Sprintf("deadline %s %s", cell(), time.UnixMilli(int64(r.uvarint())).UTC().Format(time.RFC3339Nano))
	case recLayout:
		return fmt.Sprintf("layout %s %d", cell(), r.uvarint())
	case recObject:
		of, ms := cell(), r.until()
		if ms == 0 {
			return "object " + of
		}
		return fmt.Sprintf("object %s until %s", of, time.UnixMilli(ms).UTC().Format(time.RFC3339Nano))
	case recPlan:
		return fmt.Sprintf("plan of %x", r.plan())
	case recEvent:
		return fmt.Sprintf("event %s, plan %d, %+d", cell(), r.uvarint(), r.varint())
	case recEventAgain:
		return fmt.Sprintf("event of the same %+d", r.varint())
	case recPart:
		return describePart(r)
	case recBook:
		b := r.book()
		return fmt.Sprintf("book %d of %q", b.ID, b.Namespace)
	case recFloor:
		s := r.shelf()
		return fmt.Sprintf("floor %#x of parts of kind %#x, view %d of %q", uint32(r.epoch()), uint8(s.Kind), s.View, s.Namespace)
	case recLane:
		return "lane " + cell()
	case recAsk:
		return fmt.Sprintf("ask sketches %x", r.bytes(r.uvarint()))
	case recSkip:
		return "skip versions " + strconv.FormatUint(r.uvarint(), 10)
	case recRetire:
		return "retire writers up to " + strconv.FormatUint(r.uvarint(), 10)
	default:
		r.fail()
		return ""
	}
}

func describePart(r *reader) string {
	switch c := r.partChange(); c.op {
	case partAdd:
		return fmt.Sprintf("its part %x %+d", c.part, c.n)
	case partDelete:
		return fmt.Sprintf("its part %x deleted, was %d", c.part, c.n)
	case partTake:
		return fmt.Sprintf("its part %x taken into, registers %+d", c.part, c.n)
	case partMerge:
		return fmt.Sprintf("its part %x merged %+d", c.part, c.n)
	default:
		return fmt.Sprintf("its part %x put %d bytes, was %d", c.part, len(c.put), c.n)
	}
}

func describeToken(r *reader) string {
	key := r.bytes(r.uvarint())
	rec, ok := decodeToken(r.bytes(tokenBytes))
	cell, split := tokenCell(key)
	if !ok || !split || namespaceLen(cell) == 0 {
		r.fail()
		return ""
	}
	c, token := decodeCell(cell), key[len(appendToken(nil, cell, "")):]
	return fmt.Sprintf("token %q of %q in %q: outcome %d, digest %016x, %d to %d",
		token, c.Key, c.Namespace, rec.Result.Outcome, rec.Digest, rec.Result.Before, rec.Result.After)
}
