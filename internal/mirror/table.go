package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/store"
)

// A Table is where totals are written. Names are as they are in the database:
// capitals count.
type Table struct {
	Name       string // or SCHEMA.NAME
	Key, Value string // columns
}

// quoted returns the name as SQL has it.
func (t Table) quoted() string { return pgx.Identifier(strings.Split(t.Name, ".")).Sanitize() }

func (t Table) key() string   { return pgx.Identifier{t.Key}.Sanitize() }
func (t Table) value() string { return pgx.Identifier{t.Value}.Sanitize() }

// Validate returns an error if the names can't be those of a table.
func (t Table) Validate() error {
	parts := strings.Split(t.Name, ".")
	names := append([]string{t.Key, t.Value}, parts...)
	switch {
	case len(parts) > 2, slices.Contains(parts, ""):
		return fmt.Errorf("table %q: want NAME or SCHEMA.NAME", t.Name)
	case slices.ContainsFunc(names, func(s string) bool { return strings.Contains(s, "\x00") }):
		return fmt.Errorf("table %q: a name has a zero byte", t.Name)
	case t.Key == "" || t.Value == "" || t.Key == t.Value:
		return fmt.Errorf("columns %q and %q: want two names", t.Key, t.Value)
	}
	return nil
}

// checkSQL returns the columns of a table. A unique index counts if an upsert can
// use it.
const checkSQL = `
	select a.attname::text, t.typname::text,
		a.attnotnull and not a.atthasdef and a.attidentity = '',
		a.attgenerated <> '' or a.attidentity = 'a',
		coalesce(l.collisdeterministic, true),
		exists (
			select from pg_index i
			where i.indrelid = a.attrelid and i.indisunique and i.indisvalid and i.indimmediate
				and i.indpred is null and i.indnkeyatts = 1 and i.indkey[0] = a.attnum)
	from pg_attribute a
	join pg_type t on t.oid = a.atttypid
	left join pg_collation l on l.oid = a.attcollation
	where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped`

type column struct {
	kind                                      string
	needed, computed, deterministic, isUnique bool
}

// check returns whether the key column is of text, or why rows can't be written,
// and what to do about it.
func (t Table) check(ctx context.Context, pool *pgxpool.Pool) (text bool, err error) {
	rows, err := pool.Query(ctx, checkSQL, t.quoted())
	if err != nil {
		return false, store.Errorf(store.KindUnavailable, "connect to PostgreSQL: %w", err)
	}
	columns := make(map[string]column)
	var name string
	var c column
	_, err = pgx.ForEachRow(rows, []any{&name, &c.kind, &c.needed, &c.computed, &c.deterministic, &c.isUnique}, func() error {
		columns[name] = c
		return nil
	})
	if err != nil {
		return false, store.Errorf(store.KindUnavailable, "look at the table: %w", err)
	}
	return columns[t.Key].kind != "bytea", t.judge(columns)
}

func (t Table) judge(columns map[string]column) error {
	name := t.quoted()
	if len(columns) == 0 {
		return fmt.Errorf("there is no table %s, or it can't be seen: create table %s (%s text primary key, %s bigint not null)",
			name, name, t.key(), t.value())
	}
	key, hasKey := columns[t.Key]
	value, hasValue := columns[t.Value]
	switch {
	case !hasKey:
		return fmt.Errorf("table %s has no column %s: alter table %s add %s text primary key", name, t.key(), name, t.key())
	case !hasValue:
		return fmt.Errorf("table %s has no column %s: alter table %s add %s bigint", name, t.value(), name, t.value())
	case !slices.Contains([]string{"text", "varchar", "bytea"}, key.kind) || key.computed:
		return fmt.Errorf("column %s of table %s is %s: want text, varchar or bytea, to be written: alter table %s alter %s type text",
			t.key(), name, key.described(), name, t.key())
	case !slices.Contains([]string{"int8", "numeric"}, value.kind) || value.computed:
		return fmt.Errorf("column %s of table %s is %s: want bigint or numeric, to be written: alter table %s alter %s type bigint",
			t.value(), name, value.described(), name, t.value())
	case !key.deterministic:
		return fmt.Errorf(`column %s of table %s takes different keys for the same: alter table %s alter %s type text collate "C"`,
			t.key(), name, name, t.key())
	case !key.isUnique:
		return fmt.Errorf("column %s of table %s is not unique: alter table %s add unique (%s)", t.key(), name, name, t.key())
	}
	for other, c := range columns {
		if c.needed && other != t.Key && other != t.Value {
			other = pgx.Identifier{other}.Sanitize()
			return fmt.Errorf("column %s of table %s has no default and may not be null, so no row can be added: alter table %s alter %s drop not null",
				other, name, name, other)
		}
	}
	return nil
}

func (c column) described() string {
	if c.computed {
		return "computed"
	}
	return c.kind
}

// upsert returns the statement that writes a batch: keys and values in, and out
// how many rows were written, how many lower values were refused, and some of
// those. Keys come in order, so two mirrors of one table do not wait for each
// other in a circle.
func (t Table) upsert(text, grows bool) string {
	kind, shown := "bytea", "encode(u.k, 'escape')"
	if text {
		kind, shown = "text", "u.k"
	}
	replace, lower := "t.{value} is distinct from excluded.{value}", "false"
	if grows {
		replace, lower = "t.{value} is null or t.{value} < excluded.{value}", "t.{value} > u.v"
	}
	return strings.NewReplacer("{table}", t.quoted(), "{key}", t.key(), "{value}", t.value()).Replace(`
		with u as (
			select u.k, u.v from unnest($1::` + kind + `[], $2::bigint[]) as u(k, v)),
		lower as (
			select ` + shown + ` || ' has ' || t.{value} || ', is ' || u.v as told
			from u join {table} t on t.{key} = u.k where ` + lower + `),
		written as (
			insert into {table} as t ({key}, {value}) select u.k, u.v from u
			on conflict ({key}) do update set {value} = excluded.{value} where ` + replace + `
			returning 1)
		select (select count(*) from written), (select count(*) from lower), array(select told from lower limit ` + fmt.Sprint(casesMax) + `)`)
}
