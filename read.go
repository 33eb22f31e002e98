package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// A Count is the answer to a read, and says what it is.
type Count struct {
	Key   string
	Value int64

	// Lower and Upper bound the exact value at AsOf, or at a moment between that and
	// the read if it was changed meanwhile, if Bounded is set; otherwise nothing is
	// proved. Of a counter that is split over several partitions of a store, they
	// bound a value that lies between what it was when its shards began to be read
	// and what it was when all were: it counts every write acknowledged before, and
	// of those made meanwhile some, perhaps a later one without an earlier one, so
	// the counter need not have had it at any moment.
	Lower, Upper int64
	Bounded      bool

	Exact    bool // Value counts every write acknowledged before the read began
	Complete bool // every part of the counter was read
	Exists   bool

	AsOf      time.Time     // every write acknowledged before it is counted
	Staleness time.Duration // how long before the read AsOf may have been; 0 if exact
	Source    string        // "store"; "rollup" for a total that is kept; "recalled" if the store could not be reached
	Shards    int           // how many parts the counter has
	Version   uint64        // changes whenever Value does; 0 if the counter does not exist; for IfVersion, if it is below VersionMixed
}

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
	return count(key, v, at), db.lost(ctx, t.sessions, key, v)
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
	}
	return counts, nil
}

// byPolicy is the staleness of a caller who leaves it to the policy.
const byPolicy time.Duration = -1

// readTerms are what a reader needs, all options together.
type readTerms struct {
	staleness time.Duration
	sessions  []session
}

// checkRead returns an error if the view or an option can't be used, and what
// the reader needs. Whatever the store can be asked for is exact, and so meets
// any need that is a valid one.
func (db *DB) checkRead(opts []ReadOption) (t readTerms, err error) {
	if db.err != nil {
		return t, db.err
	}
	t.staleness = byPolicy
	for _, o := range opts {
		switch o.kind {
		case readExact, readError:
			t.staleness = 0
		case readSession:
			s, err := parseSession(o.text)
			if err != nil {
				return t, err
			}
			t.staleness = 0
			t.sessions = append(t.sessions, s)
		case readStaleness:
			if d := time.Duration(o.n); t.staleness == byPolicy || d < t.staleness {
				t.staleness = d
			}
		default:
			return t, store.Errorf(store.KindInvalid, "unknown read option")
		}
		if o.n < 0 {
			return t, store.Errorf(store.KindInvalid, "negative staleness or error")
		}
	}
	return t, nil
}
