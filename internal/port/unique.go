package port

import (
	"context"

	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// asked returns an event that asks the sketches of its counter what it has to, if there are
// some. What is corrected and what is taken back asks nothing: users who were there stay so, and nothing can be
// taken out of a top list.
func asked(e *store.Event, d *store.Delta, fact *Fact, keys *books.Keys) (*store.Event, error) {
	if d.N <= 0 || fact != nil && fact.always() {
		return e, nil
	}
	var user []byte
	if precision := keys.Unique(); precision != 0 && fact != nil && fact.Who != "" {
		user = sketch.AppendUniqueRequest(nil, precision, []uint64{sketch.Hash(fact.Who)})
	}
	bytes := user
	if tops := keys.Tops(); len(tops) > 0 {
		var err error
		if bytes, err = listed(user, d, fact, tops); err != nil {
			return nil, err
		}
	}
	if bytes == nil {
		return e, nil
	}
	with := new(*e)
	with.Bytes = bytes
	return with, nil
}

// unite returns the event that takes users into sketches now, and counts nothing.
func (f *frame) unite(d *store.Delta, fact *Fact, keys *books.Keys) (*store.Event, lateness, error) {
	if keys == nil || keys.Unique() == 0 {
		return nil, onTime, view.NoUnique(d.Cell.Key)
	}
	names, err := keys.Names(f.room[:0], nil)
	if err != nil {
		return nil, onTime, err
	}
	p, err := keys.Plans.Unite(keys.Views, f.nowMS, f.nowMS, names)
	if err != nil {
		return nil, onTime, err
	}
	hashes := make([]uint64, len(fact.Unite))
	for i, user := range fact.Unite {
		hashes[i] = sketch.Hash(user)
	}
	with := new(*p.Event)
	with.Bytes = sketch.AppendUniqueRequest(nil, keys.Unique(), hashes)
	return with, onTime, nil
}

// AddUniques takes users into the sketches of a counter, and does not change what it has counted; or into the sketch
// that a key holds which has no definition. It reports whether one of them was not there before.
func (p *Port) AddUniques(ctx context.Context, key string, users []string) (changed bool, err error) {
	if p.err != nil {
		return false, p.err
	}
	if p.readOnly {
		return false, store.ErrReadOnly
	}
	if _, err := p.books.Get(ctx, p.namespace); err != nil { // whoever knows of no book sees no definition
		return false, err
	}
	if !p.Defined(key) {
		return p.addToSketch(ctx, key, users)
	}
	c := p.NewCall(1)
	defer p.Free(c)
	d := &c.Deltas[0]
	d.Cell.Key, d.Op, d.Want = key, store.OpMerge, true
	c.Facts = append(c.Facts[:0], Fact{Unite: users})
	if err := p.Send(ctx, c, store.DurabilityDefault); err != nil {
		return false, err
	}
	reply := &c.Replies[0]
	switch {
	case reply.Err != nil:
		return false, reply.Err
	case reply.Results[0].Outcome == store.Barred:
		return false, p.Why(ctx, d, c.Fact(0))
	case reply.Results[0].Outcome == store.Unmet: // a deadline from before its definition, or bytes of another kind
		return false, store.Errorf(store.KindUnmet, "the counter has a deadline from before its definition: remove it first")
	case reply.Results[0].Outcome != store.Applied:
		return false, reply.Results[0].Outcome.Err()
	}
	return reply.Results[0].Before != 0, nil
}

// addToSketch takes items into the sketch that a key holds, which no definition names. If it is absent it
// is made.
func (p *Port) addToSketch(ctx context.Context, key string, items []string) (changed bool, err error) {
	if err := store.CheckKey(key); err != nil {
		return false, err
	}
	p.texts.found(p.namespace)
	c := p.NewCall(1)
	defer p.Free(c)
	d := &c.Deltas[0]
	d.Cell.Key, d.Op, d.Want = key, store.OpMerge, true
	d.Event = &store.Event{Part: store.Object, Bytes: keyspace.UniquesAsk(items)}
	if err := p.Send(ctx, c, store.DurabilityDefault); err != nil {
		return false, err
	}
	switch reply := &c.Replies[0]; {
	case reply.Err != nil:
		return false, reply.Err
	case reply.Results[0].Outcome == store.Barred:
		return false, p.Why(ctx, d, nil)
	case reply.Results[0].Outcome == store.Unmet, reply.Results[0].Outcome == store.Split, reply.Results[0].Outcome == store.NotCount:
		return false, view.NotUniques(key)
	case reply.Results[0].Outcome != store.Applied:
		return false, reply.Results[0].Outcome.Err()
	default:
		return reply.Results[0].Before != 0, nil
	}
}
