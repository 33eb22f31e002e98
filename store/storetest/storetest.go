// Package storetest holds the laws of package store: what every store must
// keep, as tests.
//
// A store's own test file is one call of Run and one of Bench, each given a
// constructor. The laws are grouped by file: values, scan, tokens, marks, and
// so on; Random checks random histories against a plain model, and prints the
// seed and the command that replays a failure. Laws that need a crash, a
// reopening or another store beside run only on stores that say how (see
// Instance); all others run on every store. No law depends on the number of
// partitions, on when a store collects what it may forget, or on how versions are
// chosen.
//
// Tests of what uses a store have it fail, hang and wait with Wrap: hooks stand before
// each of its methods, and the package has those that are asked for most.
package storetest

import (
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
)

// Config is what a law asks of the store it wants opened.
type Config struct {
	Limits store.Limits     // zero fields mean their defaults
	Now    func() time.Time // the store's clock; nil is real time

	// Elapsed is a monotonic clock beside Now, for stores that keep time of their
	// own: see Clocks. Without it Now is believed.
	Elapsed func() time.Duration
}

// An Opener makes a new, empty store. Whatever it leaves behind it removes
// with t.Cleanup; the store itself may be closed by then.
type Opener func(t testing.TB, c Config) *Instance

// An Instance is a store under test, and what can be done to it from outside.
// Crash and Reopen return the store that replaces the one before, with the
// same Config, and may be called any number of times.
type Instance struct {
	Store store.Store

	// Crash kills the store without closing it, drops what is not durable, and
	// opens it again. Calls may be under way. What the killed store says after
	// Crash began counts for nothing, so it need not be stopped at one moment.
	// It is nil for stores that forget everything.
	Crash func(t testing.TB) store.Store

	// Reopen closes the store and opens it again. It is nil for stores that
	// forget everything.
	Reopen func(t testing.TB) store.Store

	// Beside opens another store on what this one keeps, with other limits, as
	// another server would. It is nil for stores that are not shared.
	Beside func(t testing.TB, l store.Limits) (store.Store, error)

	// Probes says that the store makes small writes of its own, to see whether what is behind
	// it answers. So how many changes there were is not up to its callers alone.
	Probes bool
}

// Run checks every law on stores made by open.
func Run(t *testing.T, open Opener) {
	for _, g := range []struct {
		name string
		laws func(*suite)
	}{
		{"value", values},
		{"scan", scans},
		{"batch", batches},
		{"token", tokens},
		{"settle", settles},
		{"mark", marks},
		{"writer", writers},
		{"quota", quotas},
		{"deadline", deadlines},
		{"lifetime", lifetimes},
		{"bound", bounds},
		{"condition", conditions},
		{"layout", layouts},
		{"layout kept", layoutsKept},
		{"start", starts},
		{"add", adds},
		{"request", requests},
		{"life", lives},
		{"race", races},
		{"durable", durables},
		{"lost", losses},
		{"audit", audits},
		{"event", events},
		{"merge", merges},
		{"sketch", sketches},
		{"object", objects},
	} {
		t.Run(g.name, func(t *testing.T) { g.laws(&suite{t: t, open: open}) })
	}
	t.Run("random", func(t *testing.T) { Random(t, open) })
}

// Events checks the laws of events on stores made by open, and random histories of them:
// for compositions of stores that keep all laws by themselves.
func Events(t *testing.T, open Opener) {
	t.Run("event", func(t *testing.T) { events(&suite{t: t, open: open}) })
	t.Run("merge", func(t *testing.T) { merges(&suite{t: t, open: open}) })
	t.Run("sketch", func(t *testing.T) { sketches(&suite{t: t, open: open}) })
	t.Run("object", func(t *testing.T) { objects(&suite{t: t, open: open}) })
	t.Run("random", func(t *testing.T) { randomly(t, open) })
}

// Around returns what opens stores around those that another opens.
func Around(open Opener, around func(store.Store) store.Store) Opener {
	return func(t testing.TB, c Config) *Instance {
		inst := open(t, c)
		out := &Instance{Store: around(inst.Store)}
		if inst.Crash != nil {
			out.Crash = func(t testing.TB) store.Store {
				inst.Store = inst.Crash(t)
				return around(inst.Store)
			}
		}
		if inst.Reopen != nil {
			out.Reopen = func(t testing.TB) store.Store {
				inst.Store = inst.Reopen(t)
				return around(inst.Store)
			}
		}
		return out
	}
}

// A suite runs a group of laws.
type suite struct {
	t      *testing.T
	open   Opener
	probed *Instance
}

// probe returns a closed instance that tells what can be done to the others.
func (s *suite) probe() *Instance {
	if s.probed == nil {
		s.probed = s.open(s.t, Config{})
		if err := s.probed.Store.Close(); err != nil {
			s.t.Fatalf("Close: %v", err)
		}
	}
	return s.probed
}

// law runs one law on a new store with default limits and a real clock.
func (s *suite) law(name string, check func(k *kit)) {
	s.lawWith(name, Config{}, check)
}

// lawAt runs one law on a new store with the given limits and a clock that the
// law moves.
func (s *suite) lawAt(name string, l store.Limits, check func(k *kit, c *clock)) {
	c := newClock()
	s.lawWith(name, Config{Limits: l, Now: c.now}, func(k *kit) { check(k, c) })
}

func (s *suite) lawWith(name string, c Config, check func(k *kit)) {
	s.t.Run(name, func(t *testing.T) {
		k := newKit(t, t, s.open(t, c))
		defer k.close()
		check(k)
	})
}
