package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Audit reads every cell in one snapshot and compares the sums with those of the
// marks and the tallies, and the numbers of keys and tokens with the counts of
// the namespaces. What is pending is in neither.
func (s *Store) Audit(ctx context.Context) (a store.Audit, err error) {
	if err := s.enter(ctx); err != nil {
		return a, err
	}
	defer s.leave()
	told := s.told.Load() // before the snapshot: what is told meanwhile need not be in it
	err = s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, snapshot, func(tx pgx.Tx) error {
			a, err = s.audit(ctx, tx, told)
			return err
		})
	})
	return a, failure(ctx, err)
}

func (s *Store) audit(ctx context.Context, tx pgx.Tx, told uint64) (a store.Audit, err error) {
	type name struct {
		namespace string
		what      int // as space.gen: -1, 0, 1
	}
	have, want := map[name]int64{}, map[name]int64{}
	var cells, marks decide.Record
	each := func(sql string, scans []any, f func()) {
		if err != nil {
			return
		}
		var rows pgx.Rows
		if rows, err = tx.Query(ctx, sql); err == nil {
			_, err = pgx.ForEachRow(rows, scans, func() error { f(); return nil })
		}
	}
	var namespace, key []byte
	var n int64
	var t tally
	var what int
	var refusals int64
	var version, last uint64
	each(s.sql.auditCells, []any{&namespace, &key, &n, &version}, func() {
		a.Cells++
		last = max(last, version)
		cells.Merge(decide.Change(store.Cell{Namespace: string(namespace), Key: string(key)}, uint64(n)))
		have[name{string(namespace), 0}]++
	})
	each(s.sql.auditMarks, []any{&t.deltas, &t.total, &t.proof}, func() { marks.Merge(t.record()) })
	epochs := make(map[tallyID]decide.Record)
	s.auditParts(each, &cells, epochs)
	each(s.sql.auditTokens, []any{&namespace, &n, &refusals}, func() {
		a.Tokens += n
		have[name{string(namespace), 1}] += n
		have[name{string(namespace), -1}] += refusals
	})
	each(s.sql.auditPending, []any{&namespace, &n}, func() { want[name{string(namespace), 1}] += n })
	each(s.sql.auditSpaces, []any{&namespace, &what, &n}, func() { want[name{string(namespace), what}] += n })
	if told > 0 { // A cell may be ahead of the sequence, which is raised before the cell goes.
		each(s.sql.auditVersion, []any{&version}, func() { last = max(last, version) })
	}
	if err != nil {
		return a, err
	}
	if last < told {
		a.Drift = append(a.Drift, store.Drift{
			What: "last version", Have: fmt.Sprint(last), Want: fmt.Sprintf("%d, of which callers were told: a failover or a restored backup has lost it", told),
		})
	}
	a.Deltas = marks.Deltas
	compare := func(what string, have, want any) {
		if have != want {
			a.Drift = append(a.Drift, store.Drift{What: what, Have: fmt.Sprint(have), Want: fmt.Sprint(want)})
		}
	}
	compare("sum of cells", cells.Sum, marks.Sum)
	compare("check sum of cells", cells.Check, marks.Check)
	for _, id := range slices.SortedFunc(maps.Keys(epochs), tallyID.compare) {
		of := fmt.Sprintf("parts of kind %#x, view %d, epoch %#x of namespace %q", id.Kind, id.View, id.epoch, id.Namespace)
		compare("sum of "+of, epochs[id].Sum, uint64(0))
		compare("check sum of "+of, epochs[id].Check, uint64(0))
	}
	names := maps.Clone(have)
	maps.Copy(names, want)
	for _, k := range slices.SortedFunc(maps.Keys(names), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.what, b.what))
	}) {
		what := [...]string{"refused tokens", "keys", "tokens"}[k.what+1]
		compare(fmt.Sprintf("%s of namespace %q", what, k.namespace), have[k], want[k])
	}
	return a, nil
}

// auditParts adds up the parts: those without an epoch with the cells, and the others less
// what the tally of their epoch has. That of an epoch below its floor is left alone.
func (s *Store) auditParts(each func(sql string, scans []any, f func()), cells *decide.Record, epochs map[tallyID]decide.Record) {
	var namespace, row []byte
	var n, epoch int64
	enter := func(id tallyID, r decide.Record) {
		r.Merge(epochs[id])
		epochs[id] = r
	}
	each(s.sql.auditParts, []any{&namespace, &row, &epoch, &n}, func() {
		c, p, _ := store.PartOfRow(string(namespace), row) // one that is none fits no sum
		change := decide.PartChange(c, p, uint64(n))
		if shelf, e, ok := decide.ShelfOf(c, p); ok && int64(e) == epoch {
			enter(tallyID{shelf, e}, change)
		} else {
			cells.Merge(change)
		}
	})
	var kind int16
	var view int32
	var t tally
	each(s.sql.auditEpochs, []any{&namespace, &kind, &view, &epoch, &t.total, &t.proof}, func() {
		shelf := decide.Shelf{Namespace: string(namespace), Kind: store.PartKind(kind), View: uint16(view)}
		enter(tallyID{shelf, store.Epoch(epoch)}, decide.Record{Sum: -uint64(t.total), Check: -uint64(t.proof)})
	})
}
