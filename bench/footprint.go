package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/quipudb/quipu"
)

const footprintAbout = "Memory that a counter takes: growth of a process's resident memory, divided by the counters added, all of " +
	"which stay in memory. Freed memory is given back to the system before each look. A Go map is there for scale."

func footprint(s *session) error {
	sizes := pick(s, []int{1_000_000, 5_000_000}, []int{50_000, 100_000})
	side := func(name string, inMap bool) func() error {
		return func() error {
			return s.inTemp(func(dir string) error {
				weights, err := runChild[[]weight](s.ctx, "weigh", weighArgs{dir, sizes, inMap}, ended)
				if err != nil {
					return err
				}
				for _, w := range weights {
					s.record(name, bytesPer(w.Counters), w.Bytes/float64(w.Counters))
				}
				return nil
			})
		}
	}
	if err := s.alternate(side("quipu", false), side("map[string]int64", true)); err != nil {
		return err
	}
	for _, n := range sizes {
		s.atMost(bytesPer(n), s.median("quipu", bytesPer(n)), 80)
	}
	return nil
}

func bytesPer(counters int) string {
	return "bytes/counter, of " + number(float64(counters))
}

type weighArgs struct {
	Dir   string
	Sizes []int
	InMap bool // weigh a Go map instead of a DB
}

// A weight is how much a process grew by a number of counters.
type weight struct {
	Counters int
	Bytes    float64
}

// weigh is the child of footprint.
func weigh(a weighArgs) ([]weight, error) {
	counters := map[string]int64{}
	add := func(from, to int) error {
		for i := from; i < to; i++ {
			counters[fmt.Sprintf(keyFormat, i)]++
		}
		return nil
	}
	if !a.InMap {
		db, err := openDB(a.Dir, 2<<30, quipu.Memory)
		if err != nil {
			return nil, err
		}
		defer func() { _ = db.Close() }()
		add = func(from, to int) error {
			err := addBatched(context.Background(), db, to-from, func(i int) int { return from + i })
			if err == nil && meter(db, "quipu_memory_cells") < float64(to) {
				return errors.New("not all counters are in memory")
			}
			return err
		}
	}
	var weights []weight
	before, err := settledRSS()
	for i, n := range a.Sizes {
		from := 0
		if i > 0 {
			from = a.Sizes[i-1]
		}
		if err = errors.Join(err, add(from, n)); err != nil {
			return nil, err
		}
		var after float64
		after, err = settledRSS()
		weights = append(weights, weight{n, after - before})
	}
	runtime.KeepAlive(counters)
	return weights, err
}

// settledRSS returns the resident memory of this process without what it no
// longer needs.
func settledRSS() (float64, error) {
	debug.FreeOSMemory()
	return memoryOf(self, "VmRSS")
}
