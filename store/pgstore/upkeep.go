package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/store"
)

const (
	// How often what is pending is folded while there is anything, and how often
	// it is looked for otherwise.
	busyEvery = 100 * time.Millisecond
	idleEvery = time.Second

	// stepMax is how many cells or tokens one transaction removes.
	stepMax = 1000

	// A generation of tokens that could not be begun or dropped, since others had
	// their tables, is tried again only after a while: trying makes them wait.
	rotateEvery = time.Minute

	// logEvery is how often it is logged that the upkeep fails, at most.
	logEvery = time.Minute

	rotateWait = "200ms"
)

// keepUp folds what is pending, removes what has expired, and begins and drops
// generations of tokens and epochs of parts, until the store is closed. Several stores may do so at
// once: they only take work from each other.
func (s *Store) keepUp(ctx context.Context) {
	var rotated, logged time.Time
	timer := time.NewTimer(busyEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		busy, err := s.step(ctx)
		if err == nil && time.Since(rotated) >= rotateEvery {
			rotated = time.Now()
			if err = s.rotate(ctx); err == nil {
				err = s.turn(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.meters.upkeepErrors.Add(1)
			if time.Since(logged) >= logEvery {
				logged = time.Now()
				s.logger.Warn("the cleanup of the PostgreSQL schema failed and will be retried; until it succeeds, old tokens and expired counters pile up", "error", err)
			}
		}
		if busy {
			timer.Reset(busyEvery)
		} else {
			timer.Reset(idleEvery)
		}
	}
}

// step folds some of what is pending, removes some of what has expired, and gathers what
// was counted by SQL, and reports whether there was any of it.
func (s *Store) step(ctx context.Context) (busy bool, err error) {
	cells, err := s.cellsOf(ctx, s.sql.pendingCells, stepMax)
	if err == nil && len(cells) > 0 {
		busy = true
		_, err = s.transact(ctx, &work{cells: cells})
	}
	if err != nil {
		return busy, err
	}
	if cells, err = s.cellsOf(ctx, s.sql.dueCells, s.clock(), stepMax); err == nil && len(cells) > 0 {
		busy = true
		_, err = s.transact(ctx, &work{cells: cells})
	}
	if err != nil {
		return busy, err
	}
	var rows int64
	s.meters.trips.Add(1)
	err = s.pool.QueryRow(ctx, s.sql.gather).Scan(&rows)
	return busy || rows > 0, failure(ctx, err)
}

func (s *Store) cellsOf(ctx context.Context, sql string, args ...any) ([]store.Cell, error) {
	s.meters.trips.Add(1)
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, failure(ctx, err)
	}
	cells, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Cell, error) {
		var namespace, key []byte
		err := row.Scan(&namespace, &key)
		return store.Cell{Namespace: string(namespace), Key: string(key)}, err
	})
	return cells, failure(ctx, err)
}

// sweep removes all cells that had expired at some time and all tokens that had been
// kept long enough, but for what another is removing.
func (s *Store) sweep(ctx context.Context, nowMS int64) error {
	for {
		cells, err := s.cellsOf(ctx, s.sql.dueCells, nowMS, stepMax)
		if err == nil && len(cells) > 0 {
			_, err = s.transact(ctx, &work{cells: cells, swept: attemptsMax}) // no room is made for what makes it
		}
		if err != nil {
			return err
		}
		if len(cells) < stepMax {
			break
		}
	}
	for {
		if n, err := s.forget(ctx, nowMS); err != nil || n < stepMax {
			return err
		}
	}
}

// forget removes some tokens that had been kept long enough, and returns how many.
func (s *Store) forget(ctx context.Context, nowMS int64) (n int64, err error) {
	err = s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.sql.dueTokens, nowMS-store.TokenKeptMS(s.limits.TokenWindow), stepMax)
			if err != nil {
				return err
			}
			var namespaces [][]byte
			var gens []int32
			var less []int64
			var namespace []byte
			var gen int32
			var count, refusals int64
			_, err = pgx.ForEachRow(rows, []any{&namespace, &gen, &count, &refusals}, func() error {
				namespace := slices.Clone(namespace)
				namespaces, gens, less = append(namespaces, namespace, namespace), append(gens, gen, -gen), append(less, -count, -refusals)
				n += count
				return nil
			})
			if err != nil || n == 0 {
				return err
			}
			_, err = tx.Exec(ctx, s.sql.count, namespaces, gens, less)
			return err
		})
	})
	return n, failure(ctx, err)
}

// rotate begins a generation of tokens when the last one is as old as the
// window, and drops those whose last token has been kept long enough.
func (s *Store) rotate(ctx context.Context) error {
	for {
		changed := false
		err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
				changed, err = s.rotateOnce(ctx, tx)
				return err
			})
		})
		if code(err) == codeLockTimeout {
			return nil // another time
		}
		if err != nil || !changed {
			return failure(ctx, err)
		}
	}
}

// rotateOnce makes one step, and reports whether there may be another.
func (s *Store) rotateOnce(ctx context.Context, tx pgx.Tx) (bool, error) {
	if _, sql, err := s.rotation(ctx, tx); err != nil || sql == "" {
		return false, err
	}
	if _, err := tx.Exec(ctx, "set local lock_timeout = '"+rotateWait+"'"); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, s.locks.tokens); err != nil {
		return false, err
	}
	more, sql, err := s.rotation(ctx, tx) // another may have been first
	if err != nil || sql == "" {
		return more, err
	}
	_, err = tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return true, err
}

// rotation returns the SQL of the next step, none if none is due.
func (s *Store) rotation(ctx context.Context, tx pgx.Tx) (more bool, sql string, err error) {
	rows, err := tx.Query(ctx, s.sql.generations)
	if err != nil {
		return false, "", err
	}
	var gens []int32
	var froms []int64
	var gen int32
	var from, nowMS int64
	_, err = pgx.ForEachRow(rows, []any{&gen, &from, &nowMS}, func() error {
		gens, froms = append(gens, gen), append(froms, from)
		return nil
	})
	if err != nil || len(gens) == 0 {
		return false, "", err
	}
	if own := s.clock(); own != nil {
		nowMS = *own
	}
	last := len(gens) - 1
	switch {
	case nowMS-froms[last] >= s.limits.TokenWindow.Milliseconds():
		return true, fmt.Sprintf(s.sql.addGeneration, gens[last]+1, nowMS), nil
	case last > 0 && nowMS-froms[1] >= store.TokenKeptMS(s.limits.TokenWindow):
		return true, fmt.Sprintf(s.sql.dropGeneration, gens[0]), nil
	}
	return false, "", nil
}
