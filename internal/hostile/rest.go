package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// drip is how often a slow client sends a byte.
const drip = 100 * time.Millisecond

// bodyBytes is the longest body that a server may take.
const bodyBytes = 4 << 20

// REST returns the attacks on the HTTP door. Those on a server with API keys have
// one, unless they are said to come from strangers.
func REST() []Attack {
	return []Attack{
		{
			"rest-silent-strangers", "2,000 connections that never say anything",
			func(ctx context.Context, t Target) error { return crowd(ctx, t.HTTP, 2000, wait) },
		},
		{
			"rest-slow-heads", "the head of a request, a byte at a time, on 1,000 connections",
			slow(1000, func(Target) string { return "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " }),
		},
		{
			"rest-slow-bodies", "with a key, bodies of 4 MiB, a byte at a time, on 1,000 connections",
			slow(1000, func(t Target) string { return batchHead(t) + `{"ops":[` }),
		},
		{
			"rest-half-bodies", "with a key, bodies of 4 MiB, all but their last byte, on 200 connections: 800 MB",
			slow(200, func(t Target) string { return batchHead(t) + strings.Repeat(" ", bodyBytes-1000) }),
		},
		{
			"rest-half-strangers", "the same without a key",
			slow(200, func(Target) string { return batchHead(Target{}) + strings.Repeat(" ", bodyBytes-1000) }),
		},
		{
			"rest-large-heads", "heads of as much as a server may take, by strangers",
			func(ctx context.Context, t Target) error {
				head := "GET /api/v1/counters/a HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("h", 15<<10) + "\r\n\r\n"
				return crowd(ctx, t.HTTP, 64, func(ctx context.Context, c net.Conn) error { return repeat(ctx, c, head) })
			},
		},
	}
}

// batchHead returns the head of a large request.
func batchHead(t Target) string {
	head := fmt.Sprintf("POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", bodyBytes)
	if t.Key != "" {
		head += "Authorization: Bearer " + t.Key + "\r\n"
	}
	return head + "\r\n"
}

// slow sends the beginning of something on n connections, and then a byte at a
// time.
func slow(n int, beginning func(Target) string) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		raw := beginning(t)
		return crowd(ctx, t.HTTP, n, func(ctx context.Context, c net.Conn) error {
			if _, err := io.WriteString(c, raw); err != nil {
				return err
			}
			for ctx.Err() == nil {
				pause(ctx, drip)
				if _, err := io.WriteString(c, " "); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
}
