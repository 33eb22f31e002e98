package quipu

import (
	"context"
	"errors"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// MakeSketch makes an absent key a sketch: a filter, frequencies, or a top list. It reports false if the key holds such
// a sketch already, and returns ErrNotSketch, with what the key holds, if that is anything else. It takes the option TTL.
//
// Uniques need no shape: AddUniques makes them.
func (db *DB) MakeSketch(ctx context.Context, key string, shape call.Shape, opts ...WriteOption) (made bool, err error) {
	t, err := call.SketchTermsOf(opts, false)
	if err != nil {
		return false, err
	}
	return db.port.MakeSketch(ctx, key, shape, t)
}

// AddItems adds items to the sketch that a key holds, all of them or none, and returns what became of each. It returns
// ErrAbsent if the key does not exist. It takes the options Token and TTL.
func (db *DB) AddItems(ctx context.Context, key string, items []call.Item, opts ...WriteOption) (call.Addition, error) {
	t, err := call.SketchTermsOf(opts, true)
	if err == nil {
		err = call.CheckItems(items)
	}
	if err != nil {
		return call.Addition{}, err
	}
	a, err := db.port.AddItems(ctx, key, items, t)
	return a, db.sketchError(key, t, err)
}

// AskItems returns what the sketch that a key holds knows of items, and how certain that is. It returns ErrAbsent if
// the key does not exist.
func (db *DB) AskItems(ctx context.Context, key string, items ...string) (call.Asked, error) {
	if err := call.CheckAsked(items); err != nil {
		return call.Asked{}, err
	}
	return db.port.AskItems(ctx, key, items)
}

// Sketch returns what a key holds that is a sketch: its kind, its shape, what was added in all, and its present error; of a
// top list the first k items, or if k is 0 as many as the list is asked for.
func (db *DB) Sketch(ctx context.Context, key string, k int) (call.Sketch, error) {
	return db.port.Sketch(ctx, key, k)
}

// MergeSketches makes a key what other sketches of one kind and shape are together. The previous content of the key is lost,
// unless the key is among them. An absent key is made. So a repeat does no harm, unless the key is among them and they
// are frequencies: then give it a Token. It reports whether it was a repeat. It takes the options Token and TTL.
func (db *DB) MergeSketches(ctx context.Context, key string, from []call.SketchSource, opts ...WriteOption) (replayed bool, err error) {
	t, err := call.SketchTermsOf(opts, true)
	if err == nil {
		err = call.CheckSources(from)
	}
	if err != nil {
		return false, err
	}
	replayed, err = db.port.MergeSketches(ctx, key, from, t)
	return replayed, db.sketchError(key, t, err)
}

// sketchError returns the error of a write to a sketch, with more about its token.
func (db *DB) sketchError(key string, t call.SketchTerms, err error) error {
	switch {
	case errors.Is(err, store.ErrToken):
		return store.Errorf(store.KindToken, "%s: the items, the ttl or the kind of call differ", store.ErrToken.Detail)
	case errors.Is(err, store.ErrExpired):
		return db.refusal(&store.Delta{Cell: db.port.Cell(key), Guard: store.Guard{Token: t.Token}}, store.Expired)
	}
	return err
}
