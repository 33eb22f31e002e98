package quipu

import (
	"io"
	"log/slog"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// Options are what a DB can be told. The zero value is ready to use.
type Options struct {
	// Policies say how keys are counted; the first that names a key holds.
	Policies []Policy

	// Limits bound what the embedded engine keeps; see Limits for the
	// defaults. A store given to New brings its own.
	Limits Limits

	// Memory is the memory limit of the embedded engine in bytes. The default
	// is 256 MiB.
	Memory int64

	// Recall is how many counters are remembered as they were last read, for
	// when the store can't be reached: see Policy.Stale and MaxStaleness. The
	// default is none; the embedded engine has no use for it.
	Recall int

	// ReadOnly refuses writes with ErrReadOnly. It is for servers that share a
	// store with others, so that readers and writers scale and fail apart.
	ReadOnly bool

	// Logger takes reports of background work. The default is slog.Default().
	Logger *slog.Logger
}

// Validate returns an error if the options contradict themselves.
func (o Options) Validate() error {
	if err := policy.Check(o.Policies); err != nil {
		return err
	}
	l := o.Limits
	if l.KeysMax < 0 || l.TokensMax < 0 || l.TokenWindow < 0 || l.NamespacesMax < 0 || l.WritersMax < 0 || l.UsersMax < 0 || l.HoldsMax < 0 {
		return store.Errorf(store.KindInvalid, "negative limit")
	}
	if o.Recall < 0 {
		return store.Errorf(store.KindInvalid, "recall of %d counters", o.Recall)
	}
	if o.Memory < 0 {
		return store.Errorf(store.KindInvalid, "memory limit of %d bytes", o.Memory)
	}
	return nil
}

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
