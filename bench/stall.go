package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

const stallAbout = "How long writers wait while a server saves what has changed: 30,000 `INCR` a second over RESP, uniform over all counters, on 200 connections, each of which sends " +
	"one at a time. It is an open loop: commands are due whatever the server does, and a wait counts from when a command was due. The server has the embedded store, and all " +
	"its counters have changed. `" + calm + "` is before they are saved; `" + saving + "` is from 2 s before the checkpoint, which the server makes by itself 30 s after the first change, to " +
	"1 s after its end; `" + backingUp + "` is from the beginning of a backup to 1 s after its end. Load and server share the machine."

// The server does one of these meanwhile.
const (
	calm      = "nothing"
	saving    = "checkpoint"
	backingUp = "backup"
)

const (
	// stallMemory is enough that nothing but the time brings a checkpoint about.
	stallMemory = "2GiB"
	// stallDue is when it does, after the first change.
	stallDue = 30 * time.Second
	// stallLead and stallTail are how long the load goes on before and after.
	stallLead = 2 * time.Second
	stallTail = time.Second
	// stallMax is how long is waited for what is to happen.
	stallMax = 2 * time.Minute

	waitP999  = "ms waited, p99.9"
	waitMax   = "ms waited, longest"
	waitP50   = "ms waited, median"
	savedRows = "counters saved"
)

// stalls are servers, and the load that they are under.
type stalls struct {
	*session
	rate        float64
	connections int
}

func stall(s *session) error {
	st := &stalls{session: s, rate: pick(s, 30_000.0, 2000), connections: pick(s, 200, 10)}
	sizes := pick(s, []int{1_000_000, 5_000_000}, []int{10_000})
	var names []string
	for _, n := range sizes {
		names = append(names, strconv.Itoa(n))
	}
	chosen, err := pickNames("-cases", s.choice.cases, names)
	if err != nil {
		return err
	}
	sizes = slices.DeleteFunc(sizes, func(n int) bool { return !slices.Contains(chosen, strconv.Itoa(n)) })
	var sides []func() error
	for _, n := range sizes {
		sides = append(sides, func() error { return s.inTemp(func(dir string) error { return st.serve(dir, n) }) })
	}
	if err := s.alternate(sides...); err != nil {
		return err
	}
	s.note("`quipu serve --memory %s`.", stallMemory)
	for _, n := range sizes {
		side := stallSide(n, saving)
		s.atMost(side+": "+waitP999, s.median(side, waitP999), 10)
		s.atMost(side+": "+waitMax, s.median(side, waitMax), 25)
	}
	return nil
}

func stallSide(counters int, during string) string {
	return fmt.Sprintf("%s counters, %s", number(float64(counters)), during)
}

// serve measures a server of so many counters.
func (st *stalls) serve(dir string, counters int) (err error) {
	const free = "127.0.0.1:0"
	server, err := st.serveQuipu(dir, "--http", free, "--resp", free, "--rpc", "off", "--memory", stallMemory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	began := time.Now()
	if err := fillKeys(st.ctx, server.doors["resp"], 0, counters); err != nil {
		return err
	}
	before, err := server.checkpoints(st.ctx)
	if err != nil {
		return err
	}
	if before.made > 0 {
		return errors.New("the server made a checkpoint before it was due")
	}
	err = st.load(server, counters, calm, func(ctx context.Context) error {
		return wait(ctx, pick(st.session, 5*time.Second, time.Second))
	})
	if err != nil {
		return err
	}
	if !st.quick {
		if err := wait(st.ctx, time.Until(began.Add(stallDue-stallLead))); err != nil {
			return err
		}
	}
	err = st.load(server, counters, saving, func(ctx context.Context) error {
		if st.quick { // it is not waited for
			if err := server.backup(ctx); err != nil {
				return err
			}
		}
		return server.awaitCheckpoint(ctx, before)
	})
	if err != nil {
		return err
	}
	after, err := server.checkpoints(st.ctx)
	if err != nil {
		return err
	}
	st.record(stallSide(counters, saving), savedRows, after.rows-before.rows)
	return st.load(server, counters, backingUp, server.backup)
}

// load loads a server until something has happened, and for a little longer.
func (st *stalls) load(server *quipuServer, counters int, during string, happen func(context.Context) error) error {
	_, _ = fmt.Fprintf(st.out, "%s: %s\n", st.Figure, stallSide(counters, during))
	ctx, cancel := context.WithCancel(st.ctx)
	defer cancel()
	happened := make(chan error, 1)
	go func() {
		defer cancel()
		err := happen(ctx)
		if err == nil {
			err = wait(ctx, stallTail)
		}
		happened <- err
	}()
	r, err := load.Run(ctx, load.Config{
		Target: server.doors["resp"], Op: load.Incr, Dist: load.Uniform, Keys: int64(counters), Connections: st.connections, Depth: 1,
		Rate: st.rate, Duration: stallMax, ServerPID: server.pid(),
	}, nil)
	cancel()
	if err = errors.Join(err, <-happened, st.ctx.Err()); err != nil {
		return err
	}
	if r.Errors > 0 {
		return fmt.Errorf("%d errors, the first: %s", r.Errors, r.FirstError)
	}
	side := stallSide(counters, during)
	ms := func(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
	st.record(side, waitP999, ms(r.Latency.P999))
	st.record(side, waitMax, ms(r.Latency.Max))
	st.record(side, waitP50, ms(r.Latency.P50))
	st.record(side, rate, r.Rate)
	st.record(side, "seconds", r.Seconds)
	if r.Server != nil {
		st.record(side, busyOf+"Quipu", r.Server.Cores)
	}
	return nil
}

// A checkpoints is how many a server has made, and how many counters they wrote.
type checkpoints struct{ made, rows float64 }

func (s *quipuServer) checkpoints(ctx context.Context) (c checkpoints, err error) {
	url := "http://" + s.doors["http"]
	made, err := meterOf(ctx, url, "quipu_checkpoints_total")
	if err != nil {
		return c, err
	}
	rows, err := meterOf(ctx, url, "quipu_checkpoint_cells_total")
	return checkpoints{made, rows}, err
}

// awaitCheckpoint waits until the server has made one more.
func (s *quipuServer) awaitCheckpoint(ctx context.Context, before checkpoints) error {
	for {
		now, err := s.checkpoints(ctx)
		if err != nil || now.made > before.made {
			return err
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("no checkpoint: %w", err)
		}
	}
}

// backup takes a backup, and throws it away.
func (s *quipuServer) backup(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.doors["http"]+"/api/v1/backup", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("back up: %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
