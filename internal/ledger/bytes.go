package ledger

import (
	"encoding/binary"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// The bytes of a line are
//
//	format 1 | kind 1 | fields 1 | amount | and those of the fields that are there, in their order
//
// Numbers are varints, those that have no sign uvarints; a text is its length and its
// bytes; dimensions are their number, and of each name and value.
const format = 1

const (
	hasAt = 1 << iota
	hasToken
	hasActor
	hasReason
	hasSource
	hasDims
	hasUndoes
	isErased
)

// Append appends a line to those of an entry, after its length, or returns an error that
// says why it can't be written down.
func (l *Line) Append(dst []byte) ([]byte, error) {
	if err := l.Check(); err != nil {
		return dst, err
	}
	b := l.bytes()
	if len(b) > LineBytesMax {
		return dst, store.Errorf(store.KindTooLarge, "a line of the ledger has %d bytes, with token, actor, reason, source and dimensions: at most %d", len(b), LineBytesMax)
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...), nil
}

func (l *Line) bytes() []byte {
	fields := byte(0)
	mark := func(has bool, bit byte) bool {
		if has {
			fields |= bit
		}
		return has
	}
	b := make([]byte, 3, 64)
	b = binary.AppendVarint(b, l.Amount)
	if mark(l.AtMS != 0, hasAt) {
		b = binary.AppendUvarint(b, uint64(l.AtMS))
	}
	for i, text := range []string{l.Token, l.Actor, l.Reason, l.Source} {
		if mark(text != "", hasToken<<i) {
			b = appendText(b, text)
		}
	}
	if mark(len(l.Dims) > 0, hasDims) {
		b = binary.AppendUvarint(b, uint64(len(l.Dims)))
		for _, d := range l.Dims {
			b = appendText(appendText(b, d.Name), d.Value)
		}
	}
	if mark(l.Undoes != Position{}, hasUndoes) {
		b = binary.AppendUvarint(b, l.Undoes.Version)
		b = binary.AppendUvarint(b, uint64(l.Undoes.Line))
		b = binary.AppendUvarint(b, uint64(l.Undoes.Shard))
	}
	mark(l.Erased, isErased)
	b[0], b[1], b[2] = format, byte(l.Kind), fields
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// An Entry is what one step has written down.
type Entry struct {
	store.Stamp
	Lines []Line
}

// Delta returns by how much a line has changed the counter, and whether that is known. A
// step that knows it has one line; of several each was applied as it says.
func (e *Entry) Delta(line int) (n int64, known bool) {
	if e.Known && len(e.Lines) == 1 {
		return e.Change, true
	}
	l := &e.Lines[line]
	return l.Amount, l.Kind.Adds() || l.Kind.moves()
}

// ParseEntry returns what a part of kind store.PartEntries holds.
func ParseEntry(content string) (e Entry, err error) {
	stamp, rest, ok := store.CutStamp(content)
	if !ok {
		return Entry{}, corrupt("no stamp")
	}
	e.Stamp = stamp
	for r := (reader{b: rest}); r.b != ""; {
		one := reader{b: r.text()}
		if r.bad {
			return Entry{}, corrupt("a line of no such length")
		}
		l, err := one.line()
		if err != nil {
			return Entry{}, err
		}
		e.Lines = append(e.Lines, l)
	}
	return e, nil
}

// Append appends the bytes of an entry, as ParseEntry takes them.
func (e *Entry) Append(dst []byte) (_ []byte, err error) {
	dst = e.Stamp.Append(dst)
	for i := range e.Lines {
		if dst, err = e.Lines[i].Append(dst); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func corrupt(what string) error {
	return store.Errorf(store.KindCorrupt, "an entry of the ledger has %s", what)
}

// A reader takes bytes apart.
type reader struct {
	b   string
	bad bool // there was less than was asked for
}

func (r *reader) uvarint() uint64 {
	n, w := binary.Uvarint([]byte(r.b[:min(len(r.b), binary.MaxVarintLen64)]))
	if w <= 0 || w > 1 && r.b[w-1] == 0 { // or it has more bytes than it needs
		r.b, r.bad = "", true
		return 0
	}
	r.b = r.b[w:]
	return n
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) take(n uint64) string {
	if n > uint64(len(r.b)) {
		r.b, r.bad = "", true
		return ""
	}
	text := r.b[:n]
	r.b = r.b[n:]
	return text
}

func (r *reader) text() string { return r.take(r.uvarint()) }

// line returns the line that the bytes are, which must be as Append has made them.
func (r *reader) line() (l Line, err error) {
	whole := r.b
	head := r.take(3)
	if r.bad {
		return l, corrupt("a line that is cut off")
	}
	if head[0] > format {
		return l, store.Newer("a line of the ledger", int(head[0]), format)
	}
	l.Kind = Kind(head[1])
	fields := head[2]
	l.Amount = r.varint()
	if fields&hasAt != 0 {
		l.AtMS = int64(r.uvarint())
	}
	for i, text := range []*string{&l.Token, &l.Actor, &l.Reason, &l.Source} {
		if fields&(hasToken<<i) != 0 {
			*text = r.text()
		}
	}
	if fields&hasDims != 0 {
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			l.Dims = append(l.Dims, call.Dimension{Name: r.text(), Value: r.text()})
		}
	}
	if fields&hasUndoes != 0 {
		l.Undoes = Position{r.uvarint(), uint16(r.uvarint()), uint16(r.uvarint())}
	}
	l.Erased = fields&isErased != 0
	if r.bad || l.Check() != nil || string(l.bytes()) != whole {
		return l, corrupt("a line that is not as it was written")
	}
	return l, nil
}
