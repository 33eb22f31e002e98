package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/envoypb"
	"github.com/quipudb/quipu/internal/server"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// errStranger refuses a caller who has to be known and is not.
var errStranger = status.Error(codes.Unauthenticated, "send the metadata authorization: Bearer with one of the server's API keys, or a token that it accepts")

// identify returns who makes a call, by its headers or the certificate of its connection; nil
// is nobody.
func (d *Door) identify(ctx context.Context, info *tap.Info) (*access.Principal, error) {
	if d.gate.Open() {
		return d.gate.Anyone(), nil
	}
	switch vs := info.Header.Get("authorization"); {
	case len(vs) == 1:
		return d.gate.Enter(ctx, callerOf(ctx), server.Bearer(vs[0]))
	case len(vs) > 1:
		return nil, server.ErrCredentials
	}
	if who := d.gate.Certificate(tlsOf(ctx)); who != nil {
		return who, nil
	}
	return d.gate.Anyone(), nil
}

// admit turns a caller away who has to be known and is not, when it has sent its headers and
// nothing else.
func (d *Door) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	need, _ := d.needs.Of(strings.TrimPrefix(info.FullMethodName, "/"))
	if d.meters[info.FullMethodName] == nil {
		need = access.Need{Scope: access.OnLogin} // there is no such method
	}
	place := placeOf(ctx)
	who, err := d.identify(ctx, info)
	v := d.visit(ctx, info.FullMethodName)
	v.need, v.who = need, who
	if d.tracer != nil && traced(info.FullMethodName) {
		v.trace(info)
	}
	if who != nil {
		place.Known()
		if err := d.gate.Spend(who, access.Cost{Requests: 1, Connections: once(place.Used(who))}); err != nil {
			v.cancel()
			d.refused.Observe(codes.ResourceExhausted, 0)
			return nil, overQuota(err)
		}
		return v, nil
	}
	if !place.Call() {
		place.Drop()
	}
	if need.Open() {
		return v, nil
	}
	v.cancel()
	if many, ok := errors.AsType[*server.TooManyError](err); ok {
		d.refused.Observe(codes.ResourceExhausted, 0)
		return nil, overQuota(many)
	}
	d.refused.Observe(codes.Unauthenticated, 0)
	return nil, errStranger
}

func once(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// overQuota returns an error for who has to wait. To a client it is one of a server that can't
// serve now: nothing changed, and the same may be sent again.
func overQuota(err error) error {
	s, e := status.New(codes.ResourceExhausted, err.Error()).WithDetails(&pb.Error{Kind: pb.Kind(store.KindUnavailable), Detail: err.Error()})
	if e != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return s.Err()
}

func callerOf(ctx context.Context) server.Caller {
	c := server.Caller{Door: "rpc"}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.Addr = p.Addr.String()
	}
	return c
}

// tlsOf returns what is known of a connection's TLS, or nil.
func tlsOf(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if own, ok := p.AuthInfo.(place); ok {
			return own.state
		}
	}
	return nil
}

// permit refuses a message that its sender is not granted. It is asked of every message: who
// sends on a stream may end meanwhile.
func (v *visit) permit(m proto.Message, bytes int64) error {
	if v.who == nil {
		return nil // its method is open to all
	}
	if v.who.Ended(time.Now().UnixMilli()) {
		return errStranger
	}
	if err := v.pay(m, bytes); err != nil {
		return overQuota(err)
	}
	in := v.who.In(namespaceIn(m))
	v.target = in.Namespace
	if in.Freely(v.need) { // Fast path.
		return nil
	}
	need, names, err := v.names(m)
	if err == nil && !in.May(need, names...) {
		err = v.refused(&in, need)
	}
	return err
}

// refused is the answer to a call that is not granted.
func (v *visit) refused(in *access.View, need access.Need) error {
	detail := v.door.gate.Denied(in, need)
	if v.who.Kind == access.Anyone {
		return errStranger
	}
	return status.Error(codes.PermissionDenied, detail)
}

// pay takes a message from the quota of its sender.
func (v *visit) pay(m proto.Message, bytes int64) error {
	if v.who.Spent == nil { // Fast path.
		return nil
	}
	cost := access.Cost{Bytes: bytes}
	if v.need.Changes() {
		cost.Writes = 1
	}
	switch m := m.(type) {
	case *pb.AddBatchRequest:
		cost.Writes = int64(len(m.Events))
	case *pb.WriteRequest:
		cost.Writes, cost.Requests = int64(len(m.Keys)), 1 // of a stream, each batch is one
	}
	return v.door.gate.Spend(v.who, cost)
}

// namespaceIn returns the namespace that a message names.
func namespaceIn(m proto.Message) string {
	if r, ok := m.(*envoypb.RateLimitRequest); ok {
		if namespace, _, some := strings.Cut(r.Domain, "/"); some {
			return namespace
		}
	}
	if r, ok := m.(interface{ GetNamespace() string }); ok && r.GetNamespace() != "" {
		return r.GetNamespace()
	}
	return "default"
}

// names returns what a message names, keys or a prefix of them, and what it needs on them. One
// that names nothing has to be granted on the whole namespace.
func (v *visit) names(m proto.Message) (need access.Need, names []string, err error) {
	need = v.need
	switch r := m.(type) {
	case *pb.AddBatchRequest:
		for _, e := range r.Events {
			names = append(names, e.GetKey())
		}
		return need, names, nil
	case *pb.GetBatchRequest:
		if len(r.Keys) == 0 { // It reads nothing: clients greet a server so.
			need = access.Need{Scope: access.OnLogin}
		}
		return need, r.Keys, nil
	case *pb.RangeRequest:
		if !r.Prefix {
			need.Scope = access.OnKeys
		}
		return need, []string{r.Key}, nil
	case *pb.DefinitionsRequest:
		if r.Key == nil {
			return need, nil, nil
		}
		return need, []string{*r.Key}, nil
	case *pb.MergeSketchesRequest:
		names = []string{r.Key}
		for _, from := range r.From {
			names = append(names, from.GetKey())
		}
		return need, names, nil
	case *pb.AllowRequest:
		return need, []string{r.Name}, nil
	case *pb.ResetLimitRequest:
		return need, []string{r.Name}, nil
	case *envoypb.RateLimitRequest:
		_, domain, some := strings.Cut(r.Domain, "/")
		if !some {
			domain = r.Domain
		}
		for _, d := range r.Descriptors {
			name, _ := nameOf(domain, d)
			names = append(names, name)
		}
		return need, names, nil
	case interface{ GetKeys() []string }:
		return need, r.GetKeys(), nil
	case interface{ GetPrefix() string }:
		return need, []string{r.GetPrefix()}, nil
	case interface{ GetId() string }:
		key, err := v.door.in(namespaceIn(m)).Port().ReservedKey(r.GetId())
		return need, []string{key}, err
	case interface{ GetKey() string }:
		return need, []string{r.GetKey()}, nil
	}
	return need, nil, nil
}

// note writes an administrator's call down.
func (d *Door) note(ctx context.Context, method string, err error) {
	v := visitOf(ctx)
	if v == nil || v.who == nil || !v.need.Audited() {
		return
	}
	act := server.Act{Act: strings.TrimPrefix(method, "/"), Target: v.target, Outcome: "done"}
	switch code := status.Code(err); code {
	case codes.OK:
	case codes.PermissionDenied, codes.Unauthenticated:
		act.Outcome = "denied"
	default:
		act.Outcome = "failed: " + code.String()
	}
	d.gate.Audit(v.who, callerOf(ctx), act)
}
