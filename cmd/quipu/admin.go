package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu"
)

type verifyCmd struct {
	source `embed:""`
}

// Help is shown by --help.
func (*verifyCmd) Help() string {
	return `If something differs or was lost, the command prints a line for each difference and exits with code 1. Lines that begin with
"not proved" say what the check can't know, such as whether somebody removed the end of a log that was not closed.

Examples:

  quipu verify
  quipu verify --addr https://counters.example
  quipu verify --data /var/lib/quipu`
}

// audit is the result of a verify, as the REST API writes it.
type audit struct {
	OK     bool    `json:"ok"`
	Cells  int64   `json:"cells"`
	Tokens int64   `json:"tokens"`
	Deltas uint64  `json:"deltas"`
	Drift  []drift `json:"drift"`

	Unproved []string `json:"unproved"`
}

type drift struct {
	What string `json:"what"`
	Have string `json:"have"`
	Want string `json:"want"`
}

// Run verifies.
func (c *verifyCmd) Run(ctx context.Context, out *output, command *kong.Context) error {
	offline, err := c.offline(command)
	if err != nil {
		return err
	}
	var nothing atomic.Int64
	end := out.progress("verifying", &nothing)
	var a audit
	if offline {
		err = withData(c.Data, out, func(db *quipu.DB) (err error) {
			a, err = auditOf(ctx, db)
			return err
		})
	} else {
		_, err = c.call(ctx, request{method: http.MethodPost, path: "/api/v1/verify", unhurried: true, reads: true}, &a)
	}
	end()
	if err != nil {
		return err
	}
	return a.print(out, c.JSON)
}

// auditOf verifies a DB.
func auditOf(ctx context.Context, db *quipu.DB) (audit, error) {
	r, err := db.Verify(ctx)
	a := audit{OK: len(r.Drift) == 0, Cells: r.Cells, Tokens: r.Tokens, Deltas: r.Deltas, Drift: []drift{}, Unproved: append([]string{}, r.Unproved...)}
	for _, d := range r.Drift {
		a.Drift = append(a.Drift, drift(d))
	}
	return a, err
}

// print writes what was checked and what differs. Drift is an error.
func (a *audit) print(out *output, asJSON bool) error {
	var err error
	switch {
	case asJSON:
		var raw []byte
		if raw, err = json.Marshal(a); err == nil {
			err = out.print("%s", raw)
		}
	case a.OK:
		err = out.print("ok: %d cells, %d tokens, %d changes", a.Cells, a.Tokens, a.Deltas)
	default:
		for _, d := range a.Drift {
			err = errors.Join(err, out.print("drift: %s: have %s, want %s", d.What, d.Have, d.Want))
		}
	}
	for _, text := range a.Unproved {
		if !asJSON {
			err = errors.Join(err, out.print("not proved: %s", text))
		}
	}
	if err == nil && !a.OK {
		err = errSaid
	}
	return err
}

type backupCmd struct {
	source `embed:""`

	Out string `help:"File to write; - is standard output." required:"" placeholder:"FILE"`
}

// Help is shown by --help.
func (*backupCmd) Help() string {
	return `The server keeps serving. FILE appears only when the backup is complete.

Examples:

  quipu backup --out quipu.tar
  quipu backup --out - | zstd > quipu.tar.zst
  quipu backup --data /var/lib/quipu --out quipu.tar`
}

// Run copies.
func (c *backupCmd) Run(ctx context.Context, out *output, command *kong.Context) error {
	offline, err := c.offline(command)
	if err != nil {
		return err
	}
	return writeWhole(c.Out, out, func(w io.Writer) error {
		if offline {
			return withData(c.Data, out, func(db *quipu.DB) error { return db.Backup(ctx, w) })
		}
		res, err := c.open(ctx, request{method: http.MethodGet, path: "/api/v1/backup"})
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if _, err := io.Copy(w, res.Body); err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		return nil
	})
}

// writeWhole writes a file that appears, synced, when all of it is there.
func writeWhole(name string, out *output, write func(io.Writer) error) (err error) {
	if name == "-" {
		if out.stdoutTerminal {
			return usage("a backup is not text: give --out a file, or redirect the output")
		}
		return measured(out, out.stdout, write)
	}
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return usage("--out %s: it is a %s, and would be replaced by a file; - is standard output", name, fileKind(info.Mode()))
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-")
	if err != nil {
		return fmt.Errorf("create backup: %w", err)
	}
	if err := measured(out, f, write); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("sync backup: %w", err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return errors.Join(fmt.Errorf("name backup: %w", err), os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(name))
}

// fileKind names what is not a regular file.
func fileKind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&os.ModeSymlink != 0:
		return "symbolic link"
	case m&os.ModeNamedPipe != 0:
		return "pipe"
	default:
		return "device or socket"
	}
}

// measured shows how much was written.
func measured(out *output, w io.Writer, write func(io.Writer) error) error {
	m := &meter{w: w}
	end := out.progress("copied", &m.bytes)
	defer end()
	return write(m)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
