package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/engine"
)

const recoverAbout = "Opening a store whose process was killed with 1 GiB of log behind the last checkpoint: synced batches of 1,000 adds, " +
	"uniform over a million counters, and all on one. Each opening is killed too, so that the next has the same to do. " +
	"The sum of all counters is checked each time."

func recovery(s *session) error {
	s.note("The page cache is not dropped: the log is read from memory.")
	a := recoverArgs{Bytes: pick(s, 1<<30, 4.0*mib), Counters: pick(s, 1_000_000, 10_000)}
	uniform, err := s.filled("uniform", a)
	if err != nil {
		return err
	}
	a.Counters = 1
	hot, err := s.filled("hot", a)
	if err != nil {
		return err
	}
	if err := s.alternate(uniform, hot); err != nil {
		return err
	}
	for _, side := range []string{"uniform", "hot"} {
		s.atLeast("records/s, "+side, s.median(side, "records/s"), 3_000_000)
	}
	return nil
}

// filled makes a store to recover, and returns what recovers it once.
func (s *session) filled(side string, a recoverArgs) (func() error, error) {
	a.Dir = s.dir + "/" + side
	made, err := runChild[filledLog](s.ctx, "fill", a, killed)
	if err != nil {
		return nil, err
	}
	a.Records = made.Records
	s.note("%s: %s records in %s bytes of log, %.1f a record.", side, number(float64(made.Records)),
		number(made.Bytes), made.Bytes/float64(made.Records))
	return func() error {
		r, err := runChild[recovered](s.ctx, "replay", a, killed)
		if err != nil {
			return err
		}
		s.record(side, "records/s", float64(made.Records)/r.Seconds)
		s.record(side, "seconds to open", r.Seconds)
		s.record(side, "CPU ns/record", r.CPU*1e9/float64(made.Records))
		s.record(side, "resident MiB, peak", r.Peak/mib)
		return nil
	}, nil
}

type recoverArgs struct {
	Dir      string
	Bytes    float64 // of log
	Counters int
	Records  int // to be found
}

type filledLog struct {
	Records int
	Bytes   float64
}

// openUnsaved opens a DB that makes no checkpoint by itself.
func openUnsaved(dir string) (*quipu.DB, error) {
	e, err := engine.Open(dir, engine.Options{
		Memory: 2 << 30, CheckpointBytes: 1 << 40, CheckpointEvery: 24 * time.Hour,
	})
	if err != nil {
		return nil, err
	}
	return quipu.New(e, quipu.Options{Logger: slog.New(slog.DiscardHandler)}), nil
}

// fill is the child of recovery that writes.
func fill(a recoverArgs) (r filledLog, err error) {
	db, err := openUnsaved(a.Dir)
	if err != nil {
		return r, err
	}
	k := newKeys(a.Counters, inOrder)
	add := func(int) (int, error) {
		events := make([]quipu.Event, batchEvents)
		for i := range events {
			events[i] = quipu.Event{Key: k.at(rand.IntN(k.len())), Delta: 1}
		}
		return batchEvents, addEvents(context.Background(), db, events)
	}
	for r.Bytes < a.Bytes {
		n, _, err := repeat(batchCallers, 50*time.Millisecond, add)
		if err != nil {
			return r, err
		}
		r.Records += n
		r.Bytes = meter(db, "quipu_log_bytes_total")
	}
	if meter(db, "quipu_checkpoints_total") > 0 {
		return r, errors.New("a checkpoint was made")
	}
	return r, nil
}

type recovered struct{ Seconds, CPU, Peak float64 }

// replay is the child of recovery that recovers.
func replay(a recoverArgs) (r recovered, err error) {
	began := time.Now()
	db, err := openUnsaved(a.Dir)
	if err != nil {
		return r, err
	}
	r.Seconds = time.Since(began).Seconds()
	if r.CPU, r.Peak, err = usage(); err != nil {
		return r, err
	}
	total, err := sumOf(db)
	if err == nil && total != int64(a.Records) {
		err = fmt.Errorf("recovered %d of %d records", total, a.Records)
	}
	return r, err
}

// sumOf returns the sum of all counters.
func sumOf(db *quipu.DB) (total int64, err error) {
	for o := (quipu.ListOptions{Limit: quipu.PageMax}); ; {
		page, err := db.List(context.Background(), "", o)
		if err != nil {
			return 0, err
		}
		for i := range page.Counts {
			total += page.Counts[i].Value
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			return total, nil
		}
	}
}
