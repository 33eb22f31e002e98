// Package hostile attacks a server from outside, as a malicious client would,
// so that tests and benchmarks can see that the server's limits hold.
//
// An attack does what its name says for as long as its context lasts, whatever
// the server answers. If the server closes a connection, the attack opens it
// again. The caller judges the server by its memory, and by a Witness that uses
// the server at the same time.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Target is a server under attack.
type Target struct {
	RESP string // HOST:PORT of each door; empty if it is closed
	HTTP string
	RPC  string
	Key  string // an API key, for attackers that have one; empty if none is needed
}

// An Attack is something that no well-behaved client does.
type Attack struct {
	Name  string
	About string // what it sends, and what that would cost a server without limits

	// Run attacks until ctx ends. It returns an error only if it could not attack
	// at all.
	Run func(ctx context.Context, t Target) error
}

// retryPause keeps an attacker that is refused from being nothing but a flood of
// connections.
const retryPause = 10 * time.Millisecond

// crowd runs an attacker on each of n connections to addr, again on a new one
// whenever it ends, until ctx ends.
func crowd(ctx context.Context, addr string, n int, attacker func(ctx context.Context, c net.Conn) error) error {
	if addr == "" {
		return errors.New("the target has no such door")
	}
	first, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("reach the target: %w", err)
	}
	_ = first.Close()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				once(ctx, addr, attacker)
				pause(ctx, retryPause)
			}
		})
	}
	wg.Wait()
	return nil
}

// once runs an attacker on one connection.
func once(ctx context.Context, addr string, attacker func(ctx context.Context, c net.Conn) error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = attacker(ctx, c) // the server may well have ended it
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// hold keeps a connection open, and reads nothing, until ctx ends or the server
// closes it, which it finds out by sending something now and then.
func hold(ctx context.Context, c net.Conn, ping string) error {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		if _, err := io.WriteString(c, ping); err != nil {
			return err
		}
	}
	return ctx.Err()
}
