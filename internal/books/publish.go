package books

import (
	"context"
	"errors"
	"fmt"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/store"
)

// A Proposal is definitions that a namespace is to have.
type Proposal struct {
	Definitions []definition.Definition
	DryRun      bool  // only say what would change
	IfID        int64 // only if this is the id of the book; 0 is any
	IfNone      bool  // only if there is no book

	holds bool // the definitions stay, and there may be reservations from now on
}

// A Change is what became of a proposal.
type Change struct {
	ID    int64    // of the book that has the definitions, or would have
	Views []string // what changed, in words; empty if nothing did
}

// Publish makes definitions those of a namespace, and returns when they are in force. After
// an error some partitions may count by them: Publish again finishes that.
func (b *Books) Publish(ctx context.Context, namespace string, p Proposal) (Change, error) {
	if b.readOnly && !p.DryRun {
		return Change{}, store.ErrReadOnly
	}
	s, err := b.take(ctx, namespace)
	if err != nil {
		return Change{}, err
	}
	defer s.put()
	for {
		c, err := b.publish(ctx, namespace, s, p)
		if !errors.Is(err, errOvertaken) {
			return c, err
		}
	}
}

// Hold says in the book of a namespace that its counters may have reservations, before it has
// the first one. What a server deletes without having heard of that is refused from then on:
// everywhere once the book is in force, and before that in each partition that has seen a write
// of a server which has.
func (b *Books) Hold(ctx context.Context, namespace string) error {
	if b.Known(namespace).Holds() {
		return nil
	}
	_, err := b.Publish(ctx, namespace, Proposal{holds: true})
	if b.Known(namespace).Holds() {
		return nil
	}
	return err
}

// errOvertaken is that another server has published a book in between.
var errOvertaken = errors.New("overtaken")

func (b *Books) publish(ctx context.Context, namespace string, s *shelf, p Proposal) (Change, error) {
	if err := b.load(ctx, namespace, s); err != nil {
		return Change{}, err
	}
	now, old := s.known.ID(), s.known.Book
	switch {
	case p.IfID != 0 && p.IfID != now:
		return Change{}, store.Errorf(store.KindChanged, "the definitions of namespace %q have changed: they are those of book %d, not %d", namespace, now, p.IfID)
	case p.IfNone && now != 0:
		return Change{ID: now}, nil
	}
	if now != 0 && s.known.InForce == 0 && !p.DryRun { // The one before has to be, to say since when its views are complete.
		if err := b.finish(ctx, s); err != nil {
			return Change{}, err
		}
	}
	if p.holds {
		p.Definitions = make([]definition.Definition, len(old.Entries))
		for i := range old.Entries {
			p.Definitions[i] = old.Entries[i].Definition
		}
	}
	nowMS := b.nowMS(0)
	inForce := s.known.InForce
	if p.DryRun {
		inForce = max(inForce, nowMS)
	}
	next, err := old.Next(book.Proposal{Definitions: p.Definitions, Now: nowMS, InForce: inForce, Holds: p.holds, Zone: zoneOf})
	if err != nil || next == old {
		return Change{ID: now}, err
	}
	c := Change{ID: int64(next.ID), Views: old.Changes(next)}
	if p.DryRun {
		return c, nil
	}
	switch err := b.write(ctx, namespace, next, s.version); {
	case store.KindOf(err) == store.KindChanged:
		return Change{}, errOvertaken
	case err != nil:
		return Change{}, fmt.Errorf("publish the definitions of namespace %q: %w", namespace, err)
	}
	k := newKnown(namespace, next, b.slot)
	b.keep(s, k) // before any fence is raised: what is made here from now on meets it
	return c, b.finish(ctx, s)
}

// write puts a book into the store, if its cell is still at a version.
func (b *Books) write(ctx context.Context, namespace string, of *book.Book, version uint64) error {
	raw := of.Bytes()
	e := &store.Event{}
	for i := range pagesMax {
		piece := raw[:min(len(raw), store.PartBytesMax)]
		if raw = raw[len(piece):]; len(piece) > 0 {
			e.Riders = append(e.Riders, store.Rider{Part: page(i), Op: store.OpPut, Bytes: piece})
		} else {
			e.Riders = append(e.Riders, store.Rider{Part: page(i), Op: store.OpDelete})
		}
	}
	return b.apply(ctx, store.Delta{
		Cell: cellOf(namespace), Op: store.OpSet, N: int64(of.ID), Guard: store.Guard{Match: true, Version: version}, Event: e,
	})
}

// apply applies one delta to a cell of the store's own namespace.
func (b *Books) apply(ctx context.Context, d store.Delta) error {
	batch := store.Batch{Partition: store.PartitionOf(d.Cell, b.store.Traits().Partitions), Deltas: []store.Delta{d}}
	var replies [1]store.Reply
	if err := b.store.Apply(ctx, []store.Batch{batch}, replies[:]); err != nil {
		return err
	}
	if err := replies[0].Err; err != nil {
		return err
	}
	return replies[0].Results[0].Outcome.Err()
}

// finish raises the fences of all partitions to the book on a shelf, and writes down when
// it came into force.
func (b *Books) finish(ctx context.Context, s *shelf) error {
	k := s.known
	batches := make([]store.Batch, b.store.Traits().Partitions)
	for i := range batches {
		batches[i] = store.Batch{Partition: i, Books: k.Fence}
	}
	replies := make([]store.Reply, len(batches))
	err := b.store.Apply(ctx, batches, replies)
	for i := 0; err == nil && i < len(replies); i++ {
		err = replies[i].Err
	}
	if err != nil {
		return fmt.Errorf("book %d of namespace %q is published, but not yet in force: publish the definitions again: %w", k.Book.ID, k.Namespace, err)
	}
	at := int64(0) // The latest of the times, and the first millisecond that began after it.
	for i := range batches {
		at = max(at, b.nowMS(i)+1)
	}
	cell := forceCell(k.Namespace, k.Book.ID)
	err = b.apply(ctx, store.Delta{Cell: cell, Op: store.OpSet, N: at, Guard: store.Guard{Exists: store.ExistsNot}})
	if store.KindOf(err) == store.KindUnmet { // Somebody else was first.
		var value [1]store.Value
		err = b.store.Read(ctx, []store.Cell{cell}, value[:])
		at = value[0].N
	}
	if err != nil {
		return fmt.Errorf("book %d of namespace %q is published, but the time since when it is in force is not recorded: publish the definitions again: %w", k.Book.ID, k.Namespace, err)
	}
	again := *k
	again.InForce = at
	b.keep(s, &again)
	return nil
}
