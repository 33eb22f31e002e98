package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/quipudb/quipu"
)

const addBatchAbout = "Durable batches of 1,000 adds by 16 callers, keys uniform out of a million that all exist, against Pebble: " +
	"`Merge` and a synced commit of the same batches. CPU time includes what is put off: " +
	"Quipu's last checkpoint, and the flush of Pebble's memtable, but not the compactions that Pebble still owes."

func addBatch(s *session) error {
	b := batches{
		session: s,
		time:    pick(s, 5*time.Second, 300*time.Millisecond),
		keys:    newKeys(pick(s, 1_000_000, 10_000), inOrder),
	}
	b.note("Quipu is measured with its default memory limit of 256 MiB, and with 1 GiB. " +
		"Pebble has memtables of 64 MiB, up to 4 of them, a block cache of 256 MiB, and compacts on all cores.")
	err := s.alternate(
		func() error { return s.inTemp(func(dir string) error { return b.quipu(dir, "quipu", 0) }) },
		func() error { return s.inTemp(b.pebble) },
		func() error { return s.inTemp(func(dir string) error { return b.quipu(dir, "quipu, 1 GiB", 1<<30) }) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of Pebble", s.over("quipu", "pebble", rate), 5)
	s.atLeast("rate with 1 GiB over that of Pebble", s.over("quipu, 1 GiB", "pebble", rate), 5)
	return nil
}

const batchCallers = 16

type batches struct {
	*session
	time time.Duration
	keys keys
}

func (b *batches) quipu(dir, side string, memory int64) error {
	db, err := openDB(dir, memory, quipu.Synced)
	if err != nil {
		return err
	}
	if err := addBatched(b.ctx, db, b.keys.len(), inOrder); err != nil {
		return errors.Join(err, db.Close())
	}
	events := make([][]quipu.Event, batchCallers)
	for c := range events {
		events[c] = make([]quipu.Event, batchEvents)
	}
	return b.drive(side, workload{
		callers: batchCallers, time: b.time, close: db.Close,
		op: func(c int) (int, error) {
			for i := range events[c] {
				events[c][i] = quipu.Event{Key: b.keys.at(rand.IntN(b.keys.len())), Delta: 1}
			}
			return batchEvents, addEvents(b.ctx, db, events[c])
		},
	})
}

func (b *batches) pebble(dir string) error {
	db, err := pebble.Open(dir, pebbleOptions())
	if err != nil {
		return err
	}
	commit := func(key func(i int) string) (int, error) {
		var one [8]byte
		binary.LittleEndian.PutUint64(one[:], 1)
		batch := db.NewBatch()
		defer func() { _ = batch.Close() }() // to the pool; its error is that of a batch not committed
		var buf []byte
		for i := range batchEvents {
			buf = append(buf[:0], key(i)...)
			if err := batch.Merge(buf, one[:], nil); err != nil {
				return 0, err
			}
		}
		return batchEvents, batch.Commit(pebble.Sync)
	}
	for from := 0; from < b.keys.len(); from += batchEvents {
		if _, err := commit(func(i int) string { return b.keys.at(from + i) }); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	return b.drive("pebble", workload{
		callers: batchCallers, time: b.time,
		op: func(int) (int, error) {
			return commit(func(int) string { return b.keys.at(rand.IntN(b.keys.len())) })
		},
		close: func() error { return errors.Join(db.Flush(), db.Close()) },
	})
}

// pebbleOptions are what one would give Pebble for this work.
func pebbleOptions() *pebble.Options {
	return &pebble.Options{
		CacheSize:                   256 << 20,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, runtime.NumCPU() },
		Logger:                      silent{},
		Merger: &pebble.Merger{
			Name: "bench.add",
			Merge: func(_, value []byte) (pebble.ValueMerger, error) {
				s := new(sum)
				return s, s.MergeNewer(value)
			},
		},
	}
}

// A sum merges by adding.
type sum uint64

func (s *sum) MergeNewer(value []byte) error {
	if len(value) != 8 {
		return errors.New("not a number")
	}
	*s += sum(binary.LittleEndian.Uint64(value))
	return nil
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) {
	return binary.LittleEndian.AppendUint64(nil, uint64(*s)), nil, nil
}

// silent is a logger for Pebble that drops what it is told.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
