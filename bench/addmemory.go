package main

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
)

const addMemoryAbout = "`Add` with policy `memory` by one caller to one hot counter. There is no peer; an atomic add, and a Go map " +
	"behind a mutex, neither of which ever reaches a disk, are there for scale."

func addMemory(s *session) error {
	err := s.alternate(
		func() error {
			return s.inTemp(func(dir string) error {
				db, err := openDB(dir, 0, quipu.Memory)
				if err != nil {
					return err
				}
				return errors.Join(s.spin("quipu", func() error {
					_, err := db.Add(s.ctx, hotKey, 1)
					return err
				}), db.Close())
			})
		},
		func() error {
			var n atomic.Int64
			return s.spin("atomic", func() error {
				n.Add(1)
				return nil
			})
		},
		func() error {
			var mu sync.Mutex
			counters := map[string]int64{}
			return s.spin("mutex and map", func() error {
				mu.Lock()
				counters[hotKey]++
				mu.Unlock()
				return nil
			})
		},
	)
	if err != nil {
		return err
	}
	s.atMost("ns/Add", s.median("quipu", spinNS), 150)
	s.atMost("allocations/Add, those of the background included", s.median("quipu", spinAllocs), 0.01)
	return nil
}

const (
	spinNS     = "ns/Add"
	spinAllocs = "allocations/Add"
)

// spin calls op one time after the other, and records what a call costs.
func (s *session) spin(side string, op func() error) error {
	const turns = 10_000 // between two looks at the clock
	var before, after runtime.MemStats
	var cpu time.Duration
	n := 0
	d := pick(s, 2*time.Second, 300*time.Millisecond)
	run := func(d time.Duration) error {
		n = 0
		for began := time.Now(); time.Since(began) < d; n += turns {
			for range turns {
				if err := op(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := run(d / 10); err != nil {
		return err
	}
	runtime.ReadMemStats(&before)
	cpu, err := cpuTime(os.Getpid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := run(d); err != nil {
		return err
	}
	took := time.Since(began)
	end, err := cpuTime(os.Getpid())
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	s.record(side, spinNS, float64(took)/float64(n))
	s.record(side, cpuNS, float64(end-cpu)/float64(n))
	s.record(side, spinAllocs, float64(after.Mallocs-before.Mallocs)/float64(n))
	return nil
}
