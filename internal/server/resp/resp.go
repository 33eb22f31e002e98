// Package resp serves Redis clients: it reads commands in RESP2 or RESP3, calls
// the DB, and replies. It has the commands that make sense for counters, and
// Redis's own error texts.
//
// It behaves like Redis for those commands: the commands of a connection are
// executed in their order, each in one step, and their replies come in that
// order. Unlike in Redis, a reply means that its effect is durable. A client
// that sends garbage, never ends a command or never reads a reply harms nobody
// else: everything that a connection holds is bounded and metered.
//
// A command is a row of a table. Most commands are planned: they become deltas
// in a cycle, which is one batch for the store, and a function that makes a
// reply from their results. So the commands of a pipeline, and in the loop
// those of all ready connections, are one batch and one sync. Commands that
// can't be expressed as deltas wait for the store in a goroutine of their own.
//
// Two transports carry sessions: a loop over epoll on Linux, and a goroutine
// for each connection elsewhere and for TLS. A client can't tell them apart.
package resp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/script"
	"github.com/quipudb/quipu/internal/server"
)

// The defaults of the options.
const (
	TimeoutDefault        = 5 * time.Second
	ConnectionsMaxDefault = 10_000
	MemoryDefault         = 256 << 20
	StallDefault          = time.Minute
)

// sweepsMax is how many commands may go through many keys at a time, and longMax how
// many long replies may be made: these need a processor each, which short ones need
// too.
const (
	sweepsMax = 4
	longMax   = 1
)

// Refusal is what a client over the limit of connections reads.
const Refusal = "-ERR max number of clients reached\r\n"

// Options are what the door is told. The zero value is an open door.
type Options struct {
	Gate    *server.Gate    // who may come in, and do what; nil means everyone, and everything
	Metrics *server.Metrics // where commands are measured; nil for a set of its own
	Logger  *slog.Logger    // nil for slog.Default()
	Timeout time.Duration   // how long a command may wait for the store; 0 for TimeoutDefault
	Version string          // of this program

	// ConnectionsMax is what CONFIG GET maxclients says; the listener keeps it.
	ConnectionsMax int

	// Memory bounds what all connections hold together of commands not executed
	// and replies not sent. Over it, the connection that holds most is closed.
	Memory int64

	// Stall is how long replies may wait for a client that takes none of them; 0
	// for StallDefault.
	Stall time.Duration

	// Goroutines has a goroutine serve each connection, also where a loop could
	// serve them all.
	Goroutines bool
}

// A Door serves the DB to clients of Redis. It is safe for concurrent use.
type Door struct {
	db        *quipu.DB
	options   Options
	gate      *server.Gate
	commands  table
	names     []string // of the commands, sorted
	apart     bool     // what a cycle changes may not be one step: see waits
	start     time.Time
	run       string // names this start of the door
	cursors   cursors
	tracker   *tracker
	hub       *hub
	unions    unions
	scripts   script.Cache
	memory    ceiling
	slow      slowlog
	latency   latency
	sweeps    chan struct{} // holds the commands under way that go through many keys
	long      chan struct{} // holds those whose replies are long, or take long to make
	scripting *scriptTurns  // of the scripts that run
	meters    meters
	seconds   *server.Weighted // that commands take

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	ids         atomic.Int64
	idleSeconds atomic.Int64 // CONFIG SET timeout; 0 is never
	buffered    atomic.Int64 // bytes that sessions hold
	draining    atomic.Bool
	evicting    sync.Mutex // held by the one who chooses whom to evict

	mu        sync.Mutex // guards the fields below
	sessions  map[int64]*session
	views     map[string]*quipu.DB
	listeners map[net.Listener]struct{}
	conns     map[*session]net.Conn // those with a goroutine
	loop      *loop
	serving   sync.WaitGroup
}

// meters count what the door does.
type meters struct {
	connections, commands, failed, protocol, strangers, evicted, stalled, overflowed, brokenOff, rests atomic.Uint64
}

// New returns the door of a DB. Close it after the last use; the DB stays open.
func New(db *quipu.DB, o Options) *Door {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = server.NewMetrics(db.Port())
	}
	if o.Gate == nil {
		o.Gate = server.NewGate(server.GateOptions{Logger: o.Logger})
	}
	if o.Timeout == 0 {
		o.Timeout = TimeoutDefault
	}
	if o.ConnectionsMax == 0 {
		o.ConnectionsMax = ConnectionsMaxDefault
	}
	if o.Memory == 0 {
		o.Memory = MemoryDefault
	}
	if o.Stall == 0 {
		o.Stall = StallDefault
	}
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	d := &Door{
		db: db.Via("resp"), options: o, gate: o.Gate, commands: newTable(), apart: db.Port().Traits().Partitions > 1 || db.Port().Traits().Shared,
		start: time.Now(), run: hex.EncodeToString(id[:]), sweeps: make(chan struct{}, sweepsMax), scripting: newScriptTurns(scriptsMax), long: make(chan struct{}, longMax), seconds: o.Metrics.Commands(),
		sessions: map[int64]*session{}, views: map[string]*quipu.DB{},
		listeners: map[net.Listener]struct{}{}, conns: map[*session]net.Conn{},
	}
	d.names = sortedNames(d.commands)
	d.tracker = newTracker(d)
	d.hub = newHub(d)
	d.gate.OnChange(d.expelEnded)
	d.slow.usec.Store(slowUsecDefault)
	d.slow.length.Store(slowLengthDefault)
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// Serve accepts connections until Shutdown or Close. It closes the listener.
func (d *Door) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }()
	d.mu.Lock()
	if d.draining.Load() {
		d.mu.Unlock()
		return net.ErrClosed
	}
	d.listeners[l] = struct{}{}
	d.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		d.mu.Lock()
		if d.draining.Load() {
			d.mu.Unlock()
			_ = c.Close()
			continue
		}
		d.serving.Add(1) // before Shutdown can wait
		d.mu.Unlock()
		if err := d.carry(c); err != nil {
			d.options.Logger.Warn("connection refused", "error", err)
			_ = c.Close()
			d.serving.Done()
		}
	}
}

// carry hands a connection to a transport, which calls serving.Done at its end.
func (d *Door) carry(c net.Conn) error {
	if !d.options.Goroutines {
		if taken, err := d.carryInLoop(c); taken || err != nil {
			return err
		}
	}
	go func() {
		defer d.serving.Done()
		d.serve(c)
	}()
	return nil
}

// Shutdown stops accepting, executes what was read, sends the replies, and
// returns when all connections are closed, or with the error of ctx.
func (d *Door) Shutdown(ctx context.Context) error {
	d.drain()
	done := make(chan struct{})
	go func() {
		d.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return d.Close()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain makes every connection end as soon as it has nothing to do.
func (d *Door) drain() {
	d.draining.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.listeners {
		_ = l.Close()
	}
	for _, c := range d.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	if d.loop != nil {
		d.loop.wake()
	}
}

// Close ends at once, cutting off what is under way, and returns when everything
// has ended.
func (d *Door) Close() error {
	d.drain()
	d.stop()
	for _, s := range d.all() {
		s.hang()
	}
	d.serving.Wait()
	d.tracker.running.Wait()
	d.mu.Lock()
	l := d.loop
	d.loop = nil
	d.mu.Unlock()
	if l != nil {
		l.close()
	}
	return nil
}

// deadline returns a context for a command that waits for the store.
func (d *Door) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.options.Timeout)
}

func (d *Door) connected() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

// makeRoom closes the connections that hold most memory, as long as all hold too
// much, but not the one that asks. It reports whether there is room.
func (d *Door) makeRoom(asking *session) bool {
	if d.buffered.Load() <= d.options.Memory { // Fast path.
		return true
	}
	d.evicting.Lock()
	defer d.evicting.Unlock()
	for d.buffered.Load() > d.options.Memory { // of several who found that, another may have made room already
		worst := d.worst()
		if worst == nil || worst == asking {
			return false
		}
		d.evict(worst)
	}
	return true
}

// worst returns the session that holds most, or nil if none holds anything.
func (d *Door) worst() (worst *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := int64(0)
	for _, s := range d.sessions {
		if n := s.bytes.Load(); n > most {
			worst, most = s, n
		}
	}
	return worst
}

// evict closes a connection that holds too much.
func (d *Door) evict(s *session) {
	d.meters.evicted.Add(1)
	d.buffered.Add(-s.bytes.Swap(0)) // it is as good as gone
	s.hang()
}

// Meters calls f for each meter of the door, always in the same order.
func (d *Door) Meters(f func(name, help string, value float64)) {
	m := &d.meters
	f("quipu_resp_connections", "RESP connections open.", float64(d.connected()))
	f("quipu_resp_connections_total", "RESP connections accepted.", float64(m.connections.Load()))
	f("quipu_resp_commands_total", "RESP commands executed.", float64(m.commands.Load()))
	f("quipu_resp_failures_total", "RESP commands that failed, and not by their caller's fault.", float64(m.failed.Load()))
	f("quipu_resp_protocol_errors_total", "RESP connections closed because of what they sent.", float64(m.protocol.Load()))
	f("quipu_resp_auth_failures_total", "RESP callers with a wrong key.", float64(m.strangers.Load()))
	f("quipu_resp_rests_total", "Times that a RESP connection was left alone for a while, because its sender was far over its quota.", float64(m.rests.Load()))
	f("quipu_resp_evicted_total", "RESP connections closed because they held most of too much memory.", float64(m.evicted.Load()))
	f("quipu_resp_overflowed_total", "RESP connections closed because their replies did not fit into memory.", float64(m.overflowed.Load()))
	f("quipu_resp_stalled_total", "RESP connections closed because they took no replies.", float64(m.stalled.Load()))
	sessions, keys, _, _, evicted := d.tracker.counts()
	f("quipu_resp_tracking_connections", "RESP connections that track the keys they read, or prefixes.", float64(sessions))
	f("quipu_resp_tracking_keys", "Keys that RESP connections track.", float64(keys))
	f("quipu_resp_invalidations_total", "Keys that RESP connections were told to forget.", float64(d.tracker.told.Load()))
	f("quipu_resp_tracking_evicted_total", "Times that RESP connections were told to forget what had not changed, because too many keys were tracked.", float64(evicted))
	channels, patterns := d.hub.counts()
	f("quipu_resp_channels", "Channels that RESP connections listen to.", float64(channels))
	f("quipu_resp_channel_patterns", "Patterns of channels that RESP connections listen to.", float64(patterns))
	f("quipu_resp_published_total", "Messages published through RESP.", float64(d.hub.published.Load()))
	f("quipu_resp_messages_total", "Messages given to RESP connections that listen, each counted once for every connection.", float64(d.hub.told.Load()))
	f("quipu_resp_listeners_dropped_total", "RESP connections closed because they took too few of the messages that they listen to.", float64(d.hub.dropped.Load()))
	scripts, _ := d.scripts.Len()
	f("quipu_resp_scripts", "Scripts that the RESP door keeps.", float64(scripts))
	f("quipu_resp_scripts_broken_off_total", "Scripts that were broken off at a limit, and have changed nothing.", float64(m.brokenOff.Load()))
	f("quipu_resp_buffer_bytes", "Memory that RESP connections hold in large buffers.", float64(d.buffered.Load()))
}
