//go:build linux

// Package bare is the least that a durable counter over the Redis protocol can
// be: one loop, one flat table, one log, INCR and GET.
//
// It exists to show what the machine allows. It keeps the promise that Quipu
// keeps for an INCR: the reply is sent when the change is on stable storage, and
// a log that was not closed is read again. It has nothing else, so a server that
// is slower pays for something that bare does without: other commands, limits,
// tokens, checkpoints, or patience with clients that don't read their replies.
//
// The loop makes its system calls without telling the Go scheduler, and
// allocates nothing once its buffers have grown. A program that serves must turn
// the garbage collector off, which would wait for the loop.
package bare

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"unsafe"
)

const (
	readBytes = 64 << 10 // read from a connection in a turn, at most
	eventsMax = 1024     // connections served in a turn, at most
)

// A Server counts. It is used by one goroutine.
type Server struct {
	table   table
	log     *log
	poll    int
	conns   []*conn // by their file descriptors
	unsent  []*conn // with replies
	scratch []byte
	group   [groupMax]add
	touched int // so that touching is not for nothing
}

// A conn is a connection.
type conn struct {
	fd  int
	in  []byte // the beginning of a command
	out []byte // replies
}

// Open opens the log at path, which may be new, and counts what is in it.
func Open(path string) (*Server, error) {
	s := &Server{scratch: make([]byte, readBytes)}
	if err := s.table.make(minSlots); err != nil {
		return nil, err
	}
	var err error
	s.log, err = openLog(path, func(key []byte, delta int64) error {
		at, err := s.table.find(s.table.hash(key), key)
		if err == nil {
			at.value += delta
		}
		return err
	})
	return s, err
}

// Close closes a server that does not serve.
func (s *Server) Close() error {
	return errors.Join(s.log.file.Close(), syscall.Munmap(s.table.memory))
}

// Serve serves until the log or epoll fails.
func (s *Server) Serve(l *net.TCPListener) error {
	file, err := l.File()
	if err != nil {
		return err
	}
	listener := int(file.Fd())
	if err := syscall.SetNonblock(listener, true); err != nil {
		return err
	}
	if s.poll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if err := s.watch(listener); err != nil {
		return err
	}
	events := make([]syscall.EpollEvent, eventsMax)
	for {
		n, errno := raw(syscall.SYS_EPOLL_PWAIT, uintptr(s.poll), uintptr(unsafe.Pointer(&events[0])), eventsMax, ^uintptr(0))
		if errno != 0 && errno != syscall.EINTR {
			return fmt.Errorf("epoll_wait: %w", errno)
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == listener {
				err = s.accept(listener)
			} else {
				err = s.serve(s.conns[e.Fd])
			}
			if err != nil {
				return err
			}
		}
		if err := s.log.sync(); err != nil {
			return err
		}
		s.reply()
	}
}

// watch has epoll wait for what can be read.
func (s *Server) watch(fd int) error {
	if err := syscall.EpollCtl(s.poll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// accept takes the connections that wait.
func (s *Server) accept(listener int) error {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err == syscall.EAGAIN {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept4: %w", err)
		}
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
			return err
		}
		for fd >= len(s.conns) {
			s.conns = append(s.conns, nil)
		}
		s.conns[fd] = &conn{fd: fd}
		if err := s.watch(fd); err != nil {
			return err
		}
	}
}

// serve executes what a connection has sent.
func (s *Server) serve(c *conn) error {
	n, errno := raw(syscall.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&s.scratch[0])), readBytes, 0)
	if errno == syscall.EAGAIN || errno == syscall.EINTR {
		return nil
	}
	if n <= 0 {
		s.drop(c)
		return nil
	}
	b := s.scratch[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	rest, err := s.execute(c, b)
	c.in = append(c.in[:0], rest...) // perhaps a part of itself
	if len(c.out) > 0 {
		s.unsent = append(s.unsent, c)
	}
	return err
}

// reply sends what is durable now. A connection that does not take it all is
// dropped.
func (s *Server) reply() {
	for _, c := range s.unsent {
		if s.conns[c.fd] != c { // dropped
			continue
		}
		n, errno := raw(syscall.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&c.out[0])), uintptr(len(c.out)), 0)
		if errno != 0 || n < len(c.out) {
			s.drop(c)
		}
		c.out = c.out[:0]
	}
	s.unsent = s.unsent[:0]
}

func (s *Server) drop(c *conn) {
	s.conns[c.fd] = nil
	_ = syscall.Close(c.fd)
}

// raw makes a system call that the scheduler is not told of. The last two
// arguments of epoll_pwait, a mask and its size, are 0.
//
//go:uintptrescapes
func raw(call, a, b, c, d uintptr) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(call, a, b, c, d, 0, 0)
	return int(n), errno
}
