// Package rpc serves gRPC: it reads protocol buffers, calls the DB, and replies
// protocol buffers.
//
// Every error carries its kind as a detail, so that a client knows what to do.
// No call outlives its deadline, or the server's if the caller named none. A
// caller without a key is refused before its message is read. Memory for a
// message is taken from the budget before the message is read (see visit). The
// batches of a stream that arrive together become durable together, each
// answered in order.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/envoypb"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/trace"
	pb "github.com/quipudb/quipu/quipupb"
)

// TimeoutDefault is the deadline of a call if neither its caller nor the options
// name one.
const TimeoutDefault = 5 * time.Second

// The limits of every connection.
const (
	headerBytesMax = 16 << 10
	streamsMax     = 100              // calls at a time on one connection
	helloTimeout   = 10 * time.Second // to make a connection
	idleTimeout    = 10 * time.Minute // without a call
	pingEvery      = time.Minute      // of silence, to find out who is gone
	pingTimeout    = 20 * time.Second // to answer a ping
	pingsApart     = 5 * time.Second  // who pings more often than that is cut off

	// windowBytes is how much a caller may send of a message before anyone reads
	// it. It is the least that gRPC can be told.
	windowBytes = 64 << 10
	// connWindowBytes is the same for all calls of a connection. It holds nothing
	// back: gRPC widens it whether anything is read or not.
	connWindowBytes = 1 << 20
	readBufferBytes = 16 << 10
	// openCallsMax is how many calls without a key are answered at a time.
	openCallsMax = 16
)

// ConnBytesMax is about how much memory a connection takes beside the budget,
// if each has one call: its buffers, its goroutines, and a window.
const ConnBytesMax = readBufferBytes + 32<<10 + windowBytes

// Options are what the door is told. The zero value is an open door.
type Options struct {
	Gate    *server.Gate    // who may come in, and do what; nil means everyone, and everything
	Metrics *server.Metrics // where calls are measured; nil for a set of its own
	Logger  *slog.Logger    // calls at debug level, faults at error; nil for slog.Default()
	Timeout time.Duration   // the deadline of a call; 0 for TimeoutDefault
	Budget  *server.Budget  // memory of large calls; nil for one of RequestMemoryDefault
	Tracer  *trace.Tracer   // where calls have spans; nil if none have

	// CallsMax is how many calls there may be at a time, over all connections; 0
	// for CallsMaxDefault.
	CallsMax int
}

// CallsMaxDefault is the limit of calls under way if the options name none.
const CallsMaxDefault = 10_000

// A Door serves the RPC API of a DB. It is safe for concurrent use.
type Door struct {
	pb.UnimplementedQuipuServer
	db       *quipu.DB
	gate     *server.Gate
	needs    access.Needs
	meters   map[string]*server.Call // by the full name of the method
	refused  *server.Call            // of those that had no key
	tracer   *trace.Tracer
	logger   *slog.Logger
	timeout  time.Duration
	budget   *server.Budget
	callsMax int64
	calls    atomic.Int64  // under way
	long     chan struct{} // holds one place: backup and verify go one at a time
	open     chan struct{} // holds the calls under way that need no key
	server   *grpc.Server
	draining chan struct{} // closed when streams have to end
	drain    func()        // closes it
}

// New returns the door of a DB, which stays open when the door is closed.
func New(db *quipu.DB, o Options) *Door {
	if o.Metrics == nil {
		o.Metrics = server.NewMetrics(db.Port())
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Timeout == 0 {
		o.Timeout = TimeoutDefault
	}
	if o.Budget == nil {
		o.Budget = server.NewBudget(server.RequestMemoryDefault)
	}
	if o.Gate == nil {
		o.Gate = server.NewGate(server.GateOptions{Logger: o.Logger})
	}
	if o.CallsMax == 0 {
		o.CallsMax = CallsMaxDefault
	}
	d := &Door{
		db: db.Via("rpc"), gate: o.Gate, needs: access.RPC(), tracer: o.Tracer, logger: o.Logger, timeout: o.Timeout, budget: o.Budget, callsMax: int64(o.CallsMax),
		long: make(chan struct{}, 1), open: make(chan struct{}, openCallsMax), draining: make(chan struct{}),
	}
	d.drain = sync.OnceFunc(func() { close(d.draining) })
	d.server = grpc.NewServer(
		grpc.Creds(placed{}),
		grpc.InTapHandle(d.admit),
		grpc.StreamInterceptor(d.stream),
		grpc.MaxSendMsgSize(math.MaxInt32), // a reply has the limits of what was asked for
		grpc.MaxHeaderListSize(headerBytesMax),
		grpc.MaxConcurrentStreams(streamsMax),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(connWindowBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.ConnectionTimeout(helloTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), // so that the DB can be closed after Close
	)
	d.server.RegisterService(calls(&pb.Quipu_ServiceDesc, d.call), d)
	d.server.RegisterService(calls(&pb.Reactions_ServiceDesc, d.call), &reactions{door: d})
	d.server.RegisterService(calls(&pb.Reservations_ServiceDesc, d.call), &reservations{door: d})
	d.server.RegisterService(calls(&pb.Sketches_ServiceDesc, d.call), &sketches{door: d})
	d.server.RegisterService(calls(&pb.Limits_ServiceDesc, d.call), &limits{door: d})
	d.server.RegisterService(calls(&envoypb.RateLimitService_ServiceDesc, d.call), &envoy{door: d})
	d.server.RegisterService(calls(&grpc_health_v1.Health_ServiceDesc, d.openCall), &health{door: d})
	reflection.Register(d.server)
	d.meters = map[string]*server.Call{}
	for service, info := range d.server.GetServiceInfo() {
		for _, m := range info.Methods {
			d.meters["/"+service+"/"+m.Name] = o.Metrics.Call(m.Name)
		}
	}
	d.refused = o.Metrics.Call("none")
	return d
}

// Serve accepts connections until Shutdown or Close. It closes the listener.
func (d *Door) Serve(l net.Listener) error {
	err := d.server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) { // before it began
		return nil
	}
	return err
}

// Shutdown stops accepting, ends the streams, and returns when the calls under
// way are done, or with the error of ctx.
func (d *Door) Shutdown(ctx context.Context) error {
	d.drain()
	done := make(chan struct{})
	go func() {
		d.server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends at once: calls under way are cut off.
func (d *Door) Close() error {
	d.drain()
	d.server.Stop()
	return nil
}
