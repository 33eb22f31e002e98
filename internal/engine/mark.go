package engine

import (
	"bytes"
	"encoding/binary"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A mark is the last batch applied from a writer, and the sums of everything
// applied under it. Writer 0 stands for the writes that have no writer, and
// for the writers that were retired.
type mark struct {
	seq     uint64
	digest  uint64
	results []byte // of that batch, as appendResults encodes them
	tally   tally
	dirty   bool // changed since the last checkpoint began
}

// A tally is a record of what was applied that is kept apart from the cells:
// how many changes there were, by how much they changed all cells together,
// and a checksum of which cells they changed by how much. All three are sums,
// modulo 2^64, so that a change to a cell nobody has read is in them too. The
// sums over the cells equal the sums over the tallies, or something changed a
// cell behind the log's back.
type tally struct {
	deltas uint64
	sum    uint64
	check  uint64
}

// count adds one change of a cell, whose key has this hash.
func (t *tally) count(hash uint64, change int64) {
	t.deltas++
	t.cell(hash, change)
}

// cell adds what a cell's value contributes.
func (t *tally) cell(hash uint64, value int64) {
	t.sum += uint64(value)
	t.check += uint64(value) * (hash | 1)
}

func (t *tally) add(o tally) {
	t.deltas += o.deltas
	t.sum += o.sum
	t.check += o.check
}

// row returns what the disk has of a mark.
func (m *mark) row() []byte {
	dst := binary.AppendUvarint(nil, m.seq)
	for _, v := range [...]uint64{m.digest, m.tally.deltas, m.tally.sum, m.tally.check} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	if len(m.results) == 0 {
		return appendResults(dst, nil)
	}
	return append(dst, m.results...)
}

func decodeMark(b []byte) (*mark, bool) {
	r := reader{b: b}
	m := &mark{seq: r.uvarint(), digest: r.fixed()}
	m.tally = tally{deltas: r.fixed(), sum: r.fixed(), check: r.fixed()}
	m.results = bytes.Clone(r.b)
	r.results()
	return m, !r.bad && len(r.b) == 0
}

// marks are the writers a partition knows.
type marks struct {
	own   *mark // of[0]
	of    map[store.Writer]*mark
	floor store.Writer // writers up to here were retired
}

func newMarks() marks {
	own := &mark{}
	return marks{own: own, of: map[store.Writer]*mark{0: own}}
}

// load takes a mark from disk.
func (ms *marks) load(w store.Writer, m *mark) {
	ms.of[w] = m
	ms.own = ms.of[0]
}

// verdict returns the mark of a batch's writer, nil if it has none yet, and whether
// the batch is a repeat; or why it can't be applied.
func (ms *marks) verdict(b *store.Batch, digest uint64, writersMax int) (m *mark, repeat bool, err error) {
	if b.Writer == 0 {
		return ms.own, false, nil
	}
	last := decide.Mark{}
	if m = ms.of[b.Writer]; m != nil {
		last.Seq, last.Digest = m.seq, m.digest
	} else if err := decide.Admit(b.Writer, ms.floor, len(ms.of)-1, writersMax); err != nil { // one is nobody's
		return nil, false, err
	}
	repeat, err = last.Follows(b, digest)
	return m, repeat, err
}

// get returns a writer's mark, and makes it if need be.
func (ms *marks) get(w store.Writer) *mark {
	if w == 0 {
		ms.own.dirty = true
		return ms.own
	}
	m := ms.of[w]
	if m == nil {
		m = &mark{}
		ms.of[w] = m
	}
	m.dirty = true
	return m
}

// retire forgets the marks of writers up to floor, whose sums become part of
// writer 0's, and returns which they were.
func (ms *marks) retire(floor store.Writer) []store.Writer {
	ms.floor = max(ms.floor, floor)
	var gone []store.Writer
	own := ms.get(0)
	for w, m := range ms.of {
		if w != 0 && w <= floor {
			own.tally.add(m.tally)
			delete(ms.of, w)
			gone = append(gone, w)
		}
	}
	return gone
}
