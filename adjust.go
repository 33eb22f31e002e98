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

// Adjust corrects a counter: it is an Add that is always written down in the counter's
// ledger, whatever its definition asks for, with the reason and who did it. With At and
// Dim it corrects the windows and dimensions that are meant.
func (db *DB) Adjust(ctx context.Context, key string, delta int64, c Correction, opts ...WriteOption) (Receipt, error) {
	if err := c.Check(); err != nil {
		return Receipt{}, err
	}
	return db.write(ctx, store.OpAdd, key, delta, &port.Fact{Kind: ledger.Adjust, Actor: c.Actor, Reason: c.Reason}, opts)
}

// Undo takes back what the write with a token has added to a counter, in the same windows
// and dimensions, and writes that down. It needs the line that the write has left in the
// counter's ledger, and returns ErrUnmet if there is none, or none any more: then Adjust
// does it by hand. A line is taken back once: a second Undo changes nothing, and its
// receipt says Replayed, with the version that the counter has by then.
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
		return Receipt{}, store.Errorf(store.KindUnmet, "the token was used for a reaction: take back the reaction of the user instead")
	case !found.Kind.Adds():
		return Receipt{}, store.Errorf(store.KindUnmet, "the token was used for a %s, and only what was added can be taken back: set the counter, or adjust it", found.Kind)
	case !found.Known, found.Delta == math.MinInt64:
		return Receipt{}, store.Errorf(store.KindUnmet, "nobody knows by how much the write has changed the counter: adjust it")
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
	return store.Errorf(store.KindUnmet, "the ledger of %q has no line of the token: it does not record such writes, or no longer keeps it. Adjust the counter by the opposite amount instead", key)
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
