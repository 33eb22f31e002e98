package port

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// NoTimeMS is the zero time.Time in Unix milliseconds. Digests have it in the place
// of the time of an event that has none.
const NoTimeMS = -62_135_596_800_000

// Digest stands for everything that a caller may vary in what a write does. A
// write sent again under its token must have the same, whichever call or
// release sends it, so the encoding is fixed: what few writes have comes last, and
// only if it is there. What the caller wants to be told of the write is no part of
// it, nor is what policies and definitions ask for. The fact may be nil.
func Digest(d *store.Delta, f *Fact) uint64 {
	var room [call.WhoBytesMax + 96]byte
	b := append(room[:0], byte(d.Op))
	b = binary.AppendVarint(b, d.N)
	at, who := int64(NoTimeMS), ""
	if f != nil {
		if who = f.Who; f.AtMS != 0 {
			at = f.AtMS
		}
	}
	b = binary.AppendVarint(b, at)
	b = appendText(b, who)
	b = appendBool(b, d.Guard.Match)
	b = binary.AppendUvarint(b, d.Guard.Version)
	if bound := d.Guard.Bound; bound != nil {
		b = append(b, digestBound)
		b = binary.AppendVarint(binary.AppendVarint(b, bound.Low), bound.High)
		b = appendBool(appendBool(b, bound.Saturate), bound.Inward)
	}
	if d.Expiry != store.ExpiryKeep {
		b = append(b, digestExpiry, byte(d.Expiry))
		b = binary.AppendVarint(b, d.DeadlineMS)
	}
	if f != nil && len(f.Dims) > 0 {
		b = binary.AppendUvarint(append(b, digestDims), uint64(len(f.Dims)))
		for _, dim := range inOrder(f.Dims) {
			b = appendText(appendText(b, dim.Name), dim.Value)
		}
	}
	if f != nil && (f.always() || f.Actor != "" || f.Reason != "") {
		b = append(b, digestLine, byte(f.Kind))
		b = appendText(appendText(b, f.Actor), f.Reason)
	}
	if f != nil && f.hold != nil {
		b = binary.AppendVarint(append(b, digestHold, byte(f.hold.do)), int64(f.hold.ttl))
	}
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

// A number that begins the parts of a digest that few writes have.
const (
	digestBound  = 'b'
	digestExpiry = 'e'
	digestDims   = 'd'
	digestLine   = 'l'
	digestHold   = 'h'
)

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Lot returns what picks the shard of who, for doors that make deltas
// themselves; 0 for nobody.
func Lot(who string) uint32 {
	if who == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(who)) // It never fails.
	return h.Sum32() | 1
}
