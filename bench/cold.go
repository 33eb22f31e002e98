package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu"
)

const coldAbout = "Ten million counters under a memory limit of 256 MiB: added in an order far from their own, in batches of 1,000, " +
	"synced, by one caller; then read at random, one at a time, by a fresh process."

const mib = 1 << 20

func cold(s *session) error {
	args := coldArgs{Counters: pick(s, 10_000_000, 100_000), Reads: pick(s, 20_000, 1000), Memory: pick[int64](s, 256<<20, 16<<20)}
	s.note("The page cache is not dropped between loading and reading, so a read of the disk may be one of memory.")
	err := s.alternate(func() error {
		return s.inTemp(func(dir string) error {
			a := args
			a.Dir = dir
			loaded, err := runChild[coldLoad](s.ctx, "load", a, ended)
			if err != nil {
				return err
			}
			out, err := exec.CommandContext(s.ctx, "du", "-s", "-B1", dir).Output()
			if err != nil {
				return fmt.Errorf("weigh %s: %w", dir, err)
			}
			size, _, _ := strings.Cut(string(out), "\t")
			bytes, err := strconv.ParseFloat(size, 64)
			if err != nil {
				return fmt.Errorf("weigh %s: %w", dir, err)
			}
			read, err := runChild[coldRead](s.ctx, "read", a, ended)
			if err != nil {
				return err
			}
			s.record("load", "adds/s", float64(a.Counters)/loaded.Seconds)
			s.record("load", "CPU ns/add", loaded.CPU*1e9/float64(a.Counters))
			s.record("load", "resident MiB, peak", loaded.Peak/mib)
			s.record("load", "resident MiB, at the end", loaded.Settled/mib)
			s.record("load", "seconds to close", loaded.CloseSeconds)
			s.record("disk", "bytes/counter", bytes/float64(a.Counters))
			s.record("read", "seconds to open", read.OpenSeconds)
			s.record("read", "µs, median", read.MedianMicros)
			s.record("read", "µs, 99 of 100", read.P99Micros)
			s.record("read", "CPU µs/read", read.CPU*1e6/float64(a.Reads))
			s.record("read", "rows read from disk/read", read.DiskReads/float64(a.Reads))
			s.record("read", "resident MiB, peak", read.Peak/mib)
			return nil
		})
	})
	if err != nil {
		return err
	}
	s.atMost("resident MiB while loading, peak", slices.Max(s.find("load", "resident MiB, peak").Values), 450)
	s.atMost("resident MiB while reading, peak", slices.Max(s.find("read", "resident MiB, peak").Values), 450)
	s.atMost("µs of a cold read, median", s.median("read", "µs, median"), 1000)
	s.atMost("seconds to open after a clean close", s.median("read", "seconds to open"), 3)
	s.atMost("seconds to close", s.median("load", "seconds to close"), 1)
	return nil
}

type coldArgs struct {
	Dir             string
	Counters, Reads int
	Memory          int64
}

type coldLoad struct {
	Seconds, CPU, CloseSeconds float64
	Peak, Settled              float64 // resident bytes
}

// loadCold is the child of cold that writes.
func loadCold(a coldArgs) (r coldLoad, err error) {
	db, err := openDB(a.Dir, a.Memory, quipu.Synced)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := addBatched(context.Background(), db, a.Counters, scattered(a.Counters)); err != nil {
		return r, err
	}
	r.Seconds = time.Since(began).Seconds()
	if r.Settled, err = settledRSS(); err != nil {
		return r, err
	}
	began = time.Now()
	if err := db.Close(); err != nil {
		return r, err
	}
	r.CloseSeconds = time.Since(began).Seconds()
	r.CPU, r.Peak, err = usage()
	return r, err
}

type coldRead struct {
	OpenSeconds, CPU        float64
	MedianMicros, P99Micros float64
	DiskReads, Peak         float64
}

// readCold is the child of cold that reads.
func readCold(a coldArgs) (r coldRead, err error) {
	began := time.Now()
	db, err := openDB(a.Dir, a.Memory, quipu.Synced)
	if err != nil {
		return r, err
	}
	r.OpenSeconds = time.Since(began).Seconds()
	opened, _, err := usage()
	if err != nil {
		return r, err
	}
	took := make([]time.Duration, a.Reads)
	for i := range took {
		key := fmt.Sprintf(keyFormat, rand.IntN(a.Counters))
		began := time.Now()
		count, err := db.Read(context.Background(), key)
		took[i] = time.Since(began)
		if err != nil {
			return r, err
		}
		if count.Value != 1 {
			return r, fmt.Errorf("read %s: got %d, want 1", key, count.Value)
		}
	}
	slices.Sort(took)
	r.MedianMicros = float64(took[len(took)/2]) / 1e3
	r.P99Micros = float64(took[len(took)*99/100]) / 1e3
	r.DiskReads = meter(db, "quipu_store_disk_reads_total")
	if r.CPU, r.Peak, err = usage(); err != nil {
		return r, err
	}
	r.CPU -= opened
	return r, db.Close()
}
