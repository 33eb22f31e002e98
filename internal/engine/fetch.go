package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// needs is what has to be read from disk before a batch can be decided.
type needs struct {
	cells, tokens [][]byte
	checkpoint    bool // to know which of the unread cells are new, and to remove expired ones
	sweep         bool // to make room for tokens
	frame         bool // what the checkpoint under way has frozen has to be durable
}

func (n *needs) any() bool {
	return len(n.cells) > 0 || len(n.tokens) > 0 || n.checkpoint || n.sweep || n.frame
}

func (n *needs) cell(key []byte)  { n.cells = append(n.cells, append([]byte(nil), key...)) }
func (n *needs) token(key []byte) { n.tokens = append(n.tokens, append([]byte(nil), key...)) }

// A tokenRow is a token as the disk has it.
type tokenRow struct {
	exists bool
	rec    decide.Token
}

// fetched is what was read from disk for one batch. A nil one is empty.
type fetched struct {
	disk   uint64 // the checkpoint it was read under
	tokens map[string]*tokenRow
	made   bool // a checkpoint was made for this batch
}

func (g *fetched) token(key []byte) *tokenRow {
	if g == nil {
		return nil
	}
	return g.tokens[string(key)]
}

func (g *fetched) madeRoom() bool { return g != nil && g.made }

// fetch reads what is needed without holding the lock. It is called with the
// lock held and returns with it held. Cells it read are in the table
// afterwards; tokens in what it returns. What was read under a checkpoint that
// is no longer the last is dropped, and planned again.
func (e *Engine) fetch(ctx context.Context, n needs, got *fetched) (*fetched, error) {
	if n.frame {
		if err := e.awaitFrame(ctx); err != nil {
			return got, err
		}
	}
	disk, from := e.disk, e.base
	from.users++
	if got == nil || got.disk != disk {
		got = &fetched{disk: disk, tokens: map[string]*tokenRow{}, made: got.madeRoom()}
	}
	e.users.Add(1)
	e.mu.Unlock()
	cells, err := guardRead(e, func() ([]row, error) {
		cells, err := e.fetchRows(ctx, from, n, got)
		return cells, errors.Join(err, e.letGo(from))
	})
	e.mu.Lock()
	defer e.users.Done() // Close waits for it before it frees the cells
	if err != nil {
		return got, err
	}
	if e.disk != disk {
		return &fetched{disk: e.disk, tokens: map[string]*tokenRow{}, made: got.made}, nil
	}
	for i, key := range n.cells {
		if !cells[i].exists && (e.counters.filter != nil && !isPart(key) || e.members.filter != nil && isMember(key)) {
			e.meters.filterWrong++
		}
		e.resolve(e.locate(e.hashOf(key), key), cells[i])
	}
	return got, nil
}

func (e *Engine) fetchRows(ctx context.Context, from *base, n needs, got *fetched) ([]row, error) {
	if n.checkpoint || n.sweep {
		got.made = true
		if err := e.checkpoint(ctx, n.sweep); err != nil {
			return nil, store.Errorf(store.KindUnavailable, "make room: %w", err)
		}
		if err := e.collect(ctx); err != nil {
			return nil, err
		}
	}
	cells, err := e.readCells(ctx, from, n.cells)
	if err != nil {
		return nil, err
	}
	for _, key := range n.tokens {
		r, err := e.readToken(from, key)
		if err != nil {
			return nil, err
		}
		got.tokens[string(key)] = &r
	}
	return cells, nil
}

// manyCells is from how many cells on they are read in the order of their rows: those of a
// scan are side by side there.
const manyCells = 64

// readCells reads the rows of cells and parts.
func (e *Engine) readCells(ctx context.Context, from *base, keys [][]byte) ([]row, error) {
	rows := make([]row, len(keys))
	if len(keys) < manyCells {
		for i, key := range keys {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			var err error
			if rows[i], err = e.readCell(from, key); err != nil {
				return nil, err
			}
		}
		return rows, nil
	}
	order := make([]int, 0, len(keys))
	for i, key := range keys {
		if !isMember(key) { // the filters of the disk tell best that one is not there, and only for one at a time
			order = append(order, i)
			continue
		}
		var err error
		if rows[i], err = e.readCell(from, key); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	it, err := from.NewIter(nil)
	if err != nil {
		return nil, diskError(err)
	}
	e.meters.diskReads.Add(uint64(len(keys)))
	var at []byte
	for n := 0; n < len(order) && err == nil; n++ {
		if n%manyCells == 0 {
			err = ctx.Err()
		}
		key := keys[order[n]]
		at = appendRowKey(at[:0], key)
		// Rows of parts come after those of cells, but a part's key need not come after a cell's.
		if !it.Valid() || !bytes.Equal(it.Key(), at) && (!it.Next() || !bytes.Equal(it.Key(), at)) {
			it.SeekGE(at)
		}
		if err == nil && it.Valid() && bytes.Equal(it.Key(), at) {
			rows[order[n]], err = decodeBase(it, key)
		}
	}
	err = errors.Join(err, diskErrorOrNil(it.Error()))
	return rows, errors.Join(err, diskErrorOrNil(it.Close()))
}

// A base is the disk as the last checkpoint that was published left it, without what the
// one under way has written. It is let go by all before it is closed.
type base struct {
	*pebble.Snapshot
	users int
}

// letGo is called by one who has used a base without the lock.
func (e *Engine) letGo(b *base) error {
	e.mu.Lock()
	b.users--
	over := b.users == 0 && b != e.base
	e.mu.Unlock()
	if !over {
		return nil
	}
	return diskErrorOrNil(b.Close())
}

// readCell reads the row of a cell, or of a part.
func (e *Engine) readCell(from *base, cell []byte) (row, error) {
	var r row
	if isPart(cell) {
		err := e.readRow(from, rowPart, cell[1:], func(b []byte) (ok bool) {
			r, ok = decodePartRow(cell, b)
			return ok
		})
		return r, err
	}
	err := e.readRow(from, rowCell, cell, func(b []byte) (ok bool) {
		r, ok = decodeRow(b)
		return ok
	})
	return r, err
}

// readToken reads a token's row.
func (e *Engine) readToken(from *base, key []byte) (tokenRow, error) {
	var r tokenRow
	err := e.readRow(from, rowToken, key, func(b []byte) (ok bool) {
		r.rec, ok = decodeToken(b)
		r.exists = ok
		return ok
	})
	return r, err
}

func (e *Engine) readRow(from *base, kind byte, key []byte, decode func([]byte) bool) error {
	e.meters.diskReads.Add(1)
	b, closer, err := from.Get(append([]byte{kind}, key...))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return diskError(err)
	}
	ok := decode(b)
	if err := closer.Close(); err != nil {
		return diskError(err)
	}
	if !ok {
		return store.Errorf(store.KindCorrupt, "row %q on disk can't be decoded", append([]byte{kind}, key...))
	}
	return nil
}

// resolve makes an unread cell a read one, now that its row is known. The undo
// entries of the cell are deltas over the same row, so they change with it.
func (e *Engine) resolve(id uint32, r row) {
	s := e.cells.slot(id)
	if s.meta.state() != unread {
		return
	}
	e.preserve(id, s)
	thawed, isThawed := e.thaw(id)
	if isThawed {
		r.value, r.exists = r.value+thawed, true
	}
	changed := s.meta&(dirty0|dirty1|saving) != 0
	for n := s.undo; ; {
		u := e.undo.at(n, id)
		if u == nil || u.meta.state() != unread {
			break
		}
		u.value, u.meta, u.extra = over(r, u.value, u.meta)
		n = u.prev
	}
	var x extra
	if s.value, s.meta, x = over(r, s.value, s.meta); x != 0 {
		e.extras[id] = x
	}
	if r.bytes != nil {
		e.blobs[id] = *r.bytes
		e.blobBytes += int64(len(*r.bytes))
	}
	if isThawed {
		e.keepThawed(id)
	}
	if changed && !isPart(e.cells.keyOf(id)) {
		ns := e.names.of(e.cells.keyOf(id))
		ns.unread--
		if !r.exists {
			ns.keys++
		}
	}
}

// over returns what an unread delta is over a row. The row has an extra only if
// the delta was replayed: one that is decided reads such a row first.
func over(r row, delta int64, m meta) (int64, meta, extra) {
	if r.extra != 0 || r.bytes != nil {
		m |= hasExtra
	}
	switch {
	case m&(dirty0|dirty1|saving) != 0:
		return r.value + delta, m.withState(present), r.extra
	case r.exists:
		return r.value, m.withState(present).withVersion(r.version), r.extra
	default:
		return 0, m.withState(absent).withVersion(0), 0
	}
}
