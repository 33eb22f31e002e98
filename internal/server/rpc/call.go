package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// errBusy refuses a call when there are as many as there may be.
var errBusy = store.Errorf(store.KindUnavailable, "the server is at its limit of calls")

// A handler serves one call that is not a stream.
type handler func(srv any, s grpc.ServerStream, full string, m *grpc.MethodDesc) error

// calls returns a service whose calls are served by h from the moment that their
// headers have come: gRPC's own way begins when it has read the message.
func calls(desc *grpc.ServiceDesc, h handler) *grpc.ServiceDesc {
	own := *desc
	own.Methods = nil
	own.Streams = slices.Clone(desc.Streams)
	for i := range desc.Methods {
		m := &desc.Methods[i]
		full := "/" + desc.ServiceName + "/" + m.MethodName
		own.Streams = append(own.Streams, grpc.StreamDesc{
			StreamName: m.MethodName,
			Handler:    func(srv any, s grpc.ServerStream) error { return h(srv, s, full, m) },
		})
	}
	return &own
}

// call is the chain of every call of the service that is not a stream.
func (d *Door) call(srv any, s grpc.ServerStream, full string, m *grpc.MethodDesc) (err error) {
	start := time.Now()
	ctx := s.Context()
	defer func() { err = d.end(ctx, full, start, recover(), err) }()
	v := visitOf(ctx)
	if !v.begin() {
		return errBusy
	}
	defer v.end()
	v.hurry(ctx, start)
	reply, err := m.Handler(srv, ctx, func(m any) error { return v.receive(s, m) }, nil)
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}

// openCall is the chain of every call that needs no key. The message is not read:
// nothing in it matters, and a stranger may send what it likes.
func (d *Door) openCall(srv any, s grpc.ServerStream, full string, m *grpc.MethodDesc) (err error) {
	start := time.Now()
	ctx := s.Context()
	defer func() { err = d.end(ctx, full, start, recover(), err) }()
	select {
	case d.open <- struct{}{}:
		defer func() { <-d.open }()
	default:
		return errBusy
	}
	reply, err := m.Handler(srv, ctx, func(any) error { return nil }, nil)
	if err != nil {
		return err
	}
	return s.SendMsg(reply)
}

// stream is the chain of every stream.
func (d *Door) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	start := time.Now()
	ctx := s.Context()
	defer func() { err = d.end(ctx, info.FullMethod, start, recover(), err) }()
	v := visitOf(ctx)
	if !v.begin() {
		return errBusy
	}
	defer v.end()
	if !info.IsClientStream {
		v.hurry(ctx, start)
	}
	return handle(srv, &intake{ServerStream: s, visit: v})
}

// end turns a panic, or an error, into what the caller is told, and measures.
func (d *Door) end(ctx context.Context, method string, start time.Time, panicked any, err error) error {
	if panicked != nil {
		err = store.Errorf(store.KindOther, "panic: %v\n%s", panicked, debug.Stack())
	}
	if err != nil {
		err = d.status(ctx, method, err)
	}
	d.note(ctx, method, err)
	took := time.Since(start)
	code := status.Code(err)
	if method != pb.Quipu_Write_FullMethodName { // whose batches are measured
		d.meters[method].Observe(code, took)
	}
	if v := visitOf(ctx); v != nil && v.span != nil {
		v.endSpan(method, code)
	}
	if d.logger.Enabled(ctx, slog.LevelDebug) {
		d.logger.Debug("call", "method", method, "code", code.String(), "took", took)
	}
	return err
}

// status returns an error as gRPC tells it: a code, and the kind as a detail.
func (d *Door) status(ctx context.Context, method string, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	told := d.tell(ctx, method, err)
	s, e := status.New(server.StatusOf(store.Kind(told.Kind)).RPC, told.Detail).WithDetails(told)
	if e != nil {
		return status.Error(codes.Internal, e.Error())
	}
	return s.Err()
}

// tell returns what a caller is told of an error, and logs what it is not.
func (d *Door) tell(ctx context.Context, method string, err error) *pb.Error {
	k := server.KindOf(err)
	if server.StatusOf(k).Private {
		level := slog.LevelWarn
		if k == store.KindOther || k == store.KindCorrupt || k == store.KindLost {
			level = slog.LevelError
		}
		d.logger.Log(ctx, level, "call failed", "method", method, "error", err)
	}
	of := server.Detail
	switch method {
	case pb.Quipu_Get_FullMethodName, pb.Quipu_GetBatch_FullMethodName, pb.Quipu_List_FullMethodName, pb.Quipu_Sum_FullMethodName, pb.Quipu_Lookup_FullMethodName,
		pb.Quipu_Range_FullMethodName, pb.Quipu_By_FullMethodName, pb.Quipu_Ledger_FullMethodName, pb.Quipu_Definitions_FullMethodName,
		pb.Quipu_Verify_FullMethodName, pb.Quipu_Backup_FullMethodName,
		pb.Reactions_Choice_FullMethodName, pb.Reactions_Counts_FullMethodName, pb.Reactions_Members_FullMethodName,
		pb.Sketches_AskItems_FullMethodName, pb.Sketches_Sketch_FullMethodName,
		pb.Reservations_Reservation_FullMethodName, pb.Reservations_Reservations_FullMethodName:
		of = server.ReadDetail
	}
	detail := strings.ToValidUTF8(of(err), "\uFFFD")
	if detail == server.SeeLog { // REST has request ids
		detail = "the server's log says more"
	}
	told := &pb.Error{Kind: pb.Kind(k), Detail: detail}
	if b, ok := errors.AsType[*quipu.BoundError](err); ok {
		told.Bound = &pb.Error_Bound{Value: b.Value, Asked: b.Asked, Limit: b.Limit, Above: b.Above, Set: b.Set, Forgotten: b.Forgotten}
	}
	return told
}

// in returns the view of a namespace; "" is the default one.
func (d *Door) in(namespace string) *quipu.DB {
	if namespace == "" {
		return d.db
	}
	return d.db.In(namespace)
}
