//go:build linux

package bare

import (
	"errors"
	"math"
	"strconv"
)

// How the two commands begin, as clients send them.
const (
	incrHead = "*2\r\n$4\r\nINCR\r\n"
	getHead  = "*2\r\n$3\r\nGET\r\n"
)

// errProtocol is what a client gets that sends something else than commands.
var errProtocol = errors.New("ERR Protocol error")

// groupMax is how many INCRs are taken together: enough that their slots come from
// memory at the same time, and few enough that they are still in the caches then.
const groupMax = 32

// An add is an INCR that was parsed.
type add struct {
	key  []byte
	hash uint64
}

// execute executes the commands at the beginning of b, and returns the rest. An
// error is one of the server.
func (s *Server) execute(c *conn, b []byte) (rest []byte, err error) {
	for len(b) > 0 && err == nil {
		if b, err = s.incrs(c, b); len(b) == 0 || err != nil {
			break
		}
		var key []byte
		var used int
		var wrong error
		if len(b) >= len(getHead) && string(b[:len(getHead)]) == getHead {
			if key, used, wrong = bulk(b, len(getHead)); used > 0 {
				s.get(c, key)
			}
		} else if used, wrong = skip(b); used > 0 {
			c.out = append(c.out, "-ERR unknown command\r\n"...)
		}
		if wrong != nil {
			c.out = append(append(append(c.out, '-'), wrong.Error()...), "\r\n"...)
			return nil, nil
		}
		if used == 0 { // it is not whole
			return b, nil
		}
		b = b[used:]
	}
	return nil, err
}

// incrs executes the INCRs at the beginning of b, and returns the rest.
func (s *Server) incrs(c *conn, b []byte) (rest []byte, err error) {
	for err == nil {
		group := s.group[:0]
		for len(group) < groupMax && len(b) >= len(incrHead) && string(b[:len(incrHead)]) == incrHead {
			key, end, _ := bulk(b, len(incrHead))
			if end == 0 { // it is not whole, or wrong
				break
			}
			group = append(group, add{key, s.table.hash(key)})
			b = b[end:]
		}
		if len(group) == 0 {
			break
		}
		for i := range group {
			s.touched += s.table.touch(group[i].hash)
		}
		for i := 0; i < len(group) && err == nil; i++ {
			err = s.incr(c, &group[i])
		}
	}
	return b, err
}

// incr adds one.
func (s *Server) incr(c *conn, a *add) error {
	at, err := s.table.find(a.hash, a.key)
	switch {
	case errors.Is(err, errKey):
		c.out = append(append(append(c.out, "-ERR "...), err.Error()...), "\r\n"...)
		return nil
	case err != nil:
		return err
	case at.value == math.MaxInt64:
		c.out = append(c.out, "-ERR increment or decrement would overflow\r\n"...)
		return nil
	}
	at.value++
	s.log.add(a.key, 1)
	c.out = append(strconv.AppendInt(append(c.out, ':'), at.value, 10), "\r\n"...)
	return nil
}

// get reads.
func (s *Server) get(c *conn, key []byte) {
	at := s.table.look(s.table.hash(key), key)
	if at == nil || at.length == 0 {
		c.out = append(c.out, "$-1\r\n"...)
		return
	}
	var digits [20]byte
	value := strconv.AppendInt(digits[:0], at.value, 10)
	c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(value)), 10), "\r\n"...)
	c.out = append(append(c.out, value...), "\r\n"...)
}

// bulk returns the string at an offset, and where it ends: 0 if it is not whole.
func bulk(b []byte, at int) (text []byte, end int, err error) {
	n, at, err := integer(b, at, '$')
	end = at + n + len("\r\n")
	if at == 0 || end > len(b) {
		return nil, 0, err
	}
	return b[at : at+n], end, nil
}

// skip returns where a command ends: 0 if it is not whole.
func skip(b []byte) (end int, err error) {
	n, end, err := integer(b, 0, '*')
	for ; n > 0 && end > 0 && err == nil; n-- {
		_, end, err = bulk(b, end)
	}
	return end, err
}

// integer returns the number of a line that begins with a sign, and where the
// line ends: 0 if it is not whole.
func integer(b []byte, at int, sign byte) (n, end int, err error) {
	if at < len(b) && b[at] != sign {
		return 0, 0, errProtocol
	}
	for at++; at < len(b)-1; at++ {
		digit := b[at] - '0'
		switch {
		case b[at] == '\r':
			return n, at + len("\r\n"), nil
		case digit > 9 || n > 1<<20:
			return 0, 0, errProtocol
		}
		n = 10*n + int(digit)
	}
	return 0, 0, nil
}
