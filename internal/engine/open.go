package engine

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// The files of a store.
const (
	identityFile = "QUIPU"
	lockFile     = "LOCK"
	logDir       = "log"
	diskDir      = "disk"
)

// formatVersion is the version of the store as a whole: the rows on disk and
// the log records. The log's frames have one of their own.
const formatVersion = 1

// Open opens the store in a directory, or makes one if the directory is empty
// or does not exist. It replays the log behind the last checkpoint, and
// refuses a store that is damaged, incomplete, in use, or of a newer format.
func Open(dir string, o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := makeDir(o.FS, dir); err != nil {
		return nil, store.Errorf(store.KindUnavailable, "make directory %s: %w", dir, err)
	}
	lock, err := o.FS.Lock(o.FS.PathJoin(dir, lockFile))
	if err != nil {
		return nil, store.Errorf(store.KindUnavailable, "lock %s: %w: is another process using it?", dir, err)
	}
	e := &Engine{
		o: o, dir: dir, lock: lock,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), room: make(chan struct{}),
		cells: newTable(0), tokens: newTable(tokenBytes),
		marks: newMarks(), names: namespaces{}, near: newNear(),
		dirtyBit: dirty0, cellsMax: o.Memory / cellShare,
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.release())
	}
	return e, nil
}

func (e *Engine) open() error {
	made, err := e.identify()
	if err != nil {
		return err
	}
	if !made {
		if err := e.create(); err != nil {
			return fmt.Errorf("create store in %s: %w", e.dir, err)
		}
	}
	if err := e.removeLeftovers(); err != nil {
		return err
	}
	position, err := e.openDisk()
	if err != nil {
		return err
	}
	e.timer = time.AfterFunc(time.Hour, e.wake)
	e.timer.Stop()
	began := time.Now()
	log, found, err := wal.Open(e.logOptions(), position, e.replayer(position))
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	e.log, e.epoch = log, found.Epoch
	e.saved, e.spaceAt = position, position
	e.meters.recoveredBytes, e.meters.recoveredFrames = uint64(found.Bytes), uint64(found.Frames)
	e.checkSpace()
	if found.Frames > 0 || found.Cut != nil {
		e.o.Logger.Info("recovered", "frames", found.Frames, "bytes", found.Bytes, "took", time.Since(began))
	}
	if c := found.Cut; c != nil {
		e.o.Logger.Warn("dropped the torn end of the log: nothing in it was acknowledged as synced",
			"file", c.File, "offset", c.Offset, "bytes", c.Bytes, "reason", c.Reason)
	}
	e.done.Add(1)
	go e.background()
	if e.due() {
		e.wake()
	}
	return nil
}

func (e *Engine) path(name string) string { return e.o.FS.PathJoin(e.dir, name) }

func (e *Engine) logOptions() wal.Options {
	return wal.Options{FS: e.o.FS, Dir: e.path(logDir), StoreID: e.id, SegmentBytes: e.o.SegmentBytes}
}

// identify reads the identity file. It is the last thing that making a store
// makes, so a store without one was never used.
func (e *Engine) identify() (made bool, err error) {
	f, err := e.o.FS.Open(e.path(identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, store.Errorf(store.KindUnavailable, "open %s: %w", e.path(identityFile), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err = errors.Join(err, f.Close()); err != nil {
		return false, store.Errorf(store.KindUnavailable, "read %s: %w", e.path(identityFile), err)
	}
	var format int
	var id, sum string
	if _, err := fmt.Sscanf(string(b), identityText, &format, &id, &sum); err != nil {
		return false, store.Errorf(store.KindCorrupt, "%s, offset 0: not the identity of a store: %w", e.path(identityFile), err)
	}
	if format > formatVersion {
		return false, store.Errorf(store.KindUnsupported, "%s was written by a newer Quipu: format %d, this one reads up to %d",
			e.dir, format, formatVersion)
	}
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(e.id) || string(b) != identity(format, storeID(raw)) {
		return false, store.Errorf(store.KindCorrupt, "%s, offset 0: damaged", e.path(identityFile))
	}
	e.id = storeID(raw)
	return true, nil
}

const identityText = "quipu store\nformat %d\nid %s\nsum %s\n"

func identity(format int, id storeID) string {
	text := fmt.Sprintf(identityText, format, hex.EncodeToString(id[:]), "")
	return fmt.Sprintf(identityText, format, hex.EncodeToString(id[:]), fmt.Sprintf("%016x", xxh3.HashString(text)))
}

// create makes a new store. What an earlier try left behind is removed, but
// only if it never was a store: if there is a log with something in it, the
// identity file was lost.
func (e *Engine) create() error {
	names, err := e.o.FS.List(e.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case lockFile, identityFile + ".tmp":
		case logDir, diskDir:
			if err := e.unused(); err != nil {
				return err
			}
			if err := e.o.FS.RemoveAll(e.path(name)); err != nil {
				return err
			}
		default:
			return store.Errorf(store.KindInvalid, "%s is neither empty nor a store: it has %s", e.dir, name)
		}
	}
	if _, err := io.ReadFull(rand.Reader, e.id[:]); err != nil {
		return err
	}
	if err := wal.Create(e.logOptions(), 0, 1); err != nil {
		return err
	}
	db, err := pebble.Open(e.path(diskDir), e.diskOptions())
	if err != nil {
		return err
	}
	err = db.Set([]byte{rowMeta}, e.appendMeta(nil, 0), pebble.NoSync)
	if err = errors.Join(err, db.Flush(), db.Close()); err != nil {
		return err
	}
	return writeFile(e.o.FS, e.dir, identityFile, []byte(identity(formatVersion, e.id)))
}

// unused returns an error if there is a log that has been written to.
func (e *Engine) unused() error {
	used := errors.New("used")
	err := wal.Dump(e.o.FS, e.path(logDir), func(wal.FrameInfo) error { return used })
	if errors.Is(err, used) {
		return store.Errorf(store.KindLost, "%s is missing, but there is a log in %s", e.path(identityFile), e.path(logDir))
	}
	return nil
}

// makeDir makes a directory that is still there after a power loss.
func makeDir(files vfs.FS, dir string) error {
	if _, err := files.Stat(dir); err == nil {
		return nil
	}
	parent := files.PathDir(dir)
	if parent != dir {
		if err := makeDir(files, parent); err != nil {
			return err
		}
	}
	if err := files.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(files, parent)
}

// writeFile makes a small file that is there as a whole or not at all.
func writeFile(files vfs.FS, dir, name string, b []byte) error {
	path := files.PathJoin(dir, name)
	f, err := files.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := files.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(files, dir)
}

func (e *Engine) diskOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                    e.o.FS,
		DisableWAL:            true,
		FormatMajorVersion:    pebble.FormatNewest,
		Logger:                diskLogger{e},
		CacheSize:             e.o.Memory / blockCacheShare,
		MemTableSize:          4 << 20,
		L0CompactionThreshold: 4,
		MaxOpenFiles:          500,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// diskLogger passes on what Pebble has to say.
type diskLogger struct{ e *Engine }

func (d diskLogger) Infof(format string, args ...any) {
	d.e.o.Logger.Debug("disk: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (d diskLogger) Errorf(format string, args ...any) {
	d.e.o.Logger.Error("disk: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Fatalf is called when Pebble can't go on writing, and must not return. It
// stops the goroutine that called, for good: no checkpoint will end any more,
// so writes are refused, but what is durable can still be read.
func (d diskLogger) Fatalf(format string, args ...any) {
	err := store.Errorf(store.KindUnavailable, "the disk failed: %s; restart when it is well again", fmt.Sprintf(format, args...))
	d.e.failed.CompareAndSwap(nil, &err)
	d.e.o.Logger.Error("the disk failed", "error", err)
	select {}
}

// appendMeta encodes what a checkpoint says of the store.
func (e *Engine) appendMeta(dst []byte, position wal.Position) []byte {
	dst = append(dst, e.id[:]...)
	dst = binary.AppendUvarint(dst, uint64(position))
	dst = binary.AppendUvarint(dst, uint64(e.timeMS))
	return binary.AppendUvarint(dst, uint64(e.marks.floor))
}

// openDisk opens Pebble and reads everything but cells and tokens. It returns
// the position of the last checkpoint.
func (e *Engine) openDisk() (wal.Position, error) {
	o := e.diskOptions()
	o.ErrorIfNotExists = true
	db, err := pebble.Open(e.path(diskDir), o)
	if err != nil {
		if pebble.IsCorruptionError(err) {
			return 0, store.Errorf(store.KindCorrupt, "open disk in %s: %w", e.path(diskDir), err)
		}
		return 0, store.Errorf(store.KindUnavailable, "open disk in %s: %w", e.path(diskDir), err)
	}
	e.db = db
	var position wal.Position
	found := false
	err = e.rows(rowMeta, func(_, value []byte) bool {
		r := reader{b: value}
		id := r.bytes(uint64(len(e.id)))
		position = wal.Position(r.uvarint())
		e.timeMS = int64(r.uvarint())
		e.marks.floor = store.Writer(r.uvarint())
		found = string(id) == string(e.id[:])
		return !r.bad
	})
	if err == nil && !found {
		err = store.Errorf(store.KindCorrupt, "the disk in %s is not this store's: its identity is missing or another", e.path(diskDir))
	}
	return position, errors.Join(err,
		e.rows(rowMark, func(key, value []byte) (ok bool) {
			m, ok := decodeMark(value)
			if ok = ok && len(key) == 8; ok {
				e.marks.load(store.Writer(binary.BigEndian.Uint64(key)), m)
			}
			return ok
		}),
		e.rows(rowNamespace, func(key, value []byte) (ok bool) {
			e.names[string(key)], ok = decodeNamespace(value)
			return ok
		}),
		e.rows(rowNear, func(key, _ []byte) bool {
			e.near.add(xxh3.HashSeed(key, e.id.seed()))
			return true
		}))
}

// rows calls visit for every row of a kind.
func (e *Engine) rows(kind byte, visit func(key, value []byte) bool) error {
	return scanRows(e.db, kind, visit)
}

func scanRows(db pebble.Reader, kind byte, visit func(key, value []byte) bool) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
	if err != nil {
		return diskError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(diskError(err), it.Close())
		}
		if !visit(it.Key()[1:], value) {
			return errors.Join(
				store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", it.Key()), it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return diskError(err)
	}
	return nil
}
