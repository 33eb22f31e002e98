package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/quipudb/quipu/internal/server"
)

// placed hands each connection's place under the listener's limit to the calls
// on it, as what gRPC knows of the peer. It does not encrypt: the listener does,
// and here only the handshake is made, under gRPC's deadline for it.
type placed struct{}

// place is what gRPC knows of a peer.
type place struct {
	*server.Place
	state *tls.ConnectionState // nil without TLS
}

// AuthType implements credentials.AuthInfo.
func (place) AuthType() string { return "place" }

// ServerHandshake implements credentials.TransportCredentials.
func (placed) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t, ok := c.(*tls.Conn); ok {
		if err := t.Handshake(); err != nil {
			return nil, nil, err
		}
		state := t.ConnectionState()
		return c, place{server.PlaceOf(c), &state}, nil
	}
	return c, place{Place: server.PlaceOf(c)}, nil
}

// ClientHandshake implements credentials.TransportCredentials. There is no
// client.
func (placed) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("rpc: credentials of a server")
}

// Info implements credentials.TransportCredentials.
func (placed) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (placed) Clone() credentials.TransportCredentials { return placed{} }

// OverrideServerName implements credentials.TransportCredentials.
func (placed) OverrideServerName(string) error { return nil }

// placeOf returns the place of the connection that a call came on.
func placeOf(ctx context.Context) *server.Place {
	if p, ok := peer.FromContext(ctx); ok {
		if own, ok := p.AuthInfo.(place); ok {
			return own.Place
		}
	}
	return nil
}
