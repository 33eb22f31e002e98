package quipu

import (
	"context"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// Session returns the position of the write, for a reader that must see it. It
// is opaque: hand it to the ReadOption of the same name, in this process or
// another.
func (r Receipt) Session() string {
	return sessionPrefix + strconv.FormatUint(r.Version, sessionBase) + "." + strconv.FormatUint(uint64(homeOf(r.namespace, r.Key)), sessionBase)
}

// A session is the version that a counter had, and which counter. As text it is a
// letter that names its format, the version, a dot, and a hash of the address.
//
// It names no store: a store that has lost data, or has taken the place of another,
// gives out versions that nothing had before, so the version alone tells. It is
// what every wire, token and mark has of a write anyway.
type session struct {
	version uint64
	home    uint32
}

const (
	sessionPrefix = "s"
	sessionBase   = 36
)

// homeOf tells the counters of sessions apart.
func homeOf(namespace, key string) uint32 {
	const offset, prime = 2166136261, 16777619 // FNV-1a
	h := uint32(offset)
	for _, s := range [...]string{namespace, "\x00", key} {
		for i := range len(s) {
			h = (h ^ uint32(s[i])) * prime
		}
	}
	return h
}

// parseSession returns an error if session did not come from a Receipt.
func parseSession(text string) (s session, err error) {
	digits, ok := strings.CutPrefix(text, sessionPrefix)
	version, key, dotted := strings.Cut(digits, ".")
	if ok && dotted {
		if s.version, err = strconv.ParseUint(version, sessionBase, 64); err == nil {
			var n uint64
			n, err = strconv.ParseUint(key, sessionBase, 32)
			s.home = uint32(n)
		}
	}
	if !ok || !dotted || err != nil {
		return s, store.Errorf(store.KindInvalid, "session %.40q is not one that a receipt has", text)
	}
	return s, nil
}

// lost returns ErrSessionLost if a counter that was read as v lacks what one of the
// sessions has seen of it: then its store has lost acknowledged writes. A session
// of a delete has seen no version, and is of none.
func (db *DB) lost(ctx context.Context, sessions []session, key string, v store.Value) error {
	if len(sessions) == 0 {
		return nil
	}
	c := store.Cell{Namespace: db.namespace, Key: key}
	home := homeOf(c.Namespace, c.Key)
	for _, s := range sessions {
		if s.home != home || s.version == 0 {
			continue
		}
		lost, err := db.lacks(ctx, c, s.version, v)
		if err != nil {
			return err
		}
		if lost && db.readOnly { // It may read a replica.
			return store.Errorf(store.KindUnavailable, "this server only reads, and what it reads has not come as far as the session, or has lost what it had seen: %q was at version %d, and is at %d",
				key, s.version, v.Version)
		}
		if lost {
			db.sessionsLost.Add(1)
			return store.Errorf(store.KindSessionLost, "the session is lost, because the store has lost what it had seen; drop it, and read again without it: %q was at version %d, and is at %d",
				key, s.version, v.Version)
		}
	}
	return nil
}

// lacks reports whether the store lacks the change that gave a counter a version.
func (db *DB) lacks(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if w, ok := db.store.(store.Witness); ok {
		return w.Lost(ctx, c, version, v)
	}
	lacks, _ := v.Lacks(version)
	return lacks && version < spread.OfShards, nil
}
