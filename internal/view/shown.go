package view

import (
	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// A Shown is a view as those see it who read its parts.
type Shown struct {
	View      book.View
	Kind      store.PartKind
	Grid      calendar.Grid // of a view that has windows; else the zero Grid
	Keep      int64         // how long after the end of a window, or for a line; 0 is for ever
	Dimension int           // or NoDimension
	Sums      bool          // its parts, and what is outside of it, add up to the total
	Top       int           // a list in Views.Tops, from 1 on; 0 is none
}

// ListsWindows reports whether s has the windows of a top list.
func (s *Shown) ListsWindows() bool { return s.Top != 0 && s.Kind&store.PartRetained != 0 }

// All returns all views.
func (v *Views) All() []Shown {
	all := make([]Shown, len(v.views))
	for i := range v.views {
		r := &v.views[i]
		all[i] = Shown{r.View, r.kind(), r.grid, r.keep, r.dimension, v.sums(r), r.top}
	}
	return all
}

// Ledger returns the view that has the lines of the ledger, if the definition has one.
func (v *Views) Ledger() (s Shown, ok bool) {
	for _, s := range v.All() {
		if s.Kind == store.PartEntries {
			return s, true
		}
	}
	return Shown{}, false
}
