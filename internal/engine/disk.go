package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/store"
)

// Pebble takes some failures of the file system for the end of the process: it
// calls Fatalf, or panics. Here they are the end of writing only. The goroutine
// that met the failure stops for good where it is, with whatever locks it
// holds, so that nothing more is written over a state nobody knows; Engine.broken
// is closed; and what waits for Pebble gives up (see guard).

func (e *Engine) diskOptions() *pebble.Options {
	e.compactions = e.newCompactions()
	o := &pebble.Options{
		FS:                    diskFS{e.o.FS, e},
		DisableWAL:            true,
		FormatMajorVersion:    pebble.FormatNewest,
		Logger:                diskLogger{e},
		CacheSize:             e.o.Memory / blockCacheShare,
		MemTableSize:          4 << 20,
		L0CompactionThreshold: 4,
		MaxOpenFiles:          500,
		EventListener: &pebble.EventListener{
			// The default calls Fatalf in the goroutine that read. It gets an
			// error anyway.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				e.o.Logger.Error("the disk is damaged", "file", info.Path, "error", oneLine(info.Details.Error()))
			},
			CompactionEnd: func(info pebble.CompactionInfo) {
				e.cantMerge.Store(info.Err != nil)
				select {
				case e.compacted <- struct{}{}:
				default:
				}
			},
		},
	}
	o.Experimental.CompactionScheduler = e.compactions
	// Samples of reads are for compactions, and take a lock that a stopped
	// goroutine may hold.
	o.Experimental.ReadSamplingMultiplier = -1
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.EnsureDefaults()
	e.disks = o
	return o
}

// broke says that Pebble can't go on writing, and stops the goroutine.
func (e *Engine) broke(reason string) {
	err := store.Errorf(store.KindUnavailable, "the disk failed: %s; restart when it is well again", reason)
	if e.failed.CompareAndSwap(nil, &err) {
		close(e.broken)
		e.o.Logger.Error("the disk failed", "error", err)
	}
	select {}
}

// guard returns what f returns, or the failure of the disk, for which f may
// wait for ever. Then f must not be counted on to have ended.
func guard[T any](e *Engine, f func() (T, error)) (T, error) { return guardFor(e, 0, f) }

// readGrace is how long a read may take when the disk has failed.
const readGrace = time.Second

// guardRead is guard for reads, which go on after a failure: most need no lock
// that a stopped goroutine holds. One that lets go of the last reference to a
// former state of the disk does.
func guardRead[T any](e *Engine, f func() (T, error)) (T, error) { return guardFor(e, readGrace, f) }

func guardFor[T any](e *Engine, grace time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-e.broken:
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(grace):
		var none T
		return none, *e.failed.Load()
	}
}

// guarded is guard for what returns an error alone.
func (e *Engine) guarded(f func() error) error {
	_, err := guard(e, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// diskLogger passes on what Pebble has to say.
type diskLogger struct{ e *Engine }

func (d diskLogger) Infof(format string, args ...any) {
	d.e.o.Logger.Debug("disk: " + oneLine(fmt.Sprintf(format, args...)))
}

func (d diskLogger) Errorf(format string, args ...any) {
	d.e.o.Logger.Error("disk: " + oneLine(fmt.Sprintf(format, args...)))
}

// Fatalf is called when Pebble can't go on writing. It must not return.
func (d diskLogger) Fatalf(format string, args ...any) { d.e.broke(fmt.Sprintf(format, args...)) }

// compactionCategory is what Pebble calls what a compaction writes.
const compactionCategory = "pebble-compaction"

// diskFS is the file system as Pebble sees it.
type diskFS struct {
	vfs.FS
	e *Engine
}

// Create makes a file. A marker names the manifest to be read: so that the
// name of the manifest can't be lost while that of the marker is kept, it is
// made durable first.
func (d diskFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == compactionCategory && d.e.compactions.givenUp.Load() {
		return nil, pebble.ErrCancelledCompaction
	}
	if strings.HasPrefix(d.PathBase(name), "marker.") {
		if err := syncDir(d.FS, d.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return d.FS.Create(name, category)
}

// Lock locks a file. Engine.lock keeps others out; what can hold this one is a
// store of this process whose disk failed.
func (d diskFS) Lock(name string) (io.Closer, error) {
	lock, err := d.FS.Lock(name)
	if err != nil {
		return nil, store.Errorf(store.KindUnavailable, "lock %s: %w: was it open in this process, and failed? Then restart", name, err)
	}
	return lock, nil
}

// OpenDir opens a directory. A failed sync of one is never tried again: Pebble
// would panic, or try.
func (d diskFS) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return diskDirectory{f, d.e, name}, nil
}

type diskDirectory struct {
	vfs.File
	e    *Engine
	name string
}

func (d diskDirectory) Sync() error {
	if err := d.File.Sync(); err != nil {
		d.e.broke(fmt.Sprintf("sync directory %s: %v", d.name, err))
	}
	return nil
}

// compactions lets Pebble compact, one at a time, but not before Open has
// returned: when Open fails, Pebble takes away what a compaction needs while it
// runs, and the compaction panics.
type compactions struct {
	*pebble.ConcurrencyLimitScheduler
	opened, givenUp atomic.Bool
	late            atomic.Bool // there are many tables to be merged
	pressed         func() bool
}

func (e *Engine) newCompactions() *compactions {
	// It does without a goroutine that looks for compactions to be started now
	// and then: at most one runs, and when it is done the next one is started.
	c := &compactions{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
	c.pressed = func() bool { return c.late.Load() || e.pressed() }
	return c
}

// Register takes the disk that compacts, whose compactions keep to a pace.
func (c *compactions) Register(goroutines int, db pebble.DBForCompaction) {
	c.ConcurrencyLimitScheduler.Register(goroutines, pacedDisk{db, c})
}

// TrySchedule is asked before a compaction is started.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !c.opened.Load() {
		return false, nil
	}
	ok, h := c.ConcurrencyLimitScheduler.TrySchedule()
	return ok, c.paced(h)
}

func (c *compactions) paced(h pebble.CompactionGrantHandle) pebble.CompactionGrantHandle {
	return &compaction{h, pace{pressed: c.pressed}}
}

// open has Pebble start what was held back.
func (c *compactions) open() {
	c.opened.Store(true)
	if ok, h := c.TrySchedule(); ok {
		h.Done()
	}
}

// giveUp has Pebble give up the compaction under way: closing it would wait for the
// end. Its next table is refused (see diskFS.Create), which loses nothing: the next
// Open begins it again. No other is started once Unregister was called.
func (c *compactions) giveUp() { c.givenUp.Store(true) }

type pacedDisk struct {
	pebble.DBForCompaction
	c *compactions
}

// Schedule starts a compaction.
func (d pacedDisk) Schedule(h pebble.CompactionGrantHandle) bool {
	return d.DBForCompaction.Schedule(d.c.paced(h))
}

// A compaction is one that is under way.
type compaction struct {
	pebble.CompactionGrantHandle
	pace pace
}

// CumulativeStats is called by the goroutine of the compaction after every few rows.
func (c *compaction) CumulativeStats(pebble.CompactionGrantHandleStats) { c.pace.breathe() }

// How many tables may lie above each other before a checkpoint waits for Pebble
// to merge some, and for how long.
const (
	tablesDeep  = 24
	mergingWait = 10 * time.Second
)

// awaitMerging waits while there are so many tables above each other that reads
// are slow. So when Pebble can't keep up, checkpoints wait for it, and then
// writers for checkpoints. When it is merging that fails there is nothing to
// wait for.
func (e *Engine) awaitMerging(ctx context.Context) {
	late := time.After(mergingWait)
	for !e.cantMerge.Load() {
		deep := e.db.Metrics().Levels[0].Sublevels
		if e.compactions.late.Store(deep > tablesDeep/2); deep <= tablesDeep {
			return
		}
		select {
		case <-e.compacted:
		case <-late:
			return
		case <-e.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// oneLine returns what Pebble says, without what it adds for its own tools.
func oneLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// diskError gives an error of the disk a kind.
func diskError(err error) error {
	switch {
	case store.KindOf(err) != store.KindOther:
		return err
	case pebble.IsCorruptionError(err):
		if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
			return &store.Error{Kind: store.KindCorrupt, Detail: "disk: " + info.Path + ": " + oneLine(err.Error()), Err: err}
		}
		return &store.Error{Kind: store.KindCorrupt, Detail: "disk: " + oneLine(err.Error()), Err: err}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, pebble.ErrDBNotPristine):
		return store.Errorf(store.KindLost, "disk: %w", err)
	default:
		return store.Errorf(store.KindUnavailable, "disk: %w", err)
	}
}

// openError gives an error of opening the disk a kind. What is not the file
// system's is a complaint about what stands in the files.
func openError(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	var errno syscall.Errno
	if store.KindOf(err) != store.KindOther {
		return err
	}
	if err = diskError(err); store.KindOf(err) != store.KindUnavailable ||
		errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &call) || errors.As(err, &errno) {
		return err
	}
	return store.Errorf(store.KindCorrupt, "%w", err)
}

// withKind gives an error of the file system, which has none, a kind.
func withKind(what string, err error) error {
	if err == nil || store.KindOf(err) != store.KindOther {
		return err
	}
	return store.Errorf(store.KindUnavailable, "%s: %w", what, err)
}

func diskErrorOrNil(err error) error {
	if err != nil {
		return diskError(err)
	}
	return nil
}
