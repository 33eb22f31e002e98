package pgstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
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
		tokens    bool
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
	var tokens bool
	var version, last uint64
	each(s.sql.auditCells, []any{&namespace, &key, &n, &version}, func() {
		a.Cells++
		last = max(last, version)
		cells.Merge(decide.Change(store.Cell{Namespace: string(namespace), Key: string(key)}, uint64(n)))
		have[name{string(namespace), false}]++
	})
	each(s.sql.auditMarks, []any{&t.deltas, &t.total, &t.proof}, func() { marks.Merge(t.record()) })
	each(s.sql.auditTokens, []any{&namespace, &n}, func() {
		a.Tokens += n
		have[name{string(namespace), true}] += n
	})
	each(s.sql.auditPending, []any{&namespace, &n}, func() { want[name{string(namespace), true}] += n })
	each(s.sql.auditSpaces, []any{&namespace, &tokens, &n}, func() { want[name{string(namespace), tokens}] += n })
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
	names := maps.Clone(have)
	maps.Copy(names, want)
	for _, k := range slices.SortedFunc(maps.Keys(names), func(a, b name) int {
		return plan.Compare(store.Cell{Namespace: a.namespace, Key: fmt.Sprint(a.tokens)}, store.Cell{Namespace: b.namespace, Key: fmt.Sprint(b.tokens)})
	}) {
		what := "keys"
		if k.tokens {
			what = "tokens"
		}
		compare(fmt.Sprintf("%s of namespace %q", what, k.namespace), have[k], want[k])
	}
	return a, nil
}
