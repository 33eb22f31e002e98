package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

const (
	fillConnections = 4
	fillDepth       = 500
)

// fillKeys increments each of n keys of a load once, over RESP.
func fillKeys(ctx context.Context, addr string, first, n int) error {
	errs := make([]error, fillConnections)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = fillRange(ctx, addr, first+n*i/fillConnections, first+n*(i+1)/fillConnections) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// fillRange increments the keys of some numbers, on one connection.
func fillRange(ctx context.Context, addr string, from, to int) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	in := bufio.NewReader(c)
	var out []byte
	for ; from < to; from += fillDepth {
		end := min(from+fillDepth, to)
		out = out[:0]
		for i := from; i < end; i++ {
			key := keyOf(int64(i))
			out = fmt.Appendf(out, "*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n", len(key), key)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		for range end - from {
			reply, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if reply[0] != ':' {
				return fmt.Errorf("fill %s: %q", addr, reply)
			}
		}
	}
	return nil
}
