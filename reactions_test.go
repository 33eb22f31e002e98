package quipu_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// reacting is a definition with choices, windows and a ledger.
func reacting(pattern string) definition.Definition {
	d := days(pattern)
	d.Choices = []string{"like", "dislike"}
	d.Ledger.Record = definition.All
	return d
}

// sound checks that all that is served adds up.
func (v *viewed) sound() {
	v.Helper()
	a, err := v.Verify(v.Context())
	if err != nil || len(a.Drift) > 0 || len(a.Unproved) > 0 {
		v.Errorf("verify: %+v, %v", a, err)
	}
}

// A reaction changes views and the ledger with the counter, in one step.
func TestReactionViews(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Reaction](v)
		v.define(reacting("p*"))
		other := v.other()
		ok(v.React(ctx, "p", "ana", "like"))
		ok(other.React(ctx, "p", "bob", "dislike"))
		ok(v.React(ctx, "p", "bob", "like"))
		ok(v.React(ctx, "p", "bob", "like"))
		v.holds("p", 2, "book=1, window 1=2, entries 2=3")
		ok(v.Unreact(ctx, "p", "ana", quipu.Token("t")))
		v.holds("p", 1, "book=1, window 1=1, entries 2=4")
		page, err := v.Ledger(ctx, "p", quipu.LedgerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range page.Lines {
			lines = append(lines, fmt.Sprint(l.Kind, " ", l.Actor, " ", l.Delta, l.Value, l.Dims, l.Token))
		}
		want := []string{"unreact ana -1 1 []t", "react bob 0 2 [{choice like}]", "react bob 1 2 [{choice dislike}]", "react ana 1 1 [{choice like}]"}
		if !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
		if _, err := v.Undo(ctx, "p", "t", quipu.Correction{Reason: "x"}); err == nil || !strings.Contains(err.Error(), "a reaction") {
			t.Errorf("%v", err)
		}
		v.sound()

		// The servers know of a reset as soon as they write.
		must[quipu.Receipt](v)(v.Reset(ctx, "p"))
		if r := ok(other.React(ctx, "p", "bob", "like")); !r.Changed || r.Before != "" {
			t.Errorf("%+v", r)
		}
		if r := ok(other.Unreact(ctx, "p", "ana")); r.Changed {
			t.Errorf("%+v", r)
		}
		v.sound()
		if r, err := v.Reactions(ctx, "p"); err != nil || r.Users != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// What a counter had before it had choices stays, outside of them.
func TestReactionsLater(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		must[quipu.Receipt](v)(v.Add(ctx, "p", 5000))
		v.define(definition.Definition{Pattern: "p*", Choices: []string{"like"}})
		must[quipu.Reaction](v)(v.React(ctx, "p", "ana", "like"))
		v.holds("p", 5001, "book=1, outside 1=5000")
		v.sound()
		// Nothing is lost if there are no choices for a while.
		v.define()
		must[quipu.Receipt](v)(v.Add(ctx, "p", 7))
		v.define(definition.Definition{Pattern: "p*", Choices: []string{"like", "dislike"}})
		if r := must[quipu.Reaction](v)(v.React(ctx, "p", "ana", "dislike")); r.Before != "like" {
			t.Errorf("%+v", r)
		}
		must[quipu.Receipt](v)(v.Reset(ctx, "p"))
		must[quipu.Reaction](v)(v.React(ctx, "p", "ana", "dislike"))
		v.sound()
	})
}

// Verify finds members that are not counted, counts without members, and a wrong total.
func TestVerifyReactions(t *testing.T) {
	f := func(want string, spoil ...store.Delta) {
		t.Helper()
		v := openViewed(t, 3)
		v.define(reacting("p*"))
		for _, user := range []string{"ana", "bob", "cy"} {
			must[quipu.Reaction](v)(v.React(t.Context(), "p", user, "like"))
		}
		v.sound()
		cell := store.Cell{Namespace: "default", Key: "p"}
		for i := range spoil {
			spoil[i].Cell = cell
		}
		b := store.Batch{Partition: store.PartitionOf(cell, 3), Deltas: spoil, Books: []store.Book{{Namespace: "default", ID: 1}}}
		if err := v.store.Apply(t.Context(), []store.Batch{b}, make([]store.Reply, 1)); err != nil {
			t.Fatal(err)
		}
		a, err := v.Verify(t.Context())
		if err != nil || len(a.Drift) == 0 || !strings.HasSuffix(a.Drift[len(a.Drift)-1].What, want) {
			t.Errorf("%+v, %v; want %q", a, err, want)
		}
	}
	part := func(kind store.PartKind, position int64, name string) *store.Event {
		return &store.Event{Part: store.PartFields{Kind: kind, Position: position, Name: name}.Part()}
	}
	f("users that have like, as they are counted: as there are", store.Delta{Op: store.OpDelete, Event: part(store.PartMember, 0, "bob")})
	f("users that have dislike, as they are counted: as there are", store.Delta{Op: store.OpSet, N: 2, Event: part(store.PartMember, 0, "bob")})
	f("users that have like, as they are counted: as there are", store.Delta{Op: store.OpAdd, N: 1, Event: part(store.PartMembers, 1, "")})
	f("reactions, and what is outside of it: the total", store.Delta{Op: store.OpAdd, N: 1, Event: &store.Event{}})
}

// A user who is erased has no reactions, and is not named any more.
func TestEraseReactions(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		ctx := t.Context()
		ok := must[quipu.Reaction](v)
		hour := definition.Once{Every: width("1h")}
		v.define(reacting("p*"), definition.Definition{Pattern: "v*", Once: hour})
		for i := range 1200 {
			ok(v.React(ctx, "p1", fmt.Sprintf("u%04d", i), "like"))
		}
		ok(v.React(ctx, "p1", "eve", "like"))
		ok(v.React(ctx, "p1", "zoe", "dislike"))
		ok(v.React(ctx, "p2", "zoe", "like"))
		must[quipu.Receipt](v)(v.Reset(ctx, "p2")) // of an old generation
		ok(v.React(ctx, "p3", "zoe", "like"))
		ok(v.React(ctx, "p4", "bob", "like"))
		must[quipu.Receipt](v)(v.Add(ctx, "v", 1, quipu.Who("zoe"), quipu.At(time.Now())))
		e, err := v.Erase(ctx, "zoe", "")
		if err != nil || !e.Complete || e.Reactions != 2 || e.Windows != 1 || e.Counters != 4 || e.Lines != 3 {
			t.Errorf("%+v, %v", e, err)
		}
		v.sound()
		if r, err := v.Reactions(ctx, "p1"); err != nil || r.Users != 1201 {
			t.Errorf("%+v, %v", r, err)
		}
		for _, kind := range []store.PartKind{store.PartMember, store.PartOnce, store.PartEntries} {
			rows := store.Rows{Namespace: "default", From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
			all, err := v.Port().Store().ScanParts(ctx, rows, store.ScanMax)
			if err != nil || len(all) == 0 && kind != store.PartOnce {
				t.Fatalf("%d parts, %v", len(all), err)
			}
			for _, p := range all {
				if strings.Contains(string(p.Part)+p.Content.Bytes, "zoe") {
					t.Errorf("%q of %s has %q", p.Part, p.Cell.Key, p.Content.Bytes)
				}
			}
		}
	})
}

// A ceiling bounds how many users have a choice.
func TestReactionsCeiling(t *testing.T) {
	eachViewed(t, func(t *testing.T, v *viewed) {
		two := int64(2)
		v.define(definition.Definition{Pattern: "seat*", Choices: []string{"in", "maybe"}, Ceiling: &two})
		ok := must[quipu.Reaction](v)
		ok(v.React(t.Context(), "seats", "ana", "in"))
		ok(v.React(t.Context(), "seats", "bob", "in"))
		if _, err := v.React(t.Context(), "seats", "cy", "in"); !errors.Is(err, quipu.ErrBound) {
			t.Errorf("%v", err)
		}
		ok(v.React(t.Context(), "seats", "bob", "maybe"))
		ok(v.Unreact(t.Context(), "seats", "ana"))
		ok(v.React(t.Context(), "seats", "cy", "in"))
		if r, err := v.Reactions(t.Context(), "seats"); err != nil || r.Users != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		v.sound()
	})
}
