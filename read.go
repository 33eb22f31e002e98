package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// VersionMixed is the least Version of a value that is made up of several cells:
// of a counter that is split, or of a total and what was written since. No write
// can be made at such a version.
const VersionMixed = spread.OfShards

// Read returns the count of a key. A counter that does not exist reads as zero.
func (db *DB) Read(ctx context.Context, key string, opts ...ReadOption) (Count, error) {
	t, err := db.checkRead(opts)
	if err != nil {
		return Count{}, err
	}
	if err := store.CheckKey(key); err != nil {
		return Count{}, err
	}
	c := db.reads.Get().(*readCall)
	c.cells[0] = store.Cell{Namespace: db.namespace, Key: key}
	c.kept = keptRead{cells: c.cells[:], values: c.values[:], room: c.from[:], staleness: t.staleness}
	err = db.readInto(ctx, &c.kept)
	v, at := c.values[0], seen{asOf: c.kept.began.Time, source: sourceStore}
	if c.kept.from != nil {
		at = c.from[0]
	}
	db.reads.Put(c)
	if err != nil {
		return Count{}, err
	}
	n := count(key, v, at)
	if err := t.tooOld(&n); err != nil {
		return Count{}, err
	}
	return n, db.lost(ctx, t.sessions, key, v)
}

// A readCall is what one Read lends to the store, and all else that it needs.
type readCall struct {
	cells  [1]store.Cell
	values [1]store.Value
	from   [1]seen
	kept   keptRead
}

// ReadBatch returns the counts of up to KeysMax keys, in their order.
func (db *DB) ReadBatch(ctx context.Context, keys []string, opts ...ReadOption) ([]Count, error) {
	t, err := db.checkRead(opts)
	if err != nil {
		return nil, err
	}
	if len(keys) > KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), KeysMax)
	}
	cells := make([]store.Cell, len(keys))
	for i, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, err
		}
		cells[i] = store.Cell{Namespace: db.namespace, Key: key}
	}
	values := make([]store.Value, len(keys))
	asOf, from, err := db.read(ctx, cells, values, t.staleness)
	if err != nil {
		return nil, err
	}
	counts := make([]Count, len(keys))
	for i, key := range keys {
		at := seen{asOf: asOf, source: sourceStore}
		if from != nil {
			at = from[i]
		}
		if err := db.lost(ctx, t.sessions, key, values[i]); err != nil {
			return nil, err
		}
		counts[i] = count(key, values[i], at)
		if err := t.tooOld(&counts[i]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// byPolicy is the staleness of a caller who leaves it to the policy.
const byPolicy time.Duration = -1

// readTerms are what a reader needs, all options together.
type readTerms struct {
	staleness time.Duration // of totals: 0 if they will not do
	oldest    time.Duration // of what a replica has; negative if any age will do
	sessions  []session.Position
}

// checkRead returns an error if the view or an option can't be used, and what
// the reader needs. What a store is asked for is exact, and so meets any need that
// is a valid one, unless it is a replica: see tooOld.
func (db *DB) checkRead(opts []ReadOption) (t readTerms, err error) {
	if db.err != nil {
		return t, db.err
	}
	t.staleness, t.oldest = byPolicy, byPolicy
	if len(opts) == 0 {
		return t, nil
	}
	asked, err := call.ReadTermsOf(opts)
	if err != nil {
		return t, err
	}
	if asked.MaxStaleness < 0 || asked.MaxError < 0 {
		return t, store.Errorf(store.KindInvalid, "negative staleness or error")
	}
	if asked.HasStaleness {
		t.staleness, t.oldest = asked.MaxStaleness, asked.MaxStaleness
	}
	if asked.Exact || asked.HasError {
		t.oldest = 0
	}
	if asked.Exact || asked.HasError || len(asked.Sessions) > 0 {
		t.staleness = 0
	}
	for _, text := range asked.Sessions {
		s, err := session.Parse(text)
		if err != nil {
			return t, err
		}
		t.sessions = append(t.sessions, s)
	}
	return t, nil
}
