package quipu

import (
	"context"

	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// lost returns ErrSessionLost if a counter that was read as v lacks what one of the
// sessions has seen of it: then its store has lost acknowledged writes. A session
// of a delete has seen no version, and is of none.
func (db *DB) lost(ctx context.Context, sessions []session.Position, key string, v store.Value) error {
	if len(sessions) == 0 {
		return nil
	}
	c := store.Cell{Namespace: db.namespace, Key: key}
	counter := session.Counter(c.Namespace, c.Key)
	for _, s := range sessions {
		if s.Counter != counter || s.Version == 0 {
			continue
		}
		lost, err := db.lacks(ctx, c, s.Version, v)
		if err != nil {
			return err
		}
		if lost && db.readOnly { // It may read a replica.
			return store.Errorf(store.KindUnavailable, "this server only reads, and what it reads has not come as far as the session, or has lost what it had seen: %q was at version %d, and is at %d",
				key, s.Version, v.Version)
		}
		if lost {
			db.sessionsLost.Add(1)
			return store.Errorf(store.KindSessionLost, "the session is lost, because the store has lost what it had seen; drop it, and read again without it: %q was at version %d, and is at %d",
				key, s.Version, v.Version)
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
