package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quipudb/quipu/store"
)

// SQLSTATE codes that are dealt with.
const (
	codeUnusual       = "QP001" // raised by quipu.plain
	codeOverflow      = "22003"
	codeUnique        = "23505" // a token that another has just used
	codeReadOnly      = "25006"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
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

// failure returns the error of a call that changed nothing.
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
	switch c := code(err); {
	case c == "", c == codeUnique, c == codeReadOnly, c == codeSerialization, c == codeDeadlock, c == codeLockTimeout,
		strings.HasPrefix(c, "08"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"):
		return store.Errorf(store.KindUnavailable, "PostgreSQL: %w", err)
	case strings.HasPrefix(c, "42"), strings.HasPrefix(c, "XX"):
		return store.Errorf(store.KindCorrupt, "PostgreSQL: %w", err)
	}
	return store.Errorf(store.KindOther, "PostgreSQL: %w", err)
}

// unsure returns the error of a call whose commit was on its way.
func unsure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if code(err) != "" || pgconn.SafeToRetry(err) {
		return failure(ctx, err)
	}
	return store.Errorf(store.KindUnknown, "PostgreSQL: the outcome is unknown: %w", err)
}
