package rest

import "github.com/quipudb/quipu"

// adjust corrects a counter.
func adjust(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	e, why, err := decodeAdjustment(raw)
	if err != nil {
		return err
	}
	if err := c.writeOptions(); err != nil {
		return err
	}
	c.eventOptions(&e)
	r, err := c.db.Adjust(c.ctx, c.args.key, e.Delta, why, c.opts...)
	if err != nil {
		return err
	}
	return c.receipt(&r, true)
}

// undo takes back the write of a token.
func undo(c *call) error {
	key := c.query.Get("key")
	if key == "" {
		return invalid("key", "name the counter: ?key=…")
	}
	why, err := c.correction()
	if err != nil {
		return err
	}
	r, err := c.db.Undo(c.ctx, key, c.args.id, why)
	if err != nil {
		return err
	}
	return c.receipt(&r, true)
}

// recount repairs what the views of a counter do not add up to.
func recount(c *call) error {
	why, err := c.correction()
	if err != nil {
		return err
	}
	n, err := c.db.Recount(c.ctx, c.args.key, why)
	if err != nil {
		return err
	}
	return c.json(struct {
		Key      string   `json:"key"`
		Before   int64    `json:"before"`
		After    int64    `json:"after"`
		Repaired []string `json:"repaired"`
		Left     []string `json:"left"`
	}{c.args.key, n.Before, n.After, append([]string{}, n.Repaired...), append([]string{}, n.Left...)})
}

// correction reads who corrects, and why.
func (c *call) correction() (quipu.Correction, error) {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return quipu.Correction{}, err
	}
	return decodeCorrection(raw)
}
