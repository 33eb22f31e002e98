package quipu

import (
	"context"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/history"
	"github.com/quipudb/quipu/store"
)

// Range returns a counter over time, step by step. It needs windows in the
// counter's definition. With RangeOptions.Prefix it adds up all counters whose
// keys start with key.
func (db *DB) Range(ctx context.Context, key string, o RangeOptions) (Series, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Series{}, err
	}
	return r.Range(ctx, key, o)
}

// By returns the count of each value of a dimension, for all time or for a
// range. The definition of the key declares the dimension. A dimension of
// several names is written with commas between them.
func (db *DB) By(ctx context.Context, key, dimension string, o ByOptions) (Breakdown, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Breakdown{}, err
	}
	return r.By(ctx, key, dimension, o)
}

// Uniques returns the number of distinct users of a counter, for all time or
// for a range. The counter's definition must count users. Small numbers are
// exact, and larger ones are estimates with an error. A user who appears in
// several windows of the range counts once. A key without a definition may hold
// a sketch, from AddUniques or a Redis client, which covers all time.
func (db *DB) Uniques(ctx context.Context, key string, o UniqueOptions) (Uniques, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Uniques{}, err
	}
	return r.Uniques(ctx, key, o)
}

// AddUniques adds users to the set of users of a counter, as of now, and counts
// nothing else. It reports whether at least one user is new. The definition of
// the counter must count users. Without a definition the key holds a sketch,
// which the first call creates; such a key can't be a counter too.
func (db *DB) AddUniques(ctx context.Context, key string, users ...string) (changed bool, err error) {
	if err := call.CheckUniques(users); err != nil {
		return false, err
	}
	return db.port.AddUniques(ctx, key, users)
}

// Top returns a top list, the most frequent items with bounds that always hold,
// for all time or for a range. call.TopOptions.Key is the counter that has the
// list. Without it the list is by key and covers all counters of a pattern. A
// range merges the lists of its windows.
func (db *DB) Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error) {
	r, err := db.history(ctx)
	if err != nil {
		return call.Top{}, err
	}
	return r.Top(ctx, name, o)
}

// Ledger returns the recorded changes of a counter, the latest first, a page at
// a time. If few entries match, a page may be empty and still have a next one.
func (db *DB) Ledger(ctx context.Context, key string, o LedgerOptions) (LedgerPage, error) {
	r, err := db.history(ctx)
	if err != nil {
		return LedgerPage{}, err
	}
	return r.Ledger(ctx, key, o)
}

// Erase removes the name of a person from the namespace. Ledger entries lose it
// as their actor, the reactions of the user are removed, and counters that
// count each user once forget the user. Counts, reasons, tokens and values of
// dimensions stay, so these must not contain names of people.
//
// If ctx has a deadline, Erase stops in time and returns what it has done, with
// Complete unset: continue from Next. The cursor of the first call is "". Erase
// can be repeated.
func (db *DB) Erase(ctx context.Context, who, cursor string) (Erasure, error) {
	if db.port.ReadOnly() {
		return Erasure{}, store.ErrReadOnly
	}
	r, err := db.history(ctx)
	if err != nil {
		return Erasure{}, err
	}
	return r.Erase(ctx, who, cursor)
}

// history returns what reads the parts of the namespace's counters.
func (db *DB) history(ctx context.Context) (*history.Reader, error) {
	if err := db.port.Err(); err != nil {
		return nil, err
	}
	known, err := db.port.Books().Get(ctx, db.port.Namespace())
	if err != nil {
		return nil, err
	}
	return &history.Reader{
		Store: db.port.Store(), Known: known, Now: db.port.NowMS(store.Cell{Namespace: db.port.Namespace()}), Source: db.port.Source(),
		Unreact: db.forget,
	}, nil
}
