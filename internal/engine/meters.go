package engine

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// meters count what the engine does. Those that are not atomic are guarded by
// the engine's lock.
type meters struct {
	batches, deltas, writes, refused, replayed, reads, evicted, expired uint64
	recoveredBytes, recoveredFrames                                     uint64
	filterChecks, filterWrong                                           uint64

	diskReads                            atomic.Uint64
	checkpoints, checkpointErrors, saved atomic.Uint64
}

// Meters calls f for each meter.
func (e *Engine) Meters(f func(name, help string, value float64)) {
	if e.use() != nil {
		return
	}
	defer e.users.Done()
	e.mu.Lock()
	cells, cellBytes := e.cells.count, e.cells.bytes()
	dirty, tokens, writers := e.dirty.count, e.tokens.count, len(e.marks.of)-1
	stopped := 0.0
	if e.failed.Load() != nil || e.log.Err() != nil {
		stopped = 1
	}
	full := 0.0
	if e.spaceErr != nil {
		full = 1
	}
	m := &e.meters
	batches, deltas, writes, refused, replayed, reads, evicted := m.batches, m.deltas, m.writes, m.refused, m.replayed, m.reads, m.evicted
	expired, extras := m.expired, len(e.extras)
	filterBytes, filterChecks, filterWrong := e.filterBytes(), m.filterChecks, m.filterWrong
	e.mu.Unlock()

	f("quipu_writes_total", "Writes of callers that were decided, each by itself though some come combined.", float64(writes))
	f("quipu_store_batches_total", "Batches decided.", float64(batches))
	f("quipu_store_deltas_total", "Deltas decided.", float64(deltas))
	f("quipu_store_refused_total", "Deltas refused: overflow, token, version, quota.", float64(refused))
	f("quipu_store_replayed_total", "Repeats answered with the first result.", float64(replayed))
	f("quipu_store_reads_total", "Cells read.", float64(reads))
	f("quipu_store_disk_reads_total", "Rows read from disk.", float64(m.diskReads.Load()))
	f("quipu_filter_bytes", "Memory of the filters of the keys and the members on disk; 0 if there is none.", float64(filterBytes))
	f("quipu_filter_checks_total", "Cells and members not in memory that a filter was asked about.", float64(filterChecks))
	f("quipu_filter_wrong_total", "Rows looked for on disk that were not there, though a filter took them for known.", float64(filterWrong))
	f("quipu_store_evicted_total", "Cells evicted from memory.", float64(evicted))
	f("quipu_store_expired_total", "Deadlines that have passed and were looked after.", float64(expired))
	f("quipu_memory_extras", "Cells in memory that have a deadline or a layout.", float64(extras))
	f("quipu_checkpoints_total", "Checkpoints made.", float64(m.checkpoints.Load()))
	f("quipu_checkpoint_errors_total", "Checkpoints that failed.", float64(m.checkpointErrors.Load()))
	f("quipu_checkpoint_cells_total", "Cells written by checkpoints.", float64(m.saved.Load()))
	f("quipu_memory_cells", "Cells in memory.", float64(cells))
	f("quipu_memory_cell_bytes", "Memory that they take.", float64(cellBytes))
	f("quipu_memory_dirty_cells", "Cells changed since the last checkpoint began.", float64(dirty))
	f("quipu_memory_tokens", "Tokens decided since the last checkpoint began.", float64(tokens))
	f("quipu_writers", "Writers the store knows.", float64(writers))
	l := e.log.Stats()
	f("quipu_log_frames_total", "Frames written to the log: group commits.", float64(l.Frames))
	f("quipu_log_bytes_total", "Bytes written to the log.", float64(l.Bytes))
	f("quipu_log_syncs_total", "Syncs of the log.", float64(l.Syncs))
	f("quipu_log_sync_seconds_total", "Time spent in syncs of the log.", l.SyncTime.Seconds())
	f("quipu_store_stopped", "1 if a write or sync failed, so that nothing is written until a restart.", stopped)
	f("quipu_disk_full", "1 if writes are refused because the disk is nearly full.", full)
	if usage, err := e.o.FS.GetDiskUsage(e.dir); err == nil {
		f("quipu_disk_free_bytes", "Bytes that are free on the disk.", float64(usage.AvailBytes))
	}
	e.mu.Lock()
	e.now()
	e.clock.Meters(f)
	e.mu.Unlock()
	f("quipu_recovered_bytes", "Bytes of log replayed at the last start.", float64(m.recoveredBytes))
	f("quipu_recovered_frames", "Frames of log replayed at the last start.", float64(m.recoveredFrames))
	d, err := guard(e, func() (*pebble.Metrics, error) { return e.db.Metrics(), nil })
	if err != nil {
		return
	}
	f("quipu_disk_bytes", "Bytes of the rows on disk.", float64(d.DiskSpaceUsage()))
}
