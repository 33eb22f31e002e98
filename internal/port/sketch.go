package port

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

// The calls of this file are about sketches that keys hold, of which no definition has any. They are executed
// on a snapshot, as commands of Redis clients are.

// A once is a token of a write that is executed on a snapshot, and what stands for its payload: what the caller has said, and
// not the state that comes of it. The zero once is none.
type once struct {
	key, token string
	digest     uint64
}

// A written says what became of a write that was executed on a snapshot.
type written struct {
	replayed   bool // its token was taken before: nothing was written
	durability store.Durability
	asOf       time.Time // what was read counts every write acknowledged before
}

// known reports whether the token was used. If it was used for this write, the store says so of a delta that can't be applied
// anyhow: its token is judged before the version that it asks for.
//
// It is asked after the keys were read, and what is written depends on that they have not changed. Every write with a token
// changes its key. So a write whose token was not known here is applied only if it still is not.
func (p *Port) known(ctx context.Context, o *once) (bool, error) {
	if o.token == "" {
		return false, nil
	}
	f, err := p.store.Lookup(ctx, p.Cell(o.key), o.token)
	if err != nil || f.State == store.TokenUnknown {
		return false, err
	}
	var results [1]store.Result
	d := store.Delta{
		Cell: store.Cell{Key: o.key}, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: keyspace.Content("")},
		Guard: store.Guard{Token: o.token, Digest: o.digest, Match: true, Version: math.MaxInt64},
	}
	if err := p.Apply(ctx, []store.Delta{d}, results[:]); err != nil {
		return false, err
	}
	switch r := &results[0]; {
	case r.Outcome == store.Changed: // It has been forgotten meanwhile.
		return false, nil
	case r.Outcome == store.Applied && r.Replayed:
		return true, nil
	default:
		return false, r.Outcome.Err()
	}
}

// under returns deltas of which the first has the token. If nothing is written, it writes what the key holds
// once more, since whoever uses the token at the same time has to notice.
func (o *once) under(deltas []store.Delta, space *keyspace.Space) []store.Delta {
	if o.token == "" {
		return deltas
	}
	if len(deltas) == 0 {
		deltas = []store.Delta{{Cell: store.Cell{Key: o.key}, Op: store.OpPut, Event: &store.Event{Part: store.Object, Bytes: []byte(space.Holds(o.key))}}}
	}
	deltas[0].Guard.Token, deltas[0].Guard.Digest = o.token, o.digest
	return deltas
}

// tokenOf returns the token of a write, and what stands for what its caller has said.
func tokenOf(key, what string, t call.SketchTerms, payload func(b []byte) []byte) once {
	if t.Token == "" {
		return once{}
	}
	b := fmt.Appendf(nil, "%s %d ", what, t.TTL.Milliseconds())
	sum := sha256.Sum256(payload(b))
	return once{key, t.Token, max(binary.LittleEndian.Uint64(sum[:]), 1)}
}

// sketching executes a write to the sketch that a key holds, or what only reads it.
func (p *Port) sketching(ctx context.Context, key string, keys []string, writes bool, o once, do func(s *keyspace.Space, replayed bool) error) (w written, err error) {
	if p.err != nil {
		return w, p.err
	}
	if writes && p.readOnly {
		return w, store.ErrReadOnly
	}
	for _, k := range keys {
		if err := store.CheckKey(k); err != nil {
			return w, err
		}
		if p.Partition(k) != p.Partition(key) {
			return w, store.Errorf(store.KindUnsupported, "%q and %q are in different partitions of the %s store, which can't change them in one step", k, key, p.traits.Name)
		}
	}
	if writes {
		if _, err := p.books.Get(ctx, p.namespace); err != nil { // whoever knows of no book sees no definition
			return w, err
		}
		if p.Defined(key) {
			return w, ErrText
		}
	}
	w, err = p.execute(ctx, keys, nil, o, func(s *keyspace.Space, replayed bool) error {
		s.Single = true
		return do(s, replayed)
	})
	if w.durability == 0 { // Nothing was written: what was there is as durable as its policy asks.
		w.durability = min(p.Rules().Policy(key).Durability, p.traits.Durability)
	}
	return w, err
}

// MakeSketch makes an absent key a sketch. It reports false if it holds such a sketch already.
func (p *Port) MakeSketch(ctx context.Context, key string, shape call.Shape, t call.SketchTerms) (made bool, err error) {
	_, err = p.sketching(ctx, key, []string{key}, true, once{}, func(s *keyspace.Space, _ bool) (err error) {
		if made, err = s.MakeSketch(key, shape); made {
			s.Lives(key, t.TTL)
		}
		return err
	})
	return made && err == nil, err
}

// AddItems adds items to the sketch that a key holds, all or none of them.
func (p *Port) AddItems(ctx context.Context, key string, items []call.Item, t call.SketchTerms) (a call.Addition, err error) {
	o := tokenOf(key, "add", t, func(b []byte) []byte { return keyspace.AppendDigest(b, items) })
	w, err := p.sketching(ctx, key, []string{key}, true, o, func(s *keyspace.Space, replayed bool) (err error) {
		if replayed {
			a, err = s.Recount(key, items)
			return err
		}
		if a, err = s.AddItems(key, items); err == nil {
			s.Lives(key, t.TTL)
		}
		return err
	})
	if err != nil {
		return call.Addition{}, err
	}
	a.Replayed, a.Durability = w.replayed, w.durability
	return a, nil
}

// AskItems returns what the sketch that a key holds knows of items.
func (p *Port) AskItems(ctx context.Context, key string, items []string) (a call.Asked, err error) {
	w, err := p.sketching(ctx, key, []string{key}, false, once{}, func(s *keyspace.Space, _ bool) (err error) {
		a, err = s.AskItems(key, items)
		return err
	})
	a.AsOf = w.asOf
	return a, err
}

// Sketch tells of the sketch that a key holds, of a top list the first k; 0 is as many as it is asked for.
func (p *Port) Sketch(ctx context.Context, key string, k int) (is call.Sketch, err error) {
	w, err := p.sketching(ctx, key, []string{key}, false, once{}, func(s *keyspace.Space, _ bool) (err error) {
		is, err = s.Sketch(key, k)
		return err
	})
	is.AsOf = w.asOf
	return is, err
}

// MergeSketches makes a key what the sketches of others are together. It reports whether that was a repeat.
func (p *Port) MergeSketches(ctx context.Context, key string, from []call.SketchSource, t call.SketchTerms) (replayed bool, err error) {
	o := tokenOf(key, "merge", t, func(b []byte) []byte {
		for _, f := range from {
			b = fmt.Appendf(b, "%d %d %s", len(f.Key), max(f.Weight, 1), f.Key)
		}
		return b
	})
	w, err := p.sketching(ctx, key, keyspace.KeysOfSources(key, from), true, o, func(s *keyspace.Space, replayed bool) error {
		if replayed {
			return nil
		}
		err := s.MergeSketches(key, from)
		if err == nil {
			s.Lives(key, t.TTL)
		}
		return err
	})
	return w.replayed, err
}
