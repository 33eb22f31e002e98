package rpc_test

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu/internal/hostile"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rpc"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// attack returns a client that sends what it likes.
func (k *kit) attack() *hostile.H2 {
	k.Helper()
	c, err := (&net.Dialer{}).DialContext(k.ctx, "tcp", k.conn.Target())
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		k.Fatal(err)
	}
	h, err := hostile.NewH2(c)
	if err != nil {
		k.Fatal(err)
	}
	return h
}

// half begins a call and sends the beginning of its message.
func (k *kit) half(h *hostile.H2, method string, size, sent int, headers ...string) (stream uint32) {
	k.Helper()
	stream, err := h.Call(method, headers...)
	if err == nil {
		err = h.Message(stream, size, sent)
	}
	if err != nil {
		k.Fatal(err)
	}
	return stream
}

// ends checks the status of a call that the server ended.
func (k *kit) ends(h *hostile.H2, stream uint32, code codes.Code, text string) {
	k.Helper()
	got, err := h.End(stream)
	if err != nil || !strings.HasPrefix(got, strconv.Itoa(int(code))+" ") || !strings.Contains(got, text) {
		k.Errorf("the call ended with %q, %v; want %d %s", got, err, code, text)
	}
}

// A message that does not come whole costs its caller the call, and nobody else
// anything, whether the caller names a long deadline, a short one or none.
func TestUnfinishedMessages(t *testing.T) {
	k := open(t, nil, rpc.Options{Timeout: 50 * time.Millisecond})
	f := func(method string, size, sent int, headers ...string) {
		t.Helper()
		h := k.attack()
		k.ends(h, k.half(h, method, size, sent, headers...), codes.DeadlineExceeded, "")
	}
	for _, headers := range [][]string{nil, {"grpc-timeout", "1H"}, {"grpc-timeout", "100m"}} {
		f(pb.Quipu_Add_FullMethodName, 100, 10, headers...)
		f(pb.Quipu_AddBatch_FullMethodName, 8<<20, 32<<10, headers...)
		f(pb.Quipu_Backup_FullMethodName, 100, 10, headers...)
		f(pb.Quipu_Write_FullMethodName, 8<<20, 32<<10, headers...)
	}
	k.free()
}

// free checks that the whole budget, and a call, is to be had.
func (k *kit) free() {
	k.Helper()
	for range 100 { // each takes as much as there is
		if _, err := k.AddBatch(k.ctx, &pb.AddBatchRequest{Events: []*pb.Event{{Key: "a", Who: strings.Repeat("w", 2000)}}}); status.Code(err) == codes.Unavailable {
			k.Fatalf("memory was not given back: %v", err)
		}
	}
}

// Memory for a message is taken before the message is read, and given back
// after its call, whatever became of it.
func TestMessagesTakeFromTheBudget(t *testing.T) {
	budget := server.NewBudget(1 << 20)
	k := open(t, nil, rpc.Options{Budget: budget, Timeout: 200 * time.Millisecond})
	h := k.attack()
	everything := k.half(h, pb.Quipu_AddBatch_FullMethodName, 4<<20, 10, "grpc-timeout", "1H")
	k.ends(h, everything, codes.DeadlineExceeded, "the message did not arrive in time")
	k.free()

	// Held by the test, it is not to be had, and nothing more is read.
	all, err := budget.Take(k.ctx, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	h = k.attack()
	k.ends(h, k.half(h, pb.Quipu_AddBatch_FullMethodName, 4<<20, 10, "grpc-timeout", "1H"), codes.Unavailable, "memory")
	h = k.attack()
	k.ends(h, k.half(h, pb.Quipu_Write_FullMethodName, 4<<20, 10), codes.Unavailable, "memory")
	if _, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1}); err != nil {
		t.Errorf("a small call: %v", err)
	}
	budget.Give(all)
	k.free()
}

// What a message claims and what it decodes to has limits, and breaking them
// changes nothing.
func TestMessages(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	many := make([]string, store.BatchDeltasMax+1)
	_, err := k.GetBatch(k.ctx, &pb.GetBatchRequest{Keys: many})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
	events := make([]*pb.Event, store.BatchDeltasMax+1)
	for i := range events {
		events[i] = &pb.Event{}
	}
	_, err = k.AddBatch(k.ctx, &pb.AddBatchRequest{Events: events})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
	_, err = k.Get(k.ctx, &pb.GetRequest{Key: "a", Options: &pb.ReadOptions{Sessions: many}})
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)
	s := k.write()
	s.sendRaw(&pb.WriteRequest{Deltas: make([]int64, store.BatchDeltasMax+1)})
	_, err = s.Recv()
	k.fails(err, codes.InvalidArgument, pb.Kind_KIND_TOO_LARGE)

	_, err = k.Add(k.ctx, &pb.AddRequest{Key: strings.Repeat("k", 100<<10)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long message of a small call: %v", err)
	}
	h := k.attack()
	k.ends(h, k.half(h, pb.Quipu_AddBatch_FullMethodName, 1<<31, 10), codes.ResourceExhausted, "at most")

	keys := many[:store.BatchDeltasMax]
	for i := range keys {
		keys[i] = strings.Repeat("k", store.KeyBytesMax-5) + strconv.Itoa(10_000+i)
	}
	if r, err := k.GetBatch(k.ctx, &pb.GetBatchRequest{Keys: keys}); err != nil || len(r.Counts) != len(keys) {
		t.Errorf("the largest read: %v", err)
	}
}

// A stranger's message is not read, nor kept, whatever it is about.
func TestStrangersMessages(t *testing.T) {
	keys, err := server.NewKeys([]string{"secret"})
	if err != nil {
		t.Fatal(err)
	}
	k := open(t, nil, rpc.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	h := k.attack()
	k.ends(h, k.half(h, pb.Quipu_Add_FullMethodName, 100, 10), codes.Unauthenticated, "API keys")
	k.ends(h, k.half(h, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 100, 10), codes.Unauthenticated, "API keys")
	stream := k.half(h, grpc_health_v1.Health_Check_FullMethodName, 8<<20, 32<<10)
	if got, err := h.End(stream); err != nil || got != "0" {
		t.Errorf("health with an unfinished message: %q, %v", got, err)
	}
}

// There are only so many calls at a time, of those without a key even fewer.
func TestCallsMax(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{CallsMax: 1})
	under, on := make(chan struct{}), make(chan struct{})
	h.On(storetest.OnWrite, storetest.Hold(under, on))
	called := make(chan error, 1)
	go func() {
		_, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1})
		called <- err
	}()
	<-under
	if _, err := k.Get(k.ctx, &pb.GetRequest{Key: "a"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a second call: %v", err)
	}
	if s, err := k.Write(k.ctx); err != nil {
		t.Error(err)
	} else if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream: %v", err)
	}
	close(on)
	if err := <-called; err != nil {
		t.Error(err)
	}
	h.On(storetest.OnWrite)
	if _, err := k.Get(k.ctx, &pb.GetRequest{Key: "a"}); err != nil {
		t.Errorf("after it: %v", err)
	}
}
