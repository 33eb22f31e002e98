// Package mirror writes totals into a table of the user, in PostgreSQL.
//
// A pass reads all counters, a page at a time, and writes each page by one
// statement that touches only the rows that change. Nothing reads the table
// back. A failed pass continues where it stopped, and a restarted mirror begins
// a new pass, so there is no state to lose.
//
// If counters only grow, a value lower than that in the table means that the
// store has lost data. Such a value is refused, counted and logged.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/store"
)

// A Row is a total.
type Row struct {
	Key   string
	Value int64
}

// A Source returns up to n totals, in the order of their keys, and the cursor of
// those that follow; it is empty at the end.
type Source func(ctx context.Context, cursor string, n int) (rows []Row, next string, err error)

// Options say what is written where. All but Grows must be set.
type Options struct {
	Source Source
	URL    string // of the PostgreSQL server
	Table  Table
	Rows   int           // in a batch, at most
	Every  time.Duration // from the beginning of a pass to that of the next
	Grows  bool          // a lower value never replaces a higher one
	Logger *slog.Logger
}

const (
	batchMax  = time.Minute // for writing a batch
	waitFirst = 500 * time.Millisecond
	waitMax   = 30 * time.Second
	casesMax  = 10 // lower values that a line of the log names
)

// Sums are what was done with rows.
type Sums struct {
	Written   int64 `json:"written"`
	Unchanged int64 `json:"unchanged"`
	Lower     int64 `json:"lower"`   // refused
	Skipped   int64 `json:"skipped"` // keys that the column can't hold
}

func (s *Sums) add(o Sums) {
	s.Written += o.Written
	s.Unchanged += o.Unchanged
	s.Lower += o.Lower
	s.Skipped += o.Skipped
}

// A Mirror writes totals into a table. Pass and Run are for one goroutine at a
// time; Meters is for any.
type Mirror struct {
	o    Options
	pool *pgxpool.Pool
	sql  string
	text bool // the key column is of text, which has no zero bytes

	// The pass under way.
	cursor string
	begun  time.Time // zero if none is
	sums   Sums

	fresh                             atomic.Int64 // when the last pass that was completed began, Unix nanoseconds
	written, unchanged, lower, passes atomic.Int64
	skipped, failures                 atomic.Int64
}

// Open connects to the server and checks the table.
func Open(ctx context.Context, o Options) (*Mirror, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil { // what it says may have the password in it
		return nil, store.Errorf(store.KindInvalid, "the URL of the PostgreSQL server can't be read")
	}
	config.MaxConns = 1
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may be in between
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, store.Errorf(store.KindUnavailable, "connect to PostgreSQL: %w", err)
	}
	m := &Mirror{o: o, pool: pool}
	m.fresh.Store(time.Now().UnixNano())
	if m.text, err = o.Table.check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	m.sql = o.Table.upsert(m.text, o.Grows)
	return m, nil
}

// Close closes the connection.
func (m *Mirror) Close() { m.pool.Close() }

// Run makes one pass after the other until ctx ends, which is no error. After a
// failure it waits, longer each time, and goes on where it stopped.
func (m *Mirror) Run(ctx context.Context) {
	for wait := waitFirst; ; {
		cursor := m.cursor
		sums, err := m.Pass(ctx)
		if err == nil || m.cursor != cursor { // it came further
			wait = waitFirst
		}
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause, wait = wait/2+rand.N(wait/2), min(2*wait, waitMax)
			m.o.Logger.Warn("the pass failed and will be resumed", "in", pause, "error", err)
		default:
			took := time.Since(m.lastBegun())
			pause = m.o.Every - took
			m.o.Logger.Info("pass completed", "took", took, "written", sums.Written,
				"unchanged", sums.Unchanged, "lower", sums.Lower, "skipped", sums.Skipped)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (m *Mirror) lastBegun() time.Time { return time.Unix(0, m.fresh.Load()) }

// Pass makes a pass, or the rest of one that failed. When ctx ends it returns
// after the batch under way.
func (m *Mirror) Pass(ctx context.Context) (Sums, error) {
	if m.begun.IsZero() {
		m.begun = time.Now()
	}
	for {
		next, err := m.page(ctx)
		if err != nil && ctx.Err() == nil {
			m.failures.Add(1)
		}
		if err != nil {
			return m.sums, err
		}
		if m.cursor = next; next == "" {
			break
		}
		if err := ctx.Err(); err != nil {
			return m.sums, err
		}
	}
	sums := m.sums
	m.passes.Add(1)
	m.fresh.Store(m.begun.UnixNano())
	m.begun, m.sums = time.Time{}, Sums{}
	return sums, nil
}

// page reads a page of totals and writes it.
func (m *Mirror) page(ctx context.Context) (next string, err error) {
	rows, next, err := m.o.Source(ctx, m.cursor, m.o.Rows)
	if err != nil {
		return "", fmt.Errorf("read totals: %w", err)
	}
	// A write that was begun is brought to its end.
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchMax)
	defer cancel()
	sums, err := m.write(write, rows)
	if err != nil {
		return "", err
	}
	m.sums.add(sums)
	m.written.Add(sums.Written)
	m.unchanged.Add(sums.Unchanged)
	m.lower.Add(sums.Lower)
	m.skipped.Add(sums.Skipped)
	return next, nil
}

// write writes a batch.
func (m *Mirror) write(ctx context.Context, rows []Row) (Sums, error) {
	texts, raws, values := []string{}, [][]byte{}, []int64{}
	for _, r := range rows {
		switch {
		case !m.text:
			raws = append(raws, []byte(r.Key))
		case strings.Contains(r.Key, "\x00"):
			m.o.Logger.Warn("a key with a zero byte can't be in a column of text", "key", r.Key)
			continue
		default:
			texts = append(texts, r.Key)
		}
		values = append(values, r.Value)
	}
	sums := Sums{Skipped: int64(len(rows) - len(values))}
	if len(values) == 0 {
		return sums, nil
	}
	var keys any = texts
	if !m.text {
		keys = raws
	}
	var cases []string
	if err := m.pool.QueryRow(ctx, m.sql, keys, values).Scan(&sums.Written, &sums.Lower, &cases); err != nil {
		return Sums{}, failure(err)
	}
	sums.Unchanged = int64(len(values)) - sums.Written - sums.Lower
	if sums.Lower > 0 {
		m.o.Logger.Error("lower values were refused: the store has lost data, or counters were reset",
			"rows", sums.Lower, "first", strings.Join(cases, "; "))
	}
	return sums, nil
}

// failure returns the error of a statement. All of it may be sent again.
func failure(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Errorf("write to the table: %w", pg)
	}
	return store.Errorf(store.KindUnavailable, "write to the table: %w", err)
}

// Meters reports what was done, and how old what the table has may be.
func (m *Mirror) Meters(f func(name, help string, value float64)) {
	f("quipu_mirror_lag_seconds", "Since the beginning of the last pass that was completed; before the first, since the start.",
		time.Since(m.lastBegun()).Seconds())
	f("quipu_mirror_passes_total", "Passes completed.", float64(m.passes.Load()))
	f("quipu_mirror_errors_total", "Failures that stopped a pass.", float64(m.failures.Load()))
	f("quipu_mirror_rows_written_total", "Rows inserted or changed.", float64(m.written.Load()))
	f("quipu_mirror_rows_unchanged_total", "Rows that were so already.", float64(m.unchanged.Load()))
	f("quipu_mirror_rows_lower_total", "Values refused because the table had a higher one.", float64(m.lower.Load()))
	f("quipu_mirror_rows_skipped_total", "Totals whose keys the column can't hold.", float64(m.skipped.Load()))
}
