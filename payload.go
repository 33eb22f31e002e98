package quipu

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"unicode/utf8"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

const whoBytesMax = 255

// noTimeMS is the time of an event that does not say when it happened: the zero
// time.Time in Unix milliseconds.
const noTimeMS = -62_135_596_800_000

// applyOptions puts the options of a write into its delta.
func applyOptions(d *store.Delta, opts []WriteOption) error {
	t, err := call.WriteTermsOf(opts)
	if err != nil {
		return err
	}
	if d.Op != store.OpAdd && (t.HasAt || t.HasWho) {
		return store.Errorf(store.KindInvalid, "options At and Who have a meaning for Add only")
	}
	if err := checkWho(t.Who); err != nil {
		return err
	}
	d.Want, d.Lot = t.WantValue, Lot(t.Who)
	d.Guard.Match, d.Guard.Version = t.HasVersion, t.Version
	if !t.HasToken {
		return nil
	}
	if !t.HasAt {
		t.AtMS = noTimeMS
	}
	d.Guard.Token = t.Token
	return guard(d, t.AtMS, t.Who)
}

// guard completes the guard of a delta that has a token.
func guard(d *store.Delta, atMS int64, who string) error {
	if err := store.CheckToken(d.Guard.Token); err != nil {
		return err
	}
	d.Guard.Digest = digest(d, atMS, who)
	return nil
}

// digest stands for everything that a caller may vary in what a write does. A
// write sent again under its token must have the same, whichever call or
// release sends it, so the encoding is fixed. What the caller wants to be told
// of the write is no part of it.
func digest(d *store.Delta, atMS int64, who string) uint64 {
	var room [whoBytesMax + 48]byte
	b := append(room[:0], byte(d.Op))
	b = binary.AppendVarint(b, d.N)
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
