package hostile

import (
	"context"
	"net"
	"strings"
)

const (
	healthMethod     = "/grpc.health.v1.Health/Check"
	reflectionMethod = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	batchMethod      = "/quipu.v1.Quipu/AddBatch"
	writeMethod      = "/quipu.v1.Quipu/Write"
	addMethod        = "/quipu.v1.Quipu/Add"
)

// messageBytes is the longest message that a server may take.
const messageBytes = 8 << 20

// RPC returns the attacks on the gRPC door. Those on a server with API keys have
// one, unless they are said to come from strangers.
func RPC() []Attack {
	return []Attack{
		{
			"rpc-half-strangers", "without a key, 8 MiB messages to the open services, all but their last byte, on 200 streams: 1.7 GB",
			calls(4, false, func(h *H2, headers []string) error {
				return h.feed(50, []string{healthMethod, reflectionMethod}, headers)
			}),
		},
		{
			"rpc-half", "with a key, 8 MiB messages, all but their last byte, on 400 streams: 3.4 GB",
			calls(4, true, func(h *H2, headers []string) error {
				return h.feed(100, []string{batchMethod, writeMethod}, headers)
			}),
		},
		{
			"rpc-windows", "with a key, calls that send what they may before anyone reads, and nothing more, on 200 connections",
			calls(200, true, func(h *H2, headers []string) error {
				for range 100 {
					stream, err := h.Call(addMethod, headers...)
					if err == nil {
						err = h.Message(stream, 65_000, 600)
					}
					if err != nil {
						return err
					}
				}
				return h.Drain()
			}),
		},
		{
			"rpc-silent-strangers", "2,000 connections that never say anything",
			func(ctx context.Context, t Target) error { return crowd(ctx, t.RPC, 2000, wait) },
		},
		{
			"rpc-reset", "calls that are taken back as soon as they are begun, by strangers",
			calls(16, false, func(h *H2, headers []string) error {
				go func() { _ = h.Drain() }() // until the connection ends
				for {
					stream, err := h.Call(healthMethod, headers...)
					if err == nil {
						err = h.Reset(stream)
					}
					if err != nil {
						return err
					}
				}
			}),
		},
		{
			"rpc-metadata", "calls with as much metadata as a server may take, by strangers",
			calls(16, false, func(h *H2, headers []string) error {
				go func() { _ = h.Drain() }()
				for {
					if _, err := h.Call(addMethod, append(headers, "x-large", strings.Repeat("m", 15<<10))...); err != nil {
						return err
					}
				}
			}),
		},
	}
}

// wait reads until the server ends the connection.
func wait(_ context.Context, c net.Conn) error {
	for b := make([]byte, 512); ; {
		if _, err := c.Read(b); err != nil {
			return err
		}
	}
}

// calls runs an attacker on each of n connections, with a key or without.
func calls(n int, key bool, attacker func(h *H2, headers []string) error) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		return crowd(ctx, t.RPC, n, func(_ context.Context, c net.Conn) error {
			h, err := NewH2(c)
			if err != nil {
				return err
			}
			var headers []string
			if key && t.Key != "" {
				headers = []string{"authorization", "Bearer " + t.Key}
			}
			return attacker(h, headers)
		})
	}
}
