package engine

import (
	"context"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// visible returns what readers may see of a cell: its value before the changes
// that are not durable yet.
//
// A cell whose deadline has passed is absent. That is judged only of its newest
// state: when a change is pending that was made in time, the cell did not expire,
// and when the change found it expired, its undo entry says that it was absent.
func (e *Engine) visible(id uint32, h *horizon) (value int64, m meta, x extra) {
	s := e.cells.slot(id)
	value, m = s.value, s.meta
	u := e.undo.at(s.undo, id)
	if u == nil || !h.pending(u.frame, u.level) {
		if m&hasExtra != 0 {
			x = e.extras[id]
			ms := x.deadline()
			if ms > 0 && h.nowMS == 0 {
				h.nowMS = e.now()
			}
			if ms > 0 && ms <= h.nowMS {
				h.expired(ms)
				return 0, m.withState(absent).withVersion(0) &^ hasExtra, 0
			}
		}
		return value, m, x
	}
	for u != nil && h.pending(u.frame, u.level) {
		value, m, x = u.value, u.meta, u.extra
		u = e.undo.at(u.prev, id)
	}
	if m.state() == absent {
		h.expired(x.deadline())
	}
	return value, m, x
}

func valueOf(value int64, m meta, x extra) store.Value {
	if m.state() != present {
		return store.Value{}
	}
	v := store.Value{N: value, Version: m.version(), Exists: true}
	if x != 0 {
		v.DeadlineMS, v.Layout = x.deadline(), x.layout()
	}
	return v
}

// Read returns the durable values of cells at one moment.
func (e *Engine) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if err := store.CheckRead(cells, values); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.meters.reads += uint64(len(cells))
	for {
		if e.closed {
			return store.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var n needs
		h := e.horizon()
		for i, c := range cells {
			values[i] = e.readOne(c, &h, &n)
		}
		var err error
		switch {
		case n.any():
			_, err = e.fetch(ctx, n, nil)
		case h.expiredMS > e.keptMS():
			err = e.keepTime(ctx)
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

func (e *Engine) readOne(c store.Cell, h *horizon, n *needs) store.Value {
	cell := appendCell(e.cellBuf[:0], c)
	e.cellBuf = cell
	hash := xxh3.HashSeed(cell, e.id.seed())
	id := e.cells.find(uint32(hash), cell)
	if id == 0 {
		if !e.noRow(hash) {
			n.cell(cell)
		}
		return store.Value{}
	}
	e.cells.slot(id).meta |= recent
	value, m, x := e.visible(id, h)
	if m.state() == unread {
		n.cell(cell)
	}
	return valueOf(value, m, x)
}

// Peek is Read for one who can't wait for the disk.
func (e *Engine) Peek(cells []store.Cell, values []store.Value) bool {
	if len(cells) != len(values) || len(cells) > store.ReadCellsMax {
		return false
	}
	ps := e.plans.Get().(*plans)
	defer e.plans.Put(ps)
	ps.reset()
	for _, c := range cells {
		if store.CheckCell(c) != nil {
			return false
		}
		ps.add(c, e.id.seed())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	h := e.horizon()
	for i := range ps.all {
		if i%groupMax == 0 {
			e.cells.findNext(ps.all, i, ps.keys)
		}
		p := &ps.all[i]
		if p.slot == 0 {
			if !e.noRow(p.hash) {
				return false
			}
			values[i] = store.Value{}
			continue
		}
		e.cells.slot(p.slot).meta |= recent
		value, m, x := e.visible(p.slot, &h)
		if m.state() == unread {
			return false
		}
		values[i] = valueOf(value, m, x)
	}
	if h.expiredMS > e.keptMS() {
		return false
	}
	e.meters.reads += uint64(len(cells))
	return true
}

// Size returns the number of cells in a namespace. How many of the unread ones
// are new only a checkpoint tells.
func (e *Engine) Size(ctx context.Context, namespace string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := e.use(); err != nil {
		return 0, err
	}
	defer e.users.Done()
	prefix := appendNamespace(nil, namespace)
	count := func() (keys, unread int64) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if ns := e.names[string(prefix)]; ns != nil {
			return ns.keys, ns.unread
		}
		return 0, 0
	}
	keys, unread := count()
	if unread == 0 {
		return keys, nil
	}
	if err := e.checkpoint(ctx, false); err != nil {
		return 0, err
	}
	keys, _ = count() // those added meanwhile need not be counted
	return keys, nil
}

// Lookup reports what is known of a token, once it is durable.
func (e *Engine) Lookup(ctx context.Context, c store.Cell, token string) (store.Fate, error) {
	if err := store.CheckCell(c); err != nil {
		return store.Fate{}, err
	}
	if err := store.CheckToken(token); err != nil {
		return store.Fate{}, err
	}
	e.mu.Lock()
	rec, known, wait, err := e.lookup(ctx, appendToken(nil, appendCell(nil, c), token))
	now := e.now()
	e.mu.Unlock()
	if err != nil {
		return store.Fate{}, err
	}
	if err := wait.wait(ctx); err != nil {
		return store.Fate{}, err
	}
	state, t := decide.Recall(token, rec, known, e.gaps.Age(rec.AtMS, now), decide.Clock{NowMS: now, Window: e.o.Limits.TokenWindow})
	return t.Fate(state), nil
}

// lookup finds a token, and the frames to wait for if it is not durable yet.
func (e *Engine) lookup(ctx context.Context, key []byte) (rec decide.Token, known bool, w waits, err error) {
	var got *fetched
	for {
		if e.closed {
			return rec, false, w, store.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return rec, false, w, err
		}
		if t, id := e.inMemory(key); id != 0 {
			rec, known = decodeToken(t.entry(id))
			if frame, level := tokenFrame(t.slot(id).meta); e.horizon().pending(frame, level) {
				w.add(e.log.Begin(), level)
				e.log.End(level)
			}
			return rec, known, w, nil
		}
		if r := got.token(key); r != nil {
			return r.rec, r.exists, w, nil
		}
		var n needs
		n.token(key)
		if got, err = e.fetch(ctx, n, got); err != nil {
			return rec, false, w, err
		}
	}
}
