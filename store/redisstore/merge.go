package redisstore

import (
	"strings"

	"github.com/quipudb/quipu/store"
)

// A row is what a scan has of a partition and not yet taken.
type row[T any] struct {
	home  *partition
	found []entry[T]
	from  string // where the next page begins
	end   bool   // there is no next page
}

// An entry is something that a scan found, and what it is ordered by.
type entry[T any] struct {
	key   string
	value T
}

// pageOf returns how many a partition is asked for at once by a scan for n. Keys are
// spread evenly: twice its part is mostly enough.
func pageOf(n, partitions int) int { return min(n, 2*n/partitions+8) }

// merge returns the first n of what partitions have, each in order, back or forth. Fill is
// given the rows that have nothing left, and takes their next pages.
func merge[T any](homes []*partition, from string, back bool, n int, fill func([]*row[T]) error) ([]entry[T], error) {
	rows := make([]row[T], len(homes))
	for i := range rows {
		rows[i] = row[T]{home: homes[i], from: from}
	}
	var found []entry[T]
	for len(found) < n {
		if err := refill(rows, fill); err != nil {
			return nil, err
		}
		var next *row[T]
		for i := range rows {
			r := &rows[i]
			if len(r.found) == 0 {
				continue
			}
			if next == nil || (strings.Compare(r.found[0].key, next.found[0].key) > 0) == back {
				next = r
			}
		}
		if next == nil {
			break
		}
		found = append(found, next.found[0])
		next.found = next.found[1:]
	}
	return found, nil
}

// refill makes sure that every row has something or is at its end.
func refill[T any](rows []row[T], fill func([]*row[T]) error) error {
	for {
		var short []*row[T]
		for i := range rows {
			if r := &rows[i]; len(r.found) == 0 && !r.end {
				short = append(short, r)
			}
		}
		if len(short) == 0 {
			return nil
		}
		if err := fill(short); err != nil {
			return err
		}
	}
}

// take takes a page as scripts reply it: where it ends, and then the texts of each, of
// which the first is the key.
func (r *row[T]) take(texts []string, each int, parse func([]string) (T, error)) error {
	if len(texts)%each != 1 {
		return store.Errorf(store.KindCorrupt, "page of %d parts", len(texts))
	}
	r.end, r.from = texts[0] == "", "("+texts[0]
	for texts = texts[1:]; len(texts) > 0; texts = texts[each:] {
		v, err := parse(texts[1:each])
		if err != nil {
			return err
		}
		r.found = append(r.found, entry[T]{texts[0], v})
	}
	return nil
}
