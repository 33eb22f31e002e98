package rest

import (
	"time"

	words "github.com/quipudb/quipu/call"
)

// A topItem is an item of a top list.
type topItem struct {
	Item  string `json:"item"`
	Count int64  `json:"count"`
	Lower int64  `json:"lower"`
	Upper int64  `json:"upper"`
	Rise  *rise  `json:"rise,omitempty"`
}

// A rise is by how much more an item was counted than before.
type rise struct {
	Count int64 `json:"count"`
	Lower int64 `json:"lower"`
	Upper int64 `json:"upper"`
}

// A topList is what came most often.
type topList struct {
	Name         string     `json:"name"`
	Key          string     `json:"key,omitempty"`
	By           string     `json:"by"`
	Counts       string     `json:"counts"`
	Items        []topItem  `json:"items"`
	Exact        bool       `json:"exact"`
	Rest         int64      `json:"rest"`
	Total        int64      `json:"total"`
	Trend        bool       `json:"trend,omitempty"`
	Aligned      bool       `json:"aligned"`
	Complete     bool       `json:"complete"`
	CompleteFrom *time.Time `json:"complete_from,omitempty"`
	From         *time.Time `json:"from,omitempty"`
	To           *time.Time `json:"to,omitempty"`
	Before       *time.Time `json:"before,omitempty"`
	AsOf         time.Time  `json:"as_of"`
}

// countsAdded says what top lists count: amounts below zero and corrections take nothing away.
const countsAdded = "added"

// top replies a top list: of a counter, or of all counters of a pattern.
func top(c *call) error {
	o := words.TopOptions{Key: c.args.key}
	var err error
	if o.From, o.To, err = c.span(); err != nil {
		return err
	}
	if o.K, err = c.count("k"); err != nil {
		return err
	}
	if o.Trend, err = c.truth("trend"); err != nil {
		return err
	}
	if err := c.take(pointsMost * entryBytes); err != nil {
		return err
	}
	t, err := c.db.Top(c.ctx, c.args.name, o)
	if err != nil {
		return err
	}
	out := topList{
		Name: t.Name, Key: t.Key, By: t.By, Counts: countsAdded, Items: make([]topItem, len(t.Items)), Exact: t.Exact, Rest: t.Rest, Total: t.Total,
		Trend: t.Trend, Aligned: t.Aligned, Complete: t.Complete, CompleteFrom: given(t.CompleteFrom), From: given(t.From), To: given(t.To),
		Before: given(t.Before), AsOf: t.AsOf.UTC(),
	}
	for i, x := range t.Items {
		out.Items[i] = topItem{Item: x.Item, Count: x.Count, Lower: x.Lower, Upper: x.Upper}
		if t.Trend {
			out.Items[i].Rise = &rise{x.Rise, x.RiseLower, x.RiseUpper}
		}
	}
	return c.json(out)
}
