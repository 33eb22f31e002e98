package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/pgtest"
)

// A postgres is a PostgreSQL server of our own, with default settings and a table
// of counters.
type postgres struct {
	*pgtest.Server
}

// startPostgres starts a server on new files below dir.
func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	s, err := pgtest.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	p := &postgres{s}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// prepare makes the table and the script.
func (p *postgres) prepare(ctx context.Context) error {
	table := fmt.Sprintf(`CREATE TABLE counters (id int PRIMARY KEY, n bigint NOT NULL);
		INSERT INTO counters SELECT id, 0 FROM generate_series(1, %d) AS id`, pgRowsMax)
	if _, err := p.Run(ctx, "psql", "-v", "ON_ERROR_STOP=1", "-c", table, p.URL()); err != nil {
		return err
	}
	const script = "\\set id random(1, :rows)\nUPDATE counters SET n = n + 1 WHERE id = :id;\n"
	return os.WriteFile(p.Path("script"), []byte(script), 0o644)
}

// A pgLoad is how pgbench updates: rows at random, of those that there are.
type pgLoad struct{ rows, connections int }

// pgRowsMax is how many rows there are.
const pgRowsMax = 100

// A pgResult is what pgbench counted.
type pgResult struct {
	transactions int
	rate         float64
}

// bench runs the script for some time, in whole seconds.
func (p *postgres) bench(ctx context.Context, l pgLoad, d time.Duration) (r pgResult, err error) {
	out, err := p.Run(ctx, "pgbench", "-h", p.Dir(), "-U", pgtest.User, "-n", "-M", "prepared", "-f", p.Path("script"),
		"-D", "rows="+strconv.Itoa(l.rows), "-c", strconv.Itoa(l.connections), "-j", "2", "-T", strconv.Itoa(int(d.Seconds())), pgtest.User)
	if err != nil {
		return r, err
	}
	if strings.Contains(out, "actually processed: 0\n") && d < 10*time.Second { // All of it went into connecting.
		return p.bench(ctx, l, 2*d)
	}
	found := regexp.MustCompile(`(?s)actually processed: (\d+).*number of failed transactions: 0 .*tps = ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		return r, fmt.Errorf("no result in what pgbench said:\n%s", out)
	}
	if r.transactions, err = strconv.Atoi(found[1]); err != nil {
		return r, err
	}
	r.rate, err = strconv.ParseFloat(found[2], 64)
	return r, err
}

// drivePostgres updates for some time, and records the rate and the server's
// CPU time.
func (s *session) drivePostgres(side string, p *postgres, l pgLoad, d time.Duration) error {
	before, err := cpuTimeOfAll(p.PID)
	if err != nil {
		return err
	}
	r, err := p.bench(s.ctx, l, d)
	if err != nil {
		return err
	}
	after, err := cpuTimeOfAll(p.PID)
	s.record(side, rate, r.rate)
	s.record(side, cpuNS, float64(after-before)/float64(r.transactions))
	return err
}
