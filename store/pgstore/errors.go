package pgstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quipudb/quipu/store"
)

// SQLSTATE codes that are dealt with.
const (
	codeUnusual       = "QP001" // raised by quipu.plain
	codeOverflow      = "22003"
	codePending       = "22P02" // by the statement nonePending
	codeUnique        = "23505" // a token that another has just used
	codeNoEpoch       = "23514" // the table of an epoch has gone
	codeReadOnly      = "25006"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeDenied        = "42501"
	codeNoColumn      = "42703"
	codeNoFunction    = "42883"
	codeNoTable       = "42P01"
	codeLockTimeout   = "55P03"
)

// code returns the SQLSTATE of an error that the server answered with, having
// undone the transaction; of any other it is empty. An error that ends the
// connection says nothing about a commit.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.SeverityUnlocalized == "ERROR" {
		return pg.Code
	}
	return ""
}

// failure returns the error of a call that changed nothing. Callers are told no more
// of one that is unavailable than the words before its first colon: so those say
// what is wrong.
func failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*store.Error](err); ok {
		return err
	}
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		failed := store.Errorf(store.KindUnavailable, "no connection to PostgreSQL: %s%s (database %q, role %q)",
			refusals(c), answerer(ctx, c), cmp.Or(c.Config.Database, c.Config.User), c.Config.User)
		if cause, ok := errors.AsType[syscall.Errno](err); ok {
			failed.Err = cause
		}
		return failed
	}
	switch c := code(err); {
	case c == codeDenied:
		return store.Errorf(store.KindUnavailable,
			"PostgreSQL denies it to this role: %w: the role needs the grants of \"Setting up PostgreSQL\" in docs/stores.md; to make the schema, run quipu migrate as one that may", err)
	case c == "":
		return store.Errorf(store.KindUnavailable, "the connection to PostgreSQL failed: %w", err)
	case c == codeUnique, c == codeReadOnly, c == codeSerialization, c == codeDeadlock, c == codeLockTimeout,
		strings.HasPrefix(c, "08"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"):
		return store.Errorf(store.KindUnavailable, "PostgreSQL can't do it now: %w", err)
	case c == codeNoColumn, c == codeNoFunction, c == codeNoTable:
		return store.Errorf(store.KindUnsupported,
			"the schema in PostgreSQL is not the one this server was started with; if a newer Quipu has migrated it, upgrade this server: %w", err)
	case strings.HasPrefix(c, "42"), strings.HasPrefix(c, "XX"):
		return store.Errorf(store.KindCorrupt, "PostgreSQL: %w", err)
	}
	return store.Errorf(store.KindOther, "PostgreSQL: %w", err)
}

// refusals returns why no connection came about. Each address may have been tried
// twice, with TLS and without: what a server answered says more than that it takes no
// TLS, and what is the same is told once.
func refusals(c *pgconn.ConnectError) string {
	tries := []error{errors.Unwrap(c)}
	if all, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](c); ok {
		tries = all.Unwrap()
	}
	var answers, others []string
	for _, err := range tries {
		said, text := &others, err.Error()
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			address, _, _ := strings.Cut(text, " (")
			said, text = &answers, pg.Error()+", at "+address
		} else if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			text = op.Error() // which has the address too
		}
		if !slices.Contains(*said, text) {
			*said = append(*said, text)
		}
	}
	if len(answers) > 0 {
		others = answers
	}
	return strings.Join(others, "; ")
}

// answerer says what it was that took a connection and did not answer as PostgreSQL
// does, "" if nothing did or that is not the trouble. It is asked a question that most
// other servers answer at once.
func answerer(ctx context.Context, c *pgconn.ConnectError) string {
	if _, ok := errors.AsType[*pgconn.PgError](c); ok {
		return ""
	}
	if op, ok := errors.AsType[*net.OpError](c); ok && op.Op == "dial" {
		return ""
	}
	network, address := pgconn.NetworkAddress(c.Config.Host, c.Config.Port)
	if network != "tcp" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	var answer [16]byte
	n := 0
	if _, err := conn.Write([]byte("PING\r\n\r\n")); err == nil {
		n, _ = io.ReadAtLeast(conn, answer[:], 5)
	}
	who := "it takes connections and does not answer as PostgreSQL does"
	switch text := string(answer[:n]); {
	case strings.HasPrefix(text, "+PONG"), strings.HasPrefix(text, "-NOAU"), strings.HasPrefix(text, "-DENI"), strings.HasPrefix(text, "-ERR"):
		who = "a Redis server answers there"
	case strings.HasPrefix(text, "HTTP/"):
		who = "an HTTP server answers there"
	case strings.HasPrefix(text, "E\x00"): // it knows the protocol
		return ""
	}
	return "; " + address + " is no PostgreSQL: " + who
}

// unsure returns the error of a call whose commit was on its way.
func unsure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if code(err) != "" || pgconn.SafeToRetry(err) {
		return failure(ctx, err)
	}
	return store.Errorf(store.KindUnknown, "the outcome in PostgreSQL is unknown: %w", err)
}
