// Package datagram serves StatsD and DogStatsD over UDP. It combines lines in
// memory, and adds the sums to counters a few times a second.
//
// UDP may silently lose and repeat datagrams. This package promises that each
// line that it has received and accepted counts once, or is metered as refused,
// dropped or unknown: accepted = added + refused + unknown + waiting. The
// number of waiting lines is limited, and further lines are dropped.
package datagram

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/statsd"
	"github.com/quipudb/quipu/store"
)

// MemoryMax is how much memory a door takes at most.
const MemoryMax = 2*bytesMax + datagramMax

const (
	// shipEvery is how long lines wait in memory.
	shipEvery = 250 * time.Millisecond

	// datagramMax is the largest datagram there is, and readBuffer what the system is
	// asked to hold of them: it gives less where it allows less.
	datagramMax = 64 << 10
	readBuffer  = 4 << 20

	// entriesMax and bytesMax are how many entries and users may wait to be added; as much
	// again may be on its way.
	entriesMax = 50_000
	bytesMax   = 16 << 20

	// batchMax is how many entries are added in one call, and crowdsMax how many counters
	// take users at the same time.
	batchMax  = 5_000
	crowdsMax = 16

	retryFirst = 50 * time.Millisecond
	retryMax   = 2 * time.Second
)

// Options are what the door is told.
type Options struct {
	Logger *slog.Logger
}

// A Socket is where datagrams arrive. It is a listener that accepts nobody, so that it can
// be served beside those that do.
type Socket struct{ conn *net.UDPConn }

// Listen opens a socket.
func Listen(addr *net.UDPAddr) (*Socket, error) {
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(readBuffer) // or it stays as it is
	return &Socket{conn}, nil
}

// Accept returns net.ErrClosed: UDP has no connections.
func (s *Socket) Accept() (net.Conn, error) { return nil, net.ErrClosed }

// Close closes the socket.
func (s *Socket) Close() error { return s.conn.Close() }

// Addr returns where the socket listens.
func (s *Socket) Addr() net.Addr { return s.conn.LocalAddr() }

// A Door serves one socket. It is safe for concurrent use.
type Door struct {
	db     *quipu.DB
	logger *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	socket atomic.Pointer[Socket]
	done   chan struct{} // closed when the last line was shipped
	begun  sync.Once
	ended  chan struct{} // closed by the first Shutdown
	end    sync.Once

	mu   sync.Mutex // guards the fields below
	open *pile

	rules  atomic.Pointer[rules]
	meters meters
}

type meters struct {
	datagrams, counters, sets, ignored, malformed, dropped, added, refused, unknown, waiting atomic.Int64
}

// New returns a door to a namespace of a DB.
func New(db *quipu.DB, o Options) *Door {
	d := &Door{db: db.Via("statsd"), logger: o.Logger, open: newPile(), done: make(chan struct{}), ended: make(chan struct{})}
	if d.logger == nil {
		d.logger = slog.Default()
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Serve takes datagrams from l, which must be a *Socket, until Shutdown or Close.
func (d *Door) Serve(l net.Listener) error {
	socket, ok := l.(*Socket)
	if !ok {
		return errors.New("datagrams need a socket of UDP")
	}
	d.socket.Store(socket)
	d.begun.Do(func() { go d.ship() })
	if !d.ready() {
		return socket.Close()
	}
	buffer := make([]byte, datagramMax)
	var m statsd.Metric
	for {
		n, _, err := socket.conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		d.meters.datagrams.Add(1)
		d.take(buffer[:n], &m)
	}
}

// ready waits until the definitions are known: without them no tag is a dimension. The
// system holds datagrams meanwhile. It reports whether there is still something to serve.
func (d *Door) ready() bool {
	for d.learn(); d.rules.Load() == nil; d.learn() {
		t := time.NewTimer(retryFirst)
		select {
		case <-t.C:
		case <-d.ended:
			t.Stop()
			return false
		}
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// take takes the lines of a datagram.
func (d *Door) take(datagram []byte, m *statsd.Metric) {
	rules := d.rules.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		var line []byte
		if line, datagram = statsd.Cut(datagram); line == nil {
			return
		}
		if !valid(line, m) {
			d.meters.malformed.Add(1)
			continue
		}
		d.takeMetric(m, rules)
	}
}

// valid reads a line, and reports whether a counter can be what it names.
func valid(line []byte, m *statsd.Metric) bool {
	if m.Parse(line) != nil {
		return false
	}
	if m.Kind == statsd.Other {
		return true
	}
	return store.CheckKey(string(m.Name)) == nil && (m.Kind != statsd.Set || call.CheckUniques([]string{string(m.Item)}) == nil)
}

func (d *Door) takeMetric(m *statsd.Metric, rules *rules) {
	rule := rules.of(m.Name)
	if m.Kind == statsd.Other || m.Kind == statsd.Set && (rule == nil || !rule.unique) {
		d.meters.ignored.Add(1)
		return
	}
	if m.Kind == statsd.Set {
		d.count(d.open.join(m), &d.meters.sets)
		return
	}
	n := m.Count
	if m.Part > 0 && rand.Float64() < m.Part { // so that sums are right in the mean
		n++
	}
	d.count(d.open.add(m, n, rule), &d.meters.counters)
}

// count meters what became of a line, which is accepted unless there was no room.
func (d *Door) count(o outcome, accepted *atomic.Int64) {
	switch o {
	case full:
		d.meters.dropped.Add(1)
		return
	case over:
		d.meters.refused.Add(1)
	case taken:
		d.meters.waiting.Add(1)
	}
	accepted.Add(1)
}

// Shutdown stops taking datagrams, and returns when what was taken is added, or with the
// error of ctx.
func (d *Door) Shutdown(ctx context.Context) error {
	d.begun.Do(func() { go d.ship() })
	d.end.Do(func() { close(d.ended) })
	if s := d.socket.Load(); s != nil {
		_ = s.Close() // or it is closed
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends at once. What was not added is lost.
func (d *Door) Close() error {
	d.cancel()
	return d.Shutdown(context.Background())
}

// Meters reports what the door counts.
func (d *Door) Meters(f func(name, help string, value float64)) {
	for _, m := range []struct {
		name, help string
		n          *atomic.Int64
	}{
		{"quipu_statsd_datagrams_total", "Datagrams of StatsD that were received.", &d.meters.datagrams},
		{"quipu_statsd_counters_total", "Lines of counters that were accepted.", &d.meters.counters},
		{"quipu_statsd_sets_total", "Lines of sets that were accepted.", &d.meters.sets},
		{"quipu_statsd_ignored_total", "Lines of other types, and of sets whose counter does not count users.", &d.meters.ignored},
		{"quipu_statsd_malformed_total", "Lines that were not understood.", &d.meters.malformed},
		{"quipu_statsd_dropped_total", "Lines that were dropped because too many different ones wait.", &d.meters.dropped},
		{"quipu_statsd_added_total", "Accepted lines that were added to their counters.", &d.meters.added},
		{"quipu_statsd_refused_total", "Accepted lines that the store refused.", &d.meters.refused},
		{"quipu_statsd_unknown_total", "Accepted lines of which nobody knows whether they were added.", &d.meters.unknown},
		{"quipu_statsd_waiting", "Accepted lines that are not added yet.", &d.meters.waiting},
	} {
		f(m.name, m.help, float64(m.n.Load()))
	}
}
