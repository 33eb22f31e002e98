package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Audit checks that the log's files are whole up to what was synced, makes a
// checkpoint, and compares, in a snapshot of the disk, the sums over the cells with
// those of the marks, the numbers of keys and tokens with those of the namespaces,
// and every row with what is served from memory.
func (e *Engine) Audit(ctx context.Context) (store.Audit, error) {
	if err := e.use(); err != nil {
		return store.Audit{}, err
	}
	defer e.users.Done()
	return guard(e, func() (store.Audit, error) {
		a := audit{e: e, ctx: ctx, counted: namespaces{}, epochs: tallies{}, pace: e.newPace()}
		a.Unproved = e.unproved()
		a.fills, a.memberFills = e.filtersMade()
		snap, err := e.snapshotAfter(ctx, a.log)
		if err != nil {
			return store.Audit{}, err
		}
		err = errors.Join(a.read(snap), snap.Close())
		return a.Audit, err
	})
}

// log compares the files of the log with what was acknowledged: the log must be
// whole up to here, from the segment on that has the last checkpoint. Otherwise the
// store could not be opened after a crash.
func (a *audit) log(ctx context.Context) error {
	e := a.e
	e.mu.Lock()
	f := e.log.Begin()
	from, to := e.saved, f.Pos()
	e.log.End(store.Synced)
	e.mu.Unlock()
	if err := f.Wait(ctx, store.Synced); err != nil {
		return err
	}
	err := e.log.Check(from, to)
	if kind := store.KindOf(err); kind != store.KindLost && kind != store.KindCorrupt {
		return err
	}
	a.Drift = append(a.Drift, store.Drift{What: "log", Have: err.Error(), Want: fmt.Sprintf("whole up to position %d, which was acknowledged", to)})
	return nil
}

// unproved returns what the log can't tell about its own end. A log that was closed
// is vouched for by its closing frame and by the checkpoint made before it. One that
// was not ends with the last frame that is there, and nothing tells of another: if
// somebody cut it off between two frames, that looks like a crash before it.
func (e *Engine) unproved() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	crashes := 0
	for _, s := range e.lost[min(1, len(e.lost)):] {
		if s.to-s.from < restoredVersions {
			crashes++
		}
	}
	var all []string
	if e.unclosed > 0 {
		crashes--
		all = append(all, fmt.Sprintf(
			"the log had not been closed when it was opened, and was checked up to position %d; writes acknowledged after that, if its end was removed, can't be vouched for",
			e.unclosed))
	}
	if crashes > 0 {
		all = append(all, fmt.Sprintf("the log had not been closed before that either: %d times at least", crashes))
	}
	return all
}

// snapshot makes a checkpoint and takes a snapshot of the disk at it.
func (e *Engine) snapshot(ctx context.Context) (*pebble.Snapshot, error) {
	return e.snapshotAfter(ctx, func(context.Context) error { return nil })
}

// snapshotAfter is snapshot. Before the checkpoint it calls first, while nobody else
// makes one and the log since the last is still there.
func (e *Engine) snapshotAfter(ctx context.Context, first func(context.Context) error) (*pebble.Snapshot, error) {
	if err := e.checkpointing.enter(ctx); err != nil {
		return nil, err
	}
	defer e.checkpointing.leave()
	if err := first(ctx); err != nil {
		return nil, err
	}
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
	counted      namespaces // what was found
	epochs       tallies    // of the parts that were found
	rows         []auditRow // to be compared with memory
	parts        int        // rows of them that were read
	key, cellKey []byte     // scratch
	pace         *pace
	members      []uint64 // hashes of those to be compared with the filter

	fills, memberFills uint64 // of filters: a later one need not have keys of rows that are gone since
}

type auditRow struct {
	key     []byte
	hash    uint64
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
		scanRows(snap, rowPart, a.part),
		scanRows(snap, rowToken, func(key, value []byte) bool {
			if a.Tokens++; a.Tokens%lockedCells == 0 {
				a.pace.breathe()
			}
			cell, ok := tokenCell(key)
			if ok = ok && namespaceLen(cell) > 0; ok {
				var t decide.Token
				t, ok = decodeToken(value)
				ns := a.counted.of(cell)
				ns.tokens++
				ns.refusals(false, t.Refused())
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
	a.compareMembers()
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
	for name := range a.counted {
		a.namespace(name, &namespace{}) // it has no row
	}
	return a.compareEpochs(snap)
}

// namespace compares what was counted in a namespace with its row.
func (a *audit) namespace(prefix string, ns *namespace) {
	name := decodeCell([]byte(prefix + ".")).Namespace
	found := a.counted.named([]byte(prefix))
	a.same(fmt.Sprintf("keys in namespace %q", name), found.keys, ns.keys)
	a.same(fmt.Sprintf("tokens in namespace %q", name), found.tokens, ns.tokens)
	a.same(fmt.Sprintf("tokens that remember a refusal in namespace %q", name), found.refused, ns.refused)
	delete(a.counted, prefix)
}

func (a *audit) cell(key, b []byte) bool {
	r, ok := decodeRow(b)
	value, version := r.value, r.version
	n := namespaceLen(key)
	if !ok || n == 0 || a.ctx.Err() != nil {
		return false
	}
	a.Cells++
	a.counted.of(key).keys++
	hash := xxh3.HashSeed(key, a.e.id.seed())
	a.cells.cell(hash, value)
	a.rows = append(a.rows, auditRow{append([]byte(nil), key...), hash, value, version, r.extra})
	if len(a.rows) == lockedCells {
		a.compareMemory()
		a.pace.yield()
		a.pace.breathe()
	}
	return true
}

// compareMemory compares rows with the same version of their cells in memory.
func (a *audit) compareMemory() {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	now := a.e.horizon()
	for _, r := range a.rows {
		if (isNear(r.value) || r.extra != 0) && !a.e.near.has(r.hash) {
			a.same("note that "+r.name()+" must be read first", 0, 1)
		}
		if a.e.counters.lost(a.fills, r.hash) {
			a.same("note that "+r.name()+" is on disk", 0, 1)
		}
		id := a.e.cells.find(uint32(r.hash), r.key)
		if id == 0 {
			continue
		}
		value, m, x := a.e.visible(id, &now)
		if m.state() == present && m.version() == r.version && (value != r.value || x != r.extra) {
			a.same(r.name(), value, r.value)
			a.same("deadline of "+r.name(), x.deadline(), r.extra.deadline())
			a.same("layout of "+r.name(), x.layout(), r.extra.layout())
		}
	}
	a.rows = a.rows[:0]
}

func (r *auditRow) name() string {
	c := decodeCell(r.key)
	return fmt.Sprintf("counter %q in namespace %q", c.Key, c.Namespace)
}

func (a *audit) same(what string, have, want int64) {
	if have != want && len(a.Drift) < driftMax {
		a.Drift = append(a.Drift, store.Drift{What: what, Have: fmt.Sprint(have), Want: fmt.Sprint(want)})
	}
}
