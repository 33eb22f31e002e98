package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/store"
)

// tables are the epochs that are known to have one. Another store may drop it: then the
// server refuses what is for it, and all are looked up again.
type tables struct {
	mu    sync.Mutex // guards known
	known map[store.Epoch]bool
}

// lack returns those of the epochs that are not known to have a table.
func (t *tables) lack(epochs []store.Epoch) []store.Epoch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(epochs, func(e store.Epoch) bool { return t.known[e] })
}

func (t *tables) set(epochs []store.Epoch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = make(map[store.Epoch]bool, len(epochs))
	for _, e := range epochs {
		t.known[e] = true
	}
}

// epochs returns the epochs that the events of the work have parts in, each once.
func (w *work) epochs() (epochs []store.Epoch) {
	add := func(p store.Part) {
		if f, ok := p.FloorOf(); ok && !slices.Contains(epochs, f.Epoch) {
			epochs = append(epochs, f.Epoch)
		}
	}
	for _, b := range w.batches {
		var plan *store.Plan
		for i := range b.Deltas {
			e := b.Deltas[i].Event
			if e == nil || e.Part == "" && len(e.Riders) == 0 && e.Plan == plan { // as the one before
				continue
			}
			add(e.Part)
			for j := range e.Len() {
				add(e.Rider(j).Part)
			}
			plan = e.Plan
		}
	}
	return epochs
}

// room makes the tables that the work needs, before it: a transaction that makes one
// keeps others waiting until it ends. Most are there, since the upkeep makes those of
// the present and the next epoch.
func (s *Store) room(ctx context.Context, w *work) error {
	if epochs := s.tables.lack(w.epochs()); len(epochs) > 0 {
		return s.makeTables(ctx, epochs)
	}
	return nil
}

// makeTables makes the tables of epochs that have none.
func (s *Store) makeTables(ctx context.Context, epochs []store.Epoch) error {
	var have []store.Epoch
	err := s.within(ctx, func(tx pgx.Tx) (err error) {
		if have, err = s.listTables(ctx, tx); err != nil || !slices.ContainsFunc(epochs, func(e store.Epoch) bool { return !slices.Contains(have, e) }) {
			return err
		}
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, s.locks.epochs); err != nil {
			return err
		}
		if have, err = s.listTables(ctx, tx); err != nil { // another may have been first
			return err
		}
		for _, e := range epochs {
			if !slices.Contains(have, e) {
				if _, err := tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(s.sql.addEpoch, tableOf(e), e)).ReadAll(); err != nil {
					return err
				}
				have = append(have, e)
			}
		}
		return nil
	})
	if err == nil {
		s.tables.set(have)
	}
	return err
}

// within does something in a transaction of its own.
func (s *Store) within(ctx context.Context, do func(pgx.Tx) error) error {
	err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return pgx.BeginFunc(ctx, conn, do) })
	return failure(ctx, err)
}

// tableOf returns how the name of an epoch's table ends.
func tableOf(e store.Epoch) string { return fmt.Sprintf("%08x", uint32(e)) }

func (s *Store) listTables(ctx context.Context, tx pgx.Tx) ([]store.Epoch, error) {
	rows, err := tx.Query(ctx, s.sql.epochs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Epoch, error) {
		var name string
		if err := row.Scan(&name); err != nil {
			return 0, err
		}
		e, err := strconv.ParseUint(name, 16, 32)
		return store.Epoch(e), err
	})
}

// turn makes the tables of the epochs that come, and drops those that nothing is kept of.
func (s *Store) turn(ctx context.Context) error {
	var have, live []store.Epoch
	var nowMS int64
	err := s.within(ctx, func(tx pgx.Tx) (err error) {
		if have, err = s.listTables(ctx, tx); err == nil {
			live, nowMS, err = s.liveEpochs(ctx, tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.tables.set(have)
	if lack := s.tables.lack(coming(live, nowMS)); len(lack) > 0 {
		if err := s.makeTables(ctx, lack); err != nil {
			return err
		}
	}
	for _, e := range have {
		if _, ends := e.Span(); ends > nowMS || slices.Contains(live, e) {
			continue
		}
		err := s.within(ctx, func(tx pgx.Tx) error { return s.dropTable(ctx, tx, e) })
		if code(err) == codeLockTimeout {
			return nil // another time
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// coming returns the present and the next epoch wherever the present or the last one is used.
func coming(live []store.Epoch, nowMS int64) (epochs []store.Epoch) {
	for _, e := range live {
		from, to := e.Span()
		if e == store.EpochForever || nowMS < from || nowMS-to >= to-from {
			continue
		}
		now := e + store.Epoch((nowMS-from)/(to-from))
		epochs = append(epochs, now, now+1)
	}
	return epochs
}

// liveEpochs returns the epochs that have parts above their floors, and the time.
func (s *Store) liveEpochs(ctx context.Context, tx pgx.Tx) (live []store.Epoch, nowMS int64, err error) {
	var epochs []int64
	if err := tx.QueryRow(ctx, s.sql.liveEpochs).Scan(&nowMS, &epochs); err != nil {
		return nil, 0, err
	}
	if own := s.clock(); own != nil {
		nowMS = *own
	}
	for _, e := range epochs {
		live = append(live, store.Epoch(e))
	}
	return live, nowMS, nil
}

// dropTable drops the table of an epoch, unless a part in it is kept. The lock on all
// parts comes first, as in every statement that changes one: nobody is writing to
// the table then, and it can be said what is in it.
func (s *Store) dropTable(ctx context.Context, tx pgx.Tx, e store.Epoch) error {
	for _, sql := range []string{"set local lock_timeout = '" + rotateWait + "'", s.sql.lockParts} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	have, err := s.listTables(ctx, tx)
	if err != nil || !slices.Contains(have, e) { // another was first
		return err
	}
	if live, _, err := s.liveEpochs(ctx, tx); err != nil || slices.Contains(live, e) {
		return err
	}
	_, err = tx.Conn().PgConn().Exec(ctx, fmt.Sprintf(s.sql.dropEpoch, tableOf(e), e)).ReadAll()
	return err
}
