package rpc

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// admit turns a caller without a key away when it has sent its headers and
// nothing else. What tells about the server itself is open to all.
func (d *Door) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !d.keys.Required() || isOpen(info.FullMethodName) {
		return ctx, nil
	}
	if vs := info.Header.Get("authorization"); len(vs) == 1 && d.keys.Has(server.Bearer(vs[0])) {
		placeOf(ctx).Known()
		return ctx, nil
	}
	d.refused.Observe(codes.Unauthenticated, 0)
	return nil, status.Error(codes.Unauthenticated, "send the metadata authorization: Bearer with one of the server's API keys")
}

func isOpen(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// call is the chain of every call that is not a stream.
func (d *Door) call(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	defer func() { err = d.end(ctx, info.FullMethod, start, recover(), err) }()
	if _, ok := ctx.Deadline(); !ok && info.FullMethod != pb.Quipu_Verify_FullMethodName {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	return handle(ctx, req)
}

// stream is the chain of every stream.
func (d *Door) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	start := time.Now()
	defer func() { err = d.end(s.Context(), info.FullMethod, start, recover(), err) }()
	return handle(srv, s)
}

// end turns a panic, or an error, into what the caller is told, and measures.
func (d *Door) end(ctx context.Context, method string, start time.Time, panicked any, err error) error {
	if panicked != nil {
		err = store.Errorf(store.KindOther, "panic: %v\n%s", panicked, debug.Stack())
	}
	if err != nil {
		err = d.status(ctx, method, err)
	}
	took := time.Since(start)
	code := status.Code(err)
	if method != pb.Quipu_Write_FullMethodName { // whose batches are measured
		d.meters[method].Observe(code, took)
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
	case pb.Quipu_Get_FullMethodName, pb.Quipu_GetBatch_FullMethodName, pb.Quipu_List_FullMethodName, pb.Quipu_Lookup_FullMethodName,
		pb.Quipu_Verify_FullMethodName, pb.Quipu_Backup_FullMethodName:
		of = server.ReadDetail
	}
	detail := strings.ToValidUTF8(of(err), "\uFFFD")
	if detail == server.SeeLog { // REST has request ids
		detail = "the server's log says more"
	}
	return &pb.Error{Kind: pb.Kind(k), Detail: detail}
}

// in returns the view of a namespace; "" is the default one.
func (d *Door) in(namespace string) *quipu.DB {
	if namespace == "" {
		return d.db
	}
	return d.db.In(namespace)
}
