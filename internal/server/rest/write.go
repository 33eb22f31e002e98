package rest

import (
	"math"
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

func increment(c *call) error { return add(c, false) }

func decrement(c *call) error { return add(c, true) }

func add(c *call, negate bool) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	e, err := decodeEvent(raw)
	if err != nil {
		return err
	}
	if negate {
		if e.Delta == math.MinInt64 {
			return invalid("delta", "its negative does not fit into an int64")
		}
		e.Delta = -e.Delta
	}
	if err := c.writeOptions(); err != nil {
		return err
	}
	c.eventOptions(&e)
	r, err := c.db.Add(c.ctx, c.args.key, e.Delta, c.opts...)
	if err != nil {
		return err
	}
	return c.receipt(&r, true)
}

// eventOptions adds to opts what the body asks of an add.
func (c *call) eventOptions(e *quipu.Event) {
	if e.Who != "" {
		c.opts = append(c.opts, quipu.Who(e.Who))
	}
	if !e.At.IsZero() {
		c.opts = append(c.opts, quipu.At(e.At))
	}
	for _, dim := range e.Dims {
		c.opts = append(c.opts, quipu.Dim(dim.Name, dim.Value))
	}
	if e.Floor != nil {
		c.opts = append(c.opts, quipu.Floor(*e.Floor))
	}
	if e.Ceiling != nil {
		c.opts = append(c.opts, quipu.Ceiling(*e.Ceiling))
	}
	if e.Saturate {
		c.opts = append(c.opts, quipu.Saturate())
	}
	if e.TTL != 0 {
		c.opts = append(c.opts, quipu.TTL(e.TTL))
	}
}

func set(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	value, why, err := decodeValue(raw)
	if err != nil {
		return err
	}
	if err := c.assignOptions(why); err != nil {
		return err
	}
	r, err := c.db.Set(c.ctx, c.args.key, value, c.opts...)
	if err != nil {
		return err
	}
	return c.receipt(&r, false)
}

func reset(c *call) error {
	why, err := c.correction()
	if err != nil {
		return err
	}
	if err := c.assignOptions(why); err != nil {
		return err
	}
	r, err := c.db.Reset(c.ctx, c.args.key, c.opts...)
	if err != nil {
		return err
	}
	return c.receipt(&r, false)
}

// remove says why in its parameters: the body of a DELETE may get lost on its way.
func remove(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	if err := decodeNothing(raw); err != nil {
		return err
	}
	if err := c.assignOptions(quipu.Correction{Reason: c.query.Get("reason"), Actor: c.query.Get("actor")}); err != nil {
		return err
	}
	r, err := c.db.Delete(c.ctx, c.args.key, c.opts...)
	if err != nil {
		return err
	}
	return c.receipt(&r, false)
}

// assignOptions fills opts with what the headers ask of a write that is no add, and with
// why it is made.
func (c *call) assignOptions(why quipu.Correction) error {
	if why != (quipu.Correction{}) {
		c.opts = append(c.opts, quipu.Because(why))
	}
	return c.writeOptions()
}

// receipt replies what became of a write. The amount of an add is known; that
// of an assignment only together with the value.
func (c *call) receipt(r *quipu.Receipt, added bool) error {
	header := c.w.Header()
	if r.Replayed {
		header["Idempotent-Replayed"] = replayedTrue
	}
	if !added {
		header["Etag"] = []string{etag(r.Version)}
	}
	c.out = append(appendReceipt(c.out[:0], r, added), '\n')
	return c.reply()
}

func batch(c *call) error {
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	events, err := decodeBatch(raw)
	if err != nil {
		return err
	}
	if err := c.permitKeys(len(events), func(i int) string { return events[i].Key }); err != nil {
		return err
	}
	if err := c.pay(access.Cost{Writes: int64(max(len(events)-1, 0))}); err != nil {
		return err
	}
	if err := c.writeOptions(); err != nil {
		return err
	}
	if _, guarded, _ := c.precondition(); guarded {
		return invalid("If-Match", "a batch has no version")
	}
	token, _ := c.token() // checked by writeOptions
	want := !c.minimal()
	for i := range events {
		events[i].WantValue = want
		if events[i].Token == "" && token != "" {
			events[i].Token = token + "/" + strconv.Itoa(i)
		}
	}
	receipts, err := c.db.AddBatch(c.ctx, events)
	if err != nil {
		return err
	}
	if len(receipts) != len(events) {
		return store.Errorf(store.KindOther, "batch of %d events: %d receipts", len(events), len(receipts))
	}
	for i := range receipts {
		if receipts[i].Err != nil {
			c.log(problemOf(receipts[i].Err, server.Detail))
		}
	}
	c.out = appendReceipts(c.out[:0], receipts, func(i int) string {
		if token != "" && events[i].Token == token+"/"+strconv.Itoa(i) {
			return tokenHeader
		}
		return "id"
	})
	return c.reply()
}
