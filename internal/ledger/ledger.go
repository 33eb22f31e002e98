// Package ledger encodes the lines of ledgers. A store keeps the lines that one
// step wrote as one entry: a part that holds a store.Stamp and then each line
// after its length. Only this package knows these bytes.
package ledger

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// LineBytesMax is how long a line may be, without its length.
const LineBytesMax = 4 << 10

// A Line is one change of a counter, written down.
type Line struct {
	Kind   Kind
	Amount int64 // what was to be added; of a Set, the value
	AtMS   int64 // when it happened, in Unix milliseconds; 0 is when it was written down

	Token  string // that named the write
	Actor  string // who did it
	Erased bool   // the actor was named once, and is not any more
	Reason string
	Source string // where it came from, such as a door

	Dims   []call.Dimension // in the order of their names
	Undoes Position         // of an Undo: the line that it takes back
}

// A Kind is what a line is about.
type Kind uint8

// The kinds. They are stored: append only.
const (
	Add Kind = iota + 1
	Adjust
	Undo
	Set
	Reset
	Delete
	React   // a user made a choice
	Unreact // or took it back
	Reserve // what is reserved is not available any more
	Release // what was reserved is available again, or committed by the line beside it
	Commit

	kinds
)

// String returns the word for k.
func (k Kind) String() string {
	return [kinds]string{"", "add", "adjust", "undo", "set", "reset", "delete", "react", "unreact", "reserve", "release", "commit"}[k]
}

// Adds reports whether a line is an event, which views count. The others assign a value, or
// move it between what is available and what is reserved.
func (k Kind) Adds() bool { return k >= Add && k <= Undo || k == Commit || k.Reacts() }

// Reacts reports whether a line is a reaction: only its user can take it back.
func (k Kind) Reacts() bool { return k == React || k == Unreact }

// moves reports whether a line moves an amount between what is available and what is
// reserved.
func (k Kind) moves() bool { return k == Reserve || k == Release }

// A Position is where a line is, among those of its counter.
type Position struct {
	Version uint64 // of the step that wrote it
	Line    uint16 // among those of the step, from 0 on
	Shard   uint16 // of the counter
}

// String returns the position as text: version and line with a dot between them, and
// after another dot the shard, if it is not the first.
func (p Position) String() string {
	text := strconv.FormatUint(p.Version, 10) + "." + strconv.Itoa(int(p.Line))
	if p.Shard != 0 {
		text += "." + strconv.Itoa(int(p.Shard))
	}
	return text
}

// ParsePosition returns the position that a text names.
func ParsePosition(text string) (p Position, err error) {
	numbers := strings.Split(text, ".")
	bits := []int{64, 16, 16}
	for i, into := range []func(uint64){
		func(n uint64) { p.Version = n }, func(n uint64) { p.Line = uint16(n) }, func(n uint64) { p.Shard = uint16(n) },
	} {
		if i == 2 && len(numbers) == 2 {
			break
		}
		if i >= len(numbers) {
			return Position{}, badPosition(text)
		}
		n, err := strconv.ParseUint(numbers[i], 10, bits[i])
		if err != nil {
			return Position{}, badPosition(text)
		}
		into(n)
	}
	if p.String() != text {
		return Position{}, badPosition(text)
	}
	return p, nil
}

func badPosition(text string) error {
	return store.Errorf(store.KindInvalid, "position %.40q is not one that a line of a ledger has", text)
}

// UndoName returns the name of the part that says, beside an entry, that one of its lines
// was taken back. While it is there, nobody takes the line back again.
func UndoName(line uint16) string { return undoPrefix + strconv.Itoa(int(line)) }

const undoPrefix = "undo:"

// Undone returns which line of an entry is said to be taken back by a part with a name.
func Undone(name string) (line uint16, ok bool) {
	number, ok := strings.CutPrefix(name, undoPrefix)
	n, err := strconv.ParseUint(number, 10, 16)
	return uint16(n), ok && err == nil && UndoName(uint16(n)) == name
}

// Sorted returns values of dimensions in the order that a line has them in.
func Sorted(dims []call.Dimension) []call.Dimension {
	return slices.SortedFunc(slices.Values(dims), func(a, b call.Dimension) int { return cmp.Compare(a.Name, b.Name) })
}

// Check returns an error if l can't be written down.
func (l *Line) Check() error {
	switch {
	case l.Kind == 0 || l.Kind >= kinds:
		return store.Errorf(store.KindInvalid, "unknown kind %d of a line", l.Kind)
	case l.AtMS < 0:
		return store.Errorf(store.KindInvalid, "a line at %d: want 1970 or later", l.AtMS)
	case (l.Undoes != Position{}) != (l.Kind == Undo):
		return store.Errorf(store.KindInvalid, "a line of kind %s that takes back %s", l.Kind, l.Undoes)
	case l.Erased && l.Actor != "":
		return store.Errorf(store.KindInvalid, "a line with an erased actor names one")
	}
	for _, text := range []struct{ what, is string }{{"token", l.Token}, {"actor", l.Actor}, {"reason", l.Reason}, {"source", l.Source}} {
		if !utf8.ValidString(text.is) {
			return store.Errorf(store.KindInvalid, "%s is not UTF-8", text.what)
		}
	}
	for i, d := range l.Dims {
		if !utf8.ValidString(d.Name) || !utf8.ValidString(d.Value) || i > 0 && l.Dims[i-1].Name >= d.Name {
			return store.Errorf(store.KindInvalid, "dimension %q of a line: want UTF-8, in order, each once", d.Name)
		}
	}
	return nil
}
