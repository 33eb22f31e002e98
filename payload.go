package quipu

import (
	"crypto/sha256"
	"encoding/binary"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// noTimeMS is the time of an event that does not say when it happened: the zero
// time.Time in Unix milliseconds.
const noTimeMS = -62_135_596_800_000

// applyOptions puts the options of a write into its delta.
func applyOptions(d *store.Delta, opts []WriteOption) error {
	var given [writeKinds]bool
	atMS, who := int64(noTimeMS), ""
	for i := range opts {
		o := &opts[i]
		if given[o.kind] {
			return store.Errorf(store.KindInvalid, "option %s is given twice", o.kind)
		}
		given[o.kind] = true
		switch o.kind {
		case writeToken:
			d.Guard.Token = o.text
		case writeAt:
			atMS = int64(o.n)
		case writeWho:
			who = o.text
		case writeWant:
			d.Want = true
		case writeVersion:
			d.Guard.Match, d.Guard.Version = true, o.n
		default:
			return store.Errorf(store.KindInvalid, "unknown write option")
		}
	}
	if d.Op != store.OpAdd && (given[writeAt] || given[writeWho]) {
		return store.Errorf(store.KindInvalid, "options At and Who have a meaning for Add only")
	}
	if err := checkWho(who); err != nil {
		return err
	}
	if given[writeToken] {
		return guard(d, atMS, who)
	}
	return nil
}

// guard completes the guard of a delta that has a token.
func guard(d *store.Delta, atMS int64, who string) error {
	if err := store.CheckToken(d.Guard.Token); err != nil {
		return err
	}
	d.Guard.Digest = digest(d, atMS, who)
	return nil
}

// digest stands for everything a caller may vary in a write. A write sent again
// under its token must have the same, whichever call or release sends it, so
// the encoding is fixed.
func digest(d *store.Delta, atMS int64, who string) uint64 {
	var room [whoBytesMax + 48]byte
	b := append(room[:0], byte(d.Op))
	b = binary.AppendVarint(b, d.N)
	b = appendBool(b, d.Want)
	b = binary.AppendVarint(b, atMS)
	b = binary.AppendUvarint(b, uint64(len(who)))
	b = append(b, who...)
	b = appendBool(b, d.Guard.Match)
	b = binary.AppendUvarint(b, d.Guard.Version)
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// checkWho returns an error if who can't name anyone.
func checkWho(who string) error {
	switch {
	case len(who) > whoBytesMax:
		return store.Errorf(store.KindTooLarge, "who of %d bytes: at most %d", len(who), whoBytesMax)
	case !utf8.ValidString(who):
		return store.Errorf(store.KindInvalid, "who is not UTF-8")
	}
	return nil
}
