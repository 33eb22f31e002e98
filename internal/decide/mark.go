package decide

import (
	"slices"

	"github.com/quipudb/quipu/store"
)

// A Mark is the last batch applied from a writer, and what all of them changed.
// That of a writer that is not known is the zero Mark.
type Mark struct {
	Seq     uint64
	Digest  uint64
	Results []store.Result
	Record  Record
}

// Follows decides a batch of a writer by its mark: it is the batch that the mark is
// of, once more, or it follows the mark, or there is an error.
func (m *Mark) Follows(b *store.Batch, digest uint64) (repeat bool, err error) {
	switch {
	case m.Seq == b.Seq && m.Digest == digest:
		return true, nil
	case m.Seq != b.Prev:
		return false, store.Errorf(store.KindMark, "batch (%d, %d] of writer %d does not follow its mark %d",
			b.Prev, b.Seq, b.Writer, m.Seq)
	}
	return false, nil
}

// Judge reports whether a batch of a writer follows its mark and is to be
// decided. Otherwise it has filled r: with the first results if the mark has
// the batch already, and with the refusal if not.
func (m *Mark) Judge(b *store.Batch, digest uint64, r *store.Reply) bool {
	r.Mark = m.Seq
	r.Replayed, r.Err = m.Follows(b, digest)
	if r.Replayed {
		for _, first := range m.Results {
			first.Replayed = true
			r.Results = append(r.Results, first)
		}
	}
	return !r.Replayed && r.Err == nil
}

// Set makes a decided batch the last one.
func (m *Mark) Set(b *store.Batch, digest uint64, r *store.Reply) {
	m.Seq, m.Digest, m.Results = b.Seq, digest, slices.Clone(r.Results)
	r.Mark = m.Seq
}

// Admit returns an error if a writer that a partition does not know may not
// have a mark: those up to floor are retired, and there are marks already.
func Admit(w, floor store.Writer, marks, limit int) error {
	if w <= floor {
		return store.Errorf(store.KindRetired, "writer %d: those up to %d are retired", w, floor)
	}
	if marks >= limit {
		return store.Errorf(store.KindFull, "writer %d: the partition holds %d marks, its limit", w, marks)
	}
	return nil
}

// A Record says how much was changed under a mark, apart from the cells
// themselves. Sums wrap around: they are compared, never read as numbers.
type Record struct {
	Deltas uint64 // changes applied
	Sum    uint64 // of all changes
	Check  uint64 // of all changes, each multiplied by a hash of its cell
}

func (r *Record) enter(c store.Cell, delta uint64) {
	r.Deltas++
	r.Merge(Change(c, delta))
}

// Change is the record of a change that no delta made, such as an expiry.
func Change(c store.Cell, delta uint64) Record {
	return PartChange(c, "", delta)
}

// PartChange is the record of a change of a part.
func PartChange(c store.Cell, p store.Part, delta uint64) Record {
	return Record{Sum: delta, Check: hash(c, p) * delta}
}

// Merge adds another record to r.
func (r *Record) Merge(o Record) {
	r.Deltas += o.Deltas
	r.Sum += o.Sum
	r.Check += o.Check
}

// hash is FNV-1a, made odd so that no delta is multiplied away.
func hash(c store.Cell, p store.Part) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	between := "" // no key has what stands between it and a part
	if p != "" {
		between = "\xff"
	}
	for _, s := range [...]string{c.Namespace, "\x00", c.Key, between, string(p)} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	return h | 1
}
