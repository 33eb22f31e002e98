package retention

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/quipudb/quipu/store"
)

// censusMax is how many numbers of users are looked at in a round.
const censusMax = 20_000

// A census counts the users of all namespaces that have chosen something, each once for each
// counter. It walks over the numbers of users that counters have, a piece at a time, so what
// it knows is as old as a walk is long. Users who are gone are counted until they are removed.
type census struct {
	known atomic.Pointer[map[string]int64] // by namespace, as far as a walk has come; nil at first

	at  place
	sum int64 // of the namespace that the walk is in
}

// Users returns about how many users of a namespace have chosen something.
func (w *Worker) Users(namespace string) int64 {
	if known := w.census.known.Load(); known != nil {
		return (*known)[namespace]
	}
	return 0
}

// all returns about how many users of all namespaces have.
func (c *census) all() (n int64) {
	if known := c.known.Load(); known != nil {
		for _, some := range *known {
			n += some
		}
	}
	return n
}

// keep makes n the number of a namespace.
func (c *census) keep(namespace string, n int64) {
	known := map[string]int64{}
	if was := c.known.Load(); was != nil {
		known = maps.Clone(*was)
	}
	if known[namespace] = n; n == 0 {
		delete(known, namespace)
	}
	c.known.Store(&known)
}

// Count counts a piece of the users of all namespaces. It is not to be called twice at the
// same time.
func (w *Worker) Count(ctx context.Context) error {
	namespaces, err := w.Books.Namespaces(ctx)
	if err != nil {
		return err
	}
	c := &w.census
	looked := 0
	for _, namespace := range namespaces {
		if namespace < c.at.namespace {
			continue
		}
		known, err := w.Books.Get(ctx, namespace)
		if err != nil {
			return err
		}
		if !everChosen(known.Book) {
			continue
		}
		if namespace != c.at.namespace {
			c.at, c.sum = place{namespace: namespace}, 0
		}
		for {
			rows := store.RowsUnder(namespace, store.PartFields{Kind: store.PartMembers}, "")
			if c.at.row != "" {
				rows.From = c.at.row
			}
			found, err := w.Store.ScanParts(ctx, rows, gonePage)
			if err != nil {
				return err
			}
			for i := range found {
				c.sum += found[i].Content.N
			}
			if looked += len(found); len(found) < gonePage {
				break
			}
			last := &found[len(found)-1]
			_, row := store.AppendRow(nil, last.Cell, last.Part)
			if c.at.row = string(row) + "\x00"; looked >= censusMax {
				return nil
			}
		}
		c.keep(namespace, c.sum)
		c.at, c.sum = place{namespace: namespace + "\x00"}, 0
	}
	c.at = place{}
	return nil
}
