package quipu

import (
	"context"
	"io"
	"sync"

	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// A DB keeps counters. It is safe for concurrent use.
//
// A DB is a view of one namespace; all views of a DB share its store and are
// closed together.
type DB struct {
	port  *port.Port
	reads *sync.Pool // of *readCall, for all views
}

// New returns a DB over a store, in the namespace "default". Closing the DB
// closes the store. If the options are not valid, every call returns the error
// that Options.Validate returns.
//
// A store that others share is used by way of a node, which sums what callers
// have to write at the same moment.
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

// Via returns a view of the same namespace that names the source of its writes, in 1 to 64
// bytes of UTF-8: ledgers have it. Of a DB that is used directly the source is "library",
// and of the doors of a server "rest", "rpc", "resp" and "cli".
func (db *DB) Via(source string) *DB { return &DB{port: db.port.Via(source), reads: db.reads} }

// Port returns what the servers of this module need beyond the methods of a DB. Its
// type is internal: other programs have no use for it.
func (db *DB) Port() *port.Port { return db.port }

// Ready returns nil if the DB can be written to, or read if it is read-only, and
// otherwise why not. One that some partitions do not answer is ready: the counters
// of the others can be served.
func (db *DB) Ready(ctx context.Context) error { return db.port.Health(ctx).Ready() }

// Size returns how many counters there are. Those that have expired lately may
// be among them.
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

// Backup writes a consistent copy of all namespaces to w while the DB serves.
// It returns ErrUnsupported for a store that has its own way to be backed up.
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

// Close closes the DB, all its views, and the store after the calls under way.
// Later calls return ErrClosed; a second Close returns nil.
func (db *DB) Close() error { return db.port.Close() }
