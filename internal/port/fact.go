package port

import (
	"cmp"
	"slices"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// A Fact is what a caller says of a write beyond its delta. It travels beside the delta to
// where the definitions of the counter are known: what they ask for becomes the riders of
// the delta's event, and all else is dropped. The zero Fact says nothing.
type Fact struct {
	AtMS int64            // when it happened, in Unix milliseconds; 0 is the store's time
	Dims []call.Dimension // no name twice
	Who  string           // who did what is counted

	// Of a line in the ledger. Kind is 0 for what the operation says; an Adjust or an Undo
	// is written down whatever the definitions ask for. Actor is Who if it is empty.
	Kind          ledger.Kind
	Actor, Reason string

	Undoes *Undone // of an Undo

	hold *act // of a step in the life of a reservation

	React Reacting // of a reaction, whose user is Who

	Unite []string // users who are taken into sketches without being counted: the delta is an OpMerge
}

// Undone is the line that an Undo takes back.
type Undone struct {
	Entry store.PartFields // that has it
	Line  uint16           // among those of the entry
}

// mark returns the part that says that the line was taken back: once it is there, nobody
// takes it back again, as long as the ledger has it.
func (u *Undone) mark() store.Part {
	f := u.Entry
	f.Name = ledger.UndoName(u.Line)
	return f.Part()
}

// position returns where the line is. Lines that have tokens are with the counter's home.
func (u *Undone) position() ledger.Position {
	return ledger.Position{Version: uint64(u.Entry.Position), Line: u.Line}
}

// dims returns the values that an event is counted by. What is taken back may have been
// counted by dimensions that its counter has no more.
func (f *Fact) dims(keys *books.Keys) []call.Dimension {
	if f.Undoes == nil {
		return f.Dims
	}
	return slices.DeleteFunc(slices.Clone(f.Dims), func(d call.Dimension) bool { return !keys.Declares(d.Name) })
}

// always reports whether a line is written down whatever the definitions ask for.
func (f *Fact) always() bool { return f.Kind == ledger.Adjust || f.Kind == ledger.Undo }

// line returns the line of a delta that has the fact.
func (f *Fact) line(d *store.Delta) ledger.Line {
	l := ledger.Line{
		Kind: f.Kind, Amount: d.N, AtMS: f.AtMS, Token: d.Guard.Token, Actor: f.Actor, Reason: f.Reason,
		Dims: inOrder(f.Dims),
	}
	if l.Actor == "" {
		l.Actor = f.Who
	}
	if f.Undoes != nil {
		l.Undoes = f.Undoes.position()
	}
	if l.Kind == 0 {
		switch f.React.Kind {
		case Chooses:
			l.Kind, l.Amount = ledger.React, 0 // The entry says by how much the counter changed.
		case Leaves:
			l.Kind, l.Amount = ledger.Unreact, 0
		}
		if f.React.Nameless {
			l.Actor, l.Erased = "", true
		}
		if l.Kind != 0 {
			return l
		}
		switch d.Op {
		case store.OpSet:
			l.Kind = ledger.Set
		case store.OpDelete:
			l.Kind = ledger.Delete
		default:
			l.Kind = ledger.Add
		}
	}
	return l
}

// inOrder returns dimensions in the order of their names.
func inOrder(dims []call.Dimension) []call.Dimension {
	byName := func(a, b call.Dimension) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(dims, byName) {
		dims = slices.Clone(dims)
		slices.SortFunc(dims, byName)
	}
	return dims
}
