package quipu

import (
	"context"
	"errors"
	"math"

	"github.com/quipudb/quipu/internal/history"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// Adjust corrects a counter. It is an Add that the ledger of the counter always
// records, with its reason and actor. At and Dim select the windows and
// dimensions to correct.
func (db *DB) Adjust(ctx context.Context, key string, delta int64, c Correction, opts ...WriteOption) (Receipt, error) {
	if err := c.Check(); err != nil {
		return Receipt{}, err
	}
	return db.write(ctx, store.OpAdd, key, delta, &port.Fact{Kind: ledger.Adjust, Actor: c.Actor, Reason: c.Reason}, opts)
}

// Undo takes back what the write with a token added to a counter, in the same
// windows and dimensions, and records that in the ledger. It needs the ledger
// entry of the write. If there is none, or it has expired, Undo returns
// ErrUnmet: then use Adjust. A write can be undone once: a second Undo changes
// nothing, and its Receipt has Replayed set and the present version of the
// counter.
func (db *DB) Undo(ctx context.Context, key, token string, c Correction) (Receipt, error) {
	cell, err := db.checkToken(key, token)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return Receipt{}, err
	}
	found, err := db.lineOf(ctx, cell, token)
	if err != nil {
		return Receipt{}, err
	}
	switch {
	case found.Kind.Reacts():
		return Receipt{}, store.Errorf(store.KindUnmet, "the token was used for a reaction, which undo does not change: remove the reaction of the user instead")
	case !found.Kind.Adds():
		return Receipt{}, store.Errorf(store.KindUnmet, "the token was used for a %s, and only an add can be undone: set the counter, or adjust it", found.Kind)
	case !found.Known, found.Delta == math.MinInt64:
		return Receipt{}, store.Errorf(store.KindUnmet, "the amount of the write is not known, so it can't be undone: adjust the counter instead")
	}
	r, err := db.write(ctx, store.OpAdd, key, -found.Delta, &port.Fact{
		Kind: ledger.Undo, Actor: c.Actor, Reason: c.Reason, AtMS: found.AtMS, Dims: found.Dims,
		Undoes: &port.Undone{Entry: found.Entry, Line: found.Number},
	}, nil)
	switch {
	case errors.Is(err, errUndone):
		is, err := db.Read(ctx, key, Exact())
		if err != nil {
			return Receipt{}, err
		}
		return Receipt{
			Namespace: cell.Namespace, Key: key, Applied: -found.Delta, Replayed: true, Durability: db.durabilityOf(key),
			Version: min(is.Version, VersionMixed), // which names no change, if several cells have it
		}, nil
	case errors.Is(err, store.ErrLate):
		return Receipt{}, notRecorded(key)
	}
	return r, err
}

// errUndone is that a line was taken back before.
var errUndone = errors.New("taken back before")

// notRecorded returns the error of a write that the ledger does not have.
func notRecorded(key string) error {
	return store.Errorf(store.KindUnmet, "the ledger of %q has no entry for the token: it does not record such writes, or the entry has expired. Adjust the counter by the opposite amount instead", key)
}

// lineOf returns the line that the write with a token has left.
func (db *DB) lineOf(ctx context.Context, c store.Cell, token string) (f history.Found, err error) {
	r, err := db.history(ctx)
	if err != nil {
		return f, err
	}
	fate, err := r.Store.Lookup(ctx, c, token)
	if err != nil {
		return f, err
	}
	f, ok, err := r.Find(ctx, c.Key, token, &fate)
	if err == nil && !ok {
		err = notRecorded(c.Key)
	}
	return f, err
}
