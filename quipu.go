package quipu

import (
	"context"
	"io"
	"sync"

	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// A DB keeps counters. It is safe for concurrent use. A DB is a view of one
// namespace. All views of a DB share its store and are closed together.
type DB struct {
	port  *port.Port
	reads *sync.Pool // of *readCall, for all views
}

// New returns a DB over a store, in the namespace "default". Closing the DB
// closes the store. If the options are not valid, every call returns the error
// of Options.Validate.
//
// If several servers share the store, the DB combines the writes of its callers
// into batches.
func New(s store.Store, o Options) *DB {
	return &DB{reads: &sync.Pool{New: func() any { return new(readCall) }}, port: port.New(s, defaultNamespace, port.Options{
		Policies: o.Policies, Recall: o.Recall, ReadOnly: o.ReadOnly, Logger: o.Logger, Limits: o.Limits, Err: o.Validate(),
	})}
}

const defaultNamespace = "default"

// In returns a view of another namespace: 1 to 64 bytes of UTF-8 without '/'
// and control characters. If namespace is not that, every call of the view
// returns ErrInvalid or ErrTooLarge.
func (db *DB) In(namespace string) *DB { return &DB{port: db.port.In(namespace), reads: db.reads} }

// Via returns a view of the same namespace that records source as the source of
// its writes in ledgers. A source has 1 to 64 bytes of UTF-8. A DB that is used
// directly has the source "library". The server uses "rest", "rpc", "resp" and
// "cli".
func (db *DB) Via(source string) *DB { return &DB{port: db.port.Via(source), reads: db.reads} }

// Port returns an internal interface for the servers of this module. Other
// programs have no use for it.
func (db *DB) Port() *port.Port { return db.port }

// Ready returns nil if the DB can serve: writes, or reads if it is read-only.
// Otherwise it returns the reason. A DB is ready even if some partitions of its
// store do not answer.
func (db *DB) Ready(ctx context.Context) error { return db.port.Health(ctx).Ready() }

// Size returns the number of counters. It may include counters that expired
// lately.
func (db *DB) Size(ctx context.Context) (int64, error) {
	if err := db.port.Err(); err != nil {
		return 0, err
	}
	s, ok := db.port.Store().(store.Sizer)
	if !ok {
		return 0, store.Errorf(store.KindUnsupported, "size: the %s store can't count its keys", db.port.Traits().Name)
	}
	return s.Size(ctx, db.port.Namespace())
}

// Backup writes a consistent copy of all namespaces to w while the DB serves. A
// store with its own kind of backup returns ErrUnsupported.
func (db *DB) Backup(ctx context.Context, w io.Writer) error {
	if err := db.port.Err(); err != nil {
		return err
	}
	s, ok := db.port.Store().(store.Snapshotter)
	if !ok {
		return store.Errorf(store.KindUnsupported, "backup: the %s store can't copy itself", db.port.Traits().Name)
	}
	return s.Snapshot(ctx, w)
}

// Meters calls f for each meter of the DB and its store, always in the same
// order. Names are in the style of Prometheus; counters end in _total.
func (db *DB) Meters(f func(name, help string, value float64)) { db.port.Meters(f) }

// Close closes the DB, all its views and the store, after the running calls.
// Later calls return ErrClosed. A second Close returns nil.
func (db *DB) Close() error { return db.port.Close() }
