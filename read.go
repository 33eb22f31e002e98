package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/total"
	"github.com/quipudb/quipu/store"
)

// VersionMixed is the smallest Version of a value that was added up from
// several cells, because the counter is split, or from a total and later
// writes. IfVersion can't be used with such a version.
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
	if t.earlier {
		r, err := db.history(ctx)
		if err != nil {
			return Count{}, err
		}
		return r.AsOf(ctx, key, t.asOfMS)
	}
	c := db.reads.Get().(*readCall)
	c.cells[0] = db.port.Cell(key)
	c.read = total.Read{Cells: c.cells[:], Values: c.values[:], Room: c.from[:], Rules: db.port.Rules(), Staleness: t.staleness}
	err = db.port.Totals().Read(ctx, &c.read)
	v, at := c.values[0], total.Seen{AsOf: c.read.Began.Time, Source: total.SourceStore}
	if c.read.From != nil {
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
	from   [1]total.Seen
	read   total.Read
}

// ReadBatch returns the counts of up to KeysMax keys, in their order.
func (db *DB) ReadBatch(ctx context.Context, keys []string, opts ...ReadOption) ([]Count, error) {
	t, err := db.checkRead(opts)
	if err != nil {
		return nil, err
	}
	if t.earlier {
		return nil, store.Errorf(store.KindInvalid, "option AsOf has a meaning for Read only")
	}
	if len(keys) > KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), KeysMax)
	}
	cells := make([]store.Cell, len(keys))
	for i, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, err
		}
		cells[i] = db.port.Cell(key)
	}
	r := total.Read{Cells: cells, Values: make([]store.Value, len(keys)), Rules: db.port.Rules(), Staleness: t.staleness}
	if err := db.port.Totals().Read(ctx, &r); err != nil {
		return nil, err
	}
	counts := make([]Count, len(keys))
	for i, key := range keys {
		at := total.Seen{AsOf: r.Began.Time, Source: total.SourceStore}
		if r.From != nil {
			at = r.From[i]
		}
		if err := db.lost(ctx, t.sessions, key, r.Values[i]); err != nil {
			return nil, err
		}
		counts[i] = count(key, r.Values[i], at)
		if err := t.tooOld(&counts[i]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// readTerms are what a reader needs, all options together.
type readTerms struct {
	staleness time.Duration // of totals: 0 if they will not do
	oldest    time.Duration // of what a replica has; negative if any age will do
	sessions  []session.Position
	earlier   bool // the value at an earlier time is asked for
	asOfMS    int64
}

// checkRead checks the view and the options of a read, and returns what the
// reader needs. A read from the store is exact, so it meets every valid need,
// unless the store is a replica: see tooOld.
func (db *DB) checkRead(opts []ReadOption) (t readTerms, err error) {
	if err := db.port.Err(); err != nil {
		return t, err
	}
	t.staleness, t.oldest = total.ByPolicy, total.ByPolicy
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
	t.earlier, t.asOfMS = asked.HasAsOf, asked.AsOfMS
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

// count is what a reader is told of a value.
func count(key string, v store.Value, from total.Seen) Count {
	if from.Source == total.SourceStore && v.AsOfMS != 0 {
		from.AsOf, from.Source = total.AsOf(from.AsOf, v), total.SourceReplica
	}
	c := Count{
		Key: key, Value: v.N, Lower: v.N, Upper: v.N, Bounded: true, Complete: from.Missing == 0, Exists: v.Exists,
		AsOf: from.AsOf, Source: from.Source, Shards: hot.Of(v).Shards(), Version: v.Version,
	}
	if v.DeadlineMS != 0 {
		c.ExpiresAt = time.UnixMilli(v.DeadlineMS)
	}
	from.Unproved = from.Unproved || hot.Of(v).IsUnsure()
	if from.Source == total.SourceStore {
		c.Exact = !from.Unproved
	} else {
		c.Staleness = time.Since(from.AsOf)
		c.Lower, c.Upper = v.N-max(0, from.Tail), v.N-min(0, from.Tail)
	}
	if from.Unproved {
		c.Bounded, c.Lower, c.Upper = false, 0, 0
	}
	return c
}

// tooOld returns an error if a value is from a replica that may lack what the reader
// needs.
func (t *readTerms) tooOld(c *Count) error {
	if c.Source != total.SourceReplica || t.oldest < 0 || t.oldest > 0 && c.Staleness <= t.oldest {
		return nil
	}
	need := "an exact value"
	if t.oldest > 0 {
		need = "one as young as " + t.oldest.String()
	}
	return store.Errorf(store.KindUnavailable, "this server reads a replica that may lack the writes of the last %v, so it can't tell %s; ask a server that writes",
		c.Staleness.Round(time.Millisecond), need)
}

// lost returns ErrSessionLost if v, the present value of a counter, lacks a
// write that one of the sessions has seen: then the store has lost acknowledged
// writes. The session of a delete has no version and is never lost.
func (db *DB) lost(ctx context.Context, sessions []session.Position, key string, v store.Value) error {
	if len(sessions) == 0 {
		return nil
	}
	c := db.port.Cell(key)
	counter := session.Counter(c.Namespace, c.Key)
	for _, s := range sessions {
		if s.Counter != counter || s.Version == 0 {
			continue
		}
		lost, err := db.lacks(ctx, c, s.Version, v)
		if err != nil {
			return err
		}
		if lost && db.port.ReadOnly() { // It may read a replica.
			return store.Errorf(store.KindUnavailable, "this read-only server reads a replica that is behind the session, or that has lost the session's write: %q was at version %d, and is at %d",
				key, s.Version, v.Version)
		}
		if lost {
			db.port.SessionLost()
			return store.Errorf(store.KindSessionLost, "the store has lost a write that the session has seen; drop the session, and read again without it: %q was at version %d, and is at %d",
				key, s.Version, v.Version)
		}
	}
	return nil
}

// lacks reports whether the store lacks the change that gave a counter a version.
func (db *DB) lacks(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if w, ok := db.port.Store().(store.Witness); ok {
		return w.Lost(ctx, c, version, v)
	}
	lacks, _ := v.Lacks(version)
	return lacks && version < spread.OfShards, nil
}
