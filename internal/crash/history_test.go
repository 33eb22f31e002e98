package crash

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ranged returns what was counted in windows, by where to put them.
func (c *client) ranged(ctx context.Context, key, step string, from time.Time, bucket func(time.Time) int64) (map[int64]int64, error) {
	query := url.Values{"from": {from.Format(time.RFC3339)}, "to": {time.Now().Add(2 * time.Hour).Format(time.RFC3339)}, "step": {step}}
	if step == "1d" {
		query.Set("zone", berlin.String())
	}
	var got struct {
		Points []struct {
			From  time.Time `json:"from"`
			Value int64     `json:"value"`
		} `json:"points"`
		Sum int64 `json:"sum"`
	}
	path := "counters/" + url.PathEscape(key) + "/range?" + query.Encode()
	if err := c.get(ctx, call{method: http.MethodGet, path: path}, &got); err != nil {
		return nil, err
	}
	points := map[int64]int64{}
	for _, p := range got.Points {
		points[bucket(p.From)] += p.Value
	}
	if n := sum(points); n != got.Sum {
		return nil, fmt.Errorf("points of %d have the sum %d", n, got.Sum)
	}
	return points, nil
}

// by returns what was counted for each value of a dimension, and for others.
func (c *client) by(ctx context.Context, key, dimension string) (map[string]int64, int64, error) {
	var got struct {
		Values []struct {
			Value  string   `json:"value"`
			Values []string `json:"values"`
			Count  int64    `json:"count"`
		} `json:"values"`
		Other int64 `json:"other"`
		Sum   int64 `json:"sum"`
	}
	path := "counters/" + url.PathEscape(key) + "/by/" + url.PathEscape(dimension) + "?top=1000"
	if err := c.get(ctx, call{method: http.MethodGet, path: path}, &got); err != nil {
		return nil, 0, err
	}
	values := map[string]int64{}
	for _, v := range got.Values {
		values[v.Value+strings.Join(v.Values, ",")] += v.Count
	}
	if n := sum(values) + got.Other; n != got.Sum {
		return nil, 0, fmt.Errorf("values of %d have the sum %d", n, got.Sum)
	}
	return values, got.Other, nil
}

// A wireLine is a line of a ledger as the door replies it.
type wireLine struct {
	Position string            `json:"position"`
	Kind     string            `json:"kind"`
	At       time.Time         `json:"at"`
	Delta    int64             `json:"delta"`
	Token    string            `json:"token"`
	Undoes   string            `json:"undoes"`
	Undone   bool              `json:"undone"`
	Dims     map[string]string `json:"dims"`
}

// ledger returns all lines of a counter, the latest first.
func (c *client) ledger(ctx context.Context, key string) (lines []wireLine, err error) {
	for cursor := ""; ; {
		var page struct {
			Entries []wireLine `json:"entries"`
			Cursor  string     `json:"cursor"`
		}
		path := "counters/" + url.PathEscape(key) + "/ledger?limit=1000&cursor=" + url.QueryEscape(cursor)
		if err := c.get(ctx, call{method: http.MethodGet, path: path}, &page); err != nil {
			return nil, err
		}
		if lines, cursor = append(lines, page.Entries...), page.Cursor; cursor == "" {
			return lines, nil
		}
	}
}

// book returns how often a ledger has each line, and what they add up to.
func (c *client) book(ctx context.Context, key string) (book map[string]int64, noted int64, err error) {
	lines, err := c.ledger(ctx, key)
	tokens := map[string]string{}
	for _, l := range lines {
		tokens[l.Position] = l.Token
	}
	book = map[string]int64{}
	for _, l := range lines {
		at := l.At.UnixMilli()
		if l.Undoes != "" {
			l.Token = tokens[l.Undoes]
		}
		book[lineOf(l.Kind, l.Token, l.Delta, event{at, l.Dims["country"], l.Dims["platform"]})]++
		noted += l.Delta
	}
	return book, noted, err
}

// fateOfUndo asks the ledger whether an undo counted.
func (c *client) fateOfUndo(ctx context.Context, w *write) (fate, error) {
	lines, err := c.ledger(ctx, w.counter.key)
	if err != nil {
		return fate{}, err
	}
	for _, original := range lines {
		if original.Token != w.of.token {
			continue
		}
		for _, l := range lines {
			if l.Undoes != original.Position {
				continue
			}
			version, _, _ := strings.Cut(l.Position, ".")
			n, err := strconv.ParseUint(version, 10, 64)
			if err == nil && !original.Undone {
				err = fmt.Errorf("%v: the ledger has %+v, but %+v is not marked", w, l, original)
			}
			return fate{applied, result{version: n}}, err
		}
		if original.Undone {
			return fate{}, fmt.Errorf("%v: %+v is marked, but the ledger has no undo", w, original)
		}
		return fate{state: unknown}, nil
	}
	return fate{}, fmt.Errorf("%v: the ledger has no line of what it takes back", w)
}

// define replaces the definitions.
func (c *client) define(ctx context.Context, text string) error {
	q := call{method: http.MethodPut, path: "definitions", body: `{"definitions":` + text + "}", header: map[string]string{"If-Match": "*"}}
	got, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	return got.failure(q)
}
