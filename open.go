package quipu

import (
	"io"
	"log/slog"

	"github.com/quipudb/quipu/internal/engine"
)

// Open opens the DB in a directory, on the embedded engine. A directory that
// does not exist or is empty becomes a new DB. Only one process can have it
// open.
//
// After a crash Open replays the log: what was acknowledged as synced is
// there. It returns ErrCorrupt or ErrLost, naming the file, if the directory
// was damaged.
func Open(dir string, o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	e, err := engine.Open(dir, engine.Options{Limits: o.Limits, Memory: o.Memory, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return New(e, o), nil
}

// Restore makes a directory that Open can open from what Backup wrote. The
// directory must not exist or be empty; it is there as a whole or not at all.
func Restore(r io.Reader, dir string) error {
	return engine.Restore(nil, r, dir)
}
