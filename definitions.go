package quipu

import (
	"context"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/store"
)

// Define replaces the definitions of the namespace. They declare the windows,
// dimensions, ledgers, floors and ceilings of its counters. When Define
// returns, all DBs over the store count by the new definitions. The Change says
// which views begin and which end. A view lacks the events from before it
// began, and says so when it is read.
//
// After ErrUnavailable or ErrUnknown, some counters may be counted by the new
// definitions and some by the old ones: call Define again.
func (db *DB) Define(ctx context.Context, definitions []definition.Definition, o DefineOptions) (Change, error) {
	if err := db.port.Err(); err != nil {
		return Change{}, err
	}
	c, err := db.port.Books().Publish(ctx, db.port.Namespace(), books.Proposal{
		Definitions: definitions, DryRun: o.DryRun, IfID: o.IfID, IfNone: o.IfNone,
	})
	return Change{ID: c.ID, Changes: c.Views}, err
}

// Definitions returns the definitions of the namespace, as they were at most a second ago.
func (db *DB) Definitions(ctx context.Context) (Book, error) {
	return db.definitions(ctx, func(*book.Entry, *book.Book) bool { return true })
}

// DefinitionOf returns the definition that applies to a key, and its views. The
// Book is empty if the key has only a total.
func (db *DB) DefinitionOf(ctx context.Context, key string) (Book, error) {
	if err := store.CheckKey(key); err != nil {
		return Book{}, err
	}
	return db.definitions(ctx, func(e *book.Entry, of *book.Book) bool { return of.Of(key) == e })
}

// definitions returns those of the namespace that match.
func (db *DB) definitions(ctx context.Context, match func(*book.Entry, *book.Book) bool) (Book, error) {
	if err := db.port.Err(); err != nil {
		return Book{}, err
	}
	k, err := db.port.Books().Get(ctx, db.port.Namespace())
	if err != nil {
		return Book{}, err
	}
	told := Book{ID: k.ID(), InForce: timeOf(k.InForce)}
	for i := range k.Book.Entries {
		e := &k.Book.Entries[i]
		if !match(e, k.Book) {
			continue
		}
		told.Definitions = append(told.Definitions, e.Definition)
		for j, s := range book.Slots(&e.Definition) {
			since, _ := k.Since(e.Views[j])
			told.Views = append(told.Views, View{Pattern: e.Definition.Pattern, Name: s.Name(&e.Definition), Since: timeOf(since), Keep: s.Keep(&e.Definition)})
		}
	}
	return told, nil
}

// timeOf returns the time that milliseconds since 1970 are; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
