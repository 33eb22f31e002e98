// Package session encodes sessions: the text by which a reader names a write
// that it must see.
//
// The text is a letter for its format, the version that the counter had after
// the write, a dot, and a hash of the counter's address. It does not name the
// store. A store that has lost data, or has replaced another, gives out only
// versions that nothing had before, so the version alone is enough. Every
// protocol, token and mark has that version anyway.
package session

import (
	"strconv"
	"strings"

	"github.com/quipudb/quipu/store"
)

// A Position is a version that a counter had.
type Position struct {
	Version uint64
	Counter uint32 // tells counters apart: see the function Counter
}

const (
	prefix = "s"
	base   = 36
)

// Counter returns the hash of a counter's address.
func Counter(namespace, key string) uint32 {
	const offset, prime = 2166136261, 16777619 // FNV-1a
	h := uint32(offset)
	for _, s := range [...]string{namespace, "\x00", key} {
		for i := range len(s) {
			h = (h ^ uint32(s[i])) * prime
		}
	}
	return h
}

// String returns the text that Parse takes.
func (p Position) String() string {
	return prefix + strconv.FormatUint(p.Version, base) + "." + strconv.FormatUint(uint64(p.Counter), base)
}

// Parse returns an error if text did not come from a receipt.
func Parse(text string) (p Position, err error) {
	digits, ok := strings.CutPrefix(text, prefix)
	version, counter, dotted := strings.Cut(digits, ".")
	if ok && dotted {
		if p.Version, err = strconv.ParseUint(version, base, 64); err == nil {
			var n uint64
			n, err = strconv.ParseUint(counter, base, 32)
			p.Counter = uint32(n)
		}
	}
	if !ok || !dotted || err != nil {
		return p, store.Errorf(store.KindInvalid, "session %.40q is not a session: want the session of a write's reply", text)
	}
	return p, nil
}
