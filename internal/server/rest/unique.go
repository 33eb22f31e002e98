package rest

import (
	"strconv"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// An estimate is how many different users there were.
type estimate struct {
	Count         int64   `json:"count"`
	Lower         int64   `json:"lower"`
	Upper         int64   `json:"upper"`
	StandardError float64 `json:"standard_error"`
	Exact         bool    `json:"exact"`
}

func estimateOf(e quipu.UniqueEstimate) estimate {
	return estimate{e.Count, e.Lower, e.Upper, e.StandardError, e.Exact}
}

// A uniqueValue is how many different users a value of a dimension had.
type uniqueValue struct {
	Value  *string  `json:"value,omitempty"`
	Values []string `json:"values,omitempty"` // of a dimension of several names
	estimate
}

// An overlap compares the users of two counters.
type overlap struct {
	With   string   `json:"with"`
	Only   estimate `json:"only"`
	Others estimate `json:"others"`
	Both   estimate `json:"both"`
}

// A crowd is how many different users a counter had.
type crowd struct {
	Key string `json:"key"`
	estimate
	Dimension    string        `json:"dimension,omitempty"`
	Values       []uniqueValue `json:"values,omitempty"`
	Other        *estimate     `json:"other,omitempty"`
	Overlap      *overlap      `json:"overlap,omitempty"`
	Aligned      bool          `json:"aligned"`
	Complete     bool          `json:"complete"`
	CompleteFrom *time.Time    `json:"complete_from,omitempty"`
	From         *time.Time    `json:"from,omitempty"`
	To           *time.Time    `json:"to,omitempty"`
	AsOf         time.Time     `json:"as_of"`
}

// uniques replies how many different users a counter had.
func uniques(c *call) error {
	o := quipu.UniqueOptions{By: c.query.Get("by"), With: c.query.Get("with")}
	var err error
	if o.From, o.To, err = c.span(); err != nil {
		return err
	}
	if o.Top, err = c.count("top"); err != nil {
		return err
	}
	if err := c.take(pointsMost * entryBytes); err != nil {
		return err
	}
	u, err := c.db.Uniques(c.ctx, c.args.key, o)
	if err != nil {
		return err
	}
	out := crowd{
		Key: u.Key, estimate: estimateOf(u.UniqueEstimate), Dimension: u.By, Aligned: u.Aligned, Complete: u.Complete,
		CompleteFrom: given(u.CompleteFrom), From: given(u.From), To: given(u.To), AsOf: u.AsOf.UTC(),
	}
	for _, v := range u.Values {
		one := uniqueValue{Values: v.Values, estimate: estimateOf(v.UniqueEstimate)}
		if v.Values == nil {
			one.Value = new(v.Value)
		}
		out.Values = append(out.Values, one)
	}
	if u.By != "" {
		out.Other = new(estimateOf(u.Other))
	}
	if v := u.Overlap; v != nil {
		out.Overlap = &overlap{v.With, estimateOf(v.Only), estimateOf(v.Others), estimateOf(v.Both)}
	}
	return c.json(out)
}

// addUniques takes users into those of a counter.
func addUniques(c *call) error {
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	items, err := decodeItems(raw)
	if err != nil {
		return err
	}
	changed, err := c.db.AddUniques(c.ctx, c.args.key, items...)
	if err != nil {
		return err
	}
	return c.json(struct {
		Changed bool `json:"changed"`
	}{changed})
}

// decodeItems reads {"items":["ana",…]}.
func decodeItems(body []byte) (items []string, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if d.member("body", &seen, "items") != 0 {
			continue
		}
		d.begin('[', "items")
		for i := 0; d.more(']', i, "items"); i++ {
			if i == quipu.UniquesMax {
				d.refuse(store.KindTooLarge, d.i, "items", "more than "+strconv.Itoa(quipu.UniquesMax)+" items")
				break
			}
			items = append(items, d.text("items"))
		}
	}
	if d.err == nil && seen == 0 {
		d.fail(d.i, "body", `want {"items":["ana"]}`)
	}
	return items, d.end()
}
