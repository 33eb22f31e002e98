package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// writersCell counts the writers a store has issued.
var writersCell = Cell{Namespace: "", Key: "writers"}

// Enlist asks the store for a new writer. Its id is higher than every id
// issued before, and durable.
func Enlist(ctx context.Context, s Store) (Writer, error) {
	b := Batch{
		Partition: PartitionOf(writersCell, s.Traits().Partitions),
		Deltas:    []Delta{{Cell: writersCell, Op: OpAdd, N: 1, Want: true}},
	}
	replies := make([]Reply, 1)
	if err := s.Apply(ctx, []Batch{b}, replies); err != nil {
		return 0, err
	}
	if err := replies[0].Err; err != nil {
		return 0, err
	}
	r := replies[0].Results[0]
	return Writer(r.After), r.Outcome.Err()
}

// Issued returns the highest writer that the store has issued, 0 if none.
func Issued(ctx context.Context, s Store) (Writer, error) {
	var v [1]Value
	err := s.Read(ctx, []Cell{writersCell}, v[:])
	return Writer(v[0].N), err
}

// PartitionOf returns the home partition of a cell in a store of n partitions.
// The shards of a counter that is split are in the partitions after its own; its seats, all
// over the store.
func PartitionOf(c Cell, n int) int {
	if n == 1 {
		return 0
	}
	if c.Namespace == "" {
		if home, after, ok := beside(c); ok {
			if after > SplitMax {
				after = apart(after-SplitMax-1, n)
			}
			return (PartitionOf(home, n) + after) % n
		}
		if _, partition, _, ok := LaneOf(c); ok {
			return partition % n
		}
	}
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(c.Namespace) {
		h = (h ^ uint64(c.Namespace[i])) * prime
	}
	h *= prime // a zero byte between the two
	for i := range len(c.Key) {
		h = (h ^ uint64(c.Key[i])) * prime
	}
	return int((h ^ h>>32) % uint64(n))
}

// apart returns how many of n partitions after its counter's own seat i is: by the golden
// ratio, so that any number of seats is far apart. Partitions that follow each other may be
// on one machine.
func apart(i, n int) int {
	const golden = 0x9e3779b97f4a7c15
	after, _ := bits.Mul64(uint64(i)*golden, uint64(n))
	return int(after)
}

// Digest returns the digest of a batch's content: a batch sent again under its
// sequence must have the same. It is stored, so what it is made of is fixed: what
// is in few batches comes last, and only if it is there.
//
// It covers what whoever numbers the batch has said, and nothing that follows from
// definitions, which may change before the batch is sent again: no riders, and of the
// part that leads only its kind, its name and its bytes.
func (b *Batch) Digest() uint64 {
	h := sha256.New()
	buf := make([]byte, 0, digestPiece+1024)
	buf = binary.AppendUvarint(buf, b.Prev)
	buf = binary.AppendUvarint(buf, b.Seq)
	for i := range b.Deltas {
		d := &b.Deltas[i]
		buf = appendString(buf, d.Cell.Namespace)
		buf = appendString(buf, d.Cell.Key)
		buf = append(buf, byte(d.Op))
		buf = binary.AppendVarint(buf, d.N)
		buf = appendBool(buf, d.Want)
		buf = appendString(buf, d.Guard.Token)
		buf = binary.AppendUvarint(buf, d.Guard.Digest)
		buf = appendBool(buf, d.Guard.Match)
		buf = binary.AppendUvarint(buf, d.Guard.Version)
		if len(buf) > digestPiece {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	for i := range b.If {
		c := &b.If[i]
		buf = append(buf, digestIf)
		buf = appendString(buf, c.Cell.Namespace)
		buf = appendString(buf, c.Cell.Key)
		buf = binary.AppendUvarint(buf, c.Version)
	}
	for i := range b.Deltas {
		if g := &b.Deltas[i].Guard; g.Laid {
			buf = binary.AppendUvarint(append(buf, digestLayout), uint64(i))
			buf = binary.AppendVarint(buf, g.Layout)
		}
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		bound := d.Guard.Bound
		if bound != nil && bound.Inward {
			bound = nil // It follows from a policy, which may change before the batch is sent again.
		}
		if d.Expiry == ExpiryKeep && d.Guard.Exists == ExistsAny && bound == nil {
			continue
		}
		buf = binary.AppendUvarint(append(buf, digestGuard), uint64(i))
		buf = append(buf, byte(d.Expiry), byte(d.Guard.Exists))
		buf = binary.AppendVarint(buf, d.DeadlineMS)
		buf = appendBool(buf, bound != nil)
		if bound != nil {
			buf = binary.AppendVarint(binary.AppendVarint(buf, bound.Low), bound.High)
			buf = appendBool(buf, bound.Saturate)
		}
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Event == nil || d.Event.Part == "" {
			continue
		}
		f, _ := d.Event.Part.Fields()
		buf = binary.AppendUvarint(append(buf, digestPart), uint64(i))
		buf = appendString(append(buf, byte(f.Kind)), f.Name)
		if d.Op == OpPut || d.Op == OpMerge {
			buf = binary.AppendVarint(buf, f.Kind.Number(d.Event.Bytes))
		}
	}
	h.Write(buf)
	return binary.LittleEndian.Uint64(h.Sum(buf[:0]))
}

// digestPiece is how much is hashed at a time.
const digestPiece = 4096

// A number that begins the parts that few batches have. No namespace is as long, so none
// can be taken for a delta.
const (
	digestIf     = 'i'
	digestGuard  = 'g'
	digestLayout = 'l'
	digestPart   = 'p'
)

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
