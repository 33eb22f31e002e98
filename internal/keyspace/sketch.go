package keyspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/quipudb/quipu/internal/collection"
	"github.com/quipudb/quipu/internal/sketch"
)

// A key may hold a sketch: its bytes are the state, which begins with the kind of the sketch. One that
// is larger than a part is in pieces, and the key's bytes are its head:
//
//	headPieces | version 1 | kind | name 8 | pieces 2 | filter: strength 1, expansion 1, capacity 4
//	                                                  | frequencies: depth 1, flags 1, width 4
//
// Numbers are little-endian. The name tells the pieces from those of sketches that the key held before.
const (
	headPieces  = 5
	headVersion = 1
	headBytes   = 19

	headConservative = 1
)

// A head says what a sketch is that is in pieces, or whole: then it has one and no name.
type head struct {
	kind   sketch.Kind
	name   uint64
	pieces int
	filter sketch.FilterShape    // as it was asked for
	counts sketch.FrequencyShape // as it was asked for
	piece  sketch.FilterShape    // of one
	part   sketch.FrequencyShape // of one
}

func (h *head) bytes() string {
	b := append(make([]byte, 0, headBytes), headPieces, headVersion, byte(h.kind))
	b = binary.LittleEndian.AppendUint64(b, h.name)
	b = binary.LittleEndian.AppendUint16(b, uint16(h.pieces))
	if h.kind == sketch.KindFilter {
		b = append(b, byte(h.filter.Strength), byte(h.filter.Expansion))
		return string(binary.LittleEndian.AppendUint32(b, uint32(h.filter.Capacity)))
	}
	flags := byte(0)
	if h.counts.Conservative {
		flags = headConservative
	}
	b = append(b, byte(h.counts.Depth), flags)
	return string(binary.LittleEndian.AppendUint32(b, uint32(h.counts.Width)))
}

// headOf returns what a sketch is, by the bytes of its key; ok is false if they are none.
func headOf(bytes string) (h head, ok bool) {
	if bytes == "" {
		return h, false
	}
	h.kind, h.pieces = sketch.Kind(bytes[0]), 1
	switch {
	case h.kind == sketch.KindUnique, h.kind == sketch.KindTop:
		return h, true
	case h.kind == sketch.KindFilter:
		h.filter, ok = sketch.FilterShapeOf(bytes)
		h.piece = h.filter
		return h, ok
	case h.kind == sketch.KindFrequency:
		h.counts, ok = sketch.FrequencyShapeOf(bytes)
		h.part = h.counts
		return h, ok
	case len(bytes) != headBytes || bytes[0] != headPieces || bytes[1] != headVersion:
		return h, false
	}
	b := []byte(bytes)
	var err error
	h.kind, h.name = sketch.Kind(b[2]), binary.LittleEndian.Uint64(b[3:])
	one, two, four := int(b[13]), int(b[14]), int(binary.LittleEndian.Uint32(b[15:]))
	switch h.kind {
	case sketch.KindFilter:
		h.filter = sketch.FilterShape{Strength: one, Expansion: two, Capacity: four}
		h.pieces, h.piece, err = h.filter.Chunks()
	case sketch.KindFrequency:
		h.counts = sketch.FrequencyShape{Depth: one, Conservative: two == headConservative, Width: four}
		h.pieces, h.part, err = h.counts.Chunks()
	default:
		return h, false
	}
	return h, err == nil && h.pieces > 1 && h.pieces == int(binary.LittleEndian.Uint16(b[11:])) && h.bytes() == bytes
}

// PiecesOf returns what the pieces of a sketch are named, and how many it may have; ok is false
// if the bytes of the key are not the head of one.
func PiecesOf(bytes string) (name string, pieces int, ok bool) {
	h, ok := headOf(bytes)
	if !ok || h.pieces == 1 {
		return "", 0, false
	}
	return h.named(), h.pieces, true
}

func (h *head) named() string { return fmt.Sprintf("%016x", h.name) }

// Hold returns the value of a key that holds some bytes; ok is false if nobody here knows what
// they are.
func Hold(bytes string) (v Value, ok bool) {
	if text, ok := Text(bytes); ok {
		return Value{Exists: true, IsText: true, Text: text}, true
	}
	if _, ok := headOf(bytes); !ok {
		if _, ok := collection.KindOf(bytes); !ok {
			return Value{}, false
		}
	}
	return Value{Exists: true, Held: bytes}, true
}

// Type returns what TYPE calls a value.
func (v Value) Type() string {
	if v.Held == "" {
		return "string"
	}
	switch collection.Kind(v.Held[0]) {
	case collection.KindHash:
		return "hash"
	case collection.KindSorted:
		return "zset"
	}
	h, _ := headOf(v.Held)
	switch h.kind {
	case sketch.KindFilter:
		return "MBbloom--"
	case sketch.KindFrequency:
		return "CMSk-TYPE"
	case sketch.KindTop:
		return "TopK-TYPE"
	default:
		return "string"
	}
}

// A Piece is what becomes of a piece of a sketch: what is asked of it, or if that is nil all of it.
type Piece struct {
	Index int
	Asks  []byte
	State string
}

// A piece is a part of a sketch that was looked at.
type piece struct {
	is      string
	asks    []byte // all that has changed it, if that is one request
	changed bool
}

// errPieces is why a sketch in pieces stays where it is.
const errPieces = "ERR the sketch is too large to be renamed or copied"

// A body is a sketch that a command works on. Its pieces are looked at by load.
type body struct {
	head
	s       *Space
	e       *entry
	written int // bytes of pieces that are to be
}

// body returns the sketch of a kind that a key holds; wrong says why there is none.
func (s *Space) body(key []byte, kind sketch.Kind, absent string) (b body, wrong string) {
	b = body{s: s, e: s.at(key)}
	switch {
	case !b.e.is.Exists:
		return b, absent
	case b.e.is.Held == "":
		return b, errWrongType
	}
	b.head, _ = headOf(b.e.is.Held)
	if b.kind != kind {
		return b, errWrongType
	}
	return b, ""
}

// pieceOf returns which piece has an item.
func (b *body) pieceOf(hash uint64) int {
	if b.pieces == 1 {
		return 0
	}
	return sketch.ChunkOf(hash, b.pieces)
}

// load looks at pieces, if that was not done yet.
func (b *body) load(indexes []int) {
	if b.pieces == 1 {
		return
	}
	if b.e.pieces == nil {
		b.e.pieces = make(map[int]*piece)
	}
	var more []int
	for _, i := range indexes {
		if b.e.pieces[i] == nil {
			b.e.pieces[i] = &piece{}
			more = append(more, i)
		}
	}
	if len(more) == 0 || b.s.fault != nil || b.e.fresh {
		return
	}
	if b.s.Pieces == nil {
		b.s.fault = errors.New("keyspace: nobody reads pieces")
		return
	}
	states, err := b.s.Pieces(b.e.key, b.named(), more)
	if err != nil {
		b.s.fault = err
		return
	}
	for n, i := range more {
		b.e.pieces[i].is = states[n]
	}
}

// atOnce is how many pieces are looked at together by those who look at many.
const atOnce = 16

// holding calls f while pieces are loaded. Those that nothing else has looked at are forgotten again.
func (b *body) holding(some []int, f func() error) error {
	var more []int
	for _, i := range some {
		if b.pieces > 1 && b.e.pieces[i] == nil {
			more = append(more, i)
		}
	}
	if b.load(some); b.s.fault != nil {
		return b.s.fault
	}
	err := f()
	for _, i := range more {
		delete(b.e.pieces, i)
	}
	return err
}

// visit looks at pieces, a few at a time, and calls f for each. It ends at the first error.
func (b *body) visit(indexes []int, f func(i int) error) error {
	for some := range slices.Chunk(indexes, atOnce) {
		if err := b.holding(some, func() error {
			for _, i := range some {
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for each piece to which something has come, in their order.
func (b *body) each(f func(state string)) {
	all := make([]int, b.pieces)
	for i := range all {
		all[i] = i
	}
	_ = b.visit(all, func(i int) error { // The Space keeps why a piece could not be loaded.
		if state := b.state(i); state != "" {
			f(state)
		}
		return nil
	})
}

// state returns a piece that was loaded; "" if nothing has come to it yet.
func (b *body) state(i int) string {
	if b.pieces == 1 {
		return b.e.is.Held
	}
	return b.e.pieces[i].is
}

// A becoming is what a piece is to be: what is asked of it, or if that is nil all of it.
type becoming struct {
	asks []byte
	next string
	same bool // it stays as it is
}

// stepBytesMax is how much one command may write of pieces: all that it changes is one batch.
const stepBytesMax = 3 << 20

// pieceBytes is what a piece counts for in a batch besides what is asked of it.
const pieceBytes = 1 << 10

// errStep is the error of a command that would write more.
var errStep = errors.New("the items change more of the sketch than fits into one step: send fewer items in a call")

// next returns what a piece that was loaded is to be.
func (b *body) next(i int, asks, next []byte) (is becoming, err error) {
	if string(next) == b.state(i) {
		return becoming{same: true}, nil
	}
	if b.pieces == 1 {
		return becoming{asks: asks, next: string(next)}, nil
	}
	if p := b.e.pieces[i]; p.changed { // Requests that are joined may come to something else than one after the other.
		asks = nil
	}
	written := pieceBytes + len(asks)
	if asks == nil {
		written = len(next)
	}
	if b.written += written; b.written > stepBytesMax {
		return is, errStep
	}
	if is.asks = asks; asks == nil || !b.s.Single {
		is.next = string(next)
	}
	return is, nil
}

// become makes a piece what it is to be.
func (b *body) become(i int, is becoming) {
	switch {
	case is.same:
	case b.pieces == 1:
		b.e.become(is.asks, is.next)
	default:
		b.e.pieces[i] = &piece{is: is.next, asks: is.asks, changed: true}
	}
}

// become makes a whole sketch another one, and keeps its deadline.
func (e *entry) become(asks []byte, next string) {
	if e.anew || e.asks != nil || asks == nil || !e.is.Exists && e.was.Exists {
		e.edit(Value{Exists: true, Held: next})
		return
	}
	e.is.Exists, e.is.Held, e.asks = true, next, asks
}

// make makes a key a sketch in pieces that has none yet, or a whole one.
func (b *body) make(h head) {
	b.head = h
	if h.pieces == 1 {
		return
	}
	b.s.named++
	b.name = b.s.Seed + b.s.named
	b.e.assign(Value{Exists: true, Held: b.bytes()}, 0)
	b.e.fresh = true
}

// changes returns what has become of the pieces of a key, by their index.
func (e *entry) changes() (all []Piece) {
	for i, p := range e.pieces {
		if p.changed {
			all = append(all, Piece{Index: i, Asks: p.asks, State: p.is})
		}
	}
	slices.SortFunc(all, func(a, b Piece) int { return a.Index - b.Index })
	return all
}

// inPieces reports whether a key holds a sketch whose pieces are parts of the key.
func (e *entry) inPieces() bool {
	_, _, pieces := PiecesOf(e.is.Held)
	return pieces
}
