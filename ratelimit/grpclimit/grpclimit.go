// Package grpclimit puts limits before the calls of a gRPC server: an interceptor asks a Quipu
// whether a client may call, and answers those who may not with RESOURCE_EXHAUSTED.
package grpclimit

import (
	"context"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/ratelimit"
)

// Options say what is asked for a call.
type Options struct {
	// Name returns the limit that is asked for a method, such as "/pkg.Service/Method"; "" is
	// none, and the call is let through. Without it the limit has the name of the method.
	Name func(method string) string

	// Who returns the client of a call. Without it that is the address that the connection
	// comes from, without the port.
	Who func(context.Context) string

	// Call is said with each question.
	Call call.AllowOptions
}

// Unary returns an interceptor for calls that are no streams.
func Unary(a ratelimit.Allower, o Options) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := o.ask(ctx, a, info.FullMethod, func(md metadata.MD) error { return grpc.SetTrailer(ctx, md) }); err != nil {
			return nil, err
		}
		return handle(ctx, r)
	}
}

// Stream returns an interceptor for streams, each of which is one call.
func Stream(a ratelimit.Allower, o Options) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		tell := func(md metadata.MD) error { s.SetTrailer(md); return nil }
		if err := o.ask(s.Context(), a, info.FullMethod, tell); err != nil {
			return err
		}
		return handle(srv, s)
	}
}

// ask returns the error of a call that is not allowed. The trailer of such a call has
// retry-after-ms, if it may be allowed later.
func (o *Options) ask(ctx context.Context, a ratelimit.Allower, method string, tell func(metadata.MD) error) error {
	name, who := method, Peer
	if o.Name != nil {
		name = o.Name(method)
	}
	if o.Who != nil {
		who = o.Who
	}
	if name == "" {
		return nil
	}
	d, err := a.Allow(ctx, name, who(ctx), 1, o.Call)
	if err != nil {
		return status.Error(codes.Unavailable, "the limits can't be asked now: try again")
	}
	if d.Allowed {
		return nil
	}
	if d.RetryAfter > 0 {
		_ = tell(metadata.Pairs("retry-after-ms", strconv.FormatInt(int64(d.RetryAfter/time.Millisecond), 10))) // the status says enough
	}
	return status.Error(codes.ResourceExhausted, "the limit "+strconv.Quote(d.Policy)+" of "+strconv.FormatInt(d.Limit, 10)+" is used up")
}

// Peer returns the address that a call's connection comes from, without the port.
func Peer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
