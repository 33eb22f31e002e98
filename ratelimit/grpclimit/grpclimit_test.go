package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/ratelimit/grpclimit"
	"github.com/quipudb/quipu/store/memstore"
)

// Each method is limited by its name, streams too, for each address.
func TestInterceptors(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	day, err := definition.ParseWidth("24h")
	if err != nil {
		t.Fatal(err)
	}
	o := grpclimit.Options{Call: call.AllowOptions{Limits: []definition.Limit{{Rate: 2, Per: day}}}}
	s := grpc.NewServer(grpc.UnaryInterceptor(grpclimit.Unary(db, o)), grpc.StreamInterceptor(grpclimit.Stream(db, o)))
	defer s.Stop()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // until Stop
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := grpc_health_v1.NewHealthClient(conn)
	check := func(want codes.Code) {
		t.Helper()
		var trailer metadata.MD
		_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		if status.Code(err) != want || (want == codes.ResourceExhausted) != (len(trailer.Get("retry-after-ms")) == 1) {
			t.Errorf("%v, trailer %v, want %v", err, trailer, want)
		}
	}
	watch := func(want codes.Code) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	check(codes.OK)
	check(codes.OK)
	check(codes.ResourceExhausted)
	watch(codes.OK)
	watch(codes.OK)
	watch(codes.ResourceExhausted)
	d, err := db.Allow(t.Context(), "/grpc.health.v1.Health/Check", "127.0.0.1", 0, o.Call)
	if err != nil || d.Remaining != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}
