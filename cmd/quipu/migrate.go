package main

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/store/pgstore"
)

type migrateCmd struct {
	Store     string `help:"The store: postgres://…; others need no migration." required:"" placeholder:"URL"`
	StoreName string `help:"The schema in PostgreSQL." default:"quipu" placeholder:"NAME"`
}

// Help is shown by --help.
func (*migrateCmd) Help() string {
	return `The command makes the whole change in one transaction. Servers make the same change when they start. Use this command to
make it beforehand, such as with another database user.

Example:

  quipu migrate --store postgres://owner@db/app`
}

// Validate is called after the flags are parsed.
func (c *migrateCmd) Validate() error {
	if _, err := storeScheme(c.Store); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	return nil
}

// Run migrates.
func (c *migrateCmd) Run(ctx context.Context, out *output) error {
	scheme, err := storeScheme(c.Store)
	if err != nil {
		return err
	}
	if scheme != schemePostgres {
		return out.print("nothing to do: only a store in PostgreSQL has a schema")
	}
	from, to, err := pgstore.Migrate(ctx, c.Store, c.StoreName)
	switch {
	case err != nil:
		return err
	case from == to:
		return out.print("schema %s is at version %d already", c.StoreName, to)
	case from == 0:
		return out.print("schema %s made, at version %d", c.StoreName, to)
	}
	return out.print("schema %s brought from version %d to %d", c.StoreName, from, to)
}
