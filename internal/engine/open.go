package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// The files of a store.
const (
	identityFile = "QUIPU"
	lockFile     = "LOCK"
	logDir       = "log"
	diskDir      = "disk"
	restoredFile = "RESTORED" // of a store that was not opened since it was restored
	tempSuffix   = ".tmp"
)

// formatVersion is the version of the store as a whole: the rows on disk and
// the log records. The log's frames have one of their own.
//
// A store is made in the first, and stays in it, until something is written that the
// programs of that time can't read: see Engine.upgrade.
const (
	formatFirst   = 1
	formatEvents  = 2 // events, parts, books and floors
	formatBytes   = 3 // keys that hold bytes, and sketches, which are replayed by what was asked of them
	formatTakes   = 4 // sketches that are changed where they are: what the log says of their merges
	formatVersion = formatTakes
)

// news is what each format brought.
var news = [...]string{formatEvents: "events", formatBytes: "sketches or keys that hold bytes", formatTakes: "sketches of users under keys of their own"}

// Open opens the store in a directory, or makes one if the directory is empty
// or does not exist. It replays the log behind the last checkpoint, and
// refuses a store that is damaged, incomplete, in use, or of a newer format.
func Open(dir string, o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := makeDir(o.FS, dir); err != nil {
		return nil, store.Errorf(store.KindUnavailable, "make directory %s: %w", dir, err)
	}
	if err := inspect(o.FS, dir); err != nil {
		return nil, withKind("open "+dir, err)
	}
	dir, err := realDir(o.FS, dir)
	if err != nil {
		return nil, store.Errorf(store.KindUnavailable, "find directory %s: %w", dir, err)
	}
	lock, err := o.FS.Lock(o.FS.PathJoin(dir, lockFile))
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); ok { // the file can't be opened
			return nil, store.Errorf(store.KindUnavailable, "lock %s: %w", dir, err)
		}
		return nil, store.Errorf(store.KindUnavailable, "lock %s: %w: %s has it open; stop it first, or use another directory (--data)", dir, err, whoLocks(o.FS, dir, err))
	}
	warnOpen(o, dir)
	e := &Engine{
		o: o, dir: dir, lock: lock, opened: time.Now(),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), room: make(chan struct{}),
		broken: make(chan struct{}), compacted: make(chan struct{}, 1), checkpointing: make(gate, 1),
		cells: newTable(0), tokens: newTable(tokenBytes),
		marks: newMarks(), names: namespaces{},
		blobs: map[uint32]string{}, live: live{}, epochs: tallies{}, fences: newFences(), views: newViews(),
		extras: map[uint32]extra{}, soonestSet: math.MaxInt64, soonestNew: math.MaxInt64,
		dirtyBit: dirty0, cellsMax: o.Memory / cellShare, counters: newKnown(o.Memory/filterShare, 1), members: newKnown(o.Memory/memberFilterShare, memberRoom), clock: clock.New(o.Now, o.Elapsed),
	}
	e.plans.New = func() any { return new(plans) }
	e.looks.New = func() any { return new(looks) }
	if err := e.open(); err != nil {
		return nil, withKind("open "+dir, errors.Join(err, e.release()))
	}
	return e, nil
}

// whoLocks names who keeps a directory from being locked.
func whoLocks(files vfs.FS, dir string, err error) string {
	if _, ok := errors.AsType[syscall.Errno](err); !ok {
		return "this process"
	}
	if pid := holder(files.PathJoin(dir, lockFile)); pid != 0 {
		return fmt.Sprintf("another process, pid %d,", pid)
	}
	return "another process"
}

// warnOpen logs that others on the machine may read the directory. It may be so on
// purpose, so it stays.
func warnOpen(o Options, dir string) {
	if o.FS != vfs.Default {
		return
	}
	if info, err := o.FS.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		o.Logger.Warn("other users of this machine can read the data directory: chmod 700 prevents that",
			"dir", dir, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}

// inspect refuses a directory that is not a store of ours, before anything in it is
// touched.
func inspect(files vfs.FS, dir string) error {
	if _, _, made, err := identify(files, dir); made || err != nil {
		return err
	}
	names, err := files.List(dir)
	if err != nil || slices.Contains(names, identityFile) { // It was made this moment.
		return err
	}
	return strangers(files, dir, names)
}

// strangers returns an error if a directory without an identity has what keeps a
// store from being made there.
func strangers(files vfs.FS, dir string, names []string) error {
	begun := slices.Contains(names, identityFile+tempSuffix)
	for _, name := range names {
		switch name {
		case lockFile, identityFile + tempSuffix:
		case logDir, diskDir, restoredFile:
			if !begun {
				return store.Errorf(store.KindLost, "%s is missing, but there is %s", files.PathJoin(dir, identityFile), files.PathJoin(dir, name))
			}
		default:
			return store.Errorf(store.KindInvalid, "%s is neither empty nor a store: it has %s", dir, name)
		}
	}
	return nil
}

func (e *Engine) open() error {
	id, format, made, err := identify(e.o.FS, e.dir)
	if err != nil {
		return err
	}
	e.id = id
	e.format.Store(int32(format))
	if !made {
		if err := e.create(); err != nil {
			return fmt.Errorf("create store in %s: %w", e.dir, err)
		}
	}
	if err := e.removeLeftovers(); err != nil {
		return err
	}
	position, err := guard(e, e.openDisk)
	if err != nil {
		return fmt.Errorf("open disk in %s: %w", e.path(diskDir), err)
	}
	e.timer = time.AfterFunc(time.Hour, e.wake)
	e.timer.Stop()
	began := time.Now()
	log, found, err := wal.Open(e.logOptions(), position, e.replayer(position))
	if errors.Is(err, fs.ErrNotExist) {
		return store.Errorf(store.KindLost, "open log: %w", err)
	}
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	e.log, e.epoch = log, found.Epoch
	e.saved, e.spaceAt = position, position
	e.fenced = len(e.fences.books) > 0
	e.meters.recoveredBytes, e.meters.recoveredFrames = uint64(found.Bytes), uint64(found.Frames)
	e.checkSpace()
	if found.Frames > 0 || found.Cut != nil {
		e.o.Logger.Info("recovered", "frames", found.Frames, "bytes", found.Bytes, "took", time.Since(began))
	}
	if c := found.Cut; c != nil {
		e.o.Logger.Warn("dropped the torn end of the log: nothing in it was acknowledged as synced",
			"file", c.File, "offset", c.Offset, "bytes", c.Bytes, "reason", c.Reason)
	}
	e.weigh()
	if err := e.startClock(); err != nil {
		return fmt.Errorf("write the time of the start: %w", err)
	}
	if made {
		if err := e.skipLost(found.Clean); err != nil {
			return store.Errorf(store.KindUnavailable, "open log: %w", err)
		}
	}
	if e.due() {
		e.wake()
	}
	e.compactions.open()
	e.tendFilter(0)
	e.findMembers()
	e.done.Add(1)
	go e.background()
	return nil
}

// version returns the version of a change whose record is at a position.
func (e *Engine) version(at wal.Position) uint64 { return uint64(at) + e.skipped }

func (e *Engine) path(name string) string { return e.o.FS.PathJoin(e.dir, name) }

func (e *Engine) logOptions() wal.Options {
	return wal.Options{FS: e.o.FS, Dir: e.path(logDir), StoreID: e.id, SegmentBytes: e.o.SegmentBytes, Lock: &e.mu}
}

// identify reads the identity file. It gets its name when everything else of
// a new store is there.
func identify(files vfs.FS, dir string) (id storeID, format int, made bool, err error) {
	path := files.PathJoin(dir, identityFile)
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return id, formatFirst, false, nil
	}
	if err != nil {
		return id, 0, false, store.Errorf(store.KindUnavailable, "open %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err = errors.Join(err, f.Close()); err != nil {
		return id, 0, false, store.Errorf(store.KindUnavailable, "read %s: %w", path, err)
	}
	var text, sum string
	if _, err := fmt.Sscanf(string(b), identityText, &format, &text, &sum); err != nil {
		return id, 0, false, store.Errorf(store.KindCorrupt, "%s, offset 0: not the identity of a store: %w", path, err)
	}
	if format > formatVersion {
		return id, 0, false, store.Newer(dir, format, formatVersion)
	}
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) || string(b) != identity(format, storeID(raw)) {
		return id, 0, false, store.Errorf(store.KindCorrupt, "%s, offset 0: damaged", path)
	}
	return storeID(raw), format, true, nil
}

const identityText = "quipu store\nformat %d\nid %s\nsum %s\n"

func identity(format int, id storeID) string {
	text := fmt.Sprintf(identityText, format, hex.EncodeToString(id[:]), "")
	return fmt.Sprintf(identityText, format, hex.EncodeToString(id[:]), fmt.Sprintf("%016x", xxh3.HashString(text)))
}

// create makes a new store. What an earlier try left behind is removed: as long
// as a store is being made, its identity file has another name. If there is
// neither, but a log or a disk, the identity file was lost.
func (e *Engine) create() error {
	names, err := e.o.FS.List(e.dir)
	if err != nil {
		return err
	}
	if err := strangers(e.o.FS, e.dir, names); err != nil {
		return err
	}
	for _, name := range names {
		if name == logDir || name == diskDir || name == restoredFile {
			if err := e.o.FS.RemoveAll(e.path(name)); err != nil {
				return err
			}
		}
	}
	if _, err := io.ReadFull(rand.Reader, e.id[:]); err != nil {
		return err
	}
	e.skipped = clockVersion(e.clock.Wall())
	e.lost = []span{{to: e.skipped}}
	if err := beginFile(e.o.FS, e.dir, identityFile, []byte(identity(formatFirst, e.id))); err != nil {
		return err
	}
	if err := wal.Create(e.logOptions(), 0, 1); err != nil {
		return err
	}
	if err := e.guarded(e.createDisk); err != nil {
		return err
	}
	return endFile(e.o.FS, e.dir, identityFile)
}

// createDisk makes a disk that knows whose it is.
func (e *Engine) createDisk() error {
	db, err := pebble.Open(e.path(diskDir), e.diskOptions())
	if err != nil {
		return diskError(err)
	}
	e.db = db
	err = e.ingest(context.Background(), func(t *rowWriter) error {
		t.set(rowMeta, nil, e.appendMeta(nil, 0))
		return nil
	})
	e.db = nil
	return errors.Join(err, db.Close())
}

// makeDir makes a directory that is still there after a power loss.
func makeDir(files vfs.FS, dir string) error {
	if info, err := files.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := files.PathDir(dir)
	if parent != dir {
		if err := makeDir(files, parent); err != nil {
			return err
		}
	}
	if err := files.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(files, parent)
}

// realDir returns the one name of a directory: within a process, what is locked
// is a name.
func realDir(files vfs.FS, dir string) (string, error) {
	if files != vfs.Default {
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir, err
	}
	return filepath.EvalSymlinks(dir)
}

// beginFile makes a small file that does not have its name yet.
func beginFile(files vfs.FS, dir, name string, b []byte) error {
	f, err := files.Create(files.PathJoin(dir, name)+tempSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(files, dir)
}

// endFile gives it its name.
func endFile(files vfs.FS, dir, name string) error {
	path := files.PathJoin(dir, name)
	if err := files.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return syncDir(files, dir)
}

// appendMeta encodes what a checkpoint says of the store.
func (e *Engine) appendMeta(dst []byte, position wal.Position) []byte {
	m := metaRow{
		id: e.id, position: position, timeMS: e.timeMS, floor: e.marks.floor, skipped: e.skipped, lost: e.lost, gaps: e.gaps,
	}
	return m.append(dst)
}

// openDisk opens Pebble and reads everything but cells and tokens. It returns
// the position of the last checkpoint.
func (e *Engine) openDisk() (wal.Position, error) {
	o := e.diskOptions()
	o.ErrorIfNotExists = true
	db, err := pebble.Open(e.path(diskDir), o)
	if err != nil {
		return 0, openError(err)
	}
	e.db = db
	if err := checkManifest(db); err != nil {
		return 0, err
	}
	e.base = &base{Snapshot: db.NewSnapshot()}
	var position wal.Position
	found := false
	err = e.rows(rowMeta, func(_, value []byte) bool {
		m, ok := decodeMeta(value)
		position, e.timeMS, e.marks.floor, e.skipped = m.position, m.timeMS, m.floor, m.skipped
		e.lost, e.gaps = m.lost, m.gaps
		found = m.id == e.id
		return ok
	})
	if err == nil && !found {
		err = store.Errorf(store.KindCorrupt, "it is not this store's: its identity is missing or another")
	}
	e.knowNone(&e.counters)
	e.knowNone(&e.members)
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
			e.near.add(e.hashOf(key))
			e.views.far = e.views.far || isPart(key)
			return true
		}),
		e.openParts())
}

// openParts reads what is kept of parts as a whole.
func (e *Engine) openParts() error {
	return errors.Join(
		e.rows(rowBook, func(key, value []byte) bool {
			r := reader{b: slices.Concat(key, value)}
			b := r.book()
			e.fences.books[b.Namespace] = b.ID
			return !r.bad && len(r.b) == 0
		}),
		e.rows(rowFloor, func(key, value []byte) bool {
			r := reader{b: slices.Concat(key, value)}
			s := r.shelf()
			e.fences.floors[s] = r.epoch()
			return !r.bad && len(r.b) == 0
		}),
		e.rows(rowEpoch, func(key, value []byte) bool {
			t, ok := decodeEpochTally(value)
			e.epochs[string(key)] = &epochTally{tally: t}
			return ok && isEpoch(key)
		}))
}

// writes reports whether the files are of a format that has what a batch says.
func (e *Engine) writes(b *store.Batch) bool {
	has := e.format.Load()
	return has == formatVersion || has >= formatOf(b)
}

// formatOf returns the first format that has what a batch says.
func formatOf(b *store.Batch) (format int32) {
	if format = formatFirst; len(b.Books) > 0 || len(b.Floors) > 0 {
		format = formatEvents
	}
	for i := range b.Deltas {
		switch d := &b.Deltas[i]; {
		case isLive(d):
			return formatTakes
		case d.IsObject(), d.MergesSketches():
			format = formatBytes
		case d.Event != nil, d.Guard.Token != "" && decide.MayRefuse(d): // Tokens of before know no refusals.
			format = max(format, formatEvents)
		}
	}
	return format
}

// upgrade makes the files those of a format, or leaves them of a higher one, before anything is written that
// programs of the one before can't read: they refuse the store from now on.
func (e *Engine) upgrade(to int32) error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.users.Done()
	e.upgrading.Lock()
	defer e.upgrading.Unlock()
	if e.format.Load() >= to {
		return nil
	}
	err := beginFile(e.o.FS, e.dir, identityFile, []byte(identity(int(to), e.id)))
	if err == nil {
		err = endFile(e.o.FS, e.dir, identityFile)
	}
	if err != nil {
		return store.Errorf(store.KindUnavailable, "raise the format of %s to %d: %w", e.dir, to, err)
	}
	e.format.Store(to)
	e.o.Logger.Info("the data directory now has "+news[to]+": older releases can't open it any more", "dir", e.dir, "format", to)
	return nil
}

// checkManifest refuses a disk whose manifest has lost its end. Pebble takes a
// damaged record for the end of the manifest. What is lost may be the edit that
// says up to which number changes were numbered: then the newer rows in the
// tables are not seen, until as many new ones were written, which they hide.
func checkManifest(db *pebble.DB) error {
	b := db.NewBatch()
	if err := b.LogData(nil, nil); err != nil {
		return diskError(err)
	}
	if err := db.Apply(b, pebble.NoSync); err != nil {
		return diskError(err)
	}
	next := b.SeqNum()
	if err := b.Close(); err != nil {
		return diskError(err)
	}
	levels, err := db.SSTables()
	if err != nil {
		return diskError(err)
	}
	for _, tables := range levels {
		for _, t := range tables {
			if t.LargestSeqNum >= next {
				return store.Errorf(store.KindCorrupt, "the end of its manifest is missing: table %s has change %d, the last one it knows of is %d",
					t.FileNum, t.LargestSeqNum, next-1)
			}
		}
	}
	return nil
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
