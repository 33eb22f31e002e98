package engine

import (
	"encoding/binary"

	"github.com/quipudb/quipu/internal/clock"
	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// This file alone knows the bytes of keys, log records and rows on disk.
// docs/formats/engine.md draws them.

// A cell's key is its namespace and its key:
//
//	0 | key                      namespace "default"
//	n | namespace of n bytes | key
//	255 | key                    the store's own namespace
//
// A part's is
//
//	254 | namespace | row        as store.AppendRow places it
const (
	defaultNamespace = "default"
	nsDefault        = 0
	nsPart           = 254
	nsOwn            = 255
	// In the store's own namespace a key may be a whole address and a number.
	cellBytesMax = 1 + store.NamespaceBytesMax + store.KeyBytesMax + 16
)

func appendNamespace(dst []byte, ns string) []byte {
	switch ns {
	case defaultNamespace:
		return append(dst, nsDefault)
	case "":
		return append(dst, nsOwn)
	default:
		return append(append(dst, byte(len(ns))), ns...)
	}
}

func appendCell(dst []byte, c store.Cell) []byte {
	return append(appendNamespace(dst, c.Namespace), c.Key...)
}

// namespaceLen returns how many bytes of a cell's key are its namespace, or 0
// if it is no cell's key.
func namespaceLen(cell []byte) int {
	n := 1
	if len(cell) > 0 && cell[0] != nsDefault && cell[0] != nsOwn {
		n += int(cell[0])
	}
	if n >= len(cell) {
		return 0
	}
	return n
}

func decodeCell(cell []byte) store.Cell {
	n := namespaceLen(cell)
	return store.Cell{Namespace: decodeNamespaceOf(cell[:n]), Key: string(cell[n:])}
}

// appendPart appends the key of a part of a cell.
func appendPart(dst []byte, c store.Cell, p store.Part) []byte {
	of, _, ok := store.ShardOf(c)
	if !ok {
		of = c
	}
	if p.Kind().Shared() {
		of.Namespace = store.SpaceOf(c)
	}
	dst = appendNamespace(append(dst, nsPart), of.Namespace)
	_, dst = store.AppendRow(dst, c, p)
	return dst
}

// isPart reports whether a key is a part's, and not a cell's.
func isPart(key []byte) bool { return key[0] == nsPart }

// partRow returns where the row begins in the key of a part; 0 if it is none.
func partRow(key []byte) int {
	if len(key) < 2 || !isPart(key) {
		return 0
	}
	n := namespaceLen(key[1:])
	if n == 0 {
		return 0
	}
	return 1 + n
}

// kindOf returns the kind of a part, by its key.
func kindOf(key []byte) store.PartKind { return store.PartKind(key[partRow(key)]) }

func decodePart(key []byte) (c store.Cell, p store.Part, ok bool) {
	n := partRow(key)
	if n == 0 {
		return store.Cell{}, "", false
	}
	return store.PartOfRow(decodeNamespaceOf(key[1:n]), key[n:])
}

// decodeNamespaceOf returns the namespace that a cell's key begins with.
func decodeNamespaceOf(prefix []byte) string {
	switch prefix[0] {
	case nsDefault:
		return defaultNamespace
	case nsOwn:
		return ""
	default:
		return string(prefix[1:])
	}
}

// A token's key is the length of its cell's key, that key, and the token.
func appendToken(dst, cell []byte, token string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cell)))
	return append(append(dst, cell...), token...)
}

// tokenCell returns the cell's part of a token's key.
func tokenCell(key []byte) ([]byte, bool) {
	n, w := binary.Uvarint(key)
	if w <= 0 || n > min(uint64(len(key)-w), cellBytesMax) || len(key)-w-int(n) > store.TokenBytesMax {
		return nil, false
	}
	return key[w : w+int(n)], true
}

// tokenBytes is the size of a token's record.
const tokenBytes = 50

// tokenWant is set in the byte of a token's operation if it wanted the value.
const tokenWant = 0x80

func appendTokenRecord(dst []byte, t *decide.Token) []byte {
	outcome, flags := store.Applied, byte(t.Op)
	r := &t.Result
	last := r.Version
	switch {
	case t.Settled:
		outcome = store.Settled
	case t.Refused():
		outcome, last = r.Outcome, uint64(r.Refused)
	}
	if t.Want {
		flags |= tokenWant
	}
	dst = append(dst, byte(outcome), flags)
	for _, v := range [...]uint64{uint64(t.N), t.Digest, uint64(t.AtMS), uint64(r.Before), uint64(r.After), last} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func decodeToken(b []byte) (decide.Token, bool) {
	if len(b) < tokenBytes {
		return decide.Token{}, false
	}
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(b[2+8*i:]) }
	outcome := store.Outcome(b[0])
	t := decide.Token{
		Settled: outcome == store.Settled, Op: store.Op(b[1] &^ tokenWant), Want: b[1]&tokenWant != 0,
		N: int64(u(0)), Digest: u(1), AtMS: int64(u(2)),
		Result: store.Result{Outcome: outcome, Before: int64(u(3)), After: int64(u(4))},
	}
	switch outcome {
	case store.Applied, store.Settled:
		t.Result.Version = u(5)
	case store.Unmet, store.Bounded:
		t.Result.Refused = uint8(u(5))
		return t, u(5) <= store.EventRidersMax
	default:
		return t, false
	}
	return t, true
}

// The kinds of log records. They are stored: append only.
const (
	recTime       = 1  // ms: the time of the records that follow
	recAdd        = 2  // cell, delta
	recSet        = 3  // cell, value
	recDelete     = 4  // cell
	recToken      = 5  // cell, token, record
	recBegin      = 6  // writer: the records up to its mark are this writer's
	recMark       = 7  // seq, digest, results
	recRetire     = 8  // floor
	recTokenAgain = 9  // like recToken, for a token that is still counted though it was forgotten
	recAgain      = 10 // delta: an add to the cell of the add just before it in the frame
	recSkip       = 11 // n: versions from here on are higher by n
	recDeadline   = 12 // cell, deadline in ms, 0 for none
	recLayout     = 13 // cell, layout, 0 for none

	// Those of format 2.
	recPlan       = 14 // parts: what follows them names them by their number, from 0 on in each frame
	recEvent      = 15 // cell, plan, delta: an add to the cell and to the parts of a plan
	recEventAgain = 16 // delta: the same, with cell and plan of the event just before it in the frame
	recPart       = 17 // part, operation: of the cell of the add or delete before it in the frame
	recBook       = 18 // namespace, id: the highest book seen
	recFloor      = 19 // namespace, kind, view, epoch: the first that is kept

	// Those of format 3.
	recAsk    = 20 // bytes: what the merges that follow in the frame ask of sketches
	recObject = 21 // cell, deadline in ms, 0 for none: it is an object, whose bytes are a part that follows if they change
	recLane   = 22 // cell: the parts that follow in the frame are beside this lane, up to the next cell
)

// The change of a part, in a recPart.
const (
	partAdd    = 1 // varint by how much
	partDelete = 2 // varint what it was
	partPut    = 3 // varint what it was, its new bytes

	// Of format 3.
	partMerge = 4 // varint by how much: by what the recAsk before it asks

	// Of format 4.
	partTake = 5 // varint by how much its registers rise: by what the recAsk before it asks
)

// appendPlan appends a plan that only adds.
func appendPlan(dst []byte, parts []store.Part) []byte {
	dst = binary.AppendUvarint(append(dst, recPlan), uint64(len(parts)))
	for _, p := range parts {
		dst = append(binary.AppendUvarint(dst, uint64(len(p))), p...)
	}
	return dst
}

func appendPartRecord(dst []byte, p store.Part, op byte, n int64) []byte {
	dst = binary.AppendUvarint(append(dst, recPart), uint64(len(p)))
	return binary.AppendVarint(append(append(dst, p...), op), n)
}

func appendAsk(dst, asks []byte) []byte {
	return append(binary.AppendUvarint(append(dst, recAsk), uint64(len(asks))), asks...)
}

func appendBook(dst []byte, b store.Book) []byte {
	dst = appendNamespace(append(dst, recBook), b.Namespace)
	return binary.AppendUvarint(dst, uint64(b.ID))
}

func appendFloor(dst []byte, f store.Floor) []byte {
	return append(append(dst, recFloor), appendEpoch(nil, decide.Shelf{Namespace: f.Namespace, Kind: f.Kind, View: f.View}, f.Epoch)...)
}

// An epoch is where its rows are: namespace, kind, view and its number.
func appendEpoch(dst []byte, s decide.Shelf, e store.Epoch) []byte {
	return binary.BigEndian.AppendUint32(appendShelf(dst, s), uint32(e))
}

func appendShelf(dst []byte, s decide.Shelf) []byte {
	dst = append(appendNamespace(dst, s.Namespace), byte(s.Kind))
	return binary.BigEndian.AppendUint16(dst, s.View)
}

func appendObject(dst, cell []byte, deadline int64) []byte {
	return binary.AppendUvarint(appendCellRecord(dst, recObject, cell), uint64(deadline))
}

func appendCellRecord(dst []byte, kind byte, cell []byte) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(len(cell)))
	return append(dst, cell...)
}

// resultForgotten is beside the rider that refused, if the token does not remember it.
const resultForgotten = 1 << 8

// appendResults encodes the results of a batch: for each its outcome and, if it
// has them, its values, and how far its version is from the one before, which
// is a byte or two, since versions are, more or less, positions in the log.
func appendResults(dst []byte, results []store.Result) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(results)))
	last := uint64(0)
	for i := range results {
		r := &results[i]
		flags := byte(r.Outcome) << 4
		if r.Existed {
			flags |= 4
		}
		if r.DeadlineMS != 0 {
			flags |= 8
		}
		if r.Before != 0 || r.After != 0 {
			flags |= 1
		}
		refusal := uint64(r.Refused)
		if r.Forgotten {
			refusal |= resultForgotten
		}
		if r.Version != 0 || r.Outcome != store.Applied && refusal != 0 {
			flags |= 2
		}
		dst = append(dst, flags)
		if flags&1 != 0 {
			dst = binary.AppendVarint(dst, r.Before)
			dst = binary.AppendVarint(dst, r.After)
		}
		switch {
		case flags&2 == 0:
		case r.Outcome == store.Applied:
			dst = binary.AppendVarint(dst, int64(r.Version-last))
			last = r.Version
		default: // it has no version
			dst = binary.AppendUvarint(dst, refusal)
		}
		if flags&8 != 0 {
			dst = binary.AppendVarint(dst, r.DeadlineMS)
		}
	}
	return dst
}

// A reader decodes a row or a record. After a short or wrong read bad is set
// and every value is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() {
	r.b, r.bad = nil, true
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// positive reads a uvarint that is an int64 above 0.
func (r *reader) positive() int64 {
	v := int64(r.uvarint())
	if v <= 0 {
		r.fail()
		return 0
	}
	return v
}

// until reads the deadline of an object.
func (r *reader) until() int64 {
	ms := r.uvarint()
	if ms > store.ObjectDeadlineMax {
		r.fail()
		return 0
	}
	return int64(ms)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed() uint64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) cell() []byte {
	b := r.bytes(r.uvarint())
	if namespaceLen(b) == 0 || len(b) > cellBytesMax {
		r.fail()
		return nil
	}
	return b
}

// part reads a part, which is valid.
func (r *reader) part() store.Part {
	p := store.Part(r.bytes(r.uvarint()))
	if _, ok := p.Fields(); !ok {
		r.fail()
		return ""
	}
	return p
}

// plan reads the parts of a plan.
func (r *reader) plan() []store.Part {
	n := r.uvarint()
	if n > bundlePartsMax {
		r.fail()
		return nil
	}
	parts := make([]store.Part, n)
	for i := range parts {
		if parts[i] = r.part(); !isViewed(parts[i].Kind()) {
			r.fail()
		}
	}
	return parts
}

// A partChange is what a recPart says.
type partChange struct {
	part store.Part
	op   byte
	n    int64
	put  []byte
}

func (r *reader) partChange() partChange {
	c := partChange{part: r.part(), op: r.byte(), n: r.varint()}
	switch {
	case c.op == partAdd && !c.part.Kind().HasBytes(), c.op == partDelete:
	case c.op == partMerge && (c.part.Kind().IsSketch() || c.part.Kind() == store.PartObject):
	case c.op == partTake && c.part.Kind() == store.PartObject:
	case c.op == partPut && c.part.Kind().HasBytes():
		c.put = r.bytes(r.uvarint())
	default:
		r.fail()
	}
	return c
}

// namespace reads a namespace of callers.
func (r *reader) namespace() string {
	if len(r.b) == 0 || r.b[0] == nsOwn || r.b[0] > store.NamespaceBytesMax {
		r.fail()
		return ""
	}
	b := r.bytes(1 + uint64(r.b[0]))
	if r.bad {
		return ""
	}
	return decodeNamespaceOf(b)
}

func (r *reader) book() store.Book {
	return store.Book{Namespace: r.namespace(), ID: r.positive()}
}

func (r *reader) shelf() decide.Shelf {
	s := decide.Shelf{Namespace: r.namespace()}
	if b := r.bytes(3); b != nil {
		s.Kind, s.View = store.PartKind(b[0]), binary.BigEndian.Uint16(b[1:])
	}
	if s.Kind&store.PartRetained == 0 {
		r.fail()
	}
	return s
}

func (r *reader) epoch() store.Epoch {
	b := r.bytes(4)
	if b == nil {
		return 0
	}
	return store.Epoch(binary.BigEndian.Uint32(b))
}

func (r *reader) results() []store.Result {
	n := r.uvarint()
	if n > store.BatchDeltasMax {
		r.fail()
		return nil
	}
	results := make([]store.Result, n)
	last := uint64(0)
	for i := range results {
		flags := r.byte()
		results[i].Outcome = store.Outcome(flags >> 4)
		results[i].Existed = flags&4 != 0
		if flags&1 != 0 {
			results[i].Before, results[i].After = r.varint(), r.varint()
		}
		switch {
		case flags&2 == 0:
		case results[i].Outcome == store.Applied:
			last += uint64(r.varint())
			results[i].Version = last
		default:
			refusal := r.uvarint()
			results[i].Refused, results[i].Forgotten = uint8(refusal), refusal&resultForgotten != 0
			if refusal&^(resultForgotten|0xff) != 0 {
				r.fail()
			}
		}
		if flags&8 != 0 {
			results[i].DeadlineMS = r.varint()
		}
	}
	return results
}

// The rows on disk, by the first byte of their key.
const (
	rowBook      = 'b' // + namespace: the highest book seen
	rowCell      = 'c' // + cell: value, version, deadline or layout if it has one
	rowDeadline  = 'd' // + deadline, big endian, + cell: it may expire then
	rowEpoch     = 'e' // + epoch: its tally
	rowFloor     = 'f' // + shelf: the first epoch that is kept
	rowNear      = 'n' // + key of a cell or a part: it must be read before it is changed
	rowPart      = 'p' // + namespace and row: value or bytes
	rowToken     = 't' // + token key: record
	rowMark      = 'w' // + writer, big endian: mark
	rowNamespace = 's' // + namespace: number of keys and tokens
	rowMeta      = 'm' // see metaRow
)

// A row is a cell as the disk has it.
type row struct {
	exists  bool
	value   int64
	version uint64
	extra   extra
	bytes   *string // of a part that has bytes
}

// decodePartRow decodes the row of a part.
func decodePartRow(key, b []byte) (row, bool) {
	if k := kindOf(key); k.HasBytes() {
		bytes := string(b)
		return row{exists: true, value: k.Number(b), bytes: &bytes}, len(b) <= partBytesMax
	}
	r := reader{b: b}
	c := row{exists: true, value: r.varint()}
	return c, !r.bad && len(r.b) == 0
}

// partBytesMax is what a part may hold, with a stamp before it.
const partBytesMax = store.PartBytesMax + 3*binary.MaxVarintLen64 + 1

func (r *row) append(dst []byte) []byte {
	dst = binary.AppendUvarint(binary.AppendVarint(dst, r.value), r.version)
	switch {
	case r.extra > 0:
		dst = binary.AppendUvarint(dst, uint64(r.extra))
	case r.extra < 0: // no deadline is 0
		dst = binary.AppendUvarint(append(dst, 0), uint64(-r.extra))
	}
	return dst
}

func decodeRow(b []byte) (row, bool) {
	r := reader{b: b}
	c := row{exists: true, value: r.varint(), version: r.uvarint()}
	if len(r.b) > 0 {
		if r.b[0] != 0 {
			c.extra = extra(r.positive())
		} else { // no deadline is 0
			r.byte()
			c.extra = -extra(r.positive())
		}
	}
	return c, !r.bad && len(r.b) == 0
}

// The key of a deadline's row is the deadline and the cell.
func appendDeadline(dst []byte, deadline int64, cell []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, uint64(deadline)), cell...)
}

func decodeDeadline(key []byte) (deadline int64, cell []byte, ok bool) {
	if len(key) < 8 {
		return 0, nil, false
	}
	deadline, cell = int64(binary.BigEndian.Uint64(key)), key[8:]
	return deadline, cell, deadline > 0 && namespaceLen(cell) > 0
}

// A metaRow is what a checkpoint says of the store as a whole.
type metaRow struct {
	id       storeID
	position wal.Position
	timeMS   int64
	floor    store.Writer
	skipped  uint64 // versions
	lost     []span // of versions; at the end of rows that had none once
	gaps     clock.Gaps
}

func (m *metaRow) append(dst []byte) []byte {
	dst = append(dst, m.id[:]...)
	dst = binary.AppendUvarint(dst, uint64(m.position))
	dst = binary.AppendUvarint(dst, uint64(m.timeMS))
	dst = binary.AppendUvarint(dst, uint64(m.floor))
	dst = binary.AppendUvarint(dst, m.skipped)
	dst = appendSpans(dst, m.lost)
	for _, g := range m.gaps { // up to the end of the row
		dst = binary.AppendUvarint(dst, uint64(g.AtMS))
		dst = binary.AppendUvarint(dst, uint64(g.ByMS))
	}
	return dst
}

func decodeMeta(b []byte) (m metaRow, ok bool) {
	r := reader{b: b}
	copy(m.id[:], r.bytes(uint64(len(m.id))))
	m.position = wal.Position(r.uvarint())
	m.timeMS = int64(r.uvarint())
	m.floor = store.Writer(r.uvarint())
	m.skipped = r.uvarint()
	m.lost = r.spans()
	for len(r.b) > 0 && !r.bad {
		m.gaps = append(m.gaps, clock.Gap{AtMS: int64(r.uvarint()), ByMS: int64(r.uvarint())})
	}
	return m, !r.bad
}

// Spans are their number, and for each how far it begins after the one before, and
// how long it is.
func appendSpans(dst []byte, spans []span) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	at := uint64(0)
	for _, s := range spans {
		dst = binary.AppendUvarint(dst, s.from-at)
		dst = binary.AppendUvarint(dst, s.to-s.from)
		at = s.to
	}
	return dst
}

// spans reads what appendSpans wrote, at the end of a row that had none once.
func (r *reader) spans() (spans []span) {
	if len(r.b) == 0 {
		return nil
	}
	n := r.uvarint()
	if n > lostMax {
		r.fail()
	}
	at := uint64(0)
	for range n {
		if r.bad {
			return nil
		}
		s := span{from: at + r.uvarint()}
		s.to = s.from + r.uvarint()
		spans = append(spans, s)
		at = s.to
	}
	return spans
}
