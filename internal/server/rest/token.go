package rest

import (
	"context"

	"github.com/quipudb/quipu"
)

func lookup(c *call) error { return c.fate(c.db.Lookup) }

func settle(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	if err := decodeNothing(raw); err != nil {
		return err
	}
	return c.fate(c.db.Settle)
}

// fate replies what ask says of the token that the path names.
func (c *call) fate(ask func(ctx context.Context, key, token string) (quipu.Fate, error)) error {
	key, token := c.query.Get("key"), c.args.id
	if key == "" {
		return invalid("key", "name the counter: ?key=…")
	}
	f, err := ask(c.ctx, key, token)
	if err != nil {
		return err
	}
	c.out = append(appendFate(c.out[:0], key, token, &f), '\n')
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}
