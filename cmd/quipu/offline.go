package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/engine"
)

// A source is what verify and backup work on: a data directory that no server
// uses, or a server.
type source struct {
	remote `embed:""`

	Data string `help:"Read this data directory instead of asking a server. No server may have it open." placeholder:"DIR"`
}

// offline reports whether the directory is meant. A flag goes before an
// environment that names the other.
func (s *source) offline(command *kong.Context) (bool, error) {
	data, addr := given(command, "data"), given(command, "addr")
	if data && addr {
		return false, usage("--data and --addr: give one of them")
	}
	return s.Data != "" && !addr, nil
}

// given reports whether a flag is on the command line.
func given(command *kong.Context, name string) bool {
	for _, p := range command.Path {
		if p.Flag != nil && p.Flag.Name == name && !p.Resolved {
			return true
		}
	}
	return false
}

// withData opens the store of a directory for f. It makes none.
func withData(dir string, out *output, f func(*quipu.DB) error) (err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if len(entries) == 0 {
		return fmt.Errorf("open store: %s is empty", dir)
	}
	logger := slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := quipu.Open(dir, quipu.Options{Logger: logger})
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("open store: %w; if that is a server, ask it with --addr URL instead of --data", err)
	}
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

type restoreCmd struct {
	File string `arg:"" help:"The backup; - is standard input."`
	Data string `help:"Directory to restore into. It must be empty or not exist." required:"" placeholder:"DIR"`
}

// Help is shown by --help.
func (restoreCmd) Help() string {
	return `The directory must be empty, such as a mount point, or not exist yet. If a restore was interrupted, serve refuses the
directory and says so.

Examples:

  quipu restore quipu.tar --data /var/lib/quipu
  zstd -dc quipu.tar.zst | quipu restore - --data /var/lib/quipu`
}

// Run restores.
func (c restoreCmd) Run(ctx context.Context, out *output) error {
	in := io.Reader(os.Stdin)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return fmt.Errorf("open backup: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	m := &meter{w: io.Discard}
	end := out.progress("restored", &m.bytes)
	err := quipu.Restore(&interruptible{ctx, io.TeeReader(in, m)}, c.Data)
	end()
	return err
}

// An interruptible reader ends with its context.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

// Read reads, until the context ends.
func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}

type walCmd struct {
	Dump dumpCmd `cmd:"" help:"Print the log, one line for each frame and each record."`
}

type dumpCmd struct {
	Data string `help:"Data directory. It is only read; a server may have it open." default:"./quipu-data"`
}

// Help is shown by --help.
func (dumpCmd) Help() string {
	return `Example:

  quipu wal dump --data /var/lib/quipu`
}

// Run dumps.
func (c dumpCmd) Run(out *output) error {
	if _, err := os.Stat(c.Data); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	return engine.Dump(nil, c.Data, out.stdout)
}
