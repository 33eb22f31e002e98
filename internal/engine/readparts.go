package engine

import (
	"context"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// A look is a part that is being read.
type look struct {
	of   store.PartCell
	key  []byte
	cell uint64 // the hash of its cell
	hash uint64 // by which it is found
	row  row    // if looks know it
}

// looks are parts that are being read.
type looks struct {
	all      []look
	contents []store.Content // of those that a scan reads
	keys     []byte          // room for theirs
	disk     uint64          // the checkpoint that their rows were read under
	rows     bool            // whether they were
}

func (l *looks) reset() {
	clear(l.all)
	clear(l.contents)
	*l = looks{all: l.all[:0], contents: l.contents[:0], keys: l.keys[:0]}
}

// add adds a part. Most are of the same cell as the one before.
func (l *looks) add(e *Engine, of store.PartCell, key []byte, r row) {
	next := look{of: of, key: key, row: r}
	if n := len(l.all); n > 0 && l.all[n-1].of.Cell == of.Cell {
		next.cell = l.all[n-1].cell
	} else {
		next.cell = xxh3.HashSeed(appendCell(nil, of.Cell), e.id.seed())
	}
	next.hash = placed(e.weight(next.cell, of.Part))
	l.all = append(l.all, next)
}

// ReadParts returns the durable contents of parts at one moment.
func (e *Engine) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	if err := store.CheckReadParts(parts, contents); err != nil {
		return err
	}
	l := looks{all: make([]look, 0, len(parts))}
	for _, p := range parts {
		l.add(e, p, appendPart(nil, p.Cell, p.Part), row{})
	}
	return e.readLooks(ctx, &l, contents)
}

// readLooks is ReadParts for parts that are looked at.
func (e *Engine) readLooks(ctx context.Context, l *looks, contents []store.Content) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.meters.reads += uint64(len(l.all))
	for {
		if e.closed {
			return store.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var n needs
		h, waits := e.horizon(), false
		l.rows = l.rows && l.disk == e.disk // as fetch does
		for i := range l.all {
			at := &l.all[i]
			if contents[i] = (store.Content{}); e.fences.gone(at.key) {
				continue
			}
			var wait bool
			contents[i], wait = e.readPart(at, l.rows, &h, &n)
			waits = waits || wait
			if sum, is := e.inBundles(at, &h); is {
				contents[i].N, contents[i].Exists = contents[i].N+sum, true
			}
		}
		var err error
		switch {
		case n.any():
			_, err = e.fetch(ctx, n, nil)
		case waits:
			err = e.awaitFrame(ctx)
		default:
			if e.inserts > 0 {
				e.evict()
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readPart returns what readers may see of a part, whose row may be known. Bytes that were
// changed have to be waited for: what they were is not kept.
func (e *Engine) readPart(at *look, known bool, h *horizon, n *needs) (c store.Content, wait bool) {
	id := e.cells.find(uint32(at.hash), at.key)
	switch {
	case id == 0 && known:
		return at.row.content(), false
	case id == 0:
		if !e.noMember(at.key) {
			n.cell(at.key)
		}
		return store.Content{}, false
	}
	e.still(id)
	s := e.cells.slot(id)
	s.meta |= recent
	value, m, _ := e.visible(id, h)
	if m.state() == unread && known {
		e.resolve(id, at.row)
		value, m, _ = e.visible(id, h)
	}
	switch {
	case m.state() == absent:
		return store.Content{}, false
	case m.state() == unread:
		n.cell(at.key)
		return store.Content{}, false
	case m&hasExtra == 0:
		return store.Content{N: value, Exists: true}, false
	}
	u := e.undo.at(s.undo, id)
	return store.Content{N: value, Bytes: e.blobs[id], Exists: true}, u != nil && h.pending(u.frame, u.level)
}

// content returns what the row of a part says.
func (r *row) content() store.Content {
	c := store.Content{N: r.value, Exists: r.exists}
	if r.bytes != nil {
		c.Bytes = *r.bytes
	}
	return c
}

// awaitFrame waits until all that was changed up to now is durable. It is called with the
// lock held and returns with it held.
func (e *Engine) awaitFrame(ctx context.Context) error {
	f := e.log.Begin()
	e.log.End(store.Synced)
	e.mu.Unlock()
	err := f.Wait(ctx, store.Synced)
	e.mu.Lock()
	if err != nil {
		return store.Errorf(store.KindUnavailable, "wait for a change to be durable: %w", err)
	}
	return nil
}
