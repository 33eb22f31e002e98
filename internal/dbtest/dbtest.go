// Package dbtest holds the laws of the product: what a DB promises its callers,
// as tests.
//
// They are written against the methods of *quipu.DB, not against the type, so
// one suite runs on the embedded DB, on a DB over each store, and through each
// client and door. The test file of each is one call of Run, given a constructor, or
// of RunThrough for a door that can't say all of it. No law
// depends on how durable a store is, on its number of partitions, or on how
// versions are chosen. Random laws print the command that replays a failure.
package dbtest

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// DB is what the laws call: the methods of *quipu.DB that have one meaning in
// one process and over a wire.
type DB interface {
	Add(ctx context.Context, key string, delta int64, opts ...quipu.WriteOption) (quipu.Receipt, error)
	AddBatch(ctx context.Context, events []quipu.Event) ([]quipu.Receipt, error)
	Set(ctx context.Context, key string, value int64, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Reset(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Delete(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Read(ctx context.Context, key string, opts ...quipu.ReadOption) (quipu.Count, error)
	ReadBatch(ctx context.Context, keys []string, opts ...quipu.ReadOption) ([]quipu.Count, error)
	List(ctx context.Context, prefix string, o quipu.ListOptions) (quipu.Page, error)
	Sum(ctx context.Context, prefix, cursor string) (quipu.Sum, error)
	Lookup(ctx context.Context, key, token string) (quipu.Fate, error)
	Settle(ctx context.Context, key, token string) (quipu.Fate, error)
	Define(ctx context.Context, definitions []definition.Definition, o quipu.DefineOptions) (quipu.Change, error)
	Allow(ctx context.Context, name, who string, cost int64, o quipu.AllowOptions) (quipu.Decision, error)
	ResetLimit(ctx context.Context, name, who string) error
	Close() error
}

// A Reserver is a DB that can reserve.
type Reserver interface {
	Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Commit(ctx context.Context, id string, amount int64, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Release(ctx context.Context, id string, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Extend(ctx context.Context, id string, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Reservation(ctx context.Context, id string) (quipu.Reservation, error)
	Reservations(ctx context.Context, key string, o quipu.ReservationOptions) (quipu.ReservationPage, error)
}

// An Open makes a new, empty DB and returns its views by namespace. It closes
// the DB with t.Cleanup; a law may have closed it by then.
type Open func(t testing.TB, o quipu.Options) func(namespace string) DB

// InProcess turns a constructor of a *quipu.DB into an Open.
func InProcess(open func(t testing.TB, o quipu.Options) *quipu.DB) Open {
	return func(t testing.TB, o quipu.Options) func(string) DB {
		t.Helper()
		db := open(t, o)
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return func(namespace string) DB { return db.In(namespace) }
	}
}

// A Door is what can't be said through a door to a DB. The zero Door says all.
type Door struct {
	// Lacks are the laws that can't be said, by name, each with the reason.
	Lacks map[string]string

	Unreplayed bool // a receipt does not say that it is a repeat
	AddsOnce   bool // only adds have tokens
	Terse      bool // a reaction says no more than whether it has changed something
	Unbounded  bool // an add has no floor and no ceiling, and is not saturated
	Unreserved bool // it can't reserve
	Untold     bool // it does not tell how many users there were as the library does
}

// Run checks every law on DBs made by open.
func Run(t *testing.T, open Open) { RunThrough(t, Door{}, open) }

// RunThrough checks what can be said through a door, on DBs made by open.
func RunThrough(t *testing.T, d Door, open Open) {
	lacking := maps.Clone(d.Lacks)
	whole := true
	for _, g := range []struct {
		name string
		laws func(*suite)
	}{
		{"write", writes},
		{"version", versions},
		{"token", tokens},
		{"settle", settles},
		{"read", reads},
		{"list", lists},
		{"batch", batches},
		{"namespace", namespaces},
		{"bound", bounds},
		{"lifetime", lifetimes},
		{"reservation", reservations},
		{"policy", policies},
		{"limit", limits},
		{"allow", allows},
		{"parallel", parallels},
		{"cancel", cancels},
		{"close", closes},
		{"reaction", reactions},
		{"sharded reaction", shardedReactions},
		{"unique", uniques},
		{"sketch", sketches},
		{"top", tops},
		{"history", histories},
	} {
		ran := false
		t.Run(g.name, func(t *testing.T) {
			ran = true
			g.laws(&suite{t, open, d, lacking})
		})
		whole = whole && ran
	}
	for name := range lacking {
		if whole { // and not only what -run has chosen
			t.Errorf("the door lacks a law that is none: %q", name)
		}
	}
}

// A suite runs the laws of one group.
type suite struct {
	t       *testing.T
	open    Open
	door    Door
	lacking map[string]string // what it lacks and was not met yet
}

// law checks one law on a new DB.
func (s *suite) law(name string, check func(k *kit)) {
	s.lawOf(name, quipu.Options{}, check)
}

// lawOf checks one law on a new DB with options.
func (s *suite) lawOf(name string, o quipu.Options, check func(k *kit)) {
	if _, ok := s.door.Lacks[name]; ok {
		delete(s.lacking, name)
		return
	}
	s.t.Run(name, func(t *testing.T) {
		in := s.open(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a broken DB fails and does not hang
		defer cancel()
		check(&kit{tb: t, t: t, ctx: ctx, door: s.door, in: in, db: in("default")})
	})
}
