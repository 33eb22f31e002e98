package quipu

import (
	"io"
	"log/slog"
	"strings"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// Options configure a DB. The zero value is ready to use.
type Options struct {
	// Policies say how keys are counted. The first that matches a key applies.
	Policies []Policy

	// Limits bound what the embedded store keeps; see Limits for the defaults. A store
	// that is given to New has limits of its own.
	Limits Limits

	// Memory is the memory limit of the embedded store in bytes. The default is 256
	// MiB.
	Memory int64

	// Recall is the number of counters whose last value the DB remembers, for the time
	// when the store can't be reached: see Policy.Stale and MaxStaleness. The default
	// is none. The embedded store does not need it.
	Recall int

	// ReadOnly refuses writes with ErrReadOnly. Use it for servers that only read a
	// shared store.
	ReadOnly bool

	// Logger receives reports of background work. The default is slog.Default().
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

// Open opens the DB in a directory, with the embedded store. If the directory
// does not exist or is empty, Open creates a new DB. Only one process can have
// it open.
//
// After a crash, Open replays the log, so everything that was acknowledged as
// synced is there. If dir is a URL, Open returns ErrInvalid: New takes shared
// stores. If the directory is damaged, it returns ErrCorrupt or
// ErrLost and names the file.
func Open(dir string, o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if strings.Contains(dir, "://") { // no one has a directory of that name
		scheme, _, _ := strings.Cut(dir, "://") // and what follows may hold a password
		return nil, store.Errorf(store.KindInvalid, "%s:// begins a URL: Open wants a directory; open a shared store with package store/pgstore or store/redisstore, and give it to New", scheme)
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
