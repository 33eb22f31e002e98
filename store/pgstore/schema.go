package pgstore

import (
	"cmp"
	"context"
	_ "embed" // the SQL
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
)

//go:embed schema.sql
var tablesSQL string

//go:embed parts.sql
var partsSQL string

//go:embed objects.sql
var objectsSQL string

//go:embed from1.sql
var from1SQL string

//go:embed from2.sql
var from2SQL string

//go:embed functions.sql
var functionsSQL string

// format is the version of the schema.
const format = 3

// newest is the function that came last. A schema of this format that does not
// have it was made before that, and gets all functions anew: those that it has are
// called by older programs too, and stay what they are.
const newest = "recall"

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Migrate makes the schema of a store in the database that a URL names, or
// brings it up to date, and returns the version it had, 0 if there was none, and
// the one it has. An empty schema is the default. Open does the same.
func Migrate(ctx context.Context, url, schema string) (from, to int, err error) {
	if schema == "" {
		schema = schemaDefault
	}
	config, err := parse(url, false)
	if err != nil {
		return 0, 0, err
	}
	from, err = prepare(ctx, config.ConnConfig, schema, false)
	return from, format, err
}

// migrate does its work in one transaction, alone, and returns the format it
// found. A schema that is up to date is only looked at. One that is not is refused
// if it is to be left as it is.
func migrate(ctx context.Context, conn *pgx.Conn, schema string, existing bool) (found int, err error) {
	if !schemaName.MatchString(schema) {
		return 0, store.Errorf(store.KindInvalid, "schema %q: want up to 48 of a-z, 0-9 and _, not beginning with a digit", schema)
	}
	found, ready, err := formatOf(ctx, conn, schema)
	if err != nil || ready {
		return found, err
	}
	if existing {
		what := fmt.Sprintf("has no schema %q", schema)
		if found > 0 {
			what = fmt.Sprintf("has a schema %q of an older release", schema)
		}
		return found, store.Errorf(store.KindUnavailable,
			"database %q %s: if it is the right one, run quipu migrate or start a server that writes; one that only reads leaves it as it is",
			cmp.Or(conn.Config().Database, conn.Config().User), what)
	}
	l := newLocks(schema)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, l.migrate); err != nil {
			return err
		}
		if found, ready, err = formatOf(ctx, conn, schema); err != nil || ready {
			return err
		}
		if _, err := tx.Exec(ctx, `create schema if not exists `+pgx.Identifier{schema}.Sanitize()); err != nil {
			return err
		}
		sql := map[int]string{0: tablesSQL + partsSQL, 1: from1SQL + from2SQL + partsSQL, 2: from2SQL + partsSQL}[found] + objectsSQL
		sql += strings.NewReplacer("{{tokens}}", fmt.Sprint(l.tokens), "{{spaces}}", fmt.Sprint(l.spaces)).Replace(functionsSQL)
		_, err := tx.Conn().PgConn().Exec(ctx, inSchema(schema, sql)).ReadAll()
		return err
	})
	return found, failure(ctx, err)
}

// formatOf returns the format of a schema, 0 if there is none, and whether it needs
// nothing more.
func formatOf(ctx context.Context, conn *pgx.Conn, schema string) (found int, ready bool, err error) {
	var exists, whole bool
	// The catalogue is asked, not its cache, which may not know yet what another
	// has just made.
	err = conn.QueryRow(ctx, `
		select exists (select from pg_catalog.pg_tables where schemaname = $1 and tablename = 'meta'),
			exists (select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
				where n.nspname = $1 and p.proname = $2)`, schema, newest).Scan(&exists, &whole)
	if err == nil && exists {
		err = conn.QueryRow(ctx, inSchema(schema, `select format from quipu.meta`)).Scan(&found)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, store.Errorf(store.KindCorrupt, "schema %q has no format", schema)
	case err != nil:
		return 0, false, failure(ctx, err)
	case found > format:
		return 0, false, store.Newer(fmt.Sprintf("schema %q", schema), found, format)
	}
	return found, found == format && whole, nil
}

// inSchema puts the name of a schema into SQL.
func inSchema(schema, sql string) string {
	return strings.ReplaceAll(sql, "quipu.", pgx.Identifier{schema}.Sanitize()+".")
}
