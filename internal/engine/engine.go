// Package engine is the default store: cells in memory over a log over Pebble.
//
// The log is the only thing on the path of an acknowledgement. Cells that are
// hot, or changed since the last checkpoint, are in memory, in a table without
// a pointer for each; a checkpoint writes the changed ones to Pebble, and then
// the log before it is no longer needed. DESIGN.md tells how a write becomes
// visible, what a checkpoint does, and which invariants hold.
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

// Options configure an engine. The zero value is ready for use.
type Options struct {
	// FS is the file system; the default is the operating system's.
	FS vfs.FS

	// Limits bound what the store keeps.
	Limits store.Limits

	// Memory is about how many bytes the engine may hold, cells, caches and
	// buffers together. The default is 256 MiB, the least 16 MiB, the most
	// 16 GiB. The last batch that finds room may go beyond it by its own cells.
	Memory int64

	// Now is the wall clock, and Elapsed the monotonic one. The defaults are the
	// machine's. If Now alone is given it is believed, however it jumps.
	Now     func() time.Time
	Elapsed func() time.Duration

	// Logger takes reports of background work; the default discards them.
	Logger *slog.Logger

	// CheckpointBytes is how much log there may be before a checkpoint is
	// made. The default is that of Memory, but at most 1 GiB. More makes
	// checkpoints rarer and recovery longer.
	CheckpointBytes int64

	// CheckpointEvery is how long after a change a checkpoint is made even if
	// nothing else asks for it. The default is 30 s.
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
	failed atomic.Pointer[*store.Error] // why Pebble can't write any more
	broken chan struct{}                // closed then

	// Background work.
	disks         *pebble.Options
	compactions   *compactions
	compacted     chan struct{} // one was done
	cantMerge     atomic.Bool   // the last one failed
	checkpointing gate          // held by the checkpoint under way; guards the field below
	tables        int           // tables begun
	kick          chan struct{}
	stop          chan struct{}
	done          sync.WaitGroup

	users sync.WaitGroup // those who use the disk without the lock
	plans sync.Pool      // of *plans
	looks sync.Pool      // of *looks

	opened time.Time
	told   atomic.Pointer[told] // by NowMS, last

	format    atomic.Int32 // of the files
	upgrading sync.Mutex   // held by whoever raises it

	mu        sync.Mutex // guards the fields below
	closed    bool
	fenced    bool   // there is a book
	cellsMax  int64  // bytes of cells above which some are evicted
	cellBytes int64  // that a changed cell takes
	putBytes  int64  // of parts that were put since the last checkpoint began
	places    places // of parts in cells
	cells     *table
	undo      undos
	extras    map[uint32]extra // of the cells in memory that have one, by slot
	soonest   int64            // no deadline on disk that was not looked after is before
	collected [][]byte         // rows of deadlines that are no longer needed

	collectedTo []byte // the last of those collected since a checkpoint was published

	soonestSet int64  // no deadline that was set since the last checkpoint began is before
	soonestNew int64  // nor this, of those since changed cells were last looked through (see lapsed)
	tokens     *table // decided since the last checkpoint began
	frozen     *table // decided before the checkpoint under way began; or nil
	marks      marks
	retired    []store.Writer // since the last checkpoint began
	names      namespaces
	near       near
	counters   known        // which of them are on disk
	skipped    uint64       // versions that nothing has
	lost       []span       // those of them that something may have had, in order
	unclosed   wal.Position // where the log ended when it was opened, if it had not been closed; else 0
	clock      *clock.Clock
	gaps       clock.Gaps // in the store's time; they do not change after Open
	timeMS     int64      // of the last record; never falls
	timeFrame  uint64     // the frame that has it
	kept       keptTime
	jumps      uint64 // of the wall clock, that were reported
	dirtyBit   meta   // marks the cells in dirty; the other bit, those in saves that are not copied yet
	dirty      slotSet
	parts      slotSet // those that may be in bundles
	born       slotSet
	save       *checkpoint  // the checkpoint under way, or nil
	saved      wal.Position // the last checkpoint
	end        wal.Position // the last record
	snapshots  int
	disk       uint64   // counts checkpoints: what was read from disk under another number is stale
	base       *base    // the disk as the last of them left it
	sweepMS    int64    // no token is forgotten before
	sweptMS    int64    // when it was last looked for such tokens
	hand       uint32   // of the clock that evicts
	added      struct { // the last add that was logged
		slot  uint32
		frame uint64
		end   wal.Position
	}
	hot       hot
	room      chan struct{}
	timer     *time.Timer // makes a checkpoint some time after a change
	armed     bool
	spaceAt   wal.Position // where the disk's free space was looked at
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

	// Parts, at the end: what every add needs is together above.
	members     known             // of the members on disk
	madeMembers int               // slots of them since the last checkpoint began
	blobs       map[uint32]string // of the parts in memory that have bytes, by slot
	live        live              // those that are changed where they are
	blobBytes   int64             // that those are
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

// storeID is the identity of a store: random, made with it.
type storeID [16]byte

// seed returns the seed of the store's hashes, so that nobody who can choose
// keys can choose which collide.
func (id storeID) seed() uint64 { return binary.LittleEndian.Uint64(id[:]) }

// Traits returns what the engine is.
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
	e.makeRoom() // those who wait for it find the engine closed
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
	if e.db != nil && e.failed.Load() == nil { // a failed one would never close
		err = errors.Join(err, e.guarded(e.closeDisk))
	}
	if e.failed.Load() == nil { // else someone may have been stopped while using it
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
	collectEvery = time.Second
	restShare    = 20
)

// background makes checkpoints when it is woken, and removes expired cells.
func (e *Engine) background() {
	defer e.done.Done()
	expired := time.NewTicker(collectEvery)
	defer expired.Stop()
	var rest time.Time // from looking through changed cells
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
				e.makeRoom() // there won't be any: those who wait for it find out
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
