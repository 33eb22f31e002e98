// Package pgstore keeps counts in PostgreSQL, version 14 or newer.
//
// Any number of stores, in any number of processes, may be open on one schema:
// they share everything and trust nobody but the server. One transaction
// carries the deltas of a batch, its parts, its tokens and its mark. Plain adds, the
// common case, also those that add to parts, with new tokens or without any, are one
// call of a function in the server, in one round trip, and those to one counter that
// exists are one statement; everything else locks what it names, loads it, decides it
// in this process by package decide, and writes it back, in two.
//
// # Locks
//
// Every transaction takes its locks in one order, so none can wait for another
// that waits for it: the fences (shared, or alone to raise one), the
// generations of tokens (shared), the number of namespaces and the namespaces
// themselves (shared, or alone near a limit), the
// admission of writers, marks, cells, parts, the counts of namespaces, the tallies. What
// the server applies by itself takes the locks on namespaces later, but does not
// wait for them, and counts tokens last, in rows that nobody else counts in. Rows
// of one kind are locked in their sort order. A cell that does not exist is locked
// by a row that is removed again before the transaction ends. The tokens and the
// parts of a cell are guarded by the lock on the cell. Whoever drops a table of parts
// locks all parts, and nothing before that.
//
// # Time
//
// Time is the server's clock. A cell is told to be expired only when it has been
// removed, under its lock: so what has expired for one caller has expired for
// all, whatever their clocks.
package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/store"
)

// Options are the settings of a store. The zero value is useful.
type Options struct {
	Limits   store.Limits     // zero fields mean their defaults
	Now      func() time.Time // the clock; default that of the server
	Schema   string           // default "quipu"
	MaxConns int              // connections at most; default 16

	// Existing is for a store that is only read: the schema must be there. Opening
	// neither makes it nor brings it up to date, and reading writes nothing. The server
	// may be a standby: then values say as of when they are (store.Value.AsOfMS).
	Existing bool

	// Logger is told when a schema was brought up to date, and when the upkeep fails; by
	// default nobody is.
	Logger *slog.Logger
}

const (
	schemaDefault   = "quipu"
	connectPatience = 2 * time.Second // with one address, unless the URL says otherwise
	maxConnsDefault = 16
)

// A Store keeps everything in a schema of a database. It is safe for concurrent
// use.
type Store struct {
	limits     store.Limits
	now        func() time.Time // nil is the server's clock
	existing   bool             // it writes nothing
	logger     *slog.Logger
	durability store.Durability // of a transaction that waits for its commit
	margin     int64            // what may be created beside a transaction that does not lock a namespace alone
	sql        statements
	locks      locks
	pool       *pgxpool.Pool
	seenMS     atomic.Int64  // the latest time seen
	told       atomic.Uint64 // the highest version that callers were told of
	heard      *clock.Heard
	meters     meters
	unusual    recent
	short      recent // cells that are near their bounds
	tables     tables

	mu     sync.RWMutex // held shared by calls, so that Close waits for them; guards closed
	closed bool
	stop   context.CancelFunc // ends the upkeep
	upkeep sync.WaitGroup
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Auditor    = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
	_ store.Clock      = (*Store)(nil)
	_ store.Sizer      = (*Store)(nil)
	_ store.Namespacer = (*Store)(nil)
)

// Open returns the store in a schema of the database that a URL names. It makes
// the schema if there is none, and brings an older one up to date, unless it is told
// not to.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.Schema == "" {
		o.Schema = schemaDefault
	}
	if o.MaxConns == 0 {
		o.MaxConns = maxConnsDefault
	}
	config, err := parse(url, o.Existing)
	if err != nil {
		return nil, err
	}
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	found, err := prepare(ctx, config.ConnConfig, o.Schema, o.Existing)
	if err != nil {
		return nil, err
	}
	if found != 0 && found != format {
		logger.Info("upgraded the PostgreSQL schema: servers of older releases can't use it any more",
			"schema", o.Schema, "was", found, "is", format)
	}
	config.MaxConns = int32(min(max(o.MaxConns, 2), 10_000))
	s := &Store{
		limits:   o.Limits.WithDefaults(),
		now:      o.Now,
		heard:    clock.NewHeard(o.Now != nil),
		existing: o.Existing,
		logger:   logger,
		sql:      newStatements(o.Schema),
		locks:    newLocks(o.Schema),
		short:    recent{keep: shortFor},
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, failure(ctx, err)
	}
	if err = s.look(ctx); err == nil {
		err = s.agree(ctx, o.Limits.TokenWindow, o.Existing)
	}
	if err != nil {
		s.pool.Close()
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	if !o.Existing {
		s.upkeep.Go(func() { s.keepUp(background) })
	}
	return s, nil
}

// parse returns the settings of connections. What the driver says of a URL that
// it can't read may have the password in it, so it is not passed on.
//
// A store that writes takes no connection to a standby, not even for reading: what
// it reads there would be old. So of a URL that lists several servers it finds the
// primary, and finds the next one after a failover.
func parse(url string, existing bool) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, store.Errorf(store.KindInvalid, "the URL of the PostgreSQL server can't be read")
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectPatience
	}
	if !existing && config.ConnConfig.ValidateConnect == nil {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return config, nil
}

// prepare migrates the schema, and finds out whether something stands between
// this process and the server: a pooler such as pgbouncer hands out process ids
// of its own. Statements that are prepared may then be prepared on another
// connection than the one they are used on, so none are.
func prepare(ctx context.Context, config *pgx.ConnConfig, schema string, existing bool) (found int, err error) {
	plain := config.Copy()
	plain.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, plain)
	if err != nil {
		return 0, failure(ctx, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if found, err = migrate(ctx, conn, schema, existing); err != nil {
		return 0, err
	}
	var pid uint32
	if err := conn.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid); err != nil {
		return 0, failure(ctx, err)
	}
	if pid != conn.PgConn().PID() {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return found, nil
}

// look reads what the server promises, and the time of the latest write.
func (s *Store) look(ctx context.Context) error {
	var fsync, commit bool
	var connections, atMS int64
	err := s.pool.QueryRow(ctx, s.sql.look).Scan(&fsync, &commit, &connections, &atMS)
	if err != nil {
		return failure(ctx, err)
	}
	s.durability = store.Synced
	if !fsync {
		s.durability = store.Written
	}
	if !commit {
		s.durability = store.Memory
	}
	s.margin = connections * store.BatchDeltasMax
	s.seenMS.Store(atMS)
	return nil
}

// agree checks that the window of tokens is that of the others who share the
// schema. The first who writes sets it.
func (s *Store) agree(ctx context.Context, asked time.Duration, existing bool) error {
	var ms *int64
	err := s.pool.QueryRow(ctx, s.sql.window).Scan(&ms)
	if err == nil && ms == nil {
		if existing { // nobody has given a token yet
			return nil
		}
		if _, err = s.pool.Exec(ctx, s.sql.setWindow, s.limits.TokenWindow.Milliseconds()); err == nil {
			err = s.pool.QueryRow(ctx, s.sql.window).Scan(&ms)
		}
	}
	if err != nil {
		return failure(ctx, err)
	}
	s.limits.TokenWindow = time.Duration(*ms) * time.Millisecond
	return store.CheckWindow(s.limits.TokenWindow, asked)
}

// Traits says what kind of store this is.
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "postgres", Partitions: 1, Durability: s.durability, Limits: s.limits, Layouts: true, Shared: true}
}

// closePatience is how long Close waits for calls and connections that the server
// leaves unanswered. The driver would wait 15 s for each.
const closePatience = time.Second

// Close releases the store after the calls under way. It does not wait long for a
// server that does not answer.
func (s *Store) Close() error {
	s.stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return
		}
		s.closed = true
		s.upkeep.Wait()
		s.pool.Close()
	}()
	enough := time.NewTimer(closePatience)
	defer enough.Stop()
	select {
	case <-closed:
	case <-enough.C:
	}
	return nil
}

// enter begins a call, which ends with leave, or says why it can't be served.
func (s *Store) enter(ctx context.Context) error {
	s.mu.RLock()
	err := ctx.Err()
	if s.closed {
		err = store.ErrClosed
	}
	if err != nil {
		s.mu.RUnlock()
	}
	return err
}

func (s *Store) leave() { s.mu.RUnlock() }

// clock returns the time to give to the server: nil if it has its own.
func (s *Store) clock() *int64 {
	if s.now == nil {
		return nil
	}
	ms := s.time(s.now().UnixMilli(), s.heard.Ask())
	return &ms
}

// NowMS returns the server's time, as it was told last, with what has passed since.
func (s *Store) NowMS(store.Cell) int64 { return s.heard.NowMS() }

// time returns the store's time when a clock that was asked at a moment shows ms: it never
// goes back.
func (s *Store) time(ms int64, asked time.Duration) int64 {
	s.heard.Tell(max(ms, s.seenMS.Load()), asked)
	for {
		seen := s.seenMS.Load()
		if ms <= seen {
			return seen
		}
		if s.seenMS.CompareAndSwap(seen, ms) {
			return ms
		}
	}
}

// locks are the numbers of the advisory locks of a schema.
type locks struct {
	schema  string
	migrate int64 // the schema itself
	tokens  int64 // the generations of tokens
	spaces  int64 // the number of namespaces
	writers int64 // which writers have a mark
	epochs  int64 // the tables of epochs
}

func newLocks(schema string) locks {
	return locks{
		schema:  schema,
		migrate: lockOf(schema, "migrate"),
		tokens:  lockOf(schema, "tokens"),
		spaces:  lockOf(schema, "spaces"),
		writers: lockOf(schema, "writers"),
		epochs:  lockOf(schema, "epochs"),
	}
}

// namespace returns the number of the lock of a namespace.
func (l *locks) namespace(name string) int64 { return lockOf(l.schema, "namespace\x00"+name) }

func lockOf(schema, what string) int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "quipu\x00%s\x00%s", schema, what)
	return int64(h.Sum64())
}

// A transaction may end in one of these besides an error.
var (
	errRepeat = errors.New("again")              // it has to be made again
	errSweep  = errors.New("again, after sweep") // the same, after what takes room has been removed
)
