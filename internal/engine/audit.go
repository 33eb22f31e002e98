package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// Audit makes a checkpoint and compares, in a snapshot of the disk, the sums
// over the cells with those of the marks, the numbers of keys and tokens with
// those of the namespaces, and every row with what is served from memory.
func (e *Engine) Audit(ctx context.Context) (store.Audit, error) {
	if err := e.use(); err != nil {
		return store.Audit{}, err
	}
	defer e.users.Done()
	return guard(e, func() (store.Audit, error) {
		snap, err := e.snapshot(ctx)
		if err != nil {
			return store.Audit{}, err
		}
		a := audit{e: e, ctx: ctx, keys: map[string]int64{}, tokens: map[string]int64{}}
		err = errors.Join(a.read(snap), snap.Close())
		return a.Audit, err
	})
}

// snapshot makes a checkpoint and takes a snapshot of the disk at it.
func (e *Engine) snapshot(ctx context.Context) (*pebble.Snapshot, error) {
	if err := e.checkpointing.enter(ctx); err != nil {
		return nil, err
	}
	defer e.checkpointing.leave()
	if err := e.checkpointLocked(ctx, false); err != nil {
		return nil, err
	}
	return e.db.NewSnapshot(), nil
}

// driftMax is how many differences are reported.
const driftMax = 100

type audit struct {
	store.Audit
	e            *Engine
	ctx          context.Context
	cells, marks tally
	keys, tokens map[string]int64
	rows         []auditRow // to be compared with memory
}

type auditRow struct {
	key     []byte
	value   int64
	version uint64
	extra   extra
}

func (a *audit) read(snap *pebble.Snapshot) error {
	err := errors.Join(
		scanRows(snap, rowMark, func(_, value []byte) bool {
			m, ok := decodeMark(value)
			if ok {
				a.marks.add(m.tally)
			}
			return ok
		}),
		scanRows(snap, rowCell, a.cell),
		scanRows(snap, rowToken, func(key, value []byte) bool {
			a.Tokens++
			cell, ok := tokenCell(key)
			if ok = ok && namespaceLen(cell) > 0; ok {
				a.tokens[string(cell[:namespaceLen(cell)])]++
				_, ok = decodeToken(value)
			}
			return ok && a.ctx.Err() == nil
		}))
	if cause := a.ctx.Err(); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	a.compareMemory()
	a.Deltas = a.marks.deltas
	a.same("sum of all counters", int64(a.cells.sum), int64(a.marks.sum))
	a.same("checksum of all counters", int64(a.cells.check), int64(a.marks.check))
	if err := scanRows(snap, rowNamespace, func(key, value []byte) bool {
		ns, ok := decodeNamespace(value)
		if ok {
			a.namespace(string(key), ns)
		}
		return ok
	}); err != nil {
		return err
	}
	for _, counted := range []map[string]int64{a.keys, a.tokens} {
		for name := range counted {
			a.namespace(name, &namespace{}) // it has no row
		}
	}
	return nil
}

// namespace compares what was counted in a namespace with its row.
func (a *audit) namespace(prefix string, ns *namespace) {
	name := decodeCell([]byte(prefix + ".")).Namespace
	a.same(fmt.Sprintf("keys in namespace %q", name), a.keys[prefix], ns.keys)
	a.same(fmt.Sprintf("tokens in namespace %q", name), a.tokens[prefix], ns.tokens)
	delete(a.keys, prefix)
	delete(a.tokens, prefix)
}

func (a *audit) cell(key, b []byte) bool {
	r, ok := decodeRow(b)
	value, version := r.value, r.version
	n := namespaceLen(key)
	if !ok || n == 0 || a.ctx.Err() != nil {
		return false
	}
	a.Cells++
	a.keys[string(key[:n])]++
	a.cells.cell(xxh3.HashSeed(key, a.e.id.seed()), value)
	a.rows = append(a.rows, auditRow{append([]byte(nil), key...), value, version, r.extra})
	if len(a.rows) == lockedCells {
		a.compareMemory()
	}
	return true
}

// compareMemory compares rows with the same version of their cells in memory.
func (a *audit) compareMemory() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	now := a.e.horizon()
	for _, r := range a.rows {
		hash, c := xxh3.HashSeed(r.key, a.e.id.seed()), decodeCell(r.key)
		if (isNear(r.value) || r.extra != 0) && !a.e.near.has(hash) {
			a.same(fmt.Sprintf("note that counter %q in namespace %q must be read first", c.Key, c.Namespace), 0, 1)
		}
		id := a.e.cells.find(uint32(hash), r.key)
		if id == 0 {
			continue
		}
		if value, m, x := a.e.visible(id, &now); m.state() == present && m.version() == r.version {
			a.same(fmt.Sprintf("counter %q in namespace %q", c.Key, c.Namespace), value, r.value)
			if x != r.extra {
				a.same(fmt.Sprintf("deadline of counter %q in namespace %q", c.Key, c.Namespace), x.deadline(), r.extra.deadline())
				a.same(fmt.Sprintf("layout of counter %q in namespace %q", c.Key, c.Namespace), x.layout(), r.extra.layout())
			}
		}
	}
	a.rows = a.rows[:0]
}

func (a *audit) same(what string, have, want int64) {
	if have != want && len(a.Drift) < driftMax {
		a.Drift = append(a.Drift, store.Drift{What: what, Have: fmt.Sprint(have), Want: fmt.Sprint(want)})
	}
}
