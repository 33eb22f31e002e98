// Package engine is the default, embedded store. It keeps counters in memory,
// writes changes to a log, and saves them to Pebble, a key-value store on disk.
//
// A write is acknowledged when the log has it on disk. Memory holds the cells
// that are hot, and those that changed since the last checkpoint, in a table
// without pointers. A checkpoint writes the changed cells to Pebble, so that
// the older log can be dropped. DESIGN.md says how a write becomes visible, how
// a checkpoint works, and which invariants hold.
package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// Options configure an engine. The zero value is ready to use.
type Options struct {
	// FS is the file system; the default is the operating system's.
	FS vfs.FS

	// Limits bound what the store keeps.
	Limits store.Limits

	// Memory is roughly the number of bytes that the engine may use, for cells, caches
	// and buffers together. The default is 256 MiB, the minimum 16 MiB, the maximum 16
	// GiB. The last batch that finds room may exceed it by its own cells.
	Memory int64

	// Now is the wall clock, and Elapsed the monotonic clock. The defaults are those
	// of the machine. If only Now is given, the engine follows it however it jumps.
	Now     func() time.Time
	Elapsed func() time.Duration

	// Logger receives reports of background work. The default discards them.
	Logger *slog.Logger

	// CheckpointBytes is the size of the log at which a checkpoint is made. The
	// default is Memory, but at most 1 GiB. A larger value makes checkpoints rarer and
	// recovery longer.
	CheckpointBytes int64

	// CheckpointEvery is how long after a change a checkpoint is made at the latest.
	// The default is 30 s.
	CheckpointEvery time.Duration

	// SegmentBytes is the size of a log file. The default is 64 MiB.
	SegmentBytes int64
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Memory == 0 {
		o.Memory = 256 << 20
	}
	o.Memory = min(max(o.Memory, 16<<20), 16<<30)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = min(o.Memory, 1<<30)
	}
	if o.CheckpointEvery == 0 {
		o.CheckpointEvery = 30 * time.Second
	}
	return o
}

// Engine is the embedded store. It implements store.Store and every optional
// interface of that package.
type Engine struct {
	o    Options
	dir  string
	id   storeID
	lock io.Closer

	db  *pebble.DB
	log *wal.Log

	epoch  uint64                       // of the log
	failed atomic.Pointer[*store.Error] // why Pebble can't write any more; nil while it can
	broken chan struct{}                // closed when failed is set

	// Background work.
	disks         *pebble.Options
	compactions   *compactions
	compacted     chan struct{} // receives after each compaction
	cantMerge     atomic.Bool   // the last compaction failed
	checkpointing gate          // held by the running checkpoint; guards the field below
	tables        int           // tables that were begun
	kick          chan struct{}
	stop          chan struct{}
	done          sync.WaitGroup

	users sync.WaitGroup // callers that use the disk without the lock
	plans sync.Pool      // of *plans
	looks sync.Pool      // of *looks

	opened time.Time
	told   atomic.Pointer[told] // the last time that NowMS returned

	format    atomic.Int32 // of the files
	upgrading sync.Mutex   // held while format is raised

	mu        sync.Mutex // guards the fields below
	closed    bool
	fenced    bool   // a namespace has definitions (a book)
	cellsMax  int64  // when cells take more bytes than this, some are evicted
	cellBytes int64  // bytes that a changed cell takes
	putBytes  int64  // bytes of the parts that were put since the last checkpoint began
	places    places // of parts in cells
	cells     *table
	undo      undos
	extras    map[uint32]extra // deadline or layout of the cells in memory that have one, by slot
	soonest   int64            // the earliest deadline on disk that was not handled yet is not before this
	collected [][]byte         // rows of deadlines that are no longer needed

	collectedTo []byte // the last row collected since a checkpoint was published

	soonestSet int64  // the earliest deadline set since the last checkpoint began is not before this
	soonestNew int64  // the same, since changed cells were last looked through (see lapsed)
	tokens     *table // decided since the last checkpoint began
	frozen     *table // decided before the running checkpoint began; or nil
	marks      marks
	retired    []store.Writer // since the last checkpoint began
	names      namespaces
	near       near
	counters   known        // the keys of the counters on disk
	skipped    uint64       // versions that no change has
	lost       []span       // skipped versions that lost changes may have had, in order
	unclosed   wal.Position // the end of the log at Open, if it had not been closed; else 0
	clock      *clock.Clock
	gaps       clock.Gaps // in the store's time; they do not change after Open
	timeMS     int64      // of the last record; never falls
	timeFrame  uint64     // the frame that has it
	kept       keptTime
	jumps      uint64 // reported jumps of the wall clock
	dirtyBit   meta   // marks the cells in dirty; the other bit marks those in save that are not copied yet
	dirty      slotSet
	parts      slotSet // parts that may be in bundles
	born       slotSet
	save       *checkpoint  // the running checkpoint, or nil
	saved      wal.Position // of the last checkpoint
	end        wal.Position // of the last record
	snapshots  int
	disk       uint64   // counts checkpoints: rows that were read under another number are stale
	base       *base    // the disk as the last checkpoint left it
	sweepMS    int64    // no token is forgotten before this time
	sweptMS    int64    // the last time the engine looked for such tokens
	hand       uint32   // of the clock algorithm that evicts cells
	added      struct { // the last add that was logged
		slot  uint32
		frame uint64
		end   wal.Position
	}
	hot       hot
	room      chan struct{}
	timer     *time.Timer // starts a checkpoint some time after a change
	armed     bool
	spaceAt   wal.Position // the position at which the disk's free space was last checked
	spaceMS   int64
	spaceTime time.Time
	spaceErr  error // the disk is nearly full
	meters    meters

	// Scratch for one Apply.
	cellBuf  []byte
	tokenBuf []byte
	partBuf  []byte
	ridden   ridden // the riders that were planned last
	inserts  int

	// The fields for parts come last, so that those that every add needs are together.
	members     known             // the members on disk
	madeMembers int               // slots of members made since the last checkpoint began
	blobs       map[uint32]string // bytes of the parts in memory that have some, by slot
	live        live              // parts whose bytes are changed in place
	blobBytes   int64             // bytes in blobs
	epochs      tallies
	fences      fences
	views       views
}

var (
	_ store.Store       = (*Engine)(nil)
	_ store.Auditor     = (*Engine)(nil)
	_ store.Snapshotter = (*Engine)(nil)
	_ store.Meter       = (*Engine)(nil)
	_ store.Adder       = (*Engine)(nil)
	_ store.Clock       = (*Engine)(nil)
	_ store.Sizer       = (*Engine)(nil)
	_ store.Namespacer  = (*Engine)(nil)
	_ store.Witness     = (*Engine)(nil)
)

// storeID identifies a store. It is random, and made with the store.
type storeID [16]byte

// seed returns the seed of the store's hashes. It is secret, so a caller can't
// choose keys that collide.
func (id storeID) seed() uint64 { return binary.LittleEndian.Uint64(id[:]) }

// Traits describes the engine.
func (e *Engine) Traits() store.Traits {
	return store.Traits{Name: "embedded", Partitions: 1, Durability: store.Synced, Limits: e.o.Limits, Layouts: true}
}

// Close makes a last checkpoint, so that the next Open has nothing to replay,
// and closes the log and the disk.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.compactions.giveUp()
	e.timer.Stop()
	e.makeRoom() // callers that wait for room find the engine closed
	e.mu.Unlock()
	close(e.stop)
	err := e.guarded(func() error {
		e.compactions.Unregister()
		e.done.Wait()
		e.users.Wait()
		if e.log.Err() == nil {
			return e.checkpoint(context.Background(), false)
		}
		return nil
	})
	return withKind("close", errors.Join(err, e.release()))
}

// release closes what Open acquired.
func (e *Engine) release() error {
	var err error
	if e.log != nil {
		err = e.log.Close()
	}
	if e.db != nil && e.failed.Load() == nil { // a failed Pebble would never close
		err = errors.Join(err, e.guarded(e.closeDisk))
	}
	if e.failed.Load() == nil { // otherwise a goroutine may have been stopped while it used this memory
		e.mu.Lock()
		e.cells.free()
		e.tokens.free()
		e.counters.filter.free()
		e.members.filter.free()
		e.mu.Unlock()
	}
	return errors.Join(err, e.lock.Close())
}

func (e *Engine) closeDisk() (err error) {
	if e.base != nil {
		err = e.base.Close()
	}
	return errors.Join(err, e.db.Close())
}

// use keeps the disk open until users.Done is called.
func (e *Engine) use() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return store.ErrClosed
	}
	e.users.Add(1)
	return nil
}

// collectEvery is how often expired cells are looked for. Looking through changed
// cells takes longer the more there are: after it comes a rest that is so many times
// as long.
const (
	// collectEvery is how often the engine looks for expired cells. Looking through
	// the changed cells takes longer the more there are. After it the engine rests for
	// restShare times as long.
	collectEvery = time.Second
	restShare    = 20
)

// background makes checkpoints when it is woken, and removes expired cells.
func (e *Engine) background() {
	defer e.done.Done()
	expired := time.NewTicker(collectEvery)
	defer expired.Stop()
	var rest time.Time // until when changed cells are not looked through
	for {
		select {
		case <-e.stop:
			return
		case <-e.kick:
		case now := <-expired.C:
			e.watchClock()
			err := e.collect(context.Background())
			if err == nil && now.After(rest) {
				err = e.collectChanged(context.Background())
				rest = now.Add(restShare * time.Since(now))
			}
			if err != nil && !errors.Is(err, store.ErrClosed) {
				e.o.Logger.Error("removing expired counters failed", "error", err)
			}
			continue
		}
		if err := e.checkpoint(context.Background(), false); err != nil {
			e.meters.checkpointErrors.Add(1)
			e.o.Logger.Error("checkpoint failed", "error", err)
			if e.log.Err() != nil {
				e.mu.Lock()
				e.makeRoom() // there won't be any, so callers that wait must find out
				e.mu.Unlock()
			}
		}
	}
}

// wake asks for a checkpoint.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}
