package engine

import (
	"cmp"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableFile is the first part of the name of a table that is being written, in
// the directory of the disk. A number follows that is never used again while
// the process lives: Pebble links the file, and a name that is left over would
// be another name of one of its own files.
const tableFile = "checkpoint-"

// A rowWriter writes the rows of one checkpoint, in the order of their keys, to
// a table. After an error it does nothing.
type rowWriter struct {
	w        *sstable.Writer
	key, val []byte
	err      error
}

// value returns an empty buffer for a row's value.
func (t *rowWriter) value() []byte { return t.val[:0] }

func (t *rowWriter) set(kind byte, key, value []byte) {
	if t.err == nil {
		t.key = append(append(t.key[:0], kind), key...)
		t.err = t.w.Set(t.key, value)
	}
}

func (t *rowWriter) delete(kind byte, key []byte) {
	if t.err == nil {
		t.key = append(append(t.key[:0], kind), key...)
		t.err = t.w.Delete(t.key)
	}
}

// deleteRange deletes the rows from one up to before another. Ranges come in their order,
// which has nothing to do with that of the rows.
func (t *rowWriter) deleteRange(from, to []byte) {
	if t.err == nil {
		t.err = t.w.DeleteRange(from, to)
	}
}

// ingest has rows written to a table, makes it durable, and gives it to Pebble,
// which takes it as a whole: when ingest returns, all rows are on disk for good,
// and unless it returns nil, none is seen.
func (e *Engine) ingest(ctx context.Context, write func(*rowWriter) error) error {
	e.tables++
	path := e.o.FS.PathJoin(e.path(diskDir), fmt.Sprintf("%s%d.sst", tableFile, e.tables))
	f, err := e.o.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return diskError(err)
	}
	o := e.disks.MakeWriterOptions(0, e.db.TableFormat())
	// Synced now and then, so that the log never waits for a long sync of this.
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: 1 << 20})
	t := &rowWriter{w: sstable.NewWriter(objstorageprovider.NewFileWritable(f), o), val: make([]byte, 0, 64)}
	err = write(t)
	if err2 := cmp.Or(t.err, t.w.Close()); err == nil {
		err = diskErrorOrNil(err2)
	}
	if err == nil {
		err = diskErrorOrNil(e.db.Ingest(ctx, []string{path}))
	}
	if err != nil {
		_ = e.o.FS.Remove(path) // if that fails too, the next Open does it
	}
	return err
}
