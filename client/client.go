package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// TimeoutDefault is the time limit of a call if nothing else sets one.
const TimeoutDefault = 10 * time.Second

const (
	defaultNamespace = "default"
	replyBytesMax    = 64 << 20
	pingEvery        = 10 * time.Second // of silence during a call, to find out that the server is gone
	pingTimeout      = 5 * time.Second
)

// Options configure a client. The zero value is ready to use.
type Options struct {
	// APIKey is sent with every call. It may be empty if the server requires none.
	APIKey string

	// TLS encrypts the connection. If it is nil, nothing is encrypted.
	TLS *tls.Config

	// Timeout is the time limit of a call, retries included, if its context has no
	// deadline. The default is TimeoutDefault.
	Timeout time.Duration

	// Tokens gives each write without a token a new one, so that the client can repeat
	// it after a lost answer. The package comment says what that costs.
	Tokens bool

	// Trace returns the trace context of a call, from its context: traceparent and
	// tracestate, as the W3C defines them. They are sent with the call, so that the
	// server's spans are part of the caller's trace. Invalid ones are not sent. The
	// batches of a Writer have none, because they carry the adds of many callers.
	Trace func(ctx context.Context) (traceparent, tracestate string)
}

// A DB is a connection to a server, in one namespace. It is safe for concurrent
// use.
type DB struct {
	*shared
	namespace string
	err       error // why this view can't be used, or nil
}

// shared is what all views of a DB have in common.
type shared struct {
	conn    *grpc.ClientConn
	rpc     pb.QuipuClient
	react   pb.ReactionsClient
	reserve pb.ReservationsClient
	sketch  pb.SketchesClient
	limits  pb.LimitsClient
	options Options

	mu     sync.RWMutex // held shared by every call
	closed bool
	ending chan struct{} // closed when Close begins
	end    func()        // closes it
}

// ErrUnauthorized is returned by Dial and by every call if the server requires
// an API key and does not accept Options.APIKey.
var ErrUnauthorized = errors.New("quipu: the API key is wrong or missing")

// Dial connects to the gRPC address (--rpc) of a server, HOST:PORT, and makes
// one call to test the connection. If the server can't be reached before ctx
// ends, or within Options.Timeout if ctx has no deadline, Dial returns
// store.ErrUnavailable with the last cause. A connection that is lost later is
// made again automatically.
//
// Several addresses with commas between them must belong to servers that share
// a store. The client uses one of them, and switches to another if it can't be
// reached.
func Dial(ctx context.Context, addr string, o Options) (*DB, error) {
	if o.Timeout == 0 {
		o.Timeout = TimeoutDefault
	}
	conn, err := connect(addr, dialOptions(o)...)
	if err != nil {
		return nil, err
	}
	s := &shared{conn: conn, rpc: pb.NewQuipuClient(conn), react: pb.NewReactionsClient(conn), reserve: pb.NewReservationsClient(conn), limits: pb.NewLimitsClient(conn), sketch: pb.NewSketchesClient(conn), options: o, ending: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ending) })
	db := &DB{shared: s, namespace: defaultNamespace}
	if err := db.greet(ctx); err != nil {
		_ = conn.Close() // it was never used
		return nil, err
	}
	return db, nil
}

// greet makes a call that every server answers to those it lets in, whatever
// its store does. The error says what was wrong with the last connection: that
// the time is over tells nobody what to do.
func (db *DB) greet(ctx context.Context) error {
	ctx, cancel := db.deadline(ctx)
	defer cancel()
	wrong := ""
	err := db.do(ctx, manner{repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) error {
		_, err := db.rpc.GetBatch(ctx, &pb.GetBatchRequest{}, o...)
		if status.Code(err) == codes.Unavailable {
			wrong = status.Convert(err).Message() + ": "
			switch {
			case strings.Contains(wrong, "HTTP/1.1 header"):
				wrong += "that may be the address of --http, want that of --rpc: "
			case db.options.TLS == nil && strings.Contains(wrong, "server preface"):
				wrong += "it may want TLS, see Options.TLS: "
			}
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return store.Errorf(store.KindUnavailable, "dial %s: %s%w", db.conn.Target(), wrong, ctx.Err())
	}
	return fmt.Errorf("dial %s: %w", db.conn.Target(), err)
}

func dialOptions(o Options) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = retryFirst, retryMax
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: pingTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(replyBytesMax), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(),
	}
	if o.APIKey != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(o.APIKey)))
	}
	return options
}

// A bearer is an API key as gRPC sends it.
type bearer string

// GetRequestMetadata returns the header of a call.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity leaves it to Options.TLS.
func (b bearer) RequireTransportSecurity() bool { return false }

// In returns a view of another namespace: see quipu.DB.In.
func (db *DB) In(namespace string) *DB {
	v := &DB{shared: db.shared, namespace: namespace}
	switch {
	case namespace == "":
		v.err = store.Errorf(store.KindInvalid, "namespace is empty")
	case !utf8.ValidString(namespace):
		v.err = store.Errorf(store.KindInvalid, "namespace is not UTF-8")
	}
	return v
}

// Verify checks what the server serves, in all namespaces: see quipu.DB.Verify.
// Only ctx limits its time.
func (db *DB) Verify(ctx context.Context) (store.Audit, error) {
	var reply *pb.VerifyReply
	err := db.do(ctx, manner{repeatable: true, long: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.Verify(ctx, &pb.VerifyRequest{}, o...)
		return err
	})
	if err != nil {
		return store.Audit{}, err
	}
	a := store.Audit{Cells: reply.Cells, Tokens: reply.Tokens, Deltas: reply.Deltas, Unproved: reply.Unproved}
	for _, d := range reply.Drift {
		a.Drift = append(a.Drift, store.Drift{What: d.What, Have: d.Have, Want: d.Want})
	}
	return a, nil
}

// Backup writes a consistent copy of all namespaces to out: see
// quipu.DB.Backup. Only ctx limits its time. The client does not try it again.
// The copy is complete only if there is no error.
func (db *DB) Backup(ctx context.Context, out io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return store.ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if out fails
	s, err := db.rpc.Backup(db.traced(ctx), &pb.BackupRequest{})
	for err == nil {
		var r *pb.BackupReply
		if r, err = s.Recv(); err != nil {
			break
		}
		if _, err := out.Write(r.Data); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return decodeError(err, false)
}

// Close closes the connection and all views after the running calls, which are
// not sent again. Close writers before it. Later calls return store.ErrClosed.
// A second Close returns nil.
func (db *DB) Close() error {
	db.end()
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil
	}
	db.closed = true
	return db.conn.Close()
}
