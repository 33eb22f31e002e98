package main

import (
	"compress/bzip2"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/definition"
)

const (
	reviewsAbout = "578,805 reviews of 247 vendors into a total, days, months, and ratings by day, by month and for all time (8 cells an event), durable, by one client of one embedded server: " +
		"through the combining writer, and in batches of 1,000 events with a token each, which are then sent again and must change nothing."
	postgresViewsAbout = "Reviews one by one from 64 callers, each acknowledged after its commit with synchronous_commit on: the usual three tables in PostgreSQL (total, hour, rating), " +
		"three upserts in a transaction that is one round trip, against Quipu over the same PostgreSQL, with a total, hours and ratings. The callers use one client library each."
)

// A review is a line of a file: what a vendor was rated, and when.
type review struct {
	key, rating string
	at          time.Time
}

// reviewsOf reads the file that -reviews names. Without one they are made up: as many
// vendors, as uneven, over as many years.
func (s *session) reviewsOf() ([]review, error) {
	n := pick(s, 578_805, 5_000)
	if s.reviewsFile == "" {
		s.note("The reviews were made up: Zipf over 247 vendors, uniform over 7 years.")
		return madeUp(n), nil
	}
	file, err := os.Open(s.reviewsFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var raw io.Reader = file
	if strings.HasSuffix(s.reviewsFile, ".bz2") {
		raw = bzip2.NewReader(file)
	}
	lines := csv.NewReader(raw)
	if _, err := lines.Read(); err != nil { // the names of the columns
		return nil, err
	}
	var all []review
	for len(all) < n {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at, err := time.Parse("2006-01-02 15:04", line[3])
		if err != nil {
			return nil, err
		}
		all = append(all, review{"vendor:" + line[1], line[2], at})
	}
	return all, nil
}

func madeUp(n int) []review {
	r := rand.New(rand.NewPCG(1, 2))
	vendors := rand.NewZipf(r, 1.3, 8, 246)
	begin := time.Date(2006, 1, 1, 0, 0, 0, 0, time.UTC)
	all := make([]review, n)
	for i := range all {
		all[i] = review{fmt.Sprint("vendor:", vendors.Uint64()), fmt.Sprint(1 + r.IntN(5)), begin.Add(time.Duration(r.IntN(7*365*24*60)) * time.Minute)}
	}
	return all
}

const years = 366 * 24 * time.Hour

func byRating(windows ...string) definition.Definition {
	d := definition.Definition{Pattern: "vendor:*", Dimensions: []definition.Dimension{{By: []string{"rating"}, Limit: 10}}}
	for _, w := range windows {
		d.Windows = append(d.Windows, window(w, 50*years))
	}
	return d
}

const seconds = "seconds"

func reviews(s *session) error {
	all, err := s.reviewsOf()
	if err != nil {
		return err
	}
	err = s.alternate(
		func() error {
			return s.inTemp(func(dir string) error { return s.sendReviews(dir, "combining writer", all, combined) })
		},
		func() error {
			return s.inTemp(func(dir string) error { return s.sendReviews(dir, "tokens", all, tokened) })
		},
	)
	if err != nil {
		return err
	}
	s.atMost("seconds through the combining writer", s.median("combining writer", seconds), 6)
	s.atMost("seconds with a token each", s.median("tokens", seconds), 6)
	return nil
}

// sendReviews sends reviews to a new server, and checks what they came to. With tokens it
// sends them again.
func (s *session) sendReviews(dir, side string, all []review, send func(context.Context, *client.DB, []review) error) (err error) {
	server, err := s.serveQuipu(filepath.Join(dir, "data"), "--http", "off", "--resp", "off", "--rpc", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	db, err := client.Dial(s.ctx, server.doors["rpc"], client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Define(s.ctx, []definition.Definition{byRating("1d", "1mo")}, call.DefineOptions{}); err != nil {
		return err
	}
	before, err := cpuTime(server.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := send(s.ctx, db, all); err != nil {
		return err
	}
	s.record(side, seconds, time.Since(began).Seconds())
	after, err := cpuTime(server.pid())
	if err != nil {
		return err
	}
	s.record(side, cpuNS, float64(after-before)/float64(len(all)))
	if err := checkReviews(s.ctx, db, all); err != nil || side != "tokens" {
		return err
	}
	began = time.Now()
	if err := send(s.ctx, db, all); err != nil {
		return err
	}
	s.record(side+", sent again", seconds, time.Since(began).Seconds())
	return checkReviews(s.ctx, db, all)
}

// checkReviews compares each vendor's total, and what it has by month and by rating.
func checkReviews(ctx context.Context, db *client.DB, all []review) error {
	want := map[string]int64{}
	for i := range all {
		want[all[i].key]++
	}
	month := window("1mo", 0).Every
	for key, n := range want {
		total, err := db.Read(ctx, key, call.Exact())
		if err != nil {
			return err
		}
		months, err := db.Range(ctx, key, call.RangeOptions{From: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), Step: month})
		if err != nil {
			return err
		}
		ratings, err := db.By(ctx, key, "rating", call.ByOptions{})
		if err != nil {
			return err
		}
		if total.Value != n || months.Sum != n || ratings.Sum != n {
			return fmt.Errorf("%s has a total of %d, %d by month and %d by rating: want %d", key, total.Value, months.Sum, ratings.Sum, n)
		}
	}
	return nil
}

func combined(ctx context.Context, db *client.DB, all []review) error {
	w, err := db.Writer(ctx, client.WriterOptions{Mode: client.Flush})
	if err != nil {
		return err
	}
	for i := range all {
		if err := w.Add(ctx, all[i].key, 1, call.At(all[i].at), call.Dim("rating", all[i].rating)); err != nil {
			return errors.Join(err, w.Close(ctx))
		}
	}
	return w.Close(ctx)
}

// tokened sends batches side by side, as long as there are any.
func tokened(ctx context.Context, db *client.DB, all []review) error {
	var next atomic.Int64
	errs := make([]error, batchCallers)
	var wg sync.WaitGroup
	for c := range errs {
		wg.Go(func() {
			for errs[c] == nil {
				from := int(next.Add(batchEvents)) - batchEvents
				if from >= len(all) {
					return
				}
				events := make([]call.Event, 0, batchEvents)
				for i := from; i < min(from+batchEvents, len(all)); i++ {
					r := &all[i]
					events = append(events, call.Event{Key: r.key, Delta: 1, Token: fmt.Sprint("review:", i), At: r.at, Dims: []call.Dimension{{Name: "rating", Value: r.rating}}})
				}
				receipts, err := db.AddBatch(ctx, events)
				errs[c] = err
				for i := range receipts {
					errs[c] = errors.Join(errs[c], receipts[i].Err)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// The usual tables.
const threeTables = `
CREATE TABLE totals (key text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE hours (key text, hour timestamptz, n bigint NOT NULL, PRIMARY KEY (key, hour));
CREATE TABLE ratings (key text, rating text, n bigint NOT NULL, PRIMARY KEY (key, rating));`

func postgresViews(s *session) (err error) {
	all, err := s.reviewsOf()
	if err != nil {
		return err
	}
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	if _, err := pg.Run(s.ctx, "psql", "-v", "ON_ERROR_STOP=1", "-c", threeTables, pg.URL()); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(pg.URL())
	if err != nil {
		return err
	}
	config.MaxConns = viewCallers
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	server, err := s.serveQuipu("", "--http", "off", "--resp", "off", "--rpc", "127.0.0.1:0", "--store", pg.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	db, err := client.Dial(s.ctx, server.doors["rpc"], client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Define(s.ctx, []definition.Definition{byRating("1h")}, call.DefineOptions{}); err != nil {
		return err
	}
	s.note("%s, default settings, over a Unix socket.", pg.Version)
	var next atomic.Int64
	drive := func(side string, count func(r *review) error) func() error {
		return func() error {
			before, err := cpuTimeOfAll(pg.PID)
			if err != nil {
				return err
			}
			ops, took, err := repeat(viewCallers, pick(s, 5*time.Second, time.Second), func(int) (int, error) {
				return 1, count(&all[int(next.Add(1))%len(all)])
			})
			if err != nil {
				return err
			}
			after, err := cpuTimeOfAll(pg.PID)
			s.record(side, rate, float64(ops)/took.Seconds())
			s.record(side, cpuNS, float64(after-before)/float64(ops))
			return err
		}
	}
	err = s.alternate(
		drive("quipu", func(r *review) error {
			_, err := db.Add(s.ctx, r.key, 1, call.At(r.at), call.Dim("rating", r.rating))
			return err
		}),
		drive("three tables", func(r *review) error { return upsertReview(s.ctx, pool, r) }),
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of three tables", s.over("quipu", "three tables", rate), 2)
	return nil
}

const viewCallers = 64

// upsertReview counts a review in three tables, in the order in which everybody does, so
// that no two wait for each other.
func upsertReview(ctx context.Context, pool *pgxpool.Pool, r *review) error {
	var b pgx.Batch
	b.Queue("INSERT INTO totals VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET n = totals.n + 1", r.key)
	b.Queue("INSERT INTO hours VALUES ($1, date_trunc('hour', $2::timestamptz), 1) ON CONFLICT (key, hour) DO UPDATE SET n = hours.n + 1", r.key, r.at)
	b.Queue("INSERT INTO ratings VALUES ($1, $2, 1) ON CONFLICT (key, rating) DO UPDATE SET n = ratings.n + 1", r.key, r.rating)
	return pool.SendBatch(ctx, &b).Close()
}
