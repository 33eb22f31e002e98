package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/mirror"
	"github.com/quipudb/quipu/internal/server"
)

type mirrorCmd struct {
	To    string `help:"The database: postgres://…" required:"" placeholder:"URL"`
	Table string `help:"The table, or SCHEMA.TABLE. Case-sensitive." required:"" placeholder:"NAME"`

	KeyColumn   string `help:"Column for the keys: text, varchar or bytea, and unique." default:"key" placeholder:"NAME"`
	ValueColumn string `help:"Column for the totals: bigint or numeric." default:"value" placeholder:"NAME"`

	Addr      address `help:"Address of the server whose counters are read: HOST:PORT or a URL." default:"http://127.0.0.1:8080"`
	APIKey    string  `name:"api-key" help:"API key for the server. Of a comma-separated list, the first is used." placeholder:"KEY"`
	Namespace word    `help:"Namespace of the keys." default:"default"`
	Prefix    word    `help:"Only keys with this prefix."`

	Every    time.Duration `help:"Time from the start of one pass to the start of the next." default:"30s"`
	Rows     int           `help:"Maximum number of rows in a batch." default:"2000"`
	Grows    bool          `help:"These counters only grow: never replace a value with a lower one, and report the attempt."`
	Once     bool          `help:"Make one pass and exit."`
	JSON     bool          `name:"json" help:"With --once: print the summary as JSON."`
	Metrics  string        `help:"Address for Prometheus metrics, under /metrics. Port 0 picks a free port." placeholder:"ADDR"`
	Insecure bool          `help:"Serve the metrics to other machines."`

	LogLevel  string `help:"Lowest level to log: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	LogFormat string `help:"Log format: text, json, or auto (text on a terminal, else json)." enum:"auto,text,json" default:"auto"`
}

// Help is shown by --help.
func (*mirrorCmd) Help() string {
	return `The command repeatedly reads the totals of a running server and writes them into your table. A pass writes only rows that
changed, in batches. After a failure it continues where it stopped. It never deletes rows, even if the counter was
deleted.

The table is a copy for reading: the server has the counts. With --grows, the command never lowers a value in the
table. It counts and logs the attempt, which means that the store has lost data or a counter was reset.

SIGTERM and SIGINT end the command after the current batch, with exit code 0. With --once the exit code is 1 if lower
values were refused.

Examples:

  quipu mirror --to postgres://app@db/app --table totals
  quipu mirror --to postgres://app@db/app --table shop.likes --prefix likes: --grows --every 10s --metrics 127.0.0.1:9464
  quipu mirror --to postgres://app@db/app --table totals --once

You can create a table like this:

  create table totals (key text primary key, value bigint not null)`
}

// Validate is called after the flags are parsed.
func (c *mirrorCmd) Validate() error {
	scheme, err := storeScheme(c.To)
	switch {
	case err != nil || scheme != schemePostgres:
		return errors.New("--to: want postgres://…")
	case c.Rows < 1 || c.Rows > quipu.PageMax:
		return fmt.Errorf("--rows: want 1 to %d", quipu.PageMax)
	case c.Every <= 0:
		return errors.New("--every: want more than 0")
	}
	if c.Metrics != "" {
		_, err := c.listen().Resolve()
		if _, ok := errors.AsType[*server.ExposedError](err); ok {
			return fmt.Errorf("--metrics: %w: give --insecure if the network is trusted", err)
		}
		if err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
	}
	if err := c.table().Validate(); err != nil {
		return fmt.Errorf("--table: %w", err)
	}
	return nil
}

func (c *mirrorCmd) table() mirror.Table {
	return mirror.Table{Name: c.Table, Key: c.KeyColumn, Value: c.ValueColumn}
}

func (c *mirrorCmd) listen() server.Listen {
	const connections = 100
	return server.Listen{Addr: c.Metrics, Exposed: c.Insecure, ConnectionsMax: connections, Refusal: server.HTTPRefusal()}
}

// Run mirrors until ctx ends.
func (c *mirrorCmd) Run(ctx context.Context, out *output) error {
	logger := (&serveCmd{LogLevel: c.LogLevel, LogFormat: c.LogFormat}).logger(out)
	r := &remote{Addr: c.Addr, APIKey: c.APIKey, Namespace: c.Namespace}
	if _, err := r.request(ctx, request{}); err != nil {
		return err
	}
	m, err := c.open(ctx, r, logger)
	if err != nil {
		return err
	}
	defer m.Close()
	stop, err := c.serveMetrics(out, m, logger)
	if err != nil {
		return err
	}
	if !c.Once {
		m.Run(ctx)
		return stop()
	}
	sums, err := m.Pass(ctx)
	return errors.Join(c.print(out, sums, err), stop())
}

// open connects to the database.
func (c *mirrorCmd) open(ctx context.Context, r *remote, logger *slog.Logger) (*mirror.Mirror, error) {
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	return mirror.Open(ctx, mirror.Options{
		Source: c.source(r), URL: c.To, Table: c.table(),
		Rows: c.Rows, Every: c.Every, Grows: c.Grows, Logger: logger,
	})
}

// source reads counters from a server.
func (c *mirrorCmd) source(r *remote) mirror.Source {
	return func(ctx context.Context, cursor string, n int) ([]mirror.Row, string, error) {
		q := url.Values{"prefix": {string(c.Prefix)}, "limit": {strconv.Itoa(n)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var p struct {
			Counters []mirror.Row
			Next     string
		}
		_, err := r.call(ctx, request{method: http.MethodGet, path: "counters", query: q}, &p)
		return p.Counters, p.Next, err
	}
}

// serveMetrics serves metrics if it is to, until what it returns is called.
func (c *mirrorCmd) serveMetrics(out *output, m *mirror.Mirror, logger *slog.Logger) (stop func() error, err error) {
	if c.Metrics == "" {
		return func() error { return nil }, nil
	}
	l, _, err := c.listen().Open()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", server.NewMetrics(m).Handler())
	const callTimeout = 5 * time.Second
	s := server.New(logger)
	s.Add("metrics", l, server.HTTP(mux, callTimeout, logger))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, callTimeout) }()
	stop = func() error { cancel(); return <-ended }
	if err := out.print("%s", s.Ready()); err != nil {
		return nil, errors.Join(fmt.Errorf("print the ready line: %w", err), stop())
	}
	return stop, nil
}

// print writes what one pass did.
func (c *mirrorCmd) print(out *output, s mirror.Sums, err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err == nil && s.Lower > 0 {
		err = fmt.Errorf("%s lower values were refused: the store has lost data, or counters were reset", thousands(s.Lower))
	}
	if c.JSON {
		raw, e := json.Marshal(s)
		if e != nil {
			return errors.Join(err, e)
		}
		return errors.Join(err, out.print("%s", raw))
	}
	return errors.Join(err, out.print("%s rows written, %s unchanged", thousands(s.Written), thousands(s.Unchanged)))
}
