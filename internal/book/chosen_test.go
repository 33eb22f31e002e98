package book_test

import (
	"strings"
	"testing"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/book"
)

func choosing(pattern string, choices ...string) definition.Definition {
	return definition.Definition{Pattern: pattern, Choices: choices}
}

// What a user has chosen is a number, and means the same for ever.
func TestChoices(t *testing.T) {
	refused := func(b *book.Book, want string, definitions ...definition.Definition) {
		t.Helper()
		if _, err := b.Next(book.Proposal{Definitions: definitions, InForce: 1, Zone: zone}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	first := next(t, &book.Book{}, choosing("post:*", "like", "dislike"))
	refused(first, `choices [dislike, like] would change the meaning of reactions to "post:*"`, choosing("post:*", "dislike", "like"))
	refused(first, "would change", choosing("post:*", "like"))
	refused(first, "would change", choosing("post:1", "dislike"))
	refused(first, "would change", choosing("po*", "yes", "no"))

	more := next(t, first, choosing("post:*", "like", "dislike", "wow"))
	if got := first.Changes(more); len(got) != 1 || got[0] != "post:*: choices are like, dislike, wow, not like, dislike" {
		t.Errorf("changes: %q", got)
	}
	if ids(more, "post:1")[0] != ids(first, "post:1")[0] {
		t.Error("a choice more begins a view anew")
	}

	// A pattern that is gone, or has none for a while, is remembered.
	none := next(t, more, definition.Definition{Pattern: "post:*", Ledger: definition.Ledger{Record: definition.All}})
	refused(none, "under [like, dislike, wow]", choosing("post:1*", "wow"))
	gone := next(t, none)
	if len(gone.Chosen) != 1 {
		t.Errorf("remembered: %v", gone.Chosen)
	}
	refused(gone, "would change", choosing("post:*", "like", "dislike"))
	back := next(t, gone, choosing("post:hot*", "like"), choosing("post:*", "like", "dislike", "wow", "hm"))
	if len(back.Chosen) != 0 {
		t.Errorf("remembered: %v", back.Chosen)
	}
	// Others are free.
	next(t, gone, choosing("pos", "yes"), choosing("a*", "yes"))
}

// The clock of once is in the book, as those of windows are.
func TestOnceZone(t *testing.T) {
	once := definition.Once{Every: window("1d", "", 0).Every, Zone: "Europe/Berlin"}
	b := next(t, &book.Book{}, definition.Definition{Pattern: "a", Once: once})
	if b.Zones["Europe/Berlin"] == nil {
		t.Error("no table")
	}
	once.Zone = ""
	second := next(t, b, definition.Definition{Pattern: "a", Once: once})
	if got := strings.Join(b.Changes(second), "; "); got != "a: users once in 1d begin now; a: users once in 1d in Europe/Berlin end" {
		t.Errorf("changes: %q", got)
	}
}
