package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rpc"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A kit is a door and a connection to it.
type kit struct {
	*testing.T
	ctx  context.Context
	db   *quipu.DB
	door *rpc.Door
	conn *grpc.ClientConn
	pb.QuipuClient
}

// open serves a store until the test ends.
func open(t *testing.T, s store.Store, o rpc.Options) *kit {
	t.Helper()
	if s == nil {
		s = memstore.New(memstore.Options{})
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	k := &kit{T: t, ctx: ctx, db: quipu.New(s, quipu.Options{})}
	k.door = rpc.New(k.db, o)
	served := make(chan error, 1)
	go func() { served <- k.door.Serve(l) }()
	k.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	k.QuipuClient = pb.NewQuipuClient(k.conn)
	t.Cleanup(func() {
		if err := errors.Join(k.conn.Close(), k.door.Close(), <-served, k.db.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

// fails checks the code and the kind of an error.
func (k *kit) fails(err error, code codes.Code, kind pb.Kind) {
	k.Helper()
	s := status.Convert(err)
	if s.Code() != code {
		k.Fatalf("error %v, want %v", err, code)
	}
	for _, d := range s.Details() {
		if e, ok := d.(*pb.Error); ok && e.Kind == kind && e.Detail == s.Message() {
			return
		}
	}
	k.Fatalf("error %v with details %v, want %v", err, s.Details(), kind)
}

func TestErrorsSayTheirKind(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	token := func(s string) *pb.WriteOptions { return &pb.WriteOptions{Token: &s} }
	one := uint64(1)

	_, err := k.Add(k.ctx, &pb.AddRequest{Delta: 1})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	_, err = k.Add(k.ctx, &pb.AddRequest{Key: strings.Repeat("k", 513)})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
	_, err = k.Add(k.ctx, &pb.AddRequest{Namespace: "a/b", Key: "a"})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)

	if _, err := k.Set(k.ctx, &pb.SetRequest{Key: "a", Value: 1<<63 - 1, Options: token("t")}); err != nil {
		t.Fatal(err)
	}
	_, err = k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1})
	k.fails(err, codes.OutOfRange, pb.Kind_KIND_OVERFLOW)
	_, err = k.Set(k.ctx, &pb.SetRequest{Key: "a", Value: 2, Options: token("t")})
	k.fails(err, codes.FailedPrecondition, pb.Kind_KIND_TOKEN)
	_, err = k.Delete(k.ctx, &pb.DeleteRequest{Key: "b", Options: &pb.WriteOptions{IfVersion: &one}})
	k.fails(err, codes.Aborted, pb.Kind_KIND_CHANGED)
	_, err = k.Get(k.ctx, &pb.GetRequest{Key: "a", Options: &pb.ReadOptions{Sessions: []string{"?"}}})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	// What is empty is not the same as none.
	_, err = k.Get(k.ctx, &pb.GetRequest{Key: "a", Options: &pb.ReadOptions{Sessions: []string{""}}})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	_, err = k.Add(k.ctx, &pb.AddRequest{Key: "a", Options: token("")})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	_, err = k.List(k.ctx, &pb.ListRequest{Limit: 10_001})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
	_, err = k.Reset(k.ctx, &pb.ResetRequest{})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)
	_, err = k.Lookup(k.ctx, &pb.TokenRequest{Key: "a"})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_INVALID)

	if err := k.db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = k.Get(k.ctx, &pb.GetRequest{Key: "a"})
	k.fails(err, codes.Unavailable, pb.Kind_KIND_CLOSED)
}

func TestCallsHaveADeadline(t *testing.T) {
	h := new(storetest.Hooks)
	h.On(storetest.OnWrite, storetest.Hang(nil, store.KindOther))
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{Timeout: 10 * time.Millisecond})
	_, err := k.Add(context.Background(), &pb.AddRequest{Key: "a", Delta: 1})
	k.fails(err, codes.Unavailable, pb.Kind_KIND_UNAVAILABLE)
	h.On(storetest.OnWrite, func(c *storetest.Call) error {
		<-c.Ctx.Done()
		return store.Errorf(store.KindUnknown, "given up in /var/lib/quipu: %w", c.Ctx.Err())
	})
	_, err = k.Add(context.Background(), &pb.AddRequest{Key: "a", Delta: 1})
	k.fails(err, codes.Unknown, pb.Kind_KIND_UNKNOWN)
	if strings.Contains(err.Error(), "/var") {
		t.Errorf("the error names a file: %v", err)
	}
}

func TestPanicsAreAnswered(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	w := k.enlist()
	h.On(storetest.OnWrite, func(*storetest.Call) error { panic("secret") })
	_, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1})
	k.fails(err, codes.Internal, pb.Kind_KIND_OTHER)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the panic was told: %v", err)
	}
	s := k.write()
	s.send(w, 0, 1, "a")
	if _, err := s.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("stream: %v", err)
	}
	h.On(storetest.OnWrite)
	if _, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestKeysAreWanted(t *testing.T) {
	keys, err := server.NewKeys([]string{"secret"})
	if err != nil {
		t.Fatal(err)
	}
	k := open(t, nil, rpc.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	f := func(want codes.Code, pairs ...string) {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(k.ctx, pairs...)
		if _, err := k.Add(ctx, &pb.AddRequest{Key: "a", Delta: 1}); status.Code(err) != want {
			t.Errorf("with %q: %v, want %v", pairs, err, want)
		}
		s, err := k.Write(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend() // what it says is what Recv says
		if _, err := s.Recv(); want != codes.OK && status.Code(err) != want {
			t.Errorf("stream with %q: %v, want %v", pairs, err, want)
		}
	}
	f(codes.Unauthenticated)
	f(codes.Unauthenticated, "authorization", "secret")
	f(codes.Unauthenticated, "authorization", "Bearer wrong")
	f(codes.Unauthenticated, "authorization", "Basic secret")
	f(codes.Unauthenticated, "authorization", "Bearer secret", "authorization", "Bearer secret")
	f(codes.OK, "authorization", "Bearer secret")
	f(codes.OK, "authorization", "bearer secret")

	// A message that nobody asked for is not read.
	_, err = k.Add(k.ctx, &pb.AddRequest{Key: strings.Repeat("k", 16<<20)})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a huge message without a key: %v", err)
	}

	health := grpc_health_v1.NewHealthClient(k.conn)
	if r, err := health.Check(k.ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}
	if services := k.services(metadata.AppendToOutgoingContext(k.ctx, "authorization", "Bearer secret")); !strings.Contains(services, "quipu.v1.Quipu") {
		t.Errorf("reflection lists %s", services)
	}
}

// services returns the services that reflection lists.
func (k *kit) services(ctx context.Context) string {
	k.Helper()
	r, err := grpc_reflection_v1.NewServerReflectionClient(k.conn).ServerReflectionInfo(ctx)
	if err != nil {
		k.Fatal(err)
	}
	ask := &grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}
	if err := errors.Join(r.Send(ask), r.CloseSend()); err != nil {
		k.Fatal(err)
	}
	reply, err := r.Recv()
	if err != nil {
		k.Fatal(err)
	}
	return reply.GetListServicesResponse().String()
}

func TestHealthFollowsTheStore(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	health := grpc_health_v1.NewHealthClient(k.conn)
	f := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := health.Check(k.ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || r.Status != want {
			t.Errorf("health %v, %v, want %v", r, err, want)
		}
	}
	f(grpc_health_v1.HealthCheckResponse_SERVING)
	h.On(storetest.OnWrite, storetest.Fail(store.ErrUnavailable))
	f(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
}

// Who asks for nothing learns that it is let in, also while the store is gone.
func TestReadOfNothing(t *testing.T) {
	h := new(storetest.Hooks)
	h.On(storetest.OnGet, storetest.Fail(store.ErrUnavailable))
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	if r, err := k.GetBatch(k.ctx, &pb.GetBatchRequest{}); err != nil || len(r.Counts) != 0 {
		t.Errorf("read of nothing: %v, %v", r, err)
	}
	_, err := k.GetBatch(k.ctx, &pb.GetBatchRequest{Keys: []string{"a"}})
	k.fails(err, codes.Unavailable, pb.Kind_KIND_UNAVAILABLE)
}

// Shutdown ends streams, finishes calls, and takes no more.
func TestShutdownDrains(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	s := k.write()
	s.send(k.enlist(), 0, 1, "a")
	s.recv()
	under, on := make(chan struct{}), make(chan struct{})
	h.On(storetest.OnWrite, storetest.Hold(under, on))
	called := make(chan error, 1)
	go func() {
		_, err := k.Add(k.ctx, &pb.AddRequest{Key: "b", Delta: 1})
		called <- err
	}()
	<-under
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	if err := k.door.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown with a call under way: %v", err)
	}
	_, err := s.Recv()
	k.fails(err, codes.Unavailable, pb.Kind_KIND_UNAVAILABLE)
	close(on)
	if err := <-called; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := k.door.Shutdown(k.ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// One call of Verify at a time.
func TestVerify(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	if _, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1}); err != nil {
		t.Fatal(err)
	}
	r, err := k.Verify(k.ctx, &pb.VerifyRequest{})
	if err != nil || r.Cells != 1 || r.Deltas != 1 || len(r.Drift) != 0 {
		t.Errorf("verify: %v, %v", r, err)
	}
	plain := open(t, storetest.Bare(memstore.New(memstore.Options{})), rpc.Options{})
	_, err = plain.Verify(k.ctx, &pb.VerifyRequest{})
	plain.fails(err, codes.Unimplemented, pb.Kind_KIND_UNSUPPORTED)
}
