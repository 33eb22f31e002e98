package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/quipudb/quipu/internal/load"
)

const hotTokensAbout = "Writes to one hot counter, each with a token of its own that makes a repeat harmless, acknowledged after the commit in PostgreSQL with " +
	"synchronous_commit on: two Quipu nodes, `Q.ADD key 1 ID token NOVALUE` over RESP by 64 callers, each of whom waits for its reply, against pgbench " +
	"with 64 clients that insert the token and update one row in a transaction. The same as one statement is there for scale. CPU time is PostgreSQL's."

const (
	inTransaction = "INSERT and UPDATE in a transaction"
	inStatement   = "the same in one statement"

	tokenCallers = 64
)

// tokenScripts are what pgbench does for each side.
var tokenScripts = map[string]string{
	inTransaction: "BEGIN;\nINSERT INTO tokens VALUES (gen_random_uuid());\nUPDATE counters SET n = n + 1 WHERE id = 1;\nCOMMIT;\n",
	inStatement:   "WITH once AS (INSERT INTO tokens VALUES (gen_random_uuid())) UPDATE counters SET n = n + 1 WHERE id = 1;\n",
}

func hotTokens(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	if _, err := pg.Run(s.ctx, "psql", "-v", "ON_ERROR_STOP=1", "-c", "CREATE TABLE tokens (token uuid PRIMARY KEY)", pg.URL()); err != nil {
		return err
	}
	nodes, err := s.serveUnder(2, pg.URL())
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s, default settings, over a Unix socket.", pg.Version)
	byHand := func(side string) func() error {
		return func() error {
			if err := os.WriteFile(pg.Path("script"), []byte(tokenScripts[side]), 0o644); err != nil {
				return err
			}
			return s.drivePostgres(side, pg, pgLoad{rows: 1, connections: tokenCallers}, d)
		}
	}
	t := &tokens{session: s, pg: pg, nodes: nodes}
	if err := s.alternate(func() error { return t.drive(d) }, byHand(inTransaction), byHand(inStatement)); err != nil {
		return err
	}
	s.atLeast("rate over that of a transaction by hand", s.over("quipu", inTransaction, rate), 5)
	s.over("quipu", inStatement, rate)
	return nil
}

// tokens are the nodes, and how often they have counted.
type tokens struct {
	*session
	pg    *postgres
	nodes nodes
	total int64
}

// drive lets the callers write for some time, after a short one that does not
// count.
func (t *tokens) drive(d time.Duration) (err error) {
	var callers [tokenCallers]*tokenCaller
	for i := range callers {
		if callers[i], err = dialTokens(t.ctx, t.nodes[i%len(t.nodes)].doors["resp"]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, callers[i].Close()) }()
	}
	op := func(c int) (int, error) { return 1, callers[c].add() }
	warm, _, err := repeat(tokenCallers, d/10, op)
	if err != nil {
		return err
	}
	before, err := cpuTimeOfAll(t.pg.PID)
	calls, callsErr := t.nodes.calls(t.ctx)
	if err = errors.Join(err, callsErr); err != nil {
		return err
	}
	n, took, err := repeat(tokenCallers, d, op)
	if err != nil {
		return err
	}
	after, err := cpuTimeOfAll(t.pg.PID)
	callsAfter, callsErr := t.nodes.calls(t.ctx)
	t.record("quipu", rate, float64(n)/took.Seconds())
	t.record("quipu", cpuNS, float64(after-before)/float64(n))
	t.record("quipu", storeCalls, (callsAfter-calls)/float64(n)*1000)
	t.total += int64(warm + n)
	return errors.Join(err, callsErr, t.nodes[0].counted(t.ctx, load.KeyZero, t.total))
}

// A tokenCaller is a connection to the RESP door, with as little around it as can
// be: the load shares the machine.
type tokenCaller struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func dialTokens(ctx context.Context, addr string) (*tokenCaller, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &tokenCaller{Conn: c, in: bufio.NewReader(c)}, nil
}

// add adds one with a new token.
func (c *tokenCaller) add() error {
	c.out = fmt.Appendf(c.out[:0], "Q.ADD %s 1 ID %016x%016x NOVALUE\r\n", load.KeyZero, rand.Uint64(), rand.Uint64())
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	reply, err := c.in.ReadSlice('\n')
	if err == nil && string(reply) != "+OK\r\n" {
		err = fmt.Errorf("add with a token: %q", reply)
	}
	return err
}
