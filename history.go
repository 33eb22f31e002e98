package quipu

import (
	"context"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/history"
	"github.com/quipudb/quipu/store"
)

// Range returns what was counted for a key in a range of time, step by step, from the
// windows that its definition asks for. With RangeOptions.Prefix it adds up all counters
// whose keys start with it.
func (db *DB) Range(ctx context.Context, key string, o RangeOptions) (Series, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Series{}, err
	}
	return r.Range(ctx, key, o)
}

// By returns what was counted for each value of a dimension that the definition of a key
// has, of all time or in a range. Several names have a comma between them, as they are
// defined.
func (db *DB) By(ctx context.Context, key, dimension string, o ByOptions) (Breakdown, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Breakdown{}, err
	}
	return r.By(ctx, key, dimension, o)
}

// Uniques returns how many different users a counter had, of all time or in a range, if its
// definition has them counted: exactly while they are few, then as an estimate with its
// error. A range is the union of its windows: a user who came in several counts once. A key without a
// definition may hold a sketch of its own, which AddUniques or a Redis client has made: that is of all time.
func (db *DB) Uniques(ctx context.Context, key string, o UniqueOptions) (Uniques, error) {
	r, err := db.history(ctx)
	if err != nil {
		return Uniques{}, err
	}
	return r.Uniques(ctx, key, o)
}

// AddUniques takes users into those that a counter had until now, without counting anything.
// It reports whether one of them was not there before. The definition of the counter must
// have its users counted. A key without a definition holds a sketch of its own, which is made if the key is absent;
// it does not count anything else.
func (db *DB) AddUniques(ctx context.Context, key string, users ...string) (changed bool, err error) {
	if err := call.CheckUniques(users); err != nil {
		return false, err
	}
	return db.port.AddUniques(ctx, key, users)
}

// Top returns a top list, of all time or in a range: what came most often, with bounds that hold
// for each number. call.TopOptions.Key is the counter whose list it is; without it the list is by
// key, of all counters of a pattern. A range is the union of its windows.
func (db *DB) Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error) {
	r, err := db.history(ctx)
	if err != nil {
		return call.Top{}, err
	}
	return r.Top(ctx, name, o)
}

// Ledger returns the changes of a counter that were written down, the latest first, a page
// at a time. A page may be empty and have a next one, if few lines match.
func (db *DB) Ledger(ctx context.Context, key string, o LedgerOptions) (LedgerPage, error) {
	r, err := db.history(ctx)
	if err != nil {
		return LedgerPage{}, err
	}
	return r.Ledger(ctx, key, o)
}

// Erase takes someone's name out of all ledgers of the namespace, as the actor of lines.
// Counts stay, and so do reasons, tokens and the values of dimensions: these must not name
// people. Reactions of the user are taken back, and counters that count each user once in a
// window do not remember the user any more.
//
// If ctx has a deadline, it stops in time and returns what was done up to there, which is
// not Complete: go on from Next. The cursor of the first call is "". It may be repeated.
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
