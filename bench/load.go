package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/load/proc"
)

const (
	rate  = "operations/s"
	cpuNS = "CPU ns/operation"
)

// A workload is what one side does in one round.
type workload struct {
	callers int
	time    time.Duration

	// op is called over and over by each caller, and returns how many
	// operations that were.
	op func(caller int) (int, error)

	// close does what op put off. Its CPU time counts.
	close func() error
}

// drive runs a workload after a short one that is not counted, and records its
// rate and its CPU time.
func (s *session) drive(side string, w workload) error {
	_, _, err := repeat(w.callers, w.time/10, w.op)
	before, cpuErr := cpuTime(proc.Self)
	err = errors.Join(err, cpuErr)
	ops, took := 0, time.Duration(0)
	if err == nil {
		ops, took, err = repeat(w.callers, w.time, w.op)
	}
	if w.close != nil {
		err = errors.Join(err, w.close())
	}
	after, cpuErr := cpuTime(proc.Self)
	if err = errors.Join(err, cpuErr); err != nil {
		return fmt.Errorf("drive %s: %w", side, err)
	}
	s.record(side, rate, float64(ops)/took.Seconds())
	s.record(side, cpuNS, float64(after-before)/float64(ops))
	return nil
}

// repeat lets callers call op until the time is over, and returns how many
// operations that were and how long it took until the last returned.
func repeat(callers int, d time.Duration, op func(caller int) (int, error)) (int, time.Duration, error) {
	var stop atomic.Bool
	var total atomic.Int64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	for c := range callers {
		wg.Go(func() {
			n := 0
			for !stop.Load() && errs[c] == nil {
				var did int
				did, errs[c] = op(c)
				n += did
			}
			if errs[c] != nil {
				stop.Store(true)
			}
			total.Add(int64(n))
		})
	}
	wg.Wait()
	return int(total.Load()), time.Since(began), errors.Join(errs...)
}

// wait waits for some time.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keyFormat names counters as people do.
const (
	keyFormat = "counter:video:%08d"
	keyBytes  = len("counter:video:00000042")
)

// hotKey is the counter that everybody counts on.
const hotKey = "counter:video:00000042"

// keys are names of counters, in one string: taking one allocates nothing.
type keys string

// newKeys returns n keys; number gives each its number.
func newKeys(n int, number func(i int) int) keys {
	var b strings.Builder
	b.Grow(n * keyBytes)
	for i := range n {
		_, _ = fmt.Fprintf(&b, keyFormat, number(i))
	}
	return keys(b.String())
}

func (k keys) len() int        { return len(k) / keyBytes }
func (k keys) at(i int) string { return string(k[i*keyBytes : (i+1)*keyBytes]) }

// inOrder numbers keys as they come.
func inOrder(i int) int { return i }

// scattered numbers n keys in an order far from their own.
func scattered(n int) func(i int) int {
	const prime = 7_368_787
	return func(i int) int { return i * prime % n }
}
