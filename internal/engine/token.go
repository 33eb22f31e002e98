package engine

import (
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Tokens decided since the last checkpoint are in a table of their own: an
// entry is the token's record and its key, and the slot's meta is the frame
// and the level that decided it. The others are on disk.

func tokenMeta(frame uint64, level store.Durability) meta {
	return meta(frame)<<versionShift | meta(level)
}

func tokenFrame(m meta) (frame uint64, level store.Durability) {
	return m.version(), store.Durability(m & bitsMask)
}

// inMemory returns where a token is, if it was decided lately.
func (e *Engine) inMemory(key []byte) (*table, uint32) {
	hash := uint32(xxh3.HashSeed(key, e.id.seed()))
	if id := e.tokens.find(hash, key); id != 0 {
		return e.tokens, id
	}
	if e.frozen != nil {
		if id := e.frozen.find(hash, key); id != 0 {
			return e.frozen, id
		}
	}
	return nil, 0
}

// planToken asks for a token to be read from disk unless it is known, and
// returns the level its answer has to wait for. If it, or one of the more
// tokens that its batch may have, could be one too many, it asks for forgotten
// ones to be swept.
func (e *Engine) planToken(cell []byte, d *store.Delta, more int, got *fetched, n *needs, h horizon) store.Durability {
	key := appendToken(e.tokenBuf[:0], cell, d.Guard.Token)
	e.tokenBuf = key
	t, id := e.inMemory(key)
	if id != 0 {
		if frame, level := tokenFrame(t.slot(id).meta); h.pending(frame, level) {
			return level
		}
		return store.Memory
	}
	if got.token(key) == nil {
		n.token(key)
	}
	full := e.names.tokensFull(cell, int64(more), &e.o.Limits) || decide.MayRefuse(d) && e.names.refusalsFull(cell, int64(more), &e.o.Limits)
	if full && !got.madeRoom() && e.now() >= e.sweepMS {
		n.sweep = true
	}
	return store.Memory
}

// findToken returns what is remembered of a token. It was planned: if it isn't
// in memory it was looked for on disk.
func (e *Engine) findToken(key []byte, got *fetched) (decide.Token, bool) {
	if t, id := e.inMemory(key); id != 0 {
		return decodeToken(t.entry(id))
	}
	if row := got.token(key); row != nil {
		return row.rec, row.exists
	}
	return decide.Token{}, false
}

// putToken remembers a token.
func (e *Engine) putToken(key []byte, t *decide.Token, frame uint64, level store.Durability) {
	hash := uint32(xxh3.HashSeed(key, e.id.seed()))
	b := appendTokenRecord(make([]byte, 0, tokenBytes), t)
	id := e.tokens.find(hash, key)
	if id == 0 {
		id = e.tokens.insert(hash, b, key)
	} else {
		copy(e.tokens.entry(id), b)
	}
	e.tokens.slot(id).meta = tokenMeta(frame, level)
}
