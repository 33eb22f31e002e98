package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/trace"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// How long to wait before a call is sent again: at first, and at most. Each
// time it is twice as long, less a random part.
const (
	retryFirst = 20 * time.Millisecond
	retryMax   = 500 * time.Millisecond
)

// A manner is how a call may be treated.
type manner struct {
	write      bool // it changes something
	repeatable bool // it may be sent again after it may have been received
	long       bool // it has no deadline unless its caller names one
}

// do sends a request until there is a definite answer, or the time is over.
func (db *DB) do(ctx context.Context, c manner, send func(context.Context, ...grpc.CallOption) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return store.ErrClosed
	}
	if db.err != nil {
		return db.err
	}
	if !c.long {
		var cancel context.CancelFunc
		ctx, cancel = db.deadline(ctx)
		defer cancel()
	}
	ctx = db.traced(ctx)
	doubt := false // an attempt may have counted
	for attempt := 0; ; attempt++ {
		var p peer.Peer
		err := send(ctx, grpc.Peer(&p))
		if err == nil {
			return nil
		}
		err = decodeError(err, p.Addr != nil)
		switch store.KindOf(err) {
		case store.KindUnavailable:
		case store.KindUnknown:
			doubt = true
		default:
			return err
		}
		if doubt && !c.repeatable {
			return err
		}
		if e := db.pause(ctx, attempt); e != nil {
			return c.ended(e, err, doubt)
		}
	}
}

// ended is the error of a call whose time is over, by cause; last is that of its
// last attempt.
func (c manner) ended(cause, last error, doubt bool) error {
	var detail string
	if e, ok := errors.AsType[*store.Error](last); ok {
		detail = e.Detail
	}
	if c.write && doubt {
		return store.Errorf(store.KindUnknown, "an earlier attempt may have counted; the last one: %s: %w", detail, cause)
	}
	if errors.Is(cause, store.ErrClosed) {
		return cause
	}
	return store.Errorf(store.KindUnavailable, "%s: %w", detail, cause)
}

// traced returns ctx with the trace context that is sent with a call, if there is one.
func (s *shared) traced(ctx context.Context) context.Context {
	if s.options.Trace == nil {
		return ctx
	}
	parent, state := s.options.Trace(ctx)
	if _, ok := trace.ParseParent(parent); !ok {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, trace.ParentHeader, parent)
	if state != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, trace.StateHeader, state)
	}
	return ctx
}

// deadline returns ctx with a deadline, if it has none.
func (s *shared) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.options.Timeout)
}

// pause waits before the next attempt. It returns why there must be none.
func (s *shared) pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(delay(attempt))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ending:
		return store.ErrClosed
	}
}

// delay returns how long to wait after so many attempts in vain.
func delay(attempt int) time.Duration {
	d := min(retryFirst<<min(attempt, 16), retryMax)
	return d/2 + rand.N(d/2+1)
}

// decodeError returns what a gRPC error means. Sent says that the request was
// given to a connection.
//
// The kind of an error that has none is KindUnavailable if nothing changed and
// KindUnknown if something may have, and both say that it may be tried again.
func decodeError(err error, sent bool) error {
	s := status.Convert(err)
	for _, d := range s.Details() {
		if told, ok := d.(*pb.Error); ok {
			return errorOf(told)
		}
	}
	switch s.Code() {
	case codes.Unauthenticated:
		return fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case codes.PermissionDenied, codes.InvalidArgument:
		return err
	case codes.ResourceExhausted:
		return store.Errorf(store.KindTooLarge, "%s", s.Message())
	case codes.Unimplemented:
		return store.Errorf(store.KindUnsupported, "%s", s.Message())
	default:
	}
	if !sent {
		return store.Errorf(store.KindUnavailable, "no connection: %s", s.Message())
	}
	return store.Errorf(store.KindUnknown, "no answer: %s", s.Message())
}

// errorOf returns the error that the server told. That it is closing is for this
// side only that it can't be reached.
func errorOf(told *pb.Error) error {
	k := store.Kind(told.Kind)
	if k == store.KindClosed {
		k = store.KindUnavailable
	}
	if b := told.Bound; b != nil {
		return &call.BoundError{Value: b.Value, Asked: b.Asked, Limit: b.Limit, Above: b.Above, Set: b.Set, Forgotten: b.Forgotten}
	}
	return store.Errorf(k, "%s", told.Detail)
}
