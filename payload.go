package quipu

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// noTimeMS is the zero time.Time in Unix milliseconds. Digests have it in the place
// of the time of an event.
const noTimeMS = -62_135_596_800_000

// applyOptions puts the options of a write into its delta, and reports whether
// the caller wants the value.
func applyOptions(d *store.Delta, opts []WriteOption) (want bool, err error) {
	t, err := call.WriteTermsOf(opts, d.Op == store.OpAdd)
	if err == nil {
		err = checkTerms(&t)
	}
	if err == nil {
		applyTerms(d, &t)
	}
	return t.WantValue, err
}

// checkTerms returns an error if no write can have these terms.
func checkTerms(t *call.WriteTerms) error {
	if t.HasToken {
		if err := store.CheckToken(t.Token); err != nil {
			return err
		}
	}
	switch {
	case t.HasAt && t.AtMS != noTimeMS:
		return store.Errorf(store.KindUnsupported, "nothing keeps the time of an event yet: leave at out")
	case t.HasFloor && t.HasCeiling && t.Floor > t.Ceiling:
		return store.Errorf(store.KindInvalid, "a floor of %d is above the ceiling of %d", t.Floor, t.Ceiling)
	case t.HasTTL && t.TTL < time.Millisecond:
		return store.Errorf(store.KindInvalid, "a ttl of %s: want 1ms or more", t.TTL)
	}
	return call.CheckWho(t.Who)
}

// applyTerms puts terms that were checked into a delta that has none.
func applyTerms(d *store.Delta, t *call.WriteTerms) {
	d.Want, d.Lot = t.WantValue, Lot(t.Who)
	d.Guard.Match, d.Guard.Version = t.HasVersion, t.Version
	if t.HasFloor || t.HasCeiling || t.Saturate {
		b := store.Unbounded()
		if b.Saturate = t.Saturate; t.HasFloor {
			b.Low = t.Floor
		}
		if t.HasCeiling {
			b.High = t.Ceiling
		}
		d.Guard.Bound = &b
		d.Want = true // A refusal says what the counter is, and a saturated add what it added.
	}
	if t.HasTTL {
		d.Expiry, d.DeadlineMS = store.ExpirySet|store.ExpiryAfter, t.TTL.Milliseconds()
	}
	if t.HasToken {
		d.Guard.Token = t.Token
		d.Guard.Digest = digest(d, t.Who)
	}
}

// digest stands for everything that a caller may vary in what a write does. A
// write sent again under its token must have the same, whichever call or
// release sends it, so the encoding is fixed: what few writes have comes last, and
// only if it is there. What the caller wants to be told of the write is no part of
// it, nor is what policies ask for.
func digest(d *store.Delta, who string) uint64 {
	var room [call.WhoBytesMax + 96]byte
	b := append(room[:0], byte(d.Op))
	b = binary.AppendVarint(b, d.N)
	b = binary.AppendVarint(b, noTimeMS)
	b = binary.AppendUvarint(b, uint64(len(who)))
	b = append(b, who...)
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
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

// What begins the parts of a digest that few writes have.
const (
	digestBound  = 'b'
	digestExpiry = 'e'
)

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
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
