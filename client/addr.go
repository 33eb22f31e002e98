package client

import (
	"math/rand/v2"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/quipudb/quipu/store"
)

// connect makes a connection to one of several servers: to another, if that is
// lost. Each client begins with another of them.
func connect(addr string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if strings.Contains(addr, "://") {
		return nil, store.Errorf(store.KindInvalid, "dial %s: want HOST:PORT, the address of the server's --rpc, and not a URL", addr)
	}
	all := strings.Split(addr, ",")
	if len(all) == 1 {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			return nil, store.Errorf(store.KindInvalid, "dial %s: %w", addr, err)
		}
		return conn, nil
	}
	servers := make([]resolver.Address, len(all))
	for i, one := range all {
		host, _, err := net.SplitHostPort(one)
		if err != nil {
			return nil, store.Errorf(store.KindInvalid, "dial %s: %w", addr, err)
		}
		servers[i] = resolver.Address{Addr: one, ServerName: host} // whose certificate is looked for
	}
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	r := manual.NewBuilderWithScheme("quipu")
	r.InitialState(resolver.State{Addresses: servers})
	conn, err := grpc.NewClient(r.Scheme()+":///"+addr, append(options, grpc.WithResolvers(r))...)
	if err != nil {
		return nil, store.Errorf(store.KindInvalid, "dial %s: %w", addr, err)
	}
	return conn, nil
}
