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

// tableRows is how many rows a table has at most. When a table is complete Pebble makes
// its filter, in one go, which for so many takes some milliseconds.
const tableRows = 1 << 17

// A rowWriter writes the rows of one checkpoint, in the order of their keys, to
// tables. After an error it does nothing.
type rowWriter struct {
	e        *Engine
	w        *sstable.Writer // of the table at hand, or nil
	rows     int             // in it
	paths    []string        // of all tables
	key, val []byte
	err      error
}

// value returns an empty buffer for a row's value.
func (t *rowWriter) value() []byte { return t.val[:0] }

func (t *rowWriter) set(kind byte, key, value []byte) {
	if t.row(kind, key) {
		t.err = t.w.Set(t.key, value)
	}
}

func (t *rowWriter) delete(kind byte, key []byte) {
	if t.row(kind, key) {
		t.err = t.w.Delete(t.key)
	}
}

// row begins a row, and a table if need be. It reports false if there was an error.
func (t *rowWriter) row(kind byte, key []byte) bool {
	if t.rows == tableRows {
		t.end()
	}
	if t.err == nil && t.w == nil {
		t.begin()
	}
	t.rows++
	t.key = append(append(t.key[:0], kind), key...)
	return t.err == nil
}

// begin begins a table.
func (t *rowWriter) begin() {
	e := t.e
	e.tables++
	path := e.o.FS.PathJoin(e.path(diskDir), fmt.Sprintf("%s%d.sst", tableFile, e.tables))
	f, err := e.o.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.err = err
		return
	}
	// Synced now and then, so that the log never waits for a long sync of this.
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: 1 << 20})
	o := e.disks.MakeWriterOptions(0, e.db.TableFormat())
	t.w, t.rows, t.paths = sstable.NewWriter(objstorageprovider.NewFileWritable(f), o), 0, append(t.paths, path)
}

// end completes the table at hand, if there is one, and makes it durable.
func (t *rowWriter) end() {
	if t.w != nil {
		t.err = cmp.Or(t.err, t.w.Close())
		t.w, t.rows = nil, 0
	}
}

// ingest has rows written to tables, makes them durable, and gives them to Pebble,
// which takes them all at once: when ingest returns, all rows are on disk for good,
// and unless it returns nil, none is seen.
func (e *Engine) ingest(ctx context.Context, write func(*rowWriter) error) error {
	t := &rowWriter{e: e, val: make([]byte, 0, 64)}
	err := write(t)
	t.end()
	if err == nil {
		err = diskErrorOrNil(t.err)
	}
	if err == nil {
		err = diskErrorOrNil(e.db.Ingest(ctx, t.paths))
	}
	if err != nil {
		for _, path := range t.paths {
			_ = e.o.FS.Remove(path) // if that fails too, the next Open does it
		}
	}
	return err
}
