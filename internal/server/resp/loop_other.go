//go:build !linux

package resp

import "net"

// A loop is for Linux only.
type loop struct{}

func (*loop) wake()  {}
func (*loop) close() {}

// A conn is a connection in a loop.
type conn struct{}

// carryInLoop takes no connection.
func (*Door) carryInLoop(net.Conn) (bool, error) { return false, nil }
