package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/demo"
)

type demoCmd struct {
	For  time.Duration `help:"Stop after this time. By default the demo runs until Ctrl-C." placeholder:"TIME"`
	Rate float64       `help:"Calls a second over HTTP, up to 5000. There are up to 20 times as many INCR over the Redis protocol." default:"150"`
	HTTP string        `name:"http" help:"Address of the dashboard and the REST API. Port 0 picks a free port." default:"127.0.0.1:0"`
}

// Help is shown by --help.
func (*demoCmd) Help() string {
	return `The command starts a server in a temporary directory, simulates traffic, and prints the address of the dashboard. The
traffic has page views by country and device with distinct visitors, reactions to posts, a flash sale with
reservations, an API with rate limits, and a post that goes viral. On Ctrl-C the command stops the server and removes
the directory.

Examples:

  quipu demo
  quipu demo --rate 1000 --for 10m
  quipu demo --http 127.0.0.1:8080`
}

// Validate is called after the flags are parsed.
func (c *demoCmd) Validate() error {
	switch {
	case !(c.Rate > 0 && c.Rate <= demo.RateMax):
		return &flagError{"rate", fmt.Errorf("want more than 0, and at most %d", demo.RateMax)}
	case c.For < 0:
		return &flagError{"for", errors.New("want more than 0s")}
	case c.HTTP == doorOff:
		return &flagError{"http", errors.New("want an address: the dashboard of the demo needs one")}
	}
	return nil
}

// Run runs the demo until ctx ends, or its time is over.
func (c *demoCmd) Run(ctx context.Context, out *output) (err error) {
	dir, err := os.MkdirTemp("", "quipu-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil {
			err = errors.Join(err, fmt.Errorf("remove the directory of the demo: %w", e))
		}
	}()
	server, err := demoServer(out, "--data", filepath.Join(dir, "data"), "--http", c.HTTP, "--resp", "127.0.0.1:0", "--rpc", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// The server ends after the load, and even if that can't begin.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ready, line := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		// Its log would come between the lines that say what to look at: the audit log has a line
		// for each definition of the load, at every level.
		err := server.Run(serving, &output{stdout: line, stderr: io.Discard}, &config{})
		_ = line.Close()
		ended <- err
	}()
	doors, err := readReady(ready)
	go func() { _, _ = io.Copy(io.Discard, ready) }()
	if err == nil {
		err = c.load(ctx, out, doors, dir)
	}
	stop()
	return errors.Join(err, <-ended)
}

// demoServer returns the command that serves, with flags and no environment.
func demoServer(out *output, args ...string) (*serveCmd, error) {
	grammar := &cli{}
	parser, err := newParserOf(grammar, out, &config{})
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		if _, ok := errors.AsType[*kong.ParseError](err); ok {
			return nil, usage("%w", err)
		}
		return nil, err
	}
	return &grammar.Serve, nil
}

// readReady reads the line of a server that is ready, and returns the addresses of its
// doors by their names.
func readReady(r io.Reader) (map[string]string, error) {
	var line [512]byte
	n, err := r.Read(line[:])
	words := strings.Fields(string(line[:n]))
	if err != nil || len(words) == 0 || words[0] != "ready" {
		return nil, errors.New("the server of the demo did not start")
	}
	doors := map[string]string{}
	for _, w := range words[1:] {
		name, address, _ := strings.Cut(w, "=")
		doors[name] = address
	}
	return doors, nil
}

// load puts the load on the server until ctx ends, and says where to look.
func (c *demoCmd) load(ctx context.Context, out *output, doors map[string]string, dir string) error {
	base := "http://" + doors["http"]
	l := &demo.Load{URL: base, RESP: doors["resp"], Rate: c.Rate, Seed: uint64(time.Now().UnixNano()), Logger: slog.New(slog.DiscardHandler)}
	if err := l.Prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		return err
	}
	page := func(key string) string { return base + "/#/counter/default/" + url.QueryEscape(key) }
	if err := out.printLines([]string{
		"The dashboard is at  " + base + "/",
		"",
		"Views by minute, country and device, and different visitors:",
		"  " + page(demo.PageKey),
		"Reactions, each user once:",
		"  " + page(demo.PostKey),
		"A flash sale: reservations, payments, and what comes back by itself:",
		"  " + page(demo.StockKey),
		fmt.Sprintf("A post that goes viral, over the Redis protocol on %s:", doors["resp"]),
		"  " + page(demo.ViralKey),
		"Rate limits, of which one client asks for too much:",
		"  " + base + "/#/decided",
		"",
		"Count something yourself, and watch it appear:",
		"  curl -X POST " + base + "/api/v1/counters/hello/increment",
		"",
		"Press Ctrl-C to stop. Then " + dir + " is removed.",
	}); err != nil {
		return err
	}
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	l.Run(ctx)
	return nil
}
