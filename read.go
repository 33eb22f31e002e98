package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/store"
)

// A Count is the answer to a read, and says what it is.
type Count struct {
	Key   string
	Value int64

	// Lower and Upper bound the exact value at AsOf, if Bounded is set;
	// otherwise nothing is proved.
	Lower, Upper int64
	Bounded      bool

	Exact    bool // Value counts every write acknowledged before the read began
	Complete bool // every part of the counter was read
	Exists   bool

	AsOf      time.Time     // every write acknowledged before it is counted
	Staleness time.Duration // how long before the read AsOf may have been; 0 if exact
	Source    string        // where the value came from: "store", or "recalled" if the store could not be reached
	Shards    int           // how many parts were read
	Version   uint64        // for IfVersion; 0 if the counter does not exist
}

// sourceStore is the Source of what was read from the store itself.
const sourceStore = "store"

// Read returns the count of a key. A counter that does not exist reads as zero.
func (db *DB) Read(ctx context.Context, key string, opts ...ReadOption) (Count, error) {
	staleness, err := db.checkRead(opts)
	if err != nil {
		return Count{}, err
	}
	if err := checkKey(key); err != nil {
		return Count{}, err
	}
	c := db.reads.Get().(*readCall)
	c.cells[0] = store.Cell{Namespace: db.namespace, Key: key}
	asOf, times, err := db.read(ctx, c.cells[:], c.values[:], staleness)
	v := c.values[0]
	db.reads.Put(c)
	switch {
	case err != nil:
		return Count{}, err
	case times != nil:
		return recalledCount(key, v, times[0]), nil
	}
	return exactCount(key, v, asOf), nil
}

// A readCall is what one Read lends to the store.
type readCall struct {
	cells  [1]store.Cell
	values [1]store.Value
}

// ReadBatch returns the counts of up to KeysMax keys, in their order.
func (db *DB) ReadBatch(ctx context.Context, keys []string, opts ...ReadOption) ([]Count, error) {
	staleness, err := db.checkRead(opts)
	if err != nil {
		return nil, err
	}
	if len(keys) > KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), KeysMax)
	}
	cells := make([]store.Cell, len(keys))
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		cells[i] = store.Cell{Namespace: db.namespace, Key: key}
	}
	values := make([]store.Value, len(keys))
	asOf, times, err := db.read(ctx, cells, values, staleness)
	if err != nil {
		return nil, err
	}
	counts := make([]Count, len(keys))
	for i, key := range keys {
		if times != nil {
			counts[i] = recalledCount(key, values[i], times[i])
			continue
		}
		counts[i] = exactCount(key, values[i], asOf)
	}
	return counts, nil
}

// exactCount is the count of a value that the store read after asOf.
func exactCount(key string, v store.Value, asOf time.Time) Count {
	return Count{
		Key: key, Value: v.N, Lower: v.N, Upper: v.N, Bounded: true,
		Exact: true, Complete: true, Exists: v.Exists,
		AsOf: asOf, Source: sourceStore, Shards: 1, Version: v.Version,
	}
}

// byPolicy is the staleness of a caller who leaves it to the policy.
const byPolicy time.Duration = -1

// checkRead returns an error if the view or an option can't be used, and how
// stale the caller says that a count may be. Whatever the store can be asked for
// is exact, and so meets any need that is a valid one.
func (db *DB) checkRead(opts []ReadOption) (staleness time.Duration, err error) {
	if db.err != nil {
		return 0, db.err
	}
	staleness = byPolicy
	for _, o := range opts {
		switch o.kind {
		case readExact, readError:
			staleness = 0
		case readSession:
			if err := checkSession(o.text); err != nil {
				return 0, err
			}
			staleness = 0
		case readStaleness:
			if staleness == byPolicy {
				staleness = time.Duration(o.n)
			}
		default:
			return 0, store.Errorf(store.KindInvalid, "unknown read option")
		}
		if o.n < 0 {
			return 0, store.Errorf(store.KindInvalid, "negative staleness or error")
		}
	}
	return staleness, nil
}
