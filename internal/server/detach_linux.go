package server

import (
	"fmt"
	"syscall"
)

// Detachable is a connection that a door with a loop of its own can take over
// from Go's. Those of a Listener are, unless TLS is on.
type Detachable interface {
	// Detach returns the connection's file descriptor, which does not block, for
	// the caller to close, and its place under the listener's limit, for the caller
	// to release and, by OnDrop, to lose. The connection itself is closed.
	Detach() (fd int, place *Place, err error)
}

// Detach implements Detachable.
func (c *conn) Detach() (fd int, place *Place, err error) {
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return 0, nil, fmt.Errorf("a %T has no file descriptor", c.Conn)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var errno syscall.Errno
	err = raw.Control(func(from uintptr) {
		var to uintptr
		to, _, errno = syscall.Syscall(syscall.SYS_FCNTL, from, syscall.F_DUPFD_CLOEXEC, 0)
		fd = int(to)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return 0, nil, fmt.Errorf("duplicate a file descriptor: %w", err)
	}
	_ = c.Conn.Close() // not c's own Close, which would give the place back
	return fd, c.place, nil
}
